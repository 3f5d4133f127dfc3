/**
 * The line of a rate limit: time, counted exactly.
 *
 * A place on it is a whole number of `1 / max` milliseconds, of which a token has `perMs`, so nothing is ever rounded. They are big
 * integers while they are worked with, and milliseconds and parts where they are stored.
 */

/** What was declared. */
export interface Figures {
  readonly max: number;
  readonly perMs: number;
  readonly burst: number;
}

/** A stretch as it is stored: from and to, each in milliseconds and parts of the next one. */
export type Gap = readonly [fromMs: number, fromPart: number, toMs: number, toPart: number];

/** From and to. */
export type Stretch = readonly [from: bigint, to: bigint];

export class Line {
  readonly #parts: bigint;
  /** The length of a token. */
  readonly token: bigint;
  /** The length of a full bucket. */
  readonly full: bigint;

  constructor({ max, perMs, burst }: Figures) {
    this.#parts = BigInt(max);
    this.token = BigInt(perMs);
    this.full = BigInt(burst) * this.token;
  }

  at(ms: number, part = 0): bigint {
    return BigInt(ms) * this.#parts + BigInt(part);
  }

  stretch([fromMs, fromPart, toMs, toPart]: Gap): Stretch {
    return [this.at(fromMs, fromPart), this.at(toMs, toPart)];
  }

  /** A place as it is stored. */
  split(place: bigint): [ms: number, part: number] {
    return [Number(place / this.#parts), Number(place % this.#parts)];
  }

  gap([from, to]: Stretch): Gap {
    return [...this.split(from), ...this.split(to)];
  }

  /** A length in whole milliseconds, rounded up. */
  ms(length: bigint): number {
    return up(length, this.#parts);
  }

  /** A length in whole tokens, rounded up. */
  tokens(length: bigint): number {
    return up(length, this.token);
  }
}

/** None for a length that is none. */
const up = (length: bigint, by: bigint): number => (length > 0n ? Number((length + by - 1n) / by) : 0);

export const later = (a: bigint, b: bigint): bigint => (a > b ? a : b);

export const earlier = (a: bigint, b: bigint): bigint => (a < b ? a : b);

/** In order, and those that touch made one. */
export function joined(stretches: readonly Stretch[]): Stretch[] {
  const result: Stretch[] = [];
  for (const [from, to] of stretches.toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const last = result.at(-1);
    if (last?.[1] === from) result[result.length - 1] = [last[0], to];
    else result.push([from, to]);
  }
  return result;
}
