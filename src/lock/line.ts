/**
 * Locks as decisions: entering, leaving, renewing, and the hand-off.
 *
 * Each lock has one line, in the order of commits, and no waiter overtakes another. The commit that frees a lock also grants it to the
 * first in line; a waiter whose own lease has ended is removed. A request for several locks is in all their lines with one ticket, from one
 * commit, and gets all of them when it is first in every line and all are free: it holds nothing before that, so two such requests cannot
 * wait for each other.
 *
 * Guarantees: no more holders than the lock allows, by the store's clock (G8); first come, first served by commit order (G9); the fences of
 * a lock strictly rise (G7).
 */

import type { Tx } from "../kernel/decision.ts";
import { fits, isAlive, renewed } from "./decide.ts";
import { type LockDraft, LockDrafts, type RunHooks } from "./drafts.ts";
import { PermitsUndeclaredError } from "./errors.ts";
import {
  type Holder,
  type LockRef,
  lockAt,
  lockOf,
  type Mode,
  moreOf,
  type RunOwner,
  type Ticket,
  ticketAt,
  UNUSED,
} from "./stored.ts";

/** How long the permits of an unused semaphore are kept. */
const PERMITS_KEPT_MS = 30 * 24 * 3_600_000;

export interface LockRequest {
  readonly refs: readonly LockRef[];
  readonly mode: Mode;
  /** The unique id of this request. */
  readonly ticket: string;
  /** How long it holds, and waits, without a renewal; null for a run. */
  readonly leaseMs: number | null;
  readonly owner?: RunOwner | undefined;
  readonly by?: string | undefined;
  /** How many may hold it if nothing is stored; null for no limit, and for a semaphore as many as are stored. */
  readonly permits: number | null;
  /** Whether this commit changes the stored permits to `permits`. */
  readonly declares: boolean;
  /** Whether it takes a place in line if the lock is not free. */
  readonly queue: boolean;
}

export type Entered =
  | { readonly granted: true; readonly fence: number; readonly nowMs: number }
  | {
      readonly granted: false;
      readonly place: number;
      readonly nowMs: number;
      /** The length of the audit trail of the first lock: removing the waiter later adds to it. */
      readonly head: number;
    };

/** Acquires the locks if they are free and no other waits for them, or takes a place in line. */
export function enter(tx: Tx, hooks: RunHooks, request: LockRequest): Entered {
  const drafts = new LockDrafts(tx, hooks);
  const entered = enterIn(drafts, request);
  drafts.save();
  return entered;
}

/** Like `enter`, on locks that the caller saves after its last change. */
export function enterIn(drafts: LockDrafts, request: LockRequest): Entered {
  const { tx } = drafts;
  const { refs, mode, ticket, leaseMs, owner, by } = request;
  const locks = refs.map((ref) => drafts.open(ref, request.permits));
  for (const { ref, permits, record } of locks)
    if (ref.kind === "semaphore" && permits === null && !record.exists) throw new PermitsUndeclaredError(ref.name);
  if (request.declares) for (const lock of locks) lock.declare(request.permits, by);
  for (const lock of locks) drafts.settle(lock);
  // A lock without holders and waiters needs no exact clock: its lease may end up to a second later.
  const isFree = locks.every((lock) => lock.isEmpty && lock.record.exists);
  const nowMs = isFree ? tx.nowUpperBoundMs : tx.nowMs;
  // The same request again, because its first reply was lost.
  const had = fenceOf(locks, ticket);
  if (had !== undefined) return { granted: true, fence: had, nowMs };
  const untilMs = leaseMs === null ? null : nowMs + leaseMs;
  const more = moreOf({ owner, by, group: refs.length === 1 ? undefined : refs });
  if (locks.every((lock) => lock.first === null && fits(lock, mode))) {
    // A fence must not be ahead of the clock: after a promotion that lost this grant, the next fence would be below it.
    const fence = drafts.fenceFor(locks, isFree ? tx.approxNowMs : tx.fenceFloor);
    for (const lock of locks) lock.give({ ticket, fence, mode, sinceMs: nowMs, untilMs, ...more });
    return { granted: true, fence, nowMs };
  }
  const place = Math.max(...locks.map((lock) => lock.waiting)) + 1;
  if (request.queue)
    for (const lock of locks)
      lock.append(ticket, { mode, sinceMs: nowMs, ...more, prev: lock.last, next: null, untilMs, leaseMs });
  return { granted: false, place, nowMs, head: locks[0]?.record.head ?? 0 };
}

/** Releases the locks, or leaves their lines; the same commit grants them to the next in line. Does nothing if the ticket has neither. */
export function leave(
  tx: Tx,
  hooks: RunHooks,
  refs: readonly LockRef[],
  ticket: string,
): { readonly released: boolean } {
  const drafts = new LockDrafts(tx, hooks);
  const left = leaveIn(drafts, refs, ticket);
  drafts.save();
  return left;
}

/** Like `leave`, on locks that the caller saves after its last change. */
export function leaveIn(drafts: LockDrafts, refs: readonly LockRef[], ticket: string): { readonly released: boolean } {
  let released = false;
  for (const ref of refs) {
    const lock = drafts.open(ref, null);
    if (lock.drop(ticket)) released = true;
    else if (lock.first !== null) lock.unlink(ticket);
  }
  drafts.settleAll();
  return { released };
}

/** Renews the leases. Returns false if the ticket no longer holds all of the locks. */
export function renew(tx: Tx, hooks: RunHooks, refs: readonly LockRef[], ticket: string, leaseMs: number): boolean {
  const drafts = new LockDrafts(tx, hooks);
  const locks = refs.map((ref) => drafts.open(ref, null));
  // An expired lease stays valid as long as no other waits for the lock.
  for (const lock of locks) if (lock.first !== null) drafts.settle(lock);
  const isHeld = locks.every((lock) => lock.holder(ticket) !== undefined);
  if (isHeld) for (const lock of locks) lock.prolong(ticket, tx.nowMs, leaseMs);
  drafts.save();
  return isHeld;
}

/** The fence under which the ticket holds all of these locks at this commit; undefined if it does not. */
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
 * Renews a waiter's place, and grants the lock if it is free. A waiter that renews too late has lost its place; one to which the lock was
 * granted gets another lease.
 */
export function renewPlace(
  tx: Tx,
  hooks: RunHooks,
  refs: readonly LockRef[],
  ticket: string,
  leaseMs: number,
): Standing {
  const drafts = new LockDrafts(tx, hooks);
  const { nowMs } = tx;
  const locks = refs.map((ref) => drafts.open(ref, null));
  for (const lock of locks) {
    const record = tx.record(ticketAt(lock.ref, ticket));
    const value = record.value as Ticket | undefined;
    if (value === undefined || value.untilMs === null) continue;
    if (isAlive(value, nowMs)) record.write({ value: { ...value, untilMs: renewed(value.untilMs, nowMs, leaseMs) } });
    else lock.unlink(ticket);
  }
  for (const lock of locks) drafts.settle(lock);
  const fence = fenceOf(locks, ticket);
  if (fence !== undefined) for (const lock of locks) lock.prolong(ticket, nowMs, leaseMs);
  drafts.save();
  if (fence !== undefined) return { is: "held", fence };
  const isWaiting = refs.every((ref) => tx.record(ticketAt(ref, ticket)).exists);
  return isWaiting ? { is: "waiting", head: locks[0]?.record.head ?? 0 } : { is: "gone" };
}

/** The fence under which all of these are held by this ticket. */
function fenceOf(locks: readonly LockDraft[], ticket: string): number | undefined {
  const [first, ...others] = locks.map((lock) => lock.holder(ticket)?.fence);
  return others.every((fence) => fence !== undefined) ? first : undefined;
}

/** Releases the lock for one holder, or for all, and records in the audit trail who did it and why. */
export function force(
  tx: Tx,
  hooks: RunHooks,
  ref: LockRef,
  act: { readonly ticket?: string | undefined; readonly by: string; readonly reason: string },
): readonly Holder[] {
  const drafts = new LockDrafts(tx, hooks);
  const lock = drafts.open(ref, null);
  const forced = lock.holders
    .filter(({ ticket }) => act.ticket === undefined || ticket === act.ticket)
    .map((holder) => {
      // Locks that were acquired together are lost together. A holder whose lease has ended may have lost some of them to others before.
      const lost = (holder.group ?? [ref]).filter((other) => drafts.open(other, null).drop(holder.ticket));
      if (holder.owner !== undefined) hooks.taken(tx, holder.owner, holder.ticket);
      return { holder, lost };
    });
  if (forced.length > 0) {
    drafts.settleAll();
    drafts.save();
    for (const { holder, lost } of forced) audit(drafts, lost, "forced", { ...actor(act), holder });
  }
  return forced.map(({ holder }) => holder);
}

/** Removes a waiter from the line, and records in the audit trail who did it and why. */
export function removeWaiter(
  tx: Tx,
  hooks: RunHooks,
  ref: LockRef,
  act: { readonly ticket: string; readonly by: string; readonly reason: string },
): boolean {
  const drafts = new LockDrafts(tx, hooks);
  const value = tx.record(ticketAt(ref, act.ticket)).value as Ticket | undefined;
  if (value === undefined) return false;
  for (const other of value.group ?? [ref]) drafts.open(other, null).unlink(act.ticket);
  if (value.owner !== undefined) hooks.taken(tx, value.owner, act.ticket);
  drafts.settleAll();
  drafts.save();
  const { owner, by } = value;
  const waiter = { ticket: act.ticket, owner, by };
  audit(drafts, value.group ?? [ref], "removed", { ...actor(act), waiter });
  return true;
}

const actor = ({ by, reason }: { readonly by: string; readonly reason: string }): object => ({ by, reason });

/** Of locks that were acquired together, one may be gone: its holder was dead for long, and no one used it since. */
function audit(drafts: LockDrafts, refs: readonly LockRef[], name: string, data: object): void {
  for (const ref of refs) {
    const { record } = drafts.open(ref, null);
    if (record.exists) record.append(name, data);
  }
}

/** Gives a run's locks a new fence, because another process works on the run now, and the earlier one may not know. */
export function refence(tx: Tx, hooks: RunHooks, refs: readonly LockRef[], ticket: string): number | undefined {
  const drafts = new LockDrafts(tx, hooks);
  const locks = refs.map((ref) => drafts.open(ref, null));
  if (!locks.every((lock) => lock.holder(ticket) !== undefined)) return undefined;
  const fence = drafts.fenceFor(locks);
  for (const lock of locks) lock.refence(ticket, fence);
  drafts.save();
  return fence;
}

/** Grants a lock whose holder died to the next in line, and removes an unused one. */
export function tidy(tx: Tx, hooks: RunHooks, ref: LockRef): void {
  const record = tx.record(lockAt(ref));
  if (!record.exists || record.dueMs === null || tx.nowMs < record.dueMs) return;
  const isUnused = record.status === UNUSED;
  const drafts = new LockDrafts(tx, hooks);
  const lock = drafts.open(ref, null);
  drafts.settle(lock);
  lock.touch();
  drafts.save();
  // The audit trail outlives the lock's use.
  if (!lock.isEmpty || record.head > 0) return;
  // So does the number of permits, for a while: other processes may use the semaphore without declaring it.
  if (ref.kind !== "semaphore" || isUnused) record.remove();
  else record.write({ status: UNUSED, dueMs: tx.nowMs + PERMITS_KEPT_MS });
}
