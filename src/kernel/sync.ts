/**
 * Functions of users that must be synchronous: reducers, keys, policies, codecs.
 *
 * One that is async by mistake returns a promise, which no one awaits: if it rejects, Node ends the process, and whatever is truthy passes for a yes. So
 * every such function is called by `callNow`, or its result is looked at by `isAsync`: the promise is refused, and its rejection is taken care of.
 */

import { isPromise } from "node:util/types";
import { CallbackAsyncError, thrownBy } from "./errors.ts";

/**
 * Whether a function that must be synchronous returned a promise, or anything else that can be awaited. The rejection of a promise is handled here. `then` is never
 * called: a query builder runs its query then.
 */
export function isAwaitable(value: unknown): boolean {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  if (typeof (value as { readonly then?: unknown }).then !== "function") return false;
  if (isPromise(value)) ignoreRejection(value);
  return true;
}

/** The same, and also for a generator: its function has not run yet. */
export function isAsync(value: unknown): boolean {
  if (typeof value === "object" && value !== null && Symbol.toStringTag in value)
    if (/^(Async)?Generator$/.test(String(value[Symbol.toStringTag]))) return true;
  return isAwaitable(value);
}

/** Calls a function of the user's that must be synchronous. Throws what it throws, and `callback_async` if it returned a promise or a generator. */
export function callNow<Args extends readonly unknown[], T>(
  what: string,
  call: (...args: Args) => T,
  ...args: Args
): T {
  const value = call(...args);
  if (isAsync(value)) throw new CallbackAsyncError(what);
  return value;
}

/** The same; what it throws names it (`thrownBy`). */
export function callUser<Args extends readonly unknown[], T>(
  what: string,
  call: (...args: Args) => T,
  ...args: Args
): T {
  const named = (...given: Args): T => {
    try {
      return call(...given);
    } catch (error) {
      throw thrownBy(what, error);
    }
  };
  return callNow(what, named, ...args);
}

/** Subclasses of Promise may have a `then` of their own that begins the work, so it is not theirs that is called. */
function ignoreRejection(promise: Promise<unknown>): void {
  try {
    Promise.prototype.then.call(promise, undefined, () => {});
  } catch {
    // Its constructor cannot be used: it is no promise of an async function.
  }
}
