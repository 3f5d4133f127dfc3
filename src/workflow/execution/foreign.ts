/**
 * Code that waits for something that is no operation of `ctx`, such as `fetch` or a timer.
 *
 * Nothing tells this process when such code continues: it is polled for a while, and after that the run is stuck. Where the run rests
 * although its code waits for something foreign as well, a warning says so.
 */

import type { Coroutine } from "./coroutine.ts";

/** How long code may wait for something foreign while it waits for nothing else. */
const STUCK_MS = 10_000;
const LONGEST_POLL_MS = 500;

interface Timers {
  after(ms: number, callback: () => void): () => void;
}

/** Watches code that waits for no operation at all. */
export class ForeignWatch {
  readonly #clock: Timers;
  readonly #coroutine: Coroutine;
  readonly #continued: () => void;
  readonly #stuck: () => void;
  #cancel: (() => void) | undefined;

  constructor(clock: Timers, coroutine: Coroutine, continued: () => void, stuck: () => void) {
    this.#clock = clock;
    this.#coroutine = coroutine;
    this.#continued = continued;
    this.#stuck = stuck;
  }

  start(): void {
    if (this.#cancel !== undefined) return;
    this.#cancel = this.#clock.after(STUCK_MS, () => {
      if (this.#cancel !== undefined && this.#coroutine.waiting.size === 0) this.#stuck();
    });
    this.#poll(1);
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /** Code that continues by itself is noticed when it starts an operation, or returns. */
  #poll(ms: number): void {
    this.#clock.after(ms, () => {
      if (this.#cancel === undefined) return;
      if (this.#coroutine.hasNew || this.#coroutine.outcome !== undefined) this.#continued();
      else this.#poll(Math.min(LONGEST_POLL_MS, ms * 2));
    });
  }
}

/** The run rests: warns if its code waits for something foreign, now, or when it continues although the run rests. */
export function warnOfForeign(coroutine: Coroutine, warn: (message: string) => void): void {
  const say = (what: string): void =>
    warn(`${what} awaits something that is not an operation of ctx, such as fetch or a timer: do it in ctx.step`);
  if (coroutine.awaitsForeign) say("the workflow's function");
  else coroutine.strayed = (did) => say(`${did} while the run was waiting: its code`);
}
