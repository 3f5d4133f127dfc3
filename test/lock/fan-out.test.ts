/**
 * Goal: one run that requests the same lock many times in parallel is granted it in the order of its requests, also when it is replayed,
 * canceled or part of a deadlock; and the cost of each request does not grow with their number.
 * Method: runs in a time that the test moves. The cost is counted in characters of the run's and the lock's records that were written,
 * which is the same on every machine.
 */

import { describe, expect, test } from "vitest";
import { type Context, PawlError, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { MOST_IN_QUEUE } from "../../src/workflow/locks/lock-queues.ts";
import { recordOf } from "./kit.ts";

const MANY = 3 * MOST_IN_QUEUE;

const numbers = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

describe("many requests of one run for one lock", () => {
  test.each([
    ["kept warm", undefined],
    ["replayed each time", 0],
  ])("(%s) are granted in the order in which they were made, a few of them in the queue at a time", async (_, warm) => {
    await using pawl = openTest();
    const order: number[] = [];
    const fan = workflow("fan", async (ctx) => {
      const work = async (n: number): Promise<number> => {
        await ctx.sleep(10);
        await ctx.step("work", () => order.push(n), { id: String(n) });
        return n;
      };
      return Promise.all(numbers(MANY).map((n) => ctx.semaphore("s", { permits: 1 }).with(() => work(n))));
    });
    pawl.work([fan], { warm });
    const run = await pawl.start(fan, undefined, { id: "fan" });
    await run.until("waiting");
    expect((await pawl.semaphore("s").inspect()).waiting).toBeLessThanOrEqual(MOST_IN_QUEUE);
    expect(await run.result()).toEqual(numbers(MANY));
    expect(order).toEqual(numbers(MANY));
    expect(await recordOf(pawl, "s", "semaphore")).toMatchObject({ holders: [], waiting: 0 });
  });

  test("use all permits, however many there are", async () => {
    await using pawl = openTest();
    const permits = 2 * MOST_IN_QUEUE;
    let most = 0;
    const fan = workflow("fan", async (ctx) => {
      const one = () => ctx.semaphore("s", { permits }).with(() => ctx.sleep("1 minute"));
      await Promise.all(numbers(MANY + permits).map(one));
    });
    pawl.work([fan]);
    const run = await pawl.start(fan, undefined);
    for (let minutes = 0; (await run.status()).status !== "completed" && minutes < 20; minutes++) {
      most = Math.max(most, (await pawl.semaphore("s").inspect()).holders.length);
      await pawl.clock.advance("30s");
    }
    expect((await run.status()).status).toBe("completed");
    expect(most).toBe(permits);
  });

  test("do not starve others: one that comes meanwhile is granted before those that are not in the queue yet", async () => {
    await using pawl = openTest();
    const order: string[] = [];
    const fan = workflow("fan", async (ctx, count: number) => {
      const one = (n: number) =>
        ctx.mutex("m").with(() => ctx.step("work", () => order.push(`${ctx.runId} ${n}`), { id: String(n) }));
      await Promise.all(numbers(count).map(one));
    });
    pawl.work([fan]);
    const hold = await pawl.mutex("m").acquire();
    const many = await pawl.start(fan, MANY, { id: "many" });
    await many.until("waiting");
    const one = await pawl.start(fan, 1, { id: "one" });
    await one.until("waiting");
    await hold.release();
    await Promise.all([many.result(), one.result()]);
    expect(order.indexOf("one 0")).toBe(MOST_IN_QUEUE);
    expect(order.filter((who) => who.startsWith("many"))).toEqual(numbers(MANY).map((n) => `many ${n}`));
  });

  test("are all ended by a cancellation, and leave nothing behind", async () => {
    await using pawl = openTest();
    const ends: string[] = [];
    const fan = workflow("fan", async (ctx) => {
      const one = async (): Promise<void> => {
        await ctx
          .mutex("m")
          .acquire()
          .catch((error: unknown) => void ends.push(error instanceof PawlError ? error.code : "other"));
      };
      await Promise.all(numbers(MANY).map(one));
      await ctx.sleep("1s");
    });
    pawl.work([fan], { warm: 1000 });
    const hold = await pawl.mutex("m").acquire();
    const run = await pawl.start(fan, undefined);
    await run.until("waiting");
    await run.cancel();
    await run.result().catch(() => {});
    expect(ends).toEqual(numbers(MANY).map(() => "run_canceled"));
    expect((await pawl.mutex("m").inspect()).waiting).toBe(0);
    await hold.release();
    expect((await pawl.mutex("m").inspect()).holders).toEqual([]);
  });

  test("get the error of a deadlock that they are part of", async () => {
    await using pawl = openTest();
    const cross = async (ctx: Context, first: string, then: string): Promise<string[]> => {
      const held = await ctx.mutex(first).acquire();
      await ctx.sleep("1s");
      const one = async (): Promise<string> => {
        try {
          return await ctx.mutex(then).with(() => "acquired");
        } catch (error) {
          if (error instanceof PawlError && error.code === "deadlock") await held.release();
          return error instanceof PawlError ? error.code : "other";
        }
      };
      return Promise.all(numbers(MANY).map(one));
    };
    const left = workflow("left", (ctx) => cross(ctx, "a", "b"));
    const right = workflow("right", (ctx) => cross(ctx, "b", "a"));
    pawl.work([left, right]);
    const runs = await Promise.all([pawl.start(left, undefined), pawl.start(right, undefined)]);
    const results = await Promise.all(runs.map((run) => run.result()));
    expect(results.flat().filter((how) => how === "deadlock").length).toBeGreaterThan(0);
    expect(results.flat().filter((how) => how === "other")).toEqual([]);
    for (const name of ["a", "b"]) expect(await recordOf(pawl, name)).toMatchObject({ holders: [], waiting: 0 });
  });

  test("cost the same each, with fifty and with five hundred", async () => {
    const charsEach = async (count: number): Promise<number> => {
      await using pawl = openTest();
      let chars = 0;
      pawl.kernel.listen((puts) => {
        for (const { row } of puts ?? []) chars += row.value?.length ?? 0;
      });
      const fan = workflow("fan", async (ctx) => {
        const step = (n: number) => ctx.step("work", () => n, { id: String(n), semaphore: { name: "s", permits: 5 } });
        return (await Promise.all(numbers(count).map(step))).length;
      });
      pawl.work([fan]);
      const run = await pawl.start(fan, undefined);
      expect(await run.result()).toBe(count);
      return chars / count;
    };
    const few = await charsEach(50);
    expect(await charsEach(500)).toBeLessThan(1.5 * few);
  });
});
