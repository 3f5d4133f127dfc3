/**
 * Cron expressions. `croner` parses them and finds the next time on the wall; which moment that is in a time zone is decided here:
 *
 * - An expression that matches every hour of the day is about elapsed time. It keeps firing through the hour that is there twice, and has nothing to do in
 *   a gap.
 * - Any other names times of the day. Each fires once: in a gap at the first moment after it, and of two at the first.
 *
 * croner's own rule distinguishes expressions with one single time of the day from all others, so that "0 2,14 * * *" would be left out in a gap.
 *
 * Pure: croner gets all times from here, and does not read the current one in what is used of it.
 */

import { CronDate, CronPattern } from "croner";
import { InvalidCronError } from "./errors.ts";
import { momentsOf, wallOf } from "./zone.ts";

const FIELDS = ["seconds", "minutes", "hours", "days", "months", "weekdays"] as const;
const LONGEST = 200;
/** The nicknames of croner, without "@reboot", which names no time. */
const NICKNAMES = ["@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"];
const NAMES_OF: Readonly<Record<string, string>> = { months: "JAN to DEC", weekdays: "SUN to SAT" };

/** A pattern has an array of 10,000 years, so few are kept. */
const MOST_PATTERNS = 200;
const patterns = new Map<string, CronPattern>();

const OPTIONS = { mode: "5-or-6-parts", domAndDow: false } as const;

/** Throws `invalid_cron`, which names the field. */
export function checkCron(cron: unknown): string {
  if (typeof cron !== "string") throw new InvalidCronError(String(cron).slice(0, LONGEST), "it must be a string");
  if (cron.length > LONGEST)
    throw new InvalidCronError(`${cron.slice(0, 40)}…`, `it must not be longer than ${LONGEST} characters`);
  try {
    patternOf(cron);
    return cron;
  } catch (error) {
    throw explained(cron, reasonOf(error));
  }
}

const reasonOf = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).replace(/^CronPattern: (configuration entry \d )?/, "");

/** Finds the field that is wrong: the one that is refused alone. */
function explained(cron: string, reason: string): InvalidCronError {
  if (cron.trimStart().startsWith("@"))
    return new InvalidCronError(cron, `there is no such nickname; there are ${NICKNAMES.join(", ")}`);
  const found = [...cron.matchAll(/\S+/g)];
  if (found.length !== 5 && found.length !== 6)
    return new InvalidCronError(cron, `it must have five fields, or six with seconds, and has ${found.length}`);
  const names = found.length === 5 ? FIELDS.slice(1) : FIELDS;
  for (const [index, { 0: text, index: position }] of found.entries()) {
    const alone = found.map((_, other) => (other === index ? text : "*")).join(" ");
    try {
      parse(alone);
    } catch (error) {
      const field = names[index] ?? null;
      return new InvalidCronError(cron, inField(field, text, reasonOf(error)), field, position);
    }
  }
  return new InvalidCronError(cron, reason);
}

/** What croner says of characters that it does not know helps only with what the field takes. */
function inField(field: string | null, text: string, reason: string): string {
  if (field === null || !reason.includes("illegal characters")) return reason;
  const names = NAMES_OF[field];
  return `"${text}" has characters that are not allowed there: use numbers${names === undefined ? "" : `, or the names ${names}`}`;
}

const parse = (cron: string): CronPattern => new CronPattern(cron, undefined, OPTIONS);

function patternOf(cron: string): CronPattern {
  const known = patterns.get(cron);
  if (known !== undefined) return known;
  const pattern = parse(cron);
  if (patterns.size >= MOST_PATTERNS) patterns.clear();
  patterns.set(cron, pattern);
  return pattern;
}

/** The next time on the wall after this one that the pattern matches; undefined if there is none in 400 years. */
function nextWall(pattern: CronPattern, wallMs: number): number | undefined {
  const date = new CronDate(new Date(wallMs), 0).increment(pattern, OPTIONS, false);
  return date === null ? undefined : date.getTime();
}

/** The first moment after `fromMs` at which the expression fires in the zone; undefined if there is none. */
export function nextOfCron(cron: string, zone: string, fromMs: number): number | undefined {
  const pattern = patternOf(cron);
  return pattern.hour.every((one) => one !== 0)
    ? nextOfHourly(pattern, zone, fromMs)
    : nextOfDaily(pattern, zone, fromMs);
}

/** Times of the day: each fires once. */
function nextOfDaily(pattern: CronPattern, zone: string, fromMs: number): number | undefined {
  let wallMs = wallOf(zone, fromMs);
  const now = momentsOf(zone, wallMs);
  // In the second of two passes, all of them have fired.
  if (now.is === "twice" && fromMs >= now.secondMs) wallMs = now.wallsMs[1] - 1;
  for (;;) {
    const next = nextWall(pattern, wallMs);
    if (next === undefined) return undefined;
    const moments = momentsOf(zone, next);
    const ms = moments.is === "once" ? moments.ms : moments.is === "twice" ? moments.firstMs : moments.changeMs;
    if (ms > fromMs) return ms;
    wallMs = next;
  }
}

/** Elapsed time: in both passes of what is there twice, and nothing in a gap. */
function nextOfHourly(pattern: CronPattern, zone: string, fromMs: number): number | undefined {
  let wallMs = wallOf(zone, fromMs);
  const now = momentsOf(zone, wallMs);
  let again: number | undefined;
  if (now.is === "twice" && fromMs < now.secondMs) {
    const [from, to] = now.wallsMs;
    const next = nextWall(pattern, from - 1);
    if (next !== undefined && next < to) again = next + (now.secondMs - wallMs);
  }
  for (;;) {
    const next = nextWall(pattern, wallMs);
    if (next === undefined) return again;
    const moments = momentsOf(zone, next);
    if (moments.is === "gap") {
      wallMs = moments.wallAfterMs - 1;
      continue;
    }
    const all = moments.is === "once" ? [moments.ms] : [moments.firstMs, moments.secondMs];
    const ms = all.find((one) => one > fromMs);
    if (ms !== undefined) return again === undefined ? ms : Math.min(ms, again);
    wallMs = next;
  }
}
