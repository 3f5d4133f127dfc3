/**
 * The timeline of a rate limit: time, counted exactly.
 *
 * A place on it is a whole number of `1 / max` milliseconds, and a token is `perMs` of them long, so nothing is ever rounded. Places are
 * big integers in computations, and milliseconds and parts where they are stored.
 */

/** The declared figures. */
export interface Figures {
  readonly max: number;
  readonly perMs: number;
  readonly burst: number;
}

/** A stretch as it is stored: from and to, each in milliseconds and parts of the next one. */
export type Gap = readonly [fromMs: number, fromPart: number, toMs: number, toPart: number];

/** From and to. */
export type Stretch = readonly [from: bigint, to: bigint];

export class Timeline {
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

/** Rounds up; 0 for a length of zero or less. */
const up = (length: bigint, by: bigint): number => (length > 0n ? Number((length + by - 1n) / by) : 0);

export const later = (a: bigint, b: bigint): bigint => (a > b ? a : b);

export const earlier = (a: bigint, b: bigint): bigint => (a < b ? a : b);

/** Sorts the stretches and merges adjacent ones. */
export function joined(stretches: readonly Stretch[]): Stretch[] {
  const result: Stretch[] = [];
  for (const [from, to] of stretches.toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const last = result.at(-1);
    if (last?.[1] === from) result[result.length - 1] = [last[0], to];
    else result.push([from, to]);
  }
  return result;
}
