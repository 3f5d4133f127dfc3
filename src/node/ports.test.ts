/**
 * Goal: a wait is never over early, whatever its length, and can be cancelled at any moment.
 * Method: vitest's fake timers, which keep setTimeout's limit of 2^31 - 1 ms as Node does: asserted first.
 */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { pause } from "../kernel/ports.ts";
import { nodePorts, wallMs } from "./ports.ts";

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

  test("setTimeout itself would be over at once after more than its limit", () => {
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

  test("no piece of a long wait is longer than setTimeout can do", () => {
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

  test.each([-1, -5, -LIMIT_MS, Number.NEGATIVE_INFINITY])("%d ms are over at once", (ms) => {
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

  test("cancelling helps at the start, in the middle of a long wait, and does no harm after it", () => {
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

describe("pause", () => {
  test("ends with its time, or at once with the signal, and leaves no listener", async () => {
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
    expect(performance.now() - started).toBeLessThan(1_000);
  });
});

describe("soon", () => {
  test("comes after everything that is under way, microtasks and all", async () => {
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

describe("clock and chance", () => {
  test("waiting is measured by a clock that nobody can set", () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const before = clock.nowMs();
    vi.setSystemTime(0);
    expect(clock.nowMs()).toBeGreaterThanOrEqual(before);
    expect(wallMs()).toBe(0);
    vi.useRealTimers();
  });

  test("chance is in its range and never the same", () => {
    const randoms = Array.from({ length: 1_000 }, () => chance.random());
    expect(randoms.every((n) => n >= 0 && n < 1)).toBe(true);
    const uuids = new Set(Array.from({ length: 1_000 }, () => chance.uuid()));
    expect(uuids.size).toBe(1_000);
    for (const uuid of uuids)
      expect(uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  });
});
