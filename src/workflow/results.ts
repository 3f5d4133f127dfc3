/**
 * Waiting for results: whoever waits for a run hears of its end soon after the commit that ended it.
 */

import type { Row } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { Lookout } from "../kernel/lookout.ts";
import { RUNS, runAt } from "./run.ts";
import { ENDED } from "./words.ts";

/** Commits of others come in bursts: one look for all of them. */
const BURST_MS = 5;

export class Results {
  readonly #kernel: Kernel;
  readonly #lookout: Lookout;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.#lookout = new Lookout(kernel, {
      isOfInterest: (row) => row.space === RUNS && (isSettled(row) || isDeleted(row)),
      burstMs: BURST_MS,
    });
  }

  /** The run's row as soon as it has ended, is parked or was deleted; returns also how to stop waiting. */
  wait(id: string): { readonly row: Promise<Row | null>; readonly stop: () => void } {
    // Its end may have been told a moment ago, and is not told again.
    const held = this.#kernel.held(runAt(id));
    if (held !== undefined && isSettled(held)) return { row: Promise.resolve(held), stop: () => {} };
    const { promise, resolve, reject } = Promise.withResolvers<Row | null>();
    const stop = this.#lookout.watch(runAt(id), {
      seen: (row) => {
        if (row !== null && !isSettled(row) && !isDeleted(row)) return false;
        resolve(row);
        return true;
      },
      failed: reject,
    });
    return { row: promise, stop };
  }

  /** Looks once for a run that somebody begins to wait for. */
  look(id: string): Promise<void> {
    return this.#lookout.look(runAt(id));
  }
}

const isDeleted = ({ value }: Row): boolean => value === null;

const isSettled = (row: Row): boolean => ENDED.has(row.status ?? "") || row.status === "parked";
