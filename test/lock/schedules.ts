/**
 * Random schedules of runs that acquire locks, many concurrently, in two processes on one database in memory.
 *
 * A schedule is a few runs and a few locks of its own: mutexes, semaphores, reader-writer locks. Each run acquires some of them, one
 * inside the other, and does something in between: a step, a sleep, a child that continues in its place, two concurrent branches. In one order
 * there is no circle, whatever happens when; in any order there may be. When anything happens is drawn too: each commit is held up for a few
 * turns of the event loop.
 */

import { setImmediate as turn } from "node:timers/promises";
import { type Context, DeadlockError, type Pawl, type RunLock, workflow } from "../../src/index.ts";
import type { Store } from "../../src/kernel/contract.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { Random } from "../../src/testing/sim/random.ts";

type Sort = "mutex" | "semaphore" | "read" | "write";

/** One lock to acquire, how, and what to do while it is held, before what comes after it. */
export interface LockStep {
  readonly lock: string;
  /** Another mutex that is requested together with it. */
  readonly also?: string;
  readonly sort: Sort;
  readonly permits: number;
  /** How it is requested: `with`, tried first and then waited for, or kept until the run ends. */
  readonly how: "with" | "tried" | "kept";
  readonly then: "nothing" | "step" | "sleep" | "child" | "branches";
}

export interface Schedule {
  readonly seed: number;
  readonly runs: readonly (readonly LockStep[])[];
}

export interface Ended {
  readonly seed: number;
  readonly ends: readonly string[];
}

const ORDERED = { isInOrder: true };

/** What the runs of a schedule do; the same for the same seed. */
export function drawSchedule(seed: number, { isInOrder } = ORDERED): Schedule {
  const random = new Random(seed);
  const pick = <T>(of: readonly T[]): T => of[random.below(of.length)] as T;
  const locks = Array.from({ length: 2 + random.below(3) }, (_, n) => ({
    lock: `${seed}.${n}`,
    kind: pick(["mutex", "mutex", "semaphore", "rwlock"] as const),
    permits: 1 + random.below(2),
  }));
  const runs = Array.from({ length: 2 + random.below(3) }, () => {
    const chosen = locks.filter(() => random.chance(0.75));
    if (!isInOrder) chosen.sort(() => random.unit() - 0.5);
    return chosen.map(({ lock, kind, permits }): LockStep => {
      const sort = kind === "rwlock" ? pick(["read", "read", "write"] as const) : kind;
      const how = pick(["with", "with", "with", "tried", "kept"] as const);
      const then = pick(["nothing", "nothing", "step", "step", "sleep", "child", "branches"] as const);
      const step: LockStep = { lock, sort, permits, how, then };
      // A request for two together waits for both in no order, and blocks others meanwhile: that can make a circle.
      const others = locks.filter((one) => one.kind === "mutex" && !chosen.includes(one));
      if (isInOrder || sort !== "mutex" || others.length === 0 || !random.chance(0.5)) return step;
      return { ...step, also: pick(others).lock };
    });
  });
  if (!isInOrder) return { seed, runs };
  // A holder of the innermost waits for nothing more, so these may also be requested together.
  const innermost = runs.map((steps): readonly LockStep[] => {
    const [lock = "", also = ""] = pick([["p"], ["q"], ["p", "q"], ["q", "p"], []] as const).map(
      (name) => `${seed}.${name}`,
    );
    if (lock === "") return steps;
    const how = pick(["with", "tried", "kept"] as const);
    const then = pick(["nothing", "step"] as const);
    const step: LockStep = { lock, sort: "mutex", permits: 1, how, then };
    return [...steps, also === "" ? step : { ...step, also }];
  });
  return { seed, runs: innermost };
}

/** Two processes that work on schedules. */
export class Workers {
  readonly #pawls: readonly Pawl[];
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = new Random(seed);
    const database = new MemoryDatabase(wallMs);
    const { clock, chance, bodies } = nodePorts;
    this.#pawls = [1, 2].map(() =>
      pawlOn(this.#delayed(database.connect("test")), { clock, chance, bodies }, { namespace: "test" }),
    );
    for (const pawl of this.#pawls) pawl.work([locker], { concurrency: 1000 });
  }

  #delayed(store: Store): Store {
    const commit = store.commit.bind(store);
    store.commit = async (batch) => {
      for (let turns = this.#random.below(4); turns > 0; turns--) await turn();
      return commit(batch);
    };
    return store;
  }

  /** Runs all of them concurrently, and returns how their runs ended. */
  run(schedules: readonly Schedule[]): Promise<readonly Ended[]> {
    return Promise.all(
      schedules.map(async ({ seed, runs }) => {
        const ends = runs.map(async (steps, index) => {
          const pawl = this.#pawls[this.#random.below(2)];
          const run = await pawl?.start(locker, steps, { id: `${seed}/${index}` });
          return run === undefined ? "" : this.#endOf(run.result({ timeout: "20s" }));
        });
        return { seed, ends: await Promise.all(ends) };
      }),
    );
  }

  async #endOf(result: Promise<string>): Promise<string> {
    try {
      return await result;
    } catch (error) {
      return String(error instanceof Error && error.cause !== undefined ? error.cause : error);
    }
  }

  async close(): Promise<void> {
    for (const pawl of this.#pawls) await pawl.close();
  }
}

const locker = workflow("locker", async (ctx: Context, steps: readonly LockStep[]) => {
  try {
    await acquireAll(ctx, steps, true);
    return "done";
  } catch (error) {
    if (error instanceof DeadlockError) return `deadlock: ${error.message}`;
    throw error;
  }
});

/** In a branch nothing is kept until the end: the other branch might wait for it. */
async function acquireAll(ctx: Context, steps: readonly LockStep[], mayKeep: boolean): Promise<void> {
  const [step, ...rest] = steps;
  if (step === undefined) return;
  const lock = lockOf(ctx, step);
  if (step.how === "with" || !mayKeep) return lock.with(() => go(ctx, step, rest, mayKeep));
  if (step.how === "kept") await lock.acquire();
  else {
    const entered = await lock.enqueue();
    if (!entered.granted) await entered.place.acquire();
  }
  return go(ctx, step, rest, mayKeep);
}

async function go(ctx: Context, { lock, then }: LockStep, rest: readonly LockStep[], mayKeep: boolean): Promise<void> {
  switch (then) {
    case "nothing":
      return acquireAll(ctx, rest, mayKeep);
    case "step":
      await ctx.step(`with ${lock}`, () => turn(), { id: String(rest.length) });
      return acquireAll(ctx, rest, mayKeep);
    case "sleep":
      await ctx.sleep(1);
      return acquireAll(ctx, rest, mayKeep);
    case "child": {
      const end = await ctx.call(locker, rest);
      if (end !== "done") throw new DeadlockError(lock, []);
      return;
    }
    case "branches": {
      const halves = [rest.filter((_, n) => n % 2 === 0), rest.filter((_, n) => n % 2 === 1)];
      const ends = await Promise.allSettled(halves.map((half) => acquireAll(ctx, half, false)));
      for (const end of ends) if (end.status === "rejected") throw end.reason;
    }
  }
}

function lockOf(ctx: Context, { lock, also, sort, permits }: LockStep): RunLock {
  if (sort === "mutex") return ctx.mutex(also === undefined ? lock : [lock, also]);
  if (sort === "semaphore") return ctx.semaphore(lock, { permits });
  return ctx.rwlock(lock)[sort];
}

/** A store in memory scans all of its rows for what is due, so it is replaced while it is small. */
const AT_ONCE = 25;

/** Runs the schedules of these seeds; returns how many runs they had, and how those ended that did not complete. */
export async function runSchedules(options: {
  readonly isInOrder: boolean;
  readonly first: number;
  readonly last: number;
}): Promise<{ readonly runs: number; readonly failed: string[] }> {
  const { isInOrder, last } = options;
  const failed: string[] = [];
  let runs = 0;
  for (let { first } = options; first <= last; first += AT_ONCE) {
    const workers = new Workers(first);
    const size = Math.min(AT_ONCE, last - first + 1);
    const schedules = Array.from({ length: size }, (_, n) => drawSchedule(first + n, { isInOrder }));
    for (const { seed, ends } of await workers.run(schedules)) {
      runs += ends.length;
      failed.push(...ends.filter((end) => end !== "done").map((end) => `seed ${seed}: ${end}`));
    }
    await workers.close();
  }
  return { runs, failed };
}
