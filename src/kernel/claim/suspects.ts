/**
 * Suspects: records in work that were claimed before without coming to rest, and so may be what crashes their processes.
 *
 * Few of them share a process, fewer the more often they were tried, and in the end one at a time, each after the earlier ones have run for a while: so a record
 * that only shared a process with the cause is cleared in the end. If a kind of records has a maximum of tries, the last try never shares its process with
 * another suspect.
 */

import type { Clock } from "../ports.ts";
import type { Held } from "./claim.ts";

/** How often a record may be claimed without coming to rest before it is a suspect, and how long it must run to be cleared. */
export const MOST_TRIES = 1;
const CLEARED_AFTER_MS = 3000;

/** Stands for the number of tries of a record that has no other try left. */
export const LAST_TRY = Number.POSITIVE_INFINITY;

export class Suspects {
  readonly #clock: Clock;
  readonly #cleared: () => void;
  /** How often those in work were tried. */
  readonly #tries = new Map<Held, number>();

  /** `cleared` is called with each one that is none any more: others may be claimed. */
  constructor(clock: Clock, cleared: () => void) {
    this.#clock = clock;
    this.#cleared = cleared;
  }

  /** Whether a record that was tried so often may be in work beside those that are. */
  mayAdd(tries: number): boolean {
    return this.#tries.size < mostTogether(Math.max(tries, this.#mostTried));
  }

  /** One of them is in its last try. */
  get hasLastTry(): boolean {
    return this.#mostTried === LAST_TRY;
  }

  /** It is a suspect until it has run for a while, or its work is done. */
  add(held: Held, tries: number, working: Promise<void>): void {
    this.#tries.set(held, tries);
    const cancel = this.#clock.after(CLEARED_AFTER_MS, () => this.#clear(held));
    void working.then(() => {
      cancel();
      this.#clear(held);
    });
  }

  get #mostTried(): number {
    let most = 0;
    for (const tries of this.#tries.values()) most = Math.max(most, tries);
    return most;
  }

  #clear(held: Held): void {
    if (this.#tries.delete(held)) this.#cleared();
  }
}

/** How many suspects may share a process if one of them was tried `tries` times. */
function mostTogether(tries: number): number {
  if (tries <= MOST_TRIES + 1) return 16;
  return tries === MOST_TRIES + 2 ? 4 : 1;
}
