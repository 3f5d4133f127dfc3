/**
 * Retrying a run: decisions that let a run which failed or is parked continue, and its children with it.
 *
 * A run that ends keeps with it what a retry forgets (`history/forgotten.ts`). The retry marks those facts as skipped and makes the run due.
 * Everything else in its history is remembered. Children that failed with it are retried in the same commit, where they are few, and otherwise
 * by the worker that takes the run, before its code begins.
 */

import type { Address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { RunConflictError, RunNotFoundError } from "../errors.ts";
import type { Gate } from "../flow/stored.ts";
import { withSkips } from "../history/forgotten.ts";
import { readableValue, runOf } from "../history/read-run.ts";
import {
  hasEnded,
  inboxAt,
  type Parent,
  queueOf,
  type RunStatus,
  type RunValue,
  runAt,
  statusOf,
  type ToRetry,
  type VersionRange,
} from "../stored.ts";
import { withoutStack } from "./end.ts";
import { checkNotDeleting, isDeleting } from "./existing.ts";
import { addWaiter, notifyParent } from "./messages.ts";

/** One commit retries at most this many children. */
const MOST_RETRIED = 100;

/** Whether an operator can retry a run of this status. */
const CAN_RETRY: Readonly<Record<RunStatus, boolean>> = {
  failed: true,
  parked: true,
  expired: true,
  pending: false,
  queued: false,
  running: false,
  waiting: false,
  completed: false,
  canceled: false,
  timed_out: false,
};

/** Lets a run that failed, expired or is parked continue. What ended it is forgotten, and the facts `forget` as well. */
export function retryRun(
  tx: Tx,
  id: string,
  forget: readonly VersionRange[] = [],
  room: { left: number } = { left: MOST_RETRIED },
): void {
  const run = tx.record(runAt(id));
  if (!run.exists) throw new RunNotFoundError(id);
  const status = statusOf(run);
  if (!CAN_RETRY[status])
    throw new RunConflictError(id, `is ${status}: only a run that failed, expired or is parked can be retried`);
  letContinue(tx, run, id, forget, room);
}

/** Lets a run continue from what it remembers, without what ended it. */
function letContinue(tx: Tx, run: Draft, id: string, forget: readonly VersionRange[], room: { left: number }): void {
  const isParked = statusOf(run) === "parked";
  const {
    outcome: _outcome,
    parked: _parked,
    deadlineMs: _deadline,
    contradicted: _contradicted,
    trouble: _trouble,
    doing: _doing,
    endedAtMs: _endedAt,
    forgets = { facts: [], children: [] },
    cancel,
    gate,
    ...ungated
  } = runOf(run);
  checkNotDeleting(run, id);
  const kept: RunValue = gate === undefined ? ungated : { ...ungated, gate: withoutExpiry(gate) };
  // The code of a run that is parked has not received the cancellation yet.
  const value: RunValue = isParked && cancel !== undefined ? { ...kept, cancel } : kept;
  const { children, lists } = forgets;
  const { skips = [], ...forgotten } = withSkips(run, value, [...forgets.facts, ...forget]);
  const version = run.append("retried", {});
  const isRoom = lists === undefined && children.length <= room.left;
  const { head: endingsAfter } = tx.record(inboxAt(id, value.incarnation));
  run.write({
    value: {
      ...forgotten,
      skips: [...skips, [version, version]],
      ...(lists === undefined ? {} : { skipLists: [...(forgotten.skipLists ?? []), lists] }),
      ...(isRoom ? {} : { retrying: { children, ...(lists === undefined ? {} : { lists }), done: 0 } }),
      retriedAt: version,
      // A run that is parked still waits for them.
      ...(!isParked && endingsAfter > 0 ? { endingsAfter } : {}),
    } satisfies RunValue,
    kind: queueOf(value.workflow, value.pool),
    status: "pending" satisfies RunStatus,
    dueMs: tx.nowMs,
    holder: null,
    tries: 0,
  });
  if (!isRoom) return;
  room.left -= children.length;
  retryChildren(tx, id, value.incarnation, children, room);
}

/** A run that is retried may take its time. Unless it was parked, it needs its places again. */
function withoutExpiry({ expiresAtMs: _expires, ...gate }: Gate): Gate {
  return gate;
}

/** Retries some of the children that are to be retried with a run. Returns the run's value after that. */
export function retrySome(tx: Tx, record: Draft, children: readonly ToRetry[]): RunValue {
  const { retrying, ...value } = runOf(record);
  if (retrying === undefined) return value;
  const some = children.slice(retrying.done, retrying.done + MOST_RETRIED);
  const done = retrying.done + some.length;
  // Their own children are retried by the workers that take them.
  retryChildren(tx, record.at.key, value.incarnation, some, { left: 0 });
  record.write({ value: done < children.length ? { ...value, retrying: { ...retrying, done } } : value });
  return runOf(record);
}

function retryChildren(
  tx: Tx,
  run: string,
  incarnation: number,
  children: readonly ToRetry[],
  room: { left: number },
): void {
  if (children.length > 1) {
    tx.load(children.map((child) => runAt(child.run)));
    tx.load(children.flatMap((child) => inboxToRetry(tx.record(runAt(child.run)))));
  }
  for (const { run: child, id, isLeft } of children)
    retryChild(tx, child, { run, id, incarnation, waits: isLeft !== true }, room);
}

/** The inbox of a run, if the run can be retried: a decision that retries many loads all of them in one read. */
export function inboxToRetry(run: Draft): readonly Address[] {
  const value = run.exists && hasEnded(run) ? readableValue(run) : undefined;
  return value === undefined ? [] : [inboxAt(run.at.key, value.incarnation)];
}

/**
 * A child that failed is retried with its parent, unless it was retried meanwhile, and so is one that was canceled and had nothing to clean up. The
 * parent gets the outcome of any other.
 */
function retryChild(tx: Tx, id: string, parent: Parent, room: { left: number }): void {
  const child = tx.record(runAt(id));
  if (!child.exists || isDeleting(child)) {
    if (parent.waits) notifyParent(tx, parent, id, { error: withoutStack(new RunNotFoundError(id)) });
    return;
  }
  const { cancel, forgets, ...value } = runOf(child);
  const status = statusOf(child);
  switch (status) {
    case "failed":
      letContinue(tx, child, id, [], room);
      break;
    case "canceled":
    case "timed_out":
    case "expired":
      if (forgets !== undefined) letContinue(tx, child, id, [], room);
      break;
    case "parked":
      if (cancel === undefined) break;
      // It was to end with its parent, and no worker has ended it yet.
      child.write({ value });
      letContinue(tx, child, id, [], room);
      break;
    case "pending":
    case "queued":
    case "running":
    case "waiting":
      if (cancel !== undefined) child.write({ value: { ...value, cancel: { ...cancel, resumes: true } } });
      break;
    case "completed":
      break;
    default:
      status satisfies never;
  }
  if (parent.waits) addWaiter(tx, id, parent);
}

/** A child that has just stopped, and whose parent was retried meanwhile, continues. */
export function resumeChild(tx: Tx, id: string): void {
  letContinue(tx, tx.record(runAt(id)), id, [], { left: MOST_RETRIED });
}

/** An operator resolves a step of a run that is parked because its outcome is unknown. `head` is the end of the history that was read. */
export function resolveStep(
  tx: Tx,
  id: string,
  head: number,
  step: string,
  answer: { readonly done: true; readonly value: unknown } | { readonly done: false },
): void {
  const run = tx.record(runAt(id));
  if (!run.exists) throw new RunNotFoundError(id);
  if (run.status !== "parked") throw new RunConflictError(id, `is ${run.status}, not parked`);
  if (run.head !== head) throw new RunConflictError(id, "has moved on meanwhile");
  const { parked: _parked, ...value } = runOf(run);
  if (answer.done) run.append(`step ${step}`, { ok: answer.value });
  else run.append(`undone ${step}`, {});
  run.write({ value, status: "pending" satisfies RunStatus, dueMs: tx.nowMs, holder: null, tries: 0 });
}
