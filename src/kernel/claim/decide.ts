/**
 * Claims, as rules: who may work on a record, until when, and whose writes are refused.
 *
 * A claimed record has a holder, a fence and a `dueMs` at which the lease ends; the same column is the timer of a record that
 * rests. The fence, not the lease, decides whether a write of the holder is accepted: after its lease has ended, a holder may
 * still write until another process has taken over.
 *
 * Guarantees: only its holder shortens a lease (G6, G8); fences strictly rise (G7); a wake-up between a
 * holder's look and its rest is never lost (G15, G25).
 * Pure: every rule is a row of `decide.test.ts`.
 */

/** The columns that claims are about. */
export interface Claimable {
  readonly exists: boolean;
  readonly fence: number;
  readonly wakes: number;
  readonly tries: number;
  readonly holder: string | null;
  readonly kind: string | null;
  readonly dueMs: number | null;
}

/** The next fence: strictly above the record's own, and above that of any removed record with this name. */
export function nextFence(own: number, floor: number): number {
  return Math.max(own + 1, floor);
}

export interface ClaimChanges {
  readonly holder: string;
  readonly fence: number;
  readonly tries: number;
  readonly dueMs: number;
}

export type ClaimOutcome = { readonly granted: true; readonly changes: ClaimChanges } | { readonly granted: false };

/** A record can be claimed from the millisecond that it is due: then its timer has fired, or its lease has ended. */
export function decideClaim(
  record: Claimable,
  claim: { readonly by: string; readonly leaseMs: number; readonly nowMs: number; readonly fenceFloor: number },
): ClaimOutcome {
  if (!record.exists) return { granted: false };
  if (record.kind === null) return { granted: false };
  if (record.dueMs === null) return { granted: false };
  if (claim.nowMs < record.dueMs) return { granted: false };
  return {
    granted: true,
    changes: {
      holder: claim.by,
      fence: nextFence(record.fence, claim.fenceFloor),
      tries: record.tries + 1,
      dueMs: claim.nowMs + claim.leaseMs,
    },
  };
}

/** A claim: the fence it was granted with, and by which name. */
export interface Grant {
  readonly fence: number;
  readonly holder: string;
}

/**
 * Whether a write under this claim comes from the current holder of the record. The name is compared as well: after a promotion that lost
 * commits, another holder may have been granted the same fence.
 */
export function isHolder(record: Claimable, claim: Grant): boolean {
  if (!record.exists) return false;
  if (record.holder !== claim.holder) return false;
  return record.fence === claim.fence;
}

/** Like `isHolder`, if the holder is known by its fence alone, as the claimant of an action is. */
export function isHeldUnder(record: Claimable, fence: number): boolean {
  return record.holder !== null && isHolder(record, { fence, holder: record.holder });
}

/** A renewal never shortens a lease: a clock that stepped back makes it longer. */
export function decideRenew(
  record: Claimable,
  renewal: Grant & { readonly leaseMs: number; readonly nowMs: number },
): { readonly renewed: true; readonly dueMs: number } | { readonly renewed: false } {
  if (!isHolder(record, renewal)) return { renewed: false };
  return { renewed: true, dueMs: Math.max(record.dueMs ?? 0, renewal.nowMs + renewal.leaseMs) };
}

export type RestOutcome = "rested" | "woken" | "fenced";

/** The holder releases the record, unless a wake-up came since the holder last looked. */
export function decideRest(record: Claimable, rest: Grant & { readonly wakesSeen: number }): RestOutcome {
  if (!isHolder(record, rest)) return "fenced";
  if (record.wakes !== rest.wakesSeen) return "woken";
  return "rested";
}

/**
 * Wakes a record. One that rests becomes due immediately. For one that is held, the wake-up is only counted: making it due
 * would end a valid lease, and its holder sees the count before it rests.
 */
export function decideWake(
  record: Claimable,
  nowMs: number,
): { readonly wakes: number; readonly dueMs: number | null } {
  const wakes = record.wakes + 1;
  if (record.holder !== null) return { wakes, dueMs: record.dueMs };
  return { wakes, dueMs: record.dueMs === null ? nowMs : Math.min(record.dueMs, nowMs) };
}
