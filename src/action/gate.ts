/**
 * The gate before slow hashes: two at once in a process, a few that wait for their turn, and everybody else is told to come back.
 *
 * A flood of PINs then costs two cores at most, and what waits is bounded. Nothing is written before a place is had, so whoever is told
 * to come back has lost nothing.
 */

import { PinBusyError } from "./errors.ts";

const AT_ONCE = 2;
const WAITING = 8;

export class HashGate {
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  /** Runs it when its turn comes; throws `busy` if too many wait already. */
  async run<T>(act: () => Promise<T>): Promise<T> {
    if (this.#running < AT_ONCE) this.#running += 1;
    else if (this.#waiting.length >= WAITING) throw new PinBusyError();
    // Whoever ends hands its place on, so that nobody slips in between.
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
