/**
 * Goal: types flow from the definition of an event or a command to where it is used: what compiles works, and what works compiles.
 * Method: schemas that transform and have defaults, commands with defaults and without any; each is used with what it takes and with what it does not.
 */

import { expect, expectTypeOf, test } from "vitest";
import { aggregate, event, open, reaction, type StandardSchema } from "../../src/index.ts";

/** A schema whose output is another type than its input. */
function schemaOf<Input, Output>(convert: (input: Input) => Output): StandardSchema<Input, Output> {
  return { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value: convert(value as Input) }) } };
}

interface Given {
  readonly at: string;
  readonly currency?: string;
}

const Booked = event("Booked", {
  schema: schemaOf(({ at, currency = "EUR" }: Given) => ({ at: new Date(at), currency })),
});

test("an event is made of what its schema takes, and has what the schema returns", () => {
  const booked = Booked({ at: "2030-01-01" });
  expectTypeOf(booked.data).toEqualTypeOf<{ at: Date; currency: string }>();
  expect(booked.data).toEqual({ at: new Date("2030-01-01"), currency: "EUR" });
  // @ts-expect-error: that is what the schema returns.
  const wrong = () => Booked({ at: new Date(), currency: "EUR" });
  expect(wrong).toBeInstanceOf(Function);
  reaction("audit", { on: [Booked] }, (e) => {
    expectTypeOf(e.data).toEqualTypeOf<{ at: Date; currency: string }>();
  });
});

test("so is one with personal fields", () => {
  const Joined = event("Joined", {
    schema: schemaOf(({ id, mail }: { id: string; mail?: string }) => ({ id, mail: mail ?? "none" })),
    personal: { subject: ({ id }) => id, fields: ["mail"] },
  });
  expect(Joined({ id: "ann" }).data).toEqual({ id: "ann", mail: "none" });
});

test("a parameter of a command that has a default may be left out, and an aggregate without commands has none", async () => {
  await using pawl = await open("memory:");
  const counter = aggregate("counter", {
    initial: 0,
    on: [[Booked, (count) => count + 1]],
    commands: { add: (count, by = 1) => count + by },
  });
  const handle = pawl.aggregate(counter, "c");
  expect((await handle.execute("add")).output).toBe(1);
  expect((await handle.execute("add", 5)).output).toBe(5);
  // @ts-expect-error: a text is no number.
  expectTypeOf(handle.execute<"add">).toBeCallableWith("add", "5");
  const silent = aggregate("silent", { initial: 0, on: [[Booked, (count) => count + 1]] });
  // @ts-expect-error: it has no commands.
  await expect(pawl.aggregate(silent, "s").execute("add")).rejects.toThrow("it has none");
});
