/**
 * Waiting for results: a caller that waits for a run is notified soon after the commit that ended it.
 */

import type { Row } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { RecordWatch } from "../../kernel/record-watch.ts";
import { isRunStatus, RUNS, type RunStatus, runAt } from "../stored.ts";

/** Commits of others come in bursts: one look for all of them. */
const BURST_MS = 5;

export class Results {
  readonly #kernel: Kernel;
  readonly #records: RecordWatch;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.#records = new RecordWatch(kernel, {
      isOfInterest: (row) => row.space === RUNS && (isSettled(row) || isDeleted(row)),
      burstMs: BURST_MS,
    });
  }

  /** The run's row as soon as it has ended, is parked or was deleted; returns also how to stop waiting. */
  wait(id: string): { readonly row: Promise<Row | null>; readonly stop: () => void } {
    // Its end may have been announced a moment ago, and is not announced again.
    const held = this.#kernel.held(runAt(id));
    if (held !== undefined && isSettled(held)) return { row: Promise.resolve(held), stop: () => {} };
    const { promise, resolve, reject } = Promise.withResolvers<Row | null>();
    const stop = this.#records.watch(runAt(id), {
      seen: (row) => {
        if (row !== null && !isSettled(row) && !isDeleted(row)) return false;
        resolve(row);
        return true;
      },
      failed: reject,
    });
    return { row: promise, stop };
  }

  /** Reads the run once, when a caller begins to wait for it. */
  look(id: string): Promise<void> {
    return this.#records.look(runAt(id));
  }
}

const isDeleted = ({ value }: Row): boolean => value === null;

/** Whether a caller that waits for the result of a run gets one, or an error, when the run has this status. */
const HAS_RESULT: Readonly<Record<RunStatus, boolean>> = {
  completed: true,
  failed: true,
  canceled: true,
  timed_out: true,
  expired: true,
  parked: true,
  pending: false,
  queued: false,
  running: false,
  waiting: false,
};

const isSettled = ({ status }: Row): boolean => isRunStatus(status) && HAS_RESULT[status];
