// Goal: workflows keep their promises for any program, with the mistakes that people make: a recorded step never runs again, step.tx takes effect once,
// at-most-once is not repeated on a guess (G14); cleanup runs; misuse is reported and nothing hangs, disappears or leaves a rejection unhandled (G33).
// Method: generated programs, half of them under faults, against an external ledger and a model. `npm run simulate` runs two hundred thousand, and
// checks that every operation, mistake and fault was reached.

import { afterAll, describe, expect, test } from "vitest";
import { addExploration, describeExploration, describeFailure, explore, noExploration, tryCase } from "./explore.ts";
import { detectFeatures } from "./features.ts";
import { REGRESSIONS } from "./regressions.ts";

const PROGRAMS = 2_000;
const SHARE = 250;
const explored = noExploration();

describe("generated programs", () => {
  for (let first = 1; first <= PROGRAMS; first += SHARE)
    test(`programs ${first} to ${first + SHARE - 1} keep every promise`, { timeout: 300_000 }, async () => {
      const found = await explore({ firstSeed: first, seeds: SHARE });
      addExploration(explored, found);
      expect(found.failures.map(describeFailure)).toEqual([]);
    });
});

describe("programs that broke a promise once", () => {
  for (const [name, plan] of Object.entries(REGRESSIONS))
    test(name, { timeout: 60_000 }, async () => {
      const seeds = Array.from({ length: plan.faults ? 20 : 3 }, (_, at) => at + 1);
      for (const seed of [...seeds, ...(plan.worlds ?? [])]) {
        const { finding } = await tryCase(plan, seed, detectFeatures());
        expect(finding).toBeUndefined();
      }
    });
});

afterAll(() => console.log(describeExploration(explored)));
