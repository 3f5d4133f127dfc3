/** The options of a schedule, and what they become. */

import {
  checkCount,
  checkDate,
  checkDuration,
  checkObject,
  checkOptions,
  type Duration,
  optionNames,
} from "../kernel/check.ts";
import { InvalidArgumentError, InvalidDurationError } from "../kernel/errors.ts";
import { checkCron } from "./cron.ts";
import type { Plan } from "./stored.ts";
import type { Timing } from "./times.ts";
import { checkTimezone, UTC } from "./zone.ts";

export interface ScheduleOptions {
  /**
   * A cron expression: five fields, or six with seconds; names ("MON", "JAN"), "L" and "#", and nicknames such as "@daily". Exactly one of `cron`, `every`
   * and `at` is given.
   */
  readonly cron?: string | undefined;
  /** A tick each time that this much time has passed, since `starts` or else since 1970. At least a second. */
  readonly every?: Duration | undefined;
  /** A tick at this time, or at each of these. */
  readonly at?: Date | number | readonly (Date | number)[] | undefined;
  /** The time zone of `cron`, an IANA name. Default: "UTC". */
  readonly timezone?: string | undefined;
  /**
   * What a tick does while the run of an earlier one has not ended: "skip" starts none, "queue" waits for its end (up to 10 ticks, or as many as
   * `{ queue: n }` says), "cancel-running" cancels it and starts the next, "allow" starts the next beside it. Default: "skip".
   */
  readonly overlap?: Overlap | undefined;
  /**
   * What happens with ticks that were missed while no worker was there: "none" starts nothing, "last" the last one, a number up to that many, the last
   * ones, in order. Default: "last".
   */
  readonly catchUp?: "none" | "last" | number | undefined;
  /** Each tick is delayed by up to this much, always by the same. Default: 0. */
  readonly jitter?: Duration | undefined;
  /** The first moment at which it ticks. Default: when it is created or declared. */
  readonly starts?: Date | number | undefined;
  /** The last moment at which it ticks. Default: none. */
  readonly ends?: Date | number | undefined;
  /** How many ticks start runs; then it has ended. Default: no limit. */
  readonly max?: number | undefined;
}

export type Overlap = "skip" | "queue" | "cancel-running" | "allow" | { readonly queue: number };

/** The options of a schedule that is declared in code. */
export interface DeclaredScheduleOptions extends ScheduleOptions {
  /**
   * Of two definitions with one name, as in a rolling deploy, the one with the higher revision counts; of equal ones, the one that was declared last.
   * Default: 0.
   */
  readonly revision?: number | undefined;
}

const NAMES = {
  cron: true,
  every: true,
  at: true,
  timezone: true,
  overlap: true,
  catchUp: true,
  jitter: true,
  starts: true,
  ends: true,
  max: true,
} as const;
export const OPTIONS = optionNames<ScheduleOptions>(NAMES);
export const DECLARED_OPTIONS = optionNames<DeclaredScheduleOptions>({ ...NAMES, revision: true });
const QUEUE = optionNames<{ queue: number }>({ queue: true });

const LEAST_EVERY_MS = 1000;
const MOST_TIMES = 1000;
const QUEUED = 10;
const MOST_QUEUED = 1000;
export const MOST_CAUGHT_UP = 1000;
const MOST_MAX = 1_000_000_000;

/** `name` is that of the schedule, if it has one. Throws `invalid_argument`, `invalid_duration`, `invalid_cron` or `invalid_timezone`. */
export function checkPlan(options: ScheduleOptions, name?: string | undefined, known = OPTIONS): Plan {
  const all = name === undefined ? "the options" : `the options of schedule "${name}"`;
  const of = name === undefined ? "" : `schedule "${name}": `;
  checkObject(options, all);
  checkOptions(options, known, all);
  const { jitter, starts, ends, max } = options;
  const startsMs = starts === undefined ? undefined : checkDate(starts, `${of}starts`);
  const endsMs = ends === undefined ? undefined : checkDate(ends, `${of}ends`);
  if (startsMs !== undefined && endsMs !== undefined && endsMs < startsMs)
    throw new InvalidArgumentError(`${of}ends`, "must not be before starts");
  return {
    timing: checkTiming(options, startsMs, all, of),
    ...checkOverlap(options.overlap ?? "skip", of),
    catchUp: checkCatchUp(options.catchUp ?? "last", of),
    ...(jitter === undefined ? {} : { jitterMs: checkDuration(jitter, `${of}jitter`) }),
    ...(startsMs === undefined ? {} : { startsMs }),
    ...(endsMs === undefined ? {} : { endsMs }),
    ...(max === undefined ? {} : { max: checkCount(max, `${of}max`, MOST_MAX) }),
  };
}

function checkTiming(
  { cron, every, at, timezone }: ScheduleOptions,
  startsMs: number | undefined,
  all: string,
  of: string,
): Timing {
  const given = [cron, every, at].filter((one) => one !== undefined).length;
  if (given !== 1) throw new InvalidArgumentError(all, "must have exactly one of cron, every and at");
  if (cron !== undefined) return { cron: checkCron(cron), timezone: checkTimezone(timezone ?? UTC) };
  if (timezone !== undefined)
    throw new InvalidArgumentError(`${of}timezone`, "must be given with cron only: every and at are in absolute time");
  if (every !== undefined) {
    const everyMs = checkDuration(every, `${of}every`);
    if (everyMs < LEAST_EVERY_MS) throw new InvalidDurationError(`${of}every`, "must be at least a second");
    return { everyMs, anchorMs: startsMs ?? 0 };
  }
  const times: readonly (Date | number | undefined)[] = Array.isArray(at) ? at : [at];
  const list = times.map((one) => checkDate(one, `${of}at`));
  if (list.length === 0 || list.length > MOST_TIMES)
    throw new InvalidArgumentError(`${of}at`, `must be a date, or a list of 1 to ${MOST_TIMES} dates`);
  return { atMs: [...new Set(list)].sort((a, b) => a - b) };
}

function checkOverlap(overlap: Overlap, of: string): Pick<Plan, "overlap" | "mostQueued"> {
  if (overlap === "queue") return { overlap, mostQueued: QUEUED };
  if (overlap === "skip" || overlap === "cancel-running" || overlap === "allow") return { overlap };
  if (typeof overlap !== "object" || overlap === null)
    throw new InvalidArgumentError(
      `${of}overlap`,
      'must be "skip", "queue", "cancel-running", "allow" or { queue: a number }',
    );
  checkOptions(overlap, QUEUE, `${of}overlap`);
  return { overlap: "queue", mostQueued: checkCount(overlap.queue, `${of}overlap.queue`, MOST_QUEUED) };
}

function checkCatchUp(catchUp: unknown, of: string): number {
  if (catchUp === "none") return 0;
  if (catchUp === "last") return 1;
  if (typeof catchUp !== "number")
    throw new InvalidArgumentError(`${of}catchUp`, 'must be "none", "last", or the number of ticks to make up for');
  return checkCount(catchUp, `${of}catchUp`, MOST_CAUGHT_UP);
}
