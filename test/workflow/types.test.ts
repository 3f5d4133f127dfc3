/**
 * Goal: the types of signals flow: whoever waits for several knows what came, and by which name.
 * Method: the compiler compares the types (`npm run check`); the same code runs, so that the types say what is true.
 */

import { expect, expectTypeOf, test } from "vitest";
import { type Received, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";

const approved = signal<{ by: string }>("approved");
const rejected = signal<{ reason: string }>("rejected");
const stopped = signal("stopped");
const counted = signal("counted", {
  "~standard": { version: 1, vendor: "test", validate: (value) => ({ value: value as number }) },
});
const named = signal<{ by: string }, "named">("named");

test("a signal without explicit types knows its name; an explicit payload leaves the name a string", () => {
  expectTypeOf(stopped.name).toEqualTypeOf<"stopped">();
  expectTypeOf(counted.name).toEqualTypeOf<"counted">();
  expectTypeOf(named.name).toEqualTypeOf<"named">();
  expectTypeOf(approved.name).toEqualTypeOf<string>();
  // @ts-expect-error the name is not the one that was said
  signal<undefined, "a">("b");
  expect([stopped.name, counted.name, named.name, approved.name]).toEqual(["stopped", "counted", "named", "approved"]);
});

test("waitForAny narrows its value by the name that came", async () => {
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

test("a signal tells whether it is the one, whatever is known of its name; a timeout is none of them", async () => {
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

test("ctx.race gives what one of them gives, or what it is told to", async () => {
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
  await using pawl = openTest();
  pawl.work([race]);
  const [first, second] = await (await pawl.start(race)).result();
  expect([1, true]).toContain(first);
  expect(["text", 2]).toContain(second);
});
