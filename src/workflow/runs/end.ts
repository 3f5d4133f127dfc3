/**
 * Ending a run: decisions that cancel it from outside, and the one that writes its end, which the holder's commit uses too.
 *
 * The commit that ends a run also releases its locks and notifies the runs that wait for it.
 */

import { wake } from "../../kernel/claim/claim.ts";
import { address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { RunCanceledError } from "../errors.ts";
import { stopCollecting } from "../flow/collect.ts";
import type { Succession } from "../flow/hand-over.ts";
import { leave } from "../flow/places.ts";
import { runOf } from "../history/read-run.ts";
import { dropHolds } from "../locks/locks.ts";
import {
  type EndedStatus,
  endedQueueOf,
  hasBegun,
  type Outcome,
  queueOf,
  type RunStatus,
  runAt,
  statusOf,
  type Waiters,
  waitersAt,
} from "../stored.ts";
import { existingRun, notifyParent, notifyWaiters } from "./messages.ts";
import { wakeRun } from "./wake.ts";

/** What a request to cancel does to a run: ends it, ends it if its code has not begun, asks its code to stop, or nothing. */
const ON_CANCEL: Readonly<Record<RunStatus, "end" | "end unless begun" | "ask" | "nothing">> = {
  // A run that was retried is pending, too, and has begun.
  pending: "end unless begun",
  queued: "end unless begun",
  running: "ask",
  waiting: "ask",
  parked: "end",
  completed: "nothing",
  failed: "nothing",
  canceled: "nothing",
  timed_out: "nothing",
  expired: "nothing",
};

/**
 * Asks a run to stop. One that has not begun, or is parked, ends immediately; with `force`, so does any other. The caller has canceled the
 * children of such a run before.
 */
export function cancelRun(
  tx: Tx,
  id: string,
  options: { readonly reason?: string | undefined; readonly workflow?: string | undefined; readonly force?: boolean },
): RunStatus {
  const { reason, workflow, force = false } = options;
  const value = existingRun(tx, id, workflow);
  const run = tx.record(runAt(id));
  const status = statusOf(run);
  const onCancel = ON_CANCEL[status];
  if (onCancel === "nothing") return status;
  const cancel = reason === undefined ? {} : { reason };
  const isBegun = hasBegun(run, value);
  if (onCancel === "end" || (onCancel === "end unless begun" && !isBegun) || force) {
    // The worker that holds it, if there is one, notices that it has lost the run.
    run.write({ value: { ...value, cancel }, wakes: run.wakes + 1 });
    endCanceled(tx, run, id, cancel, { hasBegun: isBegun || onCancel === "end" || force });
    return "canceled";
  }
  // It was retried, and has not begun again: a worker ends it, with the children that were retried with it.
  if (status === "queued") {
    run.write({
      value: { ...leave(tx, run), cancel: { ...cancel, isWithoutCode: true } },
      status: "pending" satisfies RunStatus,
      kind: queueOf(value.workflow, value.pool),
      dueMs: tx.nowMs,
      tries: 0,
    });
    return "pending";
  }
  // One that was to resume after it has stopped, because its parent was retried, is not to any more.
  if (value.cancel === undefined || value.cancel.resumes === true) run.write({ value: { ...value, cancel } });
  wakeRun(tx, id);
  return status;
}

/** Ends a run without its code. One that has not begun is resumed with its parent, if that is retried. */
export function endCanceled(
  tx: Tx,
  run: Draft,
  id: string,
  cancel: { readonly reason?: string | undefined },
  { hasBegun }: { readonly hasBegun: boolean },
): void {
  const version = run.append("canceled", cancel);
  const forgets = hasBegun ? {} : { forgets: { facts: [[version, version]] as const, children: [] } };
  const value = runOf(run);
  // `result` says the reason.
  run.write({ value: { ...value, cancel: value.cancel ?? cancel, ...forgets } });
  endRun(tx, run, id, "canceled", { error: withoutStack(new RunCanceledError(id, cancel.reason)) });
}

/** An error that a decision stores: its stack says nothing, and differs each time that the decision runs. */
export function withoutStack<E>(error: E): E {
  if (error instanceof Error)
    try {
      error.stack = `${error.name}: ${error.message}`;
    } catch {
      // It cannot be changed, so it is stored as it is.
    }
  return error;
}

/**
 * Ends a run: its outcome, its status, and the messages to the runs that wait for it, in one commit. `nowMs` may be approximate. The run is kept
 * for `keptMs`, or forever (null); where that is not known, a worker that knows the workflow sets it (`retire.ts`). `next` takes the run that is
 * admitted now for this process.
 */
export function endRun(
  tx: Tx,
  run: Draft,
  id: string,
  status: EndedStatus,
  outcome: Outcome,
  {
    nowMs = tx.approxNowMs,
    keptMs = 0,
    notifies = true,
    next,
  }: {
    readonly nowMs?: number;
    readonly keptMs?: number | null;
    readonly notifies?: boolean;
    readonly next?: Succession | undefined;
  } = {},
): void {
  dropHolds(tx, run);
  const left = leave(tx, run, next);
  if (left.collecting !== undefined) stopCollecting(tx, left.workflow, id, left.collecting);
  const { input: _input, doing: _doing, trouble: _trouble, retrying: _retrying, hasWaiters, ...value } = left;
  const endedAtMs = Math.max(nowMs, value.startedAtMs);
  const queue = keptMs === null ? { dueMs: null } : { kind: endedQueueOf(value.workflow), dueMs: endedAtMs + keptMs };
  if (!notifies) {
    run.write({ value: { ...value, outcome, endedAtMs, ...(hasWaiters === true ? { hasWaiters } : {}) }, status });
    return;
  }
  run.write({ value: { ...value, outcome, endedAtMs }, status, holder: null, tries: 0, ...queue });
  if (value.wakesAtEnd !== undefined) wake(tx, address(...value.wakesAtEnd));
  if (value.parent?.waits === true) notifyParent(tx, value.parent, id, outcome);
  if (hasWaiters === true) {
    const list = tx.record(waitersAt(id));
    if (list.exists) list.write({ value: { ...(list.value as Waiters), outcome } });
    notifyWaiters(tx, id);
  }
}
