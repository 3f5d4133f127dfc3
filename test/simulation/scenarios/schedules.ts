// Goal: over a year with both changes of the clocks, each tick of a schedule is decided exactly once, whichever process looks: it has started one run, or was
// skipped or missed, and the history says so. Runs of a schedule that must not overlap do not, ticks that wait are started when the run before them ends, and
// none is forgotten (G2, G16, G17, G25).
// Method: four workers declare two schedules, and one is created at run time; they are killed, stand still, and have clocks an hour apart. The store's clock
// is put forward by hours and days, and so passes a year while the workers look every few seconds. Runs sleep longer than the time to the next tick.

import { isPawlError, type Pawl, type Schedule, schedule, workflow } from "../../../src/index.ts";
import { nextTick } from "../../../src/schedule/decide.ts";
import { nextTime } from "../../../src/schedule/times.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { World } from "../../../src/testing/index.ts";
import { hasEnded, RUNS } from "../../../src/workflow/stored.ts";
import { checkTicks, iso, storedSchedule, storedTicks } from "../../schedule/check-ticks.ts";
import { until } from "./transfers.ts";

const HOUR = 3_600_000;
const YEAR = 366 * 24 * HOUR;
const LEASE_MS = 5_000;
const ZONE = "Europe/Berlin";

/** The store's clock begins in November 2023. In Berlin, half past two was not there in March, and twice in October. */
const CHANGES = [
  { day: "2024-03-31", tick: "2024-03-31T01:00:00.000Z" },
  { day: "2024-10-27", tick: "2024-10-27T00:30:00.000Z" },
];

const work = workflow("work", async (ctx, hours: number) => {
  await ctx.sleep(hours * HOUR);
});

export const schedules = {
  name: "each tick is decided once",
  options: { faultsMs: 1_200_000, healMs: 1_800_000 },
  regressions: [164],
  async scenario(world: World): Promise<void> {
    const catchUp = [0, 1, 3][world.random.below(3)] || "none";
    const daily = schedule("daily", { cron: "30 2 * * *", timezone: ZONE, catchUp, jitter: "6 hours" }, work, 20);
    const lined = schedule(
      "lined",
      { every: "36 hours", overlap: { queue: 2 }, catchUp: 2 },
      work,
      ({ scheduledAt }) => (scheduledAt.getTime() % 5 === 0 ? 60 : 30),
    );
    for (const name of ["w1", "w2", "w3", "w4"])
      world.process(
        name,
        async (process) => {
          for (;;) {
            const declared: readonly Schedule[] = process.random() < 0.2 ? [daily] : [daily, lined];
            const worker = process.pawl.work([work, ...declared], { lease: LEASE_MS });
            await process.sleep(process.random() * 600_000);
            await worker.stop({ timeout: 2_000 });
          }
        },
        { service: true },
      );
    let passedMs = 0;
    world.process("calendar", async (process) => {
      const { pawl, random, sleep } = process;
      await until(async () => {
        const options = { cron: "0 0 1,15 * *", timezone: "America/New_York", overlap: "cancel-running" } as const;
        await unless("schedule_exists", () => pawl.schedules.create("fresh", options, work, 500));
      }, process);
      while (passedMs < YEAR) {
        await sleep(5_000 + random() * 3_000);
        const leapMs = Math.floor(random() * (random() < 0.5 ? 12 : 300) * HOUR);
        passedMs += leapMs;
        world.database.jumpClock(leapMs);
      }
      for (const name of NAMES)
        for (let isDone = false; !isDone; await sleep(2_000))
          await until(async () => {
            isDone = await isUpToDate(world, pawl, name);
          }, process);
    });
    await world.finish();
    checkCommits(world);
    const pawl = world.open();
    for (const name of NAMES) await checkYear(world, pawl, name);
    for (const name of ["daily", "lined"]) checkOverlaps(world, name);
  },
};

const NAMES = ["daily", "lined", "fresh"];

async function unless(code: "schedule_exists", act: () => Promise<unknown>): Promise<void> {
  try {
    await act();
  } catch (error) {
    if (!isPawlError(error, code)) throw error;
  }
}

/** Whether nothing is due, and nothing waits for a run that has ended. */
async function isUpToDate(world: World, pawl: Pawl, name: string): Promise<boolean> {
  const { plan, cursorMs, queued = [], active = [] } = await storedSchedule(pawl, name);
  const next = nextTick(plan, cursorMs, nextTime);
  if (next === undefined || next + (plan.jitterMs ?? 0) <= world.database.nowMs()) return false;
  if (queued.length === 0) return true;
  for (const run of active) if (!isOver((await pawl.run(run).status()).status)) return true;
  return false;
}

const isOver = (status: string): boolean => !["pending", "running", "waiting", "parked"].includes(status);

/** Each tick up to the cursor has one entry, and each that fired has its run; clocks were put forward and back once. */
async function checkYear(world: World, pawl: Pawl, name: string): Promise<void> {
  const { decided, wrong } = checkTicks(await storedTicks(pawl, name));
  world.check(wrong.length === 0, wrong.join("; "));
  if (name !== "daily") return;
  for (const { day, tick } of CHANGES) {
    const found = [...decided.keys()].map(iso).filter((one) => one.startsWith(day));
    world.check(found.join() === tick, `"${name}" ticked at ${found.join()} on ${day}`);
  }
}

/**
 * After each commit at most one run of a schedule has not ended. Within a commit the order of its decisions is not visible: one of them may have ended the
 * run before, and the next one started this run.
 */
function checkOverlaps(world: World, name: string): void {
  const alive = new Set<string>();
  for (const { puts } of world.database.commits) {
    for (const { row } of puts) {
      if (row.space !== RUNS || !row.key.startsWith(`${name}/`)) continue;
      if (row.value === null || hasEnded(row)) alive.delete(row.key);
      else alive.add(row.key);
    }
    world.check(alive.size <= 1, `these runs of "${name}" overlapped: ${[...alive].join(", ")}`);
  }
}
