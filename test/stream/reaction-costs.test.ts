/**
 * Goal: what a reaction asks of its store does not grow with the number of its targets, and an event on an idle server takes as few round trips as it can.
 * Method: a store in memory that counts how often a batch asks for more rows, and reads; where it is to be like a server, it has lanes.
 */

import { expect, test, vi } from "vitest";
import { reaction } from "../../src/index.ts";
import { PAGE_BYTES } from "../../src/kernel/kernel.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { PATIENCE } from "../workflow/kit.ts";
import { Deposited } from "./kit.ts";

/** A store where a read costs a round trip, as on a server; `remote` is how many round trips each batch since `clear` took. */
function remoteStore() {
  const database = new MemoryDatabase(wallMs);
  const store = database.connect("shop", { lanes: 4 });
  const commit = store.commit.bind(store);
  const trips: number[] = [];
  store.commit = (batch) => {
    const isKnown = batch.lock.length === 0 && !batch.needsClock;
    const index = trips.push(isKnown ? 1 : 2) - 1;
    return commit({
      ...batch,
      decide: (found) => {
        const verdict = batch.decide(isKnown ? { ...found, nowMs: null } : found);
        if ("lock" in verdict) trips[index] = (trips[index] ?? 0) + 1;
        return verdict;
      },
    });
  };
  return { database, store, trips };
}

const STREAMS = 300;

test("events for many targets are routed without asking for one target after another", async () => {
  const store = new MemoryDatabase(wallMs).connect("shop");
  const commit = store.commit.bind(store);
  let most = 0;
  store.commit = (batch) => {
    let asked = 0;
    return commit({
      ...batch,
      decide: (found) => {
        asked += 1;
        most = Math.max(most, asked);
        return batch.decide(found);
      },
    });
  };
  await using pawl = pawlOn(store, nodePorts, { namespace: "shop" });
  for (let index = 0; index < STREAMS; index++)
    await pawl.stream(`account-${index}`).append([Deposited({ amount: 1 })]);
  let handled = 0;
  pawl.work([
    reaction("mail", { on: [Deposited] }, async () => {
      handled += 1;
    }),
  ]);
  await expect.poll(() => handled, PATIENCE).toBe(STREAMS);
  expect(most).toBeGreaterThan(1);
  expect(most).toBeLessThan(10);
});

test("events that the worker routed itself are not read again", async () => {
  const store = new MemoryDatabase(wallMs).connect("shop");
  await using pawl = pawlOn(store, nodePorts, { namespace: "shop" });
  const worker = pawl.work([reaction("mail", { on: [Deposited] }, async () => {})]);
  const isHandled = async (count: number): Promise<void> => {
    await pawl.stream("account").append([Deposited({ amount: 1 })]);
    const shown = async () => {
      const { targets } = await pawl.reactions.targets("mail");
      return targets.map(({ status, handled }) => `${status} ${handled}`);
    };
    await expect.poll(shown, PATIENCE).toEqual([`idle ${count}`]);
  };
  // From then on the worker only waits for events.
  await isHandled(1);
  const entries = vi.spyOn(store, "entries");
  const commits = vi.spyOn(store, "commit");
  await isHandled(2);
  // The append; the routing, which claims the target; the progress, which releases it.
  expect(commits).toHaveBeenCalledTimes(3);
  expect(entries.mock.calls).toEqual([]);
  await worker.stop();
});

test("on a server, an event for a target that this process handled before is routed and claimed in one round trip", async () => {
  const { database, store, trips } = remoteStore();
  let idleMs = 0;
  const { clock } = nodePorts;
  const ports = {
    ...nodePorts,
    clock: {
      nowMs: () => clock.nowMs() + idleMs,
      after: (ms: number, callback: () => void) => clock.after(ms, callback),
      soon: (callback: () => void) => clock.soon(callback),
    },
  };
  await using pawl = pawlOn(store, ports, { namespace: "shop" });
  await using peer = pawlOn(database.connect("shop"), nodePorts, { namespace: "shop" });
  const fences: number[] = [];
  const worker = pawl.work([reaction("mail", { on: [Deposited] }, async (_, { fence }) => void fences.push(fence))]);
  const handle = async (count: number): Promise<void> => {
    await peer.stream("account").append([Deposited({ amount: 1 })]);
    const handled = async () =>
      (await pawl.reactions.targets("mail")).targets.map((one) => `${one.status} ${one.handled}`);
    await expect.poll(handled, PATIENCE).toEqual([`idle ${count}`]);
  };
  await handle(1);
  // What the process knew of the store's clock is too old: it knows it from the page of events.
  idleMs = 1_500;
  trips.length = 0;
  await handle(2);
  // The routing, which claims the target, and the progress, which releases it.
  expect(trips).toEqual([1, 1]);
  const [first = 0, second = 0] = fences;
  expect(second).toBeGreaterThan(first);
  // Not ahead of the clock: the next fence after a promotion that lost this one would be below it.
  expect(second).toBeLessThanOrEqual(Math.max(first + 1, wallMs()));
  await worker.stop();
});

test("an event is handled although the worker is still reading what else is due", async () => {
  const { database, store, trips } = remoteStore();
  await using pawl = pawlOn(store, nodePorts, { namespace: "shop" });
  await using peer = pawlOn(database.connect("shop"), nodePorts, { namespace: "shop" });
  let handled = 0;
  const worker = pawl.work([
    reaction("mail", { on: [Deposited] }, async () => {
      handled += 1;
    }),
  ]);
  await worker.ready;
  await peer.stream("account").append([Deposited({ amount: 1 })]);
  await expect.poll(() => handled, PATIENCE).toBe(1);
  const { promise, resolve } = Promise.withResolvers<void>();
  const due = store.due.bind(store);
  store.due = async (query) => {
    await promise;
    return due(query);
  };
  await peer.stream("account").append([Deposited({ amount: 1 })]);
  await expect.poll(() => handled, PATIENCE).toBe(2);
  resolve();
  expect(trips.length).toBeGreaterThan(0);
  await worker.stop();
});

test("targets in work share the room for events that are not handled yet", async () => {
  const targets = 20;
  const store = new MemoryDatabase(wallMs).connect("shop");
  await using pawl = pawlOn(store, nodePorts, { namespace: "shop" });
  const events = Array.from({ length: 100 }, (_, amount) => Deposited({ amount, note: "x".repeat(10_000) } as never));
  for (let index = 0; index < targets; index++) await pawl.stream(`account-${index}`).append(events);
  let read = 0;
  const entries = store.entries.bind(store);
  store.entries = async (...query) => {
    const found = await entries(...query);
    for (const { data } of found) read += data.length;
    return found;
  };
  const { promise: isOver, resolve: end } = Promise.withResolvers<void>();
  let begun = 0;
  const worker = pawl.work([
    reaction("mail", { on: [Deposited] }, async () => {
      begun += 1;
      await isOver;
    }),
  ]);
  await expect.poll(() => begun, PATIENCE).toBe(targets);
  // All events have 20 MB.
  expect(read).toBeLessThan(2 * PAGE_BYTES);
  end();
  await worker.stop();
});

test("a reaction that catches up routes more and more events at a time, and few of them when it has", async () => {
  const store = new MemoryDatabase(wallMs).connect("shop");
  await using pawl = pawlOn(store, nodePorts, { namespace: "shop" });
  const append = async (streams: number): Promise<void> => {
    for (let index = 0; index < streams; index++)
      await pawl.stream(`account-${index}`).append(Array.from({ length: 400 }, (_, amount) => Deposited({ amount })));
  };
  const total = 12 * 400;
  await append(12);
  const limits: number[] = [];
  const follow = store.follow.bind(store);
  store.follow = (query) => {
    if (query.names?.includes("Deposited") === true) limits.push(query.limit);
    return follow(query);
  };
  let handled = 0;
  const worker = pawl.work([
    reaction("mail", { on: [Deposited] }, () => {
      handled += 1;
    }),
  ]);
  await expect.poll(() => handled, PATIENCE).toBe(total);
  expect(limits.slice(0, 4)).toEqual([400, 800, 1600, 1600]);
  await pawl.stream("account-0").append([Deposited({ amount: 0 })]);
  await expect.poll(() => handled, PATIENCE).toBe(total + 1);
  await expect.poll(() => limits.at(-1), PATIENCE).toBe(400);
  await worker.stop();
});

test("events that are passed on to targets have room, or are read again", async () => {
  const targets = 30;
  const store = new MemoryDatabase(wallMs).connect("shop");
  await using pawl = pawlOn(store, nodePorts, { namespace: "shop" });
  // A page of the routing worker, which is short enough to be passed on.
  const events = Array.from({ length: 400 }, (_, amount) => Deposited({ amount, note: "x".repeat(500) } as never));
  for (let index = 0; index < targets; index++) await pawl.stream(`account-${index}`).append(events);
  let read = 0;
  const entries = store.entries.bind(store);
  store.entries = (...query) => {
    read += 1;
    return entries(...query);
  };
  const { promise: isOver, resolve: end } = Promise.withResolvers<void>();
  let begun = 0;
  const worker = pawl.work([
    reaction("mail", { on: [Deposited], concurrency: targets }, async () => {
      begun += 1;
      await isOver;
    }),
  ]);
  await expect.poll(() => begun, PATIENCE).toBe(targets);
  // All of them have over 6 MB, and there is room for 4.
  expect(read).toBeGreaterThan(0);
  end();
  await worker.stop();
});
