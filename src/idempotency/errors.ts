/**
 * Errors of idempotency keys.
 */

import { PawlError } from "../kernel/errors.ts";

/** Another call with this key is in progress. Call again after `data.retryAfterMs` to get its answer. */
export class IdempotencyInProgressError extends PawlError<
  "idempotency_in_progress",
  { key: string; retryAfterMs: number }
> {
  constructor(key: string, retryAfterMs: number) {
    super(
      "idempotency_in_progress",
      `another call with the idempotency key "${key}" is under way: ask again in ${retryAfterMs} ms`,
      { key, retryAfterMs },
    );
  }
}

/** The key was used for another request. Nothing was done; use a new key for a new request. */
export class IdempotencyMismatchError extends PawlError<"idempotency_mismatch", { key: string }> {
  constructor(key: string) {
    super(
      "idempotency_mismatch",
      `the idempotency key "${key}" was used for another request: a new request needs a new key`,
      { key },
    );
  }
}

/** The attempt has its answer, or is over: nothing more can be committed with it. */
export class IdempotencyAnsweredError extends PawlError<"idempotency_answered", { key: string }> {
  constructor(key: string) {
    super(
      "idempotency_answered",
      `the attempt under the idempotency key "${key}" has its answer or is over: commit can store one answer only`,
      { key },
    );
  }
}

/** Whether an error is one that was stored, and is thrown again instead of doing the work again. */
export function isReplayed(error: unknown): error is Error & { readonly replayed: true } {
  return error instanceof Error && "replayed" in error && error.replayed === true;
}
