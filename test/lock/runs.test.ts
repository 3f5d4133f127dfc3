/**
 * Goal: a run holds, and waits, for as long as it lives: across steps, sleeps, rests and other workers (G30).
 * Method: runs in a time that the test moves; a checker examines every commit.
 */

import { describe, expect, test } from "vitest";
import {
  type Context,
  LockLostError,
  LockRemovedError,
  LockTimeoutError,
  open,
  type RunLockHold,
  signal,
  workflow,
} from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { drained } from "../kernel/kit.ts";
import { CommitChecker, OPERATOR, Processes, recordOf, refusal, whoOf } from "./kit.ts";

const go = signal<string>("go");
const HOUR_MS = 3_600_000;

describe("a run", () => {
  test.each([
    ["kept warm", undefined],
    ["replayed each time", 0],
  ])("(%s) holds it across steps, sleeps and signals, and no other holds it meanwhile", async (_, warm) => {
    await using pawl = openTest();
    const checker = new CommitChecker().watch(pawl);
    const seen: [string, number][] = [];
    const keeper = workflow("keeper", async (ctx) =>
      ctx.lock("m", async ({ fence }) => {
        await ctx.step("first", () => seen.push(["first", fence]));
        await ctx.sleep("1 day");
        await ctx.step("second", () => seen.push(["second", fence]));
        await ctx.waitForSignal(go);
        await ctx.step("third", () => seen.push(["third", fence]));
        return fence;
      }),
    );
    pawl.work([keeper], { warm });
    const run = await pawl.start(keeper, undefined, { id: "keeper" });
    await run.until("waiting");
    const [holder] = (await pawl.mutex("m").inspect()).holders;
    expect(holder).toMatchObject({ run: "keeper", by: null, until: null, mode: "exclusive" });
    for (let half = 0; half < 2; half++) {
      await pawl.clock.advance("12 hours");
      expect(await pawl.mutex("m").tryAcquire()).toMatchObject({ ok: false, place: 1 });
    }
    await run.signal(go, "on");
    expect(await run.result()).toBe(holder?.fence);
    expect(seen).toEqual(["first", "second", "third"].map((step) => [step, holder?.fence]));
    expect(await recordOf(pawl, "m")).toMatchObject({ holders: [], waiting: 0 });
    checker.check();
  });

  test("holds and waits without any worker, and resumes with the next one", async () => {
    await using pawl = openTest();
    const keeper = workflow("keeper", async (ctx, name: string) =>
      ctx.lock("m", async () => {
        await ctx.sleep("1 hour");
        return name;
      }),
    );
    const first = pawl.work([keeper]);
    const runs = [await pawl.start(keeper, "a", { id: "a" }), await pawl.start(keeper, "b", { id: "b" })];
    await pawl.clock.advance(1);
    await first.stop();
    await pawl.clock.advance("30 days");
    const { holders, waiters } = await pawl.mutex("m").inspect();
    expect([whoOf(holders), whoOf(waiters)]).toEqual([["a"], ["b"]]);
    pawl.work([keeper]);
    expect(await Promise.all(runs.map((run) => run.result()))).toEqual(["a", "b"]);
  });

  test("and plain code wait in the same queue", async () => {
    await using pawl = openTest();
    const order: string[] = [];
    const visitor = workflow("visitor", async (ctx, name: string) =>
      ctx.lock("m", () => ctx.step("visit", () => void order.push(name))),
    );
    pawl.work([visitor]);
    const hold = await pawl.mutex("m").acquire();
    const ends: Promise<unknown>[] = [];
    for (const name of ["run 1", "plain 1", "run 2", "plain 2"]) {
      if (name.startsWith("run")) ends.push(pawl.start(visitor, name).then((run) => run.result()));
      else ends.push(pawl.lock("m", () => void order.push(name)));
      await pawl.clock.advance(1);
    }
    expect((await pawl.mutex("m").inspect()).waiting).toBe(4);
    await hold.release();
    await pawl.clock.during(Promise.all(ends));
    expect(order).toEqual(["run 1", "plain 1", "run 2", "plain 2"]);
  });

  test("holds several together, permits of a semaphore, and shares with readers", async () => {
    await using pawl = openTest();
    let most = 0;
    let inside = 0;
    const all = workflow("all", async (ctx, index: number) =>
      ctx.rwlock("rw").read.with(() =>
        ctx.semaphore("s", { permits: 2 }).with(() =>
          ctx.lock([`a${index % 2}`, "never two of one number"].slice(0, 1), async () => {
            inside += 1;
            most = Math.max(most, inside);
            await ctx.sleep("1s");
            inside -= 1;
            return ctx.lock(["x", "y"], () => index);
          }),
        ),
      ),
    );
    pawl.work([all], { warm: 1000 });
    const runs = await Promise.all([0, 1, 2, 3].map((n) => pawl.start(all, n)));
    await pawl.clock.advance(1);
    expect((await pawl.rwlock("rw").read.inspect()).holders.length).toBe(4);
    expect((await pawl.semaphore("s").inspect()).holders.length).toBe(2);
    expect(await Promise.all(runs.map((run) => run.result()))).toEqual([0, 1, 2, 3]);
    expect(most).toBe(2);
  });

  test("written as a generator does all of it with yield*", async () => {
    await using pawl = openTest();
    const checker = new CommitChecker().watch(pawl);
    const gen = workflow("gen", function* (ctx: Context, name: string) {
      const first = yield* ctx.mutex("first").acquire();
      const [inner, rate] = yield* ctx.lock(["a", "b"], function* ({ fence }: RunLockHold) {
        yield* ctx.sleep("1s");
        const tried = yield* ctx.mutex("c").tryAcquire();
        if (!tried.ok) return [yield* ctx.step("busy", () => "busy"), fence] as const;
        yield* tried.hold.release();
        return [yield* ctx.step("inner", () => `inner ${name}`), fence] as const;
      });
      const shared = yield* ctx.semaphore("s", { permits: 3 }).with(() => "shared");
      const { released } = yield* first.release();
      const again = yield* first.release();
      return { inner, isFenced: rate > 0, shared, released, again: again.released };
    });
    pawl.work([gen], { warm: 0 });
    const runs = await Promise.all(["x", "y"].map((name) => pawl.start(gen, name)));
    expect(await Promise.all(runs.map((run) => run.result()))).toEqual(
      ["x", "y"].map((name) => ({
        inner: `inner ${name}`,
        isFenced: true,
        shared: "shared",
        released: true,
        again: false,
      })),
    );
    checker.check();
  });

  test("that releases what it no longer holds gets an error, and affects no other holder", async () => {
    await using pawl = openTest();
    const twice = workflow("twice", async (ctx) => {
      const hold = await ctx.mutex("m").acquire();
      const first = await hold.release();
      await ctx.sleep("1s");
      return [first.released, (await hold.release()).released];
    });
    pawl.work([twice]);
    const run = await pawl.start(twice);
    await run.until("waiting");
    const hold = await pawl.mutex("m").acquire();
    expect(await run.result()).toEqual([true, false]);
    expect(await hold.renew()).toBe(true);
  });
});

describe("a run that tries", () => {
  test("acquires it, or leaves nothing behind; or gets a place, and waits there, or leaves", async () => {
    await using pawl = openTest();
    const tries = workflow("tries", async (ctx, waits: boolean) => {
      const lock = ctx.mutex("m");
      const unwanted = await lock.tryAcquire();
      if (unwanted.ok) return "acquired immediately";
      const entered = await lock.enqueue();
      if (entered.granted) return "odd";
      const { place } = entered;
      await ctx.sleep("1s");
      const before = [unwanted.place, unwanted.code, place.position];
      if (!waits) return [...before, (await place.leave()).released];
      const hold = await place.acquire();
      return [...before, (await hold.release()).released];
    });
    pawl.work([tries], { warm: 0 });
    const hold = await pawl.mutex("m").acquire();
    const leaves = await pawl.start(tries, false, { id: "leaves" });
    await pawl.clock.advance(1);
    const waits = await pawl.start(tries, true, { id: "waits" });
    await pawl.clock.advance(1);
    expect(whoOf((await pawl.mutex("m").inspect()).waiters)).toEqual(["leaves", "waits"]);
    expect(await leaves.result()).toEqual([1, "lock_busy", 1, false]);
    await pawl.clock.advance("1s");
    expect(whoOf((await pawl.mutex("m").inspect()).waiters)).toEqual(["waits"]);
    await hold.release();
    expect(await waits.result()).toEqual([2, "lock_busy", 2, true]);
    const free = await pawl.start(tries, true);
    expect(await free.result()).toBe("acquired immediately");
    // What it held and did not release was released at its end.
    expect(await recordOf(pawl, "m")).toMatchObject({ holders: [], waiting: 0 });
  });

  test("and does something else meanwhile keeps the grant that came until it asks for it", async () => {
    await using pawl = openTest();
    const tries = workflow("tries", async (ctx) => {
      const entered = await ctx.mutex("m").enqueue();
      await ctx.sleep("10 days");
      const hold = entered.granted ? entered.hold : await entered.place.acquire({ timeout: "1s" });
      await ctx.step("use", () => hold.fence);
      return (await hold.release()).released;
    });
    pawl.work([tries]);
    const hold = await pawl.mutex("m").acquire();
    const run = await pawl.start(tries, undefined, { id: "tries" });
    await run.until("waiting");
    await hold.release();
    await pawl.clock.advance("9 days");
    expect(whoOf((await pawl.mutex("m").inspect()).holders)).toEqual(["tries"]);
    expect(await run.result()).toBe(true);
  });
});

describe("a wait in a run", () => {
  test("ends at its timeout, and not one millisecond before; then the queue is left", async () => {
    await using pawl = openTest();
    const waits = workflow("waits", async (ctx) => {
      try {
        await ctx.lock("m", () => "acquired", { timeout: "1 hour" });
      } catch (error) {
        if (!(error instanceof LockTimeoutError)) throw error;
        await ctx.sleep("1 minute");
        return [error.code, error.data];
      }
      return "acquired";
    });
    pawl.work([waits]);
    const hold = await pawl.mutex("m", { lease: "12 hours" }).acquire();
    const run = await pawl.start(waits);
    await pawl.clock.advance(HOUR_MS - 1);
    expect((await pawl.mutex("m").inspect()).waiting).toBe(1);
    await pawl.clock.advance(1);
    expect((await pawl.mutex("m").inspect()).waiting).toBe(0);
    expect((await run.status()).status).toBe("waiting");
    await hold.release();
    expect((await pawl.mutex("m").inspect()).holders).toEqual([]);
    expect(await run.result()).toEqual(["lock_timeout", { name: 'mutex "m"', timeoutMs: HOUR_MS }]);
  });

  test("that is granted in time is not ended by its timer afterwards", async () => {
    await using pawl = openTest();
    const waits = workflow("waits", async (ctx) =>
      ctx.lock(
        "m",
        async () => {
          await ctx.sleep("3 hours");
          return "acquired";
        },
        { timeout: "1 hour" },
      ),
    );
    pawl.work([waits], { warm: 0 });
    const hold = await pawl.mutex("m").acquire();
    const run = await pawl.start(waits, undefined, { id: "waits" });
    await pawl.clock.advance(HOUR_MS - 1);
    await hold.release();
    await pawl.clock.advance(2 * HOUR_MS);
    expect(whoOf((await pawl.mutex("m").inspect()).holders)).toEqual(["waits"]);
    expect(await run.result()).toBe("acquired");
  });

  test("that an operator ended gets an error, and the audit trail says by whom", async () => {
    await using pawl = openTest();
    const waits = workflow("waits", async (ctx) => {
      try {
        return await ctx.lock("m", () => "acquired");
      } catch (error) {
        return error instanceof LockRemovedError ? error.code : "other";
      }
    });
    pawl.work([waits]);
    const hold = await pawl.mutex("m").acquire();
    const [run, next] = [await pawl.start(waits, undefined, { id: "waits" }), await pawl.start(waits)];
    await pawl.clock.advance(1);
    const [waiter] = (await pawl.mutex("m").inspect()).waiters;
    expect(waiter).toMatchObject({ run: "waits", until: null });
    expect(await pawl.mutex("m").removeWaiter(waiter?.ticket ?? "", OPERATOR)).toEqual({ removed: true });
    expect(await run.result()).toBe("lock_removed");
    expect((await pawl.mutex("m").history()).map(({ name, data }) => [name, data])).toEqual([
      [
        "removed",
        expect.objectContaining({ ...OPERATOR, waiter: expect.objectContaining({ ticket: waiter?.ticket }) }),
      ],
    ]);
    await hold.release();
    expect(await next.result()).toBe("acquired");
  });

  test("interrupted by the cancellation of its run leaves the queue immediately, also if the code continues", async () => {
    await using pawl = openTest();
    const checker = new CommitChecker().watch(pawl);
    const stubborn = workflow("stubborn", async (ctx) => {
      const code = await refusal(ctx.mutex("m").acquire());
      await ctx.step("clean up", () => {});
      await ctx.sleep("1 hour");
      return code;
    });
    pawl.work([stubborn]);
    const hold = await pawl.mutex("m").acquire();
    const run = await pawl.start(stubborn);
    await run.until("waiting");
    await run.cancel();
    await pawl.clock.advance(1000);
    expect((await run.status()).status).toBe("waiting");
    expect((await pawl.mutex("m").inspect()).waiting).toBe(0);
    await hold.release();
    expect(await pawl.mutex("m").tryAcquire()).toMatchObject({ ok: true });
    expect(await run.result()).toBe("run_canceled");
    checker.check();
  });
});

describe("what an operator releases by force from a run", () => {
  test("goes to the next waiter immediately, and the code gets an error when it releases it", async () => {
    await using pawl = openTest();
    const keeper = workflow("keeper", async (ctx) => {
      try {
        return await ctx.lock("m", async () => {
          await ctx.sleep("1 hour");
          return "kept";
        });
      } catch (error) {
        return error instanceof LockLostError ? [error.code, error.data.fence] : "other";
      }
    });
    pawl.work([keeper]);
    const run = await pawl.start(keeper, undefined, { id: "one" });
    await run.until("waiting");
    const next = await pawl.start(keeper, undefined, { id: "two" });
    await next.until("waiting");
    const [holder] = (await pawl.mutex("m").inspect()).holders;
    expect(await pawl.mutex("m").forceRelease(OPERATOR)).toEqual({ released: 1 });
    expect(whoOf((await pawl.mutex("m").inspect()).holders)).toEqual(["two"]);
    expect(await run.result()).toEqual(["lock_lost", holder?.fence]);
    expect(await next.result()).toBe("kept");
    expect((await pawl.mutex("m").history()).map(({ name, data }) => [name, data])).toEqual([
      [
        "forced",
        expect.objectContaining({ ...OPERATOR, holder: expect.objectContaining({ owner: expect.anything() }) }),
      ],
    ]);
  });
});

describe("the number of permits that runs declare", () => {
  test("is the latest, and an older worker that declares its own again does not undo it", async () => {
    const processes = new Processes();
    const [old, next] = [processes.process(), processes.process()];
    const it = (permits: number) =>
      workflow(`with ${permits}`, async (ctx) => ctx.semaphore("s", { permits }).with(() => ctx.sleep("1s")));
    old.pawl.work([it(2)]);
    next.pawl.work([it(3)]);
    for (const [pawl, name] of [
      [old.pawl, "with 2"],
      [next.pawl, "with 3"],
      [old.pawl, "with 2"],
      [next.pawl, "with 3"],
      [old.pawl, "with 2"],
    ] as const) {
      const run = await pawl.start(name);
      await processes.clock.finish(run.result());
    }
    expect((await next.pawl.semaphore("s", { permits: 3 }).inspect()).permits).toBe(3);
    expect((await next.pawl.semaphore("s", { permits: 3 }).history()).map(({ data }) => data)).toEqual([
      { from: 2, to: 3 },
    ]);
  });
});

describe("code that holds a lock", () => {
  test("does not hold it for the steps of a run that it starts or signals", async () => {
    await using pawl = await open("memory:");
    const go = signal("go");
    const locks = workflow("locks", async (ctx) => {
      const first = await ctx.step("first", () => pawl.lock("m", () => "first"));
      await ctx.waitForSignal(go);
      return [first, await ctx.step("second", () => pawl.lock("m", () => "second"))];
    });
    pawl.work([locks]);
    const run = await pawl.lock("m", async () => {
      const started = await pawl.start(locks, undefined, { id: "it" });
      // Time enough for its first step to request the lock while it is held.
      while ((await pawl.mutex("m").inspect()).waiting === 0) await drained();
      return started;
    });
    while ((await run.status()).status !== "waiting") await drained();
    await pawl.lock("m", async () => {
      await run.signal(go, undefined);
      while ((await pawl.mutex("m").inspect()).waiting === 0) await drained();
    });
    expect(await run.result()).toEqual(["first", "second"]);
  });
});

describe("a semaphore without permits, in a run,", () => {
  test("has the declared permits, and is refused where none were ever declared", async () => {
    await using pawl = openTest();
    const asks = workflow("asks", async (ctx) => {
      const bare = [
        await refusal(ctx.semaphore("s").acquire()),
        await refusal(ctx.semaphore("s").tryAcquire()),
        await refusal(ctx.step("under it", () => "done", { semaphore: { name: "s" } })),
      ];
      await ctx.semaphore("s", { permits: 3 }).acquire();
      await ctx.semaphore("s").acquire();
      const third = await ctx.semaphore("s").tryAcquire();
      const fourth = await ctx.semaphore("s").tryAcquire();
      return [bare, third.ok, fourth.ok];
    });
    pawl.work([asks]);
    const run = await pawl.start(asks, undefined);
    const refused = "permits_undeclared";
    expect(await run.result()).toEqual([[refused, refused, refused], true, false]);
    expect((await pawl.semaphore("s").inspect()).permits).toBe(3);
  });
});
