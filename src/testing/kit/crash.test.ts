// Goal: a crash is tried before and after every call of the store, and mistakes that it causes are found. Method: workflows that survive
// it, and planted ones that do not.

import { expect, test } from "vitest";
import { signal, workflow } from "../../index.ts";
import { CrashError, CrashInjector, type CrashPoint, crashEverywhere } from "./crash.ts";
import { withSteps } from "./steps.ts";

const go = signal<string>("go");

/** A bank that recognizes requests by their keys. */
class Bank {
  readonly payments = new Map<string, number>();
  requests = 0;

  pay(key: string, cents: number): string {
    this.requests += 1;
    this.payments.set(key, cents);
    return `paid ${cents}`;
  }
}

const order = workflow("order", async (ctx, cents: number) => {
  const paid = await ctx.step("pay", (): string => {
    throw new Error("the real bank");
  });
  const decision = await ctx.waitForSignal(go, { timeout: "2 days" });
  await ctx.sleep("1 hour");
  return ctx.step("tell", () => `${paid}, ${cents}, ${decision.ok ? decision.value : "nobody"}`);
});

test("a workflow with keys survives a crash anywhere, and the report says how often its steps ran", async () => {
  const tried: (CrashPoint | null)[] = [];
  const report = await crashEverywhere(order, {
    input: 100,
    world: () => new Bank(),
    workflows: (bank) => [withSteps(order, { pay: ({ key }) => bank.pay(key, 100) }, { others: "run" })],
    script: async (run) => {
      await run.until("waiting");
      await run.signal(go, "ann", { id: "click" });
    },
    check: ({ crash, value, world, ran }) => {
      tried.push(crash);
      expect(value).toBe("paid 100, 100, ann");
      expect(world.payments.size).toBe(1);
      expect(world.requests).toBe(ran["pay"]);
    },
  });
  expect(report.steps).toEqual({ pay: { least: 1, most: 2 }, tell: { least: 1, most: 2 } });
  expect(report.parked).toBe(0);
  expect(tried[0]).toBeNull();
  expect(report.crashes).toBe(tried.length - 1);
  // Each call twice, and the commits of start, steps, waits and end are among them.
  const calls = tried.length / 2;
  expect(tried.filter((crash) => crash?.when === "before").map((crash) => crash?.call)).toEqual(
    Array.from({ length: Math.floor(calls) }, (_, index) => index + 1),
  );
  expect(tried.filter((crash) => crash?.kind === "commit").length).toBeGreaterThan(10);
});

test("a step runs twice only where its record was lost: before the commit, not after it", async () => {
  const twice: (CrashPoint | null)[] = [];
  const one = workflow("one", async (ctx) => {
    await ctx.step("a", () => 1);
    await ctx.step("b", () => 2);
  });
  await crashEverywhere(one, {
    check: ({ crash, ran }) => {
      if (ran["a"] === 2) twice.push(crash);
    },
  });
  expect(twice).toEqual([expect.objectContaining({ when: "before", kind: "commit" })]);
});

test("a crashed process does nothing: its pending calls do not happen after the crash", async () => {
  const one = workflow("one", async (ctx) => ctx.step("a", () => 1));
  const tookMs: number[] = [];
  await crashEverywhere(one, {
    script: async (run, pawl) => {
      const startMs = pawl.clock.nowMs;
      await run.result();
      tookMs.push(pawl.clock.nowMs - startMs);
    },
  });
  // If it crashes before its first call, it has not started the run that the other process would have to wait for; if it crashes before the
  // step's record, it has.
  expect(tookMs[1]).toBeLessThan(1000);
  expect(Math.max(...tookMs)).toBeGreaterThan(20_000);
});

test("after a process has crashed, none of its calls happens, and none returns", async () => {
  const injector = new CrashInjector({ when: "after", call: 2, kind: "commit" });
  const happened: number[] = [];
  const answered: number[] = [];
  for (const call of [1, 2, 3])
    void injector.pass("commit", async () => happened.push(call)).then(() => answered.push(call));
  await injector.died;
  void injector.pass("read", async () => happened.push(4)).then(() => answered.push(4));
  await new Promise((resolve) => setImmediate(resolve));
  expect(happened).toEqual([1, 2, 3]);
  expect(answered).toEqual([1]);
  expect(injector.calls.length).toBe(3);
});

test("planted: an effect that is repeated without a key is found, with the call", async () => {
  const report = crashEverywhere(order, {
    input: 100,
    world: () => ({ payments: 0 }),
    workflows: (world) => [
      withSteps(
        order,
        {
          pay: () => {
            world.payments += 1;
            return `paid ${world.payments} times`;
          },
        },
        { others: "run" },
      ),
    ],
    script: (run) => run.signal(go, "ann").then(() => {}),
  });
  await expect(report).rejects.toThrow(CrashError);
  await expect(report).rejects.toThrow(
    /^after a crash before store call \d+ \(commit\): it completed with "paid 2 times.*without a crash it completed with "paid 1 times/,
  );
});

test("planted: a check that fails is reported with the crash", async () => {
  const bad = workflow("bad", async (ctx) => ctx.step("a", () => 1));
  const check = ({ ran }: { ran: Readonly<Record<string, number>> }) => {
    if (ran["a"] !== 1) throw new Error("a ran twice");
  };
  await expect(crashEverywhere(bad, { check })).rejects.toThrow(/^after a crash before store call \d+ .*a ran twice/);
});

test("planted: a result that depends on the memory of the process is found", async () => {
  const counters = new Map<string, number>();
  const forgetful = workflow("forgetful", async (ctx, name: string) => {
    counters.set(name, (counters.get(name) ?? 0) + 1);
    await ctx.sleep("1 minute");
    return counters.get(name);
  });
  await expect(crashEverywhere(forgetful, { input: "w", world: () => counters.clear() })).rejects.toThrow(
    /it completed with 3; without a crash it completed with 2/,
  );
});

test("a step that runs at most once never runs twice, and is parked if its outcome is unknown", async () => {
  const once = workflow("once", async (ctx) => ctx.step.atMostOnce("wire", () => "sent"));
  await expect(crashEverywhere(once)).rejects.toThrow(/it is parked .*without a crash it completed with "sent"/);
  const report = await crashEverywhere(once, {
    mayPark: true,
  });
  expect(report.steps["wire"]).toEqual({ least: 0, most: 1 });
  expect(report.parked).toBeGreaterThan(0);
  const asked = workflow("asked", async (ctx) =>
    ctx.step.atMostOnce("wire", () => "sent", { reconcile: () => ({ done: true, value: "sent" }) }),
  );
  expect((await crashEverywhere(asked)).parked).toBe(0);
});

test("the stub of a step that runs at most once is reconciled by its own code, not by the real one", async () => {
  const asked = workflow("asked", async (ctx) =>
    ctx.step.atMostOnce("wire", () => "real", { reconcile: () => ({ done: true, value: "real" }) }),
  );
  const only = await crashEverywhere(asked, {
    workflows: () => [withSteps(asked, { wire: () => "stub" })],
    mayPark: true,
  });
  expect(only.parked).toBeGreaterThan(0);
  const both = await crashEverywhere(asked, {
    workflows: () => [withSteps(asked, { wire: { run: () => "stub", reconcile: () => ({ done: false }) } })],
  });
  expect(both).toMatchObject({ parked: 0, steps: { wire: { least: 1, most: 2 } } });
});

test("a result that depends on time differs after a crash, and may differ if the test allows it", async () => {
  const timed = workflow("timed", async (ctx) => {
    await ctx.sleep("1s");
    return ctx.now().getTime();
  });
  await expect(crashEverywhere(timed)).rejects.toThrow(CrashError);
  expect((await crashEverywhere(timed, { mayDiffer: true })).crashes).toBeGreaterThan(0);
});

test("failures, children and cancellation survive it too", async () => {
  const fails = workflow("fails", async (ctx) =>
    ctx.step("fail", () => Promise.reject(new Error("declined")), { retry: { attempts: 2 } }),
  );
  await crashEverywhere(fails, { check: ({ error }) => expect(String(error)).toContain("declined") });
  const child = workflow("child", async (ctx, n: number) => {
    await ctx.sleep("1 day");
    return ctx.step("double", () => n * 2);
  });
  const parent = workflow("parent", async (ctx) => [await ctx.call(child, 1), await ctx.call(child, 2)]);
  await crashEverywhere(parent, {
    workflows: () => [parent, child],
    check: ({ value }) => expect(value).toEqual([2, 4]),
  });
  const undone = workflow("undone", async (ctx) => {
    try {
      await ctx.sleep("1 day");
    } finally {
      await ctx.step("undo", () => "undone");
    }
  });
  const report = await crashEverywhere(undone, {
    script: async (run) => {
      await run.until("waiting");
      await run.cancel();
    },
    check: ({ status }) => expect(status).toBe("canceled"),
  });
  expect(report.steps["undo"]?.least).toBe(1);
});
