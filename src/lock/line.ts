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

import type { Tx } from "../kernel/decision.ts";
import { fits, isAlive, renewed } from "./decide.ts";
import { PermitsUndeclaredError } from "./errors.ts";
import {
  type Holder,
  type LockRef,
  lockAt,
  type Mode,
  type RunOwner,
  type Ticket,
  ticketAt,
  UNUSED,
} from "./records.ts";
import { type LockDraft, Room, type RunHooks } from "./room.ts";
import { lockOf } from "./stored.ts";

/** The permits of a semaphore that nobody uses are kept for this long. */
const PERMITS_KEPT_MS = 30 * 24 * 3_600_000;

export interface Request {
  readonly refs: readonly LockRef[];
  readonly mode: Mode;
  /** Names this wish; no other has it. */
  readonly ticket: string;
  /** How long it holds, and waits, without renewing; null for a run. */
  readonly leaseMs: number | null;
  readonly owner?: RunOwner | undefined;
  readonly by?: string | undefined;
  /** How many may share it, where nothing else is stored; null for any number, and for a semaphore as many as are stored. */
  readonly permits: number | null;
  /** The permits are to be what they are here, from this commit on. */
  readonly declares: boolean;
  /** Whether it wants a place in line. */
  readonly queue: boolean;
}

export type Entered =
  | { readonly granted: true; readonly fence: number; readonly nowMs: number }
  | {
      readonly granted: false;
      readonly place: number;
      readonly nowMs: number;
      /** How long the audit trail of the first lock is: who removes it from the line later adds to it. */
      readonly head: number;
    };

/** Takes the locks if they are free and nobody waits for them, or gets in line. */
export function enter(tx: Tx, hooks: RunHooks, request: Request): Entered {
  const room = new Room(tx, hooks);
  const entered = enterIn(room, request);
  room.save();
  return entered;
}

/** The same in a room with others, which is saved after the last of them. */
export function enterIn(room: Room, request: Request): Entered {
  const { tx } = room;
  const { refs, mode, ticket, leaseMs, owner, by } = request;
  const locks = refs.map((ref) => room.open(ref, request.permits));
  for (const { ref, permits, record } of locks)
    if (ref.kind === "semaphore" && permits === null && !record.exists) throw new PermitsUndeclaredError(ref.name);
  if (request.declares) for (const lock of locks) lock.declare(request.permits, by);
  for (const lock of locks) room.settle(lock);
  // Where nobody is, and nobody was a moment ago, the clock need not be exact: a lease that ends a little later harms nobody.
  const isFree = locks.every((lock) => lock.isEmpty && lock.record.exists);
  const nowMs = isFree ? tx.lateMs : tx.nowMs;
  // The same wish once more, because its first answer was lost.
  const had = fenceOf(locks, ticket);
  if (had !== undefined) return { granted: true, fence: had, nowMs };
  const common = {
    mode,
    sinceMs: nowMs,
    ...(owner === undefined ? {} : { owner }),
    ...(by === undefined ? {} : { by }),
    ...(refs.length === 1 ? {} : { group: refs }),
  };
  if (locks.every((lock) => lock.first === null && fits(lock, mode))) {
    // A fence must not run ahead of the clock: after a promotion that lost this grant, the next one would be below it.
    const fence = room.fenceFor(locks, isFree ? tx.aboutMs : tx.fenceFloor);
    const untilMs = leaseMs === null ? null : nowMs + leaseMs;
    for (const lock of locks) lock.give({ ...common, ticket, fence, untilMs }, fence);
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
  return { granted: false, place, nowMs, head: locks[0]?.record.head ?? 0 };
}

/** Gives the locks back, or leaves their lines; the next in line has them from the same commit on. Harmless where nothing was had. */
export function leave(
  tx: Tx,
  hooks: RunHooks,
  refs: readonly LockRef[],
  ticket: string,
): { readonly released: boolean } {
  const room = new Room(tx, hooks);
  const left = leaveIn(room, refs, ticket);
  room.save();
  return left;
}

/** The same in a room with others, which is saved after the last of them. */
export function leaveIn(room: Room, refs: readonly LockRef[], ticket: string): { readonly released: boolean } {
  let released = false;
  for (const ref of refs) {
    const lock = room.open(ref, null);
    if (lock.drop(ticket)) released = true;
    else if (lock.first !== null) lock.unlink(ticket);
  }
  room.settleAll();
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
  | { readonly is: "waiting"; readonly head: number }
  | { readonly is: "held"; readonly fence: number }
  | { readonly is: "gone" };

/**
 * A waiter says that it is alive, and sees to it that the line moves. One that is late has lost its place to those behind it; one whose
 * turn has come holds on for another lease.
 */
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
  const fence = fenceOf(locks, ticket);
  if (fence !== undefined) for (const lock of locks) lock.prolong(ticket, nowMs, leaseMs);
  room.save();
  if (fence !== undefined) return { is: "held", fence };
  const isWaiting = refs.every((ref) => tx.record(ticketAt(ref, ticket)).exists);
  return isWaiting ? { is: "waiting", head: locks[0]?.record.head ?? 0 } : { is: "gone" };
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
    for (const holder of forced)
      for (const other of holder.group ?? [ref])
        room.open(other, null).record.append("forced", { by: act.by, reason: act.reason, holder });
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
  const value = tx.record(ticketAt(ref, act.ticket)).value as Ticket | undefined;
  if (value === undefined) return false;
  for (const other of value.group ?? [ref]) room.open(other, null).unlink(act.ticket);
  if (value.owner !== undefined) hooks.taken(tx, value.owner, act.ticket);
  room.settleAll();
  room.save();
  const { owner, by } = value;
  const waiter = { ticket: act.ticket, owner, by };
  for (const other of value.group ?? [ref])
    room.open(other, null).record.append("removed", { by: act.by, reason: act.reason, waiter });
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
  const isUnused = record.status === UNUSED;
  const room = new Room(tx, hooks);
  const lock = room.open(ref, null);
  room.settle(lock);
  lock.touch();
  room.save();
  // The audit trail outlives the lock's use.
  if (!lock.isEmpty || record.head > 0) return;
  // So does the number of permits, for a while: others may use the semaphore without declaring it.
  if (ref.kind !== "semaphore" || isUnused) record.remove();
  else record.write({ status: UNUSED, dueMs: tx.nowMs + PERMITS_KEPT_MS });
}
