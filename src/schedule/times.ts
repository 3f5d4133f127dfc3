/**
 * When a schedule ticks. Pure: the times after a moment follow from what is stored, and from the rules of the time zone.
 */

import { nextOfCron } from "./cron.ts";

/** When it ticks, as it is stored. */
export type Timing =
  /** By clocks on the wall in a time zone. */
  | { readonly cron: string; readonly timezone: string }
  /** In absolute time, from the anchor on: daylight saving does not matter. */
  | { readonly everyMs: number; readonly anchorMs: number }
  /** At these times, in order. */
  | { readonly atMs: readonly number[] };

/** Finds the first tick after a moment. Tests replace it, as where the rules of a zone change. */
export type NextTime = (timing: Timing, fromMs: number) => number | undefined;

export const nextTime: NextTime = (timing, fromMs) => {
  if ("cron" in timing) return nextOfCron(timing.cron, timing.timezone, fromMs);
  if ("atMs" in timing) return timing.atMs.find((ms) => ms > fromMs);
  const { everyMs, anchorMs } = timing;
  return fromMs < anchorMs ? anchorMs : anchorMs + (Math.floor((fromMs - anchorMs) / everyMs) + 1) * everyMs;
};
