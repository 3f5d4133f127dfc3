/** How many requests without a valid key an address may send. */

import { expect, test } from "vitest";
import { Strangers } from "./addresses.ts";
import type { Problem } from "./problem.ts";

/** Requests of one address at these times, two of which may come in two seconds: whether each is let through, or `Retry-After`. */
function counted(timesMs: readonly number[]): readonly (true | string | undefined)[] {
  let nowMs = 0;
  const clock = { nowMs: () => nowMs, after: () => () => {}, soon: () => {} };
  const strangers = new Strangers(clock, { max: 2, perMs: 2000 });
  return timesMs.map((atMs) => {
    nowMs = atMs;
    try {
      strangers.count("192.0.2.1");
      return true;
    } catch (error) {
      return (error as Problem).headers["retry-after"];
    }
  });
}

const rules = [
  { rule: "as many as may be come at once", timesMs: [0, 0, 0], are: [true, true, "1"] },
  { rule: "then each waits for its turn", timesMs: [0, 0, 999, 1000, 1001], are: [true, true, "1", true, "1"] },
  {
    rule: "one that comes too often is let through as often as may be",
    timesMs: [0, 0, 600, 1200, 1800, 2400, 2900],
    are: [true, true, "1", true, "1", true, "1"],
  },
  { rule: "no more are saved up", timesMs: [0, 9000, 9000, 9000], are: [true, true, true, "1"] },
] as const;

test.each(rules)("$rule", ({ timesMs, are }) => {
  expect(counted(timesMs)).toEqual(are);
});
