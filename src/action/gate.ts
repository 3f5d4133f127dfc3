/**
 * Limits slow hashes: two run concurrently in a process, a few wait, and all others throw `busy`.
 *
 * So a flood of PINs costs at most two cores, and the number of waiting calls is bounded. Nothing is written before a hash may run, so a call
 * that gets `busy` has lost nothing.
 */

import { PinBusyError } from "./errors.ts";

const MAX_RUNNING = 2;
const MAX_WAITING = 8;

export class HashGate {
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  /** Runs it when its turn comes; throws `busy` if too many wait already. */
  async run<T>(act: () => Promise<T>): Promise<T> {
    if (this.#running < MAX_RUNNING) this.#running += 1;
    else if (this.#waiting.length >= MAX_WAITING) throw new PinBusyError();
    // A call that ends passes its place to the first waiting one, so that no other overtakes it.
    else await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    try {
      return await act();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }
}
