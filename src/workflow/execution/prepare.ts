/**
 * Preparing operations: what must be written before an operation that the code started can begin, or what the commit itself does for it.
 *
 * An intent, the end of a timer, a child, a slot's change and a stream's events are written by the commit that comes before the next effects, together
 * with the facts that the code has seen. Everything here runs in a decision, and may run more than once.
 */

import type { Address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { hash } from "../../kernel/fingerprint.ts";
import { type Origin, setOrigin } from "../../kernel/origin.ts";
import { RateLimitedError } from "../../rate/errors.ts";
import { TxSlot } from "../../slot/slot.ts";
import { FoldBehindError } from "../../stream/errors.ts";
import { streamAt } from "../../stream/stored.ts";
import type { ChildPlan, RatePlan, SlotPlan, StreamPlan } from "../definitions/plans.ts";
import { ConcurrencyLimitError, RunConflictError } from "../errors.ts";
import { readableValue, runOf } from "../history/read-run.ts";
import { decideLock, decideUnlock, LockWork } from "../locks/locks.ts";
import { withoutStack } from "../runs/end.ts";
import { addWaiter } from "../runs/messages.ts";
import { inboxToRetry, retryRun } from "../runs/retry.ts";
import { startRun } from "../runs/start.ts";
import {
  type ChildStart,
  type OfVerb,
  type Outcome,
  originOfRun,
  type Parent,
  type RunValue,
  runAt,
  type Word,
} from "../stored.ts";
import type { PendingOperation, Written } from "./pending.ts";

/** What a commit wrote for operations. */
export interface Prepared {
  /** How many facts. */
  facts: number;
  /** The store's clock, where it was read. */
  nowMs: number | undefined;
  readonly timers: [PendingOperation, number][];
  /** Steps whose intent is written. */
  readonly intents: PendingOperation[];
  /** Those that wait in the queue of a lock from this commit on. */
  readonly queued: PendingOperation[];
  version: number;
  /** Facts that are written, and that the code is to see next. */
  readonly outcomes: [PendingOperation, Word, unknown, Written][];
}

export const nothingPrepared = (): Prepared => ({
  facts: 0,
  nowMs: undefined,
  timers: [],
  intents: [],
  queued: [],
  version: 0,
  outcomes: [],
});

const NOTHING: Prepared = nothingPrepared();

/** A step is done outside; everything else waits, or is decided in a commit. */
export const isEffect = ({ plan, dueMs }: PendingOperation): boolean => plan.kind === "step" && dueMs === null;

/** Done by the commit itself. */
export function isDecided({ plan, childId, isQueued, isOverdue, isSuspected }: PendingOperation): boolean {
  switch (plan.kind) {
    case "slot":
    case "stream":
    case "rate":
    case "unlock":
      return true;
    case "child":
      return childId === undefined;
    case "lock":
      return !isQueued || isOverdue || isSuspected;
    case "step":
    case "sleep":
    case "signal":
      return false;
  }
}

/** Its intent is written when it is about to begin: before that it waits for its time, and for its turn in a rate limit. */
export const needsIntent = ({ plan, dueMs, hasIntent, hasTurn }: PendingOperation): boolean =>
  plan.kind === "step" &&
  plan.mode.is === "once" &&
  !hasIntent &&
  dueMs === null &&
  (plan.turn === undefined || hasTurn);

export function needsRecord(pending: PendingOperation): boolean {
  const { plan, dueMs } = pending;
  if (isDecided(pending)) return true;
  if (plan.kind === "step") return needsIntent(pending);
  return dueMs === null && (plan.kind === "sleep" || (plan.kind === "signal" && plan.timeoutMs !== null));
}

/** Whether something is to be done for it, or written: everything else waits, or is held back (`locks/lock-queues.ts`). */
export const begins = (pending: PendingOperation): boolean =>
  !pending.isHeldBack && (isEffect(pending) || needsRecord(pending));

/** When its timer ends, if it begins now; null if it has none. */
export function endOf({ plan, dueMs }: PendingOperation, tx: Tx): number | null {
  if (dueMs !== null) return dueMs;
  if (plan.kind === "sleep") return plan.untilMs ?? tx.nowMs + (plan.ms ?? 0);
  if (plan.kind === "signal" && plan.timeoutMs !== null) return tx.nowMs + plan.timeoutMs;
  return null;
}

/** Writes what these need to the run's record, and elsewhere. */
export function prepare(
  tx: Tx,
  record: Draft,
  run: string,
  pending: readonly PendingOperation[],
  children: () => readonly string[] = () => [],
): Prepared {
  // Plain steps, which most are, need nothing beforehand.
  if (!pending.some(needsRecord)) return NOTHING;
  const made = nothingPrepared();
  const locks = pending.filter(({ plan }) => plan.kind === "lock" || plan.kind === "unlock");
  const work = locks.length === 0 ? undefined : new LockWork(tx, record);
  if (locks.length > 1) work?.load(locks);
  // All in one read: a decision that finds out one after another what it needs is run again for each.
  const value = runOf(record);
  const touched = pending.flatMap((one) => recordOf(value, run, one) ?? []);
  if (touched.length > 1) tx.load(touched);
  if (touched.length > 1 && value.retriedAt !== undefined)
    tx.load(touched.flatMap((at) => inboxToRetry(tx.record(at))));
  for (const one of pending) {
    const { plan } = one;
    if (plan.kind === "step") {
      if (!needsIntent(one)) continue;
      record.append(`intent ${one.id}`, {});
      made.intents.push(one);
    } else if (plan.kind === "child") {
      if (one.childId !== undefined) continue;
      const [word, data] = startChild(tx, runOf(record), run, one, plan);
      made.outcomes.push([one, word, data, { version: append(record, word, one, data) }]);
    } else if (plan.kind === "slot") {
      const data = actOnSlot(tx, plan);
      made.outcomes.push([one, "slot", data, { version: append(record, "slot", one, data) }]);
    } else if (plan.kind === "stream") {
      const data = actOnStream(tx, plan, originOfRun(run, value));
      made.outcomes.push([one, "stream", data, { version: append(record, "stream", one, data) }]);
    } else if (plan.kind === "lock" && work !== undefined) {
      const { fact, isAnswer, dueMs } = decideLock(work, one, plan, children);
      if (fact === undefined) continue;
      const [word, data] = fact;
      const version = one.isQueued ? record.append(`${word} ${one.id}`, data) : append(record, word, one, data);
      if (isAnswer) made.outcomes.push([one, word, data, { version }]);
      else {
        made.queued.push(one);
        one.queuedFact = { version };
      }
      if (typeof dueMs === "number") made.timers.push([one, dueMs]);
    } else if (plan.kind === "unlock" && work !== undefined) {
      const data = decideUnlock(work, plan);
      made.outcomes.push([one, "unlock", data, { version: append(record, "unlock", one, data) }]);
    } else if (plan.kind === "rate") {
      const data = reserveTurn(tx, plan);
      made.outcomes.push([one, "rate", data, { version: append(record, "rate", one, data) }]);
    } else {
      if (one.dueMs !== null) continue;
      const dueMs = endOf(one, tx);
      if (dueMs === null) continue;
      append(record, plan.kind === "sleep" ? "sleep" : "wait", one, { dueMs });
      made.timers.push([one, dueMs]);
    }
    made.facts += 1;
  }
  work?.save();
  // What the code sees of these facts is as old as they are: replay will say the same.
  if (made.outcomes.length > 0) made.nowMs = tx.nowMs;
  made.version = record.version;
  return made;
}

/** Writes the first fact of an operation, or its only one, with the verb. */
const append = (record: Draft, word: Word, { id, verb }: PendingOperation, data: object): number =>
  record.append(`${word} ${id}`, verb === undefined ? data : ({ ...data, verb } satisfies OfVerb));

/** The record that the commit changes for a child, a slot or a stream. */
function recordOf(value: RunValue, run: string, { plan, id, childId }: PendingOperation): Address | undefined {
  if (plan.kind === "slot") return slotAt(plan);
  if (plan.kind === "stream") return streamAt(plan.stream);
  if (plan.kind !== "child" || childId !== undefined) return undefined;
  return runAt(childOf(run, value, plan, id));
}

const slotAt = ({ space, key }: SlotPlan): Address => ({ space, key, text: `${space}\n${key}` });

/** Starts the child, or attaches to the run that has its id. A run of another workflow or input is refused: the code can catch that. */
function startChild(tx: Tx, value: RunValue, run: string, pending: PendingOperation, plan: ChildPlan): [Word, object] {
  const id = childOf(run, value, plan, pending.id);
  const parent: Parent = { run, id: pending.id, incarnation: value.incarnation, waits: plan.waits };
  const before = startedBefore(tx, value, id, parent);
  try {
    if (plan.waits && plan.childId !== undefined) refuseCircle(tx, run, value, id);
    const started = startRun(tx, {
      id,
      workflow: plan.workflow,
      input: plan.input,
      fingerprint: plan.fingerprint,
      timeoutMs: plan.timeoutMs,
      parent,
      root: value.root ?? run,
      origin: value.origin === undefined ? undefined : originOfRun(run, value),
      ifExists: before?.status === "canceled" ? "restart" : "join",
      isMade: false,
      flow: plan.flow,
    });
    const { isNew } = started;
    if (started.id !== id || plan.flow?.collect !== undefined) return shared(tx, parent, started.id);
    // It failed after its parent had failed, and so could not be canceled with it.
    if (before?.status === "failed" && before.by === pending.id && plan.waits) retryRun(tx, id, [], { left: 0 });
    if (!isNew && plan.waits) addWaiter(tx, id, parent);
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return ["refused", { error: withoutStack(error) }];
  }
  const start: ChildStart = {
    run: id,
    ...(plan.whenParentEnds === "cancel" ? { endsWithParent: true } : {}),
    ...(plan.waits ? {} : { isLeft: true }),
  };
  return ["child", start];
}

/** What the code can catch. */
const isRefusal = (error: unknown): boolean =>
  error instanceof RunConflictError || error instanceof ConcurrencyLimitError || error instanceof RateLimitedError;

/** The start was dropped or collected: the run belongs to others, too, and does not end with this one. */
function shared(tx: Tx, parent: Parent, run: string): [Word, object] {
  if (parent.waits) addWaiter(tx, run, parent);
  return ["child", { run, isShared: true, ...(parent.waits ? {} : { isLeft: true }) } satisfies ChildStart];
}

/** A child that this run started before it failed, and is to start again because it was retried; and the operation that did. */
function startedBefore(
  tx: Tx,
  { retriedAt }: RunValue,
  id: string,
  parent: Parent,
): { readonly status: string | null; readonly by: string } | undefined {
  const child = tx.record(runAt(id));
  if (retriedAt === undefined || !child.exists) return undefined;
  const before = readableValue(child)?.parent;
  if (before?.run !== parent.run || before.incarnation !== parent.incarnation) return undefined;
  return { status: child.status, by: before.id };
}

/** How far up the parents of a run are followed. */
const MOST_PARENTS = 200;

/** A run that waited for itself, or for the run that waits for it, would wait forever. */
function refuseCircle(tx: Tx, run: string, { parent }: RunValue, child: string): void {
  if (child === run) throw new RunConflictError(child, "cannot wait for itself");
  let above = parent;
  for (let level = 0; above?.waits === true && level < MOST_PARENTS; level++) {
    if (above.run === child) throw new RunConflictError(child, `waits for run "${run}", which cannot wait for it too`);
    const record = tx.record(runAt(above.run));
    above = record.exists ? runOf(record).parent : undefined;
  }
}

/** A child's id is the one that the code gave, or its parent's with the operation, where that fits. */
function childOf(run: string, { incarnation }: RunValue, { childId, workflow }: ChildPlan, id: string): string {
  if (childId !== undefined) return childId;
  const full = `${run}/${id}${incarnation === 1 ? "" : `/${incarnation}`}`;
  return Buffer.byteLength(full) <= 256 ? full : `${workflow.slice(0, 60)}/${hash(full)}`;
}

/** What the user's function throws is the operation's outcome; it throws before it writes, if it does. */
function actOnSlot(tx: Tx, plan: SlotPlan): Outcome {
  const { initial, act } = plan;
  const slot = tx.record(slotAt(plan));
  try {
    return { ok: act(new TxSlot<unknown, unknown>(slot, () => initial)) };
  } catch (error) {
    return { error: withoutStack(error) };
  }
}

/** An append or a command that throws has written nothing. One that lacks something is made again when that is there. */
function actOnStream(tx: Tx, { act }: StreamPlan, origin: Origin): Outcome {
  setOrigin(tx, origin);
  try {
    return { ok: act(tx) };
  } catch (error) {
    if (error instanceof FoldBehindError) throw error;
    return { error: withoutStack(error) };
  }
}

function reserveTurn(tx: Tx, { reserve }: RatePlan): Outcome {
  try {
    const { isGranted, waitMs } = reserve(tx);
    return { ok: { isGranted, waitMs, atMs: tx.nowMs + waitMs } };
  } catch (error) {
    return { error: withoutStack(error) };
  }
}
