/**
 * Goal: a run holds, and waits, for as long as it lives, and not a commit longer: across steps, sleeps, rests and other workers; and what
 * ends it gives everything back in that same commit (G30). Whoever takes a run over has higher fences than the one before (G6, G7).
 * Method: runs in a time that the test moves; a witness looks at every commit. Take-overs by a second process, while the first stands still
 * or is dead. A crash before and after every call of the store.
 */

import { describe, expect, test } from "vitest";
import {
  type Context,
  LockLostError,
  LockRemovedError,
  LockTimeoutError,
  open,
  PawlError,
  type RunLockHold,
  signal,
  workflow,
} from "../../src/index.ts";
import { crashEverywhere, openTest, type TestPawl, type TestRun } from "../../src/testing/index.ts";
import { drained, gate } from "../kernel.fixture.ts";
import { outcomeOf, PERSON, recordOf, Town, Witness, whoOf } from "./kit.ts";

const go = signal<string>("go");
const never = () => new Promise<never>(() => {});
const HOUR_MS = 3_600_000;

/** What an operation was refused with, as the code of a run sees it. */
async function refusal(operation: PromiseLike<unknown>): Promise<string> {
  try {
    await operation;
    return "had";
  } catch (error) {
    if (error instanceof PawlError) return error.code;
    throw error;
  }
}

describe("a run", () => {
  test.each([
    ["kept warm", undefined],
    ["replayed each time", 0],
  ])("(%s) holds across steps, sleeps and signals, and nobody else does meanwhile", async (_, warm) => {
    await using pawl = openTest();
    const witness = new Witness().watch(pawl);
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
    witness.check();
  });

  test("holds and waits without any worker, and goes on with the next one", async () => {
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

  test("and plain code stand in one line", async () => {
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

  test("has several at once, permits of a semaphore, and shares with readers", async () => {
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
    const witness = new Witness().watch(pawl);
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
    witness.check();
  });

  test("that gives back what it does not hold any more is told so, and harms nobody", async () => {
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
  test("has it, or leaves nothing behind; or takes a place, and waits there, or leaves", async () => {
    await using pawl = openTest();
    const tries = workflow("tries", async (ctx, waits: boolean) => {
      const lock = ctx.mutex("m");
      const unwanted = await lock.tryAcquire();
      if (unwanted.ok) return "had at once";
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
    expect(await free.result()).toBe("had at once");
    // What it had and did not give back went with its end.
    expect(await recordOf(pawl, "m")).toMatchObject({ holders: [], waiting: 0 });
  });

  test("and does something else meanwhile has its turn kept when it comes, until it asks", async () => {
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
  test("ends at its limit, and not one millisecond before; then the line is left", async () => {
    await using pawl = openTest();
    const waits = workflow("waits", async (ctx) => {
      try {
        await ctx.lock("m", () => "had", { timeout: "1 hour" });
      } catch (error) {
        if (!(error instanceof LockTimeoutError)) throw error;
        await ctx.sleep("1 minute");
        return [error.code, error.data];
      }
      return "had";
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

  test("whose turn comes in time is not given up by its timer afterwards", async () => {
    await using pawl = openTest();
    const waits = workflow("waits", async (ctx) =>
      ctx.lock(
        "m",
        async () => {
          await ctx.sleep("3 hours");
          return "had";
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
    expect(await run.result()).toBe("had");
  });

  test("that somebody ended is told so, and it is written down who", async () => {
    await using pawl = openTest();
    const waits = workflow("waits", async (ctx) => {
      try {
        return await ctx.lock("m", () => "had");
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
    expect(await pawl.mutex("m").removeWaiter(waiter?.ticket ?? "", PERSON)).toEqual({ removed: true });
    expect(await run.result()).toBe("lock_removed");
    expect((await pawl.mutex("m").history()).map(({ name, data }) => [name, data])).toEqual([
      ["removed", expect.objectContaining({ ...PERSON, waiter: expect.objectContaining({ ticket: waiter?.ticket }) })],
    ]);
    await hold.release();
    expect(await next.result()).toBe("had");
  });

  test("interrupted by the cancellation of its run leaves the line at once, also if the code goes on", async () => {
    await using pawl = openTest();
    const witness = new Witness().watch(pawl);
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
    witness.check();
  });
});

describe("what a person takes away from a run", () => {
  test("is the next one's at once, and the code hears of it when it gives it back", async () => {
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
    expect(await pawl.mutex("m").forceRelease(PERSON)).toEqual({ released: 1 });
    expect(whoOf((await pawl.mutex("m").inspect()).holders)).toEqual(["two"]);
    expect(await run.result()).toEqual(["lock_lost", holder?.fence]);
    expect(await next.result()).toBe("kept");
    expect((await pawl.mutex("m").history()).map(({ name, data }) => [name, data])).toEqual([
      ["forced", expect.objectContaining({ ...PERSON, holder: expect.objectContaining({ owner: expect.anything() }) })],
    ]);
  });
});

/** Ways to an end; each run holds "held", and stands in the line of "line", where it is not said otherwise. */
const ends: readonly {
  readonly how: string;
  readonly status: string;
  readonly body: (ctx: Context, pawl: TestPawl) => Promise<unknown>;
  readonly meanwhile?: (run: TestRun, pawl: TestPawl) => Promise<unknown>;
  readonly timeout?: string;
  readonly tries?: number;
}[] = [
  { how: "it completes", status: "completed", body: async () => "done" },
  {
    how: "its code throws",
    status: "failed",
    body: async () => {
      throw new Error("no");
    },
  },
  {
    how: "its step fails",
    status: "failed",
    body: async (ctx) => ctx.step("bad", () => Promise.reject(new Error("no")), { retry: { attempts: 1 } }),
  },
  {
    how: "what it returns cannot be stored",
    status: "failed",
    body: async () => () => {},
  },
  {
    how: "it is canceled while it sleeps",
    status: "canceled",
    body: async (ctx) => ctx.sleep("1 day"),
    meanwhile: (run) => run.cancel(),
  },
  {
    how: "it is canceled while it waits for another lock",
    status: "canceled",
    body: async (ctx) => ctx.mutex("line").acquire(),
    meanwhile: (run) => run.cancel(),
  },
  {
    how: "it is canceled while it is in a step",
    status: "canceled",
    body: async (ctx, { clock }) =>
      ctx.step("long", ({ abortSignal }) => {
        const aborted = new Promise<never>((_, reject) =>
          abortSignal.addEventListener("abort", () => reject(abortSignal.reason)),
        );
        return Promise.race([clock.sleep("1 hour"), aborted]);
      }),
    meanwhile: (run) => run.cancel(),
  },
  {
    how: "its own time is over while it sleeps",
    status: "timed_out",
    timeout: "1 hour",
    body: async (ctx) => ctx.sleep("1 day"),
  },
  {
    how: "its own time is over while it waits for another lock",
    status: "timed_out",
    timeout: "1 hour",
    body: async (ctx) => ctx.mutex("line").acquire(),
  },
  {
    how: "it is canceled while it is parked",
    status: "canceled",
    tries: 1,
    body: never,
    meanwhile: async (run, pawl) => {
      await run.until("parked");
      // Parked, it keeps what it holds, and its place.
      await pawl.clock.advance("1 hour");
      expect((await recordOf(pawl, "held"))?.holders.map(({ owner }) => owner?.run)).toEqual(["it"]);
      expect((await pawl.mutex("line").inspect()).waiting).toBe(1);
      expect((await pawl.whyWaiting({ lock: "held" })).says).toMatch(
        /run "it" is parked and keeps what it holds until a person decides/,
      );
      await run.cancel();
    },
  },
];

describe("everything is given back in the commit in which a run ends, when", () => {
  test.each(ends)("$how", async ({ status, body, meanwhile, timeout, tries }) => {
    await using pawl = openTest();
    const witness = new Witness().watch(pawl);
    const it = workflow({ name: "it", timeout, tries }, async (ctx) => {
      await ctx.mutex("held").acquire();
      await ctx.semaphore("permit", { permits: 1 }).acquire();
      await ctx.rwlock("written").write.acquire();
      await ctx.mutex(["pair 1", "pair 2"]).acquire();
      const entered = await ctx.mutex("line").enqueue();
      if (entered.granted) throw new Error("it was free");
      return body(ctx, pawl);
    });
    const next = workflow("next", async (ctx) => ctx.lock("held", () => ctx.semaphore("permit").with(() => "had")));
    pawl.work([it, next]);
    const others = await pawl.mutex("line").acquire();
    const run = await pawl.start(it, undefined, { id: "it" });
    // Those who wait for it have their turn from its end on.
    const after = await pawl.start(next, undefined, { id: "next" });
    await pawl.clock.advance(1);
    await meanwhile?.(run, pawl);
    await run.result().catch(() => {});
    // Looked at as it was left, before anybody tidies up.
    expect((await run.status()).status).toBe(status);
    for (const name of ["pair 1", "pair 2"]) expect(await recordOf(pawl, name)).toMatchObject({ holders: [] });
    expect(await recordOf(pawl, "written", "rwlock")).toMatchObject({ holders: [], first: null });
    expect(await recordOf(pawl, "line")).toMatchObject({
      holders: [{ ticket: others.ticket }],
      waiting: 0,
      first: null,
    });
    const { holders = [] } = (await recordOf(pawl, "held")) ?? {};
    expect(holders.some(({ owner }) => owner?.run === "it")).toBe(false);
    expect(await after.result()).toBe("had");
    await others.release();
    witness.check();
  });

  test("its parent ends first, and it with it", async () => {
    await using pawl = openTest();
    const witness = new Witness().watch(pawl);
    const child = workflow("child", async (ctx) => ctx.lock("m", () => ctx.sleep("1 day")));
    const parent = workflow("parent", async (ctx) => {
      await ctx.start(child, undefined, { id: "child", whenParentEnds: "cancel" });
      await ctx.sleep("1 hour");
      return "done";
    });
    pawl.work([parent, child]);
    const run = await pawl.start(parent);
    await pawl.clock.advance("30 minutes");
    expect(whoOf((await pawl.mutex("m").inspect()).holders)).toEqual(["child"]);
    expect(await run.result()).toBe("done");
    await pawl.run(child, "child").until("canceled");
    expect(await recordOf(pawl, "m")).toMatchObject({ holders: [] });
    witness.check();
  });

  test("it was canceled, and its cleanup takes as long as it takes", async () => {
    await using pawl = openTest();
    const witness = new Witness().watch(pawl);
    const tidy = workflow({ name: "tidy", grace: "1 day" }, async (ctx) =>
      ctx.lock("m", async () => {
        try {
          await ctx.sleep("1 day");
        } finally {
          await ctx.lock("broom", () => ctx.sleep("1 hour"));
        }
      }),
    );
    pawl.work([tidy]);
    const run = await pawl.start(tidy, undefined, { id: "tidy" });
    await run.until("waiting");
    await run.cancel();
    await pawl.clock.advance("30 minutes");
    for (const name of ["m", "broom"]) expect(whoOf((await pawl.mutex(name).inspect()).holders)).toEqual(["tidy"]);
    await expect(run.result()).rejects.toMatchObject({ code: "run_canceled" });
    for (const name of ["m", "broom"]) expect(await recordOf(pawl, name)).toMatchObject({ holders: [] });
    witness.check();
  });
});

describe("a run that a person lets go on", () => {
  test("after it failed has given everything back, waits for its lock again, and goes on under a new fence", async () => {
    await using pawl = openTest();
    const witness = new Witness().watch(pawl);
    let isBroken = true;
    const fences: number[] = [];
    const ran: string[] = [];
    const it = workflow("it", async (ctx) =>
      ctx.lock("m", async ({ fence }) => {
        await ctx.step("once", () => ran.push("once"));
        await ctx.step(
          "work",
          () => {
            fences.push(fence);
            if (isBroken) throw new Error("broken");
          },
          { retry: { attempts: 1 } },
        );
        return "done";
      }),
    );
    pawl.work([it]);
    const run = await pawl.start(it, undefined, { id: "it" });
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
    expect(await recordOf(pawl, "m")).toMatchObject({ holders: [] });
    const others = await pawl.mutex("m").acquire({ by: "other" });
    isBroken = false;
    await run.retry();
    await run.until("waiting");
    await pawl.clock.advance("1 hour");
    // What the lock protects is another's now, so the code does not go on.
    expect(fences.length).toBe(1);
    expect(whoOf((await pawl.mutex("m").inspect()).waiters)).toEqual(["it"]);
    await others.release();
    expect(await run.result()).toBe("done");
    expect(ran).toEqual(["once"]);
    expect(fences.length).toBe(2);
    expect(fences[1]).toBeGreaterThan(others.fence);
    expect(others.fence).toBeGreaterThan(fences[0] ?? 0);
    witness.check();
  });

  test("after it was parked holds what it held, under a new fence, as what it began may still go on", async () => {
    await using pawl = openTest();
    let isStuck = true;
    const fences: number[] = [];
    const it = workflow({ name: "it", tries: 1 }, async (ctx) =>
      ctx.lock("m", async ({ fence }) => {
        await ctx.step("work", () => fences.push(fence));
        await (isStuck ? never() : undefined);
        await ctx.step("more", () => fences.push(fence));
        return "done";
      }),
    );
    pawl.work([it]);
    const run = await pawl.start(it, undefined, { id: "it" });
    await run.until("parked");
    const next = outcomeOf(pawl.mutex("m").acquire());
    await pawl.clock.advance("1 hour");
    expect(next.state).toBe("pending");
    isStuck = false;
    await run.retry();
    expect(await run.result()).toBe("done");
    expect(fences[1]).toBeGreaterThan(fences[0] ?? 0);
    await pawl.clock.advance(1);
    expect(next.state).toBe("had");
    expect(next.value?.fence).toBeGreaterThan(fences[1] ?? 0);
  });
});

describe("a take-over", () => {
  const LEASE_MS = 30_000;

  /** A run that uses what its lock protects in a step, in which its worker can be made to stand still. */
  function usher(log: [string, string, number][], by: string, meanwhile: () => Promise<unknown>) {
    return workflow("usher", async (ctx) =>
      ctx.lock("m", async ({ fence }) => {
        await ctx.step("before", () => void log.push([by, "before", fence]));
        await ctx.step("use", async () => {
          log.push([by, "begins", fence]);
          await meanwhile();
          log.push([by, "ends", fence]);
          return by;
        });
        await ctx.sleep("1s");
        await ctx.step("after", () => void log.push([by, "after", fence]));
        return fence;
      }),
    );
  }

  test("of a run that holds more locks than one commit can touch gives all of them new fences, and so does a retry", {
    timeout: 120_000,
  }, async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const fences: number[][] = [];
    let isBroken = true;
    // A thousand facts take as many turns of the event loop.
    const reaches = async (isThere: () => boolean | Promise<boolean>): Promise<void> => {
      for (let turn = 0; turn < 2_000 && !(await isThere()); turn++) await town.advance(100);
    };
    const hasEnded = async (status: string) => (await bob.pawl.run("many", "one").status()).status === status;
    const { opened } = gate();
    let isUsed = false;
    const many = (meanwhile: () => Promise<unknown>) =>
      workflow("many", async (ctx) => {
        const locks = Array.from({ length: 1_030 }, (_, n) => ctx.mutex(`m${n}`).acquire());
        const held = await Promise.all(locks);
        await ctx.step("use", meanwhile);
        fences.push(held.map(({ fence }) => fence));
        if (isBroken) throw new TypeError("broken");
      });
    const use = (): Promise<void> => {
      isUsed = true;
      return opened;
    };
    ann.pawl.work([many(use)]);
    await ann.pawl.start("many", undefined, { id: "one" });
    await reaches(() => isUsed);
    const first = (await bob.pawl.mutex("m1029").inspect()).holders[0]?.fence ?? 0;
    ann.die();
    bob.pawl.work([many(async () => {})]);
    await reaches(() => hasEnded("failed"));
    expect(fences).toHaveLength(1);
    expect(Math.min(...(fences[0] ?? []))).toBeGreaterThan(first);
    isBroken = false;
    await bob.pawl.run("many", "one").retry();
    await reaches(() => hasEnded("completed"));
    expect(Math.min(...(fences.at(-1) ?? []))).toBeGreaterThan(Math.max(...(fences[0] ?? [])));
    expect((await bob.pawl.mutex("m1029").inspect()).holders).toEqual([]);
  });

  test.each(["stands still", "is dead"])("by another worker has higher fences than the one that %s", async (what) => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const witness = new Witness().watch(ann.pawl, bob.pawl);
    const log: [string, string, number][] = [];
    const { opened, open } = gate();
    ann.pawl.work([usher(log, "ann", () => opened)]);
    await ann.pawl.start("usher", undefined, { id: "one" });
    await town.advance(10);
    expect(log.map(([by, at]) => `${by} ${at}`)).toEqual(["ann before", "ann begins"]);
    const [first] = (await bob.pawl.mutex("m").inspect()).holders;
    bob.pawl.work([usher(log, "bob", async () => {})]);
    if (what === "is dead") ann.die();
    else ann.pause();
    await town.advance(LEASE_MS - 20);
    expect(log.length).toBe(2);
    const later = outcomeOf(bob.pawl.mutex("m").acquire());
    await town.advance(40);
    // Bob's code knows one fence only, also where it does again what Ann did.
    const [second] = (await bob.pawl.mutex("m").inspect()).holders;
    expect(second).toMatchObject({ run: "one" });
    expect(second?.fence).toBeGreaterThan(first?.fence ?? 0);
    expect(log.slice(2)).toEqual([
      ["bob", "begins", second?.fence],
      ["bob", "ends", second?.fence],
    ]);
    if (what !== "is dead") await ann.resume();
    open();
    await town.advance(2000);
    const run = bob.pawl.run("usher", "one");
    // What Ann ended is not what the run went on with.
    expect(await town.clock.finish(run.result())).toBe(second?.fence);
    expect(log.filter(([by]) => by === "bob").map(([, at]) => at)).toEqual(["begins", "ends", "after"]);
    expect(log.filter(([by]) => by === "ann").map(([, at]) => at)).not.toContain("after");
    await town.advance(1);
    expect(later.value?.fence).toBeGreaterThan(second?.fence ?? 0);
    witness.check();
  });

  test("of a run that holds several raises the fences of all of them, and of what it only waits for none", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const fences: number[][] = [];
    const it = (wait: () => Promise<unknown>) =>
      workflow("it", async (ctx) => {
        const pair = await ctx.mutex(["a", "b"]).acquire();
        const permit = await ctx.semaphore("s", { permits: 2 }).acquire();
        const entered = await ctx.mutex("line").enqueue();
        await ctx.step("use", async () => {
          fences.push([pair.fence, permit.fence]);
          await wait();
        });
        return entered.granted;
      });
    const others = await bob.pawl.mutex("line").acquire();
    ann.pawl.work([it(never)]);
    await ann.pawl.start("it", undefined, { id: "it" });
    await town.advance(10);
    ann.die();
    bob.pawl.work([it(async () => {})]);
    expect(await town.clock.finish(bob.pawl.run("it", "it").result())).toBe(false);
    expect(fences.length).toBe(2);
    const [[pair = 0, permit = 0] = [], [pairAfter, permitAfter] = []] = fences;
    expect(pairAfter).toBeGreaterThan(pair);
    expect(permitAfter).toBeGreaterThan(permit);
    expect((await bob.pawl.mutex("line").inspect()).holders).toMatchObject([{ fence: others.fence }]);
  });

  test("of a run that came to rest keeps its fence: nobody is at work under it", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const fences: number[] = [];
    const it = workflow("it", async (ctx) =>
      ctx.lock("m", async ({ fence }) => {
        await ctx.step("a", () => fences.push(fence));
        await ctx.sleep("1 hour");
        await ctx.step("b", () => fences.push(fence));
        return "done";
      }),
    );
    const worker = ann.pawl.work([it]);
    await ann.pawl.start(it, undefined, { id: "it" });
    await town.advance(10);
    const stopped = worker.stop();
    await town.clock.finish(stopped);
    bob.pawl.work([it]);
    expect(await town.clock.finish(bob.pawl.run("it", "it").result())).toBe("done");
    expect(fences[1]).toBe(fences[0]);
  });
});

describe("the number of permits that runs declare", () => {
  test("is the latest, and an older worker that says its own again does not undo it", async () => {
    const town = new Town();
    const [old, next] = [town.process(), town.process()];
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
      await town.clock.finish(run.result());
    }
    expect((await next.pawl.semaphore("s", { permits: 3 }).inspect()).permits).toBe(3);
    expect((await next.pawl.semaphore("s", { permits: 3 }).history()).map(({ data }) => data)).toEqual([
      { from: 2, to: 3 },
    ]);
  });
});

describe("a crash before and after every call of the store", () => {
  interface Outside {
    readonly used: string[];
    pawl?: TestPawl;
  }

  const holds = (outside: Outside) =>
    workflow("holds", async (ctx, name: string) => {
      const results: unknown[] = [];
      await ctx.lock(["a", "b"], async ({ fence }) => {
        results.push(await ctx.step("in the pair", () => outside.used.push(`pair ${fence > 0}`) > 0));
        await ctx.sleep("1 minute");
        results.push(await ctx.semaphore("s", { permits: 2 }).with(() => ctx.step("with a permit", () => name)));
      });
      const entered = await ctx.mutex("busy").enqueue();
      results.push(entered.granted);
      if (!entered.granted) {
        results.push(entered.place.position);
        const hold = await entered.place.acquire();
        results.push(await ctx.rwlock("rw").read.with(() => "read"));
        results.push((await hold.release()).released);
      }
      results.push(await refusal(ctx.mutex("never").acquire({ timeout: "2 minutes" })));
      await ctx.mutex("left").acquire();
      return results;
    });

  test("comes to the same end, and leaves nothing behind", async () => {
    const report = await crashEverywhere(holds({ used: [] }), {
      input: "ann",
      world: (): Outside => ({ used: [] }),
      workflows: (outside) => [holds(outside)],
      script: async (run, pawl, outside) => {
        outside.pawl = pawl;
        // Leases that need no renewal meanwhile: time goes in few steps.
        const forever = await pawl.mutex("never", { lease: "12 hours" }).acquire();
        const busy = await pawl.mutex("busy", { lease: "12 hours" }).acquire();
        await pawl.clock.advance("10 minutes");
        await busy.release();
        await run.result();
        await forever.release();
      },
      check: async ({ value, world }) => {
        expect(value).toEqual([true, "ann", false, 1, "read", true, "lock_timeout"]);
        const { pawl } = world;
        if (pawl === undefined) throw new Error("the script has not run");
        const free = { holders: [], waiting: 0, waiters: [] };
        const locks = ["a", "b", "busy", "left", "never"].map((name) => pawl.mutex(name));
        for (const lock of [...locks, pawl.semaphore("s"), pawl.rwlock("rw").read])
          expect(await lock.inspect()).toMatchObject(free);
      },
    });
    expect(report.crashes).toBeGreaterThan(40);
    expect(report.parked).toBe(0);
    expect(report.steps["in the pair"]?.most).toBe(2);
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
      // Time enough for its first step to ask for the lock while it is held.
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
  test("has those that were declared, and is refused where none ever were", async () => {
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
