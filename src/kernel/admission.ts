/**
 * Admission: at most `places` calls at a time. Later calls wait in order, each at most for its patience.
 */

import type { Clock } from "./ports.ts";

export class Admission {
  readonly #clock: Clock;
  #free: number;
  readonly #waiting = new Set<{ readonly admit: () => void; readonly refuse: () => void }>();

  constructor(clock: Clock, places: number) {
    this.#clock = clock;
    this.#free = places;
  }

  /** Waits for a free place, which the caller releases with `leave`. Returns false, with no place taken, if none becomes free in time. */
  enter(patienceMs: number): Promise<boolean> {
    if (this.#free > 0) {
      this.#free -= 1;
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const end = (isAdmitted: boolean): void => {
        cancel();
        this.#waiting.delete(waiter);
        resolve(isAdmitted);
      };
      const waiter = { admit: () => end(true), refuse: () => end(false) };
      const cancel = this.#clock.after(patienceMs, waiter.refuse);
      this.#waiting.add(waiter);
    });
  }

  /** Refuses all waiting calls. */
  close(): void {
    for (const { refuse } of [...this.#waiting]) refuse();
  }

  /** Releases a place; the call that has waited longest gets it. */
  leave(): void {
    const [first] = this.#waiting;
    if (first === undefined) this.#free += 1;
    else first.admit();
  }
}
