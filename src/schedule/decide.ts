/**
 * Schedules, as rules: which ticks are due, which of them are made up for, what an overlap does, and whose definition counts.
 *
 * Pure: every rule is a row of `decide.test.ts`.
 */

import { hash } from "../kernel/fingerprint.ts";
import type { Plan, ScheduleValue, StoredState } from "./stored.ts";
import type { NextTime } from "./times.ts";

/** A tick that is decided later than this after it was due was missed, because no worker was there. */
export const LATE_MS = 30_000;

/** One commit decides at most this many ticks, besides those that are made up for. */
export const MOST_DECIDED = 500;

/** How much later than its time a tick is due: the same in each process, and different for each tick. */
export function jitterOf(name: string, jitterMs: number | undefined, tickMs: number): number {
  if (jitterMs === undefined || jitterMs === 0) return 0;
  const part = Number.parseInt(hash(name, String(tickMs)).slice(0, 12), 16) / 2 ** 48;
  return Math.floor(part * (jitterMs + 1));
}

/** The first tick after a moment; undefined if there is none. */
export function nextTick(plan: Plan, afterMs: number, next: NextTime): number | undefined {
  const { timing, startsMs, endsMs } = plan;
  const tickMs = next(timing, startsMs === undefined ? afterMs : Math.max(afterMs, startsMs - 1));
  return tickMs === undefined || (endsMs !== undefined && tickMs > endsMs) ? undefined : tickMs;
}

/** Ticks of a plan, up to a moment. */
export interface TickSource {
  readonly plan: Plan;
  readonly next: NextTime;
  /** When a tick is due. */
  readonly dueMs: (tickMs: number) => number;
}

function collect({ plan, next, dueMs }: TickSource, afterMs: number, nowMs: number, limit: number): number[] {
  const ticks: number[] = [];
  for (let fromMs = afterMs; ticks.length < limit; ) {
    const tickMs = nextTick(plan, fromMs, next);
    if (tickMs === undefined || dueMs(tickMs) > nowMs) break;
    ticks.push(tickMs);
    fromMs = tickMs;
  }
  return ticks;
}

/** The first ticks after the cursor up to a moment. */
export function firstTicks({ plan, next }: TickSource, cursorMs: number, upToMs: number, limit: number): number[] {
  return collect({ plan, next, dueMs: (tickMs) => tickMs }, cursorMs, upToMs, limit);
}

export interface DueTicks {
  /** Missed, and too many to count: all after the cursor, up to this moment. */
  readonly jumpedMs?: number;
  /** Missed, in order. */
  readonly missed: readonly number[];
  /** To be started, in order. */
  readonly kept: readonly number[];
}

/**
 * The ticks after the cursor that are due. Those that are late were missed, and the last of them are made up for: as many as `catchUp` says, those that
 * are on time included. Where there are very many, it returns the first of them, and is asked again.
 */
export function decideDue(source: TickSource, cursorMs: number, nowMs: number): DueTicks {
  const { catchUp } = source.plan;
  const limit = MOST_DECIDED + catchUp;
  let fromMs = cursorMs;
  let ticks = collect(source, fromMs, nowMs, limit + 1);
  while (ticks.length > limit) {
    // Ticks of years are not counted: it looks whether there are as many in the second half of the time.
    const middleMs = fromMs + Math.floor((nowMs - fromMs) / 2);
    const later = collect(source, middleMs, nowMs, limit + 1);
    if (later.length <= limit) break;
    fromMs = middleMs;
    ticks = later;
  }
  const jumped = fromMs === cursorMs ? {} : { jumpedMs: fromMs };
  if (ticks.length > limit) return { ...jumped, missed: ticks.slice(0, MOST_DECIDED), kept: [] };
  // Ticks are decided in order, so one that is delayed for long delays those after it: they are not late for that.
  let dueMs = source.dueMs(fromMs);
  const onTime = ticks.filter((tickMs) => {
    dueMs = Math.max(dueMs, source.dueMs(tickMs));
    return nowMs - dueMs <= LATE_MS;
  }).length;
  const split = Math.max(0, ticks.length - Math.max(catchUp, onTime));
  return { ...jumped, missed: ticks.slice(0, split), kept: ticks.slice(split) };
}

/**
 * Of ticks that are due together, where runs of a schedule do not overlap: only the last one counts. Otherwise the oldest would be started, and be in the way
 * of the newest.
 */
export function decideTogether(
  overlap: Plan["overlap"],
  due: readonly number[],
): { readonly passedOver: readonly number[]; readonly kept: readonly number[] } {
  const isOne = overlap === "skip" || overlap === "cancel-running";
  return isOne ? { passedOver: due.slice(0, -1), kept: due.slice(-1) } : { passedOver: [], kept: due };
}

export type OverlapDecision = "start" | "cancel" | "queue" | "skip";

/** What a tick does where runs of earlier ticks have not ended. */
export function decideOverlap(
  { overlap, mostQueued = 0 }: Pick<Plan, "overlap" | "mostQueued">,
  activeCount: number,
  queuedCount: number,
): OverlapDecision {
  if (overlap === "allow") return "start";
  if (overlap === "queue" && queuedCount > 0) return queuedCount < mostQueued ? "queue" : "skip";
  if (activeCount === 0) return "start";
  if (overlap === "cancel-running") return "cancel";
  return overlap === "queue" && queuedCount < mostQueued ? "queue" : "skip";
}

/** Whether it may start one more run. */
export const hasTicksLeft = ({ plan, fired, queued = [] }: Pick<ScheduleValue, "plan" | "fired" | "queued">): boolean =>
  plan.max === undefined || fired + queued.length < plan.max;

/** For how long workers that declare a schedule are known to live. */
export const DECLARED_MS = 180_000;
/** It is said again when less than this is left. */
export const RENEWED_MS = 120_000;

export type DeclareDecision = "create" | "refuse" | "replace" | "renew" | "keep" | "leave";

/**
 * What a worker does that declares a schedule. The higher revision counts; of equal ones, the one that was declared last. One that counts no longer takes over
 * when no worker has declared the other for a while.
 */
export function decideDeclare(
  stored: Pick<ScheduleValue, "declared"> | undefined,
  mine: { readonly by: string; readonly revision: number; readonly isFirst: boolean },
  nowMs: number,
): DeclareDecision {
  if (stored === undefined) return "create";
  const { declared } = stored;
  if (declared === undefined) return "refuse";
  if (declared.by === mine.by) return declared.untilMs - nowMs < RENEWED_MS ? "renew" : "keep";
  if (declared.untilMs <= nowMs) return "replace";
  if (mine.revision > declared.revision) return "replace";
  return mine.isFirst && mine.revision === declared.revision ? "replace" : "leave";
}

export type ScheduleState = "active" | "paused" | "ended" | "undeclared";

/** The state as it is shown. */
export function stateOf(
  status: StoredState,
  { declared }: Pick<ScheduleValue, "declared">,
  nowMs: number,
): ScheduleState {
  if (status !== "ended" && declared !== undefined && declared.untilMs <= nowMs) return "undeclared";
  return status;
}
