/**
 * `npm run bench`: ours beside the raw limit, in one run, as ratios.
 *
 *   npm run bench                          all cases, a few minutes
 *   npm run bench -- --only a,d            some of them
 *   npm run bench -- --rounds 15           more rounds, for a noisy machine
 *   npm run bench -- --quick               seconds, to see that everything runs
 *   npm run bench -- --save                also into docs/bench/, to be checked in
 *
 * It prints a table and writes results.json and chart.svg into bench/out/ (or `--out`). The databases are made in a folder
 * there and removed; `--folder` puts them on another disk. A missed target is told and is no failure: time is not asserted.
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { cases } from "./cases.ts";
import { drawChart } from "./chart.ts";
import { describeMachine } from "./machine.ts";
import type { Report, Result } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { drawTable } from "./table.ts";

const home = import.meta.dirname;
const QUICK_ROUNDS = 2;

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    save: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    rounds: { type: "string" },
    date: { type: "string", default: new Date().toISOString().slice(0, 10) },
    out: { type: "string", default: join(home, "out") },
    folder: { type: "string" },
  },
});

await main();

async function main(): Promise<void> {
  const chosen = chooseCases(options.only);
  const out = resolve(options.out);
  mkdirSync(out, { recursive: true });
  const folder = mkdtempSync(join(resolve(options.folder ?? out), "databases-"));
  const removeFolder = () => rmSync(folder, { recursive: true, force: true });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
    process.once(signal, () => {
      removeFolder();
      process.exit(1);
    });
  try {
    const report = await runCases(chosen, folder);
    console.log(`\n${drawTable(report)}`);
    for (const place of options.save ? [out, join(home, "../docs/bench")] : [out]) {
      mkdirSync(place, { recursive: true });
      writeFileSync(join(place, "results.json"), `${JSON.stringify(report, rounded, 2)}\n`);
      writeFileSync(join(place, "chart.svg"), drawChart(report));
    }
  } finally {
    removeFolder();
  }
}

async function runCases(chosen: typeof cases, folder: string): Promise<Report> {
  const machine = describeMachine(folder);
  const startedMs = performance.now();
  const results: Result[] = [];
  for (const { id, title, run } of chosen) {
    const caseStartedMs = performance.now();
    process.stdout.write(`${id.padEnd(3)} ${title} … `);
    const found = await run(settingIn(folder));
    results.push(...(options.quick ? found.map(withoutTarget) : found));
    console.log(`${((performance.now() - caseStartedMs) / 1000).toFixed(1)} s`);
  }
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  return { format: 1, date: options.date, mode: options.quick ? "quick" : "full", seconds, machine, results };
}

/** A quick run's figures mean nothing, so they neither reach nor miss anything. */
function withoutTarget(result: Result): Result {
  return { ...result, target: null, reached: null };
}

function settingIn(folder: string): Setting {
  const asked = options.rounds === undefined ? undefined : Number(options.rounds);
  if (asked !== undefined && !(Number.isSafeInteger(asked) && asked > 0))
    throw new Error(`--rounds must be a whole number above 0, and is "${options.rounds}"`);
  const { quick } = options;
  return { folder, quick, rounds: (wished) => asked ?? (quick ? QUICK_ROUNDS : wished) };
}

/** "f" means f1 and f2 as well. */
function chooseCases(only: string): typeof cases {
  if (only === "") return cases;
  const names = only.split(",").map((name) => name.trim());
  const unknown = names.find((name) => name === "" || !cases.some(({ id }) => id.startsWith(name)));
  if (unknown !== undefined)
    throw new Error(`there is no case "${unknown}"; the cases are ${cases.map(({ id }) => id).join(", ")}`);
  return cases.filter(({ id }) => names.some((name) => id.startsWith(name)));
}

/** Six digits are more than any of this is worth. */
function rounded(_: string, value: unknown): unknown {
  return typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value;
}
