/**
 * A lane: one writer's sequence of commits, and how the outcome of a commit is found out whose reply was lost.
 *
 * Each commit carries a mark (lane, epoch, sequence) that is stored with what it writes. When a reply is lost, the store is asked to settle: it
 * makes sure that nothing of the lane is under way, begins a new epoch, which a commit that arrives late cannot pass, and returns the last
 * sequence that is there. Batches and shared transactions (`batcher.ts`, `joint.ts`) use the same lanes.
 *
 * Guarantee: every commit is known to be there, known not to be there, or reported as unknown; never a guess (G2).
 */

import { backoffMs, STORE_BACKOFF } from "./backoff.ts";
import type { Batch, Store } from "./contract.ts";
import { StoreError } from "./errors.ts";
import { type Ports, pause } from "./ports.ts";

/** The outcome of a commit whose reply was lost. */
export type Resolved = "committed" | "not-committed" | "unknown";

export class Lane {
  readonly index: number;
  readonly #store: Store;
  readonly #ports: Ports;
  /** Null until settled: at the start, and after a reply was lost. */
  #epoch: number | null = null;
  #sequence = 0;
  /** The last sequence whose commit was acknowledged; 0 before the first. */
  #acknowledged = 0;
  #failures = 0;

  constructor(store: Store, ports: Ports, index: number) {
    this.#store = store;
    this.#ports = ports;
    this.index = index;
  }

  /** Makes sure that the lane knows where it stands; returns what prevents it, if anything does. */
  async settle(): Promise<StoreError | undefined> {
    if (this.#epoch !== null) return undefined;
    try {
      const { epoch, sequence } = await this.#store.settle(this.index);
      this.#epoch = epoch;
      this.#sequence = sequence;
      return undefined;
    } catch (error) {
      if (error instanceof StoreError) return error;
      throw error;
    }
  }

  /** The mark of the next commit; the lane is settled. */
  nextMark(): Pick<Batch, "lane" | "epoch" | "sequence"> {
    this.#sequence += 1;
    return { lane: this.index, epoch: this.#epoch ?? 0, sequence: this.#sequence };
  }

  /** The commit with the last mark is there. */
  acknowledge(): void {
    this.#acknowledged = this.#sequence;
  }

  /** The next commit needs a new epoch, whatever became of the last one. */
  unsettle(): void {
    this.#epoch = null;
  }

  /** Finds the outcome of the commit with the last mark: asks the store until it responds, until `giveUpAtMs`, or until `over` aborts. */
  async resolve(lost: StoreError, giveUpAtMs: number, over?: AbortSignal): Promise<Resolved> {
    const sequence = this.#sequence;
    const { clock } = this.#ports;
    this.unsettle();
    while ((await this.settle()) !== undefined) {
      if (giveUpAtMs <= clock.nowMs() || over?.aborted === true) return "unknown";
      await pause(clock, this.backoffMs(), over);
    }
    // What was refused, as of an older epoch, was not written, wherever the lane stands now.
    if (lost.code === "store_refused") return "not-committed";
    if (this.#sequence >= sequence) {
      this.#acknowledged = sequence;
      return "committed";
    }
    // Below what was acknowledged: the store was put back in time, or has lost the mark, so it cannot say.
    return this.#sequence < this.#acknowledged ? "unknown" : "not-committed";
  }

  /** How long to wait after one more failure. */
  backoffMs(): number {
    this.#failures += 1;
    return backoffMs(STORE_BACKOFF, this.#failures, this.#ports.chance);
  }

  succeeded(): void {
    this.#failures = 0;
  }
}

/** For a commit whose reply was lost, where the store could not say its outcome. */
export const outcomeUnknown = (lost: StoreError): StoreError =>
  new StoreError("outcome_unknown", "settle", lost.message, { cause: lost });

/** For a commit whose reply was lost, and which is not there. */
export const notCommitted = (lost: StoreError): StoreError =>
  new StoreError("store_unreachable", "retry", "the commit did not reach the store", { cause: lost });
