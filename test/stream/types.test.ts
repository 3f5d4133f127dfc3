/**
 * Goal: types flow from the definition of an event or a command to where it is used: what compiles works, and what works compiles.
 * Method: schemas that transform and have defaults, commands with defaults and without any; each is used with what it takes and with what it does not.
 */

import { expect, expectTypeOf, test } from "vitest";
import {
  aggregate,
  event,
  type Forgotten,
  open,
  projection,
  reaction,
  type StandardSchema,
  type StreamEvent,
} from "../../src/index.ts";

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

test("where `is` is false, no event is excluded: others may have the same data", async () => {
  const Deposited = event<{ amount: number }>("Deposited");
  const Carried = event<{ amount: number }>("Carried");
  const Withdrawn = event<{ amount: number; by: string }>("Withdrawn");
  const balances = projection("balances", { on: [Deposited, Carried] }, (row: number | undefined, e) =>
    Carried.is(e) ? e.data.amount : (row ?? 0) + e.data.amount,
  );
  const Opened = event("Opened");
  const Closed = event("Closed");
  reaction("r", { on: [Opened, Closed] }, (e) => {
    if (Opened.is(e)) return;
    expectTypeOf(e.stream).toEqualTypeOf<string>();
  });
  reaction("of-three", { on: [Deposited, Carried, Withdrawn] }, (e) => {
    if (Withdrawn.is(e)) {
      expectTypeOf(e.data).toEqualTypeOf<{ amount: number; by: string }>();
      return;
    }
    if (Deposited.is(e)) {
      expectTypeOf(e.data).toEqualTypeOf<{ amount: number }>();
      const passed: StreamEvent<{ amount: number }> = e;
      expect(passed).toBe(e);
      return;
    }
    expectTypeOf(e.data).toEqualTypeOf<{ amount: number } | { amount: number; by: string }>();
  });
  await using pawl = await open("memory:");
  await pawl.work([balances]).ready;
  const appended = await pawl.stream("s").append([Deposited({ amount: 1 }), Carried({ amount: 5 })]);
  await pawl.projection(balances).waitFor(appended);
  expect(await pawl.projection(balances).get("s")).toBe(5);
});

test("the function for the last older shape returns the data", () => {
  type Amount = { amount: number };
  const Paid = event<Amount>("Paid", { shape: 2, upcast: { 1: (old: { cents: number }) => ({ amount: old.cents }) } });
  expectTypeOf(Paid({ amount: 1 }).data).toEqualTypeOf<Amount>();
  // @ts-expect-error: `amount` is misspelled.
  event<Amount>("Paid", { shape: 2, upcast: { 1: (old: { cents: number }) => ({ amunt: old.cents }) } });
  // @ts-expect-error: a promise is no data.
  event<Amount>("Paid", { shape: 2, upcast: { 1: async (old: { cents: number }) => ({ amount: old.cents }) } });
  // That for an earlier shape returns what the next one takes.
  event<Amount>("Paid", {
    shape: 3,
    upcast: { 1: (old: string) => ({ cents: Number(old) }), 2: (old: { cents: number }) => ({ amount: old.cents }) },
  });
  event<Amount>("Paid", {
    shape: 3,
    // @ts-expect-error: the last one returns no amount.
    upcast: { 1: (old: { cents: number }) => ({ amount: old.cents }), 2: (old: Amount) => ({ cents: old.amount }) },
  });
  const upcasts = Object.fromEntries(Array.from({ length: 11 }, (_, index) => [index + 1, (data: unknown) => data]));
  event<Amount>("Paid", { shape: 12, upcast: upcasts });
  const Dated = event("Dated", {
    schema: schemaOf((given: string) => new Date(given)),
    shape: 2,
    upcast: { 1: (ms: number) => new Date(ms) },
  });
  expectTypeOf(Dated("2030-01-01").data).toEqualTypeOf<Date>();
  event("Dated", {
    schema: schemaOf((given: string) => new Date(given)),
    shape: 2,
    // @ts-expect-error: what is read is what the schema returns.
    upcast: { 1: (ms: number) => String(ms) },
  });
  // Fields that were forgotten pass through.
  event("Joined", {
    personal: { subject: (data: { id: string; mail: string }) => data.id, fields: ["mail"] },
    shape: 2,
    upcast: { 1: ({ id, email }: { id: string; email: string | Forgotten }) => ({ id, mail: email as Forgotten }) },
  });
  event("Joined", {
    personal: { subject: (data: { id: string; mail: string }) => data.id, fields: ["mail"] },
    shape: 2,
    // @ts-expect-error: `mail` is missing.
    upcast: { 1: ({ id }: { id: string }) => ({ id }) },
  });
});
