/**
 * Goal: reads wait for a store that is busy and for nothing else; the bell rings for every commit; deletions are swept up.
 * Method: a kernel on a store that fails as told, and peers on the same database.
 */

import { describe, expect, test } from "vitest";
import { bench, codeOf, drained, storeError } from "../../test/kernel/kit.ts";
import { address, DELETED_KEPT_MS, type Put } from "./contract.ts";
import type { Decision } from "./decision.ts";
import type { Kernel } from "./kernel.ts";

const a = address("n", "a");
const b = address("n", "b");
const write =
  (key: string, value: unknown): Decision<void> =>
  (tx) =>
    tx.record(address("n", key)).write({ value });

describe("reads", () => {
  test("are tried again while the store is busy", async () => {
    const { kernel, store, clock } = bench();
    await kernel.transact(write("a", 1), [a]);
    for (let i = 0; i < 10; i++) store.reads.push(() => storeError("store_busy", "retry"));
    const [row] = await clock.finish(kernel.read([a]));
    expect(row).toMatchObject({ value: "1" });
    expect(store.reads.length).toBe(0);
  });

  test("give up when patience ends, with what the store said", async () => {
    const { kernel, store, clock } = bench({ patienceMs: 1_000 });
    for (let i = 0; i < 500; i++) store.reads.push(() => storeError("store_busy", "retry"));
    const startedMs = clock.nowMs();
    expect(await clock.finish(codeOf(kernel.read([a])))).toBe("store_busy");
    expect(clock.nowMs() - startedMs).toBeGreaterThanOrEqual(1_000);
    expect(clock.nowMs() - startedMs).toBeLessThan(1_200);
  });

  test.each(["fail", "split", "settle"] as const)("are not tried again where the remedy is to %s", async (remedy) => {
    const { kernel, store } = bench();
    store.reads.push(() => storeError("store_io", remedy));
    expect(await codeOf(kernel.read([a]))).toBe("store_io");
    expect(store.reads.length).toBe(0);
  });

  test("pass on an error that is no store's", async () => {
    const { kernel, store } = bench();
    const mistake = new TypeError("a mistake");
    store.reads.push(() => mistake);
    await expect(kernel.read([a])).rejects.toBe(mistake);
  });

  test("show what is committed, in the order asked for, deleted rows too", async () => {
    const { kernel } = bench();
    await kernel.transact(write("a", 1), [a]);
    await kernel.transact(write("b", 2), [b]);
    await kernel.transact((tx) => tx.record(b).remove(), [b]);
    const rows = await kernel.read([b, address("n", "none"), a]);
    expect(rows.map((row) => row && [row.key, row.value])).toEqual([["b", null], null, ["a", "1"]]);
    expect((await kernel.list({ space: "n", prefix: "", after: null, limit: 10 })).map((row) => row.key)).toEqual([
      "a",
    ]);
  });

  test("a decoded value is frozen", async () => {
    const { kernel } = bench();
    const value = kernel.decode(a, '{"list":[{"x":1}]}') as { list: object[] };
    expect([Object.isFrozen(value), Object.isFrozen(value.list), Object.isFrozen(value.list[0])]).toEqual([
      true,
      true,
      true,
    ]);
  });
});

describe("the bell", () => {
  test("rings with what this process committed, before its callers hear", async () => {
    const { kernel } = bench();
    const heard: unknown[] = [];
    kernel.listen((puts) => heard.push(puts?.map(({ row }) => row.key)));
    await kernel.transact(write("a", 1), [a]).then(() => heard.push("answered"));
    expect(heard).toEqual([["a"], "answered"]);
  });

  test("rings with nothing when another process did", async () => {
    const { kernel, peer } = bench();
    const heard: (readonly Put[] | undefined)[] = [];
    kernel.listen((puts) => heard.push(puts));
    await peer().transact(write("a", 1), [a]);
    expect(heard).toEqual([undefined]);
  });

  test("does not ring for what was refused", async () => {
    const { kernel, store } = bench();
    const heard: unknown[] = [];
    kernel.listen((puts) => heard.push(puts));
    store.commits.push(async () => {
      throw storeError("store_full", "fail");
    });
    expect(await codeOf(kernel.transact(write("a", 1), [a]))).toBe("store_full");
    expect(heard).toEqual([]);
  });

  test("rings for each listener until it stops, and the store is watched only while somebody listens", async () => {
    const { kernel, store } = bench();
    const heard: string[] = [];
    expect(store.watchers).toBe(0);
    const stopOne = kernel.listen(() => heard.push("one"));
    const stopTwo = kernel.listen(() => heard.push("two"));
    expect(store.watchers).toBe(1);
    await kernel.transact(write("a", 1), [a]);
    stopOne();
    stopOne();
    await kernel.transact(write("a", 2), [a]);
    expect(heard).toEqual(["one", "two", "two"]);
    expect(store.watchers).toBe(1);
    stopTwo();
    expect(store.watchers).toBe(0);
    kernel.listen(() => heard.push("three"));
    expect(store.watchers).toBe(1);
    await kernel.close();
    expect(store.watchers).toBe(0);
  });

  test("may be stopped by one who hears it", async () => {
    const { kernel } = bench();
    const heard: string[] = [];
    const stop = kernel.listen(() => {
      heard.push("once");
      stop();
    });
    kernel.listen(() => heard.push("other"));
    await kernel.transact(write("a", 1), [a]);
    await kernel.transact(write("a", 2), [a]);
    expect(heard).toEqual(["once", "other", "other"]);
  });
});

describe("sweeping", () => {
  const keys = Array.from({ length: 256 }, (_, i) => `k${i}`);

  test("comes with the first commit, then after 256 deletions, and removes what was deleted a week ago", async () => {
    const { kernel, store, clock, database } = bench();
    const all = keys.map((key) => address("n", key));
    await kernel.transact((tx) => {
      for (const at of all) tx.record(at).write({ value: 1, fence: 9 });
    }, all);
    await kernel.transact((tx) => tx.record(all[0] as never).remove(), all.slice(0, 1));
    await kernel.transact((tx) => {
      for (const at of all.slice(1, 255)) tx.record(at).remove();
    }, all);
    await drained();
    expect(store.sweeps.length).toBe(1);
    await clock.advance(DELETED_KEPT_MS);
    await kernel.transact((tx) => tx.record(all[255] as never).remove(), all.slice(255));
    await drained();
    expect(store.sweeps.length).toBe(2);
    const rows = await kernel.read(all);
    expect(rows.filter((row) => row !== null).map((row) => row.key)).toEqual(["k255"]);
    expect(database.fenceFloor).toBe(10);
  });

  test("that fails harms nobody", async () => {
    const { kernel, store } = bench();
    store.sweep = async () => {
      throw storeError("store_busy", "retry");
    };
    const all = keys.map((key) => address("n", key));
    await kernel.transact((tx) => {
      for (const at of all) {
        tx.record(at).write({ value: 1 });
        tx.record(at).remove();
      }
    }, all);
    await drained();
    expect((await kernel.read(all)).length).toBe(256);
  });
});

describe("following", () => {
  const note = address("notes", "a");
  const speak = (kernel: Kernel) =>
    kernel.transact(
      (tx) => {
        const record = tx.record(note);
        record.write({ value: 1 });
        record.append("said", { text: "hello" }, { isFollowed: true });
        record.append("said", { text: "not followed" });
        record.appendText("said", record.encode(["bye"]), true);
      },
      [note],
    );

  test("a decision says which entries are followed; they come with their record, and decode by themselves", async () => {
    const { kernel } = bench();
    await speak(kernel);
    const { entries, upTo, hasMore } = await kernel.follow({ space: "notes", after: 0, limit: 10 });
    expect(entries.map(({ version }) => version)).toEqual([1, 3]);
    expect(entries.map((entry) => kernel.decode(entry, entry.data))).toEqual([{ text: "hello" }, ["bye"]]);
    expect(hasMore).toBe(false);
    expect(await kernel.follow({ space: "notes", after: upTo, limit: 10 })).toMatchObject({
      entries: [],
      upTo,
      hasMore,
    });
  });

  test("a store that is busy is asked again", async () => {
    const { kernel, store, clock } = bench();
    await clock.finish(speak(kernel));
    store.reads.push(() => storeError("store_busy", "retry"));
    const page = await clock.finish(kernel.follow({ space: "notes", after: 0, limit: 1 }));
    expect(page.entries.map(({ version }) => version)).toEqual([1]);
    expect(page.hasMore).toBe(true);
  });
});
