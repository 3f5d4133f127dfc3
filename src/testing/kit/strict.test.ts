/**
 * Goal: a mistake in a workflow's code that would be unnoticed in production fails the test that runs it.
 * Method: one workflow for each mistake, awaited in each way that a test can wait.
 */

import { describe, expect, test } from "vitest";
import { type Context, type StepHandle, workflow } from "../../index.ts";
import { openTest } from "./pawl.ts";

let late: StepHandle | undefined;

const mistakes: readonly [string, (ctx: Context) => Promise<unknown>, string][] = [
  [
    "randomness in the body",
    async (ctx) => {
      for (let i = 0; i < 8; i++) {
        await ctx.step(Math.random() < 0.5 ? "left" : "right", () => {});
        await ctx.sleep("1 minute");
      }
    },
    "the history says",
  ],
  [
    "a step that is not awaited",
    async (ctx) => {
      void ctx.step("mail", () => {});
    },
    'without awaiting step "mail"',
  ],
  [
    "a failure that is never observed",
    async (ctx) => {
      void ctx.step("mail", () => Promise.reject(new Error("no")), { retry: { attempts: 1 } });
      await ctx.sleep("1 minute");
    },
    'step "mail" failed',
  ],
  [
    "a late heartbeat",
    async (ctx) => {
      await ctx.step("a", (step) => {
        late = step;
      });
      await ctx.step("b", () => late?.heartbeat(1));
    },
    "heartbeat()",
  ],
];

describe.each(mistakes)("%s", (_, body, message) => {
  const it = workflow("it", body);

  test("fails a wait for the result", async () => {
    await using pawl = openTest();
    pawl.work([it]);
    const run = await pawl.start(it);
    await expect(run.result()).rejects.toThrow(message);
  });

  test("fails an advance of the clock", async () => {
    await using pawl = openTest();
    pawl.work([it]);
    await pawl.start(it);
    await expect(pawl.clock.advance("1 hour")).rejects.toThrow(message);
  });

  test("passes if the test allows it", async () => {
    await using pawl = openTest({ strict: false });
    pawl.work([it]);
    await pawl.start(it);
    await pawl.clock.advance("10 seconds");
  });
});

test("a wait is a replay", async () => {
  await using pawl = openTest();
  let begun = 0;
  const it = workflow("it", async (ctx) => {
    begun += 1;
    await ctx.sleep("1 minute");
    await ctx.sleep("1 minute");
  });
  pawl.work([it]);
  await (await pawl.start(it)).result();
  expect(begun).toBe(3);
});
