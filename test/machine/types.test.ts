/**
 * Goal: what cannot be right does not compile, and what is right has the types its author expects.
 * Method: the compiler reads this file with the rest: each line below `@ts-expect-error` must be wrong. What the types could not stop is
 * refused when it runs, too.
 */

import { expect, expectTypeOf, test } from "vitest";
import { machine } from "../../src/machine/definition.ts";
import { type MachineHandle, Machines } from "../../src/machine/machine.ts";
import { open } from "../../src/open.ts";

const plain = machine("plain", { initial: "on", transitions: { on: ["off"], off: ["on"] } });

interface OrderData {
  readonly cents: number;
  readonly receipt?: string;
}

const counted = machine("counted", {
  initial: "pending",
  transitions: { pending: ["paid"], paid: [] },
  initialData: { cents: 0 },
  unknown: "create",
  guards: {
    pending: {
      paid: (data, { next, from, to, nowMs }) => {
        expectTypeOf(data).toEqualTypeOf<{ cents: number }>();
        expectTypeOf(next).toEqualTypeOf<{ cents: number }>();
        expectTypeOf(from).toEqualTypeOf<"pending" | "paid">();
        expectTypeOf(to).toEqualTypeOf<"pending" | "paid">();
        expectTypeOf(nowMs).toEqualTypeOf<number>();
        return true;
      },
    },
  },
});

const given = machine<OrderData>()("given", {
  initial: "pending",
  transitions: { pending: ["paid"], paid: [] },
  guards: { pending: { paid: (data) => data.receipt !== undefined || "no receipt" } },
});

const begun = machine<OrderData>()("begun", {
  initial: "pending",
  transitions: { pending: ["paid"], paid: [] },
  initialData: { cents: 0 },
  unknown: "create",
  guards: { pending: { paid: (data) => data.receipt !== undefined || "no receipt" } },
});

test("states come from the keys of the transitions", () => {
  expectTypeOf(plain.states).toEqualTypeOf<readonly ("on" | "off")[]>();
  expectTypeOf(plain.initial).toEqualTypeOf<"on" | "off">();
  expect(plain.states).toEqual(["on", "off"]);
});

test("a definition that contradicts itself does not compile, and does not run either", () => {
  // @ts-expect-error: no such target
  expect(() => machine("m", { initial: "on", transitions: { on: ["of"], off: [] } })).toThrow("a target of on");
  // @ts-expect-error: no such first state
  expect(() => machine("m", { initial: "onn", transitions: { on: ["off"], off: [] } })).toThrow("the initial state");
  expect(() =>
    // @ts-expect-error: there is no way from off to on
    machine("m", { initial: "on", transitions: { on: ["off"], off: [] }, guards: { off: { on: () => true } } }),
  ).toThrow("must belong to a transition");
  expect(() =>
    // @ts-expect-error: no such state to guard
    machine("m", { initial: "on", transitions: { on: ["off"], off: [] }, guards: { of: {} } }),
  ).toThrow("a guarded state");
  // @ts-expect-error: a guard says true or why not
  machine("m", { initial: "on", transitions: { on: ["off"], off: [] }, guards: { on: { off: () => false } } });
  // @ts-expect-error: a guard is synchronous
  machine("m", { initial: "on", transitions: { on: ["off"], off: [] }, guards: { on: { off: async () => true } } });
  // @ts-expect-error: no such word
  expect(() => machine("m", { initial: "on", transitions: { on: [] }, unknown: "make" })).toThrow("unknown must be");
  // @ts-expect-error: without data to begin with, no event can make an instance
  machine<OrderData>()("m", { initial: "on", transitions: { on: [] }, unknown: "create" });
  // @ts-expect-error: no such target
  expect(() => machine<OrderData>()("m", { initial: "on", transitions: { on: ["of"] } })).toThrow("a target of on");
  // @ts-expect-error: it is not of the data's type
  machine<OrderData>()("m", { initial: "on", transitions: { on: [] }, initialData: { cents: "5" } });
});

/** Never called: only the compiler reads it. */
async function onlyTypes(machines: Machines, anything: MachineHandle): Promise<void> {
  const plains = machines.of(plain);
  await plains.create("p");
  await plains.create("p", { actor: "ann", reason: "why not" });
  // @ts-expect-error: it has no data
  await plains.create("p", { data: 5 });
  await plains.transition("p", "off");
  // @ts-expect-error: no such state
  await plains.transition("p", "of");
  // @ts-expect-error: no such state
  await plains.tryTransition("p", "of");
  // @ts-expect-error: no such state
  await plains.list({ state: "of" });
  // @ts-expect-error: it has no data to patch
  await plains.transition("p", "off", { patch: {} });
  // @ts-expect-error: no such word
  await plains.transition("p", "off", { whenEarly: "wait" });

  const got = await plains.get("p");
  // @ts-expect-error: it may not be there
  got.state;
  expectTypeOf(got?.state).toEqualTypeOf<"on" | "off" | undefined>();
  // @ts-expect-error: it is never that
  if (got?.state === "dim") return;

  const counts = machines.of(counted);
  await counts.create("c");
  await counts.create("c", { data: { cents: 5 } });
  // @ts-expect-error: it is not of the data's type
  await counts.create("c", { data: { cents: "5" } });
  await counts.transition("c", "paid", { update: ({ cents }) => ({ cents: cents + 1 }) });
  // @ts-expect-error: it is not of the data's type
  await counts.transition("c", "paid", { update: () => ({ cents: "5" }) });
  // @ts-expect-error: it is synchronous
  await counts.transition("c", "paid", { update: async (data) => data });
  // @ts-expect-error: no such part
  await counts.transition("c", "paid", { patch: { cent: 5 } });
  expectTypeOf((await counts.transition("c", "paid")).data).toEqualTypeOf<{ cents: number }>();

  const gives = machines.of(given);
  await gives.create("g", { data: { cents: 5 } });
  // @ts-expect-error: it needs data
  await gives.create("g");
  // @ts-expect-error: it needs data
  await gives.create("g", { actor: "ann" });
  await machines.of(begun).create("b");
  await machines.of(begun).transition("b", "paid", { patch: { receipt: "r" } });
  // @ts-expect-error: no such state
  await machines.of(begun).transition("b", "payd");
  await gives.transition("g", "paid", { patch: { receipt: "r" }, whenEarly: "park" });

  const answer = await gives.tryTransition("g", "paid");
  // @ts-expect-error: it may have been refused
  answer.state;
  if (answer.ok) expectTypeOf(answer.state).toEqualTypeOf<"pending" | "paid">();
  else if (answer.code === "illegal_transition")
    expectTypeOf(answer.allowed).toEqualTypeOf<readonly ("pending" | "paid")[]>();
  else if (answer.code === "guard_refused") expectTypeOf(answer.why).toEqualTypeOf<string>();

  for (const { outcome, from, to } of await gives.history("g")) {
    expectTypeOf(from).toEqualTypeOf<"pending" | "paid" | null>();
    expectTypeOf(to).toEqualTypeOf<"pending" | "paid">();
    expectTypeOf(outcome).toEqualTypeOf<"created" | "moved" | "parked" | "applied" | "refused">();
  }

  await anything.transition("x", "any word");
  await machines.of(plain).tryCreate("p");
}

test("handles are typed by their machine", () => {
  expect(onlyTypes).toBeTypeOf("function");
});

test("inside a decision the same holds", async () => {
  await using pawl = await open("memory:");
  const machines = new Machines(pawl.kernel);
  const state = await pawl.kernel.transact((tx) => {
    const gives = machines.within(tx, given);
    gives.create("g", { data: { cents: 5, receipt: "r" } });
    // @ts-expect-error: no such state
    expect(() => gives.transition("g", "payd")).toThrow("the state to enter must be a state of the machine");
    return gives.transition("g", "paid").state;
  }, []);
  expectTypeOf(state).toEqualTypeOf<"pending" | "paid">();
  expect(state).toBe("paid");
});
