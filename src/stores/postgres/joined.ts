/**
 * Transactions of the application in which Pawl wrote rows (`joint.ts`): only the server knows when they end, and whether they were committed.
 */

import { type Clock, pause } from "../../kernel/ports.ts";
import { statement } from "./pipeline.ts";
import type { Reads } from "./reads.ts";

const XACT_STATUS = statement("select pg_xact_status($1::text::xid8)");

export class JoinedTransactions {
  readonly #clock: Clock;
  readonly #reads: Reads;
  readonly #committed: () => Promise<void>;
  /** The ids of those that are not known to have ended. */
  readonly #open = new Set<string>();

  /** `committed` tells other processes of a commit: the transaction has no mark of its own. */
  constructor(clock: Clock, reads: Reads, committed: () => Promise<void>) {
    this.#clock = clock;
    this.#reads = reads;
    this.#committed = committed;
  }

  /** Polls until the transaction has ended. Returns whether it was committed. */
  async hasEnded(xid: string): Promise<boolean> {
    this.#open.add(xid);
    for (let waitMs = 2; waitMs < 20_000 && this.#open.has(xid); waitMs *= 1.5) {
      await pause(this.#clock, waitMs);
      // A check that fails, because the server is unreachable or the store is being closed, is repeated later or not at all.
      const isCommitted = await this.#check(xid).catch(() => undefined);
      if (isCommitted !== undefined) return isCommitted;
    }
    this.#open.delete(xid);
    return false;
  }

  /** Returns whether it was committed; undefined while it is in progress. */
  async #check(xid: string): Promise<boolean | undefined> {
    const status = (await this.#reads.read({ statement: XACT_STATUS, values: [xid] })).rows[0]?.[0];
    if (status === "in progress") return undefined;
    this.#open.delete(xid);
    if (status !== "committed") return false;
    await this.#committed();
    return true;
  }

  /** Checks each one last time. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#open].map((xid) => this.#check(xid)));
    this.#open.clear();
  }
}
