/**
 * Retiring: runs that have ended are deleted when their time is over.
 *
 * A workflow says how long its runs are kept, by outcome; `open` can set a default for all of them; otherwise they are kept forever. The commit
 * that ends a run moves its record to a queue of ended runs, due when its time is over. Where that commit does not know the workflow's code (a
 * run that is canceled before it has begun), the run is due immediately, and a worker that knows the code sets the time. A run that is restarted
 * or retried goes back to the queue of its workflow by the commit that does so.
 *
 * A worker does it beside its claims (`kernel/sweep-loop.ts`). What counts is the retention of the worker's own code when the run is due: a longer
 * one applies to runs that have ended before, too.
 *
 * Guarantees: a run that has not ended, or is not due, is not deleted. Several workers may delete the same run.
 * Out of scope: runs that ended before their workflow had a retention; they are kept.
 */

import type { Queue } from "../../kernel/capability.ts";
import type { Address, Row } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { RunNotFoundError } from "../errors.ts";
import { deletingQueueOf, endedQueueOf, hasEnded, queueOf, workflowOfQueue } from "../stored.ts";
import { deleteRun } from "./delete.ts";

export interface RetentionOptions {
  /** The workflows whose runs are not all kept forever. */
  readonly workflows: readonly string[];
  /** How long a run of this workflow is kept, in milliseconds; null is forever. */
  keptMs(workflow: string, status: string): number | null;
}

/** What a worker that knows these workflows does about their runs that have ended. */
export function retentionQueues(kernel: Kernel, options: RetentionOptions): readonly Queue[] {
  const chore = (at: Address): Promise<void> => retire(kernel, options, at);
  return options.workflows.flatMap((name) =>
    [endedQueueOf(name), deletingQueueOf(name)].map((kind) => ({ kind, chore })),
  );
}

async function retire(kernel: Kernel, options: RetentionOptions, at: Address): Promise<void> {
  try {
    const [row] = await kernel.read([at]);
    if (row == null || row.value === null) return;
    const dueMs = await dueMsOf(kernel, options, at, row);
    if (dueMs === "now") await deleteRun(kernel, at.key, isDue);
    else await kernel.transact((tx) => putOff(tx, at, row, dueMs), [at]);
  } catch (error) {
    if (!(error instanceof RunNotFoundError)) throw error;
  }
}

/** When its time is over, by the code that is here; null for never. Its last fact is its end. */
async function dueMsOf(
  kernel: Kernel,
  options: RetentionOptions,
  at: Address,
  row: Row,
): Promise<number | null | "now"> {
  const workflow = workflowOfQueue(row.kind);
  if (row.kind === deletingQueueOf(workflow)) return "now";
  const keptMs = options.keptMs(workflow, row.status ?? "");
  if (keptMs === null) return null;
  const [last] = await kernel.entries(at, row.head - 1, 1);
  const nowMs = await kernel.transact((tx) => tx.nowMs, []);
  const dueMs = (last?.atMs ?? nowMs) + keptMs;
  return dueMs <= nowMs ? "now" : dueMs;
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
  if (!run.exists || run.version !== seen.version || !hasEnded(run)) return;
  const workflow = workflowOfQueue(run.kind);
  run.write({ dueMs, kind: dueMs === null ? queueOf(workflow) : endedQueueOf(workflow) });
}
