/**
 * Goal: a row that is known, because this process holds it or wrote it last, is decided on without reading it first, and never wrongly.
 * Method: as in batcher.test.ts; a peer on the same store changes rows behind this process's back.
 */

import { describe, expect, test } from "vitest";
import { a, add, b, c, failing, hold, lostReply, rowOf, sumOf } from "../../test/kernel/batches.ts";
import { type Bench, bench, type ScriptedStore, textsOf } from "../../test/kernel/kit.ts";
import { type Address, address } from "./contract.ts";
import type { Decision } from "./decision.ts";

describe("known rows", () => {
  test("are not locked, nor read", async () => {
    const { kernel, store } = bench();
    await hold(kernel, a);
    for (const sum of [2, 3, 4]) expect(await kernel.transactHeld(add(a), a)).toBe(sum);
    expect(store.batches.slice(-3).map((batch) => batch.lock)).toEqual([[], [], []]);
    expect(kernel.held(a)).toEqual(await rowOf(kernel, a));
  });

  test("that moved are read again under the lock, and the decision runs on what is there", async () => {
    const { kernel, store, peer } = bench();
    await hold(kernel, a);
    await peer().transact(add(a), [a]);
    const sent = store.batches.length;
    expect(await kernel.transactHeld(add(a), a)).toBe(3);
    expect(store.batches.slice(sent).map((batch) => textsOf(batch.lock))).toEqual([[], [a.text]]);
    expect(await kernel.transactHeld(add(a), a)).toBe(4);
    expect(store.batches.at(-1)?.lock).toEqual([]);
  });

  test("that moved do not harm the others of the batch", async () => {
    const { kernel, peer } = bench();
    await hold(kernel, a);
    await hold(kernel, b);
    await peer().transact(add(a), [a]);
    const sums = [kernel.transactHeld(add(a), a), kernel.transactHeld(add(b), b), kernel.transact(add(c), [c])];
    expect(await Promise.all(sums)).toEqual([3, 2, 1]);
  });

  test("are kept up to date by this process's own commits", async () => {
    const { kernel, store } = bench();
    await hold(kernel, a);
    await kernel.transact(add(a), [a]);
    expect(await kernel.transactHeld(add(a), a)).toBe(3);
    expect(store.batches.at(-1)?.lock).toEqual([]);
  });

  test("of which nothing is known any more are locked", async () => {
    const { kernel, store } = bench();
    await hold(kernel, a);
    kernel.letGo(a);
    expect(kernel.held(a)).toBeUndefined();
    expect(await kernel.transactHeld(add(a), a)).toBe(2);
    expect(textsOf(store.batches.at(-1)?.lock ?? [])).toEqual([a.text]);
  });

  test("that the same batch locks for another decision are locked for both", async () => {
    const { kernel, store, peer } = bench();
    await hold(kernel, a);
    await peer().transact(add(a), [a]);
    const sums = [kernel.transactHeld(add(a), a), kernel.transact(add(a), [a])];
    expect(await Promise.all(sums)).toEqual([3, 4]);
    expect(textsOf(store.batches.at(-1)?.lock ?? [])).toEqual([a.text]);
  });

  test("that were removed and made again by another are not taken for the same", async () => {
    const { kernel, peer } = bench();
    await hold(kernel, a);
    const other = peer();
    await other.transact((tx) => tx.record(a).remove(), [a]);
    await other.transact((tx) => tx.record(a).write({ value: 40 }), [a]);
    expect(await kernel.transactHeld(add(a), a)).toBe(41);
  });

  test("that moved are found out also where the decision only reads them and writes elsewhere", async () => {
    const { kernel, peer } = bench();
    await hold(kernel, a);
    await peer().transact(add(a), [a]);
    const copy: Decision<unknown> = (tx) => {
      const seen = tx.record(a).value;
      tx.record(b).write({ value: seen });
      return seen;
    };
    expect(await kernel.transactHeld(copy, a)).toBe(2);
    expect(await sumOf(kernel, b)).toBe(2);
  });

  test("are never shown, unlocked, to a decision that is not the holder's", async () => {
    const { kernel, peer } = bench();
    await hold(kernel, a);
    await peer().transact(add(a), [a]);
    const looks = kernel.transactHeld((tx) => tx.record(a).version, a);
    const copies = kernel.transact(
      (tx) => {
        const into = tx.record(b);
        into.write({ value: tx.record(a).value });
      },
      [b],
    );
    await Promise.all([looks, copies]);
    expect(await sumOf(kernel, b)).toBe(2);
  });
});

describe("a clock that was not read", () => {
  /** As a server does it: without locks, nobody asks for the time unless it is wanted. */
  function withoutClock({ store }: Bench): void {
    store.found = (found, keys, batch) => (keys.length === 0 && !batch.needsClock ? { ...found, nowMs: null } : found);
  }

  test("sends a known decision that wants it the locked way, and only that one", async () => {
    const on = bench();
    const { kernel, store, clock } = on;
    await hold(kernel, a);
    await hold(kernel, b);
    withoutClock(on);
    const sent = store.batches.length;
    const timely = kernel.transactHeld((tx) => [tx.nowMs, add(a)(tx)], a);
    const plain = kernel.transactHeld(add(b), b);
    expect(await Promise.all([timely, plain])).toEqual([[clock.wallMs(), 2], 2]);
    expect(store.batches.slice(sent).map((batch) => textsOf(batch.lock))).toEqual([[], [a.text]]);
  });

  test("is noticed even if the decision caught what was thrown", async () => {
    const on = bench();
    const { kernel, clock } = on;
    await hold(kernel, a);
    withoutClock(on);
    const seen = kernel.transactHeld((tx) => {
      try {
        return tx.nowMs;
      } catch {
        return "caught";
      }
    }, a);
    expect(await seen).toBe(clock.wallMs());
  });

  test("is read also for a decision that has no records at all", async () => {
    const on = bench();
    const { kernel, store, clock } = on;
    withoutClock(on);
    for (let i = 0; i < 20; i++) store.commits.push((batch, pass) => pass(batch));
    store.commits.push(failing("store_io", "fail"));
    expect(await kernel.transact((tx) => tx.nowMs, [])).toBe(clock.wallMs());
  });

  test("is wanted by fences and by removing, too", async () => {
    const on = bench();
    const { kernel } = on;
    await hold(kernel, a);
    withoutClock(on);
    expect(await kernel.transactHeld((tx) => tx.fenceFloor, a)).toBeGreaterThan(0);
    await kernel.transactHeld((tx) => tx.record(a).remove(), a);
    expect(await rowOf(kernel, a)).toMatchObject({ value: null });
  });
});

describe("rows that this process wrote last", () => {
  /** What each batch from here on locked. */
  const locksFrom = (store: ScriptedStore) => {
    const sent = store.batches.length;
    return () => store.batches.slice(sent).map((batch) => textsOf(batch.lock));
  };

  test("are neither locked nor read again, where the store has lanes", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    await kernel.transact(add(a), [a]);
    const locks = locksFrom(store);
    for (const sum of [2, 3, 4]) expect(await kernel.transact(add(a), [a])).toBe(sum);
    expect(locks()).toEqual([[], [], []]);
  });

  test("are read where it has only one", async () => {
    const { kernel, store } = bench();
    await kernel.transact(add(a), [a]);
    const locks = locksFrom(store);
    expect(await kernel.transact(add(a), [a])).toBe(2);
    expect(locks()).toEqual([[a.text]]);
  });

  test("can be several for one decision, but then it must know all of them", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    const both: Decision<number[]> = (tx) => [add(a)(tx), add(b)(tx)];
    await kernel.transact(add(a), [a]);
    const locks = locksFrom(store);
    expect(await kernel.transact(both, [a, b])).toEqual([2, 1]);
    expect(await kernel.transact(both, [a, b])).toEqual([3, 2]);
    expect(locks()).toEqual([[a.text, b.text], []]);
  });

  test("that moved are locked, and not believed for a while, longer each time", async () => {
    const { kernel, store, peer } = bench({ lanes: 2 });
    const other = peer();
    await kernel.transact(add(a), [a]);
    const believed: number[] = [];
    for (let turn = 0; turn < 200; turn++) {
      await other.transact(add(a), [a]);
      const locks = locksFrom(store);
      expect(await kernel.transact(add(a), [a])).toBe(2 * turn + 3);
      if (locks()[0]?.length === 0) believed.push(turn);
    }
    expect(believed).toEqual([0, 9, 26, 59, 124]);
  });

  test("that moved under many decisions of one batch count once", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    store.found = (found, keys, batch) => (keys.length === 0 && !batch.needsClock ? { ...found, nowMs: null } : found);
    await kernel.transact(add(a), [a]);
    const timely: Decision<unknown> = (tx) => [tx.nowMs, add(a)(tx)];
    await Promise.all(Array.from({ length: 20 }, () => kernel.transact(timely, [a])));
    const locks = locksFrom(store);
    for (let turn = 0; turn < 10; turn++) await kernel.transact(add(a), [a]);
    expect(locks().findIndex((lock) => lock.length === 0)).toBe(8);
  });

  test("are used again as soon as the clock was read, if a decision only lacked a recent reading of it", async () => {
    const { kernel, store, clock } = bench({ lanes: 2 });
    store.found = (found, keys, batch) => (keys.length === 0 && !batch.needsClock ? { ...found, nowMs: null } : found);
    for (const estimate of ["approxNowMs", "nowUpperBoundMs"] as const) {
      await kernel.transact(add(a), [a]);
      await clock.advance(2000);
      const locks = locksFrom(store);
      const timed: Decision<unknown> = (tx) => [tx[estimate], add(a)(tx)];
      for (let turn = 0; turn < 2; turn++) await kernel.transact(timed, [a]);
      expect(locks()).toEqual([[], [a.text], []]);
    }
  });

  test("are locked when the decision reads one of them without writing it, or throws", async () => {
    for (const decide of [
      (tx) => [tx.record(a).value, add(b)(tx)],
      (tx) => {
        tx.record(a).write({ value: 0 });
        throw new RangeError("no");
      },
    ] satisfies Decision<unknown>[]) {
      const { kernel, store, peer } = bench({ lanes: 2 });
      await kernel.transact((tx) => [add(a)(tx), add(b)(tx)], [a, b]);
      await peer().transact(add(c), [c]);
      const locks = locksFrom(store);
      await kernel.transact(decide, [a, b]).catch(() => {});
      expect(locks().at(-1)).toEqual([a.text, b.text]);
    }
  });

  test("are forgotten when they are deleted, long, or made by a commit whose reply was lost", async () => {
    const { kernel, store, clock } = bench({ lanes: 2 });
    await kernel.transact(add(a), [a]);
    await kernel.transact((tx) => tx.record(a).remove(), [a]);
    await kernel.transact((tx) => tx.record(b).write({ value: "x".repeat(5000) }), [b]);
    store.commits.push(lostReply);
    await clock.finish(kernel.transact(add(c), [c]));
    const locks = locksFrom(store);
    for (const at of [a, b, c]) await kernel.transact((tx) => tx.record(at).write({ value: 1 }), [at]);
    expect(locks()).toEqual([[a.text], [b.text], [c.text]]);
  });

  test("are so many at most, and those of long ago go first", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    const many = Array.from({ length: 9000 }, (_, i) => address("many", `k${i}`));
    await Promise.all(many.map((at) => kernel.transact(add(at), [at])));
    const [first, last] = [many[0] as Address, many.at(-1) as Address];
    const locks = locksFrom(store);
    await kernel.transact(add(last), [last]);
    await kernel.transact(add(first), [first]);
    expect(locks()).toEqual([[], [first.text]]);
  });
});
