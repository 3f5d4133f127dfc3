/**
 * Goal: an error about flow control says whose option, which start or which run it is about.
 * Method: mistakes, each with the essential words of its message.
 */

import { describe, expect, test } from "vitest";
import { isPawlError, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { resultOf } from "../workflow/kit.ts";

const go = signal("go");

describe("options of a workflow", () => {
  const mistakes = [
    { options: { rateLimit: { max: 100, per: "minute" } }, says: "the workflow's rateLimit: per must be milliseconds" },
    { options: { rateLimit: { max: 0, per: "1s" } }, says: "the workflow's rateLimit: max must be" },
    { options: { rateLimit: { max: 1, per: "1s", burst: 0 } }, says: "the workflow's rateLimit: the burst must be" },
    { options: { throttle: { max: 1 } }, says: "the workflow's throttle: per must be milliseconds" },
    {
      options: { concurrency: [{ max: 1 }, { max: 2 }] },
      says: "must have a name for each limit",
    },
    {
      options: {
        concurrency: [
          { name: "v", max: 1 },
          { name: "v", max: 2 },
        ],
      },
      says: 'must not have two limits with the name "v"',
    },
  ];
  test.each(mistakes)("$says", ({ options, says }) => {
    expect(() => workflow({ name: "x", ...options } as never, async () => 1)).toThrow(says);
  });
});

describe("functions of a workflow that throw", () => {
  const broken = (): never => {
    throw new TypeError("no customer");
  };
  const batch = { size: 2, maxWait: "1s" } as const;
  test.each([
    { options: { concurrency: { max: 1, key: broken } }, what: 'the concurrency key of workflow "x"' },
    { options: { fairness: { key: broken } }, what: 'the fairness key of workflow "x"' },
    { options: { fairness: { key: () => "a", weight: broken } }, what: 'the fairness weight of workflow "x"' },
    { options: { pools: { key: broken, names: ["a"] } }, what: 'the key of the pools of workflow "x"' },
    { options: { rateLimit: { max: 1, per: "1s", key: broken } }, what: 'the rate key of workflow "x"' },
    { options: { throttle: { per: "1s", key: broken } }, what: 'the rate key of workflow "x"' },
    { options: { debounce: { period: "1s", key: broken } }, what: 'the debounce key of workflow "x"' },
    { options: { debounce: { period: "1s", merge: broken } }, what: 'the debounce merge of workflow "x"' },
    { options: { batch: { ...batch, key: broken } }, what: 'the batch key of workflow "x"' },
    { options: { priority: broken }, what: 'the priority of workflow "x"' },
  ])("are named: $what", async ({ options, what }) => {
    await using pawl = openTest();
    const job = workflow({ name: "x", ...options } as never, async () => {});
    const start = async () => {
      await pawl.start(job as never);
      await pawl.start(job as never);
    };
    await expect(start()).rejects.toMatchObject({
      code: "user_function_failed",
      message: `${what} threw: no customer`,
      cause: expect.any(TypeError),
    });
  });
});

describe("functions of a workflow", () => {
  const none = (() => undefined) as never;
  const mistakes = [
    { options: { concurrency: { max: 1, key: none } }, says: 'the concurrency key of workflow "x" must be' },
    { options: { fairness: { key: none } }, says: 'the fairness key of workflow "x" must be' },
    { options: { fairness: { key: () => "a", weight: none } }, says: 'the fairness weight of workflow "x" must be' },
    { options: { rateLimit: { max: 1, per: "1s", key: none } }, says: 'the rate key of workflow "x" must be' },
    { options: { debounce: { period: "1s", key: none } }, says: 'the debounce key of workflow "x" must be' },
    { options: { priority: () => 1000 }, says: 'the priority of workflow "x" must be' },
  ];
  test.each(mistakes)("$says", async ({ options, says }) => {
    await using pawl = openTest();
    const job = workflow<string>({ name: "x", ...options }, async () => {});
    await expect(pawl.start(job, "a")).rejects.toThrow(says);
  });
});

describe("a start", () => {
  test("with a delay and a time is refused, in a decision as well", async () => {
    await using pawl = openTest();
    const both = { at: new Date("2040-01-01"), delay: "1s" };
    const says = /must not have both delay and at/;
    await expect(pawl.start("job", 1, both)).rejects.toThrow(says);
    await expect(pawl.transact((tx) => void tx.start("job", 1, both))).rejects.toThrow(says);
    await expect(pawl.start("job", 1, { at: new Date("2040-01-01"), delay: undefined })).resolves.toBeDefined();
  });

  test("beyond a limit of one is refused in the singular", async () => {
    await using pawl = openTest();
    const job = workflow({ name: "job", concurrency: { max: 1, excess: "reject" } }, async (ctx) => {
      await ctx.waitForSignal(go);
    });
    await pawl.start(job);
    await expect(pawl.start(job)).rejects.toThrow('workflow "job" has 1 run that has not ended, and admits no more');
  });

  test("that is collected has an id of its own: errors say so, and name the run that exists", async () => {
    await using pawl = openTest();
    const job = workflow({ name: "job", debounce: { period: "1s" } }, async (_, n: number) => n);
    const { id } = await pawl.start(job, 1, { id: "mine" });
    expect(id).not.toBe("mine");
    const conflict = await pawl.start(job, 2, { id: "mine" }).catch((error: unknown) => error);
    expect(isPawlError(conflict, "run_conflict") && conflict.data.run).toBe(id);
    expect(String(conflict)).toContain(
      `run "${id}" has the input of an earlier start with the id "mine", and this start has another`,
    );
    const exists = await pawl.start(job, 1, { id: "mine", ifExists: "reject" }).catch((error: unknown) => error);
    expect(isPawlError(exists, "run_exists") && exists.data).toEqual({ run: id, status: "pending" });
    expect(String(exists)).toContain(
      `a start with the id "mine" exists already: run "${id}" has its input, and is pending`,
    );
  });
});

test("a run that its limit drops when a worker takes it says so in its result", async () => {
  await using pawl = openTest();
  const job = workflow({ name: "job", concurrency: { max: 1, excess: "drop" } }, async (ctx) => {
    await ctx.waitForSignal(go);
  });
  await pawl.start("job", undefined, { id: "one" });
  const second = await pawl.start("job", undefined, { id: "two", delay: "1s" });
  pawl.work([job]);
  const error = await second.result().catch((thrown: unknown) => thrown);
  const reason = 'its workflow drops starts beyond its limit: run "one" has not ended';
  expect(isPawlError(error, "run_canceled") && error.data).toEqual({ run: "two", reason });
  expect(String(error)).toContain(`run "two" was canceled: ${reason}`);
  expect(String((await second.status()).error)).toContain(reason);
});

test("a run that expired can be retried, and the error for others says so", async () => {
  await using pawl = openTest();
  const job = workflow({ name: "job", concurrency: { max: 1 }, ttl: "1 minute" }, async (ctx) => {
    await ctx.waitForSignal(go);
    return "done";
  });
  pawl.work([job]);
  const first = await pawl.start(job);
  const second = await pawl.start(job, undefined, { id: "two" });
  expect((await second.until("expired")).status).toBe("expired");
  await second.retry();
  await expect(first.retry()).rejects.toThrow("only a run that failed, expired or is parked can be retried");
  for (const run of [first, second]) await run.signal(go);
  expect(await resultOf(second)).toBe("done");
});
