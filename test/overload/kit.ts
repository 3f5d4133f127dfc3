/**
 * What the tests of overload share: handles on PostgreSQL with a pool of a chosen size, deadlines that are generous and stated, and a
 * count of how calls ended.
 *
 * No test here measures speed. Where a bound is the point, it is several times what a busy machine with two cores needs.
 */

import type pg from "pg";
import { nodePorts } from "../../src/node/ports.ts";
import { type Pawl, pawlOn } from "../../src/pawl.ts";
import { connect, poolOn, type StoreOptions } from "../postgres/kit.ts";

export interface HandleOptions extends Omit<StoreOptions, "pool"> {
  /** How long the work of `transact.sql` may take. */
  readonly sharedMs?: number;
}

/** A handle together with its pool, which is its own. */
export interface Handle extends AsyncDisposable {
  readonly pawl: Pawl;
  readonly pool: pg.Pool;
  close(): Promise<void>;
}

const DISPOSED_MS = 10_000;

/** Opens a handle with a pool of `max` connections. Default: 10, as `open` makes it. */
export async function handleOn(url: string, options: HandleOptions = {}): Promise<Handle> {
  const { max = 10, patienceMs = 30_000, namespace = "default", ...rest } = options;
  const pool = poolOn(url, max);
  const store = await connect(url, { ...rest, pool, patienceMs, namespace });
  const pawl = pawlOn(store, nodePorts, { namespace, patienceMs });
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= pawl.close().then(() => pool.end());
    return closing;
  };
  // A test that has failed may have left what never ends; it is not waited for.
  const dispose = () => Promise.race([close(), sleep(DISPOSED_MS)]);
  return { pawl, pool, close, [Symbol.asyncDispose]: dispose };
}

/** Fails if the promise is not settled after `ms`, and says what was waited for. */
export async function settledWithin<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(`not settled after ${ms} ms: ${what}`)), ms);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** How a call ended: "ok", the code of its error, or the error's text where it has no code. */
export async function endOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return "ok";
  } catch (error) {
    if (error instanceof Error && "code" in error && typeof error.code === "string") return error.code;
    return String(error);
  }
}

/** How many calls ended in each way. */
export async function endsOf(calls: readonly Promise<unknown>[]): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const end of await Promise.all(calls.map(endOf))) counts[end] = (counts[end] ?? 0) + 1;
  return counts;
}

/** Polls until the condition holds; fails after `ms`. */
export async function until(ms: number, what: string, holds: () => Promise<boolean> | boolean): Promise<void> {
  const deadlineMs = performance.now() + ms;
  while (!(await holds())) {
    if (performance.now() > deadlineMs) throw new Error(`not so after ${ms} ms: ${what}`);
    await sleep(10);
  }
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export const never = (): Promise<never> => new Promise(() => {});

export const range = (length: number): number[] => Array.from({ length }, (_, i) => i);
