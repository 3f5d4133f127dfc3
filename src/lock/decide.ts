/**
 * Locks, as rules: who may acquire one now, and who has lost it.
 *
 * Guarantees: a mutex has at most one holder, a semaphore at most `permits`, a writer is alone (G8); no holder loses its permit because the
 * number of permits was reduced.
 * Pure: every rule is a row of `decide.test.ts`.
 */

import type { Holder, LockValue, Mode, Ticket } from "./stored.ts";

/** Whether one more can hold it in this mode, beside the current holders. */
export function fits({ permits, holders }: Pick<LockValue, "permits" | "holders">, mode: Mode): boolean {
  if (mode === "exclusive") return holders.length === 0;
  if (holders.some((holder) => holder.mode === "exclusive")) return false;
  return permits === null || holders.length < permits;
}

/** Whether no other can hold it, in any mode. */
export function isFull({ permits, holders }: Pick<LockValue, "permits" | "holders">): boolean {
  return (permits !== null && holders.length >= permits) || holders.some((holder) => holder.mode === "exclusive");
}

/** A lease is valid before the millisecond of its end. A run has none, and is always alive here. */
export function isAlive({ untilMs }: Pick<Holder | Ticket, "untilMs">, nowMs: number): boolean {
  return untilMs === null || nowMs < untilMs;
}

/** The holders whose leases have not ended, by the store's clock. */
export function living(holders: readonly Holder[], nowMs: number): readonly Holder[] {
  return holders.every((holder) => isAlive(holder, nowMs))
    ? holders
    : holders.filter((holder) => isAlive(holder, nowMs));
}

/** A renewal never shortens a lease: a clock that stepped back makes it longer. */
export function renewed(untilMs: number, nowMs: number, leaseMs: number): number {
  return Math.max(untilMs, nowMs + leaseMs);
}

/** When the first lease of its holders ends; null if only runs hold it. */
export function firstEnd(holders: readonly Holder[]): number | null {
  const ends = holders.flatMap(({ untilMs }) => (untilMs === null ? [] : [untilMs]));
  return ends.length === 0 ? null : Math.min(...ends);
}
