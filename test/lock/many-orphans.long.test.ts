/**
 * Goal: a run that stops waiting for many locks together, because its code was interrupted, leaves all of their lines, in as many commits as it
 * takes, and a crash between two of these commits changes nothing for its code.
 * Method: one run waits for more locks than one commit releases. They are its own, so that nothing else decides when they become free.
 */

import { expect, test } from "vitest";
import { type Context, PawlError, workflow } from "../../src/index.ts";
import { type CrashPoint, crashEverywhere, openTest } from "../../src/testing/index.ts";
import { MOST_MOVED } from "../../src/workflow/locks/locks.ts";

const NAMES = Array.from({ length: MOST_MOVED + 20 }, (_, n) => `m${n}`);
/** More than one decision may touch. */
const VERY_MANY = Array.from({ length: 1_030 }, (_, n) => `m${n}`);

const acquireAll = (ctx: Context, names: readonly string[]) =>
  Promise.all(names.map((name) => ctx.mutex(name).acquire()));

test("a crash between the commits that leave the lines changes nothing for the code", async () => {
  const impatient = workflow("impatient", async (ctx) => {
    const holds = await acquireAll(ctx, NAMES);
    const first = await ctx.race<unknown>([
      async (branch) => acquireAll(branch, NAMES),
      async (branch) => branch.sleep("1s").then(() => "slept"),
    ]);
    await ctx.step("after", () => 1);
    await Promise.all(holds.map((hold) => hold.release()));
    const again = await Promise.all(NAMES.map((name) => ctx.mutex(name).tryAcquire()));
    return `${first}, ${again.filter(({ ok }) => ok).length} free`;
  });
  const ended: unknown[] = [];
  await crashEverywhere(impatient, { check: ({ value, error }) => void ended.push(value ?? error) });
  expect(new Set(ended)).toEqual(new Set([`slept, ${NAMES.length} free`]));
});

test("what a run has done is recorded before it begins to release many locks: its last step never runs again without them", async () => {
  const lasts = workflow("lasts", async (ctx) => {
    await acquireAll(ctx, NAMES);
    await ctx.step("last", () => 1);
  });
  const twice: (CrashPoint | null)[] = [];
  await crashEverywhere(lasts, { check: ({ crash, ran }) => void (ran["last"] === 2 && twice.push(crash)) });
  expect(twice).toEqual([expect.objectContaining({ when: "before", kind: "commit" })]);
});

test.each([
  ["rests then", async (ctx: Context) => ctx.sleep("1s")],
  ["writes a step then", async (ctx: Context) => ctx.step("cleanup", () => 1)],
])("a run that is canceled while it waits for very many locks leaves all lines, if it %s", async (_, cleanup) => {
  await using pawl = openTest();
  const troubles: unknown[] = [];
  const waits = workflow("waits", async (ctx) => {
    try {
      await acquireAll(ctx, VERY_MANY);
    } finally {
      await cleanup(ctx);
    }
  });
  for (const name of VERY_MANY) await pawl.mutex(name).acquire();
  pawl.work([waits], { on: (event) => event.type === "run.trouble" && troubles.push(event.error) });
  const run = await pawl.start(waits, undefined);
  await run.until("waiting");
  await run.cancel();
  const code = await run.result().catch((error: unknown) => (error instanceof PawlError ? error.code : error));
  expect(code).toBe("run_canceled");
  expect(troubles).toEqual([]);
  for (const name of VERY_MANY) expect((await pawl.mutex(name).inspect()).waiting).toBe(0);
});

test("a run that returns without awaiting very many locks ends, and leaves all lines", async () => {
  await using pawl = openTest({ strict: false });
  const troubles: unknown[] = [];
  const leaves = workflow("leaves", async (ctx) => {
    void acquireAll(ctx, VERY_MANY).catch(() => {});
    await ctx.sleep("1s");
    return "left";
  });
  for (const name of VERY_MANY) await pawl.mutex(name).acquire();
  pawl.work([leaves], { on: (event) => event.type === "run.trouble" && troubles.push(event.error) });
  expect(await (await pawl.start(leaves, undefined)).result()).toBe("left");
  expect(troubles).toEqual([]);
  for (const name of VERY_MANY) expect((await pawl.mutex(name).inspect()).waiting).toBe(0);
});
