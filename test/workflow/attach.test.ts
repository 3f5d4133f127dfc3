/**
 * Goal: a child with an id of its own is one run for all callers: any number of parents get its result, and an id of another run is an
 * error that the code can catch (G3).
 * Method: parents that share a child, before and after it has ended, on every store; and the mistakes.
 */

import { expect, test } from "vitest";
import { workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { EVERY, onStores, resultOf } from "./kit.ts";

const child = workflow("child", async (ctx, n: number) => {
  await ctx.sleep(20);
  return ctx.step("double", () => 2 * n);
});
const other = workflow("other", async (_ctx, n: number) => n);
const parent = workflow("parent", async (ctx, n: number) => ctx.call(child, n, { id: "shared" }));

const codeOf = (error: unknown): unknown => (error as { code?: unknown }).code ?? (error as Error).name;

onStores(EVERY, (place) => {
  test("any number of parents with the same input get the result, also after the child has ended", async () => {
    const pawl = await place.open();
    pawl.work([parent, child]);
    const runs = await Promise.all(Array.from({ length: 130 }, () => pawl.start(parent, 21)));
    expect(new Set(await Promise.all(runs.map(resultOf)))).toEqual(new Set([42]));
    await expect(resultOf(await pawl.start(parent, 21))).resolves.toBe(42);
  });

  test("one parent may use the id twice", async () => {
    const pawl = await place.open();
    const twice = workflow("twice", async (ctx) =>
      Promise.all([ctx.call(child, 1, { id: "same" }), ctx.call(child, 1, { id: "same" })]),
    );
    pawl.work([twice, child]);
    await expect(resultOf(await pawl.start(twice))).resolves.toEqual([2, 2]);
  });

  test("another input, another workflow and the run itself are refused where the code can catch it", async () => {
    const pawl = await place.open();
    const wrong = workflow("wrong", async (ctx) => [
      await ctx.call(child, 1, { id: "x" }),
      await ctx.call(child, 2, { id: "x" }).catch(codeOf),
      await ctx.call(other, 1, { id: "x" }).catch(codeOf),
      await ctx.start(other, 1, { id: "x" }).catch(codeOf),
      await ctx.call(other, 1, { id: ctx.runId }).catch(codeOf),
    ]);
    pawl.work([wrong, child, other]);
    const refused = "RunConflictError";
    const ended = await resultOf(await pawl.start(wrong));
    expect(ended[0]).toBe(2);
    expect(ended.slice(1).every((code) => code === "run_conflict" || code === refused)).toBe(true);
  });
});

test("a child that is canceled before it begins throws run_canceled, with its reason, in the parent", async () => {
  await using pawl = openTest();
  const caught = workflow("caught", async (ctx) =>
    ctx.call(child, 1, { id: "kid" }).catch((error) => ({ code: codeOf(error), data: error.data })),
  );
  // No worker has the child's code.
  pawl.work([caught]);
  const run = await pawl.start(caught);
  await pawl.clock.advance("1s");
  await pawl.run("kid").cancel({ reason: "enough" });
  await expect(run.result()).resolves.toEqual({ code: "run_canceled", data: { run: "kid", reason: "enough" } });
});

test("a child that calls the run that waits for it is refused", async () => {
  await using pawl = openTest();
  const inner = workflow(
    "inner",
    async (ctx): Promise<unknown> => ctx.call(outer, undefined, { id: "outer" }).catch(codeOf),
  );
  const outer = workflow("outer", async (ctx): Promise<unknown> => ctx.call(inner, undefined, { id: "inner" }));
  pawl.work([inner, outer]);
  const run = await pawl.start(outer, undefined, { id: "outer" });
  await expect(run.result()).resolves.toMatch(/run_conflict|RunConflictError/);
});
