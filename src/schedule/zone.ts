/**
 * Time zones: which time clocks on the wall show at a moment, and at which moments they show a time.
 *
 * A time on the wall is a number too: the milliseconds since 1970 that a clock in UTC would show for it. When clocks are put forward, some times on the
 * wall do not exist (a *gap*); when they are put back, some exist twice. The rules of the zones are those of Node (ICU); the current time is never read.
 */

import { InvalidTimezoneError } from "./errors.ts";

export const UTC = "UTC";

const DAY_MS = 24 * 3_600_000;
/** Making one is slow. They are made anew when there are more: one of them is large. */
const MOST_FORMATS = 100;
const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(zone: string): Intl.DateTimeFormat {
  const known = formats.get(zone);
  if (known !== undefined) return known;
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone: zone,
    calendar: "gregory",
    numberingSystem: "latn",
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  if (formats.size >= MOST_FORMATS) formats.clear();
  formats.set(zone, format);
  return format;
}

/** The name of a zone, as it was given. Throws `invalid_timezone`. */
export function checkTimezone(zone: unknown): string {
  // Intl takes "+01:00" as well, which is an offset and no zone.
  if (typeof zone !== "string" || !/^[A-Za-z]/.test(zone)) throw new InvalidTimezoneError(String(zone).slice(0, 100));
  try {
    formatOf(zone);
    return zone;
  } catch {
    throw new InvalidTimezoneError(zone.slice(0, 100));
  }
}

/** How far clocks in the zone are ahead of UTC at this moment. */
export function offsetMs(zone: string, ms: number): number {
  if (zone === UTC) return 0;
  const parts: Record<string, number> = {};
  for (const { type, value } of formatOf(zone).formatToParts(ms)) parts[type] = Number(value);
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts;
  return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(ms / 1000) * 1000;
}

export const wallOf = (zone: string, ms: number): number => ms + offsetMs(zone, ms);

/** When clocks show a time: once, never, or twice. `changeMs` is the moment at which they are put forward or back. */
export type Moments =
  | { readonly is: "once"; readonly ms: number }
  | { readonly is: "gap"; readonly changeMs: number; readonly wallAfterMs: number }
  | {
      readonly is: "twice";
      readonly firstMs: number;
      readonly secondMs: number;
      /** The times on the wall that are there twice: from the first of them, up to and without the second. */
      readonly wallsMs: readonly [from: number, to: number];
    };

export function momentsOf(zone: string, wallMs: number): Moments {
  // Offsets change rarely, so those of the day before and of the day after are all there are.
  const before = offsetMs(zone, wallMs - DAY_MS);
  const after = zone === UTC ? 0 : offsetMs(zone, wallMs + DAY_MS);
  if (before === after) return { is: "once", ms: wallMs - before };
  const isBefore = offsetMs(zone, wallMs - before) === before;
  const isAfter = offsetMs(zone, wallMs - after) === after;
  if (isBefore && isAfter) {
    const [firstMs, secondMs] = [wallMs - before, wallMs - after];
    const changeMs = changeBetween(zone, firstMs, secondMs);
    return { is: "twice", firstMs, secondMs, wallsMs: [changeMs + after, changeMs + before] };
  }
  if (isBefore) return { is: "once", ms: wallMs - before };
  if (isAfter) return { is: "once", ms: wallMs - after };
  const changeMs = changeBetween(zone, wallMs - after, wallMs - before);
  return { is: "gap", changeMs, wallAfterMs: changeMs + after };
}

/** The first moment, in whole seconds, at which the offset is that of `toMs` and no longer that of `fromMs`. */
function changeBetween(zone: string, fromMs: number, toMs: number): number {
  const before = offsetMs(zone, fromMs);
  let [low, high] = [Math.floor(fromMs / 1000), Math.ceil(toMs / 1000)];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (offsetMs(zone, middle * 1000) === before) low = middle;
    else high = middle;
  }
  return high * 1000;
}
