/**
 * Goal: cancellation and a workflow's timeout are delivered once, where the code waits, and cleanup after them runs normally, within its
 * grace; parts of the code can be shielded; a run whose code does not react can be ended.
 * Method: small workflows in the test kit, warm and replayed at each wait.
 */

import { describe, expect, test } from "vitest";
import { type Context, open, type RunCanceledError, signal, workflow } from "../../src/index.ts";
import { openTest, type TestPawl, type TestRun } from "../../src/testing/index.ts";
import { factsOf, PATIENCE } from "./kit.ts";

const go = signal("go");
const sleeper = workflow("sleeper", async (ctx) => ctx.sleep("300 days"));

async function begin(
  pawl: TestPawl,
  warm: number,
  body: (ctx: Context) => Promise<unknown>,
): Promise<TestRun<unknown>> {
  const it = workflow("it", body);
  pawl.work([it, sleeper], { warm });
  return pawl.start(it, undefined, { id: "it" });
}

const endOf = (run: TestRun<unknown>): Promise<unknown> => run.result().catch((error: { code: string }) => error.code);

describe.each([1000, 0])("with %d warm runs", (warm) => {
  test("a step that still succeeds after the cancellation: cleanup steps run, and the error has the outcome", async () => {
    await using pawl = openTest({ strict: false });
    const done: unknown[] = [];
    const begun = Promise.withResolvers<void>();
    const run = await begin(pawl, warm, async (ctx) => {
      try {
        await ctx.step("make vm", async ({ abortSignal }) => {
          begun.resolve();
          await new Promise((resolve) => abortSignal.addEventListener("abort", resolve));
          return "vm-1";
        });
      } catch (error) {
        await ctx.step("note", () => void done.push((error as RunCanceledError).data.outcome));
        throw error;
      } finally {
        await ctx.step("free vm", () => void done.push("freed"));
        await ctx.sleep("1 minute");
        await ctx.step("log", () => void done.push("logged"));
      }
    });
    await begun.promise;
    await run.cancel();
    expect(await endOf(run)).toBe("run_canceled");
    expect(done).toEqual([{ operation: "make vm", ok: "vm-1" }, "freed", "logged"]);
    expect((await run.history()).map(({ name }) => name)).toContain("step make vm");
  });

  test("the workflow's timeout is delivered the same way", async () => {
    await using pawl = openTest({ strict: false });
    const done: unknown[] = [];
    const it = workflow({ name: "it", timeout: "1 hour" }, async (ctx) => {
      try {
        await ctx.sleep("2 hours");
      } finally {
        await ctx.step("free", () => void done.push("freed"));
      }
    });
    pawl.work([it], { warm });
    const run = await pawl.start(it);
    await expect(run.result()).rejects.toMatchObject({ code: "run_timed_out" });
    expect(done).toEqual(["freed"]);
  });

  test("cleanup that takes longer than the workflow's grace is ended", async () => {
    await using pawl = openTest({ strict: false });
    const warnings: string[] = [];
    const it = workflow({ name: "it", grace: "5 minutes" }, async (ctx) => {
      try {
        await ctx.sleep("300 days");
      } finally {
        await ctx.waitForSignal(go);
      }
    });
    pawl.work([it], { warm, on: (event) => void (event.type === "run.warning" && warnings.push(event.message)) });
    const run = await pawl.start(it);
    await run.until("waiting");
    await run.cancel();
    const begunMs = pawl.clock.nowMs;
    await expect(run.result()).rejects.toMatchObject({ code: "run_canceled" });
    expect(pawl.clock.nowMs - begunMs).toBeLessThan(6 * 60_000);
    expect(warnings).toEqual([expect.stringContaining("grace")]);
  });

  test("what is shielded is not interrupted; the cancellation comes after it", async () => {
    await using pawl = openTest({ strict: false });
    const done: unknown[] = [];
    const run = await begin(pawl, warm, async (ctx) => {
      try {
        await ctx.shield(async (inner) => {
          await inner.shield((innermost) => innermost.sleep("10 minutes"));
          return inner.step("inside", () => "whole");
        });
        await ctx.step("outside", () => void done.push("must not happen"));
      } catch (error) {
        done.push((error as RunCanceledError).data.outcome);
        throw error;
      } finally {
        await ctx.step("cleanup", () => void done.push("cleaned up"));
      }
    });
    await run.until("waiting");
    await run.cancel();
    expect(await endOf(run)).toBe("run_canceled");
    expect(done.at(-2)).toEqual({ operation: "shield", ok: "whole" });
    expect(done.at(-1)).toBe("cleaned up");
    expect(done).not.toContain("must not happen");
  });

  test("code that catches the cancellation and returns completes", async () => {
    await using pawl = openTest({ strict: false });
    const run = await begin(pawl, warm, async (ctx) => {
      await ctx.sleep("300 days").catch(() => {});
      return ctx.step("after", () => "stayed");
    });
    await run.until("waiting");
    await run.cancel();
    expect(await endOf(run)).toBe("stayed");
  });

  test("a step whose attempt was postponed and runs now is aborted, and the error has its outcome", async () => {
    await using pawl = openTest({ strict: false });
    const begun = Promise.withResolvers<void>();
    const outcomes: unknown[] = [];
    const run = await begin(pawl, warm, async (ctx) => {
      try {
        await ctx.step(
          "make vm",
          async ({ attempt, abortSignal }) => {
            if (attempt === 1) throw new Error("busy");
            begun.resolve();
            await new Promise((resolve) => abortSignal.addEventListener("abort", resolve));
            return "vm-1";
          },
          { retry: { attempts: 3, delay: "1 hour" } },
        );
      } catch (error) {
        // A wait, so that the code is replayed where it is not warm.
        await ctx.sleep("1 minute");
        await ctx.step("note", () => void outcomes.push((error as RunCanceledError).data.outcome));
        throw error;
      }
    });
    await pawl.clock.during(begun.promise);
    await run.cancel();
    expect(await endOf(run)).toBe("run_canceled");
    expect(outcomes).toEqual([{ operation: "make vm", ok: "vm-1" }]);
  });

  test("a step whose next attempt is postponed is interrupted", async () => {
    await using pawl = openTest({ strict: false });
    let attempts = 0;
    const run = await begin(pawl, warm, async (ctx) => {
      const fail = () => {
        attempts += 1;
        throw new Error("busy");
      };
      await ctx.step("make vm", fail, { retry: { attempts: 3, delay: "1 hour" } });
    });
    await run.until("waiting");
    await run.cancel();
    expect(await endOf(run)).toBe("run_canceled");
    expect(attempts).toBe(1);
  });
});

/** Work that is parked at its step, because a worker stopped in it and its outcome is unknown. */
function doubtful(): { readonly step: (ctx: Context) => PromiseLike<unknown>; readonly fixed: () => void } {
  let isDoubtful = true;
  return {
    step: (ctx) => ctx.step.atMostOnce("doubtful", () => (isDoubtful ? new Promise(() => {}) : "done")),
    fixed: () => {
      isDoubtful = false;
    },
  };
}

test("a run that is resumed, and canceled before a worker claims it, cleans up and cancels its children", async () => {
  await using pawl = openTest({ strict: false });
  const { step, fixed } = doubtful();
  const done: string[] = [];
  const it = workflow("it", async (ctx) => {
    try {
      await ctx.start(sleeper, undefined, { id: "child", whenParentEnds: "cancel" });
      await step(ctx);
      await ctx.sleep("300 days");
    } finally {
      await ctx.step("free", () => void done.push("freed"));
    }
  });
  const first = pawl.work([it, sleeper]);
  const run = await pawl.start(it);
  await pawl.clock.advance("1 minute");
  await pawl.clock.during(first.stop({ timeout: 1 }));
  fixed();
  const second = pawl.work([it, sleeper]);
  await run.until("parked");
  await pawl.clock.during(second.stop());
  await run.resolveStep("doubtful", { done: false });
  expect((await run.cancel()).status).toBe("pending");
  pawl.work([it, sleeper]);
  expect(await endOf(run)).toBe("run_canceled");
  expect(done).toEqual(["freed"]);
  await expect(pawl.run(sleeper, "child").result()).rejects.toMatchObject({ code: "run_canceled" });
});

test("a parked child that ends with its parent ends its own children, too", async () => {
  await using pawl = openTest({ strict: false });
  const { step } = doubtful();
  const middle = workflow("middle", async (ctx) => {
    await ctx.start(sleeper, undefined, { id: "leaf", whenParentEnds: "cancel" });
    await ctx.lock("held", () => step(ctx));
  });
  const it = workflow("it", async (ctx) => {
    await ctx.start(middle, undefined, { id: "middle", whenParentEnds: "cancel" });
    await ctx.waitForSignal(go);
  });
  const first = pawl.work([it, middle, sleeper]);
  const run = await pawl.start(it);
  await pawl.clock.advance("1 minute");
  await pawl.clock.during(first.stop({ timeout: 1 }));
  pawl.work([it, middle, sleeper]);
  await pawl.run(middle, "middle").until("parked");
  await run.signal(go);
  await run.result();
  await pawl.run(middle, "middle").until("canceled");
  await pawl.run(sleeper, "leaf").until("canceled");
  expect((await pawl.mutex("held").inspect()).holders).toEqual([]);
});

test("a cleanup that was parked and is resumed has all of its grace again", async () => {
  await using pawl = openTest({ strict: false });
  const { step, fixed } = doubtful();
  const done: string[] = [];
  const it = workflow({ name: "it", grace: "5 minutes" }, async (ctx) => {
    try {
      await ctx.sleep("300 days");
    } finally {
      await step(ctx);
      await ctx.sleep("1 minute");
      await ctx.step("log", () => void done.push("logged"));
    }
  });
  const first = pawl.work([it], { warm: 0 });
  const run = await pawl.start(it);
  await run.until("waiting");
  await run.cancel();
  await pawl.clock.advance("1 minute");
  await pawl.clock.during(first.stop({ timeout: 1 }));
  fixed();
  pawl.work([it], { warm: 0 });
  await run.until("parked");
  await pawl.clock.advance("1 hour");
  await run.retry({ steps: ["doubtful"] });
  expect(await endOf(run)).toBe("run_canceled");
  expect(done).toEqual(["logged"]);
});

test("a cancellation that found nothing to interrupt is thrown by the shielded code that comes next, not by the cleanup after it", async () => {
  await using pawl = await open("memory:");
  const done: unknown[] = [];
  const gate = Promise.withResolvers<void>();
  const it = workflow("it", async (ctx) => {
    await gate.promise;
    try {
      await ctx.shield((inner) => inner.step("inside", () => "whole"));
      done.push("must not happen");
    } catch (error) {
      done.push((error as RunCanceledError).data.outcome);
      throw error;
    } finally {
      await ctx.step("cleanup", () => void done.push("cleaned up"));
    }
  });
  pawl.work([it]);
  const run = await pawl.start(it, undefined, { id: "it" });
  await run.cancel();
  await expect.poll(() => factsOf(run), PATIENCE).toContain("canceled");
  gate.resolve();
  await expect(run.result()).rejects.toMatchObject({ code: "run_canceled" });
  expect(done).toEqual([{ operation: "shield", ok: "whole" }, "cleaned up"]);
});

describe("force", () => {
  test("ends a run whose code does not react, and says what may still run", async () => {
    await using pawl = openTest({ strict: false });
    const begun = Promise.withResolvers<void>();
    const run = await begin(pawl, 1000, async (ctx) => {
      await ctx.start(sleeper, undefined, { whenParentEnds: "cancel" });
      await ctx.step.atMostOnce("deaf", () => {
        begun.resolve();
        return new Promise(() => {});
      });
    });
    await begun.promise;
    const { status, mayStillRun } = await run.cancel({ force: true, reason: "enough" });
    expect(status).toBe("canceled");
    expect(mayStillRun).toEqual({ worker: expect.any(String), steps: ["deaf"] });
    await expect(run.result()).rejects.toMatchObject({ code: "run_canceled", data: { reason: "enough" } });
    await expect(pawl.run(sleeper, "it/sleeper").result()).rejects.toMatchObject({ code: "run_canceled" });
  });

  test("notifies the worker that held it that the run has ended, and not that another took it over", async () => {
    await using pawl = await open("memory:");
    const { promise: lost, resolve } = Promise.withResolvers<string>();
    const hangs = workflow("hangs", (ctx) => ctx.step("hang", () => new Promise(() => {})));
    pawl.work([hangs], {
      lease: 100,
      on: (event) => event.type === "run.lost" && resolve((event.error as Error).message),
    });
    const run = await pawl.start(hangs, undefined, { id: "a" });
    await run.cancel({ force: true });
    expect(await lost).toBe("run a is no longer held: it is canceled");
  });

  test("ends a run whose code no worker has", async () => {
    await using pawl = openTest({ strict: false });
    const it = workflow("it", async (ctx) => ctx.waitForSignal(go));
    const worker = pawl.work([it]);
    const run = await pawl.start(it);
    await run.until("waiting");
    await pawl.clock.during(worker.stop());
    await expect(run.cancel({ force: true })).resolves.toMatchObject({ status: "canceled" });
  });
});

test("canceling a parked parent cancels its children, and theirs", async () => {
  await using pawl = openTest({ strict: false });
  let isDoubtful = true;
  const middle = workflow("middle", async (ctx) => {
    await ctx.start(sleeper, undefined, { id: "leaf", whenParentEnds: "cancel" });
    await ctx.sleep("300 days");
  });
  const it = workflow("it", async (ctx) => {
    const child = ctx.call(middle, undefined, { id: "middle" });
    await ctx.sleep("1 minute");
    await ctx.step.atMostOnce("doubtful", () => (isDoubtful ? new Promise(() => {}) : 1));
    await child;
  });
  const first = pawl.work([it, middle, sleeper]);
  const run = await pawl.start(it);
  await pawl.clock.advance("2 minutes");
  await pawl.clock.during(first.stop({ timeout: 1 }));
  isDoubtful = false;
  pawl.work([it, middle, sleeper]);
  await run.until("parked");
  await run.cancel();
  expect((await run.status()).status).toBe("canceled");
  for (const [workflow, id] of [
    [middle, "middle"],
    [sleeper, "leaf"],
  ] as const)
    await expect(pawl.run(workflow, id).result()).rejects.toMatchObject({ code: "run_canceled" });
});

test("a run that was parked in the queue of a lock and is retried keeps its place, and leaves nothing behind", async () => {
  await using pawl = openTest({ strict: false });
  const { step, fixed } = doubtful();
  const it = workflow("it", async (ctx) => {
    const locked = ctx.lock("l", async () => "locked");
    await step(ctx);
    return locked;
  });
  const held = await pawl.mutex("l", { lease: "1 day" }).acquire();
  const first = pawl.work([it]);
  const run = await pawl.start(it);
  await pawl.clock.advance("1 minute");
  await pawl.clock.during(first.stop({ timeout: 1 }));
  fixed();
  pawl.work([it]);
  await run.until("parked");
  await run.retry({ steps: ["doubtful"] });
  await pawl.clock.advance("1 minute");
  expect((await pawl.mutex("l").inspect()).waiting).toBe(1);
  await held.release();
  await expect(run.result()).resolves.toBe("locked");
  expect(await pawl.mutex("l").inspect()).toMatchObject({ holders: [], waiting: 0 });
});
