/**
 * Goal: the types flow: of signals, so that a wait for several knows what came, and of inputs, also those that may be left out.
 * Method: the compiler compares the types (`npm run check`); the same code runs, so that the types say what is true.
 */

import { expect, expectTypeOf, test } from "vitest";
import { type Received, signal, type Workflow, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";

const approved = signal<{ by: string }>("approved");
const rejected = signal<{ reason: string }>("rejected");
const stopped = signal("stopped");
const counted = signal("counted", {
  "~standard": { version: 1, vendor: "test", validate: (value) => ({ value: value as number }) },
});
const named = signal<{ by: string }, "named">("named");

test("an input that may be left out, or has a default, keeps its type", async () => {
  const optional = workflow("optional", async (_ctx, n?: number) => n ?? 0);
  const defaulted = workflow("defaulted", async (_ctx, n = 7) => n);
  const generator = workflow("generator", function* (ctx, n?: number) {
    return yield* ctx.step("n", () => n ?? 0);
  });
  const withOptions = workflow({ name: "with-options" }, async (_ctx, n?: number) => n ?? 0);
  const none = workflow("none", async () => 0);
  const onlyCtx = workflow("only-ctx", async (ctx) => ctx.runId);
  const needed = workflow("needed", async (_ctx, n: number) => n);
  expectTypeOf(optional).toEqualTypeOf<Workflow<number | undefined, number>>();
  expectTypeOf(defaulted).toEqualTypeOf<Workflow<number | undefined, number>>();
  expectTypeOf(generator).toEqualTypeOf<Workflow<number | undefined, number>>();
  expectTypeOf(withOptions).toEqualTypeOf<Workflow<number | undefined, number>>();
  expectTypeOf(none).toEqualTypeOf<Workflow<undefined, number>>();
  expectTypeOf(onlyCtx).toEqualTypeOf<Workflow<undefined, string>>();
  expectTypeOf(needed).toEqualTypeOf<Workflow<number, number>>();
  await using pawl = openTest();
  pawl.work([optional, defaulted, generator, withOptions]);
  const results: number[] = [];
  for (const one of [optional, defaulted, generator, withOptions])
    for (const run of [await pawl.start(one, 5), await pawl.start(one)]) results.push(await run.result());
  expect(results).toEqual([5, 0, 5, 7, 5, 0, 5, 0]);
  // @ts-expect-error there is no input
  void (() => pawl.start(none, 5));
  // @ts-expect-error there is no input
  void (() => pawl.start(onlyCtx, 5));
  // @ts-expect-error an input is needed
  void (() => pawl.start(needed));
  // @ts-expect-error the input is a number
  void (() => pawl.start(optional, "5"));
});

test("a signal without explicit types knows its name; an explicit payload leaves the name a string", () => {
  expectTypeOf(stopped.name).toEqualTypeOf<"stopped">();
  expectTypeOf(counted.name).toEqualTypeOf<"counted">();
  expectTypeOf(named.name).toEqualTypeOf<"named">();
  expectTypeOf(approved.name).toEqualTypeOf<string>();
  // @ts-expect-error the name is not the declared one
  signal<undefined, "a">("b");
  expect([stopped.name, counted.name, named.name, approved.name]).toEqual(["stopped", "counted", "named", "approved"]);
});

test("waitForAny narrows its value by the name of the signal", async () => {
  const decide = workflow("decide", async (ctx) => {
    const received = await ctx.waitForAny([stopped, counted, named]);
    expectTypeOf(received).toEqualTypeOf<
      Received<undefined, "stopped"> | Received<number, "counted"> | Received<{ by: string }, "named">
    >();
    switch (received.signal) {
      case "stopped":
        expectTypeOf(received.value).toEqualTypeOf<undefined>();
        return "stopped";
      case "counted":
        return `counted ${received.value.toFixed(1)}`;
      case "named":
        return `named by ${received.value.by}`;
    }
  });
  await using pawl = openTest();
  pawl.work([decide]);
  const runs = await Promise.all([1, 2, 3].map(() => pawl.start(decide)));
  await runs[0]?.signal(stopped);
  await runs[1]?.signal(counted, 2);
  await runs[2]?.signal(named, { by: "ann" });
  expect(await Promise.all(runs.map((run) => run.result()))).toEqual(["stopped", "counted 2.0", "named by ann"]);
});

test("a signal's type guard works whatever is known of its name; a timeout matches none", async () => {
  const decide = workflow("decide", async (ctx) => {
    const received = await ctx.waitForAny([approved, rejected], { timeout: "1 hour" });
    if (approved.is(received)) {
      expectTypeOf(received.value).toEqualTypeOf<{ by: string }>();
      return `approved by ${received.value.by}`;
    }
    if (rejected.is(received)) {
      expectTypeOf(received.value).toEqualTypeOf<{ reason: string }>();
      return `rejected: ${received.value.reason}`;
    }
    expectTypeOf(received).toEqualTypeOf<{ readonly ok: false; readonly reason: "timeout" }>();
    return received.reason;
  });
  await using pawl = openTest();
  pawl.work([decide]);
  const runs = await Promise.all([1, 2, 3].map(() => pawl.start(decide)));
  await runs[0]?.signal(approved, { by: "ann" });
  await runs[1]?.signal(rejected, { reason: "late" });
  expect(await Promise.all(runs.map((run) => run.result()))).toEqual(["approved by ann", "rejected: late", "timeout"]);
});

test("ctx.race returns what one of the branches returns, or the given value", async () => {
  const race = workflow("race", async (ctx) => {
    const first = await ctx.race([
      ctx.step("count", () => 1),
      async (branch) => ((await branch.waitForSignal(stopped)).ok ? ("stopped" as const) : null),
      function* (branch) {
        return yield* branch.step("yes", () => true);
      },
    ]);
    expectTypeOf(first).toEqualTypeOf<number | "stopped" | null | boolean>();
    const second = await ctx.race<string | number>([ctx.step("text", () => "text"), ctx.step("two", () => 2)]);
    expectTypeOf(second).toEqualTypeOf<string | number>();
    return [first, second];
  });
  const values = workflow("values", async (ctx) => {
    const all = await ctx.all([ctx.step("one", () => 1), "text"]);
    expectTypeOf(all).toEqualTypeOf<[number, string]>();
    const settled = await ctx.allSettled<number>([ctx.step("two", () => 2), 3]);
    expectTypeOf(settled).toEqualTypeOf<PromiseSettledResult<number>[]>();
    const raced = await ctx.race([ctx.step("text", () => "text"), 4]);
    expectTypeOf(raced).toEqualTypeOf<string | 4>();
  });
  expect(values.name).toBe("values");
  await using pawl = openTest();
  pawl.work([race]);
  const [first, second] = await (await pawl.start(race)).result();
  expect([1, true]).toContain(first);
  expect(["text", 2]).toContain(second);
});
