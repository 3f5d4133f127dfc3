/**
 * Goal: of two transitions that exclude each other exactly one wins, the other gets the state of the instance, and both are in the log; an event that
 * is delivered twice concurrently counts once; concurrent `shipped` and `paid` end the same in either order.
 * Method: handles of their own, as two processes would have them, look first and meet at a barrier; commits are held until all of them are on their
 * way. That the barrier does make a race is shown by code that looks and then acts, which it breaks.
 */

import { describe, expect, test } from "vitest";
import { machine } from "../../src/machine/definition.ts";
import { type MachineHandle, Machines } from "../../src/machine/machine.ts";
import { codeOf, drained, gate } from "../kernel/kit.ts";
import { EVERY, type Handle, onStores, type Place } from "../workflow/kit.ts";

const order = machine("order", {
  initial: "pending",
  initialData: { moves: 0 },
  unknown: "create",
  transitions: { pending: ["paid", "canceled"], paid: ["shipped", "paid"], shipped: [], canceled: [] },
});
type State = (typeof order.states)[number];
type Orders = MachineHandle<State, { moves: number }, { moves: number } | undefined>;

const ordersOf = ({ pawl }: Handle): Orders => new Machines(pawl.kernel).of(order);

async function handles(place: Place, count: number): Promise<Handle[]> {
  return Promise.all(Array.from({ length: count }, () => place.openHandle()));
}

/** All of them are under way before the first of them reaches the store. */
async function atOnce<T>(
  among: readonly Handle[],
  acts: readonly (() => Promise<T>)[],
): Promise<PromiseSettledResult<T>[]> {
  const barrier = gate();
  for (const handle of among) handle.hold("request", barrier.opened);
  const acting = Promise.allSettled(acts.map((act) => act()));
  await drained();
  barrier.open();
  return acting;
}

const count = <T>(results: readonly PromiseSettledResult<T>[], is: PromiseSettledResult<T>["status"]) =>
  results.filter(({ status }) => status === is).length;

onStores(EVERY, (place) => {
  describe("two who both saw that it is pending", () => {
    test("and move it in different directions: one wins, the other gets an error, and both are in the log", async () => {
      const both = await handles(place, 2);
      const [one, two] = both.map(ordersOf) as [Orders, Orders];
      for (let round = 0; round < 10; round += 1) {
        const id = `o-${round}`;
        await one.create(id);
        for (const orders of [one, two]) expect((await orders.get(id))?.allowed).toContain("canceled");
        const results = await atOnce(both, [() => one.transition(id, "paid"), () => two.transition(id, "canceled")]);
        expect(count(results, "fulfilled")).toBe(1);
        const state = (await one.get(id))?.state;
        const loser = results.find(({ status }) => status === "rejected");
        expect(loser).toMatchObject({ reason: { code: "illegal_transition", data: { from: state } } });
        const log = await two.history(id);
        expect(log.map(({ outcome }) => outcome)).toEqual(["created", "moved", "refused"]);
      }
    });

    test("and who look and then act without a decision are both right, and one is lost: the barrier is a race", async () => {
      const both = await handles(place, 2);
      const slots = both.map(({ pawl }) => pawl.slot<string>("naive", { initial: "pending" }));
      const barrier = gate();
      let arrived = 0;
      const moves = ["paid", "canceled"].map(async (to, index) => {
        const { value } = (await slots[index]?.get()) ?? {};
        arrived += 1;
        if (arrived === 2) barrier.open();
        await barrier.opened;
        if (value !== "pending") throw new Error("it is too late");
        await slots[index]?.set(to);
        return to;
      });
      expect(await Promise.all(moves)).toEqual(["paid", "canceled"]);
    });
  });

  test("of many who move it the same way, one does, and all of them are in the log", async () => {
    const all = await handles(place, 4);
    const [orders] = all.map(ordersOf) as [Orders];
    await orders.create("o");
    const acts = Array.from({ length: 40 }, (_, index) => () => {
      const mine = ordersOf(all[index % all.length] as Handle);
      return mine.transition("o", "canceled", { actor: `a-${index}`, update: ({ moves }) => ({ moves: moves + 1 }) });
    });
    expect(count(await atOnce(all, acts), "fulfilled")).toBe(1);
    expect(await orders.get("o")).toMatchObject({ state: "canceled", data: { moves: 1 } });
    const log = await orders.history("o");
    expect(log.filter(({ outcome }) => outcome === "moved").length).toBe(1);
    expect(new Set(log.slice(1).map(({ actor }) => actor)).size).toBe(40);
  });

  test("of many who expect the same version, one moves it", async () => {
    const all = await handles(place, 4);
    const [orders] = all.map(ordersOf) as [Orders];
    const { version } = await orders.transition("o", "paid");
    const acts = all.map((one) => () => ordersOf(one).transition("o", "paid", { expectedVersion: version }));
    expect(count(await atOnce(all, acts), "fulfilled")).toBe(1);
  });

  test("an event delivered twice concurrently counts once, and both deliveries succeed", async () => {
    const both = await handles(place, 2);
    const [orders] = both.map(ordersOf) as [Orders];
    const deliver = (one: Handle) => () =>
      ordersOf(one).transition("o", "paid", { eventId: "e", update: ({ moves }) => ({ moves: moves + 1 }) });
    const results = await atOnce(both, both.map(deliver));
    const answers = results.flatMap((one) => (one.status === "fulfilled" ? [one.value.deduplicated] : []));
    expect(answers.toSorted()).toEqual([false, true]);
    expect(await orders.get("o")).toMatchObject({ state: "paid", data: { moves: 1 } });
  });

  test("two that create the same instance concurrently: one succeeds", async () => {
    const both = await handles(place, 2);
    const acts = both.map((one) => () => ordersOf(one).create("o"));
    const results = await atOnce(both, acts);
    expect(count(results, "fulfilled")).toBe(1);
    expect(results.find(({ status }) => status === "rejected")).toMatchObject({ reason: { code: "machine_exists" } });
  });

  test.each(["shipped first", "paid first", "at once"])(
    "shipped before paid: %s, the end is the same",
    async (first) => {
      const both = await handles(place, 2);
      const [one, two] = both.map(ordersOf) as [Orders, Orders];
      const ship = () => one.transition("o", "shipped", { whenEarly: "park", eventId: "s" });
      const pay = () => two.transition("o", "paid", { whenEarly: "park", eventId: "p" });
      if (first === "at once") expect(count(await atOnce(both, [ship, pay]), "fulfilled")).toBe(2);
      else for (const act of first === "paid first" ? [pay, ship] : [ship, pay]) await act();
      expect(await one.get("o")).toMatchObject({ state: "shipped", parked: [] });
      expect((await one.history("o")).filter(({ to }) => to === "shipped").at(-1)?.outcome).not.toBe("refused");
    },
  );

  test("without parking, an early event is refused with an error to retry", async () => {
    const both = await handles(place, 1);
    const [one] = both.map(ordersOf) as [Orders];
    expect(await codeOf(one.transition("o", "shipped", { eventId: "s" }))).toBe("illegal_transition");
    await one.transition("o", "paid");
    expect(await one.transition("o", "shipped", { eventId: "s" })).toMatchObject({
      state: "shipped",
      deduplicated: false,
    });
  });

  test("a refusal is committed before it is thrown", async () => {
    const [handle, other] = (await handles(place, 2)) as [Handle, Handle];
    const orders = ordersOf(handle);
    await orders.create("o");
    const late = gate();
    handle.hold("answer", late.opened);
    let isTold = false;
    const refused = orders.transition("o", "shipped").catch(() => {
      isTold = true;
    });
    await expect.poll(async () => (await ordersOf(other).history("o")).length).toBe(2);
    expect(isTold).toBe(false);
    late.open();
    await refused;
    expect(isTold).toBe(true);
  });
});
