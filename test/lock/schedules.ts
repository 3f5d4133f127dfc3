/**
 * Random schedules of runs that take locks, many at once, in two processes on one database in memory.
 *
 * A schedule is a few runs and a few locks that are nobody else's: mutexes, semaphores, reader-writer locks. Each run takes some of them, one
 * inside the other, and does something in between: a step, a sleep, a child that goes on in its place, two branches at once. In one order
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

/** One lock to take, how, and what to do while it is held, before what comes after it. */
export interface Stage {
  readonly lock: string;
  /** Another mutex that is wanted together with it. */
  readonly also?: string;
  readonly sort: Sort;
  readonly permits: number;
  /** How it is asked for: `with`, tried first and then waited for, or kept until the run ends. */
  readonly how: "with" | "tried" | "kept";
  readonly then: "nothing" | "step" | "sleep" | "child" | "branches";
}

export interface Schedule {
  readonly seed: number;
  readonly runs: readonly (readonly Stage[])[];
}

export interface Told {
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
    return chosen.map(({ lock, kind, permits }): Stage => {
      const sort = kind === "rwlock" ? pick(["read", "read", "write"] as const) : kind;
      const how = pick(["with", "with", "with", "tried", "kept"] as const);
      const then = pick(["nothing", "nothing", "step", "step", "sleep", "child", "branches"] as const);
      const stage: Stage = { lock, sort, permits, how, then };
      // Whoever wants two together waits for both in no order, and stands in the way of others meanwhile: that can make a circle.
      const others = locks.filter((one) => one.kind === "mutex" && !chosen.includes(one));
      if (isInOrder || sort !== "mutex" || others.length === 0 || !random.chance(0.5)) return stage;
      return { ...stage, also: pick(others).lock };
    });
  });
  if (!isInOrder) return { seed, runs };
  // Whoever has the innermost waits for nothing more, so these may also be wanted together.
  const innermost = runs.map((stages): readonly Stage[] => {
    const [lock = "", also = ""] = pick([["p"], ["q"], ["p", "q"], ["q", "p"], []] as const).map(
      (name) => `${seed}.${name}`,
    );
    if (lock === "") return stages;
    const how = pick(["with", "tried", "kept"] as const);
    const then = pick(["nothing", "step"] as const);
    const stage: Stage = { lock, sort: "mutex", permits: 1, how, then };
    return [...stages, also === "" ? stage : { ...stage, also }];
  });
  return { seed, runs: innermost };
}

/** Two processes that work on schedules. */
export class Theatre {
  readonly #pawls: readonly Pawl[];
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = new Random(seed);
    const database = new MemoryDatabase(wallMs);
    const { clock, chance, bodies } = nodePorts;
    this.#pawls = [1, 2].map(() =>
      pawlOn(this.#delayed(database.connect("test")), { clock, chance, bodies }, { namespace: "test" }),
    );
    for (const pawl of this.#pawls) pawl.work([walker], { concurrency: 1000 });
  }

  #delayed(store: Store): Store {
    const commit = store.commit.bind(store);
    store.commit = async (batch) => {
      for (let turns = this.#random.below(4); turns > 0; turns--) await turn();
      return commit(batch);
    };
    return store;
  }

  /** Lets all of them run at once, and answers how their runs ended. */
  play(schedules: readonly Schedule[]): Promise<readonly Told[]> {
    return Promise.all(
      schedules.map(async ({ seed, runs }) => {
        const ends = runs.map(async (stages, index) => {
          const pawl = this.#pawls[this.#random.below(2)];
          const run = await pawl?.start(walker, stages, { id: `${seed}/${index}` });
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

const walker = workflow("walker", async (ctx: Context, stages: readonly Stage[]) => {
  try {
    await walk(ctx, stages, true);
    return "done";
  } catch (error) {
    if (error instanceof DeadlockError) return `deadlock: ${error.message}`;
    throw error;
  }
});

/** In a branch nothing is kept until the end: the other branch might wait for it. */
async function walk(ctx: Context, stages: readonly Stage[], mayKeep: boolean): Promise<void> {
  const [stage, ...rest] = stages;
  if (stage === undefined) return;
  const lock = lockOf(ctx, stage);
  if (stage.how === "with" || !mayKeep) return lock.with(() => go(ctx, stage, rest, mayKeep));
  if (stage.how === "kept") await lock.acquire();
  else {
    const entered = await lock.enqueue();
    if (!entered.granted) await entered.place.acquire();
  }
  return go(ctx, stage, rest, mayKeep);
}

async function go(ctx: Context, { lock, then }: Stage, rest: readonly Stage[], mayKeep: boolean): Promise<void> {
  switch (then) {
    case "nothing":
      return walk(ctx, rest, mayKeep);
    case "step":
      await ctx.step(`with ${lock}`, () => turn(), { id: String(rest.length) });
      return walk(ctx, rest, mayKeep);
    case "sleep":
      await ctx.sleep(1);
      return walk(ctx, rest, mayKeep);
    case "child": {
      const told = await ctx.call(walker, rest);
      if (told !== "done") throw new DeadlockError(lock, []);
      return;
    }
    case "branches": {
      const halves = [rest.filter((_, n) => n % 2 === 0), rest.filter((_, n) => n % 2 === 1)];
      const ends = await Promise.allSettled(halves.map((half) => walk(ctx, half, false)));
      for (const end of ends) if (end.status === "rejected") throw end.reason;
    }
  }
}

function lockOf(ctx: Context, { lock, also, sort, permits }: Stage): RunLock {
  if (sort === "mutex") return ctx.mutex(also === undefined ? lock : [lock, also]);
  if (sort === "semaphore") return ctx.semaphore(lock, { permits });
  return ctx.rwlock(lock)[sort];
}

/** A store in memory looks at all of its rows when it looks for what is due, so it is left while it is small. */
const AT_ONCE = 25;

/** Plays the schedules of these seeds; returns how many runs they had, and how those ended that were not done. */
export async function playSchedules(options: {
  readonly isInOrder: boolean;
  readonly first: number;
  readonly last: number;
}): Promise<{ readonly runs: number; readonly told: string[] }> {
  const { isInOrder, last } = options;
  const told: string[] = [];
  let runs = 0;
  for (let { first } = options; first <= last; first += AT_ONCE) {
    const theatre = new Theatre(first);
    const size = Math.min(AT_ONCE, last - first + 1);
    const schedules = Array.from({ length: size }, (_, n) => drawSchedule(first + n, { isInOrder }));
    for (const { seed, ends } of await theatre.play(schedules)) {
      runs += ends.length;
      told.push(...ends.filter((end) => end !== "done").map((end) => `seed ${seed}: ${end}`));
    }
    await theatre.close();
  }
  return { runs, told };
}
