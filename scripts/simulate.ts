/**
 * `npm run simulate`: many schedules over every scenario, in as many processes as there are cores.
 *
 *   npm run simulate                          200,000 schedules, and 200,000 generated workflow programs
 *   npm run simulate -- --schedules 10000
 *   npm run simulate -- --scenario "money moves once" --first-seed 77
 *   npm run simulate -- --store postgres --seeds 50       50 schedules of each scenario on a real server, 20 unless said
 *   npm run simulate -- --programs 5000                   generated workflow programs only (test/programs)
 *   npm run simulate -- --programs 5000 --keep 3          goes on after failures, and shows three of each rule
 *
 * It prints port calls for each schedule and how often each fault struck; a fault that never struck is a failure. For programs it prints
 * which operations, mistakes and faults were reached, and how often; one that was never reached is a failure.
 *
 * On PostgreSQL each schedule runs once, because a real server does not go the same way twice. The server is the one that
 * `PAWL_TEST_POSTGRES` names, or one of its own.
 */

import { fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { describe, neverStruck, type SimulationReport, simulate } from "../src/testing/index.ts";
import { simulateOn } from "../src/testing/simulate.ts";
import { freshDatabase, startPostgres } from "../test/postgres/server.ts";
import { FAULTS_MS, PostgresGround, postgresScenarios } from "../test/postgres/simulated.ts";
import {
  addExploration,
  describeExploration,
  describeFailure,
  type Exploration,
  explore,
  neverReached,
  noExploration,
} from "../test/programs/explore.ts";
import { detectFeatures } from "../test/programs/features.ts";
import { scenarios as memoryScenarios } from "../test/simulation/scenarios/index.ts";

interface Share {
  readonly scenario: string;
  readonly firstSeed: number;
  readonly seeds: number;
}

const { values } = parseArgs({
  options: {
    schedules: { type: "string" },
    programs: { type: "string" },
    keep: { type: "string" },
    scenario: { type: "string", default: "" },
    "first-seed": { type: "string", default: "1" },
    store: { type: "string", default: "memory" },
    seeds: { type: "string", default: "" },
  },
});

if (values.store !== "memory" && values.store !== "postgres")
  throw new Error(`--store must be memory or postgres, not "${values.store}"`);
const isPostgres = values.store === "postgres";
const scenarios = isPostgres ? postgresScenarios : memoryScenarios;

/** The shares that are generated programs; so many of them reach everything. */
const PROGRAMS = "workflow programs";
const ENOUGH = 2_000;

/** How many schedules and programs: both unless one of them is asked for. */
function amounts(): { readonly schedules: number; readonly programs: number } {
  const { schedules, programs, scenario, seeds } = values;
  const isNamed = scenario !== "" || seeds !== "" || isPostgres;
  if (programs !== undefined && schedules === undefined && !isNamed)
    return { schedules: 0, programs: Number(programs) };
  const isAll = schedules === undefined && !isNamed;
  return { schedules: Number(schedules ?? 200_000), programs: Number(programs ?? (isAll ? 200_000 : 0)) };
}

/** A share small enough that the processes end together. */
const SHARE = isPostgres ? 5 : 250;

if (process.send === undefined) await lead();
else work();

async function lead(): Promise<void> {
  const { schedules, programs } = amounts();
  const chosen = schedules === 0 ? [] : scenarios.filter(({ name }) => name.includes(values.scenario));
  if (chosen.length === 0 && schedules > 0)
    throw new Error(`there is no scenario "${values.scenario}": ${scenarios.map((s) => s.name).join("; ")}`);
  const seeds = values.seeds === "" && isPostgres ? "20" : values.seeds;
  const each = chosen.length === 0 ? 0 : seeds === "" ? Math.ceil(schedules / chosen.length) : Number(seeds);
  if (!(each >= 1 || programs >= 1)) throw new Error("--schedules and --seeds must be numbers of at least 1");
  const first = Number(values["first-seed"]);
  const shares: Share[] = [];
  for (let seed = 0; seed < each; seed += SHARE)
    for (const { name } of chosen)
      shares.push({ scenario: name, firstSeed: first + seed, seeds: Math.min(SHARE, each - seed) });
  for (let seed = 0; seed < programs; seed += SHARE)
    shares.push({ scenario: PROGRAMS, firstSeed: first + seed, seeds: Math.min(SHARE, programs - seed) });
  const explored = noExploration();
  const reports: SimulationReport[] = [];
  const startedMs = performance.now();
  const total = shares.length;
  const { PAWL_TEST_POSTGRES: given = "" } = process.env;
  const server = isPostgres && given === "" ? await startPostgres() : undefined;
  const env = { ...process.env, PAWL_TEST_POSTGRES: server?.url ?? given };
  let broken: string | undefined;
  const worker = (): Promise<void> =>
    new Promise((resolve) => {
      const args = ["--store", values.store, ...(values.keep === undefined ? [] : ["--keep", values.keep])];
      const child = fork(fileURLToPath(import.meta.url), args, {
        execArgv: process.execArgv,
        env,
        serialization: "advanced",
      });
      const next = () => {
        const share = broken === undefined ? shares.shift() : undefined;
        if (share === undefined) child.disconnect();
        else child.send(share);
      };
      child.on("message", (answer: { report?: SimulationReport; explored?: Exploration; broken?: string }) => {
        if (answer.report !== undefined) reports.push(answer.report);
        if (answer.explored !== undefined) {
          addExploration(explored, answer.explored);
          const [failure] = answer.explored.failures;
          if (failure !== undefined && values.keep === undefined) broken ??= describeFailure(failure);
        }
        broken ??= answer.broken;
        const done = total - shares.length;
        if (done % 40 === 0)
          console.log(
            `${Math.round((done / total) * 100)} % after ${Math.round((performance.now() - startedMs) / 1000)} s`,
          );
        next();
      });
      child.on("exit", (code) => {
        if (code !== 0) broken ??= `a process ended with ${code}`;
        resolve();
      });
      next();
    });
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  await server?.destroy();
  const merged = chosen.map(({ name }) =>
    merge(
      name,
      reports.filter((report) => report.name === name),
    ),
  );
  if (merged.length > 0) console.log(describe(merged));
  if (programs > 0) tellPrograms(explored);
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  const done = merged.reduce((sum, report) => sum + report.schedules, 0);
  const silent = values.scenario === "" && merged.length > 0 ? neverStruck(merged) : [];
  if (silent.length > 0) broken ??= `these faults never struck: ${silent.join(", ")}`;
  const unreached = programs >= ENOUGH ? neverReached(explored, detectFeatures()) : [];
  if (unreached.length > 0) broken ??= `programs never reached: ${unreached.join(", ")}`;
  if (explored.failed > 0) broken ??= `${explored.failed} programs failed`;
  const times = isPostgres ? "once" : "twice";
  console.log(
    broken ?? `${done} schedules, each run ${times}, and ${explored.programs} programs in ${seconds} s: no failure`,
  );
  process.exitCode = broken === undefined ? 0 : 1;
}

function tellPrograms(explored: Exploration): void {
  if (values.keep !== undefined) for (const failure of explored.failures) console.log(`${describeFailure(failure)}\n`);
  console.log(describeExploration(explored));
}

function work(): void {
  let place: ReturnType<typeof settleDown> | undefined;
  process.on("message", async ({ scenario, firstSeed, seeds }: Share) => {
    if (scenario === PROGRAMS) {
      const keep = values.keep === undefined ? undefined : Number(values.keep);
      process.send?.({ explored: await explore({ firstSeed, seeds, keep }) });
      return;
    }
    const found = scenarios.find(({ name }) => name === scenario);
    if (found === undefined) throw new Error(`there is no scenario "${scenario}"`);
    const options = { ...found.options, firstSeed, seeds };
    try {
      if (isPostgres) place ??= settleDown();
      const ground = (await place)?.ground;
      const report =
        ground === undefined
          ? await simulate(found.name, options, found.scenario)
          : await simulateOn(ground, found.name, { faultsMs: FAULTS_MS, ...options }, found.scenario);
      process.send?.({ report });
    } catch (error) {
      process.send?.({ broken: error instanceof Error ? error.message : String(error) });
    }
  });
  process.on("disconnect", async () => {
    const { ground, drop } = (await place) ?? {};
    await ground?.close();
    await drop?.();
  });
}

/** A database of this process's own. */
async function settleDown(): Promise<{ ground: PostgresGround; drop: () => Promise<void> }> {
  const { url, drop } = await freshDatabase();
  return { ground: await PostgresGround.make(url), drop };
}

function merge(name: string, reports: readonly SimulationReport[]): SimulationReport {
  return reports.reduce(
    (sum, report) => ({
      name,
      schedules: sum.schedules + report.schedules,
      portCalls: sum.portCalls + report.portCalls,
      struck: Object.fromEntries(
        Object.entries(report.struck).map(([fault, count]) => [
          fault,
          count + (sum.struck[fault as keyof typeof sum.struck] ?? 0),
        ]),
      ) as SimulationReport["struck"],
    }),
    { name, schedules: 0, portCalls: 0, struck: {} as SimulationReport["struck"] },
  );
}
