/**
 * Locks of runs: a run holds, and waits, for as long as it lives, across steps, sleeps and crashes.
 *
 * The run's own record lists what it holds and waits for, so the commit that ends it releases all of it, also where the run is ended from outside (G30). A
 * grant is written into that list by the commit that freed the lock, which wakes the run too. When another worker takes the run over, what
 * it holds gets new fences before any of its code continues: the worker before may still be alive (G6, G7).
 */

import type { Address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { hash } from "../../kernel/fingerprint.ts";
import type { LazyMap } from "../../kernel/lazy.ts";
import { LockDrafts, type RunHooks } from "../../lock/drafts.ts";
import { type DeadlockLink, PermitsUndeclaredError } from "../../lock/errors.ts";
import { type Entered, enterIn, leaveIn, refence } from "../../lock/line.ts";
import { type LockRef, lockAt, type RunOwner, shownLocks, ticketAt } from "../../lock/stored.ts";
import type { LockPlan, UnlockPlan } from "../definitions/plans.ts";
import type { Kept } from "../execution/coroutine.ts";
import type { PendingOperation } from "../execution/pending.ts";
import { readableValue, runOf } from "../history/read-run.ts";
import { wakeRun } from "../runs/wake.ts";
import { hasEnded, type RunHold, type RunValue, runAt, type Word } from "../stored.ts";
import { findCircle, suspect } from "./deadlock.ts";

/** What the history says of a request that was not granted. */
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
  if (!record.exists || hasEnded(record)) return undefined;
  // One that cannot be read is passed over: it must not keep a lock from others.
  return readableValue(record)?.incarnation === incarnation ? record : undefined;
}

const holdsOf = (record: Draft): readonly RunHold[] => runOf(record).holds ?? [];

function setHolds(record: Draft, holds: readonly RunHold[]): void {
  const { holds: _holds, ...value } = runOf(record);
  record.write({ value: holds.length === 0 ? value : { ...value, holds } });
}

/**
 * The locks that one commit of a run works on, and the list of what the run holds: each is read once and written once, however many
 * requests the commit decides.
 */
export class LockWork {
  readonly tx: Tx;
  readonly record: Draft;
  readonly drafts: LockDrafts;
  /** By operation. */
  readonly #holds: Map<string, RunHold>;
  /** The operation of each ticket. */
  readonly #ids: Map<string, string>;
  readonly #base: string;
  #isChanged = false;

  constructor(tx: Tx, record: Draft) {
    this.tx = tx;
    this.record = record;
    this.drafts = new LockDrafts(tx, { granted: this.#granted, taken: runHooks.taken });
    this.#holds = new Map(holdsOf(record).map((hold) => [hold.id, hold]));
    this.#ids = new Map(holdsOf(record).map(({ id, ticket }) => [ticket, id]));
    this.#base = String(record.head);
  }

  get owner(): RunOwner {
    return { run: this.record.at.key, incarnation: runOf(this.record).incarnation };
  }

  /** A ticket of an operation is used once: the history is longer when it asks again. */
  ticketOf(id: string): string {
    const { run, incarnation } = this.owner;
    return hash(run, String(incarnation), id, this.#base);
  }

  get(id: string): RunHold | undefined {
    return this.#holds.get(id);
  }

  has(id: string): boolean {
    return this.#holds.has(id);
  }

  all(): readonly RunHold[] {
    return [...this.#holds.values()];
  }

  put(hold: RunHold): void {
    this.#holds.set(hold.id, hold);
    this.#ids.set(hold.ticket, hold.id);
    this.#isChanged = true;
  }

  drop({ id }: RunHold): void {
    this.#holds.delete(id);
    this.#isChanged = true;
  }

  /** Releases what is held, or leaves the queue. */
  release(hold: RunHold): { readonly released: boolean } {
    const left = leaveIn(this.drafts, hold.refs, hold.ticket);
    this.drop(hold);
    return left;
  }

  /** Loads what the requests will need, in two reads instead of one for each. */
  load(pending: readonly PendingOperation[]): void {
    const refs = new Map<string, LockRef>();
    const tickets: Address[] = [];
    for (const { id, plan } of pending) {
      if (plan.kind === "unlock")
        for (const ref of this.#holds.get(plan.of)?.refs ?? []) refs.set(lockAt(ref).text, ref);
      if (plan.kind !== "lock") continue;
      for (const ref of plan.refs) {
        refs.set(lockAt(ref).text, ref);
        if (plan.queue) tickets.push(ticketAt(ref, this.ticketOf(id)));
      }
    }
    // Those of the run itself that may have their turn from this commit on.
    for (const { refs: own, ticket, fence } of this.#holds.values())
      if (fence === undefined)
        for (const ref of own) if (refs.has(lockAt(ref).text)) tickets.push(ticketAt(ref, ticket));
    this.tx.load([...[...refs.values()].map(lockAt), ...tickets]);
    this.tx.load(
      [...refs.values()].flatMap((ref) => {
        const { first, last } = this.drafts.open(ref, null);
        return [first, last].flatMap((ticket) => (ticket === null ? [] : [ticketAt(ref, ticket)]));
      }),
    );
  }

  /** Its own grants are written with everything else; those of other runs into theirs. */
  readonly #granted: RunHooks["granted"] = (tx, owner, ticket, fence) => {
    const { run, incarnation } = this.owner;
    if (owner.run !== run) return runHooks.granted(tx, owner, ticket, fence);
    const hold = this.#holds.get(this.#ids.get(ticket) ?? "");
    const isWanted = owner.incarnation === incarnation && hold?.ticket === ticket;
    if (isWanted) {
      this.put({ ...hold, fence });
      wakeRun(tx, run);
    }
    return isWanted;
  };

  save(): void {
    this.drafts.save();
    if (this.#isChanged) setHolds(this.record, this.all());
    this.#isChanged = false;
  }
}

/** Releases everything that the run holds, and leaves every queue. */
export function dropHolds(tx: Tx, record: Draft): void {
  if (holdsOf(record).length > 0) releaseAll(tx, record, holdsOf(record));
}

/** One commit releases, requests again or gives new fences to at most this many locks. */
export const MOST_MOVED = 100;

/** Releases some, where one commit cannot release all. Returns whether it did. For a run that is about to end. */
export function dropSomeHolds(tx: Tx, record: Draft): boolean {
  const holds = holdsOf(record);
  if (holds.length <= MOST_MOVED) return false;
  releaseAll(tx, record, holds.slice(0, MOST_MOVED));
  return true;
}

/** Releases what the code does not know of: it was interrupted while it waited. Returns whether there is more of it than one commit releases. */
export function dropOrphans(tx: Tx, record: Draft, isKnown: (id: string) => boolean): boolean {
  const orphans = holdsOf(record).filter(({ id }) => !isKnown(id));
  if (orphans.length === 0) return false;
  releaseAll(tx, record, orphans.slice(0, MOST_MOVED));
  return orphans.length > MOST_MOVED;
}

function releaseAll(tx: Tx, record: Draft, holds: readonly RunHold[]): void {
  const work = new LockWork(tx, record);
  // None of them is granted by the release of another one.
  for (const hold of holds) work.drop(hold);
  for (const { refs, ticket } of holds) leaveIn(work.drafts, refs, ticket);
  work.save();
}

/** Whether another may still be at work under the fences of what the run holds. */
export const needsFences = ({ holds, isUnsettled }: RunValue, tries: number): boolean =>
  (tries > 1 || isUnsettled === true) && holds?.some(({ fence }) => fence !== undefined) === true;

/** The run is abandoned in the middle of its work. */
export const unsettled = (value: RunValue): RunValue =>
  value.holds === undefined ? value : { ...value, isUnsettled: true };

/** New fences for what the run holds, but for those that have one already. Returns which ones have one then, and whether all do. */
export function refenceHolds(
  tx: Tx,
  record: Draft,
  done: readonly string[],
): { readonly value: RunValue; readonly done: readonly string[]; readonly isAll: boolean } {
  const known = new Set(done);
  const due = holdsOf(record).filter(({ id, fence }) => fence !== undefined && !known.has(id));
  const now = new Set(due.slice(0, MOST_MOVED).map(({ id }) => id));
  const holds = holdsOf(record).map((hold) => {
    const fence = now.has(hold.id) ? refence(tx, runHooks, hold.refs, hold.ticket) : undefined;
    return fence === undefined ? hold : { ...hold, fence };
  });
  const isAll = now.size === due.length;
  const { isUnsettled: _isUnsettled, ...settled } = runOf(record);
  record.write({ value: { ...(isAll ? settled : runOf(record)), holds } });
  return { value: runOf(record), done: [...done, ...now], isAll };
}

/** What a commit decides about a request: a fact, which may be its outcome, and a timer. */
export interface LockDecided {
  readonly fact?: readonly [Word, object];
  readonly isAnswer: boolean;
  readonly dueMs?: number | null;
}

const NOTHING: LockDecided = { isAnswer: false };

/** Requests a lock, or decides about a request whose time is over, or that may be part of a circle. */
export function decideLock(
  work: LockWork,
  pending: PendingOperation,
  plan: LockPlan,
  children: () => readonly string[],
): LockDecided {
  const mine = work.get(pending.id);
  if (!pending.isQueued) {
    // A run that was parked and retried still has the place that it had, perhaps one that this operation had taken over.
    const resumes = mine?.id ?? plan.resumes;
    return resumes === undefined ? ask(work, pending, plan) : resume(work, pending, { ...plan, resumes });
  }
  if (mine === undefined) return denied({ reason: "removed" });
  if (mine.fence !== undefined) return { fact: ["granted", { fence: mine.fence }], isAnswer: true };
  if (pending.isOverdue) {
    work.release(mine);
    return denied({ reason: "timeout" });
  }
  if (!pending.isSuspected) return NOTHING;
  work.save();
  const circle = findCircle(work.tx, work.record.at.key, children());
  if (circle !== undefined) {
    work.release(mine);
    return denied({ reason: "deadlock", circle });
  }
  const { isSuspected: _isSuspected, ...innocent } = mine;
  work.put(innocent);
  return NOTHING;
}

const denied = (denial: Denial): LockDecided => ({ fact: ["denied", denial], isAnswer: true });

function ask(work: LockWork, { id }: PendingOperation, plan: LockPlan): LockDecided {
  const { refs, mode, permits, declares, queue, isTry, timeoutMs } = plan;
  const ticket = work.ticketOf(id);
  const { owner } = work;
  let entered: Entered;
  try {
    entered = enterIn(work.drafts, { refs, mode, ticket, leaseMs: null, owner, permits, declares, queue });
  } catch (error) {
    if (error instanceof PermitsUndeclaredError) return denied({ reason: "undeclared", name: error.data.name });
    throw error;
  }
  if (!entered.granted && !queue) return denied({ reason: "busy", place: entered.place });
  work.put({ id, refs, mode, ticket, ...(entered.granted ? { fence: entered.fence } : {}) });
  if (entered.granted) return { fact: ["granted", { fence: entered.fence }], isAnswer: true };
  if (isTry) return { fact: ["placed", { place: entered.place }], isAnswer: true };
  const dueMs = timeoutMs === null ? null : entered.nowMs + timeoutMs;
  return { fact: ["queued", dueMs === null ? {} : { dueMs }], isAnswer: false, dueMs };
}

/** Continues to wait in a place that was taken before. */
function resume(work: LockWork, { id }: PendingOperation, { resumes, timeoutMs }: LockPlan): LockDecided {
  const kept = work.get(resumes ?? "");
  if (kept === undefined) return denied({ reason: "removed" });
  work.drop(kept);
  work.put({ ...kept, id });
  if (kept.fence !== undefined) return { fact: ["granted", { fence: kept.fence }], isAnswer: true };
  const dueMs = timeoutMs === null ? null : work.tx.nowMs + timeoutMs;
  return { fact: ["queued", dueMs === null ? {} : { dueMs }], isAnswer: false, dueMs };
}

/** Releases what an operation acquired, or leaves the queue it waits in. */
export function decideUnlock(work: LockWork, { of }: UnlockPlan): { readonly released: boolean } {
  const hold = work.get(of);
  return hold === undefined ? { released: false } : work.release(hold);
}

/**
 * Requests locks again that the code acts under and the run does not hold, because it had ended and was retried. With "more", another
 * commit has to do the rest.
 */
export function reenter(
  tx: Tx,
  record: Draft,
  kept: LazyMap<string, Kept>,
  isTakenOver: (place: string, known: { has(id: string): boolean }) => boolean,
): "held" | "waiting" | "more" {
  const work = new LockWork(tx, record);
  const { owner } = work;
  const missing = [...kept].filter(([id]) => !work.has(id) && !isTakenOver(id, work));
  for (const [id, { plan }] of missing.slice(0, MOST_MOVED)) {
    const { refs, mode, permits } = plan;
    const ticket = work.ticketOf(id);
    const request = { refs, mode, ticket, leaseMs: null, owner, permits, declares: false, queue: true };
    const entered = enterIn(work.drafts, request);
    work.put({ id, refs, mode, ticket, ...(entered.granted ? { fence: entered.fence } : {}) });
  }
  work.save();
  if (missing.length > MOST_MOVED) return "more";
  const isHeld = work.all().every(({ id, fence }) => fence !== undefined || kept.get(id)?.isHeld !== true);
  return isHeld ? "held" : "waiting";
}

/**
 * The run goes to rest until it holds again what its code acts under: until then nothing else reaches the code. If that closes a circle, the
 * run leaves the queue of one of them, and the grant that does not come again is returned. It is one from before the retry: what the code
 * has done since then does not depend on it.
 */
export function restUntilHeld(tx: Tx, record: Draft, kept: LazyMap<string, Kept>): Kept | undefined {
  const value = runOf(record);
  record.write({ value: { ...value, blocked: { children: [] } } });
  const circle = findCircle(tx, record.at.key, []);
  if (circle === undefined) return undefined;
  const { retriedAt = 0 } = value;
  const lost = holdsOf(record).filter(({ id, fence }) => {
    const grant = kept.get(id);
    return fence === undefined && grant?.isHeld === true && grant.at.version < retriedAt;
  });
  const refused = lost.find(({ refs }) => shownLocks(refs) === circle[0]?.waitsFor) ?? lost[0];
  if (refused === undefined) return undefined;
  releaseAll(tx, record, [refused]);
  return kept.get(refused.id);
}

/** Found while the run goes to rest: it would wait forever. */
export class CircleFound extends Error {}

/**
 * The run goes to rest and waits for nothing but locks and these children; others may now see whether they wait for each other. If
 * that closes a circle, and the run itself waits for a lock, it throws; if not, one of the other runs is notified. At `dueMs` its code does
 * not continue: it is the end of a timer that no code observes, or of the time for cleanup.
 */
export function restBlocked(tx: Tx, record: Draft, children: readonly string[], dueMs: number | null): void {
  const run = record.at.key;
  const circle = findCircle(tx, run, children);
  const value = runOf(record);
  if (circle !== undefined) {
    if (circle[0]?.waitsFor !== null) throw new CircleFound();
    suspect(tx, circle);
  }
  const blocked = { children, ...(dueMs === null ? {} : { untilMs: dueMs }) };
  record.write({ value: { ...value, blocked } });
}

/** The run goes to rest, and waits for something else as well. */
export function restUnblocked(record: Draft): void {
  const { blocked, ...value } = runOf(record);
  if (blocked !== undefined) record.write({ value });
}
