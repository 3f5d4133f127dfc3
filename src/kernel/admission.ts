/**
 * Admission: at most so many at a time. Those that come later wait in order, each no longer than its patience.
 */

import type { Clock } from "./ports.ts";

export class Admission {
  readonly #clock: Clock;
  #free: number;
  readonly #waiting = new Set<{ readonly admit: () => void; readonly turnAway: () => void }>();

  constructor(clock: Clock, places: number) {
    this.#clock = clock;
    this.#free = places;
  }

  /** Waits for a place; every place is given up by `leave`. Returns false, with no place taken, if there is none in time. */
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
      const waiter = { admit: () => end(true), turnAway: () => end(false) };
      const cancel = this.#clock.after(patienceMs, waiter.turnAway);
      this.#waiting.add(waiter);
    });
  }

  /** Turns away all that wait. */
  close(): void {
    for (const { turnAway } of [...this.#waiting]) turnAway();
  }

  /** The place goes to the first in line. */
  leave(): void {
    const [first] = this.#waiting;
    if (first === undefined) this.#free += 1;
    else first.admit();
  }
}
