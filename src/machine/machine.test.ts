/**
 * Goal: an instance moves only as its machine allows; every attempt is in its audit log, refused ones too; an event takes effect once; an early
 * event is parked and applied later.
 * Method: every law on both stores; a second handle on the same file represents another process.
 */

import { afterAll, describe, expect, test } from "vitest";
import { codeOf, temporaryFolder } from "../../test/kernel/kit.ts";
import { brief, ordersOf, parcel } from "../../test/machine/orders.ts";
import { type OpenOptions, open } from "../open.ts";
import type { Pawl } from "../pawl.ts";
import { machine } from "./definition.ts";
import { GuardRefusedError, IllegalTransitionError, MachineExistsError, MachineNotFoundError } from "./errors.ts";
import { Machines } from "./machine.ts";

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

    describe("an instance", () => {
      test("does not exist until it is created", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        expect(await orders.get("o")).toBeNull();
        expect(await orders.history("o")).toEqual([]);
        expect(await orders.list()).toEqual({ instances: [], unreadable: [], next: null });
      });

      test("begins in the initial state, with the initial data or the given data", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const first = { state: "pending", version: 1, allowed: ["paid", "canceled"], parked: [] };
        expect(await orders.create("a")).toEqual({ id: "a", data: { cents: 0 }, ...first });
        expect(await orders.create("b", { data: { cents: 5 } })).toEqual({ id: "b", data: { cents: 5 }, ...first });
        expect(await orders.get("b")).toEqual({ id: "b", data: { cents: 5 }, ...first });
      });

      test("is created once", async () => {
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

      test("has frozen data", async () => {
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
      test("moves the instance, and returns its state and the allowed states", async () => {
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

      test("that is not allowed throws with the allowed states, and is in the log", async () => {
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

      test("that its guard refuses throws the guard's reason, and is in the log", async () => {
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

      test("can expect a version, which increases only with a move", async () => {
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

      test("of an instance that does not exist is refused, and there is no log", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const error = await orders.transition("o", "paid").catch((one: unknown) => one);
        expect(error).toBeInstanceOf(MachineNotFoundError);
        expect(error).toMatchObject({ code: "machine_not_found", data: { machine: "order", id: "o" } });
        expect(await orders.tryTransition("o", "paid")).toEqual({ ok: false, code: "machine_not_found" });
        expect(await orders.get("o")).toBeNull();
      });

      test('of an instance that does not exist creates it, with unknown: "create"', async () => {
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

      test("whose guard throws writes nothing", async () => {
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
      test("with an id takes effect once, and the result says so", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        await orders.create("o", { data: { cents: 5 } });
        const pay = () => orders.transition("o", "paid", { eventId: "e1", patch: { receipt: "r" } });
        expect(await pay()).toMatchObject({ outcome: "moved", deduplicated: false });
        expect(await pay()).toMatchObject({ outcome: "moved", deduplicated: true, state: "paid", version: 2 });
        await orders.transition("o", "shipped");
        expect(await pay()).toMatchObject({ deduplicated: true, state: "shipped" });
        expect((await orders.history("o")).length).toBe(3);
        // A duplicate writes nothing: neither the instance nor the record of the event.
        const listed = (space: string) => pawl.kernel.list({ space, prefix: "", after: null, limit: 2 });
        expect((await listed("machine/order")).map(({ version }) => version)).toEqual([3]);
        expect((await listed("machine-event/order")).map(({ version }) => version)).toEqual([1]);
      });

      test("with the same id but another state is refused, and in the log", async () => {
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

      test("with the same id is another event for another instance or machine", async () => {
        await using pawl = await fresh();
        const orders = ordersOf(pawl);
        const parcels = new Machines(pawl.kernel).of(parcel);
        for (const id of ["a", "b"]) {
          await orders.create(id);
          expect(await orders.transition(id, "canceled", { eventId: "e" })).toMatchObject({ deduplicated: false });
        }
        expect(await parcels.transition("a", "sent", { eventId: "e" })).toMatchObject({ deduplicated: false });
      });

      test("that was refused is not remembered, and moves the instance when it is sent again later", async () => {
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

    test("exactly what stored.ts describes is stored", async () => {
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

    test("a state that a new release has removed leads to none, and one that it has added can be entered immediately", async () => {
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
