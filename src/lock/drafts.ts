/**
 * The locks that one decision changes, and the grants to waiters when one of them becomes free.
 */

import { nextFence } from "../kernel/claim/decide.ts";
import type { Address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Changes, Draft } from "../kernel/draft.ts";
import { firstEnd, fits, isAlive, isFull, living, renewed } from "./decide.ts";
import {
  type Holder,
  LOCK_QUEUE,
  type LockRef,
  lockAt,
  lockOf,
  moreOf,
  type RunOwner,
  storedLock,
  type Ticket,
  ticketAt,
} from "./stored.ts";

/** How runs are notified of grants and interventions. Locks know nothing else of runs. */
export interface RunHooks {
  /** The lock is granted to the run. Returns whether the run still waits for it. */
  granted(tx: Tx, owner: RunOwner, ticket: string, fence: number): boolean;
  /** An operator released the lock that it held, or removed it from the line. */
  taken(tx: Tx, owner: RunOwner, ticket: string): void;
}

/** The record of a free lock is removed after this time. */
const IDLE_MS = 60 * 60 * 1000;
/** How many waiters one commit grants the lock to, or removes; the next commit continues. */
const MOST_MOVED = 100;

/** The locks that one decision works on: each is opened once, and written once. */
export class LockDrafts {
  readonly tx: Tx;
  readonly #hooks: RunHooks;
  readonly #locks = new Map<string, LockDraft>();
  /** In the order in which they were changed. */
  readonly #toSettle: LockDraft[] = [];

  constructor(tx: Tx, hooks: RunHooks) {
    this.tx = tx;
    this.#hooks = hooks;
  }

  open(ref: LockRef, permits: number | null): LockDraft {
    const at = lockAt(ref);
    const opened = this.#locks.get(at.text);
    if (opened !== undefined) {
      opened.expect(permits);
      return opened;
    }
    const lock = new LockDraft(this, ref, at, permits);
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
    this.toSettle(lock);
    this.settleAll();
  }

  /** The lock may be free for its first waiters now. */
  toSettle(lock: LockDraft): void {
    if (lock.isToSettle) return;
    lock.isToSettle = true;
    this.#toSettle.push(lock);
  }

  /** Grants free locks to the first waiters, as far as possible. */
  settleAll(): void {
    for (let lock = this.#toSettle.shift(); lock !== undefined; lock = this.#toSettle.shift()) {
      lock.isToSettle = false;
      // A lock that reached `MOST_MOVED` is left to the next commit.
      if (!lock.isHurried) this.#advance(lock);
    }
  }

  #advance(lock: LockDraft): void {
    // Without waiters there is nothing to do, and the clock is not needed.
    if (lock.first === null) return;
    const { nowMs } = this.tx;
    lock.expire(nowMs);
    // The first ticket is read only if the lock can be granted.
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
    const { owner, mode, leaseMs } = waiter;
    if (owner !== undefined && !this.#hooks.granted(this.tx, owner, ticket, fence)) return false;
    const { nowMs } = this.tx;
    for (const lock of locks) {
      lock.unlink(ticket);
      const untilMs = leaseMs === null ? null : nowMs + leaseMs;
      lock.give({ ticket, fence, mode, sinceMs: nowMs, untilMs, ...moreOf(waiter) });
    }
    return true;
  }

  save(): void {
    for (const lock of this.#locks.values()) lock.save();
  }
}

/** One lock as a decision changes it. */
export class LockDraft {
  readonly ref: LockRef;
  readonly record: Draft;
  readonly #drafts: LockDrafts;
  permits: number | null;
  holders: readonly Holder[];
  first: string | null;
  last: string | null;
  waiting: number;
  groups: number;
  #fence: number | undefined;
  #isChanged = false;
  isHurried = false;
  isToSettle = false;
  #isTouched = false;

  constructor(drafts: LockDrafts, ref: LockRef, at: Address, permits: number | null) {
    this.#drafts = drafts;
    this.ref = ref;
    this.record = drafts.tx.record(at);
    const { value: stored } = this.record;
    const value = stored === undefined ? undefined : lockOf(stored);
    this.permits = value === undefined ? permits : value.permits;
    this.holders = value?.holders ?? NO_HOLDERS;
    this.first = value?.first ?? null;
    this.last = value?.last ?? null;
    this.waiting = value?.waiting ?? 0;
    this.groups = value?.groups ?? 0;
  }

  /** The highest that was given out, by this decision too. */
  get fence(): number {
    return this.#fence ?? this.record.fence;
  }

  get isEmpty(): boolean {
    return this.holders.length === 0 && this.first === null;
  }

  /** A new lock gets the permits of the first request. */
  expect(permits: number | null): void {
    if (!this.record.exists) this.permits ??= permits;
  }

  declare(permits: number | null, by: string | undefined): void {
    if (!this.record.exists) this.permits = permits;
    if (this.permits === permits) return;
    const from = this.permits;
    this.permits = permits;
    this.#change();
    this.record.append("permits", { from, to: permits, ...(by === undefined ? {} : { by }) });
  }

  holder(ticket: string): Holder | undefined {
    return this.holders.find((one) => one.ticket === ticket);
  }

  /** Removes the holders whose leases have ended. */
  expire(nowMs: number): void {
    const alive = living(this.holders, nowMs);
    if (alive === this.holders) return;
    this.holders = alive;
    this.#change();
  }

  give(holder: Holder): void {
    this.holders = [...this.holders, holder];
    this.#fence = holder.fence;
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
    const record = this.#drafts.tx.record(ticketAt(this.ref, id));
    if (record.exists) return;
    record.write({ value: ticket });
    if (this.last === null) this.first = id;
    else this.#link(this.last, { next: id });
    this.last = id;
    this.waiting += 1;
    if (ticket.group !== undefined) this.groups += 1;
    this.#change();
  }

  /** Removes a ticket from the line, at any position. `prev` is valid only if the ticket is not the first. */
  unlink(id: string): void {
    const record = this.#drafts.tx.record(ticketAt(this.ref, id));
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
    if (ticket.group !== undefined) this.groups -= 1;
    // Its key is never used again.
    record.remove(0);
    this.#change();
  }

  #load(...ids: readonly (string | null)[]): void {
    this.#drafts.tx.load(ids.flatMap((id) => (id === null ? [] : [ticketAt(this.ref, id)])));
  }

  #link(id: string, change: { readonly next: string | null } | { readonly prev: string | null }): void {
    const record = this.#drafts.tx.record(ticketAt(this.ref, id));
    record.write({ value: { ...(record.value as Ticket), ...change } });
  }

  /** More waiters are to be handled than one commit does: makes the lock due immediately. */
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
    this.#drafts.toSettle(this);
  }

  save(): void {
    if (!this.#isChanged) return;
    this.#isChanged = false;
    const changes: Changes = { value: storedLock(this) };
    const dueMs = this.#dueMs();
    if (dueMs !== undefined) changes.dueMs = dueMs;
    if (this.#fence !== undefined) changes.fence = this.#fence;
    if (!this.record.exists) changes.kind = LOCK_QUEUE;
    if (this.record.status !== null) changes.status = null;
    this.record.write(changes);
  }

  /** When a worker should check whether its holder is gone, or whether it is unused; undefined if the time stays the same. */
  #dueMs(): number | undefined {
    if (this.isHurried) return this.#drafts.tx.nowMs;
    const isNew = !this.record.exists || this.#isTouched;
    if (this.first === null) return isNew ? this.#drafts.tx.nowMs + IDLE_MS : undefined;
    const dueMs = firstEnd(this.holders) ?? this.#drafts.tx.nowMs + IDLE_MS;
    return dueMs === this.record.dueMs ? undefined : dueMs;
  }
}

const NO_HOLDERS: readonly Holder[] = [];
