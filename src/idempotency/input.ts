/**
 * Checks of what callers of idempotency and dedupe hand in, beyond those that all capabilities share.
 */

import { checkDuration } from "../kernel/check.ts";
import { InvalidDurationError, InvalidIdError } from "../kernel/errors.ts";

const MAX_SCOPE_CHARS = 16_384;

/** A scope is stored as a hash, so it may be longer than an id: the token that a caller came with is one. */
export function checkScope(scope: unknown): string {
  if (typeof scope !== "string") throw new InvalidIdError("the scope", `must be a string, not ${typeof scope}`);
  if (scope === "") throw new InvalidIdError("the scope", "must not be empty");
  if (scope.length > MAX_SCOPE_CHARS)
    throw new InvalidIdError("the scope", `must not be longer than ${MAX_SCOPE_CHARS} characters`);
  // As bytes they would all be the same.
  if (!scope.isWellFormed()) throw new InvalidIdError("the scope", "must not have lone surrogates");
  return scope;
}

/** What is remembered for no time at all would be done twice. */
export function checkTtl(ttl: unknown): number {
  const ms = checkDuration(ttl, "the ttl");
  if (ms < 1) throw new InvalidDurationError("the ttl", "must be at least 1 ms");
  return ms;
}
