/**
 * Closing a handle: what is under way may finish, but not for as long as it likes. The process that closes it may be killed soon.
 */

import { type Clock, pause } from "./ports.ts";

/** What `close` gives what is under way: steps, calls of `pawl.idempotent`, transactions with the user's SQL, sweeps. */
export const CLOSING_MS = 5000;

/** Resolves when the promise has settled, or after `ms`. */
export async function settledWithin(clock: Clock, ms: number, promise: Promise<unknown>): Promise<void> {
  const ended = new AbortController();
  const end = (): void => ended.abort(SETTLED);
  await Promise.race([promise.then(end, end), pause(clock, ms, ended.signal)]);
}

/** A reason of its own would be an error with a stack, made each time. */
const SETTLED = "settled";
