/**
 * Goal: a mistake in a workflow's code that would be unnoticed in production fails the test that runs it.
 * Method: one workflow for each mistake, awaited in each way that a test can wait.
 */

import { describe, expect, test } from "vitest";
import { type Context, type StepHandle, workflow } from "../../index.ts";
import { openTest } from "./pawl.ts";
import { stub, type WithStepsOptions, withSteps } from "./steps.ts";

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

describe("a stub that no step asks for, while others run", () => {
  const order = workflow("order", async (ctx, isOdd: boolean) => {
    await ctx.step("charge", () => 1);
    return isOdd ? ctx.step("refund", () => 2) : 0;
  });
  const closed = async (
    stubs: Readonly<Record<string, ReturnType<typeof stub>>>,
    options: WithStepsOptions,
    { isOdd = false, ends = true, strict = true } = {},
  ): Promise<string> => {
    const pawl = openTest({ strict });
    pawl.work([withSteps(order, stubs, options)]);
    if (ends) await (await pawl.start(order, isOdd)).result();
    return pawl.close().then(
      () => "closed",
      (error: Error) => `${error.name}: ${error.message}`,
    );
  };
  const message =
    'WorkflowMistakeError: no run of "order" had a step for the stub "chrage", and these steps ran for real: "charge". Correct the name, or say ' +
    'withSteps(…, { others: "run", unused: "allow" })';

  test.each([
    ["is reported at the end", { chrage: stub(1) }, { others: "run" }, {}, message],
    ["may be for another branch", { refund: stub(1) }, { others: "run", unused: "allow" }, {}, "closed"],
    ["is fine if the branch was taken", { refund: stub(1) }, { others: "run" }, { isOdd: true }, "closed"],
    ["is fine if no step ran for real", { charge: stub(1), refund: stub(2) }, { others: "run" }, {}, "closed"],
    ["is fine where no run has ended", { chrage: stub(1) }, { others: "run" }, { ends: false }, "closed"],
    ["is allowed where mistakes are", { chrage: stub(1) }, { others: "run" }, { strict: false }, "closed"],
  ] as const)("%s", async (_, stubs, options, test, expected) => {
    expect(await closed(stubs, options, test)).toBe(expected);
  });

  test("fails a test that disposes of its Pawl", async () => {
    const inTest = async () => {
      await using pawl = openTest();
      pawl.work([withSteps(order, { chrage: stub(1) }, { others: "run" })]);
      await (await pawl.start(order, false)).result();
    };
    await expect(inTest()).rejects.toThrow('the stub "chrage"');
  });
});
