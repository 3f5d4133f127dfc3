/**
 * The random schedules that deadlock.test.ts leaves out: in one order of locks, where there is no circle, none may be reported; in any
 * order, no run may wait for ever.
 *
 * `PAWL_SCHEDULES=100000` in the environment sets how many.
 */

import { expect, test } from "vitest";
import { runSchedules } from "./schedules.ts";

const asked = process.env["PAWL_SCHEDULES"];
const count = asked === undefined ? 960 : Number(asked);

test(`${count} schedules without a circle: none is reported, and every run ends`, {
  timeout: 300_000 + count * 20,
}, async () => {
  const { runs, failed } = await runSchedules({ isInOrder: true, first: 41, last: 40 + count });
  expect(failed).toEqual([]);
  expect(runs).toBeGreaterThan(2 * count);
});

test("450 schedules with circles: each is detected, no run waits for ever, and most continue", async () => {
  const { runs, failed } = await runSchedules({ isInOrder: false, first: 51, last: 500 });
  expect(failed.filter((end) => !end.includes(": deadlock: waiting for"))).toEqual([]);
  expect(failed.length).toBeGreaterThan(45);
  expect(failed.length).toBeLessThan(runs / 2);
});
