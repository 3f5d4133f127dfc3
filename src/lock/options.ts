/**
 * Options, names and interventions of locks in plain code, and their checks.
 */

import { checkCount, checkId, checkOptions, type Duration, type OptionNames, optionNames } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { WaitOptions } from "./await-turn.ts";
import type { LockKind, LockRef, Mode } from "./stored.ts";

export interface LockOptions {
  /** How long it stays held after this process died or lost the store. It is renewed automatically. Default: 30 s. */
  readonly lease?: Duration | undefined;
}

export interface SemaphoreOptions extends LockOptions {
  /**
   * How many may hold it at the same time. The latest declaration counts, in all processes. Default: as many as were declared; if none
   * were, or it was unused for 30 days, acquiring it throws `permits_undeclared`.
   */
  readonly permits?: number | undefined;
}

export interface AcquireOptions extends WaitOptions {
  /** Who asks, for `inspect`. */
  readonly by?: string | undefined;
}

export interface TryAcquireOptions {
  /** Who asks, for `inspect`. */
  readonly by?: string | undefined;
}

/** Who intervenes, and why: it is kept in the audit trail. */
export interface Intervention {
  readonly by: string;
  readonly reason: string;
}

/** The part of a request that does not change. @internal */
export interface LockSpec {
  readonly refs: readonly LockRef[];
  readonly mode: Mode;
  readonly permits: number | null;
}

export const LOCK_OPTIONS = optionNames<LockOptions>({ lease: true });
export const SEMAPHORE_OPTIONS = optionNames<SemaphoreOptions>({ lease: true, permits: true });
export const ACQUIRE_OPTIONS = optionNames<AcquireOptions>({ timeout: true, abortSignal: true, by: true });
export const TRY_OPTIONS = optionNames<TryAcquireOptions>({ by: true });
export const INSPECT_OPTIONS = optionNames<{ limit?: unknown }>({ limit: true });
export const HISTORY_OPTIONS = optionNames<{ after?: unknown; limit?: unknown }>({ after: true, limit: true });
export const REMOVAL = optionNames<Intervention>({ by: true, reason: true });
export const FORCED_RELEASE = optionNames<Intervention & { ticket?: unknown }>({
  by: true,
  reason: true,
  ticket: true,
});

/** The lease of a lock in plain code. */
export const LEASE = 30_000;

/** Null means as many as were declared. */
export function checkPermits(permits: unknown): number | null {
  return permits === undefined ? null : checkCount(permits, "the permits");
}

/** Each lock once, sorted, so that the order of the names does not matter. */
export function lockRefs(kind: LockKind, names: string | readonly string[]): readonly LockRef[] {
  // Only mutexes can be acquired together.
  const list: readonly unknown[] = kind === "mutex" && Array.isArray(names) ? [...new Set(names)].sort() : [names];
  if (list.length === 0 || list.length > MOST_TOGETHER)
    throw new InvalidArgumentError("the locks", `must be 1 to ${MOST_TOGETHER} names`);
  return list.map((name) => ({ kind, name: checkId(name, "the lock's name") }));
}

const MOST_TOGETHER = 50;

export function checkIntervention(given: Intervention, known: OptionNames): Intervention {
  checkOptions(given ?? undefined, known, "the intervention");
  return { by: checkId(given?.by, "who intervenes (by)"), reason: checkId(given?.reason, "the reason") };
}
