/**
 * Whether a call is sent again, and when. Pure: the time and chance are arguments.
 *
 * A call that changes something has an idempotency key, so that sending it again has one effect. What has run into an unknown outcome is different: the server keeps
 * no reply of a failure, so under the same key it runs again. Only calls that are harmless to run again (`isRepeatable`: they name what they change by
 * id, or only read) are sent again then.
 */

/** What came of an attempt. */
export interface Attempted {
  /** 0 if there was no response. */
  readonly status: number;
  readonly code: string;
  readonly retryAfterMs?: number | undefined;
}

export interface RetryRules {
  /** Running the call again does no harm, even without its key. */
  readonly isRepeatable: boolean;
  /** The refusal is what the call is about, such as `rate_limited` of a rate limit. */
  readonly isResult: boolean;
}

export interface RetryMoment {
  /** 1 after the first attempt. */
  readonly attempt: number;
  /** Since the call began. */
  readonly elapsedMs: number;
  readonly patienceMs: number;
  /** From 0 to 1, without 1. */
  readonly random: number;
}

const TRANSIENT: ReadonlySet<number> = new Set([0, 408, 425, 429, 502, 503, 504]);
const FIRST_MS = 100;
const LONGEST_MS = 5000;

/** The time until the next attempt; null if there is none. */
export function decideRetry(attempted: Attempted, rules: RetryRules, moment: RetryMoment): number | null {
  const { status, code, retryAfterMs } = attempted;
  if (rules.isResult) return null;
  // Another attempt of this call, whose reply was lost, is still at work.
  const isInProgress = status === 409 && code === "idempotency_in_progress";
  if (!TRANSIENT.has(status) && !isInProgress) return null;
  if (code === "outcome_unknown" && !rules.isRepeatable) return null;
  const { attempt, elapsedMs, patienceMs, random } = moment;
  const backoffMs = Math.min(LONGEST_MS, FIRST_MS * 2 ** (attempt - 1)) * (0.5 + random / 2);
  const waitMs = Math.round(Math.max(backoffMs, retryAfterMs ?? 0));
  const leftMs = patienceMs - elapsedMs;
  // The last attempt comes when the patience ends, unless the server wants it later.
  if (leftMs <= 0 || (retryAfterMs ?? 0) > leftMs) return null;
  return Math.min(waitMs, leftMs);
}

/** `Retry-After`, in seconds or as a date; undefined if it is neither. */
export function parseRetryAfter(header: string | null, nowMs: number): number | undefined {
  if (header === null) return undefined;
  if (/^\d{1,9}$/.test(header.trim())) return Number(header) * 1000;
  const ms = /^[A-Za-z]{3}, /.test(header.trim()) ? Date.parse(header) : Number.NaN;
  return Number.isNaN(ms) ? undefined : Math.max(0, ms - nowMs);
}
