/**
 * Deadlines for functions of the user's that a call waits for: what they connect to may never answer, and a call waits no longer than its patience (G34).
 */

import { CallbackTimeoutError } from "./errors.ts";
import type { Clock } from "./ports.ts";

/** Runs a function of the user's. Rejects with `callback_timeout` if it has not settled after `ms`; what it does later is ignored. */
export function inTime<T>(
  clock: Pick<Clock, "after">,
  ms: number,
  what: string,
  run: () => T | PromiseLike<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(ms, () => reject(new CallbackTimeoutError(what, ms)));
    // In an async function, so that what it throws is a rejection too.
    (async () => run())().then(resolve, reject).finally(cancel);
  });
}
