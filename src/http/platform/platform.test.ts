import { afterEach, expect, test, vi } from "vitest";
import { platform, stopwatch } from "./platform.ts";

afterEach(() => {
  vi.useRealTimers();
});

test("a wait that is longer than any timer ends when it is over, and can be canceled in the middle", () => {
  vi.useFakeTimers();
  const dayMs = 86_400_000;
  const called: string[] = [];
  platform.after(60 * dayMs, () => called.push("whole"));
  const cancel = platform.after(60 * dayMs, () => called.push("canceled"));
  vi.advanceTimersByTime(30 * dayMs);
  cancel();
  vi.advanceTimersByTime(30 * dayMs - 1);
  expect(called).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(called).toEqual(["whole"]);
  expect(vi.getTimerCount()).toBe(0);
});

test.each([
  { rule: "time passes by both clocks", wall: [0, 5, 9], monotonic: [100, 105, 109], passed: [0, 5, 9] },
  {
    rule: "a clock that is set back takes nothing away",
    wall: [0, -3_600_000, -3_599_995],
    monotonic: [0, 1, 6],
    passed: [0, 1, 6],
  },
  {
    rule: "the sleep of the machine has passed, too",
    wall: [0, 60_000, 60_005],
    monotonic: [0, 1, 6],
    passed: [0, 60_000, 60_005],
  },
])("$rule", ({ wall, monotonic, passed }) => {
  let at = -1;
  const runningMs = stopwatch({ nowMs: () => wall[at] ?? 0, monotonicMs: () => monotonic[at] ?? 0 });
  const read = passed.map(() => {
    at += 1;
    return runningMs();
  });
  expect(read).toEqual(passed);
});
