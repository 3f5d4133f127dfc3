/**
 * Goal: a child is a run of its own that its parent can call, start and leave, and that does not outlive a parent that would cancel it.
 * Method: parents that end in each way there is, warm and replayed, with children on the same worker and on another.
 */

import { describe, expect, test } from "vitest";
import { signal, workflow } from "../../src/index.ts";
import { EVERY, factsOf, onStores, PATIENCE, reaches, resultOf } from "./kit.ts";

const go = signal<number>("go");
const double = workflow("double", async (ctx, n: number) => ctx.step("double", () => n * 2));
const waits = workflow("waits", async (ctx) => (await ctx.waitForSignal(go)).value);
const fails = workflow("fails", async () => {
  throw Object.assign(new RangeError("of the child"), { status: 7 });
});

onStores(EVERY, (place) => {
  describe.each([1000, 0])("with %i warm runs", (warm) => {
    test("a call returns the child's result", async () => {
      const pawl = await place.open();
      const parent = workflow(
        "parent",
        async (ctx, n: number) => (await ctx.call(double, n)) + (await ctx.call(double, n + 1)),
      );
      pawl.work([parent, double], { warm });
      const run = await pawl.start(parent, 1);
      expect(await resultOf(run)).toBe(6);
      const children = (await pawl.runs.list({ workflow: double })).runs;
      expect(children.map(({ parent: of }) => of)).toEqual([run.id, run.id]);
    });

    test("children that are called concurrently run concurrently", async () => {
      const pawl = await place.open();
      const parent = workflow("parent", async (ctx) => Promise.all([1, 2, 3].map((n) => ctx.call(double, n))));
      pawl.work([parent, double], { warm });
      expect(await resultOf(await pawl.start(parent))).toEqual([2, 4, 6]);
    });

    test("a child of a child works too, on another handle than its parent", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const middle = workflow("middle", async (ctx, n: number) => ctx.call(double, n));
      const top = workflow("top", async (ctx, n: number) => ctx.call(middle, n));
      one.work([top, double], { warm });
      two.work([middle], { warm });
      expect(await resultOf(await one.start(top, 4))).toBe(8);
    });

    test("a child's failure is thrown at the call, with what the child threw", async () => {
      const pawl = await place.open();
      const parent = workflow("parent", async (ctx) => {
        const error = await ctx.call(fails).catch((thrown: unknown) => thrown);
        const { name, message, status } = error as Error & { status: number };
        return { name, message, status };
      });
      pawl.work([parent, fails], { warm });
      const error = await resultOf(await pawl.start(parent));
      expect(error).toEqual({ name: "RangeError", message: "of the child", status: 7 });
    });

    test("a child that is canceled fails the call, and not as if the parent were canceled", async () => {
      const pawl = await place.open();
      const parent = workflow("parent", async (ctx) => ctx.call(waits, undefined, { id: "child" }));
      pawl.work([parent, waits], { warm });
      const run = await pawl.start(parent);
      await expect.poll(async () => (await pawl.runs.list({ prefix: "child" })).runs.length, PATIENCE).toBe(1);
      await pawl.run(waits, "child").cancel({ reason: "no more" });
      await expect(resultOf(run)).rejects.toMatchObject({ code: "run_failed", cause: { name: "RunCanceledError" } });
    });

    test("a child has the id that was passed", async () => {
      const pawl = await place.open();
      const parent = workflow("parent", async (ctx) => {
        const id = await ctx.start(waits, undefined, { id: "mine" });
        return [id, await ctx.call(double, 1, { id: "other" })];
      });
      pawl.work([parent, waits, double], { warm });
      expect(await resultOf(await pawl.start(parent))).toEqual(["mine", 2]);
      expect((await pawl.run(double, "other").status()).status).toBe("completed");
    });
  });

  describe("when the parent ends first", () => {
    const ends = {
      completed: async () => "done",
      failed: async () => Promise.reject(new Error("no")),
    };

    test.each(Object.entries(ends))(
      "%s: a child that was called is canceled, one that was started is left",
      async (_, end) => {
        const pawl = await place.open();
        const parent = workflow("parent", async (ctx) => {
          void ctx.call(waits, undefined, { id: "called" });
          await ctx.start(waits, undefined, { id: "started" });
          await ctx.start(waits, undefined, { id: "to be canceled", whenParentEnds: "cancel" });
          void ctx.call(waits, undefined, { id: "to be left", whenParentEnds: "leave" });
          await ctx.step("last", () => {});
          return end();
        });
        pawl.work([parent, waits]);
        const run = await pawl.start(parent);
        await resultOf(run).catch(() => {});
        await reaches(pawl.run(waits, "called"), "canceled");
        await reaches(pawl.run(waits, "to be canceled"), "canceled");
        for (const id of ["started", "to be left"]) {
          const left = pawl.run(waits, id);
          await reaches(left, "waiting");
          await left.signal(go, 1);
          expect(await resultOf(left)).toBe(1);
        }
      },
    );

    test("by cancellation: the call is interrupted, and the child is canceled with it", async () => {
      const pawl = await place.open();
      const parent = workflow("parent", async (ctx) => ctx.call(waits, undefined, { id: "child" }));
      pawl.work([parent, waits]);
      const run = await pawl.start(parent);
      await expect.poll(async () => (await pawl.runs.list({ prefix: "child" })).runs.length, PATIENCE).toBe(1);
      await reaches(pawl.run(waits, "child"), "waiting");
      await run.cancel();
      await expect(resultOf(run)).rejects.toMatchObject({ code: "run_canceled" });
      await reaches(pawl.run(waits, "child"), "canceled");
    });
  });

  test("a child is started once, and its parent waits without a process", async () => {
    const [one, two] = await Promise.all([place.open(), place.open()]);
    const parent = workflow("parent", async (ctx) => [
      await ctx.call(waits, undefined, { id: "child" }),
      ctx.incarnation,
    ]);
    const worker = one.work([parent, waits]);
    const run = await one.start(parent);
    await reaches(run, "waiting");
    await reaches(one.run(waits, "child"), "waiting");
    await worker.stop();
    await two.run(waits, "child").signal(go, 3);
    two.work([parent, waits]);
    expect(await resultOf(run)).toEqual([3, 1]);
    expect((await factsOf(run)).filter((name) => name.startsWith("child "))).toEqual(["child waits"]);
    expect((await factsOf(one.run(waits, "child"))).filter((name) => name === "started").length).toBe(1);
  });
});
