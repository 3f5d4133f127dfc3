/**
 * The schedules of every scenario, in shares: the first is in the short suite, the others are files of the long suite, so that they run on
 * all cores. Each share goes through all scenarios, and no two have a seed in common.
 *
 * Each schedule runs twice. `npm run simulate` does two hundred thousand.
 */

import { afterAll, expect, test } from "vitest";
import { describe, neverStruck, type SimulationReport, simulate } from "../../src/testing/index.ts";
import { scenarios } from "./scenarios/index.ts";

export interface Share {
  readonly firstSeed: number;
  readonly seeds: number;
}

export const SHARES: readonly [Share, ...Share[]] = [
  { firstSeed: 1, seeds: 4 },
  { firstSeed: 5, seeds: 57 },
  { firstSeed: 62, seeds: 56 },
  { firstSeed: 118, seeds: 57 },
  { firstSeed: 175, seeds: 56 },
];

/** Seeds do not draw a rewind by themselves: those that ask for it get about so many for each seed, over all scenarios. */
const REWINDS_A_SEED = 4.3;

/** The tests of one share; those of the first also run the seeds that broke a scenario once. */
export function testShare(index: number): void {
  const share = SHARES[index];
  if (share === undefined) throw new Error(`there is no share ${index}`);
  const reports: SimulationReport[] = [];

  for (const { name, options, scenario, regressions = [] } of scenarios)
    test(name, { timeout: 600_000 }, async () => {
      if (index === 0)
        for (const seed of regressions) await simulate(name, { ...options, seeds: 1, firstSeed: seed }, scenario);
      const report = await simulate(name, { ...options, ...share }, scenario);
      reports.push(report);
      expect(report.portCalls / report.schedules).toBeGreaterThan(20);
    });

  test("every fault struck", () => {
    expect(reports.reduce((sum, report) => sum + report.schedules, 0)).toBe(share.seeds * scenarios.length);
    expect(neverStruck(reports)).toEqual([]);
    expect(reports.reduce((sum, { struck }) => sum + struck.rewind, 0)).toBeGreaterThan(share.seeds * REWINDS_A_SEED);
  });

  afterAll(() => console.log(describe(reports)));
}
