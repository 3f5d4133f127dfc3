/**
 * Real faults on real processes: workers are killed and stopped, connections cut, servers crashed and replaced, and the acknowledged
 * commits are compared with the database.
 *
 *   node --conditions=pawl-source scripts/faults.ts --minutes 30 --seed 7 --workers 4
 *   node --conditions=pawl-source scripts/faults.ts --minutes 1 --only promoted --postgres 14
 *   node --conditions=pawl-source scripts/faults.ts --minutes 1 --store sqlite
 *   node --conditions=pawl-source scripts/faults.ts --minutes 1 --works streams,runs
 *   node --conditions=pawl-source scripts/faults.ts --lossy --promotions 50 --restores 10
 *
 * It exits with 1 if anything was lost, duplicated or out of order, or if a kind of fault never occurred, and prints a report. Clocks are
 * skewed by libfaketime if it is installed (Debian: the package "faketime").
 *
 * With --lossy, commits are lost on purpose: by promotions of a standby that is behind, and by restores of a backup. It then exits with 1 if a
 * commit is lost that was acknowledged after such a loss, or if a run does not end with a complete history.
 */

import { parseArgs } from "node:util";
import { describeLossy, runLossy } from "../test/faults/lossy.ts";
import { describeRun } from "../test/faults/report.ts";
import { runFaults } from "../test/faults/run.ts";
import { works } from "../test/faults/works/index.ts";
import { postgresVersions } from "../test/postgres/server.ts";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "5" },
    seed: { type: "string", default: "1" },
    workers: { type: "string", default: "4" },
    store: { type: "string", default: "postgres" },
    postgres: { type: "string", default: "18" },
    only: { type: "string" },
    works: { type: "string" },
    quiet: { type: "boolean", default: false },
    lossy: { type: "boolean", default: false },
    promotions: { type: "string", default: "10" },
    restores: { type: "string", default: "2" },
  },
});

const seconds = 60 * atLeast(0, values.minutes, "--minutes");
const workers = atLeast(1, values.workers, "--workers");
const seed = atLeast(0, values.seed, "--seed");
if (values.store !== "postgres" && values.store !== "sqlite") throw new Error("--store must be postgres or sqlite");
const version = postgresVersions.find((one) => String(one) === values.postgres);
if (version === undefined) throw new Error(`--postgres must be one of ${postgresVersions.join(", ")}`);

const startedMs = performance.now();
const common = { version, seed, workers, ...(values.quiet ? {} : { say }) };
process.exitCode = (await (values.lossy ? lose() : strike())) ? 0 : 1;

async function strike(): Promise<boolean> {
  const store = values.store === "sqlite" ? "sqlite" : "postgres";
  const report = await runFaults({ ...common, store, seconds, only: values.only, works: chosen() });
  console.log(`\n${describeRun(report)}`);
  const silent = [...report.struck].filter(([, count]) => count === 0).map(([name]) => name);
  if (silent.length > 0) console.log(`these faults never struck: ${silent.join("; ")}`);
  return report.violations.length === 0 && silent.length === 0;
}

/** Deposits are always among them: by those the crew shows that it is at work. */
function chosen(): typeof works | undefined {
  const names = values.works?.split(",");
  const unknown = names?.find((name) => !works.some((work) => work.name === name));
  if (unknown !== undefined) throw new Error(`--works must be of ${works.map(({ name }) => name).join(", ")}`);
  return names === undefined ? undefined : works.filter(({ name }) => name === "deposits" || names.includes(name));
}

async function lose(): Promise<boolean> {
  const promotions = atLeast(0, values.promotions, "--promotions");
  const restores = atLeast(0, values.restores, "--restores");
  const report = await runLossy({ ...common, promotions, restores });
  console.log(`\n${describeLossy(report)}`);
  return report.violations.length === 0;
}

function say(sentence: string): void {
  console.log(`${((performance.now() - startedMs) / 1000).toFixed(1).padStart(8)} s  ${sentence}`);
}

function atLeast(least: number, text: string, name: string): number {
  const number = Number(text);
  if (!(number >= least)) throw new Error(`${name} must be a number of at least ${least}, not "${text}"`);
  return number;
}
