/**
 * Plants one bug of planted.ts, runs its scenario on PostgreSQL, and prints what caught it. Ends with 0 if caught. The bug comes as
 * JSON in `PAWL_BUG`, because the list itself loads the source that it is planted into.
 */

import { plant } from "../simulation/plant.ts";

const SEEDS = 40;

const { name, edits, caughtBy, options } = JSON.parse(process.env["PAWL_BUG"] ?? "{}");
plant(edits);
const { SimulationError } = await import("../../src/testing/index.ts");
const { simulateOn } = await import("../../src/testing/simulate.ts");
const { FAULTS_MS, postgresScenarios, PostgresGround } = await import("./simulated.ts");
const { freshDatabase } = await import("./server.ts");
const found = postgresScenarios.find((one) => one.name === caughtBy);
if (found === undefined) throw new Error(`there is no scenario "${caughtBy}"`);
const database = await freshDatabase();
const ground = await PostgresGround.make(database.url);
try {
  const all = { faultsMs: FAULTS_MS, seeds: SEEDS, ...found.options, ...options };
  await simulateOn(ground, found.name, all, found.scenario);
  console.log(`not caught: ${name}`);
  process.exitCode = 1;
} catch (error) {
  if (!(error instanceof SimulationError)) throw error;
  console.log(`caught by seed ${error.seed}: ${error.message.split("\n")[0]}`);
} finally {
  await ground.close();
  await database.drop();
}
