/**
 * Goal: policies close and prune the streams that they are about, when they are due and never where `close` or `prune` would refuse; they say what they
 * did; and neither two versions of one nor a removed one does harm.
 * Method: the times in the simulated time of `openTest`; everything else on every store, with looks that the test calls.
 */

import { describe, expect, test, vi } from "vitest";
import { event, type Pawl, reaction, type StreamPolicyOptions, streamPolicy } from "../../src/index.ts";
import { POLICIES, policySpaceOf, policyStreamAt } from "../../src/stream/policies/stored.ts";
import { openTest } from "../../src/testing/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { account, all, Deposited, deposits } from "./kit.ts";
import { keptIn, makeDue, Shelf, workerOn } from "./policies-kit.ts";

const Carried = event<{ readonly balance: number }>("Carried");

/** Appends events, and stores a state that has them. */
async function fill(pawl: Pawl, stream: string, count: number): Promise<void> {
  await pawl.stream(stream).append(deposits(count));
  await pawl.aggregate(account, stream).execute("look");
}

/** The streams that a policy has to look at some time. */
const known = async (pawl: Pawl, policy: string) =>
  (await pawl.kernel.list({ space: policySpaceOf(policy), prefix: "", after: null, limit: 1000 })).map(
    ({ key }) => key,
  );

const done = { closed: 0, pruned: 0, removed: 0, skipped: { inUse: 0, noState: 0 }, failures: 0 };

describe("a policy", () => {
  const refused: readonly [string, unknown][] = [
    ["nothing to do", { prefix: "a-" }],
    ["both ways to prune", { prefix: "a-", prune: { keep: 5, olderThan: "1 day" } }],
    ["no way to prune", { prefix: "a-", prune: {} }],
    ["no prefix", { close: { idleFor: "1 day" } }],
    ["a time below a second", { prefix: "a-", close: { idleFor: 999 } }],
    ["an archive, and none", { prefix: "a-", close: { idleFor: "1 day" }, archive: new Shelf(), discard: true }],
  ];
  test.each(refused)("with %s is refused", (_, options) => {
    expect(() => streamPolicy("p", options as StreamPolicyOptions)).toThrow(/must/);
  });

  test("without an archive, and two of one name, are refused by work", async () => {
    await using pawl = openTest();
    const lost = streamPolicy("p", { prefix: "a-", close: { idleFor: "1 day" } });
    expect(() => pawl.work([lost])).toThrow("must be given, here or to open(…)");
    const one = streamPolicy("p", { prefix: "a-", close: { idleFor: "1 day" }, discard: true });
    expect(() => pawl.work([one, one])).toThrow('two policies named "p"');
  });

  test("closes a stream after it was idle, and prunes events that are older, each in its time", async () => {
    await using pawl = openTest();
    const archive = new Shelf();
    const options = { prefix: "a-", archive } as const;
    pawl.work([
      streamPolicy("young", { ...options, prune: { olderThan: "30 days" } }),
      streamPolicy("busy", { ...options, close: { idleFor: "365 days" } }),
    ]);
    // A look may find what the next one does, and the clock stops for one look only.
    const days = async (time: string) => {
      await pawl.clock.advance(time);
      for (let i = 0; i < 3; i++) await pawl.clock.advance("2 minutes");
    };
    await fill(pawl, "a-1", 2);
    await days("20 days");
    await fill(pawl, "a-1", 2);
    await fill(pawl, "b-1", 2);
    await days("9 days");
    expect(await keptIn(pawl, "a-1")).toEqual([1, 2, 3, 4]);
    // 31 days after the first events.
    await days("2 days");
    expect(await keptIn(pawl, "a-1")).toEqual([3, 4]);
    await days("40 days");
    expect(await keptIn(pawl, "a-1")).toEqual([4]);
    // An event that comes late enough keeps it open.
    await days("300 days");
    await pawl.aggregate(account, "a-1").execute("deposit", { amount: 1 });
    await days("364 days");
    expect(await keptIn(pawl, "a-1")).toEqual([5]);
    await days("2 days");
    expect(await keptIn(pawl, "a-1")).toEqual([6]);
    const [tombstone] = await all(pawl.stream("a-1").read({ from: "kept" }));
    expect(tombstone).toMatchObject({ name: "$closed", data: { reason: 'closed by policy "busy"' } });
    expect(archive.versions("a-1")).toEqual([1, 2, 3, 4, 5]);
    expect(await keptIn(pawl, "b-1")).toEqual([1, 2]);
    expect(await pawl.streams.policies()).toMatchObject([
      { ...done, name: "busy", closed: 1, removed: 1 },
      { ...done, name: "young", pruned: 3, removed: 4 },
    ]);
  });
});

onStores(EVERY, (place) => {
  test("by number: the last events of each stream stay, those that were there before and those that come", async () => {
    const archive = new Shelf();
    const pawl = await place.open({ archive });
    const policy = streamPolicy("few", { prefix: "a-", prune: { keep: 3 } });
    await fill(pawl, "a-old", 10);
    await fill(pawl, "a-short", 3);
    await fill(pawl, "b-old", 10);
    const worker = workerOn(pawl, policy);
    await worker.begin();
    await worker.look();
    expect(await keptIn(pawl, "a-old")).toEqual([8, 9, 10]);
    expect(await pawl.streams.policies()).toEqual([
      { ...done, name: "few", pruned: 1, removed: 7, lastSkip: null, lastError: null },
    ]);
    // One more than stay, and others that have enough.
    await fill(pawl, "a-old", 1);
    await fill(pawl, "a-short", 1);
    await fill(pawl, "a-new", 9);
    await worker.look();
    expect(await keptIn(pawl, "a-old")).toEqual([9, 10, 11]);
    expect(await keptIn(pawl, "a-short")).toEqual([2, 3, 4]);
    expect(await keptIn(pawl, "a-new")).toEqual([7, 8, 9]);
    expect(await keptIn(pawl, "b-old")).toHaveLength(10);
    expect(archive.versions("a-old")).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect((await all(pawl.stream("a-old").read())).map(({ version }) => version)).toHaveLength(11);
    expect(await pawl.streams.policies()).toMatchObject([{ pruned: 4, removed: 15 }]);
    await worker.stop();
    expect(worker.errors).toEqual([]);
  });

  test("by age: all but the last event, when they are old enough", async () => {
    const pawl = await place.open();
    const policy = streamPolicy("young", { prefix: "", prune: { olderThan: "1 day" }, discard: true });
    await pawl.stream("a").append(deposits(3));
    const today = workerOn(pawl, policy);
    await today.begin();
    await today.look();
    expect(await keptIn(pawl, "a")).toEqual([1, 2, 3]);
    await makeDue(pawl, policy, "a");
    const later = workerOn(pawl, policy, { olderMs: 1 });
    await expect
      .poll(async () => {
        await makeDue(pawl, policy, "a");
        await later.look();
        return keptIn(pawl, "a");
      }, PATIENCE)
      .toEqual([3]);
    await today.stop();
    await later.stop();
    expect([...today.errors, ...later.errors]).toEqual([]);
  });

  test("an idle stream is closed and forgotten; restarted, it is found again", async () => {
    const archive = new Shelf();
    const pawl = await place.open({ archive });
    const policy = streamPolicy("idle", { prefix: "a-", close: { idleFor: "1 day" } });
    const waiting = workerOn(pawl, policy);
    await waiting.begin();
    await pawl.stream("a-1").append(deposits(2));
    await waiting.look();
    expect([await keptIn(pawl, "a-1"), await known(pawl, "idle")]).toEqual([[1, 2], ["a-1"]]);
    const [row] = await pawl.kernel.read([policyStreamAt("idle", "a-1")]);
    const [, second] = await all(pawl.stream("a-1").read());
    expect(row?.dueMs).toBe((second?.at.getTime() ?? 0) + 24 * 3_600_000);
    await makeDue(pawl, policy, "a-1");
    const worker = workerOn(pawl, policy, { idleMs: 0 });
    await worker.look();
    expect([await keptIn(pawl, "a-1"), await known(pawl, "idle")]).toEqual([[3], []]);
    expect(await codeOf(pawl.stream("a-1").append(deposits(1)))).toBe("stream_closed");
    await pawl.streams.close("a-1", { restart: Carried({ balance: 3 }) });
    await worker.look();
    expect([await keptIn(pawl, "a-1"), await known(pawl, "idle")]).toEqual([[5], []]);
    expect(archive.versions("a-1")).toEqual([1, 2, 3, 4]);
    // The tombstone of the first closing went with the second.
    expect(await pawl.streams.policies()).toMatchObject([{ ...done, name: "idle", closed: 2, removed: 4 }]);
    await waiting.stop();
    await worker.stop();
    expect([...waiting.errors, ...worker.errors]).toEqual([]);
  });

  test("a stream that others need, or that no state has, is left as it is, with the reason, and tried again", async () => {
    const archive = new Shelf();
    const pawl = await place.open({ archive, logger: false });
    let isOpen = false;
    const slow = reaction("slow", { on: [Deposited], retry: { attempts: 1 } }, () => {
      if (!isOpen) throw new Error("not yet");
    });
    await fill(pawl, "a-used", 6);
    pawl.work([slow]);
    await expect
      .poll(async () => (await pawl.reactions.targets("slow", { status: "blocked" })).targets.length, PATIENCE)
      .toBe(1);
    const few = streamPolicy("few", { prefix: "a-", prune: { keep: 3 } });
    const idle = streamPolicy("idle", { prefix: "a-", close: { idleFor: "1 day" } });
    const pruning = workerOn(pawl, few);
    const closing = workerOn(pawl, idle, { idleMs: 0 });
    await pruning.begin();
    await closing.begin();
    await pruning.look();
    await closing.look();
    expect(await keptIn(pawl, "a-used")).toEqual([1, 2, 3, 4, 5, 6]);
    const skipped = { inUse: 1, noState: 0 };
    const note = { stream: "a-used", message: expect.stringContaining('"slow"') };
    expect(await pawl.streams.policies()).toMatchObject([
      { ...done, name: "few", skipped, lastSkip: note, lastError: null },
      { ...done, name: "idle", skipped, lastSkip: note, lastError: null },
    ]);
    // It waits a minute, and longer the next time.
    await makeDue(pawl, few, "a-used");
    await pruning.look();
    const [row] = await pawl.kernel.read([policyStreamAt("few", "a-used")]);
    const { nowMs } = await pawl.kernel.due({ kinds: ["none"], limit: 1 });
    expect((row?.dueMs ?? 0) - nowMs).toBeGreaterThan(60_000);
    isOpen = true;
    await pawl.reactions.unblock("slow", {});
    await expect.poll(async () => (await pawl.reactions.target("slow", "a-used")).pending, PATIENCE).toBe(0);
    await makeDue(pawl, few, "a-used");
    await pruning.look();
    expect(await keptIn(pawl, "a-used")).toEqual([4, 5, 6]);
    await pawl.stream("a-unfolded").append(deposits(6));
    await expect
      .poll(async () => (await pawl.reactions.target("slow", "a-unfolded").catch(() => null))?.handled, PATIENCE)
      .toBe(6);
    await pruning.look();
    expect(await keptIn(pawl, "a-unfolded")).toHaveLength(6);
    await makeDue(pawl, idle, "a-used");
    await closing.look();
    expect(await keptIn(pawl, "a-used")).toEqual([7]);
    expect(await keptIn(pawl, "a-unfolded")).toEqual([7]);
    expect(await pawl.streams.policies()).toMatchObject([
      { pruned: 1, removed: 3, skipped: { inUse: 2, noState: 1 }, lastSkip: { stream: "a-unfolded" } },
      { closed: 2, removed: 9, skipped },
    ]);
    expect(archive.versions("a-used")).toEqual([1, 2, 3, 4, 5, 6]);
    await pruning.stop();
    await closing.stop();
    expect([...pruning.errors, ...closing.errors]).toEqual([]);
  });

  test("an archive that throws removes nothing; what was begun is ended by the next look, and counted once", async () => {
    const archive = new Shelf();
    const pawl = await place.open({ archive, logger: false });
    const idle = streamPolicy("idle", { prefix: "a-", close: { idleFor: "1 day" } });
    const few = streamPolicy("few", { prefix: "b-", prune: { keep: 3 } });
    await fill(pawl, "a-1", 2);
    await fill(pawl, "b-1", 5);
    const workers = [workerOn(pawl, idle, { idleMs: 0 }), workerOn(pawl, few)];
    for (const worker of workers) await worker.begin();
    archive.onWrite = async () => {
      throw new Error("the disk is full");
    };
    for (const worker of workers) await worker.look();
    expect(await keptIn(pawl, "a-1")).toEqual([1, 2, 3]);
    expect(await keptIn(pawl, "b-1")).toEqual([1, 2, 3, 4, 5]);
    const lastError = { message: "the disk is full" };
    expect(await pawl.streams.policies()).toMatchObject([
      { ...done, failures: 1, lastError: { ...lastError, stream: "b-1" } },
      { ...done, failures: 1, lastError: { ...lastError, stream: "a-1" } },
    ]);
    expect(workers.map(({ errors }) => errors.length)).toEqual([1, 1]);
    archive.onWrite = async () => {};
    await makeDue(pawl, idle, "a-1");
    await makeDue(pawl, few, "b-1");
    for (const worker of workers) await worker.look();
    expect([await keptIn(pawl, "a-1"), await keptIn(pawl, "b-1")]).toEqual([[3], [3, 4, 5]]);
    expect(await pawl.streams.policies()).toMatchObject([
      { pruned: 1, removed: 2, failures: 1 },
      { closed: 1, removed: 2, failures: 1 },
    ]);
    for (const worker of workers) await worker.stop();
  });

  test("an event that comes before the tombstone keeps the stream open", async () => {
    const handle = await place.openHandle({ archive: new Shelf() });
    const { pawl } = handle;
    const other = await place.open();
    const policy = streamPolicy("idle", { prefix: "a-", close: { idleFor: "1 day" } });
    await pawl.stream("a-1").append(deposits(1));
    const worker = workerOn(pawl, policy, { idleMs: 0 });
    await worker.begin();
    await worker.find();
    const gate = Promise.withResolvers<void>();
    // The commit that takes the stream.
    handle.hold("request", gate.promise);
    const applied = worker.apply("a-1");
    await other.stream("a-1").append(deposits(1));
    gate.resolve();
    await applied;
    expect(await keptIn(pawl, "a-1")).toEqual([1, 2]);
    expect(await pawl.streams.policies()).toMatchObject([{ ...done }]);
    await worker.look();
    expect(await keptIn(pawl, "a-1")).toEqual([3]);
    await worker.stop();
    expect(worker.errors).toEqual([]);
  });

  test("events that are followed while a stream is put off do not go unnoticed", async () => {
    const handle = await place.openHandle({ archive: new Shelf() });
    const { pawl } = handle;
    const other = await place.open({ archive: new Shelf() });
    const policy = streamPolicy("few", { prefix: "a-", prune: { keep: 3 } });
    const worker = workerOn(pawl, policy);
    const peer = workerOn(other, policy);
    await worker.begin();
    await fill(pawl, "a-1", 4);
    await worker.look();
    await fill(pawl, "a-1", 1);
    await worker.find();
    // Pruned by hand: the next look has nothing to do. Meanwhile enough events come, and are followed.
    await pawl.streams.prune("a-1", { before: 5 });
    const gate = Promise.withResolvers<void>();
    handle.hold("request", gate.promise);
    const applied = worker.apply("a-1");
    await fill(other, "a-1", 3);
    await peer.find();
    gate.resolve();
    await applied;
    await peer.look();
    expect(await keptIn(pawl, "a-1")).toEqual([6, 7, 8]);
    await worker.stop();
    await peer.stop();
    expect([...worker.errors, ...peer.errors]).toEqual([]);
  });

  test("nor does a stream that is opened again while it is forgotten", async () => {
    const archive = new Shelf();
    const handle = await place.openHandle({ archive });
    const { pawl } = handle;
    const other = await place.open({ archive });
    const policy = streamPolicy("idle", { prefix: "a-", close: { idleFor: "1 day" } });
    const worker = workerOn(pawl, policy, { idleMs: 0 });
    const peer = workerOn(other, policy, { idleMs: 0 });
    await pawl.stream("a-1").append(deposits(2));
    await worker.begin();
    await worker.find();
    await pawl.streams.close("a-1");
    const gate = Promise.withResolvers<void>();
    handle.hold("request", gate.promise);
    const applied = worker.apply("a-1");
    await other.streams.close("a-1", { restart: Carried({ balance: 3 }) });
    await peer.find();
    gate.resolve();
    await applied;
    await peer.look();
    expect(await keptIn(pawl, "a-1")).toEqual([5]);
    await worker.stop();
    await peer.stop();
    expect([...worker.errors, ...peer.errors]).toEqual([]);
  });

  test("of two versions, the one that began last counts, for all streams; the other does nothing", async () => {
    const pawl = await place.open({ archive: new Shelf() });
    const other = await place.open({ archive: new Shelf() });
    await fill(pawl, "a-1", 10);
    await fill(pawl, "b-1", 10);
    const wide = workerOn(pawl, streamPolicy("p", { prefix: "", prune: { keep: 8 } }));
    const narrow = workerOn(other, streamPolicy("p", { prefix: "a-", prune: { keep: 3 } }));
    await wide.begin();
    await wide.look();
    expect([await keptIn(pawl, "a-1"), await keptIn(pawl, "b-1")]).toEqual([
      [3, 4, 5, 6, 7, 8, 9, 10],
      [3, 4, 5, 6, 7, 8, 9, 10],
    ]);
    await narrow.begin();
    await wide.look();
    await narrow.look();
    expect([await keptIn(pawl, "a-1"), (await keptIn(pawl, "b-1")).length]).toEqual([[8, 9, 10], 8]);
    await fill(pawl, "b-1", 2);
    await wide.look();
    await narrow.look();
    expect(await keptIn(pawl, "b-1")).toHaveLength(10);
    // It begins again, as a process that is rolled back.
    await wide.begin();
    await wide.look();
    expect(await keptIn(pawl, "b-1")).toEqual([5, 6, 7, 8, 9, 10, 11, 12]);
    expect(await pawl.streams.policies()).toMatchObject([{ pruned: 4, removed: 2 + 2 + 5 + 2 }]);
    await wide.stop();
    await narrow.stop();
    expect([...wide.errors, ...narrow.errors]).toEqual([]);
  });

  test("two workers on one policy do everything once", async () => {
    const archive = new Shelf();
    const pawls = await Promise.all([place.open({ archive }), place.open({ archive })]);
    const [pawl] = pawls;
    if (pawl === undefined) throw new Error("it is not open");
    for (let i = 0; i < 30; i++) await pawl.stream(`a-${i}`).append(deposits(3));
    const policy = streamPolicy("idle", { prefix: "a-", close: { idleFor: "1 day" } });
    const workers = pawls.map((one) => workerOn(one, policy, { idleMs: 0 }));
    await Promise.all(workers.map((one) => one.begin()));
    await expect
      .poll(async () => {
        await Promise.all(workers.map((one) => one.look(1)));
        return known(pawl, "idle").then(async (left) => [left.length, (await pawl.streams.policies())[0]?.closed]);
      }, PATIENCE)
      .toEqual([0, 30]);
    expect(await pawl.streams.policies()).toMatchObject([{ ...done, closed: 30, removed: 90 }]);
    for (let i = 0; i < 30; i++) expect(await keptIn(pawl, `a-${i}`)).toEqual([4]);
    for (const one of workers) await one.stop();
    expect(workers.flatMap(({ errors }) => errors)).toEqual([]);
  });

  test("a worker that another one, or other rules, got ahead of does nothing and counts nothing", async () => {
    const archive = new Shelf();
    const handle = await place.openHandle({ archive });
    const { pawl } = handle;
    const other = await place.open({ archive });
    const policy = streamPolicy("few", { prefix: "a-", prune: { keep: 3 } });
    const worker = workerOn(pawl, policy);
    const peer = workerOn(other, policy);
    const changed = workerOn(other, streamPolicy("few", { prefix: "a-", prune: { keep: 1000 } }));
    for (const [stream, act] of [
      ["a-1", () => peer.apply("a-1")],
      ["a-2", () => changed.begin()],
    ] as const) {
      await fill(pawl, stream, 10);
      await worker.begin();
      await worker.find();
      const gate = Promise.withResolvers<void>();
      handle.hold("request", gate.promise);
      const applied = worker.apply(stream);
      await act();
      gate.resolve();
      await applied;
    }
    expect([await keptIn(pawl, "a-1"), (await keptIn(pawl, "a-2")).length]).toEqual([[8, 9, 10], 10]);
    expect(await pawl.streams.policies()).toMatchObject([{ ...done, pruned: 1, removed: 7 }]);
    for (const one of [worker, peer, changed]) {
      await one.stop();
      expect(one.errors).toEqual([]);
    }
  });

  test("a stream that another call closes first counts as closed by that call", async () => {
    const archive = new Shelf();
    const pawl = await place.open({ archive });
    const other = await place.open({ archive });
    const policy = streamPolicy("idle", { prefix: "a-", close: { idleFor: "1 day" } });
    const worker = workerOn(pawl, policy, { idleMs: 0 });
    await worker.begin();
    await fill(pawl, "a-1", 3);
    await fill(pawl, "a-2", 3);
    await worker.find();
    const close = pawl.streams.close.bind(pawl.streams);
    const spy = vi.spyOn(pawl.streams, "close").mockImplementation(async (stream, options) => {
      if (stream === "a-1") await other.streams.close(stream, { reason: "by hand" });
      return close(stream, options);
    });
    await worker.look();
    spy.mockRestore();
    expect([await keptIn(pawl, "a-1"), await keptIn(pawl, "a-2")]).toEqual([[4], [4]]);
    expect(await known(pawl, "idle")).toEqual([]);
    expect(await pawl.streams.policies()).toMatchObject([{ ...done, closed: 1, removed: 3 }]);
    await worker.stop();
    expect(worker.errors).toEqual([]);
  });

  test("what no code knows any more does nothing; removed, nothing is left of it, and it can begin anew", async () => {
    const pawl = await place.open({ archive: new Shelf() });
    const policy = streamPolicy("idle", { prefix: "a-", close: { idleFor: "1 day" } });
    await pawl.stream("a-1").append(deposits(1));
    const worker = workerOn(pawl, policy, { idleMs: 0 });
    await worker.begin();
    await worker.find();
    expect(await known(pawl, "idle")).toEqual(["a-1"]);
    expect(await pawl.streams.removePolicy("idle")).toBe(true);
    expect(await pawl.streams.removePolicy("idle")).toBe(false);
    expect(await known(pawl, "idle")).toEqual([]);
    expect(await pawl.kernel.list({ space: POLICIES, prefix: "", after: null, limit: 10 })).toEqual([]);
    await worker.look();
    expect([await keptIn(pawl, "a-1"), await pawl.streams.policies()]).toEqual([[1], []]);
    await worker.begin();
    await worker.look();
    expect(await keptIn(pawl, "a-1")).toEqual([2]);
    await worker.stop();
    expect(worker.errors).toEqual([]);
  });

  test("a look at a policy without news writes nothing, and costs the same with many streams", async () => {
    const handle = await place.openHandle({ archive: new Shelf() });
    const { pawl } = handle;
    const policy = streamPolicy("idle", { prefix: "a-", close: { idleFor: "1 day" } });
    for (let i = 0; i < 20; i++) await pawl.stream(`a-${i}`).append(deposits(1));
    const worker = workerOn(pawl, policy);
    await worker.begin();
    await worker.look(6);
    const before = handle.commits();
    const calls: string[] = [];
    for (const name of ["read", "list", "entries"] as const) {
      const call = pawl.kernel[name].bind(pawl.kernel) as (...given: never[]) => never;
      Object.assign(pawl.kernel, {
        [name]: (...given: never[]) => {
          calls.push(name);
          return call(...given);
        },
      });
    }
    await worker.look(3);
    expect([handle.commits() - before, calls]).toEqual([0, ["read", "read", "read"]]);
    await worker.stop();
    expect(worker.errors).toEqual([]);
  });
});
