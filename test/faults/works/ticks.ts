/**
 * Ticks: schedules that fire every second or two, declared by all workers or created at run time, while workers are killed, stopped past their leases
 * and have clocks that are hours off.
 *
 * Checked: each tick of each schedule is decided exactly once, and starts at most one run, whose id is that of the tick (G2, G16); there are no
 * other runs; the runs of all but the last ticks have ended (G25); runs that must not overlap do not, in the order in which their facts were
 * committed; and once faults are over, no schedule is late.
 */

import { type Schedule, schedule, type Workflow, workflow } from "../../../src/index.ts";
import type { Pawl } from "../../../src/pawl.ts";
import { scheduleAt } from "../../../src/schedule/stored.ts";
import { ENDED, runAt } from "../../../src/workflow/stored.ts";
import { checkTicks, type StoredTicks, storedSchedule, storedTicks } from "../../schedule/check-ticks.ts";
import type { Bench } from "../bench.ts";
import { LEASE_MS } from "./claims.ts";
import type { Work } from "./work.ts";

const NAME = "ticks";
const CREATED = "ticks-created";
const DECLARED = ["ticks-all", "ticks-skip", "ticks-lined"];
/** Ticks this long before the last decision must have ended runs. */
const ENDS_WITHIN_MS = 20_000;
/** So many ticks of each schedule must have been decided, for the checks to say something; how many there can be depends on how fast the machine is. */
const LEAST = 3;
/** Once faults are over, ticks are decided this soon. */
const LATE_MS = 2_000;

export const ticks: Work = {
  name: NAME,
  healsWithinMs: 3 * LEASE_MS + 5_000 + 8_000,

  async prepare(pawl) {
    await pawl.schedules.create(CREATED, { cron: "* * * * * *", overlap: "allow", catchUp: 1000 }, ticking, 0);
  },

  act: work,

  isCommit: () => false,

  async isHealed(pawl) {
    const nowMs = await pawl.kernel.transact((tx) => tx.nowMs, []);
    for (const name of [CREATED, ...DECLARED]) {
      const [row] = await pawl.kernel.read([scheduleAt(name)]);
      if (row?.dueMs == null || row.dueMs < nowMs - LATE_MS) return false;
    }
    return true;
  },

  async judge(pawl) {
    const wrong: string[] = [];
    for (const name of [CREATED, ...DECLARED]) {
      const stored = await storedTicks(pawl, name);
      const { decided, wrong: found } = checkTicks(stored);
      wrong.push(...found);
      if (decided.size < LEAST) wrong.push(`schedule "${name}" has decided only ${decided.size} ticks`);
      wrong.push(...(await checkRuns(pawl, stored)));
    }
    for (const name of ["ticks-skip", "ticks-lined"]) wrong.push(...(await checkOrder(pawl, name)));
    return { wrong, unknown: 0, happened: null };
  },
};

/** Only its name counts for the schedule that is created at run time. */
const ticking = workflow("ticking", async (_ctx, _napMs: number) => {});

function declared(bench: Bench): { readonly job: Workflow<number, void>; readonly schedules: readonly Schedule[] } {
  const job = workflow<number, void>({ name: "ticking", tries: 1000 }, async (ctx, napMs) => {
    await ctx.step("tick", () => bench.note(NAME, "ticked", { run: ctx.runId }), {
      retry: { attempts: 1000, delay: 10, maxDelay: 300 },
    });
    if (napMs > 0) await ctx.sleep(napMs);
  });
  return {
    job,
    schedules: [
      schedule("ticks-all", { every: "1s", overlap: "allow", catchUp: 1000, jitter: 700 }, job, 0),
      schedule("ticks-skip", { every: "1s", catchUp: "last" }, job, 1_500),
      schedule("ticks-lined", { every: "2s", overlap: { queue: 3 }, catchUp: 5 }, job, ({ scheduledAt }) =>
        scheduledAt.getTime() % 3_000 === 0 ? 4_000 : 500,
      ),
    ],
  };
}

async function work(bench: Bench): Promise<void> {
  const { pawl, random } = bench;
  const { job, schedules } = declared(bench);
  while (!bench.isOver) {
    // Now and then it does not declare all of them.
    const some = bench.isHealing ? schedules : schedules.filter(() => random.chance(0.9));
    const worker = pawl.work([job, ...some], { lease: LEASE_MS, concurrency: 10, on: () => {} });
    const turns = 20 + random.below(200);
    for (let turn = 0; !bench.isOver && (turn < turns || bench.isHealing); turn++) {
      await bench.sleep(50);
      if (bench.isHealing && some.length < schedules.length) break;
    }
    await worker.stop(random.chance(0.5) ? { timeout: 100 } : undefined);
  }
}

/** The runs of all but the last ticks have ended. */
async function checkRuns(pawl: Pawl, { name, entries, value }: StoredTicks): Promise<string[]> {
  const wrong: string[] = [];
  for (const { word, atMs, run } of entries) {
    if (word !== "fired" || run === undefined || atMs > value.cursorMs - ENDS_WITHIN_MS) continue;
    const [row] = await pawl.kernel.read([runAt(run)]);
    if (!ENDED.has(row?.status ?? "")) wrong.push(`${run} of schedule "${name}" is ${row?.status} in the end`);
  }
  return wrong;
}

/** A run of a schedule begins after the one before it has ended, in the order of commits. */
async function checkOrder(pawl: Pawl, name: string): Promise<string[]> {
  const { after } = await storedSchedule(pawl, name);
  const runs: string[] = [];
  for await (const { name: word, data } of pawl.kernel.entriesAfter(scheduleAt(name), after)) {
    const { run } = pawl.kernel.decode(scheduleAt(name), data) as { run?: string };
    if (word === "fired" && run !== undefined) runs.push(run);
  }
  const wrong: string[] = [];
  let before: { readonly run: string; readonly to: number } | undefined;
  for (const run of runs) {
    const entries = await pawl.kernel.entries(runAt(run), 0, 1000);
    const [row] = await pawl.kernel.read([runAt(run)]);
    const from = entries[0]?.position ?? 0;
    if (before !== undefined && from <= before.to) wrong.push(`${run} began before ${before.run} had ended`);
    before = { run, to: ENDED.has(row?.status ?? "") ? (entries.at(-1)?.position ?? 0) : Number.POSITIVE_INFINITY };
  }
  return wrong;
}
