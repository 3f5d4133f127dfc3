/**
 * Goal: reactions and projections are tested like runs: time passes as far as a test says and costs nothing, each event is handled at its time, and a failure
 * that only an operator would notice fails the test.
 * Method: years beside definitions that have nothing to do; handlers that fail, defer, sleep and do real work; one definition for each mistake.
 */

import { describe, expect, test } from "vitest";
import {
  event,
  NonRetryableError,
  projection,
  type Reaction,
  reaction,
  streamPolicy,
  type WorkDefinition,
  workflow,
} from "../../index.ts";
import { NothingLeftError } from "./clock.ts";
import { openTest, StreamFailureError } from "./pawl.ts";

const START_MS = Date.UTC(2030, 0, 1);
const DAY_MS = 86_400_000;
const Paid = event<{ readonly cents: number }>("Paid");

const nothing = reaction("nothing", { on: [Paid] }, () => {});
const sums = projection("sums", { on: [Paid] }, (sum: number | undefined, e) => (sum ?? 0) + e.data.cents);

describe("years pass beside definitions with nothing to do", () => {
  test.each<[string, WorkDefinition]>([
    ["a reaction", nothing],
    ["a projection", sums],
    ["a policy", streamPolicy("idle", { prefix: "", close: { idleFor: "36500 days" }, discard: true })],
  ])("%s", async (_, definition) => {
    await using pawl = openTest();
    pawl.work([definition]);
    await pawl.stream("ann").append([Paid({ cents: 1 })]);
    for (let year = 0; year < 20; year++) await pawl.clock.advance("365 days");
    expect(pawl.clock.nowMs).toBe(START_MS + 20 * 365 * DAY_MS);
    // It is still at work.
    await pawl.stream("ann").append([Paid({ cents: 2 })]);
    await pawl.clock.advance("1s");
    if (definition === nothing) expect(await pawl.reactions.target("nothing", "ann")).toMatchObject({ handled: 2 });
    if (definition === sums) expect(await pawl.projection(sums).get("ann")).toBe(3);
  });
});

test("a run that sleeps for a month appends an event, and a reaction handles it then", async () => {
  await using pawl = openTest();
  const seen: string[] = [];
  const remind = workflow("remind", async (ctx) => {
    await ctx.sleep("30 days");
    await ctx.stream("ann").append([Paid({ cents: 1 })]);
    return "done";
  });
  const mail = reaction("mail", { on: [Paid] }, () => void seen.push(pawl.clock.now().toISOString()));
  pawl.work([remind, mail, sums]);
  expect(await (await pawl.start(remind)).result()).toBe("done");
  await pawl.clock.advance("1s");
  expect(seen).toHaveLength(1);
  expect(seen[0]?.slice(0, 19)).toBe("2030-01-31T00:00:00");
});

test("an event is deferred and retried at its time", async () => {
  await using pawl = openTest();
  const seen: number[] = [];
  const mail = reaction(
    "mail",
    { on: [Paid], retry: { attempts: 3, delay: "2 hours", maxDelay: "2 hours", jitter: 0 } },
    (_, { attempt, defer }) => {
      seen.push(Math.round((pawl.clock.nowMs - START_MS) / 3_600_000));
      if (seen.length === 1) defer("10 days");
      if (attempt < 3) throw new Error("not yet");
    },
  );
  pawl.work([mail]);
  await pawl.stream("ann").append([Paid({ cents: 1 })]);
  await pawl.clock.advance("9 days");
  expect(seen).toEqual([0]);
  await pawl.clock.advance("60 days");
  expect(seen).toHaveLength(4);
  expect(seen[1]).toBe(240);
  expect(await pawl.reactions.target("mail", "ann")).toMatchObject({ handled: 1, status: "idle" });
});

test("the clock waits for real work of a handler, and for one that sleeps on it", async () => {
  await using pawl = openTest();
  const seen: string[] = [];
  const mail = reaction("mail", { on: [Paid] }, async (e) => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    seen.push(`real work of ${e.version} at ${pawl.clock.nowMs - START_MS < 1000}`);
    await pawl.clock.sleep("1 hour");
    seen.push("slept");
  });
  pawl.work([mail]);
  await pawl.stream("ann").append([Paid({ cents: 1 })]);
  await pawl.clock.advance("2 hours");
  expect(seen).toEqual(["real work of 1 at true", "slept"]);
  expect(await pawl.reactions.target("mail", "ann")).toMatchObject({ handled: 1, lostLeases: 0 });
});

test("a wait that cannot end says so beside a reaction and a projection, too", async () => {
  await using pawl = openTest();
  pawl.work([nothing, sums]);
  await pawl.clock.advance("1s");
  await expect(pawl.clock.during(new Promise(() => {}))).rejects.toThrow(NothingLeftError);
});

test("waitFor of a projection moves the clock as far as needed", async () => {
  await using pawl = openTest();
  pawl.work([sums]);
  const appended = await pawl.stream("ann").append([Paid({ cents: 5 })]);
  await pawl.projection(sums).waitFor(appended);
  expect(await pawl.projection(sums).get("ann")).toBe(5);
});

test("a projection into SQL is refused by work, because memory has none", () => {
  const pawl = openTest();
  expect(() => pawl.work([projection.sql("rows", { on: [Paid] }, () => {})])).toThrow("must be SQLite or PostgreSQL");
});

let count = 0;
const failures: readonly [string, Reaction | ReturnType<typeof projection>, string][] = [
  [
    "a handler that fails for good",
    reaction("it", { on: [Paid] }, () => {
      throw new NonRetryableError("no such card");
    }),
    'target "ann" of reaction "it" is blocked: no such card',
  ],
  [
    "a handler that fails after all attempts",
    reaction("it", { on: [Paid], retry: { attempts: 2, delay: "1 hour" } }, () => {
      throw new Error("no answer");
    }),
    'target "ann" of reaction "it" is blocked: no answer',
  ],
  [
    "a target that cannot be computed",
    reaction(
      "it",
      {
        on: [Paid],
        target: () => {
          throw new Error("no customer");
        },
      },
      () => {},
    ),
    'an event of reaction "it" became a dead letter: the target of event 1 of stream "ann" ("Paid") could not be computed: no customer',
  ],
  [
    "a target that is another one each time",
    reaction("it", { on: [Paid], target: () => `t-${++count}` }, () => {}),
    "it returned something else when it ran a second time",
  ],
  [
    "a target that depends on the clock",
    reaction("it", { on: [Paid], target: () => `t-${Date.now()}` }, () => {}),
    "could not be computed",
  ],
  [
    "a row that cannot be made",
    projection("it", { on: [Paid] }, (): number => {
      throw new Error("no rate");
    }),
    'projection "it" does not get ahead at event 1 of stream "ann": no rate',
  ],
  [
    "a key that is another one each time",
    projection("it", { on: [Paid], key: () => `k-${++count}` }, () => 1),
    "it returned something else when it ran a second time",
  ],
];

describe.each(failures)("%s", (_, it, message) => {
  test("fails the test", async () => {
    await using pawl = openTest();
    pawl.work([it]);
    await pawl.stream("ann").append([Paid({ cents: 1 })]);
    const failed = pawl.clock.advance("1 day");
    await expect(failed).rejects.toThrow(StreamFailureError);
    await expect(failed).rejects.toThrow(message);
  });

  test.each([{ mayFail: ["it"] }, { strict: false }])("passes with %o", async (options) => {
    await using pawl = openTest(options);
    pawl.work([it]);
    await pawl.stream("ann").append([Paid({ cents: 1 })]);
    await pawl.clock.advance("90 minutes");
  });
});

test("a dead letter that the test asked for is no failure", async () => {
  await using pawl = openTest({ mayFail: ["mail"] });
  const mail = reaction("mail", { on: [Paid] }, () => {
    throw new NonRetryableError("no");
  });
  pawl.work([mail]);
  await pawl.stream("ann").append([Paid({ cents: 1 })]);
  await pawl.clock.advance("1s");
  await pawl.reactions.skip("mail", "ann", { actor: "ann", reason: "test" });
  await pawl.clock.advance("1s");
  expect((await pawl.reactions.deadLetters("mail")).letters).toHaveLength(1);
});
