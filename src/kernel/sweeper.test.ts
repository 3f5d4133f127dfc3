// Goal: records whose time is over go, whichever way the new ones are made, and sweeps are small and rare.
// Method: a queue of records that expire, on a kernel in memory with a clock that moves by hand.

import { describe, expect, test } from "vitest";
import { bench, drained } from "../../test/kernel/kit.ts";
import { address } from "./contract.ts";
import type { Kernel } from "./kernel.ts";
import { SWEEP_EVERY } from "./sweeper.ts";

const KIND = "note";

function setUp() {
  const on = bench();
  const { kernel } = on;
  let made = 0;
  const make = (count: number, by: Kernel = kernel): Promise<unknown> =>
    Promise.all(
      Array.from({ length: count }, () => {
        const at = address("notes", String(made++));
        return by.transact((tx) => tx.record(at).write({ value: 1, kind: KIND, dueMs: tx.nowMs + 1000 }), [at]);
      }),
    );
  const sweptBy = (one: Kernel): void =>
    one.sweeper.add([
      {
        kind: KIND,
        chore: (at) =>
          one.transact(
            (tx) => {
              const record = tx.record(at);
              const isOver = record.exists && record.dueMs !== null && record.dueMs <= tx.nowMs;
              if (isOver) record.remove(0);
              return isOver;
            },
            [at],
          ),
      },
    ]);
  const left = async (): Promise<number> =>
    (await kernel.list({ space: "notes", prefix: "", after: null, limit: 5000 })).length;
  return { ...on, make, sweptBy, left };
}

describe("a sweep", () => {
  test("follows the first record that a process makes, so that short-lived ones have their share", async () => {
    const { clock, kernel, peer, make, sweptBy, left } = setUp();
    await make(20);
    await clock.advance(1000);
    const other = peer();
    sweptBy(other);
    await make(1, other);
    await drained();
    expect(await left()).toBe(1);
    await kernel.close();
  });

  test("follows each 256th record after that, and removes more than were made", async () => {
    const { clock, kernel, make, sweptBy, left } = setUp();
    sweptBy(kernel);
    await make(2000);
    await drained();
    await clock.advance(1000);
    await make(1);
    await drained();
    expect(await left()).toBe(2001 - 2 * SWEEP_EVERY);
    await clock.advance(1000);
    await make(SWEEP_EVERY - 1);
    await drained();
    expect(await left()).toBe(2001 - SWEEP_EVERY - 1);
    await make(1);
    await drained();
    expect(await left()).toBe(2001 - 2 * SWEEP_EVERY - SWEEP_EVERY);
  });

  test("is not made for writes to records that are there", async () => {
    const { clock, kernel, make, sweptBy, left } = setUp();
    sweptBy(kernel);
    await make(10);
    await drained();
    await clock.advance(1000);
    const at = address("notes", "0");
    for (let i = 0; i < 2 * SWEEP_EVERY; i++) await kernel.transact((tx) => tx.record(at).write({ value: i }), [at]);
    await drained();
    expect(await left()).toBe(10);
  });

  test("of a chore that fails leaves the record to the next one", async () => {
    const { clock, kernel, make, left } = setUp();
    kernel.sweeper.add([
      {
        kind: KIND,
        chore: (at) =>
          at.key === "0"
            ? Promise.reject(new Error("unreadable"))
            : kernel.transact((tx) => tx.record(at).remove(0), [at]),
      },
    ]);
    await make(3);
    await clock.advance(1000);
    expect(await kernel.sweeper.sweep([KIND], 10)).toEqual({ due: 3, removed: 0 });
    expect(await left()).toBe(1);
  });
});
