/** Generated programs in shares, each a test: the first share is in the short suite, the others in the long one. No program is in two. */

import { afterAll, describe, expect, test } from "vitest";
import { addExploration, describeExploration, describeFailure, explore, noExploration, tryCase } from "./explore.ts";
import { detectFeatures } from "./features.ts";
import { REGRESSIONS } from "./regressions.ts";

export const PROGRAMS = 2_000;
export const SHARE = 100;

/** The tests of the programs from `first` to `last`, which are the seeds that they are drawn from. */
export function testPrograms(first: number, last: number): void {
  const explored = noExploration();

  describe("generated programs", () => {
    for (let from = first; from <= last; from += SHARE)
      test(`programs ${from} to ${from + SHARE - 1} keep every promise`, { timeout: 600_000 }, async () => {
        const found = await explore({ firstSeed: from, seeds: SHARE });
        addExploration(explored, found);
        expect(found.failures.map(describeFailure)).toEqual([]);
      });
  });

  afterAll(() => console.log(describeExploration(explored)));
}

/**
 * Runs each program that broke a promise once under these seeds, and under those that it names itself if asked to. Without faults, more than
 * three seeds show nothing new.
 */
export function testRegressions(seeds: { first: number; last: number; isWithWorlds?: boolean }): void {
  const { first, last, isWithWorlds = false } = seeds;
  const range = Array.from({ length: last - first + 1 }, (_, at) => first + at);
  describe("programs that broke a promise once", () => {
    for (const [name, plan] of Object.entries(REGRESSIONS)) {
      const chosen = range.filter((seed) => plan.faults || seed <= 3);
      const all = [...chosen, ...(isWithWorlds ? (plan.worlds ?? []) : [])];
      if (all.length > 0)
        test(name, { timeout: 60_000 }, async () => {
          for (const seed of all) {
            const { finding } = await tryCase(plan, seed, detectFeatures());
            expect(finding).toBeUndefined();
          }
        });
    }
  });
}
