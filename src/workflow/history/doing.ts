/**
 * What a run is doing, or waits for: a short summary for status, lists and `whyWaiting`.
 *
 * The process that works on the run knows it from its memory. For all others it is stored in the run's record, by commits that write
 * the record anyway: the one that releases the run, and each renewal of its lease. A run that is done before that costs nothing more.
 *
 * Out of scope: what the code computes between its operations. Only operations of `ctx` are known.
 */

import type { Row } from "../../kernel/contract.ts";
import type { Draft } from "../../kernel/draft.ts";
import { ValueTooLargeError } from "../../kernel/errors.ts";
import type { PendingOperation } from "../execution/pending.ts";
import { type Doing, isRunStatus, type Kind, type RunStatus, type RunValue, type StoredActivity } from "../stored.ts";
import { runOf } from "./read-run.ts";

/** One operation that a run is doing or waits for. */
export interface RunActivity {
  readonly kind: Kind;
  /** As the history names it: "charge", or "charge#2" for the second one. Sleeps are numbered. */
  readonly name: string;
  /** Whether the function of the step is running. Everything else waits. */
  readonly isRunning: boolean;
  /** How many attempts of the step have begun, the one that runs included; null for everything else. */
  readonly attempt: number | null;
  /** The message of the last attempt's error. */
  readonly lastError: string | null;
  /** When the next attempt of the step begins. */
  readonly nextAttemptAt: Date | null;
  /** When a sleep, or the wait for a signal or a lock, ends by itself. */
  readonly until: Date | null;
  /** When the code started it. */
  readonly since: Date;
  /** The signals, the child's run, or the rate limit of a step, that it waits for. */
  readonly waitsFor: readonly string[];
}

/** At most this many operations are kept. */
const MOST_KEPT = 10;
/** And of an error's message, this many characters. */
const MOST_CHARS = 200;

/** Sums up what the code waits for. `timers` has the ends of waits that begin with this commit. */
export function doingOf(
  waiting: ReadonlyMap<string, PendingOperation>,
  atMs: number,
  isUnderWay: (pending: PendingOperation) => boolean = () => false,
  timers: readonly (readonly [PendingOperation, number])[] = [],
): Doing {
  const first: StoredActivity[] = [];
  for (const pending of waiting.values()) {
    if (first.length === MOST_KEPT) break;
    const dueMs = timers.find(([one]) => one === pending)?.[1] ?? pending.dueMs;
    first.push(activityOf(pending, dueMs, isUnderWay(pending)));
  }
  return { atMs, total: waiting.size, first };
}

function activityOf(pending: PendingOperation, dueMs: number | null, isUnderWay: boolean): StoredActivity {
  const { kind, id: name, attempts, nextAttemptMs, lastError } = pending;
  const nextMs = dueMs ?? nextAttemptMs;
  const waitsFor = waitsForOf(pending, isUnderWay && nextMs === null && attempts > 0);
  return {
    kind,
    name,
    sinceMs: pending.sinceMs,
    ...(waitsFor.length === 0 ? {} : { waitsFor: waitsFor.slice(0, MOST_KEPT) }),
    ...(lastError === undefined ? {} : { error: messageOf(lastError) }),
    ...(kind === "step" ? { attempt: attempts } : dueMs === null ? {} : { untilMs: dueMs }),
    ...(kind === "step" && nextMs !== null ? { nextMs } : {}),
    ...(kind === "step" && isUnderWay && nextMs === null && attempts > 0 ? { isRunning: true } : {}),
  };
}

function waitsForOf({ plan, childId }: PendingOperation, isRunning: boolean): readonly string[] {
  if (plan.kind === "signal") return plan.names;
  // Each attempt of the step needs a turn in it.
  if (plan.kind === "step") return plan.rateLimit === undefined || isRunning ? [] : [plan.rateLimit];
  return childId === undefined ? [] : [childId];
}

/** The message of whatever was thrown, short and well-formed, so that it can always be stored. */
function messageOf(error: unknown): string {
  let message: unknown;
  try {
    message = error instanceof Error ? error.message : String(error);
  } catch {
    message = "an error without a message";
  }
  return String(message).slice(0, MOST_CHARS).toWellFormed();
}

/** Writes the summary, after everything else, into the run's record, if it fits: it must not keep the run from anything. */
export function recordDoing(record: Draft, doing: Doing): void {
  try {
    record.write({ value: { ...runOf(record), doing: { ...doing, head: record.head } } });
  } catch (error) {
    if (!(error instanceof ValueTooLargeError)) throw error;
  }
}

/** What a run is doing, as status and lists show it. */
export interface ShownDoing {
  /** The first operations that it is doing or waits for, at most 10, in the order in which the code started them. */
  readonly doing: readonly RunActivity[];
  /** How many there are. */
  readonly doingCount: number;
  /**
   * When this was recorded, if it may have changed since: it is recorded when a worker releases the run, and every third of a lease. Null if
   * it is up to date, as for a run that no worker holds, or that a worker of this handle does.
   */
  readonly doingAsOf: Date | null;
}

const NOTHING: ShownDoing = { doing: [], doingCount: 0, doingAsOf: null };

/** Whether a run of this status is doing something, or waits for it. */
const IS_SHOWN: Readonly<Record<RunStatus, boolean>> = {
  running: true,
  waiting: true,
  parked: true,
  pending: false,
  queued: false,
  completed: false,
  failed: false,
  canceled: false,
  timed_out: false,
  expired: false,
};

/** `live` is what this process knows, if it works on the run. */
export function showDoing({ status, holder, head }: Row, value: RunValue, live: Doing | undefined): ShownDoing {
  const doing = live ?? value.doing;
  if (doing === undefined || !isRunStatus(status) || !IS_SHOWN[status]) return NOTHING;
  return {
    doing: doing.first.map(shown),
    doingCount: doing.total,
    doingAsOf: live !== undefined || (holder === null && doing.head === head) ? null : new Date(doing.atMs),
  };
}

const dateOf = (ms: number | undefined): Date | null => (ms === undefined ? null : new Date(ms));

const shown = (one: StoredActivity): RunActivity => ({
  kind: one.kind,
  name: one.name,
  isRunning: one.isRunning === true,
  attempt: one.attempt ?? null,
  lastError: one.error ?? null,
  nextAttemptAt: dateOf(one.nextMs),
  until: dateOf(one.untilMs),
  since: new Date(one.sinceMs),
  waitsFor: one.waitsFor ?? [],
});

/** Whether the run could continue only later: no step runs, or is about to. */
export const isWaitingOnly = ({ doing, doingAsOf }: ShownDoing): boolean =>
  doing.length > 0 && doingAsOf === null && doing.every((one) => one.kind !== "step" || one.nextAttemptAt !== null);

/** In a sentence that begins with the run, this many operations are named. */
const MOST_NAMED = 5;

/** The same in words: `waits for signal "go" since … and sleeps until …`. */
export function doingInWords({ doing, doingCount }: ShownDoing): string {
  const named = doing.slice(0, MOST_NAMED).map(inWords);
  if (doingCount > named.length) named.push(`${doingCount - named.length} more`);
  return named.length < 3 ? named.join(" and ") : `${named.slice(0, -1).join(", ")} and ${named.at(-1)}`;
}

function inWords(one: RunActivity): string {
  const { kind, name, attempt, lastError, nextAttemptAt, waitsFor } = one;
  const since = ` since ${one.since.toISOString()}`;
  const until = one.until === null ? "" : ` until ${one.until.toISOString()}`;
  switch (kind) {
    case "step": {
      const after = lastError === null ? "" : ` (the last error: ${lastError})`;
      if (one.isRunning) return `is running attempt ${attempt} of step "${name}"${since}${after}`;
      const under = waitsFor[0] === undefined ? "" : ` under rate limit "${waitsFor[0]}"`;
      if (nextAttemptAt === null && attempt === 0) return `is about to run step "${name}"${under}${since}${after}`;
      const at = nextAttemptAt === null ? "" : ` at ${nextAttemptAt.toISOString()}`;
      return `waits for attempt ${(attempt ?? 0) + 1} of step "${name}"${under}${at}${since}${after}`;
    }
    case "sleep":
      return `sleeps${until}${since}`;
    case "signal":
      return `waits for signal ${waitsFor.map((signal) => `"${signal}"`).join(" or ")}${until}${since}`;
    case "child":
      return `waits for its child "${waitsFor[0] ?? name}"${since}`;
    case "lock":
      return `waits for ${name}${until}${since}`;
    case "slot":
    case "stream":
    case "unlock":
    case "rate":
      return `waits for ${kind} "${name}"${since}`;
  }
}
