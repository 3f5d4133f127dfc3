/**
 * Goal: handlers that write nothing in Pawl are ahead of the commits of their progress by a bounded number of events, in order; what is not handled again after
 * a crash, a failure or a takeover is what was promised; and a handler that writes waits for its commit.
 * Method: a store in memory whose commits can be held up. Handlers note which events they got.
 */

import { expect, test } from "vitest";
import { type Pawl, reaction } from "../../src/index.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { targetAt } from "../../src/stream/reactions/stored.ts";
import { PATIENCE } from "../workflow/kit.ts";
import { Deposited, deposits, Withdrawn } from "./kit.ts";

/** How many events of a target are handled before their progress is committed. */
const MOST_AHEAD = 32;
const TOTAL = 100;
const STREAM = "ann";

const upTo = (count: number, from = 1): number[] => Array.from({ length: count - from + 1 }, (_, i) => from + i);

/** A process whose commits are held up from `hold` to `go`, and how many commits wrote a record of targets. */
function processOn(database: MemoryDatabase) {
  const store = database.connect("shop");
  const commit = store.commit.bind(store);
  let held: Promise<void> | undefined;
  let release = (): void => {};
  store.commit = async (batch) => {
    await held;
    return commit(batch);
  };
  const pawl = pawlOn(store, nodePorts, { namespace: "shop" });
  const counted = { commits: 0 };
  pawl.kernel.listen((puts) => {
    if (puts?.some(({ row }) => row.space === targetAt("mail", STREAM).space)) counted.commits += 1;
  });
  return {
    pawl,
    counted,
    hold: () => {
      ({ promise: held, resolve: release } = Promise.withResolvers<void>());
    },
    go: () => {
      held = undefined;
      release();
    },
  };
}

async function isIdle(pawl: Pawl): Promise<boolean> {
  const { targets } = await pawl.reactions.targets("mail");
  return targets.length > 0 && targets.every(({ status, pending }) => status === "idle" && pending === 0);
}

/** Until nothing happens any more in this process, however slow it is. */
async function settled(look: () => number): Promise<void> {
  for (let seen = -1, turns = 0; turns < 20; turns = look() === seen ? turns + 1 : 0) {
    seen = look();
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

test("handlers that write nothing share commits, and are in order", async () => {
  const { pawl, counted } = processOn(new MemoryDatabase(wallMs));
  await pawl.stream(STREAM).append(deposits(TOTAL));
  const handled: number[] = [];
  const worker = pawl.work([reaction("mail", { on: [Deposited] }, ({ version }) => void handled.push(version))]);
  await expect.poll(() => isIdle(pawl), PATIENCE).toBe(true);
  expect(handled).toEqual(upTo(TOTAL));
  // One routes, one releases, and what is between has 32 events in each.
  expect(counted.commits).toBeLessThanOrEqual(8);
  await worker.stop();
  await pawl.close();
});

test("they are ahead by a bounded number of events, which are handled again if the process ends", async () => {
  const database = new MemoryDatabase(wallMs);
  const dying = processOn(database);
  await dying.pawl.stream(STREAM).append(deposits(TOTAL));
  const handled: number[] = [];
  dying.pawl.work([
    reaction("mail", { on: [Deposited] }, ({ version }) => {
      if (handled.push(version) === 1) dying.hold();
    }),
  ]);
  await expect.poll(() => handled.length, PATIENCE).toBe(MOST_AHEAD);
  await settled(() => handled.length);
  expect(handled).toEqual(upTo(MOST_AHEAD));
  const { pawl, counted } = processOn(database);
  expect(await pawl.reactions.target("mail", STREAM)).toMatchObject({ handled: 0, status: "running" });
  // As if its lease had ended.
  const at = targetAt("mail", STREAM);
  await pawl.kernel.transact((tx) => tx.record(at).write({ dueMs: tx.nowMs }), [at]);
  const again: number[] = [];
  counted.commits = 0;
  const worker = pawl.work([reaction("mail", { on: [Deposited] }, ({ version }) => void again.push(version))]);
  await expect.poll(() => isIdle(pawl), PATIENCE).toBe(true);
  expect(again).toEqual(upTo(TOTAL));
  // One of its events may be what ended the process: each is committed before the next is handled.
  expect(counted.commits).toBeGreaterThanOrEqual(TOTAL);
  expect((await pawl.reactions.target("mail", STREAM)).lostLeases).toBe(1);
  await worker.stop();
  await pawl.close();
});

test("a slow handler is ahead by one event: meanwhile what was handled before it is committed", async () => {
  const { pawl } = processOn(new MemoryDatabase(wallMs));
  await pawl.stream(STREAM).append(deposits(6));
  const { promise, resolve } = Promise.withResolvers<void>();
  const worker = pawl.work([
    reaction("mail", { on: [Deposited] }, async ({ version }) => {
      if (version === 5) await promise;
    }),
  ]);
  const handled = async () => (await pawl.reactions.targets("mail")).targets[0]?.handled;
  await expect.poll(handled, PATIENCE).toBe(4);
  resolve();
  await expect.poll(() => isIdle(pawl), PATIENCE).toBe(true);
  await worker.stop();
  await pawl.close();
});

test.each(["emit", "commit"] as const)(
  "what a handler writes with %s is committed before the next one begins",
  async (verb) => {
    const { pawl, hold, go } = processOn(new MemoryDatabase(wallMs));
    await pawl.stream(STREAM).append(deposits(9));
    const handled: number[] = [];
    const worker = pawl.work([
      reaction("mail", { on: [Deposited] }, async ({ version, data }, { emit, commit }) => {
        handled.push(version);
        if (version === 1) hold();
        if (version !== 4) return;
        if (verb === "emit") emit("copies", [Withdrawn(data)]);
        else await commit((tx) => tx.stream("copies").append([Withdrawn(data)]));
      }),
    ]);
    await expect.poll(() => handled.length, PATIENCE).toBe(4);
    await settled(() => handled.length);
    expect(handled).toEqual(upTo(4));
    expect(await pawl.stream("copies").head()).toBe(0);
    go();
    await expect.poll(() => isIdle(pawl), PATIENCE).toBe(true);
    expect(handled).toEqual(upTo(9));
    expect(await pawl.stream("copies").head()).toBe(1);
    await worker.stop();
    await pawl.close();
  },
);

test("a failure is recorded after the events before it, which are not handled again", async () => {
  const { pawl } = processOn(new MemoryDatabase(wallMs));
  await pawl.stream(STREAM).append(deposits(6));
  const handled: string[] = [];
  const worker = pawl.work([
    reaction("mail", { on: [Deposited], retry: { attempts: 2, delay: 1 } }, ({ version }, { attempt }) => {
      handled.push(`${version}.${attempt}`);
      if (version === 4) throw new Error("not now");
    }),
  ]);
  const status = async () => (await pawl.reactions.targets("mail")).targets[0]?.status;
  await expect.poll(status, PATIENCE).toBe("blocked");
  expect(handled).toEqual(["1.1", "2.1", "3.1", "4.1", "4.2"]);
  expect(await pawl.reactions.target("mail", STREAM)).toMatchObject({ handled: 3, pending: 3, failures: 2 });
  await worker.stop();
  await pawl.close();
});

test("a worker that stops commits what its handlers have done", async () => {
  const { pawl } = processOn(new MemoryDatabase(wallMs));
  await pawl.stream(STREAM).append(deposits(9));
  const handled: number[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  const worker = pawl.work([
    reaction("mail", { on: [Deposited] }, ({ version }) => {
      handled.push(version);
      if (version === 5) resolve();
      if (version === 5) void worker.stop();
    }),
  ]);
  await promise;
  await worker.stop();
  expect(handled).toEqual(upTo(5));
  expect(await pawl.reactions.target("mail", STREAM)).toMatchObject({ handled: 5, pending: 4, status: "due" });
  await pawl.close();
});

test("a handler that is ahead is aborted where the target was taken from it", async () => {
  const database = new MemoryDatabase(wallMs);
  const { pawl, hold, go } = processOn(database);
  const operator = processOn(database);
  await pawl.stream(STREAM).append(deposits(3));
  const handled: number[] = [];
  let isAborted = false;
  const worker = pawl.work([
    reaction("mail", { on: [Deposited] }, async ({ version }, { abortSignal }) => {
      handled.push(version);
      if (handled.length === 1) hold();
      if (handled.length !== 2) return;
      await new Promise<void>((resolve) => {
        abortSignal.addEventListener("abort", () => {
          isAborted = true;
          resolve();
        });
      });
    }),
  ]);
  await expect.poll(() => handled.length, PATIENCE).toBe(2);
  await operator.pawl.reactions.reset("mail", { prefix: STREAM });
  go();
  await expect.poll(() => isIdle(pawl), PATIENCE).toBe(true);
  expect(isAborted).toBe(true);
  // From the first one again; the third was not handled before.
  expect(handled).toEqual([1, 2, 1, 2, 3]);
  await worker.stop();
  await pawl.close();
  await operator.pawl.close();
});
