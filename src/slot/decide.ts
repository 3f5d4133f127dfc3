/**
 * Slots, as rules: when a write to a shared value is accepted.
 *
 * A slot that does not exist is at version 0 for its users, also after it was deleted; the version that the first write gives
 * it is above all that it ever had, so an old version never fits again by accident.
 */

export interface SlotState {
  readonly exists: boolean;
  readonly version: number;
}

/** The version that users see and expect. */
export function visibleVersion(slot: SlotState): number {
  return slot.exists ? slot.version : 0;
}

export type WriteOutcome = { readonly ok: true } | { readonly ok: false; readonly current: number };

/** Without an expectation a write is always accepted. */
export function decideWrite(slot: SlotState, expectedVersion: number | undefined): WriteOutcome {
  if (expectedVersion === undefined) return { ok: true };
  const current = visibleVersion(slot);
  if (current !== expectedVersion) return { ok: false, current };
  return { ok: true };
}
