/**
 * Admission: at most so many at a time. Those that come later wait in order, each no longer than its patience.
 */

import type { Clock } from "./ports.ts";

export class Admission {
  readonly #clock: Clock;
  #free: number;
  readonly #waiting = new Set<() => void>();

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
      const admit = (): void => {
        cancel();
        resolve(true);
      };
      const cancel = this.#clock.after(patienceMs, () => {
        this.#waiting.delete(admit);
        resolve(false);
      });
      this.#waiting.add(admit);
    });
  }

  /** The place goes to the first in line. */
  leave(): void {
    const [first] = this.#waiting;
    if (first === undefined) this.#free += 1;
    else {
      this.#waiting.delete(first);
      first();
    }
  }
}
