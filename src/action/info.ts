/**
 * Actions as they are shown: never the payload, and none of the hashes.
 */

import { stateOf, triesLeftOf, usesLeftOf, usesOf } from "./decide.ts";
import type { ActionState, ActionValue, Use } from "./words.ts";

/** An action as it is now. */
export interface ActionInfo {
  /** The user's own id; a generated one is known only to whoever made the action. */
  readonly id: string | null;
  /** What stands for the id in the store: good for `get`, `history` and `cancel`, and not for using it. */
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
  /** Wrong PINs that it still stands; null if it has none. */
  readonly pinTriesLeft: number | null;
  readonly lastUse: ActionMark | null;
  /** Who holds it now, and until when. */
  readonly claim: (ActionMark & { readonly until: Date; readonly fence: number }) | null;
  readonly canceled: ActionMark | null;
}

/** Who did something, when and why, as far as it was said. */
export interface ActionMark {
  readonly at: Date;
  readonly by: string | null;
  readonly reason: string | null;
}

/** What the audit trail says of one event. */
export interface ActionEntry {
  readonly version: number;
  /** created, tried (a PIN), consumed, claimed, abandoned, lapsed (a lease without an answer) or canceled. */
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
