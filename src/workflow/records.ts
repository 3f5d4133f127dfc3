/**
 * Records of a run, and the decisions on them that are not the holder's: start, signal, cancel, retry, and news for a parent.
 *
 * A run is one record; its log is the run's history, which only the holder of the run writes, or whoever ends its rest. What others have
 * to say goes to the inbox, a record of its own with a log of messages, and wakes the run in the same commit.
 *
 * Promises: the same id is the same run, and another input under it is refused (G3); a signal's id counts once (G2); what is sent to a
 * run that has ended is refused, with its status (G15).
 */

import { nextFence } from "../kernel/claim/decide.ts";
import { type Address, address, newAddress } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { type Draft, unreadableNumber } from "../kernel/draft.ts";
import { hash } from "../kernel/fingerprint.ts";
import type { Settled } from "./coroutine.ts";
import { RunConflictError, RunEndedError, RunExistsError, RunNotFoundError } from "./errors.ts";
import { type ToRetry, withSkips } from "./forgotten.ts";
import { dropHolds } from "./locks.ts";
import {
  deletingQueueOf,
  endedQueueOf,
  inboxAt,
  type Parent,
  queueOf,
  type RunValue,
  runAt,
  type VersionRange,
  WAITERS_QUEUE,
  type Waiters,
  waitersAt,
  wakeRun,
  workflowOfQueue,
} from "./run.ts";
import { readableValue } from "./unreadable.ts";
import { ENDED, type RunStatus } from "./words.ts";

export const SIGNAL_IDS = "signal-id";

export const signalIdPrefix = (run: string, incarnation: number): string => `${hash(run, String(incarnation))}.`;

const signalIdAt = (run: string, incarnation: number, id: string): Address =>
  address(SIGNAL_IDS, `${signalIdPrefix(run, incarnation)}${hash(id)}`);

export interface StartRequest {
  readonly id: string;
  readonly workflow: string;
  readonly input: unknown;
  /** The input as it is stored, if that is known already. */
  readonly startedText?: string | undefined;
  /** Null where there is nothing to compare with. */
  readonly fingerprint: string | null;
  /** The id was made for this run: nobody can have used it, and there was never a fence under it. */
  readonly isMade?: boolean | undefined;
  readonly tags?: readonly string[] | undefined;
  readonly delayMs?: number | undefined;
  readonly atMs?: number | undefined;
  readonly timeoutMs: number | null;
  readonly parent?: Parent | undefined;
  readonly root?: string | undefined;
  /** What is done if the id is taken. */
  readonly ifExists: "join" | "reject" | "restart";
  /** The process that starts it also works on it. */
  readonly lease?: { readonly by: string; readonly leaseMs: number } | undefined;
}

/** An input up to this length is in the record too. */
const MOST_INPUT_CHARS = 1024;

export interface Started {
  readonly isNew: boolean;
  readonly isLeased: boolean;
  readonly nowMs: number;
}

/** Where the run will be. */
export function startedAt({ id, isMade }: StartRequest): Address {
  return isMade === true ? newAddress(runAt(id)) : runAt(id);
}

/** Makes a run, or finds the one that has this id. */
export function startRun(tx: Tx, request: StartRequest): Started {
  const { isMade = false } = request;
  const record = tx.record(startedAt(request));
  // Where nothing is timed from it, the time need not be asked for.
  const isTimeless =
    isMade && request.timeoutMs === null && request.delayMs === undefined && request.atMs === undefined;
  const nowMs = isTimeless ? tx.aboutMs : tx.nowMs;
  if (record.exists) {
    const value = record.value as RunValue;
    const isOver = ENDED.has(record.status ?? "");
    if (request.ifExists === "reject") throw new RunExistsError(request.id, record.status ?? "");
    if (!(request.ifExists === "restart" && isOver)) {
      checkSame(request, value);
      return { isNew: false, isLeased: false, nowMs };
    }
    checkNotDeleting(record, request.id);
  }
  const before = record.exists ? (record.value as RunValue) : undefined;
  const startMs = request.atMs ?? nowMs + (request.delayMs ?? 0);
  const isNow = startMs <= nowMs;
  const lease = isNow ? request.lease : undefined;
  const startedText = request.startedText ?? record.encode({ input: request.input });
  const value: RunValue = {
    workflow: request.workflow,
    // After a deletion, above all that the deleted run had: neither its inbox nor the keys of its steps are used again.
    incarnation: (before?.incarnation ?? record.head) + 1,
    seed: tx.uuid(),
    startedAtMs: nowMs,
    ...(isNow ? {} : { scheduledAtMs: startMs }),
    from: record.head + 1,
    ...deletedUpTo(record.head, before),
    ...(request.fingerprint === null ? {} : { fingerprint: request.fingerprint }),
    ...(request.tags === undefined || request.tags.length === 0 ? {} : { tags: request.tags }),
    ...(request.parent === undefined ? {} : { parent: request.parent }),
    ...(request.root === undefined ? {} : { root: request.root }),
    ...(request.timeoutMs === null ? {} : { deadlineMs: startMs + request.timeoutMs }),
    ...(lease === undefined && startedText.length <= MOST_INPUT_CHARS ? { input: request.input } : {}),
  };
  record.write({
    value,
    kind: queueOf(request.workflow),
    status: (lease === undefined ? "pending" : "running") satisfies RunStatus,
    holder: lease?.by ?? null,
    dueMs: lease === undefined ? startMs : (isTimeless ? tx.lateMs : nowMs) + lease.leaseMs,
    fence: lease === undefined ? record.fence : nextFence(record.fence, isMade ? 0 : tx.fenceFloor),
    tries: lease === undefined ? 0 : 1,
  });
  record.appendText("started", startedText);
  return { isNew: true, isLeased: lease !== undefined, nowMs };
}

const isDeleting = ({ kind }: Draft): boolean => kind === deletingQueueOf(workflowOfQueue(kind));

function checkNotDeleting(record: Draft, id: string): void {
  if (isDeleting(record)) throw new RunConflictError(id, "is being deleted");
}

/** The record's log may begin with what was deleted. */
function deletedUpTo(head: number, before: RunValue | undefined): Pick<RunValue, "deletedUpTo"> {
  const upTo = before === undefined ? head : (before.deletedUpTo ?? 0);
  return upTo === 0 ? {} : { deletedUpTo: upTo };
}

/** The same id for something else would be answered with a result that is not its own. */
function checkSame(request: StartRequest, value: RunValue): void {
  checkWorkflow(request.id, value, request.workflow);
  if (value.fingerprint !== undefined && request.fingerprint !== null && value.fingerprint !== request.fingerprint)
    throw new RunConflictError(request.id, "was started with another input");
}

/** The run as somebody outside may reach it: there, and not over. */
function livingRun(tx: Tx, id: string): Draft {
  const run = tx.record(runAt(id));
  if (!run.exists) throw new RunNotFoundError(id);
  if (ENDED.has(run.status ?? "")) throw new RunEndedError(id, run.status ?? "");
  return run;
}

/** Keeps a signal for a run, once for each id. */
export function signalRun(
  tx: Tx,
  run: string,
  signal: {
    readonly name: string;
    readonly payload: unknown;
    readonly id?: string | undefined;
    readonly workflow?: string | undefined;
  },
): { readonly isNew: boolean } {
  const { incarnation } = existingRun(tx, run, signal.workflow);
  const seen = signal.id === undefined ? undefined : tx.record(signalIdAt(run, incarnation, signal.id));
  if (seen?.exists === true) return { isNew: false };
  livingRun(tx, run);
  seen?.write({ value: true });
  send(tx, run, incarnation, `signal ${signal.name}`, signal.payload);
  return { isNew: true };
}

/** What the run's record holds; a run of another workflow than was meant is refused. */
function existingRun(tx: Tx, id: string, workflow: string | undefined): RunValue {
  const run = tx.record(runAt(id));
  if (!run.exists) throw new RunNotFoundError(id);
  const value = run.value as RunValue;
  checkWorkflow(id, value, workflow);
  return value;
}

export function checkWorkflow(id: string, value: RunValue, workflow: string | undefined): void {
  if (workflow !== undefined && value.workflow !== workflow)
    throw new RunConflictError(id, `is a run of "${value.workflow}", not of "${workflow}"`);
}

function send(tx: Tx, run: string, incarnation: number, name: string, data: unknown): void {
  const inbox = tx.record(inboxAt(run, incarnation));
  if (!inbox.exists) inbox.write({ value: null });
  inbox.append(name, data);
  wakeRun(tx, run);
}

/** Tells a parent how its child ended, if it still cares. */
export function tellParent(tx: Tx, parent: Parent, child: string, outcome: Settled): void {
  const run = tx.record(runAt(parent.run));
  if (!run.exists || ENDED.has(run.status ?? "")) return;
  const value = readableValue(run);
  // An inbox is of one incarnation, so a parent that cannot be read now loses nothing, and keeps no child from ending.
  if (value === undefined && (run.row === null || unreadableNumber(run.row) !== null)) return;
  if (value !== undefined && value.incarnation !== parent.incarnation) return;
  send(tx, parent.run, parent.incarnation, `child ${parent.id}`, { run: child, outcome });
}

/**
 * Asks a run to stop. One that has not begun, or is parked, ends immediately; with `force`, so does any other. The caller of this has canceled the
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
  const status = run.status as RunStatus;
  if (ENDED.has(status)) return status;
  const cancel = reason === undefined ? {} : { reason };
  // One that was let go on is pending, too, and has begun.
  const hasBegun = run.head > value.from;
  if ((status === "pending" && !hasBegun) || status === "parked" || force) {
    // The worker that is at it, if there is one, notices that it has lost the run.
    run.write({ value: { ...value, cancel }, wakes: run.wakes + 1 });
    endCanceled(tx, run, id, cancel);
    return "canceled";
  }
  if (value.cancel === undefined) run.write({ value: { ...value, cancel } });
  wakeRun(tx, id);
  return status;
}

/** Ends a run without its code. */
export function endCanceled(tx: Tx, run: Draft, id: string, cancel: { readonly reason?: string | undefined }): void {
  run.append("canceled", cancel);
  endRun(tx, run, id, "canceled", { error: canceledError(id, cancel.reason) });
}

function canceledError(id: string, reason: string | undefined): Error {
  const error = new Error(`run "${id}" was canceled${reason === undefined ? "" : `: ${reason}`}`);
  error.name = "RunCanceledError";
  return withoutStack(error);
}

/** An error that a decision stores: where it was made says nothing, and is not the same twice. */
export function withoutStack<E>(error: E): E {
  if (error instanceof Error)
    try {
      error.stack = `${error.name}: ${error.message}`;
    } catch {
      // It cannot be changed; then it is stored as it is.
    }
  return error;
}

/**
 * Ends a run: its outcome, its status, and what the runs that wait for it receive, in one commit. `nowMs` may be approximate. The run is kept
 * for `keptMs`, or forever (null); where that is not known, a worker that knows the workflow sets it (`retire.ts`).
 */
export function endRun(
  tx: Tx,
  run: Draft,
  id: string,
  status: RunStatus,
  outcome: Settled,
  { nowMs = tx.aboutMs, keptMs = 0 }: { readonly nowMs?: number; readonly keptMs?: number | null } = {},
): void {
  dropHolds(tx, run);
  const {
    input: _input,
    doing: _doing,
    trouble: _trouble,
    retrying: _retrying,
    hasWaiters,
    ...value
  } = run.value as RunValue;
  const endedAtMs = Math.max(nowMs, value.startedAtMs);
  const queue = keptMs === null ? { dueMs: null } : { kind: endedQueueOf(value.workflow), dueMs: endedAtMs + keptMs };
  run.write({ value: { ...value, outcome, endedAtMs }, status, holder: null, tries: 0, ...queue });
  if (value.parent?.waits === true) tellParent(tx, value.parent, id, outcome);
  if (hasWaiters === true) {
    const list = tx.record(waitersAt(id));
    if (list.exists) list.write({ value: { ...(list.value as Waiters), outcome } });
    tellWaiters(tx, id);
  }
}

/** A commit tells at most this many runs. */
const TOLD_AT_ONCE = 100;

/** Tells runs that wait for one that has ended. A long list is told in several commits, by the workers. */
export function tellWaiters(tx: Tx, id: string): void {
  const list = tx.record(waitersAt(id));
  if (!list.exists) return;
  const { parents, outcome } = list.value as Waiters;
  if (outcome === undefined) return;
  const told = parents.slice(0, TOLD_AT_ONCE);
  if (told.length > 1) tx.load(told.flatMap(({ run, incarnation }) => [runAt(run), inboxAt(run, incarnation)]));
  for (const parent of told) tellParent(tx, parent, id, outcome);
  const rest = parents.slice(TOLD_AT_ONCE);
  if (rest.length === 0) list.remove();
  else list.write({ value: { parents: rest, outcome }, kind: WAITERS_QUEUE, dueMs: tx.nowMs });
}

/** The parent hears of the run's outcome, too: now if it has one, otherwise when it ends. */
export function awaitRun(tx: Tx, id: string, parent: Parent): void {
  const run = tx.record(runAt(id));
  const value = run.value as RunValue;
  if (ENDED.has(run.status ?? "") && value.outcome !== undefined) {
    tellParent(tx, parent, id, value.outcome);
    return;
  }
  if (isSameParent(value.parent, parent)) return;
  const list = tx.record(waitersAt(id));
  const { parents } = list.exists ? (list.value as Waiters) : { parents: [] };
  if (!parents.some((one) => isSameParent(one, parent))) list.write({ value: { parents: [...parents, parent] } });
  if (value.hasWaiters !== true) run.write({ value: { ...value, hasWaiters: true } });
}

const isSameParent = (one: Parent | undefined, other: Parent): boolean =>
  one?.waits === true && one.run === other.run && one.id === other.id && one.incarnation === other.incarnation;

/** One commit retries at most this many children. */
const MOST_RETRIED = 100;

/**
 * Lets a run that failed or is parked continue. What ended it is forgotten, and these facts as well; its children that failed are retried
 * with it, and theirs, in this commit if there is room for them, and otherwise by the worker that takes the run, before its code begins.
 * Everything else is remembered.
 */
export function retryRun(
  tx: Tx,
  id: string,
  forget: readonly VersionRange[] = [],
  room: { left: number } = { left: MOST_RETRIED },
): void {
  const run = tx.record(runAt(id));
  if (!run.exists) throw new RunNotFoundError(id);
  const status = run.status as RunStatus;
  if (status !== "failed" && status !== "parked")
    throw new RunConflictError(id, `is ${status}: only a run that failed or is parked can be retried`);
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
    ...kept
  } = run.value as RunValue;
  checkNotDeleting(run, id);
  // One that is parked has not been told yet that it is to stop.
  const value: RunValue = status === "parked" && cancel !== undefined ? { ...kept, cancel } : kept;
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
      // One that is parked still waits for them.
      ...(status === "failed" && endingsAfter > 0 ? { endingsAfter } : {}),
    } satisfies RunValue,
    kind: queueOf(value.workflow),
    status: "pending",
    dueMs: tx.nowMs,
    holder: null,
    tries: 0,
  });
  if (!isRoom) return;
  room.left -= children.length;
  retryChildren(tx, id, value.incarnation, children, room);
}

/** Retries some of the children that are to be retried with a run. Returns its record as it is then. */
export function retrySome(tx: Tx, record: Draft, children: readonly ToRetry[]): RunValue {
  const { retrying, ...value } = record.value as RunValue;
  if (retrying === undefined) return value;
  const some = children.slice(retrying.done, retrying.done + MOST_RETRIED);
  const done = retrying.done + some.length;
  // What their own children need is done by who takes them.
  retryChildren(tx, record.at.key, value.incarnation, some, { left: 0 });
  record.write({ value: done < children.length ? { ...value, retrying: { ...retrying, done } } : value });
  return record.value as RunValue;
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
  for (const child of children) retryChild(tx, child.run, { run, id: child.id, incarnation, waits: true }, room);
}

/** The inbox of a run, if the run can be retried: a decision that retries many asks for all of them at once. */
export function inboxToRetry(run: Draft): readonly Address[] {
  const value = run.exists && run.status === "failed" ? readableValue(run) : undefined;
  return value === undefined ? [] : [inboxAt(run.at.key, value.incarnation)];
}

/** A child that failed is retried with its parent, unless it was retried meanwhile; the parent gets the outcome of any other. */
function retryChild(tx: Tx, id: string, parent: Parent, room: { left: number }): void {
  const child = tx.record(runAt(id));
  if (!child.exists || isDeleting(child)) {
    tellParent(tx, parent, id, { error: withoutStack(new RunNotFoundError(id)) });
    return;
  }
  if (child.status === "failed") retryRun(tx, id, [], room);
  awaitRun(tx, id, parent);
}

/** A person says what became of a step whose run is parked because nobody knew. `head` is the history that was looked at. */
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
  const { parked: _parked, ...value } = run.value as RunValue;
  if (answer.done) run.append(`step ${step}`, { ok: answer.value });
  else run.append(`undone ${step}`, {});
  run.write({ value, status: "pending", dueMs: tx.nowMs, holder: null, tries: 0 });
}
