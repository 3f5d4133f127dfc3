// Goal: a batch has a budget of records, of bytes read and written, and of time; what does not fit flies next, and nothing is retried
// unchanged until patience ends.
// Method: what reaches a store in memory, batch by batch; decisions that take time on a clock that is moved by hand.

import { describe, expect, test } from "vitest";
import { bench, storeError } from "../../test/kernel/kit.ts";
import { type Address, address } from "./contract.ts";
import type { Decision } from "./decision.ts";
import { BUDGET } from "./flight.ts";

const many = (count: number): Address[] => Array.from({ length: count }, (_, i) => address("many", `k${i}`));

const write =
  (at: Address, value: unknown = 1): Decision<void> =>
  (tx) =>
    tx.record(at).write({ value });

describe("a batch", () => {
  test("takes no more records than its budget, and one decision in any case", async () => {
    const { kernel, store } = bench();
    const keys = many(900);
    const all = Array.from({ length: 6 }, (_, i) =>
      kernel.transact((tx) => tx.load(keys.slice(i * 100)), keys.slice(i * 100)),
    );
    await Promise.all(all);
    for (const { lock } of store.batches) expect(lock.length).toBeLessThanOrEqual(BUDGET.records);
    expect(store.batches.length).toBeGreaterThan(1);
  });

  test("asks for no more late records than its budget", async () => {
    const { kernel, store } = bench();
    const sizes: number[] = [];
    store.found = (found, asked) => {
      sizes.push(asked.length);
      return found;
    };
    const all = Array.from({ length: 100 }, (_, i) => {
      const keys = Array.from({ length: 100 }, (_, n) => address(`late ${i}`, `k${n}`));
      return kernel.transact((tx) => {
        tx.load(keys);
        for (const at of keys) tx.record(at).write({ value: i });
      }, []);
    });
    await Promise.all(all);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(BUDGET.records);
    expect(await kernel.read([address("late 99", "k99")])).toMatchObject([{ value: "99" }]);
  });

  test("leaves the rest to the next one when its decisions have taken long, and is smaller for a while", async () => {
    const { kernel, store, clock } = bench();
    const slow: Decision<void> = (tx) => {
      clock.spend(6);
      write(address("slow", tx.uuid()))(tx);
    };
    await Promise.all(Array.from({ length: 40 }, () => kernel.transact(slow, [])));
    const perBatch = 50 / 6;
    expect(store.batches.length).toBeGreaterThanOrEqual(Math.floor(40 / (perBatch + 1)));
    expect(store.batches.length).toBeLessThan(12);
  });

  test("is put together without running slow decisions for longer than its budget", async () => {
    const { kernel, clock } = bench({ lanes: 2 });
    let longest = 0;
    let ran = 0;
    const slow: Decision<void> = (tx) => {
      clock.spend(6);
      ran += 6;
      write(address("slow", tx.uuid()))(tx);
    };
    const all = Array.from({ length: 60 }, () => kernel.transact(slow, []));
    let isOver = false;
    const watch = (async () => {
      while (!isOver) {
        ran = 0;
        await new Promise<void>((resolve) => setImmediate(resolve));
        longest = Math.max(longest, ran);
      }
    })();
    await clock.finish(Promise.all(all));
    isOver = true;
    await watch;
    expect(longest).toBeLessThan(300);
  });

  test("reads no more than its budget, and every decision is made all the same", async () => {
    const { kernel, store } = bench({ maxValueBytes: 10_000_000 });
    const keys = many(12);
    for (const at of keys) await kernel.transact(write(at, "x".repeat(2_000_000)), [at]);
    const before = store.batches.length;
    const lengths = await Promise.all(
      keys.map((at) => kernel.transact((tx) => String(tx.record(at).value).length, [at])),
    );
    expect(lengths).toEqual(keys.map(() => 2_000_000));
    expect(store.batches.length - before).toBeGreaterThan(2);
  });

  test("of one decision may read as much as it needs", async () => {
    const { kernel } = bench({ maxValueBytes: 10_000_000 });
    const keys = many(12);
    for (const at of keys) await kernel.transact(write(at, "x".repeat(2_000_000)), [at]);
    const sum = await kernel.transact(
      (tx) => keys.reduce((total, at) => total + String(tx.record(at).value).length, 0),
      keys,
    );
    expect(sum).toBe(24_000_000);
  });

  test("that is too large for the store is halved until it fits, and grows again", async () => {
    const { kernel, store, clock } = bench();
    const sizes: number[] = [];
    const limit = 10;
    for (let times = 0; times < 100; times++)
      store.commits.push(async (batch, pass) => {
        sizes.push(batch.lock.length);
        if (batch.lock.length > limit) throw storeError("store_busy", "halve");
        return pass(batch);
      });
    const keys = many(100);
    await clock.finish(Promise.all(keys.map((at) => kernel.transact(write(at), [at]))));
    expect(sizes[0]).toBe(100);
    expect(sizes.slice(0, 5)).toEqual([100, 50, 25, 12, 6]);
    store.commits.length = 0;
    const before = store.batches.length;
    await Promise.all(many(512).map((at) => kernel.transact(write(at), [at])));
    await Promise.all(many(512).map((at) => kernel.transact(write(at), [at])));
    expect(store.batches.slice(before).some(({ lock }) => lock.length === 512)).toBe(true);
  });
});
