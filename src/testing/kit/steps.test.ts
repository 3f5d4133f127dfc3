// Goal: a stub behaves like its step in every way except for its effect.

import { expect, expectTypeOf, test } from "vitest";
import { type Run, RunFailedError, type StepHandle, type Workflow, workflow } from "../../index.ts";
import { openTest } from "./pawl.ts";
import { type StubsOf, stub, withSteps } from "./steps.ts";

const real = (): never => {
  throw new Error("the real thing was called");
};

const fulfil = workflow({ name: "fulfil", retry: { jitter: 0 } }, async (ctx, order: { cents: number }) => {
  const charge = await ctx.step<{ id: string }>("charge", real);
  const parcel = await ctx.step.atMostOnce<string>("ship", real, { reconcile: real });
  const row = await ctx.step.tx<number>("book", real);
  const now = await ctx.step.tx.sync<number>("bookNow", real);
  const other = await ctx.step.tx.within<number>("bookElsewhere", real);
  return { order, charge, parcel, row, now, other };
});

const stubs = {
  charge: stub({ id: "ch_1" }),
  ship: stub("parcel"),
  book: stub(7),
  bookNow: stub(9),
  bookElsewhere: stub(async () => 8),
} satisfies StubsOf<{ charge: { id: string }; ship: string; book: number; bookNow: number; bookElsewhere: number }>;

const names = async (run: Run) => (await run.history()).map(({ name }) => name);

test("every kind of step can be stubbed, and is recorded as before", async () => {
  await using pawl = openTest();
  const stubbed = withSteps(fulfil, stubs);
  expectTypeOf(stubbed).toEqualTypeOf(fulfil);
  expect(stubbed.name).toBe("fulfil");
  pawl.work([stubbed]);
  const run = await pawl.start(fulfil, { cents: 100 }, { id: "a" });
  expect(await run.result()).toEqual({
    order: { cents: 100 },
    charge: { id: "ch_1" },
    parcel: "parcel",
    row: 7,
    now: 9,
    other: 8,
  });
  expect(await names(run)).toEqual([
    "started",
    "step charge",
    "intent ship",
    "step ship",
    "step book",
    "step bookNow",
    "step bookElsewhere",
    "completed",
  ]);
});

test("a stub remembers its calls, with the key and the attempt", async () => {
  await using pawl = openTest();
  const charge = stub({ id: "ch_1" }, { failures: 2 });
  pawl.work([withSteps(fulfil, { ...stubs, charge })]);
  const run = await pawl.start(fulfil, { cents: 1 }, { id: "a" });
  await run.result();
  expect(charge.calls.map(({ run, step, attempt }) => ({ run, step, attempt }))).toEqual([
    { run: "a", step: "charge", attempt: 1 },
    { run: "a", step: "charge", attempt: 2 },
    { run: "a", step: "charge", attempt: 3 },
  ]);
  expect(new Set(charge.calls.map(({ key }) => key)).size).toBe(1);
  // The policy of the workflow: a second, and then two.
  expect(pawl.clock.nowMs - (await run.status()).startedAt.getTime()).toBe(3000);
});

test("a stub fails with the given error, counted for each step", async () => {
  await using pawl = openTest();
  const twice = workflow({ name: "twice", retry: { attempts: 1 } }, async (ctx) => {
    const first = await ctx.step("a", real).catch(String);
    const second = await ctx.step("a", real).catch(String);
    return [first, second];
  });
  pawl.work([withSteps(twice, { a: stub(1, { failures: 1, error: new Error("declined") }) })]);
  expect(await (await pawl.start(twice)).result()).toEqual(["Error: declined", "Error: declined"]);
});

test("the result of a stub passes through the codec", async () => {
  await using pawl = openTest();
  const given = { at: new Date(0), list: [1] };
  const keeps = workflow("keeps", async (ctx) => {
    const got = await ctx.step<typeof given>("get", real);
    return got === given ? "the same object" : got;
  });
  pawl.work([withSteps(keeps, { get: stub(given) })]);
  expect(await (await pawl.start(keeps)).result()).toEqual(given);
});

test("a step without a stub is refused, and the message says what to do", async () => {
  await using pawl = openTest();
  pawl.work([withSteps(fulfil, { chrage: stub({ id: "ch_1" }) })]);
  const result = (await pawl.start(fulfil, { cents: 1 })).result();
  await expect(result).rejects.toThrow(RunFailedError);
  await expect(result).rejects.toThrow('step "charge" has no stub');
});

test("steps without a stub run unchanged if the test allows it", async () => {
  await using pawl = openTest();
  const mixed = workflow("mixed", async (ctx) => [
    await ctx.step("a", () => "real"),
    await ctx.step("b", () => "real"),
    await ctx.step.atMostOnce("c", () => "real"),
  ]);
  pawl.work([withSteps(mixed, { b: () => "stub" }, { others: "run" })]);
  expect(await (await pawl.start(mixed)).result()).toEqual(["real", "stub", "real"]);
});

test("a workflow of generators can be stubbed too, and its definition does not change", async () => {
  await using pawl = openTest();
  const limited = workflow({ name: "limited", timeout: "1 hour" }, function* (ctx, n: number) {
    const got: number = yield* ctx.step<number>("double", real);
    yield* ctx.sleep("30 minutes");
    return got + n;
  });
  pawl.work([withSteps(limited, { double: (step: StepHandle) => step.attempt * 2 })]);
  expect(await (await pawl.start(limited, 3)).result()).toBe(5);
  const original = workflow({ name: "late", timeout: "1 hour" }, async (ctx) => ctx.sleep("2 hours"));
  const late = withSteps(original, {});
  pawl.work([late]);
  const run = await pawl.start(late);
  expect((await run.until("timed_out")).status).toBe("timed_out");
});

test("values that are no workflow or no stub are refused immediately", () => {
  expect(() => withSteps({ name: "fulfil" } as Workflow, {})).toThrow("must be one that workflow() returned");
  expect(() => withSteps(fulfil, { charge: 7 as never })).toThrow('the stub of step "charge"');
});
