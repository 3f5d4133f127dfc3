// Goal: the kernel and workflows keep their promises under every fault there is: G1, G2, G6, G7, G10, G14, G15, G16, G17, G19, G21, G23,
// G25 and G31 (GUARANTEES.md says which scenario stands for which).
// Method: at least 5,000 schedules over all scenarios (`shares.ts`). These are the first of them; the others are in the long suite.

import { expect, test } from "vitest";
import { scenarios } from "./scenarios/index.ts";
import { SHARES, testShare } from "./shares.ts";

testShare(0);

test("the shares have 5,000 schedules, one after the other", () => {
  let next = 1;
  for (const { firstSeed, seeds } of SHARES) {
    expect(firstSeed).toBe(next);
    next += seeds;
  }
  expect((next - 1) * scenarios.length).toBeGreaterThanOrEqual(5_000);
});
