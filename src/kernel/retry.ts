/**
 * Retries of code that users write, as rules: whether what failed is tried again, and after how long. (`backoff.ts` is for the kernel itself.)
 */

import { checkCount, checkDuration, checkFunction, checkOptions, type Duration, optionNames } from "./check.ts";
import { InvalidArgumentError, NonRetryableError } from "./errors.ts";
import { callNow } from "./sync.ts";

export interface RetryOptions {
  /** How often it is tried in total; 1 for no retry. Default: 5. */
  readonly attempts?: number | undefined;
  /** The wait before the second attempt. Default: 1 s. */
  readonly delay?: Duration | undefined;
  /** What the wait is multiplied by each time. Default: 2. */
  readonly factor?: number | undefined;
  /** The longest wait. Default: 1 minute, or `delay` where that is longer. */
  readonly maxDelay?: Duration | undefined;
  /** How much of the wait is random, 0 to 1, so that steps which failed together are not tried again together. Default: 0.5. */
  readonly jitter?: number | undefined;
  /** Returns whether to try again after this error. Default: after every error except `NonRetryableError`. */
  readonly when?: ((error: unknown) => boolean) | undefined;
}

const RETRY_OPTIONS = optionNames<RetryOptions>({
  attempts: true,
  delay: true,
  factor: true,
  maxDelay: true,
  jitter: true,
  when: true,
});

/** A policy, checked and complete. */
export interface Retry {
  readonly attempts: number;
  readonly delayMs: number;
  readonly factor: number;
  readonly maxDelayMs: number;
  readonly jitter: number;
  readonly when: ((error: unknown) => boolean) | undefined;
}

const DEFAULTS: Retry = { attempts: 5, delayMs: 1000, factor: 2, maxDelayMs: 60_000, jitter: 0.5, when: undefined };

export function checkRetry(options: RetryOptions | undefined, base: Retry = DEFAULTS): Retry {
  if (options === undefined) return base;
  checkOptions(options, RETRY_OPTIONS, "the retry");
  const { attempts, delay, factor = base.factor, maxDelay, jitter = base.jitter, when = base.when } = options;
  if (!(Number.isFinite(factor) && factor >= 1))
    throw new InvalidArgumentError("the retry's factor", "must be 1 or more");
  if (!(typeof jitter === "number" && jitter >= 0 && jitter <= 1))
    throw new InvalidArgumentError("the retry's jitter", "must be from 0 to 1");
  if (when !== undefined) checkFunction(when, "the retry's when");
  const delayMs = delay === undefined ? base.delayMs : checkDuration(delay, "the retry's delay");
  // A delay that is asked for is never shortened by a longest wait that is not.
  const leastMaxMs = delay === undefined ? base.maxDelayMs : Math.max(base.maxDelayMs, delayMs);
  return {
    attempts: attempts === undefined ? base.attempts : checkCount(attempts, "the retry's attempts", 1_000_000),
    delayMs,
    factor,
    maxDelayMs: maxDelay === undefined ? leastMaxMs : checkDuration(maxDelay, "the retry's longest delay"),
    jitter,
    when,
  };
}

/**
 * How long to wait before the next attempt, or null if there is none. `attempt` counts those made, `chance` is from 0 to 1. Throws what `when` throws, and
 * `callback_async` if it returns a promise: then there is no further attempt, and `when` is to blame.
 */
export function decideRetry(retry: Retry, attempt: number, error: unknown, chance: number): number | null {
  if (attempt >= retry.attempts) return null;
  if (error instanceof NonRetryableError) return null;
  if (retry.when !== undefined && !callNow("retry.when", retry.when, error)) return null;
  const full = Math.min(retry.maxDelayMs, retry.delayMs * retry.factor ** (attempt - 1));
  return Math.round(full * (1 - retry.jitter * chance));
}
