/**
 * Locks as decisions: entering, leaving, renewing, and the hand-off.
 *
 * Everybody stands in one line for each lock, in the order of commits, and nobody passes. The commit that makes room gives it to the
 * first in line, in the same breath; one whose own lease has ended meanwhile is passed over. Whoever wants several locks at once stands
 * in all their lines with one ticket, from one commit, and gets all of them when it is first everywhere and all are free: it holds
 * nothing before that, so two of them cannot wait for each other.
 *
 * Promises: at most as many holders as fit, by the store's clock (G8); first come, first served by commit order (G9); the fences of a
 * lock strictly rise (G7).
 */

import { nextFence } from "../kernel/claim/decide.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { firstEnd, fits, isAlive, isFull, living, renewed } from "./decide.ts";
import {
  type Holder,
  LOCK_QUEUE,
  type LockRef,
  lockAt,
  type Mode,
  type RunOwner,
  type Ticket,
  ticketAt,
} from "./records.ts";
import { lockOf, storedLock } from "./stored.ts";

/** How runs hear of what becomes of their tickets. Locks know nothing else of runs. */
export interface RunHooks {
  /** Its turn has come. Answers whether the run is still there to have it. */
  granted(tx: Tx, owner: RunOwner, ticket: string, fence: number): boolean;
  /** Somebody took away what it held or waited for. */
  taken(tx: Tx, owner: RunOwner, ticket: string): void;
}

export interface Request {
  readonly refs: readonly LockRef[];
  readonly mode: Mode;
  /** Names this wish; no other has it. */
  readonly ticket: string;
  /** How long it holds, and waits, without renewing; null for a run. */
  readonly leaseMs: number | null;
  readonly owner?: RunOwner | undefined;
  readonly by?: string | undefined;
  readonly permits: number | null;
  /** The permits are to be what they are here, from this commit on. */
  readonly declares: boolean;
  /** Whether it wants a place in line. */
  readonly queue: boolean;
}

export type Entered =
  | { readonly granted: true; readonly fence: number; readonly nowMs: number }
  | { readonly granted: false; readonly place: number; readonly nowMs: number };

/** A lock that nobody used for this long is removed. */
const IDLE_MS = 60 * 60 * 1000;
/** So many waiters have their turn, or are passed over, in one commit; the next one goes on. */
const MOST_MOVED = 100;

/** Takes the locks if they are free and nobody waits for them, or gets in line. */
export function enter(tx: Tx, hooks: RunHooks, request: Request): Entered {
  const room = new Room(tx, hooks);
  const { refs, mode, ticket, leaseMs, owner, by } = request;
  const locks = refs.map((ref) => room.open(ref, request.permits));
  if (request.declares) for (const lock of locks) lock.declare(request.permits, by);
  for (const lock of locks) room.settle(lock);
  // Where nobody is, and nobody was a moment ago, the clock need not be exact: a lease that ends a little later harms nobody.
  const isFree = locks.every((lock) => lock.isEmpty && lock.record.exists);
  const nowMs = isFree ? tx.lateMs : tx.nowMs;
  // The same wish once more, because its first answer was lost.
  const had = fenceOf(locks, ticket);
  if (had !== undefined) {
    room.save();
    return { granted: true, fence: had, nowMs };
  }
  const common = {
    mode,
    sinceMs: nowMs,
    ...(owner === undefined ? {} : { owner }),
    ...(by === undefined ? {} : { by }),
    ...(refs.length === 1 ? {} : { group: refs }),
  };
  if (locks.every((lock) => lock.first === null && fits(lock, mode))) {
    const fence = room.fenceFor(locks, isFree ? nowMs : tx.fenceFloor);
    const untilMs = leaseMs === null ? null : nowMs + leaseMs;
    for (const lock of locks) lock.give({ ...common, ticket, fence, untilMs }, fence);
    room.save();
    return { granted: true, fence, nowMs };
  }
  const place = Math.max(...locks.map((lock) => lock.waiting)) + 1;
  if (request.queue)
    for (const lock of locks)
      lock.append(ticket, {
        ...common,
        prev: lock.last,
        next: null,
        untilMs: leaseMs === null ? null : nowMs + leaseMs,
        leaseMs,
      });
  room.save();
  return { granted: false, place, nowMs };
}

/** Gives the locks back, or leaves their lines; the next in line has them from the same commit on. Harmless where nothing was had. */
export function leave(
  tx: Tx,
  hooks: RunHooks,
  refs: readonly LockRef[],
  ticket: string,
): { readonly released: boolean } {
  const room = new Room(tx, hooks);
  let released = false;
  for (const ref of refs) {
    const lock = room.open(ref, null);
    if (lock.drop(ticket)) released = true;
    else if (lock.first !== null) lock.unlink(ticket);
  }
  room.settleAll();
  room.save();
  return { released };
}

/** Holds on for another while. Answers false to one who does not hold all of them any more. */
export function renew(tx: Tx, hooks: RunHooks, refs: readonly LockRef[], ticket: string, leaseMs: number): boolean {
  const room = new Room(tx, hooks);
  const locks = refs.map((ref) => room.open(ref, null));
  // An expired lease that nobody waits for has harmed nobody.
  for (const lock of locks) if (lock.first !== null) room.settle(lock);
  const isHeld = locks.every((lock) => lock.holder(ticket) !== undefined);
  if (isHeld) for (const lock of locks) lock.prolong(ticket, tx.nowMs, leaseMs);
  room.save();
  return isHeld;
}

/** The locks are this holder's in this commit: throws nothing, answers the fence, or undefined. */
export function heldFence(tx: Tx, refs: readonly LockRef[], ticket: string): number | undefined {
  let fence: number | undefined;
  for (const ref of refs) {
    const { value: stored } = tx.record(lockAt(ref));
    const value = stored === undefined ? undefined : lockOf(stored);
    const holder = value?.holders.find((one) => one.ticket === ticket);
    if (holder === undefined || (value?.first !== null && !isAlive(holder, tx.nowMs))) return undefined;
    fence = holder.fence;
  }
  return fence;
}

export type Standing =
  | { readonly is: "waiting" }
  | { readonly is: "held"; readonly fence: number }
  | { readonly is: "gone" };

/** A waiter says that it is alive, and sees to it that the line moves. One that is late has lost its place to those behind it. */
export function standOn(tx: Tx, hooks: RunHooks, refs: readonly LockRef[], ticket: string, leaseMs: number): Standing {
  const room = new Room(tx, hooks);
  const { nowMs } = tx;
  const locks = refs.map((ref) => room.open(ref, null));
  for (const lock of locks) {
    const record = tx.record(ticketAt(lock.ref, ticket));
    const value = record.value as Ticket | undefined;
    if (value === undefined || value.untilMs === null) continue;
    if (isAlive(value, nowMs)) record.write({ value: { ...value, untilMs: renewed(value.untilMs, nowMs, leaseMs) } });
    else lock.unlink(ticket);
  }
  for (const lock of locks) room.settle(lock);
  room.save();
  const fence = fenceOf(locks, ticket);
  if (fence !== undefined) return { is: "held", fence };
  const isWaiting = refs.every((ref) => tx.record(ticketAt(ref, ticket)).exists);
  return isWaiting ? { is: "waiting" } : { is: "gone" };
}

/** The fence under which all of these are held by this ticket. */
function fenceOf(locks: readonly LockDraft[], ticket: string): number | undefined {
  const [first, ...others] = locks.map((lock) => lock.holder(ticket)?.fence);
  return others.every((fence) => fence !== undefined) ? first : undefined;
}

/** Takes the lock away from one holder, or from all, and writes down who did and why. */
export function force(
  tx: Tx,
  hooks: RunHooks,
  ref: LockRef,
  act: { readonly ticket?: string | undefined; readonly by: string; readonly reason: string },
): readonly Holder[] {
  const room = new Room(tx, hooks);
  const lock = room.open(ref, null);
  const forced = lock.holders.filter(({ ticket }) => act.ticket === undefined || ticket === act.ticket);
  for (const holder of forced) {
    // What was had together is lost together.
    for (const other of holder.group ?? [ref]) room.open(other, null).drop(holder.ticket);
    if (holder.owner !== undefined) hooks.taken(tx, holder.owner, holder.ticket);
  }
  if (forced.length > 0) {
    room.settleAll();
    room.save();
    for (const holder of forced) lock.record.append("forced", { by: act.by, reason: act.reason, holder });
  }
  return forced;
}

/** Takes a waiter out of the line, and writes down who did and why. */
export function removeWaiter(
  tx: Tx,
  hooks: RunHooks,
  ref: LockRef,
  act: { readonly ticket: string; readonly by: string; readonly reason: string },
): boolean {
  const room = new Room(tx, hooks);
  const lock = room.open(ref, null);
  const value = tx.record(ticketAt(ref, act.ticket)).value as Ticket | undefined;
  if (value === undefined) return false;
  for (const other of value.group ?? [ref]) room.open(other, null).unlink(act.ticket);
  if (value.owner !== undefined) hooks.taken(tx, value.owner, act.ticket);
  room.settleAll();
  room.save();
  const { owner, by } = value;
  lock.record.append("removed", { by: act.by, reason: act.reason, waiter: { ticket: act.ticket, owner, by } });
  return true;
}

/** A new fence for what a run holds: another process works on it now, and the one before may not know. */
export function refence(tx: Tx, hooks: RunHooks, refs: readonly LockRef[], ticket: string): number | undefined {
  const room = new Room(tx, hooks);
  const locks = refs.map((ref) => room.open(ref, null));
  if (!locks.every((lock) => lock.holder(ticket) !== undefined)) return undefined;
  const fence = room.fenceFor(locks);
  for (const lock of locks) lock.refence(ticket, fence);
  room.save();
  return fence;
}

/** Moves on what a dead holder left behind, and removes what nobody uses. */
export function tidy(tx: Tx, hooks: RunHooks, ref: LockRef): void {
  const record = tx.record(lockAt(ref));
  if (!record.exists || record.dueMs === null || tx.nowMs < record.dueMs) return;
  const room = new Room(tx, hooks);
  const lock = room.open(ref, null);
  room.settle(lock);
  lock.touch();
  room.save();
  // The number of permits and the audit trail outlive their use.
  if (lock.isEmpty && ref.kind !== "semaphore" && record.head === 0) record.remove();
}

/** The locks that one decision works on: each is opened once, and written once. */
class Room {
  readonly tx: Tx;
  readonly #hooks: RunHooks;
  readonly #locks = new Map<string, LockDraft>();
  readonly #toSettle = new Set<LockDraft>();

  constructor(tx: Tx, hooks: RunHooks) {
    this.tx = tx;
    this.#hooks = hooks;
  }

  open(ref: LockRef, permits: number | null): LockDraft {
    const at = lockAt(ref);
    const opened = this.#locks.get(at.text);
    if (opened !== undefined) return opened;
    const lock = new LockDraft(this.tx, ref, permits, (moved) => this.#toSettle.add(moved));
    this.#locks.set(at.text, lock);
    return lock;
  }

  /** Strictly above every fence that one of these ever gave out. */
  fenceFor(locks: readonly LockDraft[], floor = this.tx.fenceFloor): number {
    return Math.max(...locks.map((lock) => nextFence(lock.fence, floor)));
  }

  settle(lock: LockDraft): void {
    if (lock.isEmpty) return;
    lock.expire(this.tx.nowMs);
    this.#toSettle.add(lock);
    this.settleAll();
  }

  /** Lets the lines move as far as they can. */
  settleAll(): void {
    for (const lock of this.#toSettle) {
      this.#toSettle.delete(lock);
      // One that has moved enough is left to the next commit.
      if (!lock.isHurried) this.#advance(lock);
    }
  }

  #advance(lock: LockDraft): void {
    // Where nobody waits there is nothing to look at, not even the clock.
    if (lock.first === null) return;
    const { nowMs } = this.tx;
    lock.expire(nowMs);
    // Who is first need not be known where there is no room for it.
    for (let moved = 0; lock.first !== null && !isFull(lock); moved++) {
      if (moved === MOST_MOVED) {
        lock.hurry();
        return;
      }
      const ticket: string = lock.first;
      const waiter = this.tx.record(ticketAt(lock.ref, ticket)).value as Ticket | undefined;
      if (waiter === undefined) throw new Error(`the line of ${lock.ref.kind} "${lock.ref.name}" is broken`);
      const locks = (waiter.group ?? [lock.ref]).map((ref) => this.open(ref, null));
      if (isAlive(waiter, nowMs)) {
        for (const other of locks) other.expire(nowMs);
        if (!locks.every((other) => other.first === ticket && fits(other, waiter.mode))) return;
        if (this.#grant(ticket, waiter, locks)) continue;
      }
      for (const other of locks) other.unlink(ticket);
    }
  }

  #grant(ticket: string, waiter: Ticket, locks: readonly LockDraft[]): boolean {
    const fence = this.fenceFor(locks);
    const { owner, mode, by, leaseMs, group } = waiter;
    if (owner !== undefined && !this.#hooks.granted(this.tx, owner, ticket, fence)) return false;
    const { nowMs } = this.tx;
    for (const lock of locks) {
      lock.unlink(ticket);
      lock.give(
        {
          ticket,
          fence,
          mode,
          sinceMs: nowMs,
          untilMs: leaseMs === null ? null : nowMs + leaseMs,
          ...(owner === undefined ? {} : { owner }),
          ...(by === undefined ? {} : { by }),
          ...(group === undefined ? {} : { group }),
        },
        fence,
      );
    }
    return true;
  }

  save(): void {
    for (const lock of this.#locks.values()) lock.save();
  }
}

/** One lock as a decision changes it. */
class LockDraft {
  readonly ref: LockRef;
  readonly record: Draft;
  readonly #tx: Tx;
  readonly #moved: (lock: LockDraft) => void;
  permits: number | null;
  holders: readonly Holder[];
  first: string | null;
  last: string | null;
  waiting: number;
  #groups: number;
  #fence: number | undefined;
  #isChanged = false;
  isHurried = false;
  #isTouched = false;

  constructor(tx: Tx, ref: LockRef, permits: number | null, moved: (lock: LockDraft) => void) {
    this.#tx = tx;
    this.ref = ref;
    this.#moved = moved;
    this.record = tx.record(lockAt(ref));
    const { value: stored } = this.record;
    const value = stored === undefined ? undefined : lockOf(stored);
    this.permits = value === undefined ? permits : value.permits;
    this.holders = value?.holders ?? NOBODY;
    this.first = value?.first ?? null;
    this.last = value?.last ?? null;
    this.waiting = value?.waiting ?? 0;
    this.#groups = value?.groups ?? 0;
  }

  /** The highest that was given out, by this decision too. */
  get fence(): number {
    return this.#fence ?? this.record.fence;
  }

  get isEmpty(): boolean {
    return this.holders.length === 0 && this.first === null;
  }

  declare(permits: number | null, by: string | undefined): void {
    if (!this.record.exists || this.permits === permits) return;
    const from = this.permits;
    this.permits = permits;
    this.#change();
    this.record.append("permits", { from, to: permits, ...(by === undefined ? {} : { by }) });
  }

  holder(ticket: string): Holder | undefined {
    return this.holders.find((one) => one.ticket === ticket);
  }

  /** Those whose lease has ended do not hold it any more. */
  expire(nowMs: number): void {
    const alive = living(this.holders, nowMs);
    if (alive === this.holders) return;
    this.holders = alive;
    this.#change();
  }

  give(holder: Holder, fence: number): void {
    this.holders = [...this.holders, holder];
    this.#fence = fence;
    this.#change();
  }

  drop(ticket: string): boolean {
    const left = this.holders.filter((one) => one.ticket !== ticket);
    if (left.length === this.holders.length) return false;
    this.holders = left;
    this.#change();
    return true;
  }

  prolong(ticket: string, nowMs: number, leaseMs: number): void {
    this.holders = this.holders.map((one) =>
      one.ticket === ticket && one.untilMs !== null ? { ...one, untilMs: renewed(one.untilMs, nowMs, leaseMs) } : one,
    );
    this.#change();
  }

  refence(ticket: string, fence: number): void {
    this.holders = this.holders.map((one) => (one.ticket === ticket ? { ...one, fence } : one));
    this.#fence = fence;
    this.#change();
  }

  append(id: string, ticket: Ticket): void {
    this.#load(id, this.last);
    const record = this.#tx.record(ticketAt(this.ref, id));
    if (record.exists) return;
    record.write({ value: ticket });
    if (this.last === null) this.first = id;
    else this.#link(this.last, { next: id });
    this.last = id;
    this.waiting += 1;
    if (ticket.group !== undefined) this.#groups += 1;
    this.#change();
  }

  /** Takes a ticket out of the line, wherever it stands. What it says of its place is only right where it is not the first. */
  unlink(id: string): void {
    const record = this.#tx.record(ticketAt(this.ref, id));
    const ticket = record.value as Ticket | undefined;
    if (ticket === undefined) return;
    if (this.first === id) {
      this.first = ticket.next;
      if (ticket.next === null) this.last = null;
    } else {
      this.#load(ticket.prev, ticket.next);
      if (ticket.prev !== null) this.#link(ticket.prev, { next: ticket.next });
      if (ticket.next === null) this.last = ticket.prev;
      else this.#link(ticket.next, { prev: ticket.prev });
    }
    this.waiting -= 1;
    if (ticket.group !== undefined) this.#groups -= 1;
    // Its key is never used again.
    record.remove(0);
    this.#change();
  }

  #load(...ids: readonly (string | null)[]): void {
    this.#tx.load(ids.flatMap((id) => (id === null ? [] : [ticketAt(this.ref, id)])));
  }

  #link(id: string, change: { readonly next: string | null } | { readonly prev: string | null }): void {
    const record = this.#tx.record(ticketAt(this.ref, id));
    record.write({ value: { ...(record.value as Ticket), ...change } });
  }

  /** More is to be done than one commit does. */
  hurry(): void {
    this.isHurried = true;
    this.#isChanged = true;
  }

  touch(): void {
    this.#isTouched = true;
    this.#isChanged = true;
  }

  #change(): void {
    this.#isChanged = true;
    this.#moved(this);
  }

  save(): void {
    if (!this.#isChanged) return;
    const { permits, holders, first, last, waiting } = this;
    const dueMs = this.#dueMs();
    this.record.write({
      value: storedLock({
        permits,
        holders,
        first,
        last,
        waiting,
        ...(this.#groups === 0 ? {} : { groups: this.#groups }),
      }),
      ...(this.record.exists ? {} : { kind: LOCK_QUEUE }),
      ...(dueMs === undefined ? {} : { dueMs }),
      ...(this.#fence === undefined ? {} : { fence: this.#fence }),
    });
  }

  /** When somebody should look whether its holder is gone, or whether it is used at all; undefined where that may stay as it is. */
  #dueMs(): number | undefined {
    if (this.isHurried) return this.#tx.nowMs;
    const isNew = !this.record.exists || this.#isTouched;
    if (this.first === null) return isNew ? this.#tx.nowMs + IDLE_MS : undefined;
    const dueMs = firstEnd(this.holders) ?? this.#tx.nowMs + IDLE_MS;
    return dueMs === this.record.dueMs ? undefined : dueMs;
  }
}

const NOBODY: readonly Holder[] = [];
