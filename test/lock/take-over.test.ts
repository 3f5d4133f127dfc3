/**
 * Goal: a worker that takes over a run has higher fences than the one before (G6, G7), and a crash leaves no lock behind.
 * Method: take-overs by a second process, while the first is paused or dead. A crash before and after every call of the store.
 * A run with more locks than one commit can touch is in take-over.long.test.ts.
 */

import { describe, expect, test } from "vitest";
import { workflow } from "../../src/index.ts";
import { crashEverywhere, type TestPawl } from "../../src/testing/index.ts";
import { gate } from "../kernel/kit.ts";
import { CommitChecker, outcomeOf, Processes, refusal } from "./kit.ts";

const never = () => new Promise<never>(() => {});

describe("a take-over", () => {
  const LEASE_MS = 30_000;

  /** A run that uses what its lock protects in a step, in which its worker can be paused. */
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

  test.each(["is paused", "is dead"])("by another worker gets higher fences than the worker that %s", async (what) => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
    const checker = new CommitChecker().watch(ann.pawl, bob.pawl);
    const log: [string, string, number][] = [];
    const { opened, open } = gate();
    ann.pawl.work([usher(log, "ann", () => opened)]);
    await ann.pawl.start("usher", undefined, { id: "one" });
    await processes.advance(10);
    expect(log.map(([by, at]) => `${by} ${at}`)).toEqual(["ann before", "ann begins"]);
    const [first] = (await bob.pawl.mutex("m").inspect()).holders;
    bob.pawl.work([usher(log, "bob", async () => {})]);
    if (what === "is dead") ann.die();
    else ann.pause();
    await processes.advance(LEASE_MS - 20);
    expect(log.length).toBe(2);
    const later = outcomeOf(bob.pawl.mutex("m").acquire());
    await processes.advance(40);
    // Bob's code knows one fence only, also where it repeats what Ann did.
    const [second] = (await bob.pawl.mutex("m").inspect()).holders;
    expect(second).toMatchObject({ run: "one" });
    expect(second?.fence).toBeGreaterThan(first?.fence ?? 0);
    expect(log.slice(2)).toEqual([
      ["bob", "begins", second?.fence],
      ["bob", "ends", second?.fence],
    ]);
    if (what !== "is dead") await ann.resume();
    open();
    await processes.advance(2000);
    const run = bob.pawl.run("usher", "one");
    // What Ann finished is not what the run continued with.
    expect(await processes.clock.finish(run.result())).toBe(second?.fence);
    expect(log.filter(([by]) => by === "bob").map(([, at]) => at)).toEqual(["begins", "ends", "after"]);
    expect(log.filter(([by]) => by === "ann").map(([, at]) => at)).not.toContain("after");
    await processes.advance(1);
    expect(later.value?.fence).toBeGreaterThan(second?.fence ?? 0);
    checker.check();
  });

  test("of a run raises the fences of all locks that it holds, and of none that it waits for", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
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
    await processes.advance(10);
    ann.die();
    bob.pawl.work([it(async () => {})]);
    expect(await processes.clock.finish(bob.pawl.run("it", "it").result())).toBe(false);
    expect(fences.length).toBe(2);
    const [[pair = 0, permit = 0] = [], [pairAfter, permitAfter] = []] = fences;
    expect(pairAfter).toBeGreaterThan(pair);
    expect(permitAfter).toBeGreaterThan(permit);
    expect((await bob.pawl.mutex("line").inspect()).holders).toMatchObject([{ fence: others.fence }]);
  });

  test("of a run that is at rest keeps its fence: no worker is using it", async () => {
    const processes = new Processes();
    const [ann, bob] = [processes.process(), processes.process()];
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
    await processes.advance(10);
    const stopped = worker.stop();
    await processes.clock.finish(stopped);
    bob.pawl.work([it]);
    expect(await processes.clock.finish(bob.pawl.run("it", "it").result())).toBe("done");
    expect(fences[1]).toBe(fences[0]);
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
        // Leases that need no renewal meanwhile: time is moved in few steps.
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
