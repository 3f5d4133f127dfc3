// Goal: a lock has as many holders as fit, in the order of arrival; fences rise with every grant and every take-over; a dead holder or
// waiter blocks nobody for longer than its lease; a run that ends gives everything back in the same commit; and circles of runs are
// found, and nothing else is taken for one (G6, G7, G8, G9, G30).
// Method: plain code and runs want the same mutex, semaphore, reader-writer lock and pairs of locks, fall asleep for longer than their leases,
// crash, and are canceled. What the lock protects is outside, refuses old fences, and remembers who came with which.

import {
  type Context,
  DeadlockError,
  type Lock,
  LockBusyError,
  LockLostError,
  LockRemovedError,
  LockTimeoutError,
  PawlError,
  type RunLock,
  type RunLockHold,
  StoreError,
  workflow,
} from "../../../src/index.ts";
import { checkLocks } from "../../../src/testing/checkers/locks.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";
import { insist, isService, LEASE_MS, type Place, Stage } from "./workflows-stage.ts";

const RETRY = { attempts: 20, backoff: { first: 100, factor: 2, longest: 5_000 } } as const;

interface Visit {
  readonly lock: string;
  readonly fence: number;
  readonly by: string;
  /** Which claim of its run the visitor works under; 0 for plain code. */
  readonly claim: number;
}

/** What locks protect. It knows who came with which fence. */
class Vault {
  readonly #world: World;
  readonly #visits: Visit[] = [];

  constructor(world: World) {
    this.#world = world;
  }

  visit(visit: Omit<Visit, "claim">, worker?: string): void {
    this.#visits.push({ ...visit, claim: worker === undefined ? 0 : this.#claimOf(visit.by, worker) });
  }

  /** The newest claim of the run by this worker. */
  #claimOf(run: string, by: string): number {
    for (const { puts } of this.#world.database.commits.toReversed())
      for (const { row } of puts) if (row.space === "run" && row.key === run && row.holder === by) return row.fence;
    return 0;
  }

  /** Nobody had the fence of another; and after a take-over, a run comes with a newer one than before. */
  check(): void {
    const takenOver = this.#takeOvers();
    for (const [index, { lock, fence, by, claim }] of this.#visits.entries())
      for (const earlier of this.#visits.slice(0, index)) {
        if (earlier.lock !== lock) continue;
        const both = `${lock}: ${earlier.by} came with fence ${earlier.fence} and ${by} with ${fence}`;
        this.#world.check(earlier.fence !== fence || earlier.by === by, both);
        if (earlier.by !== by || claim <= earlier.claim) continue;
        const isTakenOver = takenOver.some((one) => one.run === by && one.claim > earlier.claim && one.claim <= claim);
        this.#world.check(!isTakenOver || fence > earlier.fence, `${both}, after a take-over`);
      }
  }

  /** Claims of a run whose worker had not come to rest. Whose release was forced holds nothing, whatever it comes with. */
  #takeOvers(): { readonly run: string; readonly claim: number }[] {
    const { commits } = this.#world.database;
    if (commits.some(({ puts }) => puts.some(({ entries }) => entries.some(({ name }) => name === "forced"))))
      return [];
    return this.#world.database.commits.flatMap(({ puts }) =>
      puts.flatMap(({ was, row }) =>
        row.space === "run" && row.holder !== null && row.fence > (was?.fence ?? 0) && row.tries > 1
          ? [{ run: row.key, claim: row.fence }]
          : [],
      ),
    );
  }
}

const ends = (error: unknown): boolean =>
  error instanceof LockTimeoutError ||
  error instanceof LockLostError ||
  error instanceof LockRemovedError ||
  error instanceof LockBusyError;

export const locks = {
  name: "one holder at a time, in the order of arrival",
  async scenario(world: World): Promise<void> {
    const vault = new Vault(world);
    const stage = new Stage(world, (place) => [keeper(stage, vault, place)]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    const RUNS = ["r1", "r2", "r3", "r4"];
    for (const name of ["p1", "p2", "p3"])
      world.process(name, async (process) => {
        const { pawl } = process;
        const all: readonly [string, Lock][] = [
          ["m", pawl.mutex("m", { lease: LEASE_MS })],
          ["s", pawl.semaphore("s", { permits: 2, lease: LEASE_MS })],
          ["rw", pawl.rwlock("rw", { lease: LEASE_MS }).read],
          ["rw", pawl.rwlock("rw", { lease: LEASE_MS }).write],
          ["m+n", pawl.mutex(["n", "m"], { lease: LEASE_MS })],
        ];
        for (let turn = 0; turn < 3; turn++) {
          const [lock, handle] = all[Math.floor(process.random() * all.length)] as [string, Lock];
          await until(() => useOnce(process, vault, lock, handle, `${name}#${process.incarnation}.${turn}`), process);
        }
      });
    world.process("c1", async (process) => {
      for (const [index, id] of RUNS.entries())
        await until(async () => void (await process.pawl.start("keeper", index, { id })), process);
      if (process.random() < 0.5) {
        await process.sleep(process.random() * 20_000);
        await insist(process, () => process.pawl.run("keeper", "r2").cancel());
      }
      for (const id of RUNS) await stage.outcome(process, "keeper", id);
    });
    // Somebody who intervenes.
    if (world.random.chance(0.3))
      world.process("operator", async ({ pawl, sleep, random }) => {
        await sleep(random() * 30_000);
        try {
          await pawl.mutex("m").forceRelease({ by: "operator", reason: "test" });
          const { waiters } = await pawl.mutex("m").inspect();
          const ticket = waiters.find(({ run }) => run === null)?.ticket;
          if (ticket !== undefined) await pawl.mutex("m").removeWaiter(ticket, { by: "operator", reason: "test" });
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
        }
      });
    await world.finish();
    await stage.check(240_000);
    checkLocks(world);
    vault.check();
  },
};

/** Takes the lock, uses what it protects, sometimes for too long, and gives it back, sometimes not. */
async function useOnce(process: Process, vault: Vault, lock: string, handle: Lock, by: string): Promise<void> {
  const { random, sleep } = process;
  try {
    const kind = random();
    if (kind < 0.5)
      await handle.with(async ({ fence }) => visit(process, vault, lock, fence, by), {
        by,
        ...(random() < 0.3 ? { timeout: 20_000 } : {}),
      });
    else if (kind < 0.8) {
      const tried = await handle.tryAcquire({ by });
      if (!tried.ok && random() < 0.4) {
        await sleep(random() * 5_000);
        await tried.waiter?.leave();
        return;
      }
      const hold = tried.ok ? tried.hold : await tried.waiter?.acquire();
      if (hold === undefined) return;
      await visit(process, vault, lock, hold.fence, by);
      await hold.release();
      await hold.release();
    } else {
      // Never given back: the lease is what frees it, when the process ends.
      const hold = await handle.acquire({ by });
      await visit(process, vault, lock, hold.fence, by);
      if (random() < 0.5) await hold.release();
      else await process.pawl.transact((tx) => tx.lock(handle).release(hold));
    }
  } catch (error) {
    if (!ends(error) && !isService(error)) throw error;
  }
}

async function visit(process: Process, vault: Vault, lock: string, fence: number, by: string): Promise<void> {
  const { random, sleep } = process;
  if (random() < 0.3) await sleep(random() * 2.5 * LEASE_MS);
  vault.visit({ lock, fence, by });
  if (random() < 0.3) await sleep(random() * 2_000);
}

const keeper = (stage: Stage, vault: Vault, place: Place) =>
  workflow("keeper", async (ctx: Context, index: number) => {
    const lock: readonly [string, RunLock] = [
      ["m", ctx.mutex("m")] as const,
      ["s", ctx.semaphore("s", { permits: 2 })] as const,
      ["rw", ctx.rwlock("rw").write] as const,
      ["m+n", ctx.mutex(["m", "n"])] as const,
    ][index % 4] ?? ["m", ctx.mutex("m")];
    const use = async ({ fence }: RunLockHold, name: string, of = lock[0]): Promise<void> => {
      await ctx.step(
        name,
        (step) => {
          vault.visit({ lock: of, fence, by: ctx.runId }, place.by());
          return stage.act(place, ctx.runId, name, step);
        },
        { retry: RETRY },
      );
    };
    try {
      await lock[1].with(
        async (hold) => {
          await use(hold, "first");
          await ctx.sleep(2_000);
          await use(hold, "second");
        },
        { timeout: 600_000 },
      );
      const tried = await ctx.mutex("n").tryAcquire();
      if (tried.ok) await tried.hold.release();
      else if (index % 2 === 0) await tried.waiter?.leave();
      else {
        const hold = await tried.waiter?.acquire({ timeout: 60_000 });
        if (hold !== undefined) await use(hold, "third", "n");
        await hold?.release();
      }
    } catch (error) {
      if (!ends(error)) throw error;
      return error instanceof PawlError ? error.code : "lost";
    }
    // What it holds when it ends is given back by its end.
    if (index === 3) await ctx.mutex("left").acquire();
    return "done";
  });

export const circles = {
  name: "runs that wait for each other are told, and others are not",
  async scenario(world: World): Promise<void> {
    const isCircle = world.random.chance(0.5);
    const count = 2 + world.random.below(3);
    const sorts = Array.from({ length: count }, () => world.random.below(3));
    const stage = new Stage(world, (place) => [grabber(stage, place, sorts), elder(stage, place), younger()]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    const ids = Array.from({ length: count }, (_, i) => `g${i}`);
    world.process("c1", async (process) => {
      for (const [i, id] of ids.entries()) {
        const next = (i + 1) % count;
        // In one order there is no circle; around, there may be one.
        const order = isCircle || i < next ? [i, next] : [next, i];
        await until(async () => void (await process.pawl.start("grabber", order, { id })), process);
      }
      await until(async () => void (await process.pawl.start("elder", isCircle, { id: "elder" })), process);
      for (const id of ids) await stage.outcome(process, "grabber", id);
      await stage.outcome(process, "elder", "elder");
    });
    await world.finish();
    await stage.check(240_000);
    checkLocks(world);
    const told = (id: string): string => [...(stage.told.get(id) ?? [])][0] ?? "";
    const deadlocks = ids.filter((id) => told(id).includes("deadlock"));
    if (!isCircle) world.check(deadlocks.length === 0, `a circle was seen where there is none: ${deadlocks.join()}`);
    world.check(deadlocks.length < count, "everybody gave up");
    for (const id of ids) world.check(/^completed "(done|deadlock)"$/.test(told(id)), `${id} ended with ${told(id)}`);
    world.check(told("elder").includes(isCircle ? "deadlock" : "child done"), `the elder ended with ${told("elder")}`);
  },
};

const grabber = (stage: Stage, place: Place, sorts: readonly number[]) =>
  workflow("grabber", async (ctx: Context, order: readonly number[]) => {
    const lockOf = (n: number): RunLock => {
      const sort = sorts[n] ?? 0;
      if (sort === 0) return ctx.mutex(`l${n}`);
      return sort === 1 ? ctx.semaphore(`l${n}`) : ctx.rwlock(`l${n}`).write;
    };
    const [first = 0, second = 0] = order;
    try {
      return await lockOf(first).with(async () => {
        await ctx.step("between", (step) => stage.act(place, ctx.runId, "between", step), { retry: RETRY });
        return lockOf(second).with(async () => "done");
      });
    } catch (error) {
      if (error instanceof DeadlockError) return "deadlock";
      throw error;
    }
  });

const elder = (stage: Stage, place: Place) =>
  workflow("elder", async (ctx: Context, isCircle: boolean) =>
    ctx.lock("family", async () => {
      await ctx.step("think", (step) => stage.act(place, ctx.runId, "think", step), { retry: RETRY });
      return ctx.call(younger(), isCircle ? "family" : "other");
    }),
  );

const younger = () =>
  workflow("younger", async (ctx: Context, wants: string) => {
    try {
      return await ctx.lock(wants, async () => "child done");
    } catch (error) {
      if (error instanceof DeadlockError) return "deadlock";
      throw error;
    }
  });
