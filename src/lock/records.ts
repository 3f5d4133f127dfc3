/**
 * Records of a lock: what is stored, and where.
 *
 * A lock is one record: who holds it, and both ends of its line. Each waiter is a record of its own, a ticket, with its neighbours in
 * the line; so a hand-off writes the same few rows whether ten or ten thousand wait. A ticket is removed when its turn has come, and
 * its holder is then in the lock's record.
 *
 * The log of a lock's record is its audit trail: forced releases, waiters that were removed, changes of permits.
 */

import { type Address, address } from "../kernel/contract.ts";

/** One lock of any sort. A mutex, a semaphore and a reader-writer lock of one name are three. */
export interface LockRef {
  readonly kind: LockKind;
  readonly name: string;
}

export type LockKind = "mutex" | "semaphore" | "rwlock";

/** Whether others may hold it at the same time. */
export type Mode = "exclusive" | "shared";

/** A run that holds or waits: it does so for as long as it lives, and has no lease for it. */
export interface RunOwner {
  readonly run: string;
  readonly incarnation: number;
}

export interface Holder {
  readonly ticket: string;
  readonly fence: number;
  readonly mode: Mode;
  readonly sinceMs: number;
  /** When its lease ends; null for a run. */
  readonly untilMs: number | null;
  readonly owner?: RunOwner;
  /** Who it is, as far as that was said. */
  readonly by?: string;
  /** Everything it holds at once, if that is more than this lock. */
  readonly group?: readonly LockRef[];
}

export interface LockValue {
  /** How many may share it; null for any number. */
  readonly permits: number | null;
  readonly holders: readonly Holder[];
  /** The first and the last ticket in line. */
  readonly first: string | null;
  readonly last: string | null;
  readonly waiting: number;
  /** How many of those in line wait for other locks as well; left out where nobody does. */
  readonly groups?: number;
}

export interface Ticket {
  readonly mode: Mode;
  readonly prev: string | null;
  readonly next: string | null;
  readonly sinceMs: number;
  /** Until then the waiter has said that it is alive; null for a run. */
  readonly untilMs: number | null;
  /** How long it will hold without renewing; null for a run. */
  readonly leaseMs: number | null;
  readonly owner?: RunOwner;
  readonly by?: string;
  /** Everything it waits for at once, if that is more than this lock. */
  readonly group?: readonly LockRef[];
}

/** The queue that locks are found in whose holder may have died, or that nobody uses any more. */
export const LOCK_QUEUE = "lock";

/** The status of a semaphore that was free when it was last looked at, until it is used. */
export const UNUSED = "unused";

export const lockAt = ({ kind, name }: LockRef): Address => address(`lock/${kind}`, name);

export const ticketAt = ({ kind, name }: LockRef, ticket: string): Address => address(`ticket/${kind}/${name}`, ticket);

export const shownLock = ({ kind, name }: LockRef): string => `${kind} "${name}"`;

export const shownLocks = (refs: readonly LockRef[]): string => refs.map(shownLock).join(" and ");

export const isSameLock = (a: LockRef, b: LockRef | undefined): boolean => a.kind === b?.kind && a.name === b.name;

/** The words of the audit trail. */
export const AUDIT = ["forced", "removed", "permits"] as const;
