// Goal: the kernel and workflows keep their promises under every fault there is: G1, G2, G6, G7, G10, G14, G15, G16, G17, G19, G21, G23,
// G25 and G31 (GUARANTEES.md says which scenario stands for which).
// Method: at least 5,000 schedules over all scenarios, each run twice. `npm run simulate` does two hundred thousand.

import { afterAll, expect, test } from "vitest";
import { describe, neverStruck, type SimulationReport, simulate } from "../../src/testing/index.ts";
import { scenarios } from "./scenarios/index.ts";

const SCHEDULES = 5_040;
const reports: SimulationReport[] = [];

for (const { name, options, scenario, regressions = [] } of scenarios)
  test(name, { timeout: 600_000 }, async () => {
    for (const seed of regressions) await simulate(name, { ...options, seeds: 1, firstSeed: seed }, scenario);
    const report = await simulate(name, { ...options, seeds: Math.ceil(SCHEDULES / scenarios.length) }, scenario);
    reports.push(report);
    expect(report.portCalls / report.schedules).toBeGreaterThan(20);
  });

test("every fault struck", () => {
  expect(reports.reduce((sum, report) => sum + report.schedules, 0)).toBeGreaterThanOrEqual(5_000);
  expect(neverStruck(reports)).toEqual([]);
  // Seeds do not draw it by themselves.
  expect(reports.reduce((sum, { struck }) => sum + struck.rewind, 0)).toBeGreaterThan(1_000);
});

afterAll(() => console.log(describe(reports)));
