/**
 * The random schedules that deadlock.test.ts leaves out: in one order of locks, where there is no circle, nobody may be told of one; in any
 * order, nobody may wait for ever.
 *
 * `PAWL_SCHEDULES=100000` in the environment draws so many.
 */

import { expect, test } from "vitest";
import { playSchedules } from "./schedules.ts";

const asked = process.env["PAWL_SCHEDULES"];
const count = asked === undefined ? 900 : Number(asked);

test(`${count} schedules without a circle: nobody is told of one, and everybody ends`, {
  timeout: 300_000 + count * 20,
}, async () => {
  const { runs, told } = await playSchedules({ isInOrder: true, first: 101, last: 100 + count });
  expect(told).toEqual([]);
  expect(runs).toBeGreaterThan(2 * count);
});

test("450 schedules with circles: each is found, nobody waits for ever, and most go on", async () => {
  const { runs, told } = await playSchedules({ isInOrder: false, first: 51, last: 500 });
  expect(told.filter((end) => !end.includes(": deadlock: waiting for"))).toEqual([]);
  expect(told.length).toBeGreaterThan(45);
  expect(told.length).toBeLessThan(runs / 2);
});
