/**
 * Goal: what is early waits for its turn; inside a decision an instance moves with everything else or not at all; many are listed as they are.
 * Method: every law on both stores; a second handle on the same file stands for another process.
 */

import { afterAll, describe, expect, test } from "vitest";
import { bench, codeOf, temporaryFolder } from "../../test/kernel/kit.ts";
import { brief, type OrderData, order, ordersOf, parcel, type State } from "../../test/machine/orders.ts";
import { type OpenOptions, open } from "../open.ts";
import type { Pawl } from "../pawl.ts";
import { Machines, type TxMachine } from "./machine.ts";

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

    /** Runs it in a decision, with the face that `tx.machine` gives. */
    const within = <T>(
      pawl: Pawl,
      act: (orders: TxMachine<State, OrderData, OrderData | undefined>) => T,
    ): Promise<T> => pawl.kernel.transact((tx) => act(new Machines(pawl.kernel).within(tx, order)), []);

    describe("an early event", () => {
      test("is parked, and is applied in the commit that makes it legal, in order", async () => {
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

      test("that is sent again while it is parked, or later, has no effect", async () => {
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

      test("that can never become legal is refused, also after it was parked; then its id can be used again", async () => {
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

      test("is refused when maxParked events are parked", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o");
        for (let i = 0; i < 3; i += 1) await orders.transition("o", "shipped", { whenEarly: "park" });
        const full = orders.transition("o", "delivered", { whenEarly: "park", eventId: "d" });
        const data = { machine: "order", id: "o", to: "delivered", max: 3 };
        await expect(full).rejects.toMatchObject({ code: "parking_full", data });
        expect(await orders.get("o")).toMatchObject({ parked: [{}, {}, {}] });
      });

      test("can create the instance and be parked", async () => {
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
      test("the same methods are synchronous, and their effects visible immediately", async () => {
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

      test("transition throws, and discards the whole decision: nothing is in the log", async () => {
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

      test("a transition whose error is caught records nothing, and the decision continues", async () => {
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

      test("tryTransition returns a refusal, which is in the log with the rest of the decision", async () => {
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

      test("have log entries with only what was given", async () => {
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
  });
