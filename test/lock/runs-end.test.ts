/**
 * Goal: what ends a run releases, in that same commit, everything that the run holds or waits for (G30); a run that an operator resumes
 * gets it again.
 * Method: runs in a time that the test moves, ended in every way there is; a checker examines every commit.
 */

import { describe, expect, test } from "vitest";
import { type Context, signal, workflow } from "../../src/index.ts";
import { openTest, type TestPawl, type TestRun } from "../../src/testing/index.ts";
import { CommitChecker, outcomeOf, recordOf, whoOf } from "./kit.ts";

const never = () => new Promise<never>(() => {});

/** Ways to end a run. By default it holds "held", and waits in the queue of "line". */
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
    how: "its timeout ends while it sleeps",
    status: "timed_out",
    timeout: "1 hour",
    body: async (ctx) => ctx.sleep("1 day"),
  },
  {
    how: "its timeout ends while it waits for another lock",
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
      // A parked run keeps what it holds, and its place.
      await pawl.clock.advance("1 hour");
      expect((await recordOf(pawl, "held"))?.holders.map(({ owner }) => owner?.run)).toEqual(["it"]);
      expect((await pawl.mutex("line").inspect()).waiting).toBe(1);
      expect((await pawl.whyWaiting({ lock: "held" })).says).toMatch(
        /run "it" is parked and keeps its locks until an operator resolves it/,
      );
      await run.cancel();
    },
  },
];

describe("everything is released in the commit in which a run ends, when", () => {
  test.each(ends)("$how", async ({ status, body, meanwhile, timeout, tries }) => {
    await using pawl = openTest();
    const checker = new CommitChecker().watch(pawl);
    const it = workflow({ name: "it", timeout, tries }, async (ctx) => {
      await ctx.mutex("held").acquire();
      await ctx.semaphore("permit", { permits: 1 }).acquire();
      await ctx.rwlock("written").write.acquire();
      await ctx.mutex(["pair 1", "pair 2"]).acquire();
      const entered = await ctx.mutex("line").enqueue();
      if (entered.granted) throw new Error("it was free");
      return body(ctx, pawl);
    });
    const next = workflow("next", async (ctx) =>
      ctx.lock("held", () => ctx.semaphore("permit").with(() => "acquired")),
    );
    pawl.work([it, next]);
    const others = await pawl.mutex("line").acquire();
    const run = await pawl.start(it, undefined, { id: "it" });
    // Those who wait for it are granted from its end on.
    const after = await pawl.start(next, undefined, { id: "next" });
    await pawl.clock.advance(1);
    await meanwhile?.(run, pawl);
    await run.result().catch(() => {});
    // Read as it was left, before any cleanup.
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
    expect(await after.result()).toBe("acquired");
    await others.release();
    checker.check();
  });

  test("its parent ends first, which ends it", async () => {
    await using pawl = openTest();
    const checker = new CommitChecker().watch(pawl);
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
    checker.check();
  });

  test("it was canceled and its cleanup is over, however long that takes", async () => {
    await using pawl = openTest();
    const checker = new CommitChecker().watch(pawl);
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
    checker.check();
  });
});

describe("a run that an operator resumes", () => {
  test("after it failed has released everything, waits for its lock again, and continues under a new fence", async () => {
    await using pawl = openTest();
    const checker = new CommitChecker().watch(pawl);
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
    // What the lock protects belongs to another now, so the code does not continue.
    expect(fences.length).toBe(1);
    expect(whoOf((await pawl.mutex("m").inspect()).waiters)).toEqual(["it"]);
    await others.release();
    expect(await run.result()).toBe("done");
    expect(ran).toEqual(["once"]);
    expect(fences.length).toBe(2);
    expect(fences[1]).toBeGreaterThan(others.fence);
    expect(others.fence).toBeGreaterThan(fences[0] ?? 0);
    checker.check();
  });

  test("after it was parked holds its locks under a new fence, because what it began may still be running", async () => {
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
    expect(next.state).toBe("acquired");
    expect(next.value?.fence).toBeGreaterThan(fences[1] ?? 0);
  });

  test("after it was parked with a place in a queue keeps that one place", async () => {
    await using pawl = openTest({ strict: false });
    const checker = new CommitChecker().watch(pawl);
    let isWrong = false;
    const it = workflow("it", async (ctx) => {
      // Code that contradicts the history parks the run, and leaves it in the queue.
      if (isWrong) return ctx.sleep("1 day");
      const entered = await ctx.mutex("m").enqueue();
      if (entered.granted) throw new Error("it is free");
      const hold = await entered.place.acquire();
      await hold.release();
      return "done";
    });
    pawl.work([it], { parkContradictedAfter: 1 });
    const others = await pawl.mutex("m").acquire();
    const run = await pawl.start(it, undefined, { id: "it" });
    await run.until("waiting");
    isWrong = true;
    await run.signal(signal("wake"), undefined);
    await run.until("parked");
    isWrong = false;
    await run.retry();
    await run.until("waiting");
    expect(whoOf((await pawl.mutex("m").inspect()).waiters)).toEqual(["it"]);
    await others.release();
    expect(await run.result()).toBe("done");
    expect((await pawl.mutex("m").inspect()).holders).toEqual([]);
    checker.check();
  });
});
