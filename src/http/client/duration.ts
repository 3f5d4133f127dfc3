/**
 * Durations as in the library: milliseconds, or a text such as "90s" or "1h 30m". The client needs their length only where it waits itself; what the server waits
 * for is sent as it was given. A test compares this with the library's own reading.
 */

import type { Duration } from "../../kernel/check.ts";
import { PawlHttpError } from "./errors.ts";

const UNITS: readonly (readonly [RegExp, number])[] = [
  [/^(?:w|weeks?)$/, 604_800_000],
  [/^(?:d|days?)$/, 86_400_000],
  [/^(?:h|hours?)$/, 3_600_000],
  [/^(?:m|min|minutes?|mins)$/, 60_000],
  [/^(?:s|sec|seconds?|secs)$/, 1000],
  [/^(?:ms|milliseconds?)$/, 1],
];
const MOST_MS = 100 * 365.25 * 24 * 3_600_000;
const PARTS = /(\d+(?:\.\d+)?) ?([a-z]+) ?/y;

/** Whole milliseconds, 0 to a hundred years. Throws `invalid_duration`. */
export function msOf(duration: Duration, what: string): number {
  const ms = typeof duration === "string" ? parse(duration) : duration;
  if (typeof ms === "number" && Number.isFinite(ms) && ms >= 0 && ms <= MOST_MS) return Math.ceil(ms);
  const reason = 'must be milliseconds from 0 to a hundred years, or a string such as "90s", "2 days" or "1h 30m"';
  throw new PawlHttpError({
    status: 0,
    code: "invalid_duration",
    message: `${what} ${reason}`,
    data: { what, reason },
  });
}

/** Parts from the largest unit to the smallest, each unit once. */
function parse(text: string): number | undefined {
  if (text === "" || text.length > 100 || text.endsWith(" ")) return undefined;
  let ms = 0;
  let last = Number.POSITIVE_INFINITY;
  PARTS.lastIndex = 0;
  while (PARTS.lastIndex < text.length) {
    const [, amount, unit = ""] = PARTS.exec(text) ?? [];
    const scale = UNITS.find(([name]) => name.test(unit))?.[1];
    if (scale === undefined || scale >= last) return undefined;
    last = scale;
    ms += Number(amount) * scale;
  }
  return ms;
}
