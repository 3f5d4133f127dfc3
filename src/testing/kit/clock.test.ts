// Goal: a test moves time, explicitly or by waiting, and everything happens in order and at its time.

import { expect, test, vi } from "vitest";
import { ResultTimeoutError, RunEndedError, signal, workflow } from "../../index.ts";
import { NothingLeftError } from "./clock.ts";
import { openTest } from "./pawl.ts";

const START_MS = Date.UTC(2030, 0, 1);
const DAY_MS = 86_400_000;
const go = signal<string>("go");

test("a year of sleep takes no real time, and both clocks have moved by a year", async () => {
  await using pawl = openTest();
  const yearly = workflow("yearly", async (ctx) => {
    const before = ctx.now().getTime();
    await ctx.sleep("365 days");
    return ctx.now().getTime() - before;
  });
  pawl.work([yearly]);
  const run = await pawl.start(yearly);
  const realMs = performance.now();
  expect(await run.result()).toBe(365 * DAY_MS);
  expect(performance.now() - realMs).toBeLessThan(DAY_MS);
  expect(pawl.clock.nowMs).toBe(START_MS + 365 * DAY_MS);
  expect(await pawl.transact((tx) => tx.nowMs)).toBe(START_MS + 365 * DAY_MS);
});

test("the clock is stopped while the test does not wait", async () => {
  await using pawl = openTest({ now: new Date("2031-05-01T00:00:00Z") });
  const short = workflow("short", async (ctx) => ctx.sleep("1s"));
  pawl.work([short]);
  const run = await pawl.start(short);
  await vi.waitFor(async () => expect((await run.status()).status).toBe("waiting"), 60_000);
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(pawl.clock.now()).toEqual(new Date("2031-05-01T00:00:00Z"));
  expect((await run.status()).status).toBe("waiting");
});

test("a sleep ends at its moment and not one millisecond before", async () => {
  await using pawl = openTest();
  const day = workflow("day", async (ctx) => ctx.sleep("1 day"));
  pawl.work([day]);
  const run = await pawl.start(day);
  await pawl.clock.advance(DAY_MS - 1);
  expect((await run.status()).status).toBe("waiting");
  await pawl.clock.advance(1);
  expect((await run.status()).status).toBe("completed");
  expect(pawl.clock.nowMs).toBe(START_MS + DAY_MS);
});

test("timers due at the last moment have fired, also those set meanwhile", async () => {
  await using pawl = openTest();
  const halves = workflow("halves", async (ctx) => {
    await ctx.sleep("1s");
    await ctx.sleep("1s");
    await ctx.step("done", () => "done");
  });
  pawl.work([halves]);
  const run = await pawl.start(halves);
  await pawl.clock.advance("2s");
  expect((await run.status()).status).toBe("completed");
});

test("timers due meanwhile fire in order, each at its time", async () => {
  await using pawl = openTest();
  const seen: [string, number][] = [];
  const remind = workflow("remind", async (ctx, days: number) => {
    for (let i = 0; i < 2; i++) {
      await ctx.sleep(days * DAY_MS);
      await ctx.step("remind", () => seen.push([`every ${days}`, (pawl.clock.nowMs - START_MS) / DAY_MS]));
    }
  });
  pawl.work([remind]);
  await pawl.start(remind, 3);
  await pawl.start(remind, 2);
  await pawl.clock.advance("5 days");
  expect(seen).toEqual([
    ["every 2", 2],
    ["every 3", 3],
    ["every 2", 4],
  ]);
  expect(pawl.clock.nowMs).toBe(START_MS + 5 * DAY_MS);
});

test("a run reaches a status, and the clock stops there", async () => {
  await using pawl = openTest();
  const approval = workflow("approval", async (ctx) => {
    await ctx.sleep("1 hour");
    const answer = await ctx.waitForSignal(go, { timeout: "2 days" });
    await ctx.sleep("1 hour");
    return answer.ok ? answer.value : "nobody";
  });
  pawl.work([approval]);
  const run = await pawl.start(approval);
  await run.until("waiting");
  expect(pawl.clock.nowMs).toBe(START_MS);
  await run.signal(go, "ann");
  // Not the status that it had when the signal came.
  await pawl.clock.advance("1 hour");
  await run.until("waiting");
  expect(pawl.clock.nowMs).toBe(START_MS + 3_600_000);
  expect(await run.result()).toBe("ann");
  expect(pawl.clock.nowMs).toBe(START_MS + 2 * 3_600_000);
});

test("a past status does not count: effects of earlier calls come first", async () => {
  await using pawl = openTest();
  const two = workflow("two", async (ctx) => {
    await ctx.waitForSignal(go);
    await ctx.step("work", () => pawl.clock.sleep("10s"));
    await ctx.waitForSignal(go);
  });
  pawl.work([two]);
  const run = await pawl.start(two);
  await run.until("waiting");
  await run.signal(go, "one");
  await run.until("waiting");
  expect((await run.history()).map(({ name }) => name)).toContain("step work");
  expect(pawl.clock.nowMs).toBe(START_MS + 10_000);
});

test("a run that ends with another status than awaited is reported immediately", async () => {
  await using pawl = openTest();
  const quick = workflow("quick", async () => 1);
  pawl.work([quick]);
  const run = await pawl.start(quick);
  await expect(run.until("waiting")).rejects.toThrow(RunEndedError);
  expect((await run.until(["failed", "completed"])).status).toBe("completed");
});

test("a wait that cannot end reports the status of the runs", async () => {
  await using pawl = openTest();
  const forever = workflow("forever", async (ctx) => ctx.waitForSignal(go));
  pawl.work([forever]);
  const run = await pawl.start(forever, undefined, { id: "lonely" });
  await pawl.start("unknown", undefined, { id: "strange" });
  await expect(run.result()).rejects.toThrow(NothingLeftError);
  await expect(run.result()).rejects.toThrow(
    'run "lonely" is waiting: waits for signal "go" since 2030-01-01T00:00:00.000Z; run "strange" is pending, has been due since 2030-01-01T00:00:00.000Z, ' +
      'and needs a worker that works on "unknown", and its workflow has no worker',
  );
});

test.each(["1 minute", "5s"])("a result with a timeout of %s is given up then", async (timeout) => {
  await using pawl = openTest();
  const slow = workflow("slow", async (ctx) => ctx.sleep("1 day"));
  pawl.work([slow]);
  const run = await pawl.start(slow);
  await expect(run.result({ timeout })).rejects.toThrow(ResultTimeoutError);
  expect(pawl.clock.nowMs - START_MS).toBe(timeout === "5s" ? 5_000 : 60_000);
});

test("the clock waits for real work of a step, and stops meanwhile", async () => {
  await using pawl = openTest();
  const real = workflow("real", async (ctx) =>
    ctx.step("work", () => new Promise<string>((resolve) => setTimeout(resolve, 50, "done")), { timeout: "1s" }),
  );
  pawl.work([real]);
  expect(await (await pawl.start(real)).result()).toBe("done");
  expect(pawl.clock.nowMs).toBe(START_MS);
});

test("a step that hangs ends by its timeout", async () => {
  await using pawl = openTest();
  const hung = workflow("hung", async (ctx) =>
    ctx.step("hang", () => new Promise<void>(() => {}), { timeout: "1 minute", retry: { attempts: 1 } }),
  );
  pawl.work([hung]);
  const run = await pawl.start(hung);
  await expect(run.result()).rejects.toThrow(/60000 ms|1 minute/);
  expect(pawl.clock.nowMs).toBe(START_MS + 60_000);
});

test("a slow step on the test clock keeps its lease, and times out by that clock", async () => {
  await using pawl = openTest();
  const slow = workflow("slow", async (ctx, seconds: number) =>
    ctx.step("work", () => pawl.clock.sleep(seconds * 1000).then(() => seconds), {
      timeout: "2 minutes",
      retry: { attempts: 1 },
    }),
  );
  pawl.work([slow]);
  expect(await (await pawl.start(slow, 119)).result()).toBe(119);
  await expect((await pawl.start(slow, 121)).result()).rejects.toThrow();
});

test("several waiters share one clock", async () => {
  await using pawl = openTest();
  const nap = workflow("nap", async (ctx, days: number) => {
    await ctx.sleep(days * DAY_MS);
    return days;
  });
  pawl.work([nap]);
  const runs = await Promise.all([3, 1, 2].map((days) => pawl.start(nap, days)));
  expect(await Promise.all(runs.map((run) => run.result()))).toEqual([3, 1, 2]);
  expect(pawl.clock.nowMs).toBe(START_MS + 3 * DAY_MS);
});

test("code that gets the handle waits on the same clock", async () => {
  await using pawl = openTest();
  const nap = workflow("nap", async (ctx) => ctx.sleep("1 day").then(() => "rested"));
  pawl.work([nap]);
  const handler = async () => `${await pawl.run(nap, (await pawl.start(nap, undefined, { id: "n" })).id).result()}!`;
  expect(await handler()).toBe("rested!");
  const slot = pawl.slot<number>("n", { initial: 0 });
  expect(await pawl.clock.during(slot.update((n) => n + 1))).toMatchObject({ value: 1 });
});

test("the same test sees the same ids and times", async () => {
  const story = async (seed?: number) => {
    await using pawl = openTest({ seed });
    const chance = workflow("chance", async (ctx) => {
      await ctx.step("fail", () => Promise.reject(new Error("no"))).catch(() => {});
      return [ctx.runId, ctx.uuid(), ctx.random(), ctx.now()];
    });
    pawl.work([chance]);
    return await (await pawl.start(chance)).result();
  };
  expect(await story()).toEqual(await story());
  expect(await story()).not.toEqual(await story(2));
});

test("a handle whose run hangs can be closed", async () => {
  const pawl = openTest();
  const hung = workflow("hung", async (ctx) => ctx.step("hang", () => new Promise<void>(() => {})));
  pawl.work([hung]);
  await pawl.start(hung);
  await pawl.close();
});
