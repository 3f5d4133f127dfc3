/**
 * Many runs that sleep: what they cost while they do, and how late they wake.
 *
 * Method: a process of its own with one worker starts the runs through `pawl.start`, 500 callers at a time. Each runs to its sleep and
 * rests. The sleeps end one after another, evenly over a window, in an order that has nothing to do with that in which the runs were made.
 * When the window begins is reckoned from how fast some runs before them were made; these sleep for a day. The heap is looked at
 * after a collection of garbage, before and after the runs are made. A run is late by the time from the end of its sleep to where the step
 * behind it begins, so the claim and the replay count; those count that come due when all have been made.
 */

import { setTimeout as pause } from "node:timers/promises";
import { workflow } from "../src/index.ts";
import type { Case } from "./comparisons.ts";
import type { Place } from "./ground.ts";
import { openOurs } from "./ours.ts";
import { measureOf, median, type Result, resultOf } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { answerParent, askChild } from "./scale-child.ts";
import { showFigure } from "./table.ts";
import { count, cpuMs, heapMiB } from "./usage.ts";

interface Order {
  readonly place: Place;
  /** Runs that are made before the others, and sleep on. */
  readonly before: number;
  readonly count: number;
  /** The sleeps of the others end within this time. */
  readonly windowMs: number;
  /** How many of them are waited for. */
  readonly awaited: number;
  /** From the reckoned end of the making to the first end of a sleep. */
  readonly marginMs: number;
}

interface Answer {
  readonly madePerSecond: number;
  /** Processor time, which other processes affect little: to create a run, and to wake one. */
  readonly makeCpuMs: number;
  readonly wakeCpuMs: number;
  readonly heapBeforeMiB: number;
  readonly heapMiB: number;
  readonly rssMiB: number;
  /** By how much the making took longer than was estimated; those that came due meanwhile do not count. */
  readonly delayMs: number;
  /** In the order in which they were due. */
  readonly lateMs: readonly number[];
  /** From the first end of a sleep to when the last of the awaited runs resumed. */
  readonly allMs: number;
}

const CALLERS = 500;
const CONCURRENCY = 2000;
const DAY_MS = 24 * 60 * 60 * 1000;
/** Has no factor in common with the number of runs, a power of ten, so that each gets a place of its own. */
const SCATTER = 618_033_989;
/** A sleeping run may leave no more in memory than what cannot be distinguished from noise. */
const FLAT_MEMORY = 1.25;
const FLAT = 1.5;

export const sleepingRuns: Case = { id: "s2", title: "a million runs that sleep", run: measureSleep };
export const wakingRuns: Case = { id: "s3", title: "10,000 runs that wake in one second", run: measureWaking };

async function measureSleep(setting: Setting): Promise<readonly Result[]> {
  const awaited = setting.quick ? 1000 : 10_000;
  const many = setting.quick ? 10_000 : 1_000_000;
  // A run comes due each millisecond, so that the two differ only in how many others sleep.
  const few = await ask(setting, { before: awaited, count: awaited, windowMs: awaited, awaited });
  const all = await ask(setting, { before: awaited, count: many, windowMs: many, awaited });
  const grownBytes = ((all.heapMiB - all.heapBeforeMiB) * 2 ** 20) / many;
  const [fewLate, allLate] = [few, all].map(({ lateMs }) => bySecond(lateMs));
  const details = {
    "heap bytes for each run": grownBytes,
    "runs made in a second": all.madePerSecond,
    "processor's time to make a run, in ms": all.makeCpuMs,
    "processor's time to wake a run, in ms, few": few.wakeCpuMs,
    "processor's time to wake a run, in ms, all": all.wakeCpuMs,
    "resident MiB": all.rssMiB,
    "longest lateness in ms, few": Math.max(...few.lateMs),
    "longest lateness in ms, all": Math.max(...all.lateMs),
  };
  setting.note(
    `s2: ${grownBytes.toFixed(1)} bytes of heap for each sleeping run; ${count(all.madePerSecond)} were made in a second; ` +
      `the latest of the first ${count(awaited)} was late by ${showFigure(Math.max(...all.lateMs), "ms")}.`,
  );
  return [
    resultOf({
      id: "s2a",
      title: `memory with ${count(many)} runs asleep`,
      unit: "MiB",
      base: measureOf(`heap with ${count(awaited)}`, [all.heapBeforeMiB]),
      ours: measureOf("heap with all", [all.heapMiB]),
      target: { is: "at most", ratio: FLAT_MEMORY },
      details,
    }),
    resultOf({
      id: "s2b",
      title: `how late the first ${count(awaited)} wake, 1,000 each second`,
      unit: "ms",
      base: measureOf(`of ${count(awaited * 2)} asleep`, fewLate ?? []),
      ours: measureOf(`of ${count(many)} asleep`, allLate ?? []),
      target: { is: "at most", ratio: FLAT },
      details,
    }),
  ];
}

async function measureWaking(setting: Setting): Promise<readonly Result[]> {
  const total = setting.quick ? 1000 : 10_000;
  const order = { before: 1000, count: total, windowMs: total / 10, awaited: total };
  const answers: Answer[] = [];
  for (let round = 0; round < setting.rounds(3); round++) answers.push(await ask(setting, order));
  const medians = answers.map(({ lateMs }) => median(lateMs));
  const longest = answers.map(({ lateMs }) => Math.max(...lateMs));
  setting.note(
    `s3: of ${count(total)} runs that wake within ${showFigure(order.windowMs, "ms")}, the median is late by ` +
      `${showFigure(median(medians), "ms")}, the latest by ${showFigure(median(longest), "ms")}.`,
  );
  return [
    resultOf({
      id: "s3",
      title: `${count(total)} runs wake at one time`,
      unit: "ms",
      base: measureOf(
        "when they are due",
        answers.map(() => order.windowMs),
      ),
      ours: measureOf(
        "until all went on",
        answers.map(({ allMs }) => allMs),
      ),
      target: null,
      details: {
        "median lateness in ms": median(medians),
        "longest lateness in ms": median(longest),
        "processor's time to wake a run, in ms": median(answers.map(({ wakeCpuMs }) => wakeCpuMs)),
      },
    }),
  ];
}

/** Asks again, with more time, where making the runs took longer than there was. */
async function ask(setting: Setting, order: Omit<Order, "place" | "marginMs">): Promise<Answer> {
  for (const marginMs of setting.quick ? [500, 5000, 30_000] : [3000, 30_000]) {
    const place = await setting.ground.fresh();
    try {
      const answer = await askChild<Order, Answer | null>(import.meta.url, { ...order, place, marginMs });
      if (answer === null) continue;
      if (answer.delayMs > 0)
        setting.note(
          `Making ${count(order.count)} sleeping runs took ${showFigure(answer.delayMs, "ms")} longer than was estimated; ` +
            "those that came due meanwhile were left out.",
        );
      return answer;
    } finally {
      await setting.ground.remove(place);
    }
  }
  throw new Error("creating the runs took so long that none was left to wake");
}

/** The medians of a thousand each. */
function bySecond(lateMs: readonly number[]): readonly number[] {
  return Array.from({ length: Math.ceil(lateMs.length / 1000) }, (_, second) =>
    median(lateMs.slice(second * 1000, (second + 1) * 1000)),
  );
}

// ---------------------------------------------------------------------------------------------- in the other process

if (import.meta.main) answerParent<Order>(work);

const sleeper = workflow("sleeper", async (ctx, untilMs: number) => {
  await ctx.sleepUntil(untilMs);
  await ctx.step("wake", () => woken(untilMs));
});

let woken: (untilMs: number) => void = () => {};

/** Null if the window was over before all were made. */
async function work({ place, before, count, windowMs, awaited, marginMs }: Order): Promise<Answer | null> {
  const { pawl } = await openOurs(place);
  let rested = 0;
  const on = ({ type }: { readonly type: string }): void => {
    if (type === "run.rested") rested += 1;
  };
  // Nothing is kept warm, so that few runs have no easier waking than many.
  pawl.work([sleeper], { concurrency: CONCURRENCY, warm: 0, on });
  // The first ones warm everything up.
  const half = Math.floor(before / 2);
  await make(0, half, () => Date.now() + DAY_MS);
  const startedMs = performance.now();
  await make(half, before, () => Date.now() + DAY_MS);
  const msPerRun = (performance.now() - startedMs) / (before - half);
  const heapBeforeMiB = heapMiB();
  const beganMs = performance.now();
  const beganCpuMs = cpuMs();
  const windowStartsMs = Date.now() + Math.ceil(count * msPerRun * 1.3) + marginMs;
  const untilOf = (index: number): number =>
    windowStartsMs + Math.floor((((index * SCATTER) % count) * windowMs) / count);
  await make(before, before + count, (index) => untilOf(index - before));
  const madePerSecond = (count / (performance.now() - beganMs)) * 1000;
  const makeCpuMs = (cpuMs() - beganCpuMs) / count;
  const memoryMiB = heapMiB();
  const rssMiB = process.memoryUsage().rss / 2 ** 20;
  const delayMs = Math.max(0, Date.now() - windowStartsMs);
  const fromMs = windowStartsMs + delayMs;
  const toMs = fromMs + (awaited * windowMs) / count;
  const isAwaited = (untilMs: number) => untilMs >= fromMs && untilMs < toMs;
  const expected = Array.from({ length: count }, (_, index) => untilOf(index)).filter(isAwaited).length;
  if (expected === 0) return null;
  const awake: [untilMs: number, lateMs: number][] = [];
  const madeCpuMs = cpuMs();
  await new Promise<void>((resolve) => {
    woken = (untilMs) => {
      if (isAwaited(untilMs)) awake.push([untilMs, Date.now() - untilMs]);
      if (awake.length === expected) resolve();
    };
  });
  const wakeCpuMs = (cpuMs() - madeCpuMs) / expected;
  const lateMs = awake.toSorted(([one], [other]) => one - other).map(([, ms]) => ms);
  const allMs = Math.max(...awake.map(([untilMs, ms]) => untilMs + ms)) - fromMs;
  await pawl.close();
  return { madePerSecond, makeCpuMs, wakeCpuMs, heapBeforeMiB, heapMiB: memoryMiB, rssMiB, delayMs, lateMs, allMs };

  /** Resolves when all of them sleep. */
  async function make(from: number, to: number, untilMs: (index: number) => number): Promise<void> {
    let next = from;
    const call = async (): Promise<void> => {
      while (next < to) await pawl.start(sleeper, untilMs(next++));
    };
    await Promise.all(Array.from({ length: CALLERS }, call));
    while (rested < to) await pause(5);
  }
}
