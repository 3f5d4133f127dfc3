/**
 * The rules of tasks, without stores or time of their own.
 */

import { decideRetry } from "../kernel/retry.ts";
import type { TaskOutcome } from "./outcome.ts";
import type { StoredAttempt, StoredRetry, TaskInput } from "./stored.ts";

/** What wants to settle a task from outside. */
export type Settling =
  | { readonly by: "signal"; readonly status: "completed" | "failed"; readonly fingerprint: string }
  | { readonly by: "cancel" };

/** What the task's record says under its lock. */
export interface TaskState {
  /** Null while nothing has settled it. */
  readonly outcome: Pick<TaskOutcome, "status" | "by"> | null;
  /** Of what the signal said that settled it; null if it was no signal. */
  readonly fingerprint: string | null;
  /** Until when it waits for its signal; null if it does not wait yet. */
  readonly waitsUntilMs: number | null;
}

/** What becomes of it. */
export type Settlement =
  /** It is the first: the task has this outcome from now on. */
  | { readonly is: "first" }
  /** The time of the task was over, and no worker has said so yet: the timeout is the first. */
  | { readonly is: "overdue" }
  /** It settled the task before: the same call again. */
  | { readonly is: "again" }
  /** Another was first. */
  | { readonly is: "late"; readonly code: "task_settled" | "task_timed_out" };

/**
 * The one place where a response, a signal, the timeout and a cancellation meet: the first that is committed has settled the task, and each later one gets
 * that outcome.
 */
export function decideSettle(
  { outcome, fingerprint, waitsUntilMs }: TaskState,
  settling: Settling,
  nowMs: number,
): Settlement {
  if (outcome === null) return { is: waitsUntilMs !== null && nowMs >= waitsUntilMs ? "overdue" : "first" };
  if (settling.by === "cancel") return outcome.by === "cancel" ? { is: "again" } : { is: "late", code: "task_settled" };
  if (outcome.by === "signal" && outcome.status === settling.status && fingerprint === settling.fingerprint)
    return { is: "again" };
  return { is: "late", code: outcome.by === "timeout" ? "task_timed_out" : "task_settled" };
}

export const DEFAULT_RETRY: StoredRetry = { attempts: 5, delayMs: 1000, factor: 2, maxDelayMs: 60_000, jitter: 0.5 };

/** All statuses from 500 to 599, in a list of statuses. */
export const ALL_5XX = -5;
const RETRIED: readonly number[] = [408, 429, ALL_5XX];

/** What an attempt means: the call is done, it is tried again after a while, or the task has failed. */
export type Judgement =
  | { readonly is: "done" }
  | { readonly is: "retry"; readonly delayMs: number }
  | { readonly is: "failed" };

/** Errors that the next attempt would meet as well. */
const LASTING: ReadonlySet<string> = new Set(["invalid_target", "target_forbidden"]);

/** `made` counts the attempts so far; `chance` returns a number from 0 to 1, and is called only after a failure that may be tried again. */
export function judge(
  { status, error, retryAfterMs }: Pick<StoredAttempt, "status" | "error" | "retryAfterMs">,
  made: number,
  { retry = DEFAULT_RETRY, retryStatuses = RETRIED }: Pick<TaskInput, "retry" | "retryStatuses">,
  chance: () => number,
): Judgement {
  if (error === undefined && status !== undefined && status >= 200 && status < 300) return { is: "done" };
  const isRetried = isLasting(error)
    ? false
    : status === undefined || isBroken(error) || isAmong(status, retryStatuses);
  const delayMs = isRetried ? decideRetry({ ...retry, when: undefined }, made, undefined, chance()) : null;
  if (delayMs === null) return { is: "failed" };
  return { is: "retry", delayMs: Math.max(delayMs, retryAfterMs ?? 0) };
}

const isLasting = (error: StoredAttempt["error"]): boolean => error !== undefined && LASTING.has(error.code);

/** There was no whole response, although its status had arrived. */
const isBroken = (error: StoredAttempt["error"]): boolean => error !== undefined && error.code !== "http_status";

/** The target is gone for good, whatever the list says. */
const GONE = 410;

const isAmong = (status: number, statuses: readonly number[]): boolean =>
  status !== GONE && (statuses.includes(status) || (status >= 500 && status <= 599 && statuses.includes(ALL_5XX)));

/** The longest time that a target can ask for with `Retry-After`. */
const LONGEST_RETRY_AFTER_MS = 24 * 3_600_000;

/** What `Retry-After` says, in seconds or as a date, at most a day; undefined if it says nothing that is understood. */
export function parseRetryAfter(text: string | undefined, nowMs: number): number | undefined {
  if (text === undefined) return undefined;
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : parseHttpDate(text, nowMs) - nowMs;
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(0, ms), LONGEST_RETRY_AFTER_MS);
}

const FIXDATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/;
const RFC_850 = /^[A-Z][a-z]{5,8}, (\d{2})-([A-Z][a-z]{2})-(\d{2}) (\d{2}:\d{2}:\d{2} GMT)$/;
const ASCTIME = /^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}$/;

/** One of the three forms of a date that HTTP has (RFC 9110, 5.6.7); NaN for anything else, although `Date.parse` takes much else for a date. */
function parseHttpDate(text: string, nowMs: number): number {
  if (FIXDATE.test(text)) return Date.parse(text);
  if (ASCTIME.test(text)) return Date.parse(`${text} GMT`);
  const [, day, month, year, time] = RFC_850.exec(text) ?? [];
  if (year === undefined) return Number.NaN;
  // Two digits of a year are of this century, or of the last one if that would be more than fifty years ahead.
  const thisYear = new Date(nowMs).getUTCFullYear();
  const inThis = thisYear - (thisYear % 100) + Number(year);
  return Date.parse(`${day} ${month} ${inThis > thisYear + 50 ? inThis - 100 : inThis} ${time}`);
}

/** A run makes at most this many attempts. */
export const MOST_ATTEMPTS = 1000;

/**
 * The fence of an attempt: each claim of the run has a higher number than the one before, and so has each attempt within a claim. A claim makes
 * at most `MOST_ATTEMPTS`, so no attempt has the number of another.
 */
export const fenceOf = (claim: number, attempt: number): number =>
  claim * MOST_ATTEMPTS + ((attempt - 1) % MOST_ATTEMPTS);
