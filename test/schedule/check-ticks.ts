/**
 * Checks what is stored of a schedule: each tick that was decided has exactly one entry in the history, or waits; each that fired has its run, and
 * there are no other runs.
 */

import type { Pawl } from "../../src/index.ts";
import { nextTick } from "../../src/schedule/decide.ts";
import { type ScheduleValue, scheduleAt, type TickEntry, tickRunId } from "../../src/schedule/stored.ts";
import { nextTime } from "../../src/schedule/times.ts";
import { RUNS } from "../../src/workflow/stored.ts";

/** What is stored of one schedule. */
export interface StoredTicks {
  readonly name: string;
  readonly value: Pick<ScheduleValue, "plan" | "createdAtMs" | "cursorMs" | "queued" | "fired">;
  /** The whole history, or only its end. */
  readonly entries: readonly (TickEntry & { readonly word: string })[];
  readonly isWhole: boolean;
  /** The ids of all runs whose ids begin with the name. */
  readonly runs: ReadonlySet<string>;
}

export async function storedSchedule(pawl: Pawl, name: string): Promise<ScheduleValue> {
  const at = scheduleAt(name);
  const [row] = await pawl.kernel.read([at]);
  if (row?.value == null) throw new Error(`there is no schedule "${name}"`);
  return pawl.kernel.decode(at, row.value) as ScheduleValue;
}

/** Reads it; no worker may be at work. */
export async function storedTicks(pawl: Pawl, name: string): Promise<StoredTicks> {
  const { kernel } = pawl;
  const at = scheduleAt(name);
  const value = await storedSchedule(pawl, name);
  const entries: (TickEntry & { word: string })[] = [];
  let first: number | undefined;
  for await (const entry of kernel.entriesAfter(at, value.after)) {
    first ??= entry.version;
    entries.push({ ...(kernel.decode(at, entry.data) as TickEntry), word: entry.name });
  }
  const runs = new Set<string>();
  for await (const row of kernel.rows(RUNS))
    if (row.value !== null && row.key.startsWith(`${name}/`)) runs.add(row.key);
  return { name, value, entries, isWhole: (first ?? value.after + 1) === value.after + 1, runs };
}

/** What was decided of each tick, and what is wrong. */
export function checkTicks({ name, value, entries, isWhole, runs }: StoredTicks): {
  readonly decided: ReadonlyMap<number, string>;
  readonly wrong: readonly string[];
} {
  const { plan, createdAtMs, cursorMs, queued = [], fired } = value;
  const wrong: string[] = [];
  const decided = new Map<number, string>();
  const waiting = new Set(queued);
  // Ticks whose entries were removed are not checked.
  const fromMs = isWhole ? createdAtMs : Math.max(...entries.slice(0, 20).map(({ atMs }) => atMs));
  const ticks = ticksBetween(plan, fromMs, cursorMs);
  const started = new Set<string>();
  for (const { word, atMs, toMs = atMs, count, run } of entries) {
    if (word === "queued") continue;
    if (word === "fired") {
      started.add(run ?? "");
      if (run !== tickRunId(name, atMs)) wrong.push(`"${name}" started ${run} for ${iso(atMs)}`);
      if (!runs.has(run ?? "")) wrong.push(`"${name}" has no run for ${iso(atMs)}`);
    }
    if (atMs <= fromMs) continue;
    const covered = ticks.filter((ms) => ms >= atMs && ms <= toMs);
    if (covered.length !== (count ?? 1)) wrong.push(`"${name}" has ${word} ${count ?? 1} ticks at ${iso(atMs)}`);
    for (const ms of covered) {
      if (decided.has(ms)) wrong.push(`"${name}" decided ${iso(ms)} twice: ${decided.get(ms)}, ${word}`);
      decided.set(ms, word);
    }
  }
  for (const ms of ticks)
    if (decided.has(ms) === waiting.has(ms))
      wrong.push(`"${name}" has not decided ${iso(ms)}, or decided it and it waits`);
  if (runs.size !== fired) wrong.push(`"${name}" counted ${fired} runs, and there are ${runs.size}`);
  if (isWhole)
    for (const run of runs) if (!started.has(run)) wrong.push(`"${name}" has ${run}, which its history does not have`);
  return { decided, wrong };
}

function ticksBetween(plan: ScheduleValue["plan"], afterMs: number, toMs: number): readonly number[] {
  const ticks: number[] = [];
  for (let ms = nextTick(plan, afterMs, nextTime); ms !== undefined && ms <= toMs; ms = nextTick(plan, ms, nextTime))
    ticks.push(ms);
  return ticks;
}

export const iso = (ms: number): string => new Date(ms).toISOString();
