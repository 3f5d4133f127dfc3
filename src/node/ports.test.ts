/**
 * Goal: a wait never ends early, whatever its length, and can be canceled at any moment; time during which a machine was suspended counts
 * as elapsed.
 * Method: vitest's fake timers, which have setTimeout's limit of 2^31 - 1 ms as Node does, which is asserted first. For suspensions, a
 * table of the readings of the machine's two clocks; then a batcher and a lease on a machine that is suspended.
 */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ScriptedStore } from "../../test/kernel/kit.ts";
import { address } from "../kernel/contract.ts";
import { type Ports, pause } from "../kernel/ports.ts";
import { pawlOn } from "../pawl.ts";
import { MemoryDatabase } from "../stores/memory/memory.ts";
import { makeClock, nodePorts, wallMs } from "./ports.ts";

const { clock, chance } = nodePorts;
const DAY_MS = 86_400_000;
const LIMIT_MS = 2 ** 31 - 1;

describe("after", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test("setTimeout itself would fire immediately above its limit", () => {
    let calls = 0;
    setTimeout(() => {
      calls += 1;
    }, LIMIT_MS + 1);
    vi.advanceTimersByTime(1);
    expect(calls).toBe(1);
  });

  const lengths = [0, 1, 1_000, LIMIT_MS - 1, LIMIT_MS, LIMIT_MS + 1, 25 * DAY_MS, 100 * DAY_MS, 36_525 * DAY_MS];
  test.each(lengths)("%d ms are over when they are over, not before and not again", (ms) => {
    let calls = 0;
    clock.after(ms, () => {
      calls += 1;
    });
    if (ms > 0) {
      vi.advanceTimersByTime(ms - 1);
      expect(calls).toBe(0);
    }
    vi.advanceTimersByTime(1);
    expect(calls).toBe(1);
    vi.advanceTimersByTime(2 * LIMIT_MS);
    expect(calls).toBe(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("no part of a long wait is longer than setTimeout allows", () => {
    const asked: (number | undefined)[] = [];
    const real = globalThis.setTimeout;
    const spy = vi.spyOn(globalThis, "setTimeout").mockImplementation(((callback: () => void, ms?: number) => {
      asked.push(ms);
      return real(callback, ms);
    }) as typeof setTimeout);
    clock.after(60 * DAY_MS, () => {});
    vi.advanceTimersByTime(60 * DAY_MS);
    spy.mockRestore();
    expect(asked.length).toBeGreaterThanOrEqual(3);
    for (const ms of asked) expect(ms).toBeLessThanOrEqual(LIMIT_MS);
  });

  test.each([-1, -5, -LIMIT_MS, Number.NEGATIVE_INFINITY])("%d ms are over immediately", (ms) => {
    let calls = 0;
    clock.after(ms, () => {
      calls += 1;
    });
    vi.advanceTimersByTime(1);
    expect(calls).toBe(1);
  });

  test("an endless wait is never over", () => {
    let calls = 0;
    clock.after(Number.POSITIVE_INFINITY, () => {
      calls += 1;
    });
    vi.advanceTimersByTime(365 * DAY_MS);
    expect(calls).toBe(0);
  });

  test("canceling works at the start and in the middle of a long wait, and has no effect after it", () => {
    const calls: string[] = [];
    clock.after(100, () => calls.push("short"))();
    const cancelLong = clock.after(60 * DAY_MS, () => calls.push("long"));
    const cancelDone = clock.after(5, () => calls.push("done"));
    vi.advanceTimersByTime(40 * DAY_MS);
    cancelLong();
    cancelDone();
    cancelLong();
    vi.advanceTimersByTime(100 * DAY_MS);
    expect(calls).toEqual(["done"]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("a timer that fires early does not end the wait early", () => {
    let calls = 0;
    let nowMs = 0;
    const now = vi.spyOn(performance, "now").mockImplementation(() => nowMs);
    clock.after(100, () => {
      calls += 1;
    });
    nowMs = 99.4;
    vi.advanceTimersByTime(100);
    expect(calls).toBe(0);
    nowMs = 100.4;
    vi.advanceTimersByTime(1);
    expect(calls).toBe(1);
    now.mockRestore();
  });
});

describe("a wall clock that is set", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test.each([-DAY_MS, 1000 * DAY_MS])("by %d ms ends no wait early or late, in none of its parts", (setMs) => {
    const own = makeClock({ monotonicMs: () => performance.now(), wallMs: () => Date.now() });
    const ends: string[] = [];
    own.after(1000, () => ends.push("short"));
    own.after(60 * DAY_MS, () => ends.push("long"));
    vi.setSystemTime(Date.now() + setMs);
    own.nowMs();
    vi.advanceTimersByTime(999);
    expect(ends).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(ends).toEqual(["short"]);
    vi.advanceTimersByTime(60 * DAY_MS - 1001);
    expect(ends).toEqual(["short"]);
    vi.advanceTimersByTime(1);
    expect(ends).toEqual(["short", "long"]);
  });
});

describe("pause", () => {
  test("ends with its time, or immediately with the signal, and leaves no listener", async () => {
    const stop = new AbortController();
    const add = vi.spyOn(stop.signal, "addEventListener");
    const remove = vi.spyOn(stop.signal, "removeEventListener");
    await pause(clock, 1, stop.signal);
    expect(remove).toHaveBeenCalledTimes(add.mock.calls.length);
    const started = performance.now();
    const long = pause(clock, 25 * DAY_MS, stop.signal);
    stop.abort();
    await long;
    await pause(clock, 25 * DAY_MS, stop.signal);
    expect(performance.now() - started).toBeLessThan(DAY_MS);
  });
});

describe("soon", () => {
  test("comes after all pending callbacks, microtasks included", async () => {
    const order: string[] = [];
    await new Promise<void>((resolve) => {
      clock.soon(() => {
        order.push("soon");
        resolve();
      });
      order.push("now");
      process.nextTick(() => order.push("tick"));
      Promise.resolve()
        .then(() => order.push("microtask"))
        .then(() => order.push("another"))
        .catch(() => {});
    });
    expect(order.at(0)).toBe("now");
    expect(order.at(-1)).toBe("soon");
    expect(order.length).toBe(5);
  });
});

describe("time during a suspension", () => {
  const HOUR_MS = 3_600_000;
  /**
   * Each reading: how far the monotonic and the wall clock have moved since the last, and the elapsed time that the clock then returns.
   */
  type Look = readonly [monotonicMs: number, wallMs: number, passedMs: number];
  const rules: readonly [rule: string, looks: readonly Look[]][] = [
    [
      "both clocks run alike",
      [
        [1000, 1000, 1000],
        [5, 5, 1005],
        [HOUR_MS, HOUR_MS, HOUR_MS + 1005],
      ],
    ],
    ["a suspension counts", [[10, HOUR_MS, HOUR_MS]]],
    [
      "a suspension counts once",
      [
        [10, HOUR_MS, HOUR_MS],
        [10, 10, HOUR_MS + 10],
        [500, 500, HOUR_MS + 510],
      ],
    ],
    [
      "each of two suspensions counts",
      [
        [0, 60_000, 60_000],
        [1000, 1000, 61_000],
        [0, 60_000, 121_000],
      ],
    ],
    [
      "a second of difference does not count",
      [
        [0, 1000, 0],
        [10, 10, 10],
      ],
    ],
    ["more than a second counts", [[0, 1001, 1001]]],
    [
      "short ones count when they are more than a second together",
      [
        [0, 600, 0],
        [0, 600, 1200],
        [10, 10, 1210],
      ],
    ],
    [
      "a wall clock that is set back changes nothing",
      [
        [10, -HOUR_MS, 10],
        [10, 10, 20],
      ],
    ],
    [
      "nor does one that fluctuates",
      [
        [10, -600, 10],
        [10, 600, 20],
        [10, -600, 30],
        [10, 600, 40],
        [10, -600, 50],
      ],
    ],
    [
      "a suspension after it was set back counts",
      [
        [10, -HOUR_MS, 10],
        [10, 60_010, 60_020],
      ],
    ],
    [
      "a wall clock that is set forward counts as a suspension",
      [
        [10, HOUR_MS + 10, HOUR_MS + 10],
        [10, 10, HOUR_MS + 20],
      ],
    ],
    [
      "a stopped wall clock changes nothing",
      [
        [5000, 0, 5000],
        [5000, 0, 10_000],
        [10, 10, 10_010],
      ],
    ],
    [
      "a coarse wall clock changes nothing",
      [
        [0.4, 0, 0.4],
        [0.4, 1, 0.8],
        [0.4, 0, 1.2],
        [0.4, 1, 1.6],
      ],
    ],
  ];
  test.each(rules)("%s", (_, looks) => {
    const at = { monotonicMs: 12_345, wallMs: 1_800_000_000_000 };
    const own = makeClock({ monotonicMs: () => at.monotonicMs, wallMs: () => at.wallMs });
    const startMs = own.nowMs();
    for (const [monotonicMs, wallMs, passedMs] of looks) {
      at.monotonicMs += monotonicMs;
      at.wallMs += wallMs;
      expect(own.nowMs() - startMs).toBeCloseTo(passedMs, 3);
    }
  });

  test("a process that is delayed between two readings counts that time once", () => {
    let ms = 0;
    let holdUpMs = 0;
    // The delay comes after the reading of either clock.
    const read = () => {
      const now = ms;
      ms += holdUpMs;
      holdUpMs = 0;
      return now;
    };
    const own = makeClock({ monotonicMs: read, wallMs: read });
    holdUpMs = 5000;
    own.nowMs();
    expect(own.nowMs()).toBe(5000);
    ms += 7;
    expect(own.nowMs()).toBe(5007);
  });

  test("it never goes back, whatever the wall clock does", () => {
    let [monotonicMs, wallMs] = [0, 0];
    const own = makeClock({ monotonicMs: () => monotonicMs, wallMs: () => wallMs });
    let lastMs = own.nowMs();
    for (let i = 0; i < 10_000; i++) {
      monotonicMs += Math.random() < 0.5 ? 0 : Math.random();
      wallMs += (Math.random() - 0.5) * 10 ** (Math.random() * 8);
      const nowMs = own.nowMs();
      expect(nowMs).toBeGreaterThanOrEqual(lastMs);
      lastMs = nowMs;
    }
  });

  /** A machine whose monotonic clock stops while it is suspended, and a database elsewhere, whose clock does not. */
  function suspendable() {
    const machine = { monotonicMs: 0, wallMs: 1_800_000_000_000 };
    const own = makeClock({ monotonicMs: () => machine.monotonicMs, wallMs: () => machine.wallMs });
    const database = new MemoryDatabase(() => machine.wallMs);
    const ports: Ports = { ...nodePorts, clock: own };
    return {
      run(ms: number) {
        machine.monotonicMs += ms;
        machine.wallMs += ms;
      },
      suspend(ms: number) {
        machine.wallMs += ms;
      },
      nowMs: () => machine.wallMs,
      pawl() {
        const store = new ScriptedStore(database.connect("default", { lanes: 2 }), () => machine.wallMs);
        // As on PostgreSQL: if nothing is locked and the clock is not requested, it is not read.
        store.found = (found, keys, { needsClock }) =>
          keys.length === 0 && !needsClock ? { ...found, nowMs: null } : found;
        return pawlOn(store, ports, { namespace: "default" });
      },
    };
  }

  test("a lease is not granted for a time that is over", async () => {
    const machine = suspendable();
    await using pawl = machine.pawl();
    const at = address("job", "a");
    const lateMs = () =>
      pawl.kernel.transact(
        (tx) => {
          const seen = tx.nowUpperBoundMs;
          tx.record(at).write({ value: seen, dueMs: seen + 1000 });
          return seen;
        },
        [at],
      );
    await lateMs();
    machine.run(10);
    await lateMs();
    machine.suspend(HOUR_MS);
    // The lease would have ended an hour ago if the clock read before the suspension were still used.
    expect(await lateMs()).toBeGreaterThanOrEqual(machine.nowMs());
  });

  test("a hold is uncertain after a suspension longer than its lease", async () => {
    const machine = suspendable();
    await using pawl = machine.pawl();
    const hold = await pawl.mutex("door", { lease: "30s" }).acquire();
    machine.run(10);
    expect(hold.abortSignal.aborted).toBe(false);
    machine.suspend(HOUR_MS);
    expect(hold.abortSignal.reason).toMatchObject({ code: "lease_uncertain" });
  });
});

describe("clock and randomness", () => {
  test("waiting is measured by a clock that cannot be set", () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const before = clock.nowMs();
    vi.setSystemTime(0);
    expect(clock.nowMs()).toBeGreaterThanOrEqual(before);
    expect(wallMs()).toBe(0);
    vi.useRealTimers();
  });

  test("random numbers are in their range and differ", () => {
    const randoms = Array.from({ length: 1_000 }, () => chance.random());
    expect(randoms.every((n) => n >= 0 && n < 1)).toBe(true);
    const uuids = new Set(Array.from({ length: 1_000 }, () => chance.uuid()));
    expect(uuids.size).toBe(1_000);
    for (const uuid of uuids)
      expect(uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  });
});
