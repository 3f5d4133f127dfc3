/**
 * Records of a lock: what is stored, and where.
 *
 * A lock is one record: its holders, and both ends of its line. Each waiter is a record of its own, a ticket, with its neighbours in
 * the line; so a hand-off writes the same few rows whether ten or ten thousand wait. When the lock is granted, the ticket is removed, and
 * the holder is in the lock's record.
 *
 * The log of a lock's record is its audit trail: forced releases, waiters that were removed, changes of permits.
 */

import { type Address, address } from "../kernel/contract.ts";

/** One lock of any kind. A mutex, a semaphore and a reader-writer lock with the same name are three different locks. */
export interface LockRef {
  readonly kind: LockKind;
  readonly name: string;
}

export type LockKind = "mutex" | "semaphore" | "rwlock";

/** Whether others may hold it at the same time. */
export type Mode = "exclusive" | "shared";

/** A run that holds or waits: it does so until the run ends, without a lease. */
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
  /** The `by` of its request, if one was given. */
  readonly by?: string;
  /** All locks that it holds together, if more than this one. */
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
  /** How many waiters wait for other locks as well. Default: none. */
  readonly groups?: number;
}

export interface Ticket {
  readonly mode: Mode;
  readonly prev: string | null;
  readonly next: string | null;
  readonly sinceMs: number;
  /** When the waiter's lease ends; null for a run. */
  readonly untilMs: number | null;
  /** How long it will hold without a renewal; null for a run. */
  readonly leaseMs: number | null;
  readonly owner?: RunOwner;
  readonly by?: string;
  /** All locks that it waits for together, if more than this one. */
  readonly group?: readonly LockRef[];
}

/** The fields that most holders and waiters do not have. */
export type More = Pick<Holder, "owner" | "by" | "group">;

/** Those of these fields that are set; undefined if none is. */
export function moreOf({ owner, by, group }: { readonly [K in keyof More]: More[K] | undefined }): More | undefined {
  if (owner === undefined && by === undefined && group === undefined) return undefined;
  return {
    ...(owner === undefined ? {} : { owner }),
    ...(by === undefined ? {} : { by }),
    ...(group === undefined ? {} : { group }),
  };
}

/** The queue of locks whose holder may have died, or that are unused. */
export const LOCK_QUEUE = "lock";

/** The status of a semaphore that was free when it was last checked, until it is used. */
export const UNUSED = "unused";

export const lockAt = ({ kind, name }: LockRef): Address => address(`lock/${kind}`, name);

/** The lock whose record this is. */
export const refOf = ({ space, key }: Address): LockRef => ({
  kind: space.slice("lock/".length) as LockKind,
  name: key,
});

export const ticketAt = ({ kind, name }: LockRef, ticket: string): Address => address(`ticket/${kind}/${name}`, ticket);

export const shownLock = ({ kind, name }: LockRef): string => `${kind} "${name}"`;

export const shownLocks = (refs: readonly LockRef[]): string => refs.map(shownLock).join(" and ");

export const isSameLock = (a: LockRef, b: LockRef | undefined): boolean => a.kind === b?.kind && a.name === b.name;

/** The words of the audit trail. */
export const AUDIT = ["forced", "removed", "permits"] as const;

// ------------------------------------------------------------------ a lock's value, as it is written

// Without field names, because a lock's value is written twice for each hold, and its size matters.

/** The fields of all holders, one after another; then the line, if there is one or the permits are limited. */
export type StoredLock = readonly [
  holders: readonly (string | number | null | More)[],
  permits?: number | null,
  first?: string | null,
  last?: string | null,
  waiting?: number,
  groups?: number,
];

/** The number of fields of each holder. */
const FIELDS = 6;
const EXCLUSIVE = 1;

export function storedLock({ permits, holders, first, last, waiting, groups = 0 }: LockValue): StoredLock {
  const flat: (string | number | null | More)[] = [];
  for (const holder of holders) {
    const { ticket, fence, mode, sinceMs, untilMs } = holder;
    flat.push(ticket, fence, mode === "exclusive" ? EXCLUSIVE : 0, sinceMs, untilMs, moreOf(holder) ?? null);
  }
  if (permits === null && first === null) return [flat];
  return groups === 0 ? [flat, permits, first, last, waiting] : [flat, permits, first, last, waiting, groups];
}

export function lockOf(stored: unknown): LockValue {
  const [flat, permits = null, first = null, last = null, waiting = 0, groups = 0] = stored as StoredLock;
  const holders: Holder[] = [];
  for (let i = 0; i < flat.length; i += FIELDS)
    holders.push({
      ticket: flat[i] as string,
      fence: flat[i + 1] as number,
      mode: flat[i + 2] === EXCLUSIVE ? "exclusive" : "shared",
      sinceMs: flat[i + 3] as number,
      untilMs: flat[i + 4] as number | null,
      ...(flat[i + 5] as More | null),
    });
  return { permits, holders, first, last, waiting, groups };
}
