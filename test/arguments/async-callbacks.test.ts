/**
 * Goal: a function that must be synchronous and is async by mistake is refused with an error that names the option, or the safe side is taken with a
 * warning that names it; its rejection never ends the process, and a query that it returned is not run (G33).
 * Method: each option gets a function that rejects, and one that returns a query builder, which runs when it is awaited. A rejection that no one
 * handles fails the run of the tests.
 */

import { describe, expect, test } from "vitest";
import { event, jsonCodec, open, type RunEvent, reaction, transformed, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { codeOf } from "../kernel/kit.ts";

/** How often the query was run. */
let queries = 0;
const query = {
  // biome-ignore lint/suspicious/noThenProperty: a query builder has it.
  then: () => {
    queries += 1;
  },
};

const asyncs: readonly (readonly [string, () => never])[] = [
  ["rejects", () => Promise.reject(new Error("lookup failed")) as never],
  ["returns a query", () => query as never],
];

/** What the promise rejects with, if it does. */
async function thrownBy(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => undefined,
    (error: unknown) => error,
  );
}

describe.each(asyncs)("a function that %s", (_, lookUp) => {
  const options = [
    { what: 'the concurrency key of workflow "x"', options: { concurrency: { max: 1, key: lookUp } } },
    { what: 'the fairness key of workflow "x"', options: { concurrency: { max: 1 }, fairness: { key: lookUp } } },
    {
      what: 'the fairness weight of workflow "x"',
      options: { concurrency: { max: 1 }, fairness: { key: () => "a", weight: lookUp } },
    },
    { what: 'the priority of workflow "x"', options: { concurrency: { max: 1 }, priority: lookUp } },
    { what: 'the debounce key of workflow "x"', options: { debounce: { period: "1s", key: lookUp } } },
    { what: 'the batch key of workflow "x"', options: { batch: { size: 5, maxWait: "1s", key: lookUp } } },
    { what: 'the key of the pools of workflow "x"', options: { pools: { key: lookUp, names: ["a"] } } },
    { what: 'the rate key of workflow "x"', options: { rateLimit: { max: 1, per: "1s", key: lookUp } } },
    { what: 'the rate key of workflow "x"', options: { throttle: { per: "1s", key: lookUp } } },
  ];
  test.each(options)("$what", async ({ what, options }) => {
    await using pawl = openTest();
    const job = workflow({ name: "x", ...options } as never, async () => 1);
    expect(await thrownBy(pawl.start(job, 1 as never))).toMatchObject({ code: "callback_async", data: { what } });
    expect(queries).toBe(0);
  });

  test("debounce.merge", async () => {
    await using pawl = openTest();
    const job = workflow({ name: "x", debounce: { period: "1s", merge: lookUp } }, async (_, n: number) => n);
    await pawl.start(job, 1);
    const what = 'the debounce merge of workflow "x"';
    expect(await thrownBy(pawl.start(job, 2))).toMatchObject({ code: "callback_async", data: { what } });
    expect(queries).toBe(0);
  });

  test("a key that a worker computes: the run fails", async () => {
    await using pawl = openTest();
    const run = await pawl.start("x", 1);
    pawl.work([workflow({ name: "x", concurrency: { max: 1, key: lookUp } }, async () => 1)]);
    await run.until("failed");
    expect((await run.status()).error).toMatchObject({ code: "callback_async" });
    expect(queries).toBe(0);
  });

  test("retry.when of a step: there is one attempt, and a warning", async () => {
    await using pawl = await open("memory:");
    let charges = 0;
    const job = workflow("x", (ctx) =>
      ctx.step(
        "charge",
        () => {
          charges += 1;
          throw new Error("declined");
        },
        { retry: { attempts: 5, delay: 1, when: lookUp } },
      ),
    );
    const events: RunEvent[] = [];
    pawl.work([job], { on: (event) => void events.push(event) });
    const run = await pawl.start(job);
    expect(await thrownBy(run.result())).toMatchObject({ code: "run_failed", cause: { message: "declined" } });
    expect(charges).toBe(1);
    const warnings = events.flatMap((event) => (event.type === "run.warning" ? [event.message] : []));
    expect(warnings).toEqual([
      expect.stringMatching(/^retry\.when of step "charge" failed, so there is no further attempt: .*synchronous/),
    ]);
    expect(queries).toBe(0);
  });

  test("retry.when of a reaction: there is one attempt, the target is blocked, and the log says why", async () => {
    const lines: string[] = [];
    const line = (message: string): void => void lines.push(message);
    await using pawl = await open("memory:", { logger: { warn: line, error: line } });
    const Added = event<number>("Added");
    let calls = 0;
    const fails = reaction("mail", { on: [Added], retry: { attempts: 5, delay: 1, when: lookUp } }, () => {
      calls += 1;
      throw new Error("no server");
    });
    pawl.work([fails]);
    await pawl.stream("s").append([Added(1)]);
    const statuses = async () => (await pawl.reactions.targets("mail")).targets.map(({ status }) => status);
    await expect.poll(statuses).toEqual(["blocked"]);
    expect(calls).toBe(1);
    expect(lines.filter((text) => text.includes('retry.when of reaction "mail"'))).toHaveLength(1);
    expect(queries).toBe(0);
  });

  test("storeErrors: the error is not stored, and the caller learns why", async () => {
    await using pawl = openTest();
    let calls = 0;
    const call = () =>
      pawl.idempotent("k", { storeErrors: lookUp }, () => {
        calls += 1;
        throw new Error("declined");
      });
    for (let n = 1; n <= 2; n++) {
      expect(await thrownBy(call())).toMatchObject({ code: "callback_async", data: { what: "storeErrors" } });
      expect(calls).toBe(n);
    }
    expect(queries).toBe(0);
  });

  test("encode and decode of a codec: nothing is stored, and no promise is returned", async () => {
    await using pawl = openTest({ codec: { encode: lookUp, decode: (text) => JSON.parse(text) } });
    expect(await codeOf(pawl.slot("a").set(1))).toBe("invalid_value");
    await using other = openTest({ codec: { encode: (value) => JSON.stringify(value), decode: lookUp } });
    const slot = other.slot<number>("a");
    await slot.set(41);
    expect(await codeOf(slot.get())).toBe("unsupported_encoding");
    expect(await codeOf(slot.update((n = 0) => n + 1))).toBe("unsupported_encoding");
    expect(queries).toBe(0);
  });

  test("a transform, and a codec inside of one", async () => {
    const transforms = [
      transformed(jsonCodec, { name: "x", seal: lookUp, open: (text) => text }),
      transformed(
        { encode: lookUp, decode: (text) => JSON.parse(text) },
        { name: "x", seal: (text) => text, open: (text) => text },
      ),
    ];
    for (const codec of transforms) {
      await using pawl = openTest({ codec });
      expect(await codeOf(pawl.slot("a").set(1))).toBe("invalid_value");
    }
    await using pawl = openTest({ codec: transformed(jsonCodec, { name: "x", seal: (text) => text, open: lookUp }) });
    await pawl.slot("a").set(1);
    expect(await codeOf(pawl.slot("a").get())).toBe("unsupported_encoding");
    expect(queries).toBe(0);
  });

  test("a decision, and an update", async () => {
    await using pawl = openTest();
    expect(await codeOf(pawl.transact(lookUp))).toBe("decision_async");
    expect(await codeOf(pawl.slot("a").update(lookUp))).toBe("decision_async");
    expect(queries).toBe(0);
  });
});

test("a query that is a promise of its own class is not run either", async () => {
  await using pawl = openTest();
  let runs = 0;
  class Query extends Promise<unknown> {
    // biome-ignore lint/suspicious/noThenProperty: such queries have it.
    override then(): never {
      runs += 1;
      throw new Error("the query ran");
    }
  }
  expect(await codeOf(pawl.transact(() => new Query(() => {}) as never))).toBe("decision_async");
  expect(await codeOf(pawl.transact(() => Object.assign(() => {}, query) as never))).toBe("decision_async");
  expect(runs + queries).toBe(0);
});
