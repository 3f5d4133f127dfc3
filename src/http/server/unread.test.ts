/** What streams hold is bounded in bytes, in time, and in how many read concurrently. */

import { expect, test } from "vitest";
import type { Clock } from "../../kernel/ports.ts";
import { Unread } from "./unread.ts";

/** A clock on which time passes when the test says so. */
function stopped() {
  const timers = new Set<() => void>();
  const clock: Clock = {
    nowMs: () => 0,
    soon: (callback) => callback(),
    after: (_ms, callback) => {
      timers.add(callback);
      return () => void timers.delete(callback);
    },
  };
  return { clock, pass: () => timers.forEach((callback) => void callback()) };
}

function holding(mostBytes: number) {
  const { clock, pass } = stopped();
  const unread = new Unread(clock, mostBytes);
  const dropped: string[] = [];
  const hold = (name: string, bytes: number): (() => void) => {
    const release = unread.hold(bytes, () => {
      dropped.push(name);
      release();
    });
    return release;
  };
  return { unread, dropped, hold, pass };
}

test("beyond the bound, those that have been waited for longest are dropped, and never the newest", () => {
  const { dropped, hold } = holding(100);
  hold("a", 60);
  const b = hold("b", 40);
  expect(dropped).toEqual([]);
  b();
  hold("c", 40);
  hold("d", 1);
  expect(dropped).toEqual(["a"]);
  hold("e", 1000);
  expect(dropped).toEqual(["a", "c", "d"]);
});

test("a client that takes too long is dropped, and one that has taken all is not", () => {
  const { dropped, hold, pass } = holding(100);
  hold("a", 1);
  hold("b", 1)();
  pass();
  expect(dropped).toEqual(["a"]);
});

test("only some read concurrently, and each has its turn, also after one that fails", async () => {
  const { unread } = holding(100);
  let reading = 0;
  let most = 0;
  const turns = Array.from({ length: 50 }, (_, i) =>
    unread.turn(async () => {
      most = Math.max(most, ++reading);
      await Promise.resolve();
      reading -= 1;
      if (i === 3) throw new Error("unreadable");
    }),
  );
  const settled = await Promise.allSettled(turns);
  expect(most).toBe(8);
  expect(settled.filter(({ status }) => status === "rejected")).toHaveLength(1);
});
