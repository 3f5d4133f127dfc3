/**
 * Claims, as rules: who may work on a record, until when, and who is told that it is over.
 *
 * A claimed record has a holder, a fence and a `dueMs` at which the lease ends; the same column is the timer of one that
 * rests. The fence, not the lease, decides whether a write of the holder is accepted: an expired lease that nobody took
 * over has harmed nobody.
 *
 * Promises: a lease is never shortened by anybody but its holder (G6, G8); fences strictly rise (G7); a wake-up between a
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

/** Strictly above the record's own, and above that of any record of this name that was removed. */
export function nextFence(own: number, floor: number): number {
  return Math.max(own + 1, floor);
}

export interface ClaimChanges {
  readonly holder: string;
  readonly fence: number;
  readonly tries: number;
  readonly dueMs: number;
}

export type ClaimAnswer = { readonly granted: true; readonly changes: ClaimChanges } | { readonly granted: false };

/** A record can be claimed from the millisecond it is due: a timer has fired then, and a lease has ended. */
export function decideClaim(
  record: Claimable,
  claim: { readonly by: string; readonly leaseMs: number; readonly nowMs: number; readonly fenceFloor: number },
): ClaimAnswer {
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
 * Whether a write under this claim comes from the holder of the record now. The name is compared as well: after a promotion that lost
 * commits, another holder may have been granted the same fence.
 */
export function isHolder(record: Claimable, claim: Grant): boolean {
  if (!record.exists) return false;
  if (record.holder !== claim.holder) return false;
  return record.fence === claim.fence;
}

/** The same where the holder is known by its fence alone, as the claimant of an action is. */
export function isHeldUnder(record: Claimable, fence: number): boolean {
  return record.holder !== null && isHolder(record, { fence, holder: record.holder });
}

/** A renewal never shortens: a clock that stepped back makes the lease longer. */
export function decideRenew(
  record: Claimable,
  renewal: Grant & { readonly leaseMs: number; readonly nowMs: number },
): { readonly renewed: true; readonly dueMs: number } | { readonly renewed: false } {
  if (!isHolder(record, renewal)) return { renewed: false };
  return { renewed: true, dueMs: Math.max(record.dueMs ?? 0, renewal.nowMs + renewal.leaseMs) };
}

export type RestAnswer = "rested" | "woken" | "fenced";

/** The holder gives the record back, unless somebody woke it since the holder last looked. */
export function decideRest(record: Claimable, rest: Grant & { readonly wakesSeen: number }): RestAnswer {
  if (!isHolder(record, rest)) return "fenced";
  if (record.wakes !== rest.wakesSeen) return "woken";
  return "rested";
}

/**
 * Somebody has news for the record. One that rests becomes due at once. One that is held is only marked: making it due
 * would hand a live lease away, and its holder sees the mark before it rests.
 */
export function decideWake(
  record: Claimable,
  nowMs: number,
): { readonly wakes: number; readonly dueMs: number | null } {
  const wakes = record.wakes + 1;
  if (record.holder !== null) return { wakes, dueMs: record.dueMs };
  return { wakes, dueMs: record.dueMs === null ? nowMs : Math.min(record.dueMs, nowMs) };
}
