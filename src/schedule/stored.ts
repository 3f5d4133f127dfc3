/**
 * What is stored of schedules. Names here are permanent.
 *
 * A schedule is one record: when it ticks, what each tick starts, and up to which time ticks were decided. It is due at its next tick. Its log is
 * its history: an entry for each tick, or for a range of them.
 */

import { checkId, utf8Length } from "../kernel/check.ts";
import { type Address, address } from "../kernel/contract.ts";
import { hash } from "../kernel/fingerprint.ts";
import type { Timing } from "./times.ts";

export const SCHEDULES = "schedule";

export const scheduleAt = (name: unknown): Address => address(SCHEDULES, checkId(name, "the schedule's name"));

/** The queue of schedules that were created at run time: every worker takes them. */
export const CREATED_QUEUE = "schedule";
/** The queue of a schedule that is declared in code: workers with the same definition take it. */
export const declaredQueueOf = (by: string): string => `schedule/${by}`;

/** The states of a schedule, in the column `status`. */
export type StoredState = "active" | "paused" | "ended";

/** When it ticks, and what is done with its ticks. */
export interface Plan {
  readonly timing: Timing;
  readonly overlap: "skip" | "queue" | "cancel-running" | "allow";
  /** How many ticks wait at most, with "queue". */
  readonly mostQueued?: number;
  /** How many ticks that were missed are made up for. */
  readonly catchUp: number;
  readonly jitterMs?: number;
  readonly startsMs?: number;
  /** The last moment at which it ticks. */
  readonly endsMs?: number;
  /** How many ticks start runs. */
  readonly max?: number;
}

/** What each tick starts. */
export interface Target {
  readonly workflow: string;
  /** Absent where the input is a function, in the code of workers. */
  readonly input?: { readonly value: unknown };
  readonly timeoutMs?: number;
}

export interface ScheduleValue {
  readonly plan: Plan;
  readonly target: Target;
  /** Its definition, where it is declared in code; until when workers have said so. */
  readonly declared?: { readonly by: string; readonly revision: number; readonly untilMs: number };
  readonly createdAtMs: number;
  /** Its history begins after this version: what is before it was of another schedule with the name. */
  readonly after: number;
  /** Ticks up to this moment were decided. */
  readonly cursorMs: number;
  /** Ticks between that and this moment are to be started: they were due together, and one commit starts a part of them. */
  readonly keptUpToMs?: number;
  /** How many ticks have started a run. */
  readonly fired: number;
  readonly skipped: number;
  readonly missed: number;
  readonly failed: number;
  /** The last tick that has started a run, and the last that was decided. */
  readonly lastFired?: { readonly atMs: number; readonly run: string };
  readonly last?: { readonly atMs: number; readonly is: TickWord };
  /** Runs that it started and that may not have ended, where overlaps matter: the last one, and those before it. */
  readonly active?: readonly string[];
  /** Ticks that wait for the end of a run. */
  readonly queued?: readonly number[];
  readonly paused?: { readonly sinceMs: number; readonly reason?: string };
}

/** The outcome of a tick: the words of the history. */
export const TICK_WORDS = ["fired", "queued", "skipped", "missed", "failed"] as const;
export type TickWord = (typeof TICK_WORDS)[number];

/** An entry of the history. */
export interface TickEntry {
  /** The time of the tick, or of the first one. */
  readonly atMs: number;
  /** Of a range of ticks: the last one, and how many. Absent where there were too many to count. */
  readonly toMs?: number;
  readonly count?: number;
  readonly run?: string;
  readonly reason?: string;
  /** How it was started, if not by its time. */
  readonly by?: "trigger" | "backfill";
}

const MOST_ID_BYTES = 256;
const MOST_TRIGGER_BYTES = 128;

/** The id of the run of a tick. A name that is too long for it is cut, and its hash is added. */
export const tickRunId = (schedule: string, atMs: number): string => runId(schedule, new Date(atMs).toISOString());

/** The id of the run of a trigger, by the id that the caller gave, or a random one. A long one is hashed. */
export const triggerRunId = (schedule: string, id: string): string =>
  runId(schedule, `trigger/${utf8Length(id) <= MOST_TRIGGER_BYTES ? id : hash(id)}`);

function runId(schedule: string, suffix: string): string {
  const id = `${schedule}/${suffix}`;
  if (utf8Length(id) <= MOST_ID_BYTES) return id;
  const end = `~${hash(schedule).slice(0, 16)}/${suffix}`;
  const kept = Buffer.from(schedule)
    .subarray(0, MOST_ID_BYTES - end.length)
    .toString("utf8")
    // A character that was cut in the middle.
    .replace(/\uFFFD+$/u, "");
  return `${kept}${end}`;
}
