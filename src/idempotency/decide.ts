/**
 * Idempotency keys and marks, as rules: which call may begin under a key, what other calls get, and when a key is free again.
 *
 * A key is in progress under a lease, or it has an answer. Its first request is remembered in both, so that another request is refused in
 * both (G3). An attempt whose lease has ended is taken over; its fence, not the lease, refuses what it still tries to write (G6). A key is
 * free from the millisecond it expires, but not while an attempt holds it.
 * Pure: every rule is a row of `decide.test.ts`.
 */

import type { KeyStatus } from "./stored.ts";

/** A key as it is stored; null where there is none. */
export interface KeyState {
  readonly status: KeyStatus;
  readonly holder: string | null;
  /** The end of the holder's lease. */
  readonly dueMs: number | null;
  readonly fingerprint: string | null;
  readonly startedAtMs: number;
  readonly expiresAtMs: number;
}

export type BeginOutcome =
  /** The key is free: the call is its first one. */
  | { readonly is: "begin" }
  /** An attempt was interrupted: this one does it again. */
  | { readonly is: "take_over" }
  /** There is an answer. */
  | { readonly is: "replay" }
  | { readonly is: "in_progress"; readonly retryAfterMs: number }
  | { readonly is: "mismatch" };

/** A call during an attempt should retry after the time that the attempt has taken so far, and at least after this time. */
const SHORTEST_RETRY_MS = 100;

export function decideBegin(
  key: KeyState | null,
  call: { readonly fingerprint: string | null; readonly nowMs: number },
): BeginOutcome {
  if (key === null) return { is: "begin" };
  const leftMs = leaseLeftMs(key, call.nowMs);
  if (leftMs === 0 && key.expiresAtMs <= call.nowMs) return { is: "begin" };
  if (key.fingerprint !== call.fingerprint) return { is: "mismatch" };
  if (key.status !== "in_progress") return { is: "replay" };
  if (leftMs === 0) return { is: "take_over" };
  const sofarMs = Math.max(SHORTEST_RETRY_MS, call.nowMs - key.startedAtMs);
  return { is: "in_progress", retryAfterMs: Math.min(leftMs, sofarMs) };
}

/** A lease ends at its millisecond, not after. */
function leaseLeftMs(key: Pick<KeyState, "holder" | "dueMs">, nowMs: number): number {
  return key.holder === null ? 0 : Math.max(0, (key.dueMs ?? 0) - nowMs);
}

export type SweepOutcome =
  | { readonly is: "keep" }
  /** Its lease has ended; it waits for a call that takes it over, or for its expiry. */
  | { readonly is: "rest"; readonly dueMs: number }
  | { readonly is: "remove" };

/** What to do with a key that is due. */
export function decideSweep(key: KeyState, nowMs: number): SweepOutcome {
  if (leaseLeftMs(key, nowMs) > 0) return { is: "keep" };
  if (key.expiresAtMs <= nowMs) return { is: "remove" };
  if (key.holder !== null) return { is: "rest", dueMs: key.expiresAtMs };
  return { is: "keep" };
}

/** Whether a message was handled before. A mark is forgotten from the millisecond it expires. */
export function isMarked(mark: { readonly exists: boolean; readonly dueMs: number | null }, nowMs: number): boolean {
  return mark.exists && nowMs < (mark.dueMs ?? Number.POSITIVE_INFINITY);
}
