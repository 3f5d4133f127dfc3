// Goal: a lock has at most its permitted holders, in order of arrival; fences increase with every grant and every takeover; a dead holder or
// waiter blocks others for no longer than its lease; a run that ends releases everything in the same commit; and deadlocks of runs are found,
// without false alarms (G6, G7, G8, G9, G30).
// Method: plain code and runs acquire the same mutex, semaphore, reader-writer lock and pairs of locks, sleep for longer than their leases,
// crash, and are canceled. The protected resource is outside the store, refuses old fences, and records which holder came with which.

import {
  type Context,
  DeadlockError,
  type Hold,
  type Lock,
  LockBusyError,
  LockLostError,
  LockRemovedError,
  LockTimeoutError,
  PawlError,
  PlaceLostError,
  RunCanceledError,
  type RunLock,
  type RunLockHold,
  StoreError,
  workflow,
} from "../../../src/index.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import { checkLocks } from "../../../src/testing/checkers/locks.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import type { NamedScenario } from "./index.ts";
import { CLEAN, Vault } from "./locks-vault.ts";
import { until } from "./transfers.ts";
import { insist, isService, LEASE_MS, type Place, Stage } from "./workflows-stage.ts";

const RETRY = { attempts: 20, delay: 100, factor: 2, maxDelay: 5_000 } as const;

const ends = (error: unknown): boolean =>
  error instanceof LockTimeoutError ||
  error instanceof LockLostError ||
  error instanceof LockRemovedError ||
  error instanceof LockBusyError ||
  error instanceof PlaceLostError;

/** Every lock that plain code takes here, with the name that the vault knows it by. */
const everyLock = (pawl: Process["pawl"]): readonly (readonly [string, Lock])[] => [
  ["m", pawl.mutex("m", { lease: LEASE_MS })],
  ["s", pawl.semaphore("s", { permits: 2, lease: LEASE_MS })],
  ["rw", pawl.rwlock("rw", { lease: LEASE_MS }).read],
  ["rw", pawl.rwlock("rw", { lease: LEASE_MS }).write],
  ["m+n", pawl.mutex(["n", "m"], { lease: LEASE_MS })],
];

export const locks = {
  name: "one holder at a time, in the order of arrival",
  // 1397: a waiter that could not leave the line, because the store was unreachable, would stay in it forever.
  // 32: the forced release of a dead holder was recorded at a lock that another held by then.
  regressions: [22, 32, 100, 276, 1397],
  async scenario(world: World): Promise<void> {
    const vault = new Vault(world);
    const stage = new Stage(world, (place) => [keeper(stage, vault, place)]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    const RUNS = ["r1", "r2", "r3", "r4"];
    // In some worlds everybody wants the same few.
    const wanted = [0, 1, 2, 3, 4].filter(() => world.random.chance(0.5));
    const draw = ({ pawl, random }: Process): readonly [string, Lock] => {
      const all = everyLock(pawl);
      const some = wanted.length === 0 ? all : all.filter((_, index) => wanted.includes(index));
      return some[Math.floor(random() * some.length)] as readonly [string, Lock];
    };
    for (const name of ["p1", "p2", "p3"])
      world.process(name, async (process) => {
        for (let turn = 0; turn < 3; turn++) {
          const [lock, handle] = draw(process);
          await until(() => useOnce(process, vault, lock, handle, `${name}#${process.incarnation}.${turn}`), process);
        }
      });
    // One who dies while it holds, or while it waits.
    world.process("victim", async (process) => {
      if (process.incarnation > 1) return;
      if (process.random() < 0.5) await process.sleep(process.random() * 5_000);
      const all = everyLock(process.pawl);
      await all[Math.floor(process.random() * all.length)]?.[1].enqueue({ by: "victim" });
      await process.sleep(process.random() * 2 * LEASE_MS);
      world.crash(process);
    });
    world.process("c1", async (process) => {
      for (const [index, id] of RUNS.entries())
        await until(async () => void (await process.pawl.start("keeper", index, { id })), process);
      if (process.random() < 0.5) await doom(process, RUNS[Math.floor(process.random() * RUNS.length)] ?? "r1");
      for (const id of RUNS) await stage.outcome(process, "keeper", id);
    });
    if (world.random.chance(0.3)) world.process("operator", intervene);
    await world.finish();
    await stage.check(240_000);
    checkLocks(world);
    vault.check();
  },
};

export const handoffs = {
  name: "a turn is noticed immediately",
  options: { calm: true, reorder: 0.9 },
  async scenario(world: World): Promise<void> {
    const vault = new Vault(world);
    for (const name of ["p1", "p2", "p3"])
      world.process(name, async (process) => {
        // Longer than any polling interval: only a notification can make it continue.
        const lock = process.pawl.mutex("m", { lease: "1h" });
        for (let turn = 1; turn <= 10; turn++) {
          // All come at the same moment, and then it is quiet, so that no other news makes up for what was missed.
          await process.sleep(1_000 * turn - world.nowMs);
          const began = vault.begin();
          await lock.with((hold) => vault.use("m", hold, began, async () => {}), { by: name });
        }
      });
    await world.finish();
    checkCommits(world);
    checkLocks(world);
    vault.check();
  },
} satisfies NamedScenario;

/** Cancels a run: some time, or when it waits for a lock. */
async function doom(process: Process, id: string): Promise<void> {
  const { pawl, random, sleep } = process;
  const patience = random() < 0.5 ? 0 : 20;
  if (patience === 0) await sleep(random() * 20_000);
  let isWaiting = false;
  for (let looks = 0; looks < patience && !isWaiting; looks++) {
    await sleep(1_000);
    await until(async () => {
      isWaiting = (await pawl.whyWaiting({ run: id })).chain.some(({ is }) => is === "lock");
    }, process);
  }
  await insist(process, () => pawl.run("keeper", id).cancel());
}

/** An operator forces the release of locks, and removes waiters from the line. */
async function intervene({ pawl, sleep, random }: Process): Promise<void> {
  const act = { by: "operator", reason: "test" };
  for (let times = 0; times < 5; times++) {
    await sleep(random() * 8_000);
    const lock = [pawl.mutex("m"), pawl.mutex("n"), pawl.semaphore("s", { permits: 2 }), pawl.rwlock("rw").read][
      Math.floor(random() * 4)
    ] as Lock;
    try {
      const { waiters } = await lock.inspect();
      const waiter = waiters[Math.floor(random() * waiters.length)];
      if (waiter === undefined || random() < 0.3) await lock.forceRelease(act);
      else await lock.removeWaiter(waiter.ticket, act);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
    }
  }
}

/** Takes the lock, uses what it protects, sometimes for too long, and gives it back, sometimes not. */
async function useOnce(process: Process, vault: Vault, lock: string, handle: Lock, by: string): Promise<void> {
  const { random, sleep } = process;
  let began = vault.begin();
  const use = (hold: Hold): Promise<void> =>
    vault.use(lock, hold, began, () => visit(process, vault, lock, handle, hold, by));
  try {
    const kind = random();
    if (kind < 0.5) await handle.with(use, { by, ...(random() < 0.3 ? { timeout: 20_000 } : {}) });
    else if (kind < 0.8) {
      // One who only tries leaves nothing behind.
      const tried = random() < 0.3 ? await handle.tryAcquire({ by }) : undefined;
      if (tried?.ok === false) return;
      const entered =
        tried === undefined ? await handle.enqueue({ by }) : ({ granted: true, hold: tried.hold } as const);
      if (!entered.granted && random() < 0.6) {
        // For longer than its lease, or not; renewed meanwhile, or not.
        await sleep(random() * 1.5 * LEASE_MS);
        if (random() < 0.5) await entered.place.renew();
        if (random() < 0.5) await sleep(random() * LEASE_MS);
        if (random() < 0.3) return;
        if (random() < 0.5) {
          await entered.place.leave();
          return;
        }
      }
      began = vault.begin();
      const hold = entered.granted ? entered.hold : await entered.place.acquire();
      await keeping(hold, () => use(hold));
      await hold.release();
    } else {
      const hold = await handle.acquire({ by });
      await keeping(hold, async () => {
        await use(hold);
        if (random() < 0.5) await process.pawl.transact((tx) => tx.lock(handle).release(hold));
      });
    }
  } catch (error) {
    if (!ends(error) && !isService(error)) throw error;
  }
}

/** A lock that is not released is held for as long as the process lives. */
async function keeping(hold: Hold, act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } finally {
    await hold.release();
  }
}

async function visit(
  process: Process,
  vault: Vault,
  lock: string,
  handle: Lock,
  hold: Hold,
  by: string,
): Promise<void> {
  const { random, sleep } = process;
  const { abortSignal } = hold;
  if (random() < 0.3) await sleep(random() * 2.5 * LEASE_MS);
  vault.isTold(lock, hold.ticket, abortSignal);
  vault.visit({ lock, fence: hold.fence, by, claim: 0 });
  if (random() < 0.5) await vault.renew(lock, hold);
  if (random() < 0.3) await vault.mark(process, lock, handle, hold);
  if (random() < 0.3) await sleep(random() * 2_000);
}

const keeper = (stage: Stage, vault: Vault, place: Place) =>
  workflow("keeper", async (ctx: Context, index: number) => {
    // For as long as this code runs: the previous worker, which may be in the same process, continues under its own.
    const claim = vault.claimOf(ctx.runId, place.by());
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
          vault.visit({ lock: of, fence, by: ctx.runId, claim });
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
        index === 2 ? { timeout: 600_000 } : {},
      );
      const entered = await ctx.mutex("n").enqueue();
      if (entered.granted) await entered.hold.release();
      else if (index % 2 === 0) await entered.place.leave();
      else {
        const hold = await entered.place.acquire({ timeout: 60_000 });
        await use(hold, "third", "n");
        await hold.release();
      }
    } catch (error) {
      if (error instanceof RunCanceledError) {
        await ctx.step(CLEAN, (step) => stage.act(place, ctx.runId, CLEAN, step), { retry: RETRY });
        await ctx.sleep(1_000);
      }
      if (!ends(error)) throw error;
      return error instanceof PawlError ? error.code : "lost";
    }
    // The end of the run releases what it holds.
    if (index === 3) await ctx.mutex("left").acquire();
    return "done";
  });

export const circles = {
  name: "runs that wait for each other get an error, and others do not",
  async scenario(world: World): Promise<void> {
    // In one order there is no deadlock; in a circle there may be one; with a timeout it does not last.
    const sort = world.random.pick(["none", "circle", "circle", "passing"] as const);
    const count = 2 + world.random.below(3);
    const kinds = Array.from({ length: count }, () => world.random.below(3));
    const stage = new Stage(world, (place) => [grabber(stage, place, kinds), elder(stage, place), younger()]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    const ids = Array.from({ length: count }, (_, i) => `g${i}`);
    world.process("c1", async (process) => {
      for (const [i, id] of ids.entries()) {
        const next = (i + 1) % count;
        const order = sort !== "none" || i < next ? [i, next] : [next, i];
        const timeout = sort === "passing" && i === 0 ? PASSES_MS : undefined;
        await until(async () => void (await process.pawl.start("grabber", { order, timeout }, { id })), process);
      }
      await until(async () => void (await process.pawl.start("elder", sort, { id: "elder" })), process);
      for (const id of ids) await stage.outcome(process, "grabber", id);
      await stage.outcome(process, "elder", "elder");
    });
    await world.finish();
    await stage.check(240_000);
    checkLocks(world);
    const told = (id: string): string => [...(stage.told.get(id) ?? [])][0] ?? "";
    const deadlocks = ids.filter((id) => told(id).includes("deadlock"));
    if (sort !== "circle")
      world.check(deadlocks.length === 0, `a circle was seen where there is none: ${deadlocks.join()}`);
    world.check(deadlocks.length < count, "everybody gave up");
    for (const id of ids)
      world.check(/^completed "(done|deadlock|lock_timeout)"$/.test(told(id)), `${id} ended with ${told(id)}`);
    const child = { none: "child done", circle: "deadlock", passing: "lock_timeout" }[sort];
    world.check(told("elder").includes(child), `the elder ended with ${told("elder")}`);
  },
};

/** The timeout of those that have one. */
const PASSES_MS = 20_000;

const grabber = (stage: Stage, place: Place, kinds: readonly number[]) =>
  workflow("grabber", async (ctx: Context, { order, timeout }: { order: readonly number[]; timeout?: number }) => {
    const lockOf = (n: number): RunLock => {
      const kind = kinds[n] ?? 0;
      if (kind === 0) return ctx.mutex(`l${n}`);
      return kind === 1 ? ctx.semaphore(`l${n}`, { permits: 1 }) : ctx.rwlock(`l${n}`).write;
    };
    const [first = 0, second = 0] = order;
    try {
      return await lockOf(first).with(async () => {
        await ctx.step("between", (step) => stage.act(place, ctx.runId, "between", step), { retry: RETRY });
        return lockOf(second).with(async () => "done", { timeout });
      });
    } catch (error) {
      return givenUp(error);
    }
  });

/** Why a run did not get a lock, as far as that may be. */
function givenUp(error: unknown): string {
  if (error instanceof DeadlockError || error instanceof LockTimeoutError) return error.code;
  throw error;
}

const elder = (stage: Stage, place: Place) =>
  workflow("elder", async (ctx: Context, sort: "none" | "circle" | "passing") =>
    ctx.lock("family", async () => {
      await ctx.step("think", (step) => stage.act(place, ctx.runId, "think", step), { retry: RETRY });
      return ctx.call(younger(), {
        wants: sort === "none" ? "other" : "family",
        timeout: sort === "passing" ? PASSES_MS : undefined,
      });
    }),
  );

const younger = () =>
  workflow("younger", async (ctx: Context, { wants, timeout }: { wants: string; timeout?: number | undefined }) => {
    try {
      return await ctx.mutex(wants).with(async () => "child done", { timeout });
    } catch (error) {
      return givenUp(error);
    }
  });
