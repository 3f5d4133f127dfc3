/**
 * Plants one bug, runs its scenario, and prints what caught it: `node run-bug.ts "no fence check"`. Ends with 0 if caught.
 */

import { plant } from "./plant.ts";

const SEEDS = 2_000;

const [, , name = ""] = process.argv;
// The list names scenarios, which load the source; so it is read in a process of its own kind, as text, before the planting.
const { edits, caughtBy, options } = JSON.parse(process.env["PAWL_BUG"] ?? "{}");
plant(edits);
const { simulate, SimulationError } = await import("../../src/testing/index.ts");
const { scenarios } = await import("./scenarios/index.ts");
const found = scenarios.find((one) => one.name === caughtBy);
if (found === undefined) throw new Error(`there is no scenario "${caughtBy}"`);
try {
  await simulate(found.name, { ...found.options, ...options, seeds: SEEDS }, found.scenario);
  console.log(`not caught in ${SEEDS} schedules: ${name}`);
  process.exitCode = 1;
} catch (error) {
  if (!(error instanceof SimulationError)) throw error;
  console.log(`caught by seed ${error.seed}: ${error.message.split("\n")[0]}`);
}
// What the bug left running has no end.
process.exit();
