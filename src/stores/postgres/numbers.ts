/**
 * Numbers for new rows. A batch reserves as many as it lacks, and as many again with its commit, because the next one will probably need them: so most
 * batches need no round trip for them.
 */

import type { Clock } from "../../kernel/ports.ts";
import type { Result } from "./pipeline.ts";

/** How long numbers that were reserved ahead are used. */
const SPARE_MS = 1000;

/** Numbers that were reserved ahead. */
export class SpareNumbers {
  readonly #clock: Clock;
  #ids: readonly number[] = [];
  #untilMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Takes numbers that were reserved recently, at most `count`. Older numbers would make new rows look old. */
  take(count: number): readonly number[] {
    if (this.#clock.nowMs() >= this.#untilMs) return [];
    const taken = this.#ids.slice(0, count);
    this.#ids = this.#ids.slice(count);
    return taken;
  }

  keep(more: readonly number[]): void {
    const nowMs = this.#clock.nowMs();
    if (nowMs < this.#untilMs) {
      this.#ids = this.#ids.concat(more);
      return;
    }
    this.#ids = more;
    this.#untilMs = nowMs + SPARE_MS;
  }

  /** Another server may assign them as well. */
  drop(): void {
    this.#ids = [];
    this.#untilMs = 0;
  }
}

export const numbersOf = (result: Result | undefined): readonly number[] =>
  result?.rows.map(([id]) => Number(id)) ?? [];
