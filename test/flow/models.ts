/**
 * The definitions of debounce, batch and rates as models: from the moments of the starts, in the order of their commits, they compute when runs begin and
 * with which inputs.
 */

export interface Start {
  readonly atMs: number;
  readonly key: string;
  readonly n: number;
}

/** Starts that are one run, and when it is complete. */
export interface Group {
  readonly dueMs: number;
  readonly items: readonly number[];
}

/** Collects starts by key; a start at the moment at which the run is due is of the next one. */
function collect(
  starts: readonly Start[],
  dueAfter: (firstMs: number, atMs: number, count: number) => number,
): readonly Group[] {
  const groups: Group[] = [];
  const open = new Map<string, { firstMs: number; dueMs: number; items: number[] }>();
  for (const { atMs, key, n } of starts) {
    let group = open.get(key);
    if (group === undefined || atMs >= group.dueMs) {
      group = { firstMs: atMs, dueMs: 0, items: [] };
      open.set(key, group);
      groups.push(group);
    }
    group.items.push(n);
    group.dueMs = dueAfter(group.firstMs, atMs, group.items.length);
  }
  return groups;
}

/** A run begins `period` after the last start, or `maxWait` after the first. */
export const debounced = (starts: readonly Start[], periodMs: number, maxWaitMs: number | null): readonly Group[] =>
  collect(starts, (firstMs, atMs) => Math.min(atMs + periodMs, firstMs + (maxWaitMs ?? Number.POSITIVE_INFINITY)));

/** A run begins with `size` inputs, or `maxWait` after the first start. */
export const batched = (starts: readonly Start[], size: number, maxWaitMs: number): readonly Group[] =>
  collect(starts, (firstMs, atMs, count) => (count === size ? atMs : firstMs + maxWaitMs));

/** The moments at which runs have their turns: one each `tokenMs`, and up to `burst` together after a pause. */
export function turnsOf(atMs: readonly number[], tokenMs: number, burst: number): readonly number[] {
  const rate = new Rate(tokenMs, burst);
  return atMs.map((ms) => rate.take(ms));
}

/** A rate, from one start to the next. */
export class Rate {
  readonly #tokenMs: number;
  readonly #burst: number;
  /** What was taken fills the time up to here. */
  #takenUntilMs = 0;

  constructor(tokenMs: number, burst: number) {
    this.#tokenMs = tokenMs;
    this.#burst = burst;
  }

  /** When the next one has its turn. */
  turn(atMs: number): number {
    return Math.max(atMs, Math.max(this.#takenUntilMs, atMs) + (1 - this.#burst) * this.#tokenMs);
  }

  take(atMs: number): number {
    const turnMs = this.turn(atMs);
    this.#takenUntilMs = Math.max(this.#takenUntilMs, atMs) + this.#tokenMs;
    return turnMs;
  }
}
