/** Schedules and their histories, as they are shown. */

import type { Row, StoredEntry } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { hasTicksLeft, jitterOf, nextTick, type ScheduleState, stateOf } from "./decide.ts";
import type { ScheduleValue, StoredState, TickEntry, TickWord } from "./stored.ts";
import { nextTime } from "./times.ts";

/** A schedule as it is now. */
export interface ScheduleInfo {
  readonly name: string;
  /**
   * "active"; "paused"; "ended", because it has no more ticks; or "undeclared": it is defined in code, and no worker has declared it for three minutes, so it
   * does not fire.
   */
  readonly state: ScheduleState;
  /** Whether it is defined in code, and not created at run time. */
  readonly isDeclared: boolean;
  /** The revision of the definition that counts; null for one that was created at run time. */
  readonly revision: number | null;
  /** When it ticks: one of the three. */
  readonly cron: string | null;
  readonly everyMs: number | null;
  readonly at: readonly Date[] | null;
  /** The time zone of `cron`. */
  readonly timezone: string | null;
  readonly overlap: "skip" | "queue" | "cancel-running" | "allow";
  readonly workflow: string;
  readonly createdAt: Date;
  /** Its next tick, without the jitter, and when that is due. Null while it is paused or undeclared, and when it has ended. */
  readonly nextAt: Date | null;
  readonly dueAt: Date | null;
  /** The last tick that was decided, and its outcome. */
  readonly lastTick: { readonly scheduledAt: Date; readonly outcome: TickWord } | null;
  /** The last tick that started a run. */
  readonly lastFired: { readonly scheduledAt: Date; readonly run: string } | null;
  /** Ticks that wait for the end of a run. */
  readonly queued: readonly Date[];
  /** How many ticks have started a run; those that `trigger` and `backfill` started are not ticks. */
  readonly fired: number;
  readonly skipped: number;
  readonly missed: number;
  /** How many ticks could not start their run, because its input was refused or the id was taken. */
  readonly failed: number;
  readonly paused: { readonly since: Date; readonly reason: string | null } | null;
}

/** The outcome of a tick, or of several that were missed or skipped together. */
export interface ScheduleEntry {
  readonly version: number;
  /** "fired", "queued" (it waits, and another entry follows), "skipped", "missed", or "failed". */
  readonly outcome: TickWord;
  /** The time of the tick, or of the first one. */
  readonly scheduledAt: Date;
  /** Of several ticks, the time of the last one, and how many they are; null where they were too many to count. */
  readonly until: Date | null;
  readonly count: number | null;
  readonly reason: string | null;
  readonly run: string | null;
  /** How it was started, if not by its time. */
  readonly by: "trigger" | "backfill" | null;
  /** When it was decided. */
  readonly at: Date;
}

const dateOf = (ms: number | undefined): Date | null => (ms === undefined ? null : new Date(ms));

export function showSchedule(name: string, row: Row, value: ScheduleValue, nowMs: number): ScheduleInfo {
  const { plan, target, declared, last, lastFired, paused } = value;
  const { timing } = plan;
  const state = stateOf(row.status as StoredState, value, nowMs);
  const nextMs = state === "active" && hasTicksLeft(value) ? nextTick(plan, value.cursorMs, nextTime) : undefined;
  return {
    name,
    state,
    isDeclared: declared !== undefined,
    revision: declared?.revision ?? null,
    cron: "cron" in timing ? timing.cron : null,
    everyMs: "everyMs" in timing ? timing.everyMs : null,
    at: "atMs" in timing ? timing.atMs.map((ms) => new Date(ms)) : null,
    timezone: "cron" in timing ? timing.timezone : null,
    overlap: plan.overlap,
    workflow: target.workflow,
    createdAt: new Date(value.createdAtMs),
    nextAt: dateOf(nextMs),
    dueAt: nextMs === undefined ? null : new Date(nextMs + jitterOf(name, plan.jitterMs, nextMs)),
    lastTick: last === undefined ? null : { scheduledAt: new Date(last.atMs), outcome: last.is },
    lastFired: lastFired === undefined ? null : { scheduledAt: new Date(lastFired.atMs), run: lastFired.run },
    queued: (value.queued ?? []).map((ms) => new Date(ms)),
    fired: value.fired,
    skipped: value.skipped,
    missed: value.missed,
    failed: value.failed,
    paused: paused === undefined ? null : { since: new Date(paused.sinceMs), reason: paused.reason ?? null },
  };
}

export function showEntry(kernel: Kernel, row: Row, { version, name, data, atMs }: StoredEntry): ScheduleEntry {
  const entry = kernel.decode(row, data) as TickEntry;
  return {
    version,
    outcome: name as TickWord,
    scheduledAt: new Date(entry.atMs),
    until: dateOf(entry.toMs),
    count: entry.toMs === undefined ? 1 : (entry.count ?? null),
    reason: entry.reason ?? null,
    run: entry.run ?? null,
    by: entry.by ?? null,
    at: new Date(atMs),
  };
}
