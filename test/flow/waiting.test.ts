/**
 * Goal: a run that waited before it began is as good as one that did not: its rate is kept after a downtime, its timeout and its clock begin with it, it can be
 * canceled, and a parent ends only what is its own.
 * Method: the virtual clock of `openTest`; each line is a symptom that was seen.
 */

import { describe, expect, test } from "vitest";
import { type Context, open, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { codeOf } from "../kernel/kit.ts";

const go = signal("go");

describe("after a downtime, runs begin at their rate", () => {
  const begunAfter = async (
    options: { throttle: { per: string } } | { rateLimit: { max: number; per: string; strict?: boolean } },
    isPaused: boolean,
  ): Promise<readonly number[]> => {
    await using pawl = openTest();
    const startMs = pawl.clock.now().getTime();
    const begun: number[] = [];
    const job = workflow({ name: "job", ...options }, async (ctx) => {
      await ctx.step("begin", () => void begun.push((pawl.clock.now().getTime() - startMs) / 1000));
    });
    if (isPaused) {
      await pawl.workflows.pause("job");
      pawl.work([job]);
    }
    for (let i = 0; i < 6; i++) await pawl.start(job);
    await pawl.clock.advance("30s");
    expect(begun).toEqual([]);
    if (isPaused) await pawl.workflows.resume("job");
    else pawl.work([job]);
    await pawl.clock.advance("30s");
    return begun;
  };
  const gaps = (begun: readonly number[]): readonly number[] => begun.slice(1).map((at, i) => at - (begun[i] ?? 0));

  test.each([true, false])("of throttle; paused: %s", async (isPaused) => {
    const begun = await begunAfter({ throttle: { per: "2s" } }, isPaused);
    expect(begun).toHaveLength(6);
    // The first has had its turn when it was started.
    expect(Math.min(...gaps(begun.slice(1)))).toBeGreaterThanOrEqual(1.9);
  });

  test.each([true, false])("of a strict limit; paused: %s", async (isPaused) => {
    const begun = await begunAfter({ rateLimit: { max: 1, per: "3s", strict: true } }, isPaused);
    expect(begun).toHaveLength(6);
    expect(Math.min(...gaps(begun.slice(1)))).toBeGreaterThanOrEqual(2.9);
  });
});

test("a run that was started while its workflow was paused has all of its timeout", async () => {
  await using pawl = openTest();
  const job = workflow({ name: "job", timeout: "2s" }, async (ctx) => {
    await ctx.sleep("1s");
    return "done";
  });
  pawl.work([job]);
  await pawl.workflows.pause("job");
  const run = await pawl.start(job);
  await pawl.clock.advance("1 minute");
  await pawl.workflows.resume("job");
  expect(await run.result()).toBe("done");
  const late = workflow({ name: "job", timeout: "2s" }, async (ctx) => ctx.sleep("1 minute"));
  await using other = openTest();
  await other.workflows.pause("job");
  other.work([late]);
  const stuck = await other.start(late);
  await other.workflows.resume("job");
  expect(await codeOf(stuck.result())).toBe("run_timed_out");
});

test.each([1000, 0])("the clock of a run begins when it does, with %d warm runs", async (warm) => {
  await using pawl = openTest();
  const startMs = pawl.clock.now().getTime();
  const seen: number[] = [];
  const job = workflow({ name: "job", concurrency: { max: 1 } }, async (ctx) => {
    seen.push(Math.round((ctx.now().getTime() - startMs) / 60_000));
    await ctx.sleep("60 minutes");
  });
  pawl.work([job], { warm });
  const runs = [await pawl.start(job), await pawl.start(job)];
  await Promise.all(runs.map((run) => run.result()));
  expect(new Set(seen)).toEqual(new Set([0, 60]));
});

test("a queued run that was retried is canceled while it waits, with its children", async () => {
  await using pawl = openTest({ strict: false });
  const child = workflow("child", async (ctx) => ctx.waitForSignal(go));
  let isBroken = true;
  const job = workflow({ name: "job", concurrency: { max: 1 } }, async (ctx, isHolder: boolean) => {
    if (isHolder) return ctx.waitForSignal(go);
    await ctx.start(child, undefined, { id: "child", whenParentEnds: "cancel" });
    await ctx.sleep("1s");
    if (isBroken) throw new Error("broken");
    return ctx.waitForSignal(go);
  });
  pawl.work([job, child]);
  const run = await pawl.start(job, false, { id: "run" });
  await run.result().catch(() => {});
  isBroken = false;
  const holder = await pawl.start(job, true, { id: "holder" });
  await holder.until("waiting");
  await run.retry();
  await run.until("queued");
  await run.cancel({ reason: "not wanted" });
  expect(await codeOf(run.result())).toBe("run_canceled");
  expect(await codeOf(pawl.run(child, "child").result())).toBe("run_canceled");
  expect((await holder.status()).status).toBe("waiting");
  // Nothing of it is left in the line.
  const next = await pawl.start(job, true);
  await next.until("queued");
  await holder.signal(go);
  await next.until("waiting");
  await next.cancel();
});

describe("a parent that is canceled leaves what belongs to others, too", () => {
  const collect = { name: "collect", batch: { size: 10, maxWait: "1 hour" } } as const;
  test("a batch with inputs of others", async () => {
    await using pawl = openTest({ strict: false });
    const got: unknown[] = [];
    const batch = workflow(collect, async (_ctx, all: readonly string[]) => void got.push(all));
    const parent = workflow("parent", async (ctx: Context) => ctx.call(batch, "of the parent"));
    pawl.work([batch, parent]);
    await pawl.start(batch, "of another");
    const run = await pawl.start(parent, undefined, { id: "parent" });
    await run.until("waiting");
    await run.cancel();
    await run.result().catch(() => {});
    await pawl.clock.advance("2 hours");
    expect(got).toEqual([["of another", "of the parent"]]);
  });

  test("a run onto which its start was dropped", async () => {
    await using pawl = openTest({ strict: false });
    const single = workflow({ name: "single", concurrency: { max: 1, excess: "drop" } }, async (ctx) => {
      await ctx.waitForSignal(go);
    });
    const parent = workflow("parent", async (ctx: Context) => ctx.race([ctx.sleep("1 hour"), ctx.call(single)]));
    pawl.work([single, parent]);
    const other = await pawl.start(single);
    await other.until("waiting");
    const run = await pawl.start(parent);
    await run.result();
    expect((await other.status()).status).toBe("waiting");
    await other.signal(go);
    await other.result();
  });
});

describe("collected starts", () => {
  test("an id whose run was deleted is a new start", async () => {
    await using pawl = openTest();
    const got: unknown[] = [];
    const job = workflow({ name: "job", debounce: { period: "1s" } }, async (_ctx, n: number) => void got.push(n));
    pawl.work([job]);
    const first = await pawl.start(job, 1, { id: "one" });
    await first.result();
    await pawl.runs.delete(first.id);
    await (await pawl.start(job, 1, { id: "one" })).result();
    expect(got).toEqual([1, 1]);
    expect(await codeOf(pawl.start(job, 1, { id: "one", ifExists: "restart" }))).toBe("invalid_argument");
  });

  test("a batch takes no more than a value may", async () => {
    await using pawl = await open("memory:", { maxValueBytes: 4096 });
    const got: string[] = [];
    const options = { name: "job", batch: { size: 100, maxWait: 50 } } as const;
    const job = workflow(options, async (ctx, all: readonly string[]) => {
      await ctx.step("take", () => void got.push(...all));
    });
    pawl.work([job]);
    const inputs = Array.from({ length: 30 }, (_, i) => `${i} ${"é".repeat(250)}`);
    const runs = await Promise.all(inputs.map((input) => pawl.start(job, input)));
    await Promise.all(runs.map((run) => run.result()));
    expect(got.toSorted()).toEqual(inputs.toSorted());
    expect(await codeOf(pawl.start(job, "x".repeat(4080)))).toBe("value_too_large");
  });
});
