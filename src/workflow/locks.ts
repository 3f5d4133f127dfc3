/**
 * Locks of runs: a run holds, and waits, for as long as it lives, across steps, sleeps and crashes.
 *
 * The run's own record lists what it holds and waits for, so the commit that ends it gives all of it back, whoever ends it (G30). A
 * grant is written into that list by the commit that freed the lock, which wakes the run too. When another worker takes the run over, what
 * it holds gets new fences before any of its code goes on: the worker before may still be alive (G6, G7).
 */

import type { Address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { hash } from "../kernel/fingerprint.ts";
import { type DeadlockLink, PermitsUndeclaredError } from "../lock/errors.ts";
import { type Entered, enterIn, leaveIn, refence } from "../lock/line.ts";
import { type LockRef, lockAt, type RunOwner, ticketAt } from "../lock/records.ts";
import { Room, type RunHooks } from "../lock/room.ts";
import type { Asked, Kept } from "./coroutine.ts";
import { findCircle, suspect } from "./deadlock.ts";
import type { LockPlan, UnlockPlan } from "./plans.ts";
import { type RunHold, type RunValue, runAt, wakeRun } from "./run.ts";
import { readableValue } from "./unreadable.ts";
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
  // One that cannot be read is passed over: it must not keep a lock from others.
  return readableValue(record)?.incarnation === incarnation ? record : undefined;
}

const holdsOf = (record: Draft): readonly RunHold[] => (record.value as RunValue).holds ?? [];

function setHolds(record: Draft, holds: readonly RunHold[]): void {
  const { holds: _holds, ...value } = record.value as RunValue;
  record.write({ value: holds.length === 0 ? value : { ...value, holds } });
}

/**
 * The locks that one commit of a run works on, and the list of what the run holds: each is read once and written once, however many
 * wishes the commit decides.
 */
export class LockWork {
  readonly tx: Tx;
  readonly record: Draft;
  readonly room: Room;
  /** By operation. */
  readonly #holds: Map<string, RunHold>;
  /** The operation of each ticket. */
  readonly #ids: Map<string, string>;
  readonly #base: string;
  #isChanged = false;

  constructor(tx: Tx, record: Draft) {
    this.tx = tx;
    this.record = record;
    this.room = new Room(tx, { granted: this.#granted, taken: runHooks.taken });
    this.#holds = new Map(holdsOf(record).map((hold) => [hold.id, hold]));
    this.#ids = new Map(holdsOf(record).map(({ id, ticket }) => [ticket, id]));
    this.#base = String(record.head);
  }

  get owner(): RunOwner {
    return { run: this.record.at.key, incarnation: (this.record.value as RunValue).incarnation };
  }

  /** A ticket of an operation is used once: the history is longer when it asks again. */
  ticketOf(id: string): string {
    const { run, incarnation } = this.owner;
    return hash(run, String(incarnation), id, this.#base);
  }

  get(id: string): RunHold | undefined {
    return this.#holds.get(id);
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

  /** Gives back what is held, or leaves the line. */
  give(hold: RunHold): { readonly released: boolean } {
    const left = leaveIn(this.room, hold.refs, hold.ticket);
    this.drop(hold);
    return left;
  }

  /** Asks for what the wishes will need, in two reads instead of one for each. */
  load(asked: readonly Asked[]): void {
    const refs = new Map<string, LockRef>();
    const tickets: Address[] = [];
    for (const { id, plan } of asked) {
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
        const { first, last } = this.room.open(ref, null);
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
    this.room.save();
    if (this.#isChanged) setHolds(this.record, this.all());
    this.#isChanged = false;
  }
}

/** Gives everything back that the run holds, and leaves every line. */
export function dropHolds(tx: Tx, record: Draft): void {
  if (holdsOf(record).length > 0) giveAll(tx, record, holdsOf(record));
}

/** One commit gives back, gets again or gives new fences to at most this many. */
const MOST_MOVED = 100;

/** Gives some back, where one commit cannot take all; answers whether it did. For a run that is about to end. */
export function dropSomeHolds(tx: Tx, record: Draft): boolean {
  const holds = holdsOf(record);
  if (holds.length <= MOST_MOVED) return false;
  giveAll(tx, record, holds.slice(0, MOST_MOVED));
  return true;
}

/** Gives back what the code does not know of: it was interrupted while it waited. */
export function dropOrphans(tx: Tx, record: Draft, isKnown: (id: string) => boolean): void {
  const orphans = holdsOf(record).filter(({ id }) => !isKnown(id));
  if (orphans.length === 0) return;
  giveAll(tx, record, orphans);
}

function giveAll(tx: Tx, record: Draft, holds: readonly RunHold[]): void {
  const work = new LockWork(tx, record);
  // None of them is granted by what another of them gives back.
  for (const hold of holds) work.drop(hold);
  for (const { refs, ticket } of holds) leaveIn(work.room, refs, ticket);
  work.save();
}

/** Whether another may still be at work under the fences of what the run holds. */
export const needsFences = ({ holds, isUnsettled }: RunValue, tries: number): boolean =>
  (tries > 1 || isUnsettled === true) && holds?.some(({ fence }) => fence !== undefined) === true;

/** The run is given up in the middle of its work. */
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
  const { isUnsettled: _isUnsettled, ...settled } = record.value as RunValue;
  record.write({ value: { ...(isAll ? settled : (record.value as RunValue)), holds } });
  return { value: record.value as RunValue, done: [...done, ...now], isAll };
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
  work: LockWork,
  asked: Asked,
  plan: LockPlan,
  children: () => readonly string[],
): LockDecided {
  const mine = work.get(asked.id);
  if (!asked.isQueued) {
    // One that was parked and let go on still has the place that it had.
    const resumes = plan.resumes ?? mine?.id;
    return resumes === undefined ? ask(work, asked, plan) : resume(work, asked, { ...plan, resumes });
  }
  if (mine === undefined) return denied({ reason: "removed" });
  if (mine.fence !== undefined) return { fact: ["granted", { fence: mine.fence }], isAnswer: true };
  if (asked.isOverdue) {
    work.give(mine);
    return denied({ reason: "timeout" });
  }
  if (!asked.isSuspected) return NOTHING;
  work.save();
  const circle = findCircle(work.tx, work.record.at.key, children());
  if (circle !== undefined) {
    work.give(mine);
    return denied({ reason: "deadlock", circle });
  }
  const { isSuspected: _isSuspected, ...innocent } = mine;
  work.put(innocent);
  return NOTHING;
}

const denied = (denial: Denial): LockDecided => ({ fact: ["denied", denial], isAnswer: true });

function ask(work: LockWork, { id }: Asked, plan: LockPlan): LockDecided {
  const { refs, mode, permits, declares, queue, isTry, timeoutMs } = plan;
  const ticket = work.ticketOf(id);
  const { owner } = work;
  let entered: Entered;
  try {
    entered = enterIn(work.room, { refs, mode, ticket, leaseMs: null, owner, permits, declares, queue });
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

/** Waits on in a place that was kept before. */
function resume(work: LockWork, { id }: Asked, { resumes, timeoutMs }: LockPlan): LockDecided {
  const kept = work.get(resumes ?? "");
  if (kept === undefined) return denied({ reason: "removed" });
  work.drop(kept);
  work.put({ ...kept, id });
  if (kept.fence !== undefined) return { fact: ["granted", { fence: kept.fence }], isAnswer: true };
  const dueMs = timeoutMs === null ? null : work.tx.nowMs + timeoutMs;
  return { fact: ["queued", dueMs === null ? {} : { dueMs }], isAnswer: false, dueMs };
}

/** Gives back what an operation got, or leaves the line it stands in. */
export function decideUnlock(work: LockWork, { of }: UnlockPlan): { readonly released: boolean } {
  const hold = work.get(of);
  return hold === undefined ? { released: false } : work.give(hold);
}

/**
 * What the code believes to hold and the run does not, because it had ended and was let go on: it is asked for again. With "more", another
 * commit has to do the rest.
 */
export function reenter(tx: Tx, record: Draft, kept: ReadonlyMap<string, Kept>): "held" | "waiting" | "more" {
  const work = new LockWork(tx, record);
  const { owner } = work;
  const missing = [...kept].filter(([id]) => work.get(id) === undefined);
  for (const [id, { plan }] of missing.slice(0, MOST_MOVED)) {
    const { refs, mode, permits } = plan;
    const ticket = work.ticketOf(id);
    const request = { refs, mode, ticket, leaseMs: null, owner, permits, declares: false, queue: true };
    const entered = enterIn(work.room, request);
    work.put({ id, refs, mode, ticket, ...(entered.granted ? { fence: entered.fence } : {}) });
  }
  work.save();
  if (missing.length > MOST_MOVED) return "more";
  const isHeld = work.all().every(({ id, fence }) => fence !== undefined || kept.get(id)?.isHeld !== true);
  return isHeld ? "held" : "waiting";
}

/** Found while it goes to rest: it would wait for ever. */
export class CircleFound extends Error {}

/**
 * The run goes to rest and waits for nothing but locks and these children; others may now see whether they wait for each other. If
 * that closes a circle, and the run has a lock to give up its wish for, it throws; if not, one of the others is told.
 */
export function restBlocked(tx: Tx, record: Draft, children: readonly string[], untilMs?: number): void {
  const run = record.at.key;
  const circle = findCircle(tx, run, children);
  const value = record.value as RunValue;
  if (circle !== undefined) {
    if (circle[0]?.waitsFor !== null) throw new CircleFound();
    suspect(tx, circle);
  }
  const blocked = { children, ...(untilMs === undefined ? {} : { untilMs }) };
  record.write({ value: { ...value, blocked } });
}

/** The run goes to rest, and waits for something else as well. */
export function restUnblocked(record: Draft): void {
  const { blocked, ...value } = record.value as RunValue;
  if (blocked !== undefined) record.write({ value });
}
