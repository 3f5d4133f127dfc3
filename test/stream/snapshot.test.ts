/**
 * Goal: an event is what it was when it was made. Its schema has checked that, and its personal fields belong to the person of that moment; a caller that
 * uses its object again afterwards, as a loop does, changes nothing. Nor do functions that get events: these are frozen, and what cannot be frozen is a copy.
 */

import { expect, test } from "vitest";
import { aggregate, event, projection, reaction } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { all, buildingFailure } from "./kit.ts";

const Counted = event<unknown>("Counted");

test("a change after an event was made is not appended", async () => {
  await using pawl = openTest();
  const reused = { n: 0, list: [{ deep: 1 }], at: new Date(5), tags: new Set(["a"]) };
  const made = [];
  for (let n = 1; n <= 2; n++) {
    reused.n = n;
    made.push(Counted(reused));
  }
  const appending = pawl.stream("s").append(made);
  reused.n = -1;
  reused.list[0] = { deep: -1 };
  reused.at.setTime(9);
  reused.tags.add("b");
  await appending;
  const stored = { list: [{ deep: 1 }], at: new Date(5), tags: new Set(["a"]) };
  expect((await all(pawl.stream("s").read())).map(({ data }) => data)).toEqual([
    { n: 1, ...stored },
    { n: 2, ...stored },
  ]);
});

test("personal fields belong to the person whom the event was made for", async () => {
  const Signed = event("Signed", {
    personal: { subject: (who: { id: string; email: string }) => who.id, fields: ["email"] },
  });
  await using pawl = openTest({ actions: { keys: { current: "k", ring: { k: new Uint8Array(32).fill(1) } } } });
  const reused = { id: "", email: "" };
  const made = ["ann", "bob"].map((id) => Signed(Object.assign(reused, { id, email: `${id}@example.org` })));
  await pawl.stream("s").append(made);
  await pawl.forget("bob");
  const [first, second] = await all(pawl.stream("s").read({ events: [Signed] }));
  expect(first?.data).toEqual({ id: "ann", email: "ann@example.org" });
  expect(second?.data.id).toBe("bob");
  expect(second?.data.email).not.toBe("bob@example.org");
});

test("what cannot be stored is refused with the reason that it had", async () => {
  await using pawl = openTest();
  const circle: Record<string, unknown> = {};
  circle["self"] = circle;
  const sparse: number[] = [];
  sparse[3] = 1;
  for (const data of [circle, sparse, { [Symbol("a")]: 1 }, new (class Odd {})()])
    await expect((async () => pawl.stream("s").append([Counted(data)]))()).rejects.toMatchObject({
      code: "invalid_value",
    });
  const odd = JSON.parse('{"__proto__": {"a": 1}}') as object;
  await pawl.stream("s").append([Counted(odd)]);
  const [first] = await all(pawl.stream("s").read());
  expect(JSON.stringify(first?.data)).toBe(JSON.stringify(odd));
});

interface Booking {
  readonly list: { n: number }[];
  readonly at: Date;
  readonly tags: Set<string>;
}
const Booked = event<Booking>("Booked");
const booking = (): Booking => ({ list: [{ n: 1 }], at: new Date(5), tags: new Set(["a"]) });

/** Reducers that change what they get; `harm` says how. */
const careless = (harm: (data: Booking) => void) =>
  aggregate("careless", {
    initial: [] as readonly string[],
    on: [
      [
        Booked,
        (seen, data) => {
          const shown = `${data.list[0]?.n} ${data.at.getTime()} ${[...data.tags].join()}`;
          harm(data);
          return [...seen, shown];
        },
      ],
    ],
    commands: {
      book: (_, given: Booking, { emit }) => emit(Booked(given)),
      change: (_, given: Booking, { emit }) => {
        const made = Booked(given);
        emit(made);
        made.data.at.setTime(9);
        made.data.tags.add("b");
      },
    },
  });

onStores(EVERY, (place) => {
  test("a reducer cannot change the data of an event: not what is stored, nor what other reducers see", async () => {
    const pawl = await place.open();
    const throwing = careless(({ list }) => {
      list.push({ n: 2 });
    });
    await expect(pawl.aggregate(throwing, "s").execute("book", booking())).rejects.toMatchObject({
      code: "user_function_failed",
      cause: expect.any(TypeError),
    });
    expect(await pawl.stream("s").head()).toBe(0);
    const changing = careless(({ at, tags }) => {
      at.setTime(9);
      tags.add("b");
    });
    const made = Booked(booking());
    const seen = await pawl.transact((tx) => {
      tx.stream("s").append([made]);
      // The decision runs again where it touches a record that it has not named; and each look folds again.
      const states = [1, 2].map(() => tx.aggregate(changing, "s").state);
      tx.stream("other").append([made]);
      return states;
    });
    expect(seen).toEqual([["1 5 a"], ["1 5 a"]]);
    await pawl.aggregate(changing, "s").execute("change", booking());
    expect((await pawl.aggregate(changing, "s").state()).state).toEqual(["1 5 a", "1 5 a"]);
    for (const stream of ["s", "other"])
      for (const { data } of await all(pawl.stream(stream).read())) expect(data).toEqual(booking());
    expect(made.data).toEqual(booking());
  });
});

test("events that were read are frozen, also where they were converted", async () => {
  const shared = { currency: "EUR" };
  const Paid = event<{ amount: number; of: { currency: string } }>("Paid", {
    shape: 2,
    upcast: { 1: (amount: number) => ({ amount, of: shared }) },
  });
  await using pawl = openTest({ mayFail: ["refusing", "frozen"] });
  const frozen: unknown[] = [];
  const harm = (e: { readonly data: { amount: number; of: { currency: string } } }) => {
    e.data.of.currency = "USD";
  };
  const seeing = reaction("seeing", { on: [Paid] }, (e) => {
    frozen.push(Object.isFrozen(e), Object.isFrozen(e.data), Object.isFrozen(e.data.of));
  });
  const refusing = reaction("refusing", { on: [Paid], retry: { attempts: 1 } }, (e) => harm(e));
  const rows = projection("frozen", { on: [Paid] }, (_: unknown, e) => {
    harm(e);
    return 1;
  });
  pawl.work([seeing, refusing, rows]);
  await pawl.stream("s").append([event<number>("Paid")(5)]);
  await expect.poll(() => frozen, PATIENCE).toEqual([true, true, true]);
  await expect.poll(() => buildingFailure(pawl, rows), PATIENCE).toMatchObject({ stream: "s", version: 1 });
  const status = async () => (await pawl.reactions.target("refusing", "s")).status;
  await expect.poll(status, PATIENCE).toBe("blocked");
  for await (const e of pawl.stream("s").read({ events: [Paid] })) {
    expect(Object.isFrozen(e)).toBe(true);
    expect(() => harm(e)).toThrow(TypeError);
  }
  for await (const e of pawl.events.read({ events: [Paid] })) expect(Object.isFrozen(e)).toBe(true);
});

test("what a schema returns is copied, so that a default that it shares stays as it is", () => {
  const shared = { currency: "EUR" };
  const schema = {
    "~standard": { version: 1 as const, vendor: "test", validate: (): { value: unknown } => ({ value: shared }) },
  };
  const { data } = event("Defaulted", { schema })({});
  expect([data === shared, data, Object.isFrozen(data)]).toEqual([false, { currency: "EUR" }, true]);
  shared.currency = "USD";
  expect(data).toEqual({ currency: "EUR" });
});

test.each([
  ["lists", (inner: unknown) => [inner]],
  ["objects", (inner: unknown) => ({ inner })],
  ["maps", (inner: unknown) => new Map([[1, inner]])],
  ["sets", (inner: unknown) => new Set([inner])],
])("data that is nested too deeply (%s) is refused as any value is", async (_, wrap) => {
  let deep: unknown = 1;
  for (let level = 0; level < 100_000; level++) deep = wrap(deep);
  await using pawl = openTest();
  const any = { "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) } } as const;
  const Checked = event("Checked", { schema: any });
  for (const Deep of [Counted, Checked])
    expect(await codeOf((async () => pawl.stream("s").append([Deep(deep)]))())).toBe("invalid_value");
  expect(await codeOf(pawl.slot("s").set(deep))).toBe("invalid_value");
});
