/**
 * Reads that share round trips: those of the same moment go into one pipeline, and so do those that arrive while others are in progress.
 *
 * Each is a statement with its own snapshot, taken after it was requested, so it sees what it would see alone. If one fails, those after it
 * in the pipeline fail too; then each is sent again by itself.
 */

import { StoreError } from "../../kernel/errors.ts";
import type { ConnectionPool } from "./connections.ts";
import { failure, isFatal, isServerError } from "./failure.ts";
import type { Call, Result } from "./pipeline.ts";

/** The limits of concurrent pipelines, and of reads in one. */
const MAX_PIPELINES = 3;
const MAX_READS = 32;

interface PendingRead {
  readonly call: Call;
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
}

export const standbyError = (): StoreError =>
  new StoreError("store_readonly", "retry", "the server is a standby: connect to the primary");

export class Reads {
  readonly #connections: ConnectionPool;
  /** Runs first, and returns whether the server is a standby. */
  readonly #pinned: Call;
  readonly #observe: (pinned: Result | undefined) => void;
  #waiting: PendingRead[] = [];
  #running = 0;

  constructor(connections: ConnectionPool, pinned: Call, observe: (pinned: Result | undefined) => void) {
    this.#connections = connections;
    this.#pinned = pinned;
    this.#observe = observe;
  }

  read(call: Call): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ call, resolve, reject });
      // Waits for other reads of the same moment.
      if (this.#waiting.length === 1) queueMicrotask(() => this.#sendWaiting());
    });
  }

  #sendWaiting(): void {
    while (this.#waiting.length > 0 && this.#running < MAX_PIPELINES) {
      this.#running += 1;
      void this.#send(this.#waiting.splice(0, MAX_READS)).then(() => {
        this.#running -= 1;
        this.#sendWaiting();
      });
    }
  }

  async #send(reads: readonly PendingRead[]): Promise<void> {
    try {
      const [pinned, ...results] = await this.#connections.use((connection) =>
        connection.send([this.#pinned, ...reads.map(({ call }) => call)]),
      );
      // A standby may lag behind, so it is not read.
      if (pinned?.rows[0]?.[0] !== "f" || results.length !== reads.length) throw standbyError();
      this.#observe(pinned);
      reads.forEach(({ resolve }, index) => {
        resolve(results[index] as Result);
      });
    } catch (error) {
      if (reads.length > 1 && isServerError(error) && !isFatal(error))
        await Promise.all(reads.map((one) => this.#send([one])));
      else for (const { reject } of reads) reject(failure(error, false));
    }
  }
}
