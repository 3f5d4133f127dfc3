/**
 * Many schedules: how late they are when all of them fire in the same second, and what they cost while they sleep.
 *
 * Method: a process of its own with one worker creates the schedules through `pawl.schedules.create`, 500 callers at a time.
 *
 * s9a: 10,000 cron expressions name one second, which is reckoned from how fast some schedules before them were created. A schedule is late by the time
 *      from its tick to where the step of its run begins, so the decision, the claim of the run and its first commit count. Every schedule must have started
 *      exactly one run.
 * s9b: a million that do not fire soon: the heap after collections of garbage, while they are created.
 */

import { setTimeout as pause } from "node:timers/promises";
import { type Pawl, workflow } from "../src/index.ts";
import { atMost, type Case } from "./comparisons.ts";
import type { Place } from "./ground.ts";
import { openOurs } from "./ours.ts";
import { type Measure, measureOf, median, type Result, resultOf } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { answerParent, askChild } from "./scale-child.ts";
import { showFigure } from "./table.ts";
import { count, cpuMs, type Heap, heapWhile, percentile } from "./usage.ts";

type Order = { readonly place: Place } & (
  | { readonly is: "fire"; readonly count: number; readonly before: number; readonly marginMs: number }
  | { readonly is: "sleep"; readonly count: number }
);

interface Fired {
  readonly lateMs: readonly number[];
  readonly cpuMs: number;
}

interface Slept {
  readonly heap: Heap;
  readonly rssMiB: number;
  readonly createCpuMs: number;
  readonly perSecond: number;
}

const SECOND_MS = 1000;
const DAY_MS = 86_400_000;
const FLAT_MEMORY = 1.25;
const ROUNDS = 3;

export const firingSchedules: Case = {
  id: "s9a",
  title: "10,000 schedules that fire in one second",
  run: measureFiring,
};
export const sleepingSchedules: Case = { id: "s9b", title: "a million schedules that sleep", run: measureSleep };

async function measureFiring(setting: Setting): Promise<readonly Result[]> {
  const total = setting.quick ? 500 : 10_000;
  const rounds: Fired[] = [];
  for (let round = 0; round < setting.rounds(ROUNDS); round++) rounds.push(await fireAll(setting, total));
  const measured = (name: string, figure: (lateMs: readonly number[]) => number): Measure =>
    measureOf(
      name,
      rounds.map(({ lateMs }) => figure(lateMs)),
    );
  const half = measured("half of them", median);
  const most = measured("99 of 100", (lateMs) => percentile(lateMs, 0.99));
  const last = measured("the last", (lateMs) => Math.max(...lateMs));
  const cpu = median(rounds.map((one) => one.cpuMs / total));
  setting.note(
    `s9a: all of ${count(total)} schedules started their runs; half were late by up to ${showFigure(half.median, "ms")}, 99 of 100 by up to ` +
      `${showFigure(most.median, "ms")}, the last by ${showFigure(last.median, "ms")}; ${showFigure(cpu, "ms")} of processor time for each.`,
  );
  return [
    resultOf({
      id: "s9a",
      title: `${count(total)} schedules fire in one second: lateness`,
      unit: "ms",
      base: half,
      ours: last,
      target: null,
      details: { "99 of 100, in ms": most.median, "processor's time of a tick and its run, in ms": cpu },
    }),
  ];
}

/** Again with more time, where creating them took longer than there was. */
async function fireAll(setting: Setting, total: number): Promise<Fired> {
  for (const marginMs of setting.quick ? [200, 3000, 30_000] : [5000, 60_000]) {
    const order = { is: "fire", count: total, before: Math.ceil(total / 10), marginMs } as const;
    const fired = await ask<Fired | null>(setting, order);
    if (fired !== null) return fired;
  }
  throw new Error("creating the schedules took so long that their time had passed");
}

async function measureSleep(setting: Setting): Promise<readonly Result[]> {
  const total = setting.quick ? 2000 : 1_000_000;
  const slept = await ask<Slept>(setting, { is: "sleep", count: total });
  const { heap } = slept;
  setting.note(
    `s9b: ${heap.bytesEach.toFixed(1)} bytes of heap for each of ${count(total)} sleeping schedules; ${count(slept.perSecond)} were created in a second, with ` +
      `${showFigure(slept.createCpuMs, "ms")} of processor time each.`,
  );
  return [
    resultOf({
      id: "s9b",
      title: `memory with ${count(total)} schedules asleep`,
      unit: "MiB",
      base: measureOf("heap, first quarter", heap.firstMiB),
      ours: measureOf("heap, after it", heap.thenMiB),
      target: atMost(FLAT_MEMORY),
      details: {
        "heap bytes for each schedule": heap.bytesEach,
        "created in a second": slept.perSecond,
        "processor's time to create one, in ms": slept.createCpuMs,
        "resident MiB": slept.rssMiB,
      },
    }),
  ];
}

type Asked = Order extends infer O ? (O extends unknown ? Omit<O, "place"> : never) : never;

async function ask<Answer>({ ground }: Setting, order: Asked): Promise<Answer> {
  const place = await ground.fresh();
  try {
    return await askChild<Order, Answer>(import.meta.url, { ...order, place });
  } finally {
    await ground.remove(place);
  }
}

// ---------------------------------------------------------------------------------------------- in the other process

if (import.meta.main) answerParent<Order>(work);

async function work(order: Order): Promise<unknown> {
  const { pawl } = await openOurs(order.place);
  try {
    return await (order.is === "fire" ? fire(pawl, order) : sleep(pawl, order));
  } finally {
    await pawl.close();
  }
}

const CALLERS = 500;
const CONCURRENCY = 2000;

async function createAll(pawl: Pawl, from: number, to: number, cron: string): Promise<void> {
  let next = from;
  const call = async (): Promise<void> => {
    while (next < to) await pawl.schedules.create(nameOf(next++), { cron }, report);
  };
  await Promise.all(Array.from({ length: CALLERS }, call));
}

const nameOf = (index: number): string => `report/${String(index).padStart(7, "0")}`;

let begun: (run: string, lateMs: number) => void = () => {};

const report = workflow("report", async (ctx) => {
  await ctx.step("send", () => begun(ctx.runId, Date.now() - (ctx.scheduledAt?.getTime() ?? Number.NaN)));
});

/** Not today. */
const notSoon = (): string => {
  const day = new Date(Date.now() + 2 * DAY_MS);
  return `0 8 ${day.getUTCDate()} ${day.getUTCMonth() + 1} *`;
};

/** Null if the time had passed before all were created. */
async function fire(pawl: Pawl, { count, before, marginMs }: Extract<Order, { is: "fire" }>): Promise<Fired | null> {
  pawl.work([report], { concurrency: CONCURRENCY });
  const startedMs = performance.now();
  await createAll(pawl, count, count + before, notSoon());
  const msEach = (performance.now() - startedMs) / before;
  const tickMs = Math.ceil((Date.now() + 1.3 * count * msEach + marginMs) / SECOND_MS) * SECOND_MS;
  const tick = new Date(tickMs);
  const fields = [
    tick.getUTCSeconds(),
    tick.getUTCMinutes(),
    tick.getUTCHours(),
    tick.getUTCDate(),
    tick.getUTCMonth() + 1,
  ];
  const lateMs = new Map<string, number>();
  const all = new Promise<void>((resolve) => {
    begun = (run, ms) => {
      lateMs.set(run, ms);
      if (lateMs.size === count) resolve();
    };
  });
  await createAll(pawl, 0, count, [...fields, "*"].join(" "));
  if (Date.now() > tickMs - 100) return null;
  await pause(tickMs - Date.now() - 50);
  const beforeCpuMs = cpuMs();
  await all;
  const usedMs = cpuMs() - beforeCpuMs;
  const isOfTick = (run: string) => run.endsWith(tick.toISOString());
  if (![...lateMs.keys()].every(isOfTick)) throw new Error("a run is of another time");
  const { schedules } = await pawl.schedules.list({ prefix: "report/", limit: 1000 });
  const wrong = schedules.find(({ name, fired, missed, skipped }) => {
    const isFired = name < nameOf(count);
    return fired !== (isFired ? 1 : 0) || missed !== 0 || skipped !== 0;
  });
  if (wrong !== undefined) throw new Error(`schedule ${wrong.name} has fired ${wrong.fired} times`);
  return { lateMs: [...lateMs.values()], cpuMs: usedMs };
}

async function sleep(pawl: Pawl, { count }: Extract<Order, { is: "sleep" }>): Promise<Slept> {
  pawl.work([report], { concurrency: CONCURRENCY });
  const cron = notSoon();
  let made = 0;
  let [ms, usedMs] = [0, 0];
  const heap = await heapWhile(count, async (more) => {
    const [startedMs, startedCpuMs] = [performance.now(), cpuMs()];
    await createAll(pawl, made, made + more, cron);
    made += more;
    ms += performance.now() - startedMs;
    usedMs += cpuMs() - startedCpuMs;
  });
  const rssMiB = process.memoryUsage().rss / 2 ** 20;
  return { heap, rssMiB, createCpuMs: usedMs / count, perSecond: (count / ms) * 1000 };
}
