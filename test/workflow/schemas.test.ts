/**
 * Goal: a schema that transforms is applied once, and both of its sides have their types: a run is started, scheduled and signaled with what the schema
 * takes, and its code gets what the schema returns.
 * Method: the compiler compares the types (`npm run check`); the same code runs, so that the types say what is true.
 */

import { expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { Client } from "../../src/http/client/index.ts";
import { type AnyWorkflow, type Signal, schedule, signal, type Workflow, workflow } from "../../src/index.ts";
import { crashEverywhere, openTest, replayHistory, saveHistory, stub, withSteps } from "../../src/testing/index.ts";

const day = z.string().transform((text) => new Date(text));
const yearOf = workflow({ name: "year", input: z.object({ at: day }) }, async (_ctx, { at }) => {
  expectTypeOf(at).toEqualTypeOf<Date>();
  return at.getUTCFullYear();
});
const NEW_YEAR = { at: "2030-01-01" };

test("every start takes what the schema takes, and the code gets what it returns", async () => {
  expectTypeOf(yearOf).toEqualTypeOf<Workflow<{ at: string }, number, { at: Date }>>();
  await using pawl = openTest();
  const parent = workflow("parent", async (ctx) => {
    await ctx.start(yearOf, NEW_YEAR);
    // @ts-expect-error a Date is what the code gets
    void (() => ctx.call(yearOf, { at: new Date() }));
    return ctx.call(yearOf, NEW_YEAR);
  });
  pawl.work([yearOf, parent]);
  expect(await (await pawl.start(yearOf, NEW_YEAR)).result()).toBe(2030);
  expect(await (await pawl.start(parent)).result()).toBe(2030);
  const id = await pawl.transact((tx) => tx.start(yearOf, NEW_YEAR));
  expect(await pawl.run(yearOf, id).result()).toBe(2030);
  // @ts-expect-error a Date is what the code gets
  await expect(pawl.start(yearOf, { at: new Date() })).rejects.toMatchObject({ code: "schema_mismatch" });
  // @ts-expect-error a Date is what the code gets
  void (() => pawl.transact((tx) => tx.start(yearOf, { at: new Date() })));
  // @ts-expect-error there must be an input
  void (() => pawl.start(yearOf));
});

test("a default makes the input optional", async () => {
  const counted = workflow({ name: "counted", input: z.number().default(7) }, async (_ctx, n) => n + 1);
  expectTypeOf(counted).toEqualTypeOf<Workflow<number | undefined, number, number>>();
  await using pawl = openTest();
  pawl.work([counted]);
  expect(await (await pawl.start(counted)).result()).toBe(8);
  expect(await (await pawl.start(counted, 1)).result()).toBe(2);
});

test("the schema of the output: the code returns what it takes, the result is what it returns", async () => {
  const named = workflow({ name: "named", output: day }, async () => "2030-01-01");
  expectTypeOf(named).toEqualTypeOf<Workflow<undefined, Date>>();
  // @ts-expect-error the code must return a string
  workflow({ name: "wrong", output: day }, async () => new Date());
  await using pawl = openTest();
  pawl.work([named]);
  const run = await pawl.start(named);
  expectTypeOf(run.result()).toEqualTypeOf<Promise<Date>>();
  expect(await run.result()).toEqual(new Date("2030-01-01"));
});

test("the functions of flow control, and a batch, get what the schema returns", async () => {
  const seen: unknown[] = [];
  const flow = workflow(
    {
      name: "flow",
      input: day,
      concurrency: { max: 1, key: (at) => String(at.getUTCFullYear()) },
      priority: (at) => at.getUTCMonth(),
    },
    async (_ctx, at) => at.getUTCDate(),
  );
  const batch = workflow({ name: "batch", input: day, batch: { size: 2, maxWait: "1s" } }, async (_ctx, all) => {
    expectTypeOf(all).toEqualTypeOf<readonly Date[]>();
    seen.push(...all);
  });
  expectTypeOf(batch).toEqualTypeOf<Workflow<string, void, Date>>();
  await using pawl = openTest();
  pawl.work([flow, batch]);
  expect(await (await pawl.start(flow, "2030-01-05")).result()).toBe(5);
  await pawl.start(batch, "2030-01-01");
  await (await pawl.start(batch, "2030-01-02")).result();
  expect(seen).toEqual([new Date("2030-01-01"), new Date("2030-01-02")]);
});

test("a schedule's input, a value or a function's, is what the schema takes; both are checked, once", async () => {
  await using pawl = openTest({ now: new Date("2030-01-01") });
  const seen: unknown[] = [];
  const tick = workflow({ name: "tick", input: z.object({ at: day }) }, async (ctx, { at }) => {
    seen.push([ctx.runId.split("/")[0], at]);
  });
  const hourly = { every: "1 hour", max: 1 } as const;
  // @ts-expect-error a Date is what the code gets
  const refused = schedule("refused", hourly, tick, () => ({ at: new Date(0) }));
  pawl.work([tick, schedule("value", hourly, tick, NEW_YEAR), schedule("made", hourly, tick, () => NEW_YEAR), refused]);
  await pawl.schedules.create("created", hourly, tick, NEW_YEAR);
  await pawl.clock.advance("2 hours");
  const at = new Date("2030-01-01");
  expect(seen.sort()).toEqual([
    ["created", at],
    ["made", at],
    ["value", at],
  ]);
  expect(await pawl.schedules.get("refused")).toMatchObject({ fired: 0 });
  const { entries } = await pawl.schedules.history("refused");
  expect(entries.map(({ reason }) => reason)).toContainEqual(expect.stringContaining("schema_mismatch"));
});

test("a signal is sent with what its schema takes, and received as what it returns", async () => {
  const counted = signal("counted", z.object({ n: z.number().default(1) }));
  const dated = signal("dated", day);
  expectTypeOf(dated).toEqualTypeOf<Signal<Date, "dated", string>>();
  const waits = workflow("waits", async (ctx) => {
    const first = await ctx.waitForSignal(counted);
    expectTypeOf(first.value).toEqualTypeOf<{ n: number }>();
    const second = await ctx.waitForAny([dated, counted]);
    if (dated.is(second)) {
      expectTypeOf(second.value).toEqualTypeOf<Date>();
      return [first.value.n, second.value.getUTCFullYear()];
    }
    return second.value.n;
  });
  await using pawl = openTest();
  pawl.work([waits]);
  const run = await pawl.start(waits);
  await run.signal(counted, {});
  await pawl.transact((tx) => tx.signal(run.id, dated, "2030-01-01"));
  expect(await run.result()).toEqual([1, 2030]);
  // @ts-expect-error a Date is what the code gets
  void (() => run.signal(dated, new Date()));
  // @ts-expect-error a Date is what the code gets
  void (() => pawl.transact((tx) => tx.signal(run.id, dated, new Date())));
});

test("a client applies no schema: it sends what the code gets", () => {
  void ((client: Client) => [
    client.start(yearOf, { at: new Date() }),
    client.schedules.create("s", { every: "1 hour" }, yearOf, { at: new Date() }),
    client.run("r").signal(signal("dated", day), new Date()),
    // @ts-expect-error the client does not apply the schema
    client.start(yearOf, NEW_YEAR),
    client.start(
      workflow("plain", async (_ctx, n: number) => n),
      1,
    ),
  ]);
});

test("the test kit takes such a workflow as any other", async () => {
  const stepped = workflow({ name: "stepped", input: day }, async (ctx, at) =>
    ctx.step("year", () => at.getUTCFullYear()),
  );
  const any: AnyWorkflow = stepped;
  expect(any.name).toBe("stepped");
  await crashEverywhere(stepped, { input: "2030-01-01" });
  // @ts-expect-error a Date is what the code gets
  void (() => crashEverywhere(stepped, { input: new Date() }));
  await using pawl = openTest();
  pawl.work([withSteps(stepped, { year: stub(1999) })]);
  const run = await pawl.start(stepped, "2030-01-01");
  expect(await run.result()).toBe(1999);
  expect(await replayHistory(stepped, await saveHistory(pawl, run.id))).toMatchObject({ ok: true, value: 1999 });
});

test("a schema that does not say what it takes: what it returns, as before", () => {
  const plain = {
    "~standard": { version: 1 as const, vendor: "test", validate: (value: unknown) => ({ value: value as Date }) },
  };
  const without = workflow({ name: "plain", input: plain, output: plain }, async (_ctx, at) => at);
  expectTypeOf(without).toEqualTypeOf<Workflow<Date, Date>>();
  expectTypeOf(signal("plain", plain)).toEqualTypeOf<Signal<Date, "plain">>();
  const explicit = workflow<Date, number>({ name: "explicit", input: plain }, async (_ctx, at) => at.getTime());
  expectTypeOf(explicit).toEqualTypeOf<Workflow<Date, number>>();
});
