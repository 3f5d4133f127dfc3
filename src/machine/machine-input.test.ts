/**
 * Goal: bad input is refused, and nothing is written.
 * Method: every law on both stores; a second handle on the same file stands for another process.
 */

import { afterAll, describe, expect, test } from "vitest";
import { codeOf, temporaryFolder } from "../../test/kernel/kit.ts";
import { type OrderData, order, ordersOf, type State } from "../../test/machine/orders.ts";
import { type OpenOptions, open } from "../open.ts";
import type { Pawl } from "../pawl.ts";
import { type MachineHandle, Machines } from "./machine.ts";

const folder = temporaryFolder();
afterAll(() => folder.remove());
let files = 0;

const stores = [
  ["memory", () => "memory:"],
  [
    "SQLite",
    () => {
      files += 1;
      return folder.file(`machines-${files}.db`);
    },
  ],
] as const;

for (const [name, place] of stores)
  describe(`on ${name}`, () => {
    /** A store of its own for one law. */
    const fresh = (options: Omit<OpenOptions, "store"> = {}): Promise<Pawl> =>
      open({ store: place(), durability: "process", ...options });

    describe("bad input is refused, and nothing is written:", () => {
      const untyped = (value: unknown): never => value as never;
      const cycle: { self?: unknown } = {};
      cycle.self = cycle;
      type Orders = MachineHandle<State, OrderData, OrderData | undefined>;
      const rows: [string, string, (orders: Orders) => Promise<unknown>][] = [
        ["an empty id", "invalid_id", (orders) => orders.create("")],
        ["an id with NUL", "invalid_id", (orders) => orders.transition("a\u0000", "paid")],
        ["an id with a lone surrogate", "invalid_id", (orders) => orders.get("a\ud800")],
        ["an id that is a number", "invalid_id", (orders) => orders.history(untyped(5))],
        ["an id of 257 bytes", "invalid_id", (orders) => orders.create("a".repeat(257))],
        ["an empty event id", "invalid_id", (orders) => orders.transition("o", "canceled", { eventId: "" })],
        ["an empty actor", "invalid_id", (orders) => orders.transition("o", "canceled", { actor: "" })],
        ["an actor that is an object", "invalid_id", (orders) => orders.create("p", { actor: untyped({}) })],
        ["a reason that is a number", "invalid_argument", (orders) => orders.create("p", { reason: untyped(5) })],
        [
          "a reason without end",
          "invalid_argument",
          (orders) => orders.transition("o", "canceled", { reason: "a".repeat(1_001) }),
        ],
        ["a reason with a lone surrogate", "invalid_argument", (orders) => orders.create("p", { reason: "a\ud800" })],
        ["a state that is none", "invalid_argument", (orders) => orders.transition("o", untyped("piad"))],
        [
          "a state that every object has",
          "invalid_argument",
          (orders) => orders.transition("o", untyped("constructor")),
        ],
        ["no state", "invalid_argument", (orders) => orders.transition("o", untyped(undefined))],
        ["a state to list that is none", "invalid_argument", (orders) => orders.list({ state: untyped("piad") })],
        ["a limit of 0", "invalid_argument", (orders) => orders.list({ limit: 0 })],
        ["a page after nothing", "invalid_id", (orders) => orders.list({ after: "" })],
        ["a log after -1", "invalid_argument", (orders) => orders.history("o", { after: -1 })],
        [
          "an unknown word for early",
          "invalid_argument",
          (orders) => orders.transition("o", "canceled", { whenEarly: untyped("wait") }),
        ],
        [
          "a version of -2",
          "invalid_argument",
          (orders) => orders.transition("o", "canceled", { expectedVersion: -2 }),
        ],
        [
          "a version of 2^53",
          "invalid_argument",
          (orders) => orders.transition("o", "canceled", { expectedVersion: 2 ** 53 }),
        ],
        [
          "a version for what is parked",
          "invalid_argument",
          (orders) => orders.transition("o", "shipped", { expectedVersion: 1, whenEarly: "park" }),
        ],
        [
          "a function for what is parked",
          "invalid_argument",
          (orders) => orders.transition("o", "shipped", { update: (data) => data, whenEarly: "park" }),
        ],
        [
          "data and a patch",
          "invalid_argument",
          (orders) => orders.transition("o", "canceled", { data: { cents: 1 }, patch: {} }),
        ],
        [
          "an update that is no function",
          "invalid_argument",
          (orders) => orders.transition("o", "canceled", { update: untyped(5) }),
        ],
        [
          "an update that is async",
          "decision_async",
          (orders) => orders.transition("o", "canceled", { update: untyped(async () => ({})) }),
        ],
        [
          "a patch that is a list",
          "invalid_argument",
          (orders) => orders.transition("o", "canceled", { patch: untyped([]) }),
        ],
        ["data that is a function", "invalid_value", (orders) => orders.create("p", { data: untyped(() => {}) })],
        [
          "data that is a cycle",
          "invalid_value",
          (orders) => orders.transition("o", "canceled", { data: untyped(cycle) }),
        ],
        [
          "data of 2 MB",
          "value_too_large",
          (orders) => orders.transition("o", "canceled", { data: untyped("a".repeat(2_000_000)) }),
        ],
      ];
      test.each(rows)("%s is %s", async (_, code, act) => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o", { data: { cents: 5 } });
        expect(await codeOf(act(orders))).toBe(code);
        expect(await orders.list()).toMatchObject({ instances: [{ id: "o", version: 1 }], next: null });
        expect((await orders.history("o")).length).toBe(1);
      });

      test("a machine that is none", async () => {
        await using pawl = await fresh();
        expect(() => new Machines(pawl.kernel).of({ ...order })).toThrow("must be one that machine");
        expect(() => new Machines(pawl.kernel).of("order" as never)).toThrow("must be one that machine");
      });

      test("keys that would reach into prototypes are data", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const patch = JSON.parse('{"__proto__": {"cents": 9}, "constructor": {"prototype": 1}}') as never;
        await orders.create("o", { data: { cents: 5 } });
        const { data } = await orders.transition("o", "canceled", { patch });
        expect(Object.hasOwn(data, "__proto__")).toBe(true);
        expect(data.cents).toBe(5);
        expect(Object.getPrototypeOf(data)).toBe(Object.prototype);
        expect(await orders.get("o")).toMatchObject({ data: { cents: 5, constructor: { prototype: 1 } } });
      });
    });
  });
