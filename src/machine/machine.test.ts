/**
 * Goal: an instance moves as its machine allows and no other way; every attempt is in its audit log, refused ones too; an event counts once; what is
 * early waits for its turn.
 * Method: every law on both stores; a second handle on the same file stands for another process.
 */

import { afterAll, describe, expect, test } from "vitest";
import { bench, codeOf, temporaryFolder } from "../../test/kernel.fixture.ts";
import { type OpenOptions, open } from "../open.ts";
import type { Pawl } from "../pawl.ts";
import type { MachineEvent } from "./answers.ts";
import { machine } from "./definition.ts";
import { GuardRefusedError, IllegalTransitionError, MachineExistsError, MachineNotFoundError } from "./errors.ts";
import { type MachineHandle, Machines, type TxMachine } from "./machine.ts";

interface OrderData {
  readonly cents: number;
  readonly receipt?: string;
  readonly parcel?: string;
}

const transitions = {
  pending: ["paid", "canceled"],
  paid: ["shipped", "refunded"],
  shipped: ["delivered"],
  delivered: [],
  canceled: [],
  refunded: [],
} as const;

const blank: OrderData = { cents: 0 };
const order = machine("order", {
  initial: "pending",
  initialData: blank,
  transitions,
  guards: {
    pending: { paid: (data, { next }) => (next.receipt !== undefined && data.cents > 0) || "there is no receipt" },
  },
  maxParked: 3,
});
type State = (typeof order.states)[number];

/** Made by the first event that speaks of it. */
const parcel = machine("parcel", {
  initial: "announced",
  unknown: "create",
  transitions: { announced: ["sent"], sent: ["lost", "here"], lost: ["here"], here: [] },
});

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

const ordersOf = (pawl: Pawl) => new Machines(pawl.kernel).of(order);

/** What happened, in short. */
const brief = (events: readonly MachineEvent[]) =>
  events.map(({ outcome, from, to, code }) => `${outcome} ${from ?? "-"} ${to}${code === undefined ? "" : ` ${code}`}`);

for (const [name, place] of stores)
  describe(`on ${name}`, () => {
    /** A store of its own for one law. */
    const fresh = (options: Omit<OpenOptions, "store"> = {}): Promise<Pawl> =>
      open({ store: place(), durability: "process", ...options });

    /** Runs it in a decision, with the face that `tx.machine` gives. */
    const within = <T>(
      pawl: Pawl,
      act: (orders: TxMachine<State, OrderData, OrderData | undefined>) => T,
    ): Promise<T> => pawl.kernel.transact((tx) => act(new Machines(pawl.kernel).within(tx, order)), []);

    describe("an instance", () => {
      test("is not there until it is made", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        expect(await orders.get("o")).toBeNull();
        expect(await orders.history("o")).toEqual([]);
        expect(await orders.list()).toEqual({ instances: [], unreadable: [], next: null });
      });

      test("begins in the first state, with the first data unless other is given", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const first = { state: "pending", version: 1, allowed: ["paid", "canceled"], parked: [] };
        expect(await orders.create("a")).toEqual({ id: "a", data: { cents: 0 }, ...first });
        expect(await orders.create("b", { data: { cents: 5 } })).toEqual({ id: "b", data: { cents: 5 }, ...first });
        expect(await orders.get("b")).toEqual({ id: "b", data: { cents: 5 }, ...first });
      });

      test("is made once", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o", { data: { cents: 5 } });
        const error = await orders.create("o").catch((one: unknown) => one);
        expect(error).toBeInstanceOf(MachineExistsError);
        expect(error).toMatchObject({ data: { machine: "order", id: "o", state: "pending", version: 1 } });
        expect(await orders.tryCreate("o")).toEqual({
          ok: false,
          code: "machine_exists",
          state: "pending",
          version: 1,
        });
        expect(await orders.get("o")).toMatchObject({ data: { cents: 5 }, version: 1 });
        expect(await orders.tryCreate("p")).toMatchObject({ ok: true, id: "p", state: "pending" });
      });

      test("is another for every other id, and every other machine", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const parcels = new Machines(pawl.kernel).of(parcel);
        const ids = ["a", "A", " a", "a/b", "a%2Fb", "..", "\u00e9", "e\u0301"];
        for (const id of ids) await orders.create(id, { actor: id });
        for (const id of ids) expect(await orders.history(id)).toMatchObject([{ actor: id }]);
        expect(await parcels.get("a")).toBeNull();
        await parcels.create("a");
        expect(await orders.get("a")).toMatchObject({ state: "pending" });
        expect(await parcels.get("a")).toMatchObject({ state: "announced" });
      });

      test("is not confused with one of a machine whose name has our separator", async () => {
        await using pawl = await fresh();
        const one = { initial: "on", transitions: { on: [] } } as const;
        const [slashed, plain] = [machine("a/b", one), machine("a", one)];
        const machines = new Machines(pawl.kernel);
        await machines.of(slashed).create("c");
        expect(await machines.of(plain).get("b/c")).toBeNull();
      });

      test("gives out frozen data", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const made = await orders.create("o", { data: { cents: 5 } });
        expect(() => Object.assign(made.data, { cents: 6 })).toThrow(TypeError);
        const got = await orders.get("o");
        expect(() => Object.assign(got?.data ?? {}, { cents: 6 })).toThrow(TypeError);
        const cheat = orders.transition("o", "canceled", { update: (data) => Object.assign(data, { cents: 6 }) });
        await expect(cheat).rejects.toThrow(TypeError);
        expect(await orders.get("o")).toMatchObject({ state: "pending", data: { cents: 5 } });
      });
    });

    describe("a transition", () => {
      test("moves it, and says where it is and where it can go", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o", { data: { cents: 5 } });
        const paid = await orders.transition("o", "paid", { patch: { receipt: "r" } });
        expect(paid).toEqual({
          id: "o",
          outcome: "moved",
          deduplicated: false,
          applied: [],
          state: "paid",
          data: { cents: 5, receipt: "r" },
          version: 2,
          allowed: ["shipped", "refunded"],
          parked: [],
        });
        const shipped = await orders.transition("o", "shipped", {
          update: (data) => ({ ...data, cents: data.cents + 1 }),
        });
        expect(shipped).toMatchObject({ version: 3, data: { cents: 6, receipt: "r" } });
        expect(await orders.transition("o", "delivered", { data: { cents: 7 } })).toMatchObject({
          data: { cents: 7 },
          allowed: [],
        });
        expect(await orders.get("o")).toEqual({
          id: "o",
          state: "delivered",
          version: 4,
          data: { cents: 7 },
          allowed: [],
          parked: [],
        });
      });

      test("that is not allowed throws what was, and is in the log all the same", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o");
        const error = await orders
          .transition("o", "shipped", { actor: "ann", reason: "hurry" })
          .catch((one: unknown) => one);
        expect(error).toBeInstanceOf(IllegalTransitionError);
        const data = { from: "pending", to: "shipped", allowed: ["paid", "canceled"] };
        expect(error).toMatchObject({ code: "illegal_transition", data: { machine: "order", id: "o", ...data } });
        expect(await orders.tryTransition("o", "shipped", { actor: "bob" })).toEqual({
          ok: false,
          code: "illegal_transition",
          ...data,
        });
        expect(await orders.history("o")).toMatchObject([
          { outcome: "created" },
          {
            version: 2,
            outcome: "refused",
            from: "pending",
            to: "shipped",
            code: "illegal_transition",
            actor: "ann",
            reason: "hurry",
          },
          { version: 3, outcome: "refused", from: "pending", to: "shipped", code: "illegal_transition", actor: "bob" },
        ]);
        expect(await orders.get("o")).toMatchObject({ state: "pending", version: 1 });
      });

      test("that its guard refuses throws what the guard said, and is in the log all the same", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o", { data: { cents: 5 } });
        const error = await orders.transition("o", "paid").catch((one: unknown) => one);
        expect(error).toBeInstanceOf(GuardRefusedError);
        const data = { from: "pending", to: "paid", why: "there is no receipt" };
        expect(error).toMatchObject({ code: "guard_refused", data: { machine: "order", id: "o", ...data } });
        expect(await orders.tryTransition("o", "paid")).toEqual({ ok: false, code: "guard_refused", ...data });
        expect(brief(await orders.history("o")).slice(1)).toEqual(Array(2).fill("refused pending paid guard_refused"));
        expect(await orders.history("o")).toMatchObject([{}, { why: "there is no receipt" }, {}]);
      });

      test("may expect a version, which only moves raise", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const { version } = await orders.create("o");
        await orders.tryTransition("o", "shipped");
        await orders.tryTransition("o", "delivered", { whenEarly: "park" });
        const stale = orders.transition("o", "canceled", { expectedVersion: version + 1 });
        const data = { name: 'order "o"', expected: 2, current: 1 };
        await expect(stale).rejects.toMatchObject({ code: "version_conflict", data });
        const answer = await orders.tryTransition("o", "canceled", { expectedVersion: 0 });
        expect(answer).toEqual({ ok: false, code: "version_conflict", expected: 0, current: 1 });
        expect(await orders.transition("o", "canceled", { expectedVersion: version })).toMatchObject({ version: 6 });
        expect((await orders.get("o"))?.version).toBe(6);
        expect(brief(await orders.history("o"))[5]).toBe("moved pending canceled");
      });

      test("of what is not there is refused, and there is no log of it", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const error = await orders.transition("o", "paid").catch((one: unknown) => one);
        expect(error).toBeInstanceOf(MachineNotFoundError);
        expect(error).toMatchObject({ code: "machine_not_found", data: { machine: "order", id: "o" } });
        expect(await orders.tryTransition("o", "paid")).toEqual({ ok: false, code: "machine_not_found" });
        expect(await orders.get("o")).toBeNull();
      });

      test("of what is not there makes it, where the machine says so", async () => {
        await using pawl = await fresh();
        const parcels = new Machines(pawl.kernel).of(parcel);
        expect(await parcels.transition("p", "sent", { actor: "dhl", eventId: "e" })).toMatchObject({
          state: "sent",
          version: 2,
        });
        expect(brief(await parcels.history("p"))).toEqual(["created - announced", "moved announced sent"]);
        expect(await parcels.history("p")).toMatchObject([{ actor: "dhl" }, { actor: "dhl", eventId: "e" }]);
        expect(await codeOf(parcels.transition("q", "here"))).toBe("illegal_transition");
        expect(brief(await parcels.history("q"))).toEqual([
          "created - announced",
          "refused announced here illegal_transition",
        ]);
        expect(await parcels.transition("r", "sent", { expectedVersion: 0 })).toMatchObject({ state: "sent" });
        expect(await codeOf(parcels.transition("r", "lost", { expectedVersion: 0 }))).toBe("version_conflict");
        expect(await codeOf(parcels.transition("s", "sent", { expectedVersion: 1 }))).toBe("version_conflict");
      });

      test("whose guard throws is nobody's: nothing is written", async () => {
        await using pawl = await fresh();
        const strict = machine("strict", {
          initial: "a",
          transitions: { a: ["b"], b: [] },
          guards: {
            a: {
              b: () => {
                throw new RangeError("mine");
              },
            },
          },
        });
        const stricts = new Machines(pawl.kernel).of(strict);
        await stricts.create("s");
        await expect(stricts.transition("s", "b")).rejects.toThrow(RangeError);
        expect((await stricts.history("s")).length).toBe(1);
      });
    });

    describe("an event", () => {
      test("with an id counts once, and the answer says so", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o", { data: { cents: 5 } });
        const pay = () => orders.transition("o", "paid", { eventId: "e1", patch: { receipt: "r" } });
        expect(await pay()).toMatchObject({ outcome: "moved", deduplicated: false });
        expect(await pay()).toMatchObject({ outcome: "moved", deduplicated: true, state: "paid", version: 2 });
        await orders.transition("o", "shipped");
        expect(await pay()).toMatchObject({ deduplicated: true, state: "shipped" });
        expect((await orders.history("o")).length).toBe(3);
        // What came before writes nothing: neither the instance nor the mark of the event.
        const listed = (space: string) => pawl.kernel.list({ space, prefix: "", after: null, limit: 2 });
        expect((await listed("machine/order")).map(({ version }) => version)).toEqual([3]);
        expect((await listed("machine-event/order")).map(({ version }) => version)).toEqual([1]);
      });

      test("of the same id but another state is refused, and in the log", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o");
        await orders.transition("o", "canceled", { eventId: "e1" });
        const error = orders.transition("o", "paid", { eventId: "e1" });
        const data = { eventId: "e1", to: "paid", first: "canceled" };
        await expect(error).rejects.toMatchObject({
          code: "event_conflict",
          data: { machine: "order", id: "o", ...data },
        });
        expect(await orders.tryTransition("o", "paid", { eventId: "e1" })).toEqual({
          ok: false,
          code: "event_conflict",
          ...data,
        });
        expect(brief(await orders.history("o")).slice(2)).toEqual(
          Array(2).fill("refused canceled paid event_conflict"),
        );
      });

      test("is another for every other instance and machine", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const parcels = new Machines(pawl.kernel).of(parcel);
        for (const id of ["a", "b"]) {
          await orders.create(id);
          expect(await orders.transition(id, "canceled", { eventId: "e" })).toMatchObject({ deduplicated: false });
        }
        expect(await parcels.transition("a", "sent", { eventId: "e" })).toMatchObject({ deduplicated: false });
      });

      test("that was refused is not remembered, and moves when it comes again in time", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o", { data: { cents: 5, receipt: "r" } });
        expect(await codeOf(orders.transition("o", "shipped", { eventId: "e" }))).toBe("illegal_transition");
        await orders.transition("o", "paid", { patch: { receipt: "r" } });
        expect(await orders.transition("o", "shipped", { eventId: "e" })).toMatchObject({
          deduplicated: false,
          state: "shipped",
        });
      });
    });

    describe("an early event", () => {
      test("waits, and is applied in the very commit that makes it legal, in order", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o", { data: { cents: 5 } });
        const delivered = { whenEarly: "park", eventId: "d", actor: "dhl" } as const;
        expect(await orders.transition("o", "delivered", delivered)).toMatchObject({
          outcome: "parked",
          state: "pending",
          version: 1,
        });
        const shipped = { whenEarly: "park", eventId: "s", patch: { parcel: "p" }, reason: "label" } as const;
        const { parked } = await orders.transition("o", "shipped", shipped);
        const at = expect.any(Date);
        expect(parked).toStrictEqual([
          { to: "delivered", at, actor: "dhl", eventId: "d" },
          { to: "shipped", at, reason: "label", eventId: "s" },
        ]);
        expect(await orders.get("o")).toMatchObject({
          parked: [{ to: "delivered" }, { to: "shipped" }],
          data: { cents: 5 },
        });
        const paid = await orders.transition("o", "paid", { patch: { receipt: "r" } });
        expect(paid).toMatchObject({ state: "delivered", applied: ["shipped", "delivered"], parked: [], version: 6 });
        expect(paid.data).toEqual({ cents: 5, receipt: "r", parcel: "p" });
        const history = await orders.history("o");
        expect(brief(history).slice(1)).toEqual([
          "parked pending delivered",
          "parked pending shipped",
          "moved pending paid",
          "applied paid shipped",
          "applied shipped delivered",
        ]);
        expect(history.slice(4)).toMatchObject([
          { parkedAs: 3, eventId: "s", reason: "label", data: { parcel: "p" } },
          { parkedAs: 2, eventId: "d", actor: "dhl" },
        ]);
      });

      test("that comes again while it waits, or after, has no effect", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o", { data: { cents: 5 } });
        const ship = () => orders.transition("o", "shipped", { whenEarly: "park", eventId: "s" });
        await ship();
        expect(await ship()).toMatchObject({ outcome: "parked", deduplicated: true, parked: [{}] });
        await orders.transition("o", "paid", { patch: { receipt: "r" } });
        expect(await ship()).toMatchObject({ outcome: "moved", deduplicated: true, state: "shipped" });
        expect((await orders.history("o")).length).toBe(4);
      });

      test("that can never come is refused, and so is one that no longer can; then its id is free", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o");
        await orders.transition("o", "shipped", { whenEarly: "park", eventId: "s" });
        await orders.transition("o", "canceled");
        expect(await orders.get("o")).toMatchObject({ parked: [] });
        const again = orders.transition("o", "shipped", { whenEarly: "park", eventId: "s" });
        expect(await codeOf(again)).toBe("illegal_transition");
        expect(brief(await orders.history("o")).slice(2)).toEqual([
          "moved pending canceled",
          "refused canceled shipped illegal_transition",
          "refused canceled shipped illegal_transition",
        ]);
        expect((await orders.history("o"))[3]).toMatchObject({ parkedAs: 2, eventId: "s" });
      });

      test("is refused when as many wait as may", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o");
        for (let i = 0; i < 3; i += 1) await orders.transition("o", "shipped", { whenEarly: "park" });
        const full = orders.transition("o", "delivered", { whenEarly: "park", eventId: "d" });
        const data = { machine: "order", id: "o", to: "delivered", max: 3 };
        await expect(full).rejects.toMatchObject({ code: "parking_full", data });
        expect(await orders.get("o")).toMatchObject({ parked: [{}, {}, {}] });
      });

      test("that waits may be the first that is heard of an instance", async () => {
        await using pawl = await fresh();
        const parcels = new Machines(pawl.kernel).of(parcel);
        expect(await parcels.transition("p", "here", { whenEarly: "park" })).toMatchObject({
          state: "announced",
          outcome: "parked",
        });
        expect(await parcels.transition("p", "sent")).toMatchObject({ state: "here", applied: ["here"] });
      });
    });

    describe("inside a decision", () => {
      test("the same verbs act at once, and are seen at once", async () => {
        await using pawl = await fresh();
        const seen = await within(pawl, (orders) => {
          orders.create("o", { data: { cents: 5 } });
          orders.transition("o", "paid", { patch: { receipt: "r" } });
          const again = orders.tryCreate("o");
          return [orders.get("o")?.state, again.ok, orders.tryTransition("o", "paid").ok, orders.get("none")];
        });
        expect(seen).toEqual(["paid", false, false, null]);
        expect(brief(await ordersOf(pawl).history("o"))).toEqual([
          "created - pending",
          "moved pending paid",
          "refused paid paid illegal_transition",
        ]);
      });

      test("transition throws, and drops the decision whole: nothing is in the log", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o");
        const slot = pawl.slot<number>("n", { initial: 0 });
        const refused = pawl.kernel.transact((tx) => {
          slot.within(tx).set(1);
          orders.within(tx).transition("o", "shipped");
        }, []);
        expect(await codeOf(refused)).toBe("illegal_transition");
        expect(await slot.get()).toEqual({ value: 0, version: 0 });
        expect((await orders.history("o")).length).toBe(1);
      });

      test("transition that throws records nothing either if the decision goes on without it", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const parcels = new Machines(pawl.kernel).of(parcel);
        await orders.create("o");
        const codes = await pawl.kernel.transact((tx) => {
          const caught: unknown[] = [];
          for (const act of [
            () => orders.within(tx).transition("o", "shipped"),
            () => parcels.within(tx).transition("p", "here"),
            () => orders.within(tx).transition("none", "paid"),
            () => orders.within(tx).create("o"),
          ])
            try {
              act();
            } catch (error) {
              caught.push((error as { code?: unknown }).code);
            }
          orders.within(tx).create("q");
          return caught;
        }, []);
        expect(codes).toEqual(["illegal_transition", "illegal_transition", "machine_not_found", "machine_exists"]);
        expect((await orders.history("o")).length).toBe(1);
        expect(await parcels.get("p")).toBeNull();
        expect(await orders.get("q")).not.toBeNull();
      });

      test("tryTransition answers, and its refusal is in the log with the rest of the decision", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o");
        const answer = await within(pawl, (face) => face.tryTransition("o", "shipped", { actor: "ann" }));
        expect(answer).toMatchObject({ ok: false, code: "illegal_transition" });
        expect(await orders.history("o")).toMatchObject([{}, { outcome: "refused", actor: "ann" }]);
        const dropped = within(pawl, (face) => {
          face.tryTransition("o", "shipped");
          throw new RangeError("mine");
        });
        await expect(dropped).rejects.toThrow(RangeError);
        expect((await orders.history("o")).length).toBe(2);
      });

      test("two machines move together, or neither does", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const parcels = new Machines(pawl.kernel).of(parcel);
        await orders.create("o", { data: { cents: 5 } });
        const ship = () =>
          pawl.kernel.transact((tx) => {
            parcels.within(tx).transition("p", "sent");
            orders.within(tx).transition("o", "shipped");
          }, []);
        expect(await codeOf(ship())).toBe("illegal_transition");
        expect(await parcels.get("p")).toBeNull();
        await orders.transition("o", "paid", { patch: { receipt: "r" } });
        await ship();
        expect([(await parcels.get("p"))?.state, (await orders.get("o"))?.state]).toEqual(["sent", "shipped"]);
      });
    });

    describe("many instances", () => {
      test("are listed by state, in pages", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        for (const id of ["a", "b", "c", "d", "e"]) await orders.create(id);
        for (const id of ["b", "d"]) await orders.transition(id, "canceled");
        const idsOf = async (options: Parameters<typeof orders.list>[0]) => {
          const { instances, next } = await orders.list(options);
          return [instances.map(({ id }) => id).join(""), next];
        };
        expect(await idsOf({})).toEqual(["abcde", null]);
        expect(await idsOf({ state: "pending" })).toEqual(["ace", null]);
        expect(await idsOf({ state: ["pending", "canceled"], limit: 2 })).toEqual(["ab", "b"]);
        expect(await idsOf({ state: "pending", limit: 2 })).toEqual(["ac", "c"]);
        expect(await idsOf({ state: "pending", limit: 2, after: "c" })).toEqual(["e", null]);
        expect(await idsOf({ limit: 5 })).toEqual(["abcde", null]);
        expect(await idsOf({ state: "paid" })).toEqual(["", null]);
        expect(await idsOf({ state: [] })).toEqual(["", null]);
        const [first] = (await orders.list({ state: "canceled", limit: 1 })).instances;
        expect(first).toEqual({ id: "b", state: "canceled", version: 2, data: { cents: 0 }, allowed: [], parked: [] });
      });

      test("have logs that can be read in pages", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o");
        for (let i = 0; i < 4; i += 1) await orders.tryTransition("o", "shipped");
        const page = async (after: number) =>
          (await orders.history("o", { after, limit: 2 })).map(({ version }) => version);
        expect([await page(0), await page(2), await page(4), await page(5)]).toEqual([[1, 2], [3, 4], [5], []]);
      });

      test("have entries that say no more than was said", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o");
        await orders.transition("o", "shipped", { whenEarly: "park" });
        await orders.transition("o", "canceled", { reason: "r".repeat(1_000) });
        const at = expect.any(Date);
        expect(await orders.history("o")).toStrictEqual([
          { version: 1, at, outcome: "created", from: null, to: "pending", data: { cents: 0 } },
          { version: 2, at, outcome: "parked", from: "pending", to: "shipped" },
          { version: 3, at, outcome: "moved", from: "pending", to: "canceled", reason: "r".repeat(1_000) },
          {
            version: 4,
            at,
            outcome: "refused",
            from: "canceled",
            to: "shipped",
            code: "illegal_transition",
            parkedAs: 2,
          },
        ]);
      });

      test("keep the time of each entry", async () => {
        const { kernel, clock } = bench();
        const orders = new Machines(kernel).of(order);
        await orders.create("o");
        await clock.advance(5_000);
        await orders.tryTransition("o", "shipped");
        expect((await orders.history("o")).map(({ at }) => at.getTime())).toEqual([1_000_000, 1_005_000]);
        await orders.transition("o", "shipped", { whenEarly: "park" });
        expect((await orders.get("o"))?.parked[0]?.at.getTime()).toBe(1_005_000);
      });
    });

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

    test("what is stored is what words.ts says, and no more", async () => {
      await using pawl = await fresh();
      const parcels = new Machines(pawl.kernel).of(parcel);
      const storedOf = async (space: string) => {
        const rows = await pawl.kernel.list({ space, prefix: "", after: null, limit: 9 });
        return rows.map((row) => ({ status: row.status, kind: row.kind, ...(JSON.parse(row.value ?? "") as object) }));
      };
      await parcels.create("p");
      expect(await storedOf("machine/parcel")).toStrictEqual([{ status: "announced", kind: null, version: 1 }]);
      await parcels.transition("p", "here", { whenEarly: "park", eventId: "e", actor: "ann", patch: {} as never });
      const [{ parked, ...rest } = {}] = (await storedOf("machine/parcel")) as { parked?: unknown }[];
      expect(rest).toStrictEqual({ status: "announced", kind: null, version: 1 });
      const atMs = expect.any(Number);
      expect(parked).toStrictEqual([{ to: "here", entry: 2, atMs, change: { patch: {} }, actor: "ann", event: "e" }]);
      expect(await storedOf("machine-event/parcel")).toStrictEqual([{ status: null, kind: null, to: "here" }]);
      await parcels.transition("p", "sent", { data: 5 as never });
      expect(await storedOf("machine/parcel")).toStrictEqual([{ status: "sent", kind: null, version: 3, data: 5 }]);
    });

    test("a state that a new release has forgotten leads nowhere, and one that it has added is had at once", async () => {
      await using pawl = await fresh();
      const machines = new Machines(pawl.kernel);
      const before = machine("light", { initial: "off", transitions: { off: ["on", "dim"], on: [], dim: ["on"] } });
      const after = machine("light", {
        initial: "off",
        transitions: { off: ["on", "bright"], on: ["bright"], bright: [] },
      });
      await machines.of(before).create("a");
      await machines.of(before).create("b");
      await machines.of(before).transition("a", "dim");
      expect(await machines.of(after).get("a")).toMatchObject({ state: "dim", allowed: [] });
      const stuck = machines.of(after).transition("a", "on", { whenEarly: "park" });
      await expect(stuck).rejects.toMatchObject({ code: "illegal_transition", data: { from: "dim", allowed: [] } });
      expect(await machines.of(after).transition("b", "bright")).toMatchObject({ state: "bright" });
    });
  });
