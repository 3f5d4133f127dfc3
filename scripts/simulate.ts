/**
 * `npm run simulate`: many schedules over every scenario, in as many processes as there are cores.
 *
 *   npm run simulate                          200,000 schedules
 *   npm run simulate -- --schedules 10000
 *   npm run simulate -- --scenario "money moves once" --first-seed 77
 *
 * It prints port calls for each schedule and how often each fault struck; a fault that never struck is a failure.
 */

import { fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { describe, neverStruck, type SimulationReport, simulate } from "../src/testing/index.ts";
import { scenarios } from "../test/simulation/scenarios/index.ts";

/** A share small enough that the processes end together. */
const SHARE = 250;

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
  },
});

if (process.send === undefined) await lead();
else work();

async function lead(): Promise<void> {
  const chosen = scenarios.filter(({ name }) => name.includes(values.scenario));
  if (chosen.length === 0)
    throw new Error(`there is no scenario "${values.scenario}": ${scenarios.map((s) => s.name).join("; ")}`);
  const each = Math.ceil(Number(values.schedules) / chosen.length);
  if (!(each >= 1)) throw new Error(`--schedules must be a number of at least 1, not "${values.schedules}"`);
  const first = Number(values["first-seed"]);
  const shares: Share[] = [];
  for (let seed = 0; seed < each; seed += SHARE)
    for (const { name } of chosen)
      shares.push({ scenario: name, firstSeed: first + seed, seeds: Math.min(SHARE, each - seed) });
  const reports: SimulationReport[] = [];
  const startedMs = performance.now();
  const total = shares.length;
  let broken: string | undefined;
  const worker = (): Promise<void> =>
    new Promise((resolve) => {
      const child = fork(fileURLToPath(import.meta.url), { execArgv: process.execArgv });
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
  console.log(broken === undefined ? `${schedules} schedules, each run twice, in ${seconds} s: no failure` : broken);
  process.exitCode = broken === undefined ? 0 : 1;
}

function work(): void {
  process.on("message", async ({ scenario, firstSeed, seeds }: Share) => {
    const found = scenarios.find(({ name }) => name === scenario);
    if (found === undefined) throw new Error(`there is no scenario "${scenario}"`);
    try {
      process.send?.({ report: await simulate(found.name, { ...found.options, firstSeed, seeds }, found.scenario) });
    } catch (error) {
      process.send?.({ broken: error instanceof Error ? error.message : String(error) });
    }
  });
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
