/**
 * `npm run simulate`: many schedules of every scenario, in one process for each core.
 *
 *   npm run simulate                          200,000 schedules, and 200,000 generated workflow programs
 *   npm run simulate -- --schedules 10000
 *   npm run simulate -- --minutes 30                      ends after this time, with about equal shares of everything, and says how many it did
 *   npm run simulate -- --scenario "money moves once" --first-seed 77
 *   npm run simulate -- --store postgres --seeds 50       50 schedules of each scenario on a real server (default: 20)
 *   npm run simulate -- --programs 5000                   generated workflow programs only (test/programs)
 *   npm run simulate -- --programs 5000 --keep 3          continues after failures, and shows three of each rule
 *
 * It prints the port calls of each schedule and how often each fault occurred; a fault that never occurred is a failure. For programs it prints
 * which operations, mistakes and faults were reached, and how often; one that was never reached is a failure.
 *
 * On PostgreSQL each schedule runs once, because executions on a real server are not repeatable. It uses the server that
 * `PAWL_TEST_POSTGRES` names, or starts one.
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
    minutes: { type: "string" },
  },
});

if (values.store !== "memory" && values.store !== "postgres")
  throw new Error(`--store must be memory or postgres, not "${values.store}"`);
const isPostgres = values.store === "postgres";
const scenarios = isPostgres ? postgresScenarios : memoryScenarios;

/** The size of a share of generated programs: large enough to reach everything. */
const PROGRAMS = "workflow programs";
const ENOUGH = 2_000;

/** The numbers of schedules and programs. Default: both; with one of the options, only that. */
function amounts(): { readonly schedules: number; readonly programs: number } {
  const { schedules, programs, scenario, seeds } = values;
  const isNamed = scenario !== "" || seeds !== "" || isPostgres;
  if (programs !== undefined && schedules === undefined && !isNamed)
    return { schedules: 0, programs: Number(programs) };
  const isAll = schedules === undefined && !isNamed;
  return { schedules: Number(schedules ?? 200_000), programs: Number(programs ?? (isAll ? 200_000 : 0)) };
}

/** The size of a share: small enough that the processes end at about the same time. */
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
  const sharesOf = (scenario: string, all: number): Share[] =>
    Array.from({ length: Math.ceil(all / SHARE) }, (_, index) => ({
      scenario,
      firstSeed: first + index * SHARE,
      seeds: Math.min(SHARE, all - index * SHARE),
    }));
  const shares = inTurns([...chosen.flatMap(({ name }) => sharesOf(name, each)), ...sharesOf(PROGRAMS, programs)]);
  const minutes = Number(values.minutes ?? Number.POSITIVE_INFINITY);
  if (!(minutes > 0)) throw new Error("--minutes must be a number above 0");
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
        const isOver = broken !== undefined || performance.now() - startedMs > 60_000 * minutes;
        const share = isOver ? undefined : shares.shift();
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

/** In an order in which every scenario is as far along as the others, so that one that is stopped early has done some of everything. */
function inTurns(shares: readonly Share[]): Share[] {
  const byScenario = Map.groupBy(shares, ({ scenario }) => scenario);
  const progress = new Map<Share, number>();
  for (const own of byScenario.values())
    for (const [index, share] of own.entries()) progress.set(share, index / own.length);
  return shares.toSorted((a, b) => (progress.get(a) ?? 0) - (progress.get(b) ?? 0));
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

/** A database for this process alone. */
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
