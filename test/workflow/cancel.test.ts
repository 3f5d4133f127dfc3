/**
 * Goal: a run that is canceled, or exceeds its timeout, is notified once, wherever it is, cleans up, and ends as canceled or timed out.
 * Method: cancel runs in each thing that they can be doing, from the handle that runs them and from another.
 */

import { describe, expect, test } from "vitest";
import { type Context, RunCanceledError, RunTimedOutError, signal, workflow } from "../../src/index.ts";
import { gate } from "../kernel/kit.ts";
import { EVERY, factsOf, onStores, PATIENCE, reaches, resultOf } from "./kit.ts";

const go = signal<number>("go");
const child = workflow("child", async (ctx) => ctx.sleep("1 hour"));

/** What a run can wait for. */
const waiting: readonly [string, (ctx: Context) => PromiseLike<unknown>][] = [
  ["a sleep", (ctx) => ctx.sleep("1 hour")],
  ["a wait for a signal", (ctx) => ctx.waitForSignal(go)],
  ["a wait with a timeout", (ctx) => ctx.waitForSignal(go, { timeout: "1 hour" })],
  ["a call", (ctx) => ctx.call(child)],
  [
    "a wait before the next attempt of a step",
    (ctx) => ctx.step("broken", () => Promise.reject(new Error("no")), { retry: { delay: "1 hour" } }),
  ],
  ["several of them", (ctx) => Promise.all([ctx.sleep("1 hour"), ctx.waitForSignal(go)])],
];

onStores(EVERY, (place) => {
  describe.each([
    ["warm, here", 1000, "here"],
    ["replayed, here", 0, "here"],
    ["warm, from another handle", 1000, "there"],
  ] as const)("%s", (_, warm, where) => {
    test.each(waiting)("cancellation interrupts %s, and cleanup runs", async (_what, wait) => {
      const [here, there] = await Promise.all([place.open(), place.open()]);
      const cleaned: unknown[] = [];
      const it = workflow("it", async (ctx) => {
        try {
          await wait(ctx);
        } catch (error) {
          cleaned.push(error instanceof RunCanceledError && error.data.reason);
          throw error;
        } finally {
          cleaned.push(await ctx.step("cleanup", () => "clean"));
          await ctx.sleep(1);
        }
      });
      here.work([it, child], { warm });
      const run = await here.start(it);
      await reaches(run, "waiting");
      const { status } = await (where === "here" ? here : there).run(it, run.id).cancel({ reason: "enough" });
      expect(status).toBe("waiting");
      await expect(resultOf(run)).rejects.toMatchObject({ code: "run_canceled", data: { reason: "enough" } });
      expect((await run.status()).status).toBe("canceled");
      expect(cleaned.slice(0, 2)).toEqual(["enough", "clean"]);
      const facts = await factsOf(run);
      expect(facts.filter((name) => name === "canceled").length).toBe(1);
      expect(facts).toContain("step cleanup");
    });

    test("cancellation reaches a step that runs through its abort signal", async () => {
      const [here, there] = await Promise.all([place.open(), place.open()]);
      const begun = gate();
      let reason: unknown;
      const it = workflow("it", async (ctx) => {
        await ctx.step("long", ({ abortSignal }) => {
          begun.open();
          return new Promise((_, reject) =>
            abortSignal.addEventListener("abort", () => {
              reason = abortSignal.reason;
              reject(new Error("stopped"));
            }),
          );
        });
      });
      here.work([it], { warm });
      const run = await here.start(it);
      await begun.opened;
      await (where === "here" ? here : there).run(it, run.id).cancel();
      await expect(resultOf(run)).rejects.toMatchObject({ code: "run_canceled" });
      expect(reason).toBeInstanceOf(RunCanceledError);
    });
  });

  test("a step that ignores its signal is waited for; its result is kept, and the next operation is refused", async () => {
    const pawl = await place.open();
    const begun = gate();
    const { opened, open } = gate();
    const it = workflow("it", async (ctx) => {
      const value = await ctx.step("deaf", async () => {
        begun.open();
        await opened;
        return "kept";
      });
      await ctx.step("never", () => "ran");
      return value;
    });
    pawl.work([it]);
    const run = await pawl.start(it);
    await begun.opened;
    await run.cancel();
    await expect.poll(() => factsOf(run), PATIENCE).toContain("canceled");
    open();
    await expect(resultOf(run)).rejects.toMatchObject({ code: "run_canceled" });
    const history = await run.history();
    expect(history.map(({ name }) => name)).toEqual(["started", "canceled", "step deaf", "failed"]);
    expect(history[2]?.data).toEqual({ ok: "kept" });
  });

  test("a run that catches its cancellation and returns is completed", async () => {
    const pawl = await place.open();
    const it = workflow("it", async (ctx) => {
      await ctx.sleep("1 hour").catch(() => {});
      return ctx.step("after", () => "all the same");
    });
    pawl.work([it]);
    const run = await pawl.start(it);
    await reaches(run, "waiting");
    await run.cancel();
    expect(await resultOf(run)).toBe("all the same");
  });

  test("a run that throws something else while it cleans up has failed", async () => {
    const pawl = await place.open();
    const it = workflow("it", async (ctx) => {
      await ctx.sleep("1 hour").catch(() => {
        throw new RangeError("cannot clean up");
      });
    });
    pawl.work([it]);
    const run = await pawl.start(it);
    await reaches(run, "waiting");
    await run.cancel();
    await expect(resultOf(run)).rejects.toMatchObject({ code: "run_failed", cause: { name: "RangeError" } });
  });

  test("cancellation is delivered once, however often it is requested, and the first reason counts", async () => {
    const pawl = await place.open();
    const { opened, open } = gate();
    const it = workflow("it", async (ctx) => {
      try {
        await ctx.sleep("1 hour");
      } finally {
        await ctx.step("cleanup", () => opened);
        await ctx.sleep(1);
      }
    });
    pawl.work([it]);
    const run = await pawl.start(it);
    await reaches(run, "waiting");
    await Promise.all(["first", "second", "third"].map((reason) => run.cancel({ reason })));
    await run.cancel({ reason: "fourth" });
    open();
    await expect(resultOf(run)).rejects.toMatchObject({ code: "run_canceled", data: { reason: "first" } });
    expect((await factsOf(run)).filter((name) => name === "canceled").length).toBe(1);
  });

  test("a run that has ended is not canceled, and its outcome is returned", async () => {
    const pawl = await place.open();
    const it = workflow("it", async () => "done");
    pawl.work([it]);
    const run = await pawl.start(it);
    await resultOf(run);
    expect(await run.cancel()).toEqual({ status: "completed" });
    expect(await resultOf(run)).toBe("done");
  });

  test("a run that has not begun ends immediately, and its code never runs", async () => {
    const pawl = await place.open();
    let isRun = false;
    const it = workflow("it", async () => {
      isRun = true;
    });
    pawl.work([it]);
    const run = await pawl.start(it, undefined, { delay: "1 hour" });
    expect(await run.cancel({ reason: "too late" })).toEqual({ status: "canceled" });
    await expect(resultOf(run)).rejects.toMatchObject({ code: "run_canceled", data: { reason: "too late" } });
    expect(isRun).toBe(false);
    expect(await factsOf(run)).toEqual(["started", "canceled"]);
  });

  describe("the timeout of a run", () => {
    test.each([1000, 0])(
      "interrupts it, lets it clean up, and ends it as timed_out, with %i warm runs",
      async (warm) => {
        const pawl = await place.open();
        const seen: unknown[] = [];
        const it = workflow({ name: "it", timeout: 20 }, async (ctx) => {
          try {
            await ctx.sleep("1 hour");
          } catch (error) {
            seen.push(error instanceof RunTimedOutError);
            throw error;
          } finally {
            seen.push(await ctx.step("cleanup", () => "clean"));
          }
        });
        pawl.work([it], { warm });
        const run = await pawl.start(it);
        await expect(resultOf(run)).rejects.toMatchObject({ code: "run_timed_out" });
        expect((await run.status()).status).toBe("timed_out");
        expect(seen.slice(0, 2)).toEqual([true, "clean"]);
      },
    );

    test("reaches a step that runs through its abort signal", async () => {
      const pawl = await place.open();
      let reason: unknown;
      const it = workflow({ name: "it", timeout: 700 }, async (ctx) => {
        await ctx.step("long", ({ abortSignal }) => {
          return new Promise((_, reject) =>
            abortSignal.addEventListener("abort", () => {
              reason = abortSignal.reason;
              reject(new Error("stopped"));
            }),
          );
        });
      });
      pawl.work([it]);
      await expect(resultOf(await pawl.start(it))).rejects.toMatchObject({ code: "run_timed_out" });
      expect(reason).toBeInstanceOf(RunTimedOutError);
    });

    test("counts from the scheduled time of a delayed run", async () => {
      const pawl = await place.open();
      const it = workflow({ name: "it", timeout: "1 hour" }, async () => "in time");
      pawl.work([it]);
      expect(await resultOf(await pawl.start(it, undefined, { delay: 20 }))).toBe("in time");
    });
  });

  test("of a concurrent signal, timeout and cancel, exactly one is the outcome, and all callers get the same", async () => {
    const [one, two] = await Promise.all([place.open(), place.open()]);
    const it = workflow("it", async (ctx) => {
      const got = await ctx.waitForSignal(go, { timeout: 5 });
      return got.ok ? "received" : "expired";
    });
    one.work([it]);
    for (let round = 0; round < 10; round++) {
      const run = await one.start(it);
      const answers = await Promise.all([
        resultOf(run).catch((error: { code: string }) => error.code),
        resultOf(two.run(it, run.id)).catch((error: { code: string }) => error.code),
        two
          .run(it, run.id)
          .signal(go, 1)
          .catch(() => {}),
        run.cancel(),
      ]);
      expect(answers[0]).toBe(answers[1]);
      const outcomes = (await factsOf(run)).filter((name) => /^(received|expired)|^canceled/.test(name));
      const last = { received: "received go", expired: "expired go", run_canceled: "canceled" }[String(answers[0])];
      expect(outcomes).toContain(last);
    }
  });
});
