/**
 * The races of a payments service, each forced: what could arrive at the same moment does.
 *
 * A race runs with separate handles on one database, as with as many processes. `atOnce` holds back their store calls until each of them is
 * about to commit, so that none has seen what another did. A race about a long wait has a promise in the middle of it that the race itself
 * settles.
 *
 * The result of a race is asserted with node's own assertions, because the races know no test runner: `races.test.ts` runs them on every
 * store, and `run-guards.ts` runs them on sources without one of their guards, where they must fail.
 *
 * Out of scope: a signal that arrives exactly at its deadline. The simulator covers that, in "signal, timeout and cancel come to one
 * outcome" (test/simulation/scenarios/workflows.ts), with its own planted bugs.
 */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type ActionsOptions,
  FencedError,
  IdempotencyInProgressError,
  IdempotencyMismatchError,
  machine,
  open,
  type Pawl,
} from "../../src/index.ts";
import type { Store } from "../../src/kernel/contract.ts";

export interface Race {
  /** A law, as the name of a test. */
  readonly name: string;
  readonly play: (arena: Arena) => Promise<void>;
}

const ACTIONS: ActionsOptions = {
  pepper: "a pepper for the races",
  keys: { current: "k1", ring: { k1: new Uint8Array(32).fill(1) } },
};

/** One database, with as many processes on it as a race wants. */
export class Arena {
  readonly #connect: () => Promise<Store>;
  readonly #namespace: string;
  readonly #pawls: Pawl[] = [];
  /** What those who are about to commit wait for. */
  #barrier: { readonly here: Set<Store>; readonly opened: Promise<void>; arrive(store: Store): void } | undefined;

  constructor(connect: (namespace: string) => Promise<Store>, namespace: string) {
    this.#connect = () => connect(namespace);
    this.#namespace = namespace;
  }

  /** Handles of processes of their own. */
  async processes(count: number): Promise<readonly [Pawl, Pawl, ...Pawl[]]> {
    const pawls: Pawl[] = [];
    while (pawls.length < count) {
      const store = await this.#connect();
      const commit = store.commit.bind(store);
      store.commit = async (batch) => {
        this.#barrier?.arrive(store);
        await this.#barrier?.opened;
        return commit(batch);
      };
      pawls.push(await open({ store, namespace: this.#namespace, actions: ACTIONS, checkPurity: false }));
    }
    this.#pawls.push(...pawls);
    const [one, two, ...more] = pawls;
    if (one === undefined || two === undefined) throw new Error("a race takes two");
    return [one, two, ...more];
  }

  /** All calls begin, on this many handles, before any of them returns. */
  async atOnce<T>(processes: number, asks: readonly (() => Promise<T>)[]): Promise<PromiseSettledResult<T>[]> {
    const { promise: opened, resolve: open } = Promise.withResolvers<void>();
    const here = new Set<Store>();
    this.#barrier = {
      here,
      opened,
      arrive: (store) => {
        here.add(store);
        if (here.size === processes) open();
      },
    };
    // Who never arrives would keep all others waiting for ever.
    const late = sleep(10_000, "late", { ref: false });
    const answers = Promise.allSettled(asks.map((ask) => ask()));
    assert.notEqual(await Promise.race([opened, answers, late]), "late", "a process did not get as far as its commit");
    this.#barrier = undefined;
    open();
    return answers;
  }

  async leave(): Promise<void> {
    await Promise.all(this.#pawls.map((pawl) => pawl.close()));
  }
}

/** Returns the results; none was refused. */
function all<T>(results: readonly PromiseSettledResult<T>[]): T[] {
  return results.map((result) => {
    assert.equal(result.status, "fulfilled", result.status === "rejected" ? String(result.reason) : "");
    return result.value;
  });
}

const count = <T>(values: readonly T[], is: (value: T) => boolean): number => values.filter(is).length;

// ------------------------------------------------------------------------------------------------- webhooks

const webhookTwice: Race = {
  name: "a webhook delivered twice concurrently is booked once, and both deliveries succeed",
  async play(arena) {
    const pawls = await arena.processes(2);
    const receive = (pawl: Pawl) => async () => {
      const balance = pawl.slot<number>("balance", { initial: 0 });
      return pawl.dedupe("bookkeeping", "evt-1", (tx) => tx.slot(balance).update((sum) => sum + 25).value);
    };
    const deliveries = all(await arena.atOnce(2, pawls.map(receive)));
    assert.equal(
      count(deliveries, ({ deduplicated }) => deduplicated),
      1,
    );
    assert.equal((await receive(pawls[1])()).deduplicated, true);
    assert.equal((await pawls[0].slot<number>("balance").get()).value, 25);
  },
};

const order = machine("order", {
  initial: "pending",
  unknown: "create",
  transitions: { pending: ["paid", "canceled"], paid: ["shipped"], shipped: [], canceled: [] },
});

/** The ways from state to state that it went. */
async function pathOf(pawl: Pawl, id: string): Promise<string> {
  const events = await pawl.machine(order).history(id);
  const moves = events.filter(({ outcome }) => outcome === "moved" || outcome === "applied");
  return moves.map(({ from, to }) => `${from} to ${to}`).join(", ");
}

const shippedBeforePaid: Race = {
  name: "order.shipped before order.paid, or with it, ends as paid and then shipped, each once",
  async play(arena) {
    const pawls = await arena.processes(2);
    const receive = (pawl: Pawl, id: string, state: "paid" | "shipped") => () =>
      pawl.machine(order).transition(id, state, { eventId: `${id} ${state}`, whenEarly: "park" });
    const early = await receive(pawls[0], "o-1", "shipped")();
    assert.deepEqual([early.outcome, early.state], ["parked", "pending"]);
    // Both are delivered again, concurrently with the one that was missing.
    all(
      await arena.atOnce(2, [
        receive(pawls[1], "o-1", "paid"),
        receive(pawls[0], "o-1", "shipped"),
        receive(pawls[0], "o-1", "paid"),
      ]),
    );
    all(await arena.atOnce(2, [receive(pawls[0], "o-2", "shipped"), receive(pawls[1], "o-2", "paid")]));
    for (const id of ["o-1", "o-2"]) {
      assert.equal(await pathOf(pawls[0], id), "pending to paid, paid to shipped");
      assert.equal((await pawls[1].machine(order).get(id))?.state, "shipped");
    }
  },
};

const paidOrCanceled: Race = {
  name: "a payment concurrent with a cancellation: one of them is the outcome, and the other gets it",
  async play(arena) {
    const pawls = await arena.processes(2);
    for (const id of ["o-1", "o-2", "o-3"]) {
      const move = (pawl: Pawl, state: "paid" | "canceled") => () => pawl.machine(order).tryTransition(id, state);
      const answers = all(await arena.atOnce(2, [move(pawls[0], "paid"), move(pawls[1], "canceled")]));
      assert.equal(
        count(answers, ({ ok }) => ok),
        1,
      );
      const state = (await pawls[0].machine(order).get(id))?.state;
      const [told] = answers.flatMap((answer) => (answer.ok ? [] : [answer]));
      assert.equal(told?.code === "illegal_transition" && told.from, state);
    }
  },
};

// ------------------------------------------------------------------------------------------------- requests

interface Payment {
  readonly order: string;
  readonly amount: number;
}

const overlappingRetry: Race = {
  name: "a retry that overlaps a slow first attempt gets an error to wait, then its result; the card is charged once",
  async play(arena) {
    const [one, two] = await arena.processes(2);
    const [asked, bank] = [Promise.withResolvers<void>(), Promise.withResolvers<string>()];
    let charges = 0;
    const pay = (pawl: Pawl, payment: Payment) =>
      pawl.idempotent(payment.order, { scope: "ann", fingerprint: payment }, () => {
        charges += 1;
        asked.resolve();
        return bank.promise;
      });
    const payment = { order: "o-1", amount: 25 };
    const first = pay(one, payment);
    first.catch(() => {});
    await asked.promise;
    // The retry reaches another process, and one reaches the same.
    const retries = await Promise.allSettled([two, one].map((pawl) => soon(pay(pawl, payment))));
    for (const retry of retries)
      assert.ok(
        retry.status === "rejected" && retry.reason instanceof IdempotencyInProgressError,
        "it did not get an error to wait",
      );
    await assert.rejects(soon(pay(two, { ...payment, amount: 99 })), IdempotencyMismatchError);
    bank.resolve("receipt r-7");
    assert.deepEqual(await first, { value: "receipt r-7", replayed: false });
    for (const pawl of [one, two]) assert.deepEqual(await pay(pawl, payment), { value: "receipt r-7", replayed: true });
    await assert.rejects(pay(two, { ...payment, amount: 99 }), IdempotencyMismatchError);
    assert.equal(charges, 1);
  },
};

/** A refusal comes immediately. A call that takes longer has begun work that it should not. */
async function soon<T>(answer: Promise<T>): Promise<T> {
  answer.catch(() => {});
  const late = sleep(2_000, undefined, { ref: false }).then(() => {
    throw new assert.AssertionError({ message: "it was not refused, but is under way" });
  });
  return Promise.race([answer, late]);
}

const takenOver: Race = {
  name: "an attempt so slow that it was taken over has no effect any more, and its caller gets an error",
  async play(arena) {
    const [one, two] = await arena.processes(2);
    const [begun, wakes] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const pay = (pawl: Pawl, before: (lapse: () => void) => Promise<void>) =>
      pawl.idempotent("o-1", { lease: 50 }, async ({ commit, lapse }) => {
        await before(lapse);
        const paid = pawl.slot<number>("paid", { initial: 0 });
        return commit((tx) => tx.slot(paid).update((sum) => sum + 25).value);
      });
    // As if its process were suspended: it does not renew its lease, and then continues without noticing.
    const slow = pay(one, async (lapse) => {
      lapse();
      begun.resolve();
      await wakes.promise;
    });
    slow.catch(() => {});
    await begun.promise;
    await sleep(80);
    const second = await pay(two, async () => {
      wakes.resolve();
      await slow.catch(() => {});
    });
    assert.deepEqual(second, { value: 25, replayed: false });
    await assert.rejects(slow, FencedError);
    assert.equal((await two.slot<number>("paid").get()).value, 25);
  },
};

const doubleClick: Race = {
  name: "a button clicked twice concurrently makes one order; a click gets that one, or that it is in progress",
  async play(arena) {
    const pawls = await arena.processes(2);
    const stockOf = (pawl: Pawl) => pawl.slot<number>("stock", { initial: 10 });
    const click = (pawl: Pawl, page: string) => () =>
      pawl.idempotent(page, { scope: "ann" }, ({ commit }) =>
        commit((tx) => ({ left: tx.slot(stockOf(pawl)).update((pieces) => pieces - 1).value })),
      );
    for (const [index, page] of ["page-1", "page-2"].entries()) {
      // Two clicks that reach two processes, and two that reach one.
      const clicks = pawls.flatMap((pawl) => [click(pawl, page), click(pawl, page)]);
      const results = await arena.atOnce(2, clicks);
      for (const result of results)
        if (result.status === "rejected")
          assert.ok(result.reason instanceof IdempotencyInProgressError, String(result.reason));
      const answers = results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
      assert.equal(
        count(answers, ({ replayed }) => !replayed),
        1,
      );
      for (const pawl of pawls) answers.push(await click(pawl, page)());
      for (const { value } of answers) assert.deepEqual(value, { left: 9 - index });
    }
    assert.equal((await stockOf(pawls[1]).get()).value, 8);
  },
};

const doubleClickAtOnce: Race = {
  name: "a button whose work is one decision makes one order however often it is clicked, and every click gets it",
  async play(arena) {
    const pawls = await arena.processes(2);
    const click = (pawl: Pawl) => () => {
      const stock = pawl.slot<number>("stock", { initial: 10 });
      return pawl.transact((tx) => tx.idempotent("page-1", {}, () => tx.slot(stock).update((n) => n - 1).value));
    };
    const answers = all(await arena.atOnce(2, [...pawls, ...pawls].map(click)));
    assert.deepEqual(
      answers.map(({ value }) => value),
      [9, 9, 9, 9],
    );
    assert.equal(
      count(answers, ({ replayed }) => !replayed),
      1,
    );
  },
};

// ------------------------------------------------------------------------------------------------- actions

const CLIENTS = 1_000;

const coupon: Race = {
  name: "a coupon redeemed by 1,000 clients concurrently has one winner; all others get its name, and the winner gets the same result again",
  async play(arena) {
    const pawls = await arena.processes(8);
    await pawls[0].actions.create({ id: "WELCOME10", payload: "10 %" });
    const redeem = (client: number) => () => {
      const pawl = pawls[client % pawls.length] ?? pawls[0];
      return pawl.actions.tryConsume("WELCOME10", { by: `client ${client}`, consumerKey: `secret ${client}` });
    };
    const clients = Array.from({ length: CLIENTS }, (_, client) => redeem(client));
    const answers = all(await arena.atOnce(pawls.length, clients));
    const winners = answers.flatMap((answer, client) => (answer.ok ? [client] : []));
    assert.equal(winners.length, 1);
    const [winner = -1] = winners;
    for (const answer of answers)
      if (!answer.ok) assert.ok(answer.code === "already_used" && answer.by === `client ${winner}`);
    const again = all(await arena.atOnce(pawls.length, clients));
    assert.deepEqual(
      again.flatMap((answer, client) => (answer.ok ? [[client, answer.replayed, answer.payload]] : [])),
      [[winner, true, "10 %"]],
    );
  },
};

const loginLink: Race = {
  name: "a login link that a mail scanner opens before, with and after its owner logs its owner in, once",
  async play(arena) {
    const [scanner, site, ...more] = await arena.processes(3);
    const { id } = await site.actions.create({ owner: "ann", expiresIn: "15 minutes", payload: { user: "ann" } });
    const show = (pawl: Pawl) => () => pawl.actions.get(id);
    for (const info of all(await Promise.allSettled([show(scanner)(), show(scanner)()])))
      assert.equal(info?.state, "active");
    // The button is pressed while the scanner looks again, and pressed twice.
    const press = (pawl: Pawl) => () => pawl.actions.tryConsume<{ user: string }>(id);
    const [pressed, looked] = await Promise.all([
      arena.atOnce(2, [site, ...more].map(press)),
      Promise.allSettled([show(scanner)(), show(scanner)()]),
    ]);
    const sessions = all(pressed).flatMap((answer) => (answer.ok ? [answer.payload] : []));
    assert.deepEqual(sessions, [{ user: "ann" }]);
    const last = await show(scanner)();
    assert.equal(last?.state, "consumed");
    // A caller that only reads never gets the payload of the link.
    for (const info of [...all(looked), last]) assert.ok(!JSON.stringify(info).includes("user"));
    const late = await press(scanner)();
    assert.equal(!late.ok && late.code, "already_used");
  },
};

const twoGates: Race = {
  name: "a ticket scanned at two gates concurrently opens one of them, and the other names it",
  async play(arena) {
    const pawls = await arena.processes(2);
    const gates = ["north", "south"];
    for (const ticket of ["seat-1", "seat-2", "seat-3"]) {
      await pawls[0].actions.create({ id: ticket });
      const scan = (pawl: Pawl, index: number) => () => pawl.actions.tryConsume(ticket, { by: gates[index] });
      const answers = all(await arena.atOnce(2, pawls.map(scan)));
      const opened = gates.filter((_, index) => answers[index]?.ok);
      assert.equal(opened.length, 1);
      const [closed] = answers.flatMap((answer) => (answer.ok ? [] : [answer]));
      assert.equal(closed?.code === "already_used" && closed.by, opened[0]);
    }
  },
};

const turnstiles: Race = {
  name: "a ticket claimed at two turnstiles opens one; a turnstile that was suspended for too long lets no one through",
  async play(arena) {
    const pawls = await arena.processes(2);
    const [north, south] = pawls;
    await north.actions.create({ id: "seat-1" });
    const claim = (pawl: Pawl) => () => pawl.actions.tryClaim("seat-1", { by: pawl === north ? "north" : "south" });
    const answers = all(await arena.atOnce(2, pawls.map(claim)));
    const claims = answers.flatMap((answer) => (answer.ok ? [answer] : []));
    assert.equal(claims.length, 1);
    const at = answers[0]?.ok ? "north" : "south";
    const [holder, other] = at === "north" ? [north, south] : [south, north];
    const told = await other.actions.tryConsume("seat-1", { by: "other" });
    assert.equal(!told.ok && told.code === "claimed" && told.by, at);
    const used = await holder.actions.tryComplete("seat-1", { fence: claims[0]?.fence ?? 0 });
    assert.equal(used.ok, true);
    const late = await claim(other)();
    assert.equal(!late.ok && late.code === "already_used" && late.by, at);

    await north.actions.create({ id: "seat-2" });
    const slow = await north.actions.claim("seat-2", { by: "north", lease: 30 });
    await sleep(60);
    const quick = await south.actions.claim("seat-2", { by: "south" });
    assert.ok(quick.fence > slow.fence);
    const finish = (pawl: Pawl, fence: number) => () => pawl.actions.tryComplete("seat-2", { fence });
    const [stale, fresh] = all(await arena.atOnce(2, [finish(north, slow.fence), finish(south, quick.fence)]));
    assert.equal(stale?.ok === false && stale.code, "fenced");
    assert.equal(fresh?.ok && !fresh.replayed, true);
  },
};

const licence: Race = {
  name: "a licence with three seats admits three of many machines that start concurrently, each once however often it starts",
  async play(arena) {
    const pawls = await arena.processes(4);
    await pawls[0].actions.create({ id: "licence-7", uses: 3, payload: "0xC0FFEE" });
    const machines = Array.from({ length: 12 }, (_, number) => `machine ${number}`);
    const start = (name: string, pawl: Pawl) => () =>
      pawl.actions.tryConsume("licence-7", { by: name, consumerKey: `secret of ${name}` });
    // Each starts twice concurrently, on two processes.
    const starts = machines.flatMap((name, number) => [
      start(name, pawls[number % 4] ?? pawls[0]),
      start(name, pawls[(number + 1) % 4] ?? pawls[0]),
    ]);
    const answers = all(await arena.atOnce(4, starts));
    const seated = new Set(machines.filter((_, number) => answers[2 * number]?.ok));
    assert.equal(seated.size, 3);
    assert.deepEqual(seated, new Set(machines.filter((_, number) => answers[2 * number + 1]?.ok)));
    const fresh = answers.filter((answer) => answer.ok && !answer.replayed);
    assert.deepEqual(new Set(fresh.map((answer) => answer.ok && answer.usesLeft)), new Set([0, 1, 2]));
    assert.equal(fresh.length, 3);
    for (const name of machines) {
      const again = await start(name, pawls[0])();
      assert.deepEqual(
        [again.ok, again.ok ? again.payload : again.code],
        seated.has(name) ? [true, "0xC0FFEE"] : [false, "already_used"],
      );
    }
  },
};

export const races: readonly Race[] = [
  webhookTwice,
  shippedBeforePaid,
  paidOrCanceled,
  overlappingRetry,
  takenOver,
  doubleClick,
  doubleClickAtOnce,
  coupon,
  loginLink,
  twoGates,
  turnstiles,
  licence,
];
