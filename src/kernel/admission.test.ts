// Goal: at most so many at a time, in order, and no one waits longer than its patience.
// Method: a clock that is moved by hand.

import { expect, test } from "vitest";
import { drained, ManualClock } from "../../test/kernel/kit.ts";
import { Admission } from "./admission.ts";

test("places are taken at once, then in order as they become free", async () => {
  const admission = new Admission(new ManualClock(), 2);
  const admitted: string[] = [];
  for (const name of ["a", "b", "c", "d"]) void admission.enter(1000).then((isIn) => isIn && admitted.push(name));
  await drained();
  expect(admitted).toEqual(["a", "b"]);
  admission.leave();
  await drained();
  expect(admitted).toEqual(["a", "b", "c"]);
  admission.leave();
  admission.leave();
  admission.leave();
  await drained();
  expect(admitted).toEqual(["a", "b", "c", "d"]);
  expect(await admission.enter(0)).toBe(true);
});

test("one whose patience ends leaves the line, and takes no place", async () => {
  const clock = new ManualClock();
  const admission = new Admission(clock, 1);
  expect(await admission.enter(0)).toBe(true);
  const short = admission.enter(100);
  const long = admission.enter(1000);
  await clock.advance(150);
  expect(await short).toBe(false);
  admission.leave();
  expect(await long).toBe(true);
  expect(clock.timerCount).toBe(0);
  admission.leave();
  expect(await admission.enter(0)).toBe(true);
});
