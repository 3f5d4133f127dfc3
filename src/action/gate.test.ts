/**
 * Goal: two calls run, eight wait in the order of their calls, and no others.
 * Method: work that ends when the test says so, over several waves.
 */

import { expect, test } from "vitest";
import { codeOf, drained, gate } from "../../test/kernel/kit.ts";
import { HashGate } from "./gate.ts";

test("two run concurrently, eight wait in order, and the eleventh gets busy", async () => {
  const hashes = new HashGate();
  const order: number[] = [];
  const ends = Array.from({ length: 10 }, () => gate());
  const runs = ends.map((end, i) =>
    hashes.run(async () => {
      order.push(i);
      await end.opened;
      return i;
    }),
  );
  await drained();
  expect(order).toEqual([0, 1]);
  expect(await codeOf(hashes.run(async () => 99))).toBe("busy");
  for (const [i, end] of ends.entries()) {
    end.open();
    await drained();
    expect(order.length).toBe(Math.min(10, i + 3));
  }
  expect(order).toEqual(ends.map((_, i) => i));
  expect(await Promise.all(runs)).toEqual(order);
});

test("never more than two run, wave after wave, and a failed call releases its place", async () => {
  const hashes = new HashGate();
  let [now, most, ran] = [0, 0, 0];
  const work = async () => {
    now += 1;
    ran += 1;
    most = Math.max(most, now);
    await drained();
    now -= 1;
    if (ran % 3 === 0) throw new Error("it failed");
  };
  const waves = Array.from({ length: 10 }, async () => {
    for (let i = 0; i < 5; i++) await hashes.run(work).catch(() => {});
  });
  await Promise.all(waves);
  expect([most, now, ran]).toEqual([2, 0, 50]);
});
