/**
 * Goal: an attempt moves an instance exactly where the definition and its guards allow it, an early event is parked, and the log has every
 * attempt.
 * Method: one row for each rule. The machine has a sequence, a branch, a cycle, a transition from a state to itself, and guards.
 */

import { describe, expect, test } from "vitest";
import {
  type Decided,
  decideCreate,
  decideTransition,
  type Instance,
  isPlain,
  type TransitionAttempt,
} from "./decide.ts";
import { machine, rulesOf } from "./definition.ts";
import type { Parked } from "./stored.ts";

interface Data {
  readonly cents?: number;
  readonly parcel?: string;
}

const order = machine<Data>()("order", {
  initial: "pending",
  transitions: {
    pending: ["paid", "canceled", "pending"],
    paid: ["shipped", "refunded"],
    shipped: ["delivered"],
    delivered: [],
    canceled: [],
    refunded: ["pending"],
  },
  guards: {
    pending: { paid: (_data, { next }) => (next.cents ?? 0) > 0 || "no money" },
    paid: {
      shipped: (data, { next, nowMs }) => {
        if (next.parcel === "broken") throw new Error("no such parcel");
        // biome-ignore lint/style/useThrowOnlyError: some code does it.
        if (next.parcel === "strange") throw "a text";
        return (data.cents ?? 0) < 1_000 || nowMs > 0 || "too dear";
      },
    },
  },
  maxParked: 2,
});
const rules = rulesOf(order);

const at = (state: string, more: Partial<Instance> = {}): Instance => ({
  id: "o",
  state,
  version: 3,
  data: { cents: 5 },
  parked: [],
  head: 7,
  ...more,
});

const attempt = (to: string, more: Partial<TransitionAttempt> = {}): TransitionAttempt => ({
  to,
  by: {},
  change: undefined,
  expectedVersion: undefined,
  mayPark: false,
  isFirst: false,
  remembered: undefined,
  nowMs: () => 0,
  ...more,
});

const waiting = (to: string, entry: number, more: Partial<Parked> = {}): Parked => ({ to, entry, atMs: 0, ...more });

const parking = { mayPark: true } as const;

/** A short form of a decision: the result, the instance's state, and the names of its log entries. */
const brief = ({ result, instance, entries }: Decided) => ({
  result: result.ok ? (result.deduplicated ? `${result.outcome} before` : result.outcome) : result.code,
  state: instance.state,
  log: entries.map(({ name, data }) => `${name} ${data.to}${data.code === undefined ? "" : ` ${data.code}`}`),
  waits: instance.parked.map(({ to }) => to),
});

describe("an attempt", () => {
  test.each([
    {
      rule: "goes where the definition leads",
      now: at("paid"),
      by: attempt("shipped"),
      result: "moved",
      state: "shipped",
    },
    { rule: "may lead to where it is", now: at("pending"), by: attempt("pending"), result: "moved", state: "pending" },
    {
      rule: "goes nowhere else",
      now: at("pending"),
      by: attempt("shipped"),
      result: "illegal_transition",
      state: "pending",
    },
    { rule: "does not go back", now: at("paid"), by: attempt("pending"), result: "illegal_transition", state: "paid" },
    { rule: "stays only if it may", now: at("paid"), by: attempt("paid"), result: "illegal_transition", state: "paid" },
    {
      rule: "leaves no final state",
      now: at("canceled"),
      by: attempt("pending"),
      result: "illegal_transition",
      state: "canceled",
    },
    {
      rule: "leaves no state that is forgotten",
      now: at("old"),
      by: attempt("paid", parking),
      result: "illegal_transition",
      state: "old",
    },
    {
      rule: "asks the guard",
      now: at("pending", { data: {} }),
      by: attempt("paid"),
      result: "guard_refused",
      state: "pending",
    },
    {
      rule: "shows the guard what comes",
      now: at("pending", { data: {} }),
      by: attempt("paid", { change: { patch: { cents: 1 } } }),
      result: "moved",
      state: "paid",
    },
    {
      rule: "shows the guard what is",
      now: at("paid", { data: { cents: 1_000 } }),
      by: attempt("shipped"),
      result: "guard_refused",
      state: "paid",
    },
    {
      rule: "shows the guard the clock",
      now: at("paid", { data: { cents: 1_000 } }),
      by: attempt("shipped", { nowMs: () => 1 }),
      result: "moved",
      state: "shipped",
    },
    {
      rule: "may expect its version",
      now: at("paid"),
      by: attempt("shipped", { expectedVersion: 3 }),
      result: "moved",
      state: "shipped",
    },
    {
      rule: "is refused one version early",
      now: at("paid"),
      by: attempt("shipped", { expectedVersion: 4 }),
      result: "version_conflict",
      state: "paid",
    },
    {
      rule: "is refused one version late",
      now: at("paid"),
      by: attempt("shipped", { expectedVersion: 2 }),
      result: "version_conflict",
      state: "paid",
    },
    {
      rule: "expects 0 of what it made",
      now: at("pending"),
      by: attempt("paid", { isFirst: true, expectedVersion: 0 }),
      result: "moved",
      state: "paid",
    },
    {
      rule: "expects nothing else of what it made",
      now: at("pending"),
      by: attempt("paid", { isFirst: true, expectedVersion: 3 }),
      result: "version_conflict",
      state: "pending",
    },
    {
      rule: "counts once by its event's id",
      now: at("paid"),
      by: attempt("shipped", { by: { event: "e" }, remembered: { to: "shipped" } }),
      result: "moved before",
      state: "paid",
    },
    {
      rule: "counts once although it is not legal any more",
      now: at("delivered"),
      by: attempt("shipped", { by: { event: "e" }, remembered: { to: "shipped" } }),
      result: "moved before",
      state: "delivered",
    },
    {
      rule: "is refused under another event's id",
      now: at("paid"),
      by: attempt("refunded", { by: { event: "e" }, remembered: { to: "shipped" } }),
      result: "event_conflict",
      state: "paid",
    },
  ])("$rule", ({ now, by, result, state }) => {
    const { to } = by;
    const name = result === "moved" ? `moved ${to}` : `refused ${to} ${result}`;
    const log = result.endsWith("before") ? [] : [name];
    expect(brief(decideTransition(rules, now, by))).toEqual({ result, state, log, waits: [] });
  });

  test.each([
    { rule: "without a change the data stays", change: undefined, data: { cents: 5 }, logged: {} },
    {
      rule: "data replaces all of it",
      change: { data: { parcel: "p" } },
      data: { parcel: "p" },
      logged: { data: { parcel: "p" } },
    },
    {
      rule: "a patch replaces its parts",
      change: { patch: { parcel: "p" } },
      data: { cents: 5, parcel: "p" },
      logged: { data: { cents: 5, parcel: "p" } },
    },
    {
      rule: "an update makes the new of the old",
      change: { update: (d: unknown) => [d] },
      data: [{ cents: 5 }],
      logged: { data: [{ cents: 5 }] },
    },
  ])("$rule", ({ change, data, logged }) => {
    const { instance, entries } = decideTransition(rules, at("paid"), attempt("refunded", { change }));
    expect(instance).toEqual(at("refunded", { version: 8, head: 8, data }));
    expect(entries).toEqual([{ name: "moved", data: { from: "paid", to: "refunded", ...logged } }]);
  });

  test.each([
    { rule: "nothing", data: undefined, next: { parcel: "p" } },
    { rule: "null", data: null, next: { parcel: "p" } },
  ])("a patch on $rule is the data", ({ data, next }) => {
    const by = attempt("refunded", { change: { patch: { parcel: "p" } } });
    expect(decideTransition(rules, at("paid", { data }), by).instance.data).toEqual(next);
  });

  test("a patch on what is no object is a mistake", () => {
    const by = attempt("refunded", { change: { patch: {} } });
    for (const data of [5, "text", [1], new Map()])
      expect(() => decideTransition(rules, at("paid", { data }), by)).toThrow(
        "the patch can only change data that is a plain object",
      );
  });

  test("is in the log with actor, reason and event id, whatever its outcome", () => {
    const by = { actor: "ann", reason: "asked", event: "e" };
    for (const [to, more] of [
      ["shipped", {}],
      ["pending", {}],
      ["delivered", parking],
    ] as const)
      expect(decideTransition(rules, at("paid"), attempt(to, { by, ...more })).entries).toMatchObject([
        { data: { from: "paid", to, ...by } },
      ]);
  });

  test("that is refused returns the allowed states, the guard's reason or the current version", () => {
    const results = [
      decideTransition(rules, at("pending"), attempt("shipped")),
      decideTransition(rules, at("pending", { data: {} }), attempt("paid")),
      decideTransition(rules, at("paid"), attempt("shipped", { expectedVersion: 9 })),
    ].map(({ result }) => result);
    expect(results).toEqual([
      {
        ok: false,
        code: "illegal_transition",
        from: "pending",
        to: "shipped",
        allowed: ["paid", "canceled", "pending"],
      },
      { ok: false, code: "guard_refused", from: "pending", to: "paid", why: "no money" },
      { ok: false, code: "version_conflict", expected: 9, current: 3 },
    ]);
  });

  test("that a guard refused has the guard's reason in the log", () => {
    const entriesOf = (now: Instance, to: string) => decideTransition(rules, now, attempt(to)).entries;
    expect(entriesOf(at("pending"), "shipped")).toStrictEqual([
      { name: "refused", data: { from: "pending", to: "shipped", code: "illegal_transition" } },
    ]);
    expect(entriesOf(at("pending", { data: {} }), "paid")).toStrictEqual([
      { name: "refused", data: { from: "pending", to: "paid", code: "guard_refused", why: "no money" } },
    ]);
  });

  test("that is refused leaves the same instance", () => {
    const now = at("pending");
    expect(decideTransition(rules, now, attempt("shipped")).instance).toBe(now);
  });
});

describe("an early event", () => {
  test.each([
    {
      rule: "waits if it can come later",
      now: at("pending"),
      by: attempt("shipped", parking),
      result: "parked",
      log: ["parked shipped"],
      waits: ["shipped"],
    },
    {
      rule: "waits behind those before it",
      now: at("pending", { parked: [waiting("delivered", 5)] }),
      by: attempt("shipped", parking),
      result: "parked",
      log: ["parked shipped"],
      waits: ["delivered", "shipped"],
    },
    {
      rule: "does not wait if it may go now",
      now: at("paid"),
      by: attempt("shipped", parking),
      result: "moved",
      log: ["moved shipped"],
      waits: [],
    },
    {
      rule: "is refused if it can never come",
      now: at("canceled"),
      by: attempt("shipped", parking),
      result: "illegal_transition",
      log: ["refused shipped illegal_transition"],
      waits: [],
    },
    {
      rule: "is refused if there is no room",
      now: at("pending", { parked: [waiting("delivered", 5), waiting("shipped", 6)] }),
      by: attempt("refunded", parking),
      result: "parking_full",
      log: ["refused refunded parking_full"],
      waits: ["delivered", "shipped"],
    },
    {
      rule: "is known by its id while it waits",
      now: at("pending", { parked: [waiting("shipped", 5, { event: "e" })] }),
      by: attempt("shipped", { ...parking, by: { event: "e" }, remembered: { to: "shipped" } }),
      result: "parked before",
      log: [],
      waits: ["shipped"],
    },
    {
      rule: "waits also where a cycle leads back",
      now: at("paid"),
      by: attempt("paid", parking),
      result: "parked",
      log: ["parked paid"],
      waits: ["paid"],
    },
    {
      rule: "does not wait for a guard",
      now: at("pending", { data: {} }),
      by: attempt("paid", parking),
      result: "guard_refused",
      log: ["refused paid guard_refused"],
      waits: [],
    },
  ])("$rule", ({ now, by, result, log, waits }) => {
    const decided = decideTransition(rules, now, by);
    expect(brief(decided)).toMatchObject({ result, log, waits });
    if (result === "parked") expect(decided.instance).toMatchObject({ state: now.state, version: 3, head: 8 });
  });

  test("is stored with its change, its time, and the version of its log entry", () => {
    const by = attempt("shipped", {
      ...parking,
      by: { actor: "dhl", event: "e" },
      change: { patch: { parcel: "p" } },
      nowMs: () => 99,
    });
    expect(decideTransition(rules, at("pending"), by).instance.parked).toEqual([
      { to: "shipped", entry: 8, atMs: 99, change: { patch: { parcel: "p" } }, actor: "dhl", event: "e" },
    ]);
  });

  const pending = (...parked: Parked[]) => at("pending", { parked });
  test.each([
    {
      rule: "is applied by the move that makes it legal",
      now: pending(waiting("shipped", 5)),
      to: "paid",
      state: "shipped",
      log: ["moved paid", "applied shipped"],
      waits: [],
    },
    {
      rule: "is applied behind the one that it waited for",
      now: pending(waiting("delivered", 5), waiting("shipped", 6)),
      to: "paid",
      state: "delivered",
      log: ["moved paid", "applied shipped", "applied delivered"],
      waits: [],
    },
    {
      rule: "goes before those that came after it, and may shut them out",
      now: pending(waiting("shipped", 5), waiting("refunded", 6)),
      to: "paid",
      state: "shipped",
      log: ["moved paid", "applied shipped", "refused refunded illegal_transition"],
      waits: [],
    },
    {
      rule: "and the other way round it leads back, where the other waits on",
      now: pending(waiting("refunded", 5), waiting("shipped", 6)),
      to: "paid",
      state: "refunded",
      log: ["moved paid", "applied refunded"],
      waits: ["shipped"],
    },
    {
      rule: "is refused once it can never come",
      now: pending(waiting("shipped", 5), waiting("delivered", 6)),
      to: "canceled",
      state: "canceled",
      log: ["moved canceled", "refused shipped illegal_transition", "refused delivered illegal_transition"],
      waits: [],
    },
    {
      rule: "waits on while it can still come",
      now: pending(waiting("delivered", 5)),
      to: "paid",
      state: "paid",
      log: ["moved paid"],
      waits: ["delivered"],
    },
    {
      rule: "is refused by a guard when its turn has come",
      now: at("pending", { data: { cents: 1_000 }, parked: [waiting("shipped", 5)] }),
      to: "paid",
      state: "paid",
      log: ["moved paid", "refused shipped guard_refused"],
      waits: [],
    },
    {
      rule: "does not prevent other moves if its guard throws",
      now: pending(waiting("shipped", 5, { change: { patch: { parcel: "broken" } } }), waiting("refunded", 6)),
      to: "paid",
      state: "refunded",
      log: ["moved paid", "refused shipped event_failed", "applied refunded"],
      waits: [],
    },
    {
      rule: "does not prevent other moves if its patch does not fit",
      now: at("refunded", { data: 5, parked: [waiting("pending", 5, { change: { patch: {} } })] }),
      to: "pending",
      state: "pending",
      log: ["moved pending", "refused pending event_failed"],
      waits: [],
    },
  ])("$rule", ({ now, to, state, log, waits }) => {
    expect(brief(decideTransition(rules, now, attempt(to)))).toEqual({ result: "moved", state, log, waits });
  });

  test("is applied with its own data, actor and id, and the log says where it was parked", () => {
    const event = waiting("shipped", 5, {
      actor: "dhl",
      reason: "label",
      event: "e",
      change: { patch: { parcel: "p" } },
    });
    const decided = decideTransition(
      rules,
      pending(event),
      attempt("paid", { by: { actor: "bank" }, change: { data: { cents: 9 } } }),
    );
    expect(decided.instance).toEqual(at("shipped", { version: 9, head: 9, data: { cents: 9, parcel: "p" } }));
    expect(decided.entries).toEqual([
      { name: "moved", data: { from: "pending", to: "paid", data: { cents: 9 }, actor: "bank" } },
      {
        name: "applied",
        data: {
          from: "paid",
          to: "shipped",
          data: { cents: 9, parcel: "p" },
          parked: 5,
          actor: "dhl",
          reason: "label",
          event: "e",
        },
      },
    ]);
    expect(decided.result).toEqual({ ok: true, outcome: "moved", deduplicated: false, applied: ["shipped"] });
  });

  test("without data, actor or id has only the version where it was parked in the log", () => {
    const [, ...turns] = decideTransition(
      rules,
      pending(waiting("shipped", 5), waiting("refunded", 6)),
      attempt("paid"),
    ).entries;
    expect(turns).toStrictEqual([
      { name: "applied", data: { from: "paid", to: "shipped", parked: 5 } },
      { name: "refused", data: { from: "shipped", to: "refunded", code: "illegal_transition", parked: 6 } },
    ]);
  });

  test("that cannot be applied has the reason in the log", () => {
    const broken = waiting("shipped", 5, { change: { patch: { parcel: "broken" } } });
    const strange = waiting("shipped", 6, { change: { patch: { parcel: "strange" } } });
    const [, ...turns] = decideTransition(rules, pending(broken, strange), attempt("paid")).entries;
    const said = { from: "paid", to: "shipped", code: "event_failed" };
    expect(turns.map(({ data }) => data)).toStrictEqual([
      { ...said, why: "no such parcel", parked: 5 },
      { ...said, why: "a text", parked: 6 },
    ]);
  });

  test("is stored without a function", () => {
    const by = attempt("shipped", { ...parking, change: { update: () => 1 } });
    expect(decideTransition(rules, at("pending"), by).instance.parked).toStrictEqual([
      { to: "shipped", entry: 8, atMs: 0 },
    ]);
  });

  test("that is refused later is returned, so that its id can be used again", () => {
    const event = waiting("shipped", 5, { event: "e" });
    expect(decideTransition(rules, pending(event), attempt("canceled")).dropped).toEqual([event]);
    expect(decideTransition(rules, pending(event), attempt("paid")).dropped).toEqual([]);
  });
});

describe("a guard", () => {
  const asking = (guard: () => unknown) =>
    rulesOf(
      machine("m", { initial: "a", transitions: { a: ["b"], b: [] }, guards: { a: { b: guard as () => true } } }),
    );

  test.each([false, undefined, null, 0, 1, {}])("that returns %j is a mistake", (verdict) => {
    const now = at("a");
    expect(() =>
      decideTransition(
        asking(() => verdict),
        now,
        attempt("b"),
      ),
    ).toThrow("must return true, or the reason");
  });

  test("that returns a promise is a mistake", () => {
    expect(() =>
      decideTransition(
        asking(() => Promise.resolve(true)),
        at("a"),
        attempt("b"),
      ),
    ).toThrow("synchronous");
  });

  test("that returns an empty string refuses", () => {
    expect(
      decideTransition(
        asking(() => ""),
        at("a"),
        attempt("b"),
      ).result,
    ).toMatchObject({ code: "guard_refused", why: "" });
  });

  test("that throws is not a refusal: the caller gets the error", () => {
    const throwing = asking(() => {
      throw new RangeError("mine");
    });
    expect(() => decideTransition(throwing, at("a"), attempt("b"))).toThrow(RangeError);
  });

  test("an update that returns a promise is a mistake", () => {
    const by = attempt("refunded", { change: { update: async () => 1 } });
    expect(() => decideTransition(rules, at("paid"), by)).toThrow("synchronous");
  });
});

test.each([
  [{}, true],
  [Object.create(null), true],
  [null, false],
  [undefined, false],
  [5, false],
  [[], false],
  [new Date(0), false],
  [() => {}, false],
])("what is plain: row %#", (value, result) => {
  expect(isPlain(value)).toBe(result);
});

describe("a new instance", () => {
  test("is in the initial state, with the version of its first entry", () => {
    const decided = decideCreate(rules, "o", { cents: 1 }, 0, { actor: "ann" });
    expect(decided.instance).toEqual({
      id: "o",
      state: "pending",
      version: 1,
      head: 1,
      data: { cents: 1 },
      parked: [],
    });
    expect(decided.entries).toEqual([{ name: "created", data: { to: "pending", data: { cents: 1 }, actor: "ann" } }]);
  });

  test("without data has no data in its log entry", () => {
    expect(decideCreate(rules, "o", undefined, 0, {}).entries).toStrictEqual([
      { name: "created", data: { to: "pending" } },
    ]);
  });
});
