/**
 * Retiring: runs that have ended are deleted when their time is over.
 *
 * A workflow says how long its runs are kept, by outcome; `open` can set a default for all of them; otherwise they are kept forever. The commit
 * that ends a run moves its record to a queue of ended runs, due when its time is over. Where that commit does not know the workflow's code (a
 * run that is canceled before it has begun), the run is due immediately, and a worker that knows the code sets the time. A run that is restarted
 * or retried goes back to the queue of its workflow by the commit that does so.
 *
 * A worker looks for runs that are due in a loop of its own, beside the claims. It deletes a few at a time, and then rests for as long as that
 * took, so at most half of the time is spent on it. What counts is the retention of the worker's own code when the run is due: a longer one
 * applies to runs that have ended before, too.
 *
 * Promises: a run that has not ended, or is not due, is not deleted. Several workers may delete the same run.
 * Leaves out: runs that ended before their workflow had a retention; they are kept.
 */

import { type Address, address, type Key, type Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { ClosedError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { pause } from "../kernel/ports.ts";
import { deleteRun } from "./delete.ts";
import { RunNotFoundError } from "./errors.ts";
import { RETENTION_POLL_MS } from "./retention.ts";
import { deletingQueueOf, endedQueueOf, queueOf, workflowOfQueue } from "./run.ts";
import { ENDED } from "./words.ts";

/** So many due runs are looked at, and so many of them are deleted together. */
const LOOKED_AT = 200;
const TOGETHER = 20;
/** A run that could not be deleted is tried again after this time. */
const LEFT_ALONE_MS = 10 * 60_000;
const MOST_LEFT_ALONE = 1000;

export interface RetentionOptions {
  /** The workflows whose runs are not all kept forever. */
  readonly workflows: readonly string[];
  /** How long a run of this workflow is kept, in milliseconds; null is forever. */
  keptMs(workflow: string, status: string): number | null;
  readonly failed: (error: unknown) => void;
}

/** The loop of one worker. */
export class RetentionLoop {
  readonly #kernel: Kernel;
  readonly #options: RetentionOptions;
  readonly #stopping = new AbortController();
  /** Runs that could not be deleted, and until when they are left alone. */
  readonly #leftAlone = new Map<string, number>();
  readonly #ended: Promise<void>;

  constructor(kernel: Kernel, options: RetentionOptions) {
    this.#kernel = kernel;
    this.#options = options;
    this.#ended = options.workflows.length === 0 ? Promise.resolve() : this.#loop();
  }

  /** Finishes the runs that are being deleted. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#ended;
  }

  async #loop(): Promise<void> {
    const { clock } = this.#kernel.ports;
    const { signal } = this.#stopping;
    // The first look is a while after the start, so that processes that live shortly have nothing to do with it.
    for (let waitMs = RETENTION_POLL_MS; ; ) {
      await pause(clock, waitMs, signal);
      if (signal.aborted) return;
      try {
        waitMs = await this.look();
      } catch (error) {
        if (error instanceof ClosedError) return;
        this.#options.failed(error);
        waitMs = RETENTION_POLL_MS;
      }
    }
  }

  /** Deletes some of the runs that are due. Returns how long to wait before the next look. */
  async look(): Promise<number> {
    const { clock, chance } = this.#kernel.ports;
    const startedMs = clock.nowMs();
    for (const [id, untilMs] of this.#leftAlone) if (untilMs <= startedMs) this.#leftAlone.delete(id);
    const kinds = this.#options.workflows.flatMap((name) => [endedQueueOf(name), deletingQueueOf(name)]);
    const limit = LOOKED_AT + this.#leftAlone.size;
    const { keys } = await this.#kernel.due({ kinds, limit });
    const due = keys.filter(({ key }) => !this.#leftAlone.has(key));
    if (due.length === 0) return RETENTION_POLL_MS;
    // Another worker may look at the same moment: each begins at another place.
    const from = due.length <= TOGETHER ? 0 : Math.floor(chance.random() * (due.length - TOGETHER + 1));
    await Promise.all(due.slice(from, from + TOGETHER).map((key) => this.#retire(key)));
    if (due.length <= TOGETHER && keys.length < limit) return RETENTION_POLL_MS;
    return Math.max(1, clock.nowMs() - startedMs);
  }

  async #retire({ space, key }: Key): Promise<void> {
    const at = address(space, key);
    try {
      const [row] = await this.#kernel.read([at]);
      if (row == null || row.value === null) return;
      const dueMs = await this.#dueMs(at, row);
      if (dueMs === "now") await deleteRun(this.#kernel, key, isDue);
      else await this.#kernel.transact((tx) => putOff(tx, at, row, dueMs), [at]);
    } catch (error) {
      if (error instanceof RunNotFoundError) return;
      if (error instanceof ClosedError) throw error;
      this.#options.failed(error);
      if (this.#leftAlone.size < MOST_LEFT_ALONE)
        this.#leftAlone.set(key, this.#kernel.ports.clock.nowMs() + LEFT_ALONE_MS);
    }
  }

  /** When its time is over, by the code that is here; null for never. Its last fact is its end. */
  async #dueMs(at: Address, row: Row): Promise<number | null | "now"> {
    const workflow = workflowOfQueue(row.kind);
    if (row.kind === deletingQueueOf(workflow)) return "now";
    const keptMs = this.#options.keptMs(workflow, row.status ?? "");
    if (keptMs === null) return null;
    const [last] = await this.#kernel.entries(at, row.head - 1, 1);
    const nowMs = await this.#kernel.transact((tx) => tx.nowMs, []);
    const dueMs = (last?.atMs ?? nowMs) + keptMs;
    return dueMs <= nowMs ? "now" : dueMs;
  }
}

/** Whether a run is still to be deleted: it may have been restarted or retried since it was looked at. */
function isDue(run: Draft, tx: Tx): boolean {
  const workflow = workflowOfQueue(run.kind);
  if (run.kind === deletingQueueOf(workflow)) return true;
  return run.kind === endedQueueOf(workflow) && run.dueMs !== null && run.dueMs <= tx.nowMs;
}

/** It is kept for longer, or forever. */
function putOff(tx: Tx, at: Address, seen: Row, dueMs: number | null): void {
  const run = tx.record(at);
  if (!run.exists || run.version !== seen.version || !ENDED.has(run.status ?? "")) return;
  const workflow = workflowOfQueue(run.kind);
  run.write({ dueMs, kind: dueMs === null ? queueOf(workflow) : endedQueueOf(workflow) });
}
