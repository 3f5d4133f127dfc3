/**
 * Retention: how long runs are kept after they have ended, by outcome. `runs/retire.ts` deletes them.
 */

import { checkDuration, checkOptions, type Duration, type OptionNames } from "../../kernel/check.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { ENDED_STATUSES, type EndedStatus } from "../stored.ts";

/** How long to keep something: a duration such as "30 days", or "forever". */
export type RetentionPeriod = Duration | "forever";

/** How long runs are kept after they have ended: one time for all outcomes, or one for each. Outcomes that are left out have the default. */
export type Retention = RetentionPeriod | { readonly [Status in EndedStatus]?: RetentionPeriod | undefined };

/** The same in milliseconds; null is forever. */
export type RetentionPolicy = { readonly [Status in EndedStatus]?: number | null };

const OUTCOMES: OptionNames = new Set(ENDED_STATUSES);

export function checkRetention(retention: unknown, what: string): RetentionPolicy {
  if (retention === undefined) return {};
  if (typeof retention === "string" || typeof retention === "number") {
    const keptMs = checkPeriod(retention, what);
    return Object.fromEntries(ENDED_STATUSES.map((status) => [status, keptMs]));
  }
  // A date, a list or a map has no outcomes, and would keep everything.
  if (Object.prototype.toString.call(retention) !== "[object Object]")
    throw new InvalidArgumentError(what, `must be a duration, "forever", or an object of these by outcome`);
  checkOptions(retention, OUTCOMES, what);
  const given = Object.entries(retention as object).filter(([, period]) => period !== undefined);
  return Object.fromEntries(given.map(([status, period]) => [status, checkPeriod(period, `${what} (${status})`)]));
}

const checkPeriod = (period: unknown, what: string): number | null =>
  period === "forever" ? null : checkDuration(period, what);

/** How long a run with this outcome is kept: as its workflow says, or as the default says; null is forever. */
export function keptMsOf(policy: RetentionPolicy, otherwise: RetentionPolicy, status: string): number | null {
  const outcome = status as EndedStatus;
  return policy[outcome] ?? (policy[outcome] === null ? null : (otherwise[outcome] ?? null));
}

export const isForever = (policy: RetentionPolicy, otherwise: RetentionPolicy): boolean =>
  ENDED_STATUSES.every((status) => keptMsOf(policy, otherwise, status) === null);
