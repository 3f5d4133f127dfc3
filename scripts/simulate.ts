/**
 * `npm run simulate`: many schedules over every scenario, in as many processes as there are cores.
 *
 *   npm run simulate                          200,000 schedules
 *   npm run simulate -- --schedules 10000
 *   npm run simulate -- --scenario "money moves once" --first-seed 77
 *   npm run simulate -- --store postgres --seeds 50       50 schedules of each scenario on a real server, 20 unless said
 *
 * It prints port calls for each schedule and how often each fault struck; a fault that never struck is a failure.
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
import { scenarios as memoryScenarios } from "../test/simulation/scenarios/index.ts";

interface Share {
  readonly scenario: string;
  readonly firstSeed: number;
  readonly seeds: number;
}

const { values } = parseArgs({
  options: {
    schedules: { type: "string", default: "200000" },
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

/** A share small enough that the processes end together. */
const SHARE = isPostgres ? 5 : 250;

if (process.send === undefined) await lead();
else work();

async function lead(): Promise<void> {
  const chosen = scenarios.filter(({ name }) => name.includes(values.scenario));
  if (chosen.length === 0)
    throw new Error(`there is no scenario "${values.scenario}": ${scenarios.map((s) => s.name).join("; ")}`);
  const seeds = values.seeds === "" && isPostgres ? "20" : values.seeds;
  const each = seeds === "" ? Math.ceil(Number(values.schedules) / chosen.length) : Number(seeds);
  if (!(each >= 1)) throw new Error("--schedules and --seeds must be numbers of at least 1");
  const first = Number(values["first-seed"]);
  const shares: Share[] = [];
  for (let seed = 0; seed < each; seed += SHARE)
    for (const { name } of chosen)
      shares.push({ scenario: name, firstSeed: first + seed, seeds: Math.min(SHARE, each - seed) });
  const reports: SimulationReport[] = [];
  const startedMs = performance.now();
  const total = shares.length;
  const { PAWL_TEST_POSTGRES: given = "" } = process.env;
  const server = isPostgres && given === "" ? await startPostgres() : undefined;
  const env = { ...process.env, PAWL_TEST_POSTGRES: server?.url ?? given };
  let broken: string | undefined;
  const worker = (): Promise<void> =>
    new Promise((resolve) => {
      const args = ["--store", values.store];
      const child = fork(fileURLToPath(import.meta.url), args, { execArgv: process.execArgv, env });
      const next = () => {
        const share = broken === undefined ? shares.shift() : undefined;
        if (share === undefined) child.disconnect();
        else child.send(share);
      };
      child.on("message", (answer: { report?: SimulationReport; broken?: string }) => {
        if (answer.report !== undefined) reports.push(answer.report);
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
  console.log(describe(merged));
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  const schedules = merged.reduce((sum, report) => sum + report.schedules, 0);
  const silent = values.scenario === "" ? neverStruck(merged) : [];
  if (silent.length > 0) broken ??= `these faults never struck: ${silent.join(", ")}`;
  const times = isPostgres ? "once" : "twice";
  console.log(broken ?? `${schedules} schedules, each run ${times}, in ${seconds} s: no failure`);
  process.exitCode = broken === undefined ? 0 : 1;
}

function work(): void {
  let place: ReturnType<typeof settleDown> | undefined;
  process.on("message", async ({ scenario, firstSeed, seeds }: Share) => {
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
