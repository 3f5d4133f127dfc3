/**
 * Goal: an attempt of a step is over when it is over: what belongs to it has no effect afterwards, and a step's limits count all attempts.
 * Method: steps that leave callbacks behind, time out or are tried for long, with the clock of the test kit, and on every store.
 */

import { describe, expect, test } from "vitest";
import { type RunEvent, type StepHandle, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { EVERY, factsOf, onStores, resultOf, SQL } from "./kit.ts";

onStores(EVERY, (place) => {
  test("a heartbeat after the step has returned has no effect and is reported", async () => {
    const pawl = await place.open();
    const warnings: RunEvent[] = [];
    let late: StepHandle | undefined;
    let runs = 0;
    const it = workflow("it", async (ctx) => {
      await ctx.step(
        "a",
        (step) => {
          runs += 1;
          late = step;
          return runs;
        },
        { heartbeat: "20ms" },
      );
      await ctx.sleep(30);
      late?.heartbeat({ row: 7 });
      await ctx.sleep(60);
      return ctx.step("b", () => "end");
    });
    pawl.work([it], { on: (event) => void (event.type === "run.warning" && warnings.push(event)) });
    const run = await pawl.start(it);
    await expect(resultOf(run)).resolves.toBe("end");
    expect(runs).toBe(1);
    expect((await factsOf(run)).filter((fact) => fact.startsWith("progress") || fact === "step a")).toEqual(["step a"]);
    expect(warnings).toMatchObject([{ step: "a", message: expect.stringContaining("heartbeat()") }]);
  });
});

// The failure of such a step arrives while the steps after it have not begun: the run must not rest before they have.
test.each([
  ["as the first steps", false],
  ["after a commit", true],
])(
  "a step that throws before it returns, and is postponed, does not release the run while steps beside it begin: %s",
  async (_, isLater) => {
    const pawl = openTest();
    let calls = 0;
    const it = workflow("it", async (ctx) => {
      if (isLater) await ctx.step("before", () => "done");
      const late = ctx.step(
        "late",
        ({ attempt }) => {
          if (attempt === 1) throw new Error("not yet");
          return attempt;
        },
        { retry: { delay: "10s", jitter: 0 } },
      );
      const beside = ctx.step("beside", async () => {
        calls += 1;
        return "done";
      });
      return [await late, await beside];
    });
    pawl.work([it]);
    const run = await pawl.start(it);
    await expect(run.result({ timeout: "1h" })).resolves.toEqual([2, "done"]);
    expect(calls).toBe(1);
    const history = await run.history();
    const atOf = (name: string): number => history.find((entry) => entry.name === name)?.at.getTime() ?? 0;
    expect(atOf("step beside")).toBe(atOf("attempt late"));
  },
);

onStores(SQL, (place) => {
  test("a late heartbeat does not run a step.tx again", async () => {
    const pawl = await place.open();
    const plain = await place.connect();
    await plain.query("create table paid (n integer)");
    let late: StepHandle | undefined;
    const it = workflow("it", async (ctx) => {
      await ctx.step.tx(
        "pay",
        async (tx, step) => {
          late = step;
          await tx.query("insert into paid values (1)");
        },
        { heartbeat: "20ms" },
      );
      late?.heartbeat({ row: 1 });
      await ctx.sleep(80);
      return "end";
    });
    pawl.work([it]);
    await expect(resultOf(await pawl.start(it))).resolves.toBe("end");
    expect(await plain.query("select n from paid")).toHaveLength(1);
  });
});

onStores(SQL, (place) => {
  test("the timeout of a step.tx ends the transaction of an attempt that hangs, and the next attempt is recorded", async () => {
    const pawl = await place.open();
    const plain = await place.connect();
    await plain.query("create table hung (n integer)");
    const reasons: unknown[] = [];
    const it = workflow("it", async (ctx) =>
      ctx.step.tx(
        "pay",
        async (sql, { attempt, abortSignal }) => {
          await sql.query(`insert into hung values (${attempt})`);
          if (attempt > 1) return "paid";
          abortSignal.addEventListener("abort", () => reasons.push(abortSignal.reason));
          return new Promise<string>(() => {});
        },
        { timeout: "1s", retry: { attempts: 2, delay: 1 } },
      ),
    );
    pawl.work([it]);
    // Long before a transaction that hangs is ended by the store.
    await expect((await pawl.start(it)).result({ timeout: "20s" })).resolves.toBe("paid");
    expect(reasons).toMatchObject([{ code: "step_timeout" }]);
    expect(await plain.query("select n from hung")).toEqual([{ n: 2 }]);
  });
});

describe("an attempt that timed out", () => {
  test("has no effect any more: its heartbeat neither keeps the next attempt alive nor runs a step of a run that has ended", async () => {
    await using pawl = openTest({ strict: false });
    const handles: StepHandle[] = [];
    const warnings: string[] = [];
    const it = workflow("it", (ctx) =>
      ctx.step(
        "charge",
        (step) => {
          handles.push(step);
          return step.attempt === 1 ? new Promise(() => {}) : "charged";
        },
        { heartbeat: "1s", retry: { attempts: 2, delay: 1 } },
      ),
    );
    pawl.work([it], { on: (event) => void (event.type === "run.warning" && warnings.push(event.message)) });
    await expect((await pawl.start(it)).result()).resolves.toBe("charged");
    handles[0]?.heartbeat("late");
    await pawl.clock.advance("1 minute");
    expect(handles.length).toBe(2);
    expect(warnings).toEqual([expect.stringContaining("attempt 1")]);
  });

  test("has an aborted abortSignal, also if it is read for the first time then", async () => {
    await using pawl = openTest({ strict: false });
    const handles: StepHandle[] = [];
    const it = workflow("it", (ctx) =>
      ctx.step(
        "a",
        (step) => {
          handles.push(step);
          return step.attempt === 1 ? new Promise(() => {}) : 1;
        },
        { timeout: "1s", retry: { attempts: 2, delay: 1 } },
      ),
    );
    pawl.work([it]);
    await (await pawl.start(it)).result();
    expect(handles[0]?.abortSignal.aborted).toBe(true);
    expect(handles[0]?.abortSignal.reason).toMatchObject({ code: "step_timeout" });
    expect(handles[1]?.abortSignal.reason).toMatchObject({ code: "attempt_over" });
  });
});

test("totalTimeout spans all attempts, with the waits between them that are recorded", async () => {
  await using pawl = openTest({ strict: false });
  let attempts = 0;
  const it = workflow("it", async (ctx) => {
    await ctx.step(
      "a",
      () => {
        attempts += 1;
        throw new Error("no");
      },
      { totalTimeout: "25s", retry: { attempts: 100, delay: "10s", factor: 1, jitter: 0 } },
    );
  });
  pawl.work([it], { warm: 0 });
  const begunMs = pawl.clock.nowMs;
  await expect((await pawl.start(it)).result()).rejects.toMatchObject({ code: "run_failed" });
  expect(attempts).toBe(3);
  expect(pawl.clock.nowMs - begunMs).toBeLessThan(26_000);
});

test.each([
  { what: "goes on", downtime: "5s", most: 25_000, atLeast: 9 },
  { what: "is over, but for one attempt", downtime: "1 hour", most: 3_612_000, atLeast: 6 },
])("totalTimeout $what after a time without a worker of $downtime", async ({ downtime, most, atLeast }) => {
  await using pawl = openTest({ strict: false });
  let attempts = 0;
  const it = workflow("it", async (ctx) => {
    await ctx.step("before", () => {});
    await ctx.step(
      "a",
      () => {
        attempts += 1;
        throw new Error("no");
      },
      { totalTimeout: "25s", retry: { attempts: 100, delay: "2s", factor: 1, jitter: 0 } },
    );
  });
  const first = pawl.work([it]);
  const begunMs = pawl.clock.nowMs;
  const run = await pawl.start(it);
  await pawl.clock.advance("9s");
  await pawl.clock.during(first.stop({ timeout: 1 }));
  const before = attempts;
  expect(before).toBe(5);
  await pawl.clock.advance(downtime);
  pawl.work([it]);
  await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
  expect(attempts).toBeGreaterThanOrEqual(atLeast);
  expect(pawl.clock.nowMs - begunMs).toBeLessThanOrEqual(most);
});

test("a step's rateLimit counts each attempt", async () => {
  await using pawl = openTest({ strict: false });
  const times: number[] = [];
  const it = workflow("it", async (ctx) =>
    ctx.step(
      "call",
      ({ attempt }) => {
        times.push(pawl.clock.nowMs);
        if (attempt < 4) throw new Error("no");
        return attempt;
      },
      { rateLimit: { name: "api", max: 1, per: "10s" }, retry: { attempts: 4, delay: 1, jitter: 0 } },
    ),
  );
  pawl.work([it], { warm: 0 });
  await expect((await pawl.start(it)).result()).resolves.toBe(4);
  const gaps = times.slice(1).map((ms, index) => ms - (times[index] ?? 0));
  for (const gap of gaps) expect(gap).toBeGreaterThanOrEqual(9_990);
});

test("turns from before a retry are not used after it: each step takes another one", async () => {
  await using pawl = openTest({ strict: false });
  const times: number[] = [];
  let isBroken = true;
  const kid = workflow("kid", (ctx) =>
    ctx.step("call", () => times.push(pawl.clock.nowMs), { rateLimit: { name: "api", max: 1, per: "10s" } }),
  );
  const it = workflow("it", (ctx) => {
    const beside = async (): Promise<void> => {
      await ctx.sleep("1s");
      if (isBroken) throw new Error("no");
    };
    return Promise.all([beside(), ...Array.from({ length: 4 }, () => ctx.call(kid))]);
  });
  pawl.work([it, kid]);
  const run = await pawl.start(it);
  await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
  expect(times.length).toBe(1);
  await pawl.clock.advance("1 hour");
  isBroken = false;
  await run.retry();
  await run.result();
  expect(times.length).toBe(4);
  const gaps = times.slice(1).map((ms, index) => ms - (times[index] ?? 0));
  for (const gap of gaps) expect(gap).toBeGreaterThanOrEqual(9_990);
});

test.each([
  ["a short", "4s"],
  ["a long", "1 minute"],
])(
  "an at-most-once step that waits for %s turn has not begun: when its worker stops, another resumes",
  async (_, per) => {
    await using pawl = openTest({ strict: false });
    const began: string[] = [];
    const it = workflow("it", async (ctx, name: string) =>
      ctx.step.atMostOnce("call", () => began.push(name), { rateLimit: { name: "api", max: 1, per } }),
    );
    const first = pawl.work([it]);
    await (await pawl.start(it, "a")).result();
    const run = await pawl.start(it, "b", { id: "b" });
    await pawl.clock.advance("1s");
    // A worker that replays the run looks at the step before its turn.
    await pawl.clock.during(first.stop({ timeout: 1 }));
    const second = pawl.work([it], { warm: 0 });
    await run.signal(signal("nothing"), undefined);
    await pawl.clock.advance("1s");
    await pawl.clock.during(second.stop({ timeout: 1 }));
    expect((await factsOf(run)).filter((fact) => fact.startsWith("intent"))).toEqual([]);
    pawl.work([it]);
    await expect(run.result()).resolves.toBe(2);
    expect(began).toEqual(["a", "b"]);
  },
);
