/**
 * Locks, as rules: who may have one now, and who has lost it.
 *
 * Promises: at most one holder of a mutex, at most as many as there are permits of a semaphore, a writer alone (G8); nobody is thrown
 * out because the number of permits shrank.
 * Pure: every rule is a row of `decide.test.ts`.
 */

import type { Holder, LockValue, Mode, Ticket } from "./records.ts";

/** Whether one more can hold it, beside those who do. */
export function fits({ permits, holders }: Pick<LockValue, "permits" | "holders">, mode: Mode): boolean {
  if (mode === "exclusive") return holders.length === 0;
  if (holders.some((holder) => holder.mode === "exclusive")) return false;
  return permits === null || holders.length < permits;
}

/** Whether nobody more can hold it, whoever that is. */
export function isFull({ permits, holders }: Pick<LockValue, "permits" | "holders">): boolean {
  return (permits !== null && holders.length >= permits) || holders.some((holder) => holder.mode === "exclusive");
}

/** A lease holds before its end, and not from that millisecond on. A run has none. */
export function isAlive({ untilMs }: Pick<Holder | Ticket, "untilMs">, nowMs: number): boolean {
  return untilMs === null || nowMs < untilMs;
}

/** Those who hold it by the store's clock. */
export function living(holders: readonly Holder[], nowMs: number): readonly Holder[] {
  return holders.every((holder) => isAlive(holder, nowMs))
    ? holders
    : holders.filter((holder) => isAlive(holder, nowMs));
}

/** A renewal never shortens: a clock that stepped back makes the lease longer. */
export function renewed(untilMs: number, nowMs: number, leaseMs: number): number {
  return Math.max(untilMs, nowMs + leaseMs);
}

/** When the first of those who hold it may be gone; null if only runs hold it. */
export function firstEnd(holders: readonly Holder[]): number | null {
  let first: number | null = null;
  for (const { untilMs } of holders) if (untilMs !== null && (first === null || untilMs < first)) first = untilMs;
  return first;
}
