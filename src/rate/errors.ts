/**
 * Errors of rate limits.
 */

import { PawlError } from "../kernel/errors.ts";

/** There are not enough tokens, or they come later than the timeout allows. Nothing was taken; try again after `data.retryAfterMs`. */
export class RateLimitedError extends PawlError<"rate_limited", { limit: string; retryAfterMs: number }> {
  constructor(limit: string, retryAfterMs: number) {
    const message = `rate limit "${limit}" has too few tokens now: try again in ${retryAfterMs} ms`;
    super("rate_limited", message, { limit, retryAfterMs });
  }
}
