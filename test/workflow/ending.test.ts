/**
 * Goal: what a run was asked to do happens, or is reported: an operation that is not awaited, one that is used where it cannot be, one that
 * fails unobserved, and one that is awaited late.
 * Method: the mistakes that people make, each as a small workflow in the test kit.
 */

import { describe, expect, test } from "vitest";
import { type Context, type Operation, type RunEvent, signal, workflow } from "../../src/index.ts";
import { openTest, type TestPawl } from "../../src/testing/index.ts";

const child = workflow("child", async (ctx) => ctx.step("work", () => "done"));

interface Lived {
  readonly outcome: unknown;
  readonly warnings: readonly string[];
  readonly facts: readonly string[];
}

async function live(pawl: TestPawl, body: (ctx: Context) => Promise<unknown>): Promise<Lived> {
  const warnings: string[] = [];
  const it = workflow("it", body);
  const worker = pawl.work([it, child], {
    on: (event: RunEvent) => void (event.type === "run.warning" && warnings.push(event.message)),
  });
  const run = await pawl.start(it);
  const outcome = await run.result().then(
    (ok) => ({ ok }),
    (error: Error) => ({ code: "code" in error ? error.code : "", cause: (error.cause as Error | undefined)?.message }),
  );
  const facts = (await run.history()).map(({ name }) => name);
  await pawl.clock.during(worker.stop({ timeout: 1 }));
  return { outcome, warnings, facts };
}

describe("an operation that is not awaited before the function returns", () => {
  const cases: readonly [string, (ctx: Context) => unknown, string][] = [
    ["a step", (ctx) => ctx.step("mail", () => "sent"), "step mail"],
    ["a slot write", (ctx) => ctx.slot("count").set(1), "slot count"],
    ["a child", (ctx) => ctx.start(child), "child child"],
    [
      "a step under a semaphore",
      (ctx) => ctx.step("mail", () => 1, { semaphore: { name: "s", permits: 1 } }),
      "step mail",
    ],
  ];
  test.each(cases)("%s: happens, and is reported by name", async (_, ask, fact) => {
    await using pawl = openTest({ strict: false });
    const { outcome, warnings, facts } = await live(pawl, async (ctx) => {
      void ask(ctx);
      return "returned";
    });
    expect(outcome).toEqual({ ok: "returned" });
    expect(facts).toContain(fact);
    expect(facts.indexOf(fact)).toBeLessThan(facts.indexOf("completed"));
    expect(warnings).toEqual([expect.stringContaining("without awaiting")]);
  });

  test("a step that is tried again much later: the run waits for it", async () => {
    await using pawl = openTest({ strict: false });
    const { outcome, facts } = await live(pawl, async (ctx) => {
      void ctx.step("mail", ({ attempt }) => (attempt < 3 ? Promise.reject(new Error("no")) : "sent"), {
        retry: { delay: "1 hour", attempts: 3 },
      });
      return "returned";
    });
    expect(outcome).toEqual({ ok: "returned" });
    expect(facts).toContain("step mail");
  });

  test("a sleep and a wait for a signal are dropped", async () => {
    await using pawl = openTest({ strict: false });
    const begunMs = pawl.clock.nowMs;
    const { outcome } = await live(pawl, async (ctx) => {
      void ctx.sleep("300 days");
      void ctx.waitForSignal(signal("never"));
      return "returned";
    });
    expect(outcome).toEqual({ ok: "returned" });
    expect(pawl.clock.nowMs - begunMs).toBeLessThan(60_000);
  });

  test("one that fails unobserved fails the run", async () => {
    await using pawl = openTest({ strict: false });
    const { outcome } = await live(pawl, async (ctx) => {
      void ctx.step("mail", () => Promise.reject(new Error("no mail")), { retry: { attempts: 1 } });
      return "returned";
    });
    expect(outcome).toEqual({ code: "run_failed", cause: "no mail" });
  });

  test("one that fails and was observed does not", async () => {
    await using pawl = openTest({ strict: false });
    const { outcome } = await live(pawl, async (ctx) => {
      const failing = ctx.step("mail", () => Promise.reject(new Error("no mail")), { retry: { attempts: 1 } });
      return Promise.race([failing.catch(() => "caught"), ctx.step("quick", () => "quick")]);
    });
    expect(outcome).toEqual({ ok: expect.any(String) });
  });
});

describe("a rejection that is awaited later does not end the process", () => {
  const limited: readonly [string, (ctx: Context) => Operation<unknown>][] = [
    ["of a plain step", (ctx) => ctx.step("a", fails, once)],
    ["under a semaphore", (ctx) => ctx.step("a", fails, { ...once, semaphore: { name: "s", permits: 2 } })],
    ["in a rate limit", (ctx) => ctx.step("a", fails, { ...once, rateLimit: { name: "r", max: 1, per: "1s" } })],
    ["under a lock", (ctx) => ctx.lock("l", () => ctx.step("a", fails, once))],
    ["of ctx.all", (ctx) => ctx.all([ctx.step("a", fails, once)])],
    ["of ctx.race", (ctx) => ctx.race([ctx.step("a", fails, once)])],
  ];
  const fails = (): Promise<never> => Promise.reject(new Error("no"));
  const once = { retry: { attempts: 1 } };
  test.each(limited)("%s", async (_, ask) => {
    await using pawl = openTest({ strict: false });
    const { outcome } = await live(pawl, async (ctx) => {
      const late = ask(ctx);
      await ctx.sleep("1 hour");
      return late.catch((error) => (error as Error).message);
    });
    expect(outcome).toEqual({ ok: "no" });
  });
});

describe("ctx", () => {
  test("inside a step throws immediately and says what to do instead", async () => {
    await using pawl = openTest({ strict: false });
    const messages: string[] = [];
    const { outcome } = await live(pawl, async (ctx) => {
      const inner: readonly (() => unknown)[] = [
        () => ctx.step("inner", () => 1),
        () => ctx.sleep("1s"),
        () => ctx.lock("l", async () => 1),
        () => ctx.slot("s").get(),
        () => ctx.call(child),
        () => ctx.rateLimit("r", { max: 1, per: "1s" }).acquire(),
        // Replayed, the step would not draw, and everything after it would draw something else.
        () => ctx.now(),
        () => ctx.random(),
        () => ctx.uuid(),
      ];
      for (const [index, ask] of inner.entries())
        await ctx
          .step(`outer ${index}`, async () => {
            await new Promise((resolve) => setImmediate(resolve));
            return ask();
          })
          .catch((error) => messages.push((error as { code: string }).code));
      return "end";
    });
    expect(outcome).toEqual({ ok: "end" });
    expect(messages).toEqual(Array.from({ length: 9 }, () => "nested_operation"));
  });

  test("in the code of another run throws, and neither run records it", async () => {
    await using pawl = openTest({ strict: false });
    let shared: Context | undefined;
    const both = Promise.withResolvers<void>();
    const codes: string[] = [];
    let begun = 0;
    const order = workflow("order", async (ctx, id: string) => {
      shared = ctx;
      await ctx.step("check", () => {
        begun += 1;
        if (begun === 2) both.resolve();
        return both.promise;
      });
      const foreign = shared === ctx ? undefined : shared;
      if (foreign === undefined) return id;
      for (const ask of [() => foreign.step("charge", () => id), () => foreign.sleep(1), () => foreign.uuid()])
        try {
          await ask();
        } catch (error) {
          codes.push((error as { code: string }).code);
        }
      return id;
    });
    pawl.work([order]);
    const runs = [await pawl.start(order, "a", { id: "a" }), await pawl.start(order, "b", { id: "b" })];
    expect(await Promise.all(runs.map((run) => run.result()))).toEqual(["a", "b"]);
    expect(codes).toEqual(["foreign_context", "foreign_context", "foreign_context"]);
    for (const run of runs) expect((await run.history()).map(({ name }) => name)).not.toContain("step charge");
  });

  test("after the run has ended rejects immediately, and ends nothing if it is not awaited", async () => {
    await using pawl = openTest({ strict: false });
    let kept: Context | undefined;
    await live(pawl, async (ctx) => {
      kept = ctx;
      return "end";
    });
    await expect(kept?.step("late", () => 1)).rejects.toMatchObject({ code: "used_after_end" });
    await expect(kept?.sleep(1)).rejects.toMatchObject({ code: "used_after_end" });
    await expect(kept?.lock("l", async () => {})).rejects.toMatchObject({ code: "used_after_end" });
  });
});
