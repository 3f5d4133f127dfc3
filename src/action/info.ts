/**
 * Actions as they are shown: never the payload, and none of the hashes.
 */

import { stateOf, triesLeftOf, usesLeftOf, usesOf } from "./decide.ts";
import type { ActionState, ActionValue, Use } from "./stored.ts";

/** An action as it is now. */
export interface ActionInfo {
  /** The user's own id; a generated one is known only to its creator. */
  readonly id: string | null;
  /** The hash of the id under which it is stored: can be passed to `get`, `history` and `cancel`, but cannot be used to consume it. */
  readonly ref: string;
  readonly state: ActionState;
  readonly owner: string | null;
  readonly reason: string | null;
  readonly tags: readonly string[];
  readonly createdAt: Date;
  readonly activeAt: Date | null;
  readonly expiresAt: Date | null;
  readonly uses: number;
  readonly usesLeft: number;
  readonly hasPin: boolean;
  /** How many wrong PINs are left before it locks; null if it has no PIN. */
  readonly pinTriesLeft: number | null;
  readonly lastUse: ActionMark | null;
  /** Who holds it now, and until when. */
  readonly claim: (ActionMark & { readonly until: Date; readonly fence: number }) | null;
  readonly canceled: ActionMark | null;
}

/** Who did something, when and why, as far as it is known. */
export interface ActionMark {
  readonly at: Date;
  readonly by: string | null;
  readonly reason: string | null;
}

/** One event of the audit trail. */
export interface ActionEntry {
  readonly version: number;
  /** created, tried (a PIN), consumed, claimed, abandoned, lapsed (a lease that ended without `complete` or `abandon`) or canceled. */
  readonly name: string;
  readonly at: Date;
  readonly data: unknown;
}

const mark = ({ atMs, by, reason }: Use): ActionMark => ({
  at: new Date(atMs),
  by: by ?? null,
  reason: reason ?? null,
});
const dateOf = (ms: number | undefined): Date | null => (ms === undefined ? null : new Date(ms));

export function showAction(
  ref: string,
  action: ActionValue,
  lease: { readonly holder: string | null; readonly dueMs: number | null; readonly fence: number },
  nowMs: number,
): ActionInfo {
  const { request, claim } = action;
  const isHeld = lease.holder !== null && lease.dueMs !== null && nowMs < lease.dueMs;
  return {
    id: action.id ?? null,
    ref,
    state: stateOf(action, nowMs),
    owner: request.owner ?? null,
    reason: request.reason ?? null,
    tags: request.tags ?? [],
    createdAt: new Date(action.createdAtMs),
    activeAt: dateOf(request.activeAtMs),
    expiresAt: dateOf(action.expiresAtMs),
    uses: usesOf(action),
    usesLeft: usesLeftOf(action),
    hasPin: request.pin !== undefined,
    pinTriesLeft: request.pin === undefined ? null : triesLeftOf(action),
    lastUse: action.last === undefined ? null : mark(action.last),
    claim: isHeld && claim !== undefined ? { ...mark(claim), until: new Date(lease.dueMs), fence: lease.fence } : null,
    canceled: action.canceled === undefined ? null : mark(action.canceled),
  };
}
