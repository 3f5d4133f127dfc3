// Goal: what the simulator shows of the kernel on its store in memory holds on the real PostgreSQL store and a real server: G2, G6, G7,
// G10, G16, G17, G19 and G25, by the same scenarios and the same checkers.
// Method: a few schedules of each scenario. `npm run simulate -- --store postgres` does as many as you like. That it finds bugs of a
// store is shown by planted.long.test.ts.

import { afterAll, beforeAll, expect, test } from "vitest";
import { describe, type Fault, type SimulationReport } from "../../src/testing/index.ts";
import { simulateOn } from "../../src/testing/simulate.ts";
import { jobs } from "../simulation/scenarios/jobs.ts";
import { type FreshDatabase, freshDatabase } from "./server.ts";
import { FAULTS_MS, PostgresGround, postgresScenarios } from "./simulated.ts";

const SEEDS = 3;
/** The longest scenario has fewer schedules, in which the server's clock jumps for certain. */
const LONGEST = { seeds: 2, storeClockJump: 0.01 };

let database: FreshDatabase;
let ground: PostgresGround;
const reports: SimulationReport[] = [];

beforeAll(async () => {
  database = await freshDatabase();
  ground = await PostgresGround.make(database.url);
}, 60_000);

afterAll(async () => {
  await ground?.close();
  await database?.drop();
  console.log(describe(reports));
});

for (const { name, options, scenario } of postgresScenarios)
  test(name, { timeout: 120_000 }, async () => {
    const all = { faultsMs: FAULTS_MS, seeds: SEEDS, ...options, ...(name === jobs.name ? LONGEST : {}) };
    reports.push(await simulateOn(ground, name, all, scenario));
  });

const hard: readonly Fault[] = [
  "lostRequest",
  "lostReply",
  "lateRequest",
  "delay",
  "crash",
  "pause",
  "clockJump",
  "storeClockJump",
  "busy",
];

test.each(hard)("a fault struck: %s", (fault) => {
  expect(reports.reduce((sum, { struck }) => sum + struck[fault], 0)).toBeGreaterThan(0);
});
