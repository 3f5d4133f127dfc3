/**
 * Locks of runs: a run holds, and waits, for as long as it lives, across steps, sleeps and crashes.
 *
 * The run's own record lists what it holds and waits for, so the commit that ends it gives all of it back, whoever ends it (G30). A
 * grant is written into that list by the commit that freed the lock, which wakes the run too. When another worker takes the run over, what
 * it holds gets new fences before any of its code goes on: the worker before may still be alive (G6, G7).
 */

import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { hash } from "../kernel/fingerprint.ts";
import { type DeadlockLink, PermitsUndeclaredError } from "../lock/errors.ts";
import { enter, leave, refence } from "../lock/line.ts";
import type { RunHooks } from "../lock/room.ts";
import type { Asked, Kept } from "./coroutine.ts";
import { findCircle, suspect } from "./deadlock.ts";
import type { LockPlan, UnlockPlan } from "./plans.ts";
import { type RunHold, type RunValue, runAt, wakeRun } from "./run.ts";
import { ENDED, type Word } from "./words.ts";

/** What the history says of a wish that was not granted. */
export type Denial =
  | { readonly reason: "busy"; readonly place: number }
  | { readonly reason: "timeout" }
  | { readonly reason: "removed" }
  | { readonly reason: "undeclared"; readonly name: string }
  | { readonly reason: "deadlock"; readonly circle: readonly DeadlockLink[] };

export const runHooks: RunHooks = {
  granted(tx, { run, incarnation }, ticket, fence) {
    const record = livingRun(tx, run, incarnation);
    if (record === undefined || !holdsOf(record).some((hold) => hold.ticket === ticket)) return false;
    setHolds(
      record,
      holdsOf(record).map((hold) => (hold.ticket === ticket ? { ...hold, fence } : hold)),
    );
    wakeRun(tx, run);
    return true;
  },
  taken(tx, { run, incarnation }, ticket) {
    const record = livingRun(tx, run, incarnation);
    if (record === undefined) return;
    setHolds(
      record,
      holdsOf(record).filter((hold) => hold.ticket !== ticket),
    );
    wakeRun(tx, run);
  },
};

function livingRun(tx: Tx, run: string, incarnation: number): Draft | undefined {
  const record = tx.record(runAt(run));
  if (!record.exists || ENDED.has(record.status ?? "")) return undefined;
  return (record.value as RunValue).incarnation === incarnation ? record : undefined;
}

const holdsOf = (record: Draft): readonly RunHold[] => (record.value as RunValue).holds ?? [];

function setHolds(record: Draft, holds: readonly RunHold[]): void {
  const { holds: _holds, ...value } = record.value as RunValue;
  record.write({ value: holds.length === 0 ? value : { ...value, holds } });
}

/** Gives everything back that the run holds, and leaves every line. */
export function dropHolds(tx: Tx, record: Draft): void {
  for (const { refs, ticket } of holdsOf(record)) leave(tx, runHooks, refs, ticket);
  if (holdsOf(record).length > 0) setHolds(record, []);
}

/** Gives back what the code does not know of: it was interrupted while it waited. */
export function dropOrphans(tx: Tx, record: Draft, isKnown: (id: string) => boolean): void {
  const orphans = holdsOf(record).filter(({ id }) => !isKnown(id));
  if (orphans.length === 0) return;
  for (const { refs, ticket } of orphans) leave(tx, runHooks, refs, ticket);
  setHolds(
    record,
    holdsOf(record).filter(({ id }) => isKnown(id)),
  );
}

/** Whether another may still be at work under the fences of what the run holds. */
export const needsFences = ({ holds, isUnsettled }: RunValue, tries: number): boolean =>
  (tries > 1 || isUnsettled === true) && holds?.some(({ fence }) => fence !== undefined) === true;

/** The run is given up in the middle of its work. */
export const unsettled = (value: RunValue): RunValue =>
  value.holds === undefined ? value : { ...value, isUnsettled: true };

/** New fences for everything that the run holds. */
export function refenceHolds(tx: Tx, record: Draft): RunValue {
  const holds = holdsOf(record).map((hold) => {
    if (hold.fence === undefined) return hold;
    const fence = refence(tx, runHooks, hold.refs, hold.ticket);
    return fence === undefined ? hold : { ...hold, fence };
  });
  const { isUnsettled: _isUnsettled, ...value } = record.value as RunValue;
  record.write({ value: { ...value, holds } });
  return record.value as RunValue;
}

/** What a commit says about a wish: a fact, which may be the answer, and a timer. */
export interface LockDecided {
  readonly fact?: readonly [Word, unknown];
  readonly isAnswer: boolean;
  readonly dueMs?: number | null;
}

const NOTHING: LockDecided = { isAnswer: false };

/** Asks for a lock, or says what has become of a wish whose time is over, or that may be part of a circle. */
export function decideLock(
  tx: Tx,
  record: Draft,
  asked: Asked,
  plan: LockPlan,
  children: readonly string[],
): LockDecided {
  const mine = holdsOf(record).find(({ id }) => id === asked.id);
  if (!asked.isQueued)
    return plan.resumes === undefined ? ask(tx, record, asked, plan) : resume(tx, record, asked, plan);
  if (mine === undefined) return denied({ reason: "removed" });
  if (mine.fence !== undefined) return { fact: ["granted", { fence: mine.fence }], isAnswer: true };
  if (asked.isOverdue) {
    give(tx, record, mine);
    return denied({ reason: "timeout" });
  }
  if (!asked.isSuspected) return NOTHING;
  const circle = findCircle(tx, record.at.key, children);
  if (circle !== undefined) {
    give(tx, record, mine);
    return denied({ reason: "deadlock", circle });
  }
  const { isSuspected: _isSuspected, ...innocent } = mine;
  setHolds(
    record,
    holdsOf(record).map((hold) => (hold === mine ? innocent : hold)),
  );
  return NOTHING;
}

const denied = (denial: Denial): LockDecided => ({ fact: ["denied", denial], isAnswer: true });

function ask(tx: Tx, record: Draft, { id }: Asked, plan: LockPlan): LockDecided {
  const run = record.at.key;
  const { incarnation } = record.value as RunValue;
  const { refs, mode, permits, declares, queue, isTry, timeoutMs } = plan;
  const ticket = hash(run, String(incarnation), id, String(record.head));
  const owner = { run, incarnation };
  let entered: ReturnType<typeof enter>;
  try {
    entered = enter(tx, runHooks, { refs, mode, ticket, leaseMs: null, owner, permits, declares, queue });
  } catch (error) {
    if (error instanceof PermitsUndeclaredError) return denied({ reason: "undeclared", name: error.data.name });
    throw error;
  }
  if (!entered.granted && !queue) return denied({ reason: "busy", place: entered.place });
  const hold: RunHold = { id, refs, mode, ticket, ...(entered.granted ? { fence: entered.fence } : {}) };
  setHolds(record, [...holdsOf(record), hold]);
  if (entered.granted) return { fact: ["granted", { fence: entered.fence }], isAnswer: true };
  if (isTry) return { fact: ["placed", { place: entered.place }], isAnswer: true };
  const dueMs = timeoutMs === null ? null : entered.nowMs + timeoutMs;
  return { fact: ["queued", dueMs === null ? {} : { dueMs }], isAnswer: false, dueMs };
}

/** Waits on in a place that was kept before. */
function resume(tx: Tx, record: Draft, { id }: Asked, { resumes, timeoutMs }: LockPlan): LockDecided {
  const kept = holdsOf(record).find((hold) => hold.id === resumes);
  if (kept === undefined) return denied({ reason: "removed" });
  setHolds(
    record,
    holdsOf(record).map((hold) => (hold === kept ? { ...kept, id } : hold)),
  );
  if (kept.fence !== undefined) return { fact: ["granted", { fence: kept.fence }], isAnswer: true };
  const dueMs = timeoutMs === null ? null : tx.nowMs + timeoutMs;
  return { fact: ["queued", dueMs === null ? {} : { dueMs }], isAnswer: false, dueMs };
}

function give(tx: Tx, record: Draft, { refs, ticket }: RunHold): { readonly released: boolean } {
  const left = leave(tx, runHooks, refs, ticket);
  setHolds(
    record,
    holdsOf(record).filter((hold) => hold.ticket !== ticket),
  );
  return left;
}

/** Gives back what an operation got, or leaves the line it stands in. */
export function decideUnlock(tx: Tx, record: Draft, { of }: UnlockPlan): { readonly released: boolean } {
  const hold = holdsOf(record).find(({ id }) => id === of);
  return hold === undefined ? { released: false } : give(tx, record, hold);
}

/** What the code believes to hold and the run does not, because it had ended and was let go on: it is asked for again. */
export function reenter(tx: Tx, record: Draft, kept: ReadonlyMap<string, Kept>): "held" | "waiting" {
  const run = record.at.key;
  const { incarnation } = record.value as RunValue;
  for (const [id, { plan }] of kept) {
    const { refs, mode, permits } = plan;
    if (holdsOf(record).some((hold) => hold.id === id)) continue;
    const ticket = hash(run, String(incarnation), id, String(record.head));
    const owner = { run, incarnation };
    const entered = enter(tx, runHooks, {
      refs,
      mode,
      ticket,
      leaseMs: null,
      owner,
      permits,
      declares: false,
      queue: true,
    });
    setHolds(record, [
      ...holdsOf(record),
      { id, refs, mode, ticket, ...(entered.granted ? { fence: entered.fence } : {}) },
    ]);
  }
  const isHeld = holdsOf(record).every(({ id, fence }) => fence !== undefined || kept.get(id)?.isHeld !== true);
  return isHeld ? "held" : "waiting";
}

/** Found while it goes to rest: it would wait for ever. */
export class CircleFound extends Error {}

/**
 * The run goes to rest and waits for nothing but locks and these children; others may now see whether they wait for each other. If
 * that closes a circle, and the run has a lock to give up its wish for, it throws; if not, one of the others is told.
 */
export function restBlocked(tx: Tx, record: Draft, children: readonly string[]): void {
  const run = record.at.key;
  const circle = findCircle(tx, run, children);
  const value = record.value as RunValue;
  if (circle !== undefined) {
    if (circle[0]?.waitsFor !== null) throw new CircleFound();
    suspect(tx, circle);
  }
  record.write({ value: { ...value, blocked: { children } } });
}

/** The run goes to rest, and waits for something else as well. */
export function restUnblocked(record: Draft): void {
  const { blocked, ...value } = record.value as RunValue;
  if (blocked !== undefined) record.write({ value });
}
