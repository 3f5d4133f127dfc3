/**
 * The rules of actions: what state one is in, and when it may be taken.
 *
 * An action is settled by its uses or by being canceled; it is locked when all tries at its PIN are spent; otherwise the clock determines
 * whether it is pending, active or expired. A try is spent before the PIN is checked, so an action may be locked while its last try is
 * being checked; if the PIN was right, the try is refunded.
 *
 * Guarantees: never more uses than allowed (G4); without the right PIN nothing is taken (G5).
 * Pure: every rule is a row of `decide.test.ts`.
 */

import type { ActionState, ActionValue, StoredStatus, Use } from "./stored.ts";

/** Why a call was refused: the code says which reason, the rest helps to act on it. */
export type ActionRefusal =
  | { readonly code: "action_not_found" }
  | { readonly code: "not_active"; readonly activeAt: Date }
  | { readonly code: "already_used"; readonly usedAt: Date; readonly by: string | null }
  | { readonly code: "expired"; readonly expiredAt: Date }
  | {
      readonly code: "canceled";
      readonly canceledAt: Date;
      readonly by: string | null;
      readonly reason: string | null;
    }
  | { readonly code: "locked" }
  | { readonly code: "claimed"; readonly by: string | null; readonly until: Date }
  | { readonly code: "invalid_pin"; readonly triesLeft: number }
  | { readonly code: "fenced"; readonly fence: number; readonly current: number }
  | { readonly code: "busy" };

export const usesOf = (action: ActionValue): number => action.request.uses ?? 1;
export const usesLeftOf = (action: ActionValue): number => usesOf(action) - action.used;

/** How many wrong PINs are left before it locks. */
export function triesLeftOf(action: ActionValue): number {
  const { pin } = action.request;
  return pin === undefined ? 0 : Math.max(0, pin.maxTries - (action.tries ?? 0));
}

export function statusOf(action: ActionValue): StoredStatus {
  if (action.used >= usesOf(action)) return "consumed";
  if (action.canceled !== undefined) return "canceled";
  if (action.request.pin !== undefined && triesLeftOf(action) === 0) return "locked";
  return "open";
}

/** Active from the millisecond `activeAtMs`, expired from the millisecond `expiresAtMs`. */
export function stateOf(action: ActionValue, nowMs: number): ActionState {
  const status = statusOf(action);
  if (status !== "open") return status;
  const { activeAtMs } = action.request;
  if (activeAtMs !== undefined && nowMs < activeAtMs) return "pending";
  if (action.expiresAtMs !== undefined && action.expiresAtMs <= nowMs) return "expired";
  return "active";
}

/** When it expires, if it does: a duration counts from when it becomes active. */
export function expiryOf(
  { activeAtMs, expiresAtMs, expiresInMs }: ActionValue["request"],
  nowMs: number,
): number | undefined {
  if (expiresInMs === undefined) return expiresAtMs;
  return Math.max(nowMs, activeAtMs ?? 0) + expiresInMs;
}

export function alreadyUsed({ atMs, by }: Use): ActionRefusal {
  return { code: "already_used", usedAt: new Date(atMs), by: by ?? null };
}

export interface Taking {
  readonly nowMs: number;
  /** When the lease of the claim ends; null if it is not claimed. */
  readonly leaseEndsAtMs: number | null;
  /** Whether it has no PIN, or the right one was given. */
  readonly isProven: boolean;
}

/** Why an action cannot be consumed or claimed now by a caller that has not used it yet. */
export function refuseTaking(action: ActionValue, taking: Taking): ActionRefusal | undefined {
  const refusal = refuseState(action, taking.nowMs);
  if (refusal !== undefined) return refusal;
  const claimed = refuseClaimed(action, taking);
  if (claimed !== undefined) return claimed;
  if (!taking.isProven) return { code: "invalid_pin", triesLeft: triesLeftOf(action) };
  return undefined;
}

function refuseState(action: ActionValue, nowMs: number): ActionRefusal | undefined {
  switch (stateOf(action, nowMs)) {
    case "active":
      return undefined;
    case "pending":
      return { code: "not_active", activeAt: new Date(action.request.activeAtMs ?? 0) };
    case "expired":
      return { code: "expired", expiredAt: new Date(action.expiresAtMs ?? 0) };
    case "locked":
      return { code: "locked" };
    default:
      return refuseSettled(action);
  }
}

/** The refusal for an action that is permanently settled. */
export function refuseSettled(action: ActionValue): ActionRefusal | undefined {
  const status = statusOf(action);
  if (status === "consumed") return alreadyUsed(action.last ?? { atMs: 0 });
  const { canceled } = action;
  if (status !== "canceled" || canceled === undefined) return undefined;
  const { atMs, by, reason } = canceled;
  return { code: "canceled", canceledAt: new Date(atMs), by: by ?? null, reason: reason ?? null };
}

/** A lease excludes others up to its last millisecond. */
function refuseClaimed(
  action: ActionValue,
  { nowMs, leaseEndsAtMs }: Omit<Taking, "isProven">,
): ActionRefusal | undefined {
  if (leaseEndsAtMs === null || leaseEndsAtMs <= nowMs) return undefined;
  return { code: "claimed", by: action.claim?.by ?? null, until: new Date(leaseEndsAtMs) };
}

/** Why an action cannot be canceled: it is over, or claimed. Canceling a canceled action is allowed, without effect. */
export function refuseCanceling(action: ActionValue, taking: Omit<Taking, "isProven">): ActionRefusal | undefined {
  const state = stateOf(action, taking.nowMs);
  if (state === "consumed" || state === "expired") return refuseState(action, taking.nowMs);
  return refuseClaimed(action, taking);
}

/** Counts a use, and ends the claim. */
export function used(action: ActionValue, use: Use): ActionValue {
  const { claim: _claim, ...rest } = action;
  return { ...rest, used: action.used + 1, last: use };
}

/** Counts a try, before the PIN is checked. */
export function tried(action: ActionValue): ActionValue {
  return { ...action, tries: (action.tries ?? 0) + 1 };
}

/** Takes back a counted try, because the PIN was right. */
export function refundTry(action: ActionValue): ActionValue {
  return { ...action, tries: Math.max(0, (action.tries ?? 0) - 1) };
}

/** Until when the record must be kept. Null means forever: an action that never expires could be used again if it was created anew. */
export function keptUntil(action: ActionValue, retentionMs: number): number | null {
  if (action.expiresAtMs === undefined) return null;
  return Math.max(action.expiresAtMs, action.last?.atMs ?? 0, action.canceled?.atMs ?? 0) + retentionMs;
}
