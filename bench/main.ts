/**
 * `npm run bench`: Pawl compared with the raw limit, in one run, as ratios.
 *
 *   npm run bench                          all cases on SQLite and PostgreSQL, except those of scale
 *   npm run bench -- postgres              one store, "sqlite" or "postgres"
 *   npm run bench -- --only a,d            some cases
 *   npm run bench -- --rounds 15           more rounds, for a noisy machine
 *   npm run bench -- --quick               to see that everything runs, within a minute
 *   npm run bench -- --save                also into docs/bench/, to be checked in
 *   npm run bench -- --against HEAD~3      this checkout beside an older one (against.ts)
 *
 * It prints a table for each store and writes results.json and chart.svg into bench/out/ (or `--out`); what is there of a store
 * that was not measured is kept. SQLite's files are made in a folder there and removed; `--folder` puts them on another disk.
 * PostgreSQL is a server of our own, in the system's temporary folder, or the one that `PAWL_TEST_POSTGRES` names. A missed target
 * is reported and is no failure: times are not asserted.
 */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { type AgainstOptions, compareAgainst } from "./against.ts";
import { sqliteCases } from "./cases.ts";
import { postgresFlowCases, sqliteFlowCases } from "./cases-flow.ts";
import { postgresLockCases, sqliteLockCases } from "./cases-locks.ts";
import { postgresOnceCases, sqliteOnceCases } from "./cases-once.ts";
import { postgresCases } from "./cases-postgres.ts";
import { postgresStreamCases, sqliteStreamCases } from "./cases-streams.ts";
import { drawChart } from "./chart.ts";
import type { Case } from "./comparisons.ts";
import { type Ground, sqliteGround } from "./ground.ts";
import { type PostgresGround, postgresGround } from "./ground-postgres.ts";
import { describeMachine } from "./machine.ts";
import { type Machine, type Report, type Result, type Saved, STORES, type StoreName } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { drawTable } from "./table.ts";

const home = import.meta.dirname;
const QUICK_ROUNDS = 1;

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    store: { type: "string", multiple: true, default: [] },
    quick: { type: "boolean", default: false },
    save: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    rounds: { type: "string" },
    date: { type: "string", default: new Date().toISOString().slice(0, 10) },
    out: { type: "string", default: join(home, "out") },
    folder: { type: "string" },
    against: { type: "string" },
    processes: { type: "string", default: "8" },
    pairs: { type: "string", default: "8" },
    callers: { type: "string", default: "100" },
  },
});

/** A store: what is measured of it, and how to get there. */
interface Bench<G extends Ground = Ground> {
  readonly cases: readonly Case<G>[];
  open(folder: string): Promise<{ ground: G; machine: Machine; close(): Promise<void> }>;
}

const sqlite: Bench = {
  cases: [...sqliteCases, ...sqliteLockCases, ...sqliteOnceCases, ...sqliteStreamCases, ...sqliteFlowCases],
  open: async (folder) => ({
    ground: sqliteGround(folder),
    machine: describeMachine(`SQLite ${process.versions["sqlite"]}`, folder),
    close: async () => {},
  }),
};

const postgres: Bench<PostgresGround> = {
  cases: [...postgresCases, ...postgresLockCases, ...postgresOnceCases, ...postgresStreamCases, ...postgresFlowCases],
  open: async () => {
    const ground = await postgresGround();
    const machine = describeMachine(ground.server, ground.isOurs ? tmpdir() : null);
    return { ground, machine, close: () => ground.close() };
  },
};

interface Asked {
  readonly folder: string;
  /** What the ids of the cases begin with; none for all cases. */
  readonly names: readonly string[];
  readonly rounds: number | undefined;
}

await main();

async function main(): Promise<void> {
  const stores = chooseStores([...positionals, ...options.store]);
  if (options.against !== undefined) return compareAgainst(chooseComparison(options.against, stores));
  const names = chooseNames(options.only, stores);
  const rounds = chooseRounds(options.rounds);
  const out = resolve(options.out);
  mkdirSync(out, { recursive: true });
  const folder = mkdtempSync(join(resolve(options.folder ?? out), "databases-"));
  const removeFolder = () => rmSync(folder, { recursive: true, force: true });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
    process.once(signal, () => {
      removeFolder();
      process.exit(1);
    });
  const asked = { folder, names, rounds };
  try {
    const places = options.save ? [out, join(home, "../docs/bench")] : [out];
    for (const store of stores) {
      const report = await (store === "sqlite" ? measure(sqlite, asked) : measure(postgres, asked));
      if (report === null) continue;
      console.log(`\n${drawTable(report)}\n`);
      for (const place of places) save(place, store, report);
    }
  } finally {
    removeFolder();
  }
}

/** Runs the chosen cases, if this store has any of them. */
async function measure<G extends Ground>(bench: Bench<G>, { folder, names, rounds }: Asked): Promise<Report | null> {
  // The cases of scale take longer than all the others together, so they run by name only.
  const isChosen = (id: string) =>
    names.length === 0 ? !id.startsWith("s") : names.some((name) => id.startsWith(name));
  const chosen = bench.cases.filter(({ id }) => isChosen(id));
  if (chosen.length === 0) return null;
  const { quick, date } = options;
  const { ground, machine, close } = await bench.open(folder);
  const notes: string[] = [];
  const setting: Setting<G> = {
    ground,
    folder,
    quick,
    note: (sentence) => void notes.push(sentence),
    rounds: (wished) => rounds ?? (quick ? QUICK_ROUNDS : wished),
  };
  const results: Result[] = [];
  const startedMs = performance.now();
  try {
    console.log(machine.database);
    for (const one of chosen) {
      const caseStartedMs = performance.now();
      process.stdout.write(`${one.id.padEnd(3)} ${one.title} … `);
      const found = await one.run(setting);
      results.push(...(quick ? found.map(withoutTarget) : found));
      console.log(`${((performance.now() - caseStartedMs) / 1000).toFixed(1)} s`);
    }
  } finally {
    await close();
  }
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  return { date, mode: quick ? "quick" : "full", seconds, machine, results, notes };
}

/** The figures of a quick run mean nothing, so they are not compared with targets. */
function withoutTarget(result: Result): Result {
  return { ...result, target: null, reached: null };
}

/** Keeps the saved results of other stores. */
function save(place: string, store: StoreName, report: Report): void {
  mkdirSync(place, { recursive: true });
  const path = join(place, "results.json");
  const saved: Saved = { ...readSaved(path), [store]: report };
  const inOrder = STORES.flatMap((name) => (saved[name] === undefined ? [] : [[name, saved[name]] as const]));
  const text = JSON.stringify({ format: 2, ...Object.fromEntries(inOrder) }, rounded, 2);
  writeFileSync(path, `${text}\n`);
  writeFileSync(join(place, "chart.svg"), drawChart(inOrder.map(([, one]) => one)));
}

/** What an earlier release saved in another form is not kept. */
function readSaved(path: string): Saved {
  try {
    const saved: Saved = JSON.parse(readFileSync(path, "utf8"));
    if (saved.format === 2) return saved;
  } catch {
    // There is none yet.
  }
  return { format: 2 };
}

/** Six digits are more than enough. */
function rounded(_: string, value: unknown): unknown {
  return typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value;
}

// ---------------------------------------------------------------------------------------------------- what was asked

function chooseStores(names: readonly string[]): readonly StoreName[] {
  const isStore = (name: string): name is StoreName => STORES.some((store) => store === name);
  const unknown = names.find((name) => !isStore(name));
  if (unknown !== undefined) throw new Error(`there is no store "${unknown}"; the stores are ${STORES.join(", ")}`);
  return names.length === 0 ? STORES : STORES.filter((store) => names.includes(store));
}

function chooseRounds(asked: string | undefined): number | undefined {
  return asked === undefined ? undefined : wholeNumber("rounds", asked);
}

function wholeNumber(option: string, asked: string): number {
  const number = Number(asked);
  if (!(Number.isSafeInteger(number) && number > 0))
    throw new Error(`--${option} must be a whole number above 0, and is "${asked}"`);
  return number;
}

function chooseComparison(commit: string, stores: readonly StoreName[]): AgainstOptions {
  return {
    commit,
    stores,
    only: options.only === "" ? [] : options.only.split(",").map((name) => name.trim()),
    processes: wholeNumber("processes", options.processes),
    pairs: wholeNumber("pairs", options.pairs),
    callers: wholeNumber("callers", options.callers),
    sliceMs: options.quick ? 20 : 250,
    folder: resolve(options.folder ?? tmpdir()),
  };
}

/** "f" means f1 and f2 as well. */
function chooseNames(only: string, stores: readonly StoreName[]): readonly string[] {
  const names = only === "" ? [] : only.split(",").map((name) => name.trim());
  const ids = stores.flatMap((store) => (store === "sqlite" ? sqlite : postgres).cases.map(({ id }) => id));
  const unknown = names.find((name) => name === "" || !ids.some((id) => id.startsWith(name)));
  if (unknown !== undefined)
    throw new Error(`there is no case "${unknown}"; the cases are ${[...new Set(ids)].join(", ")}`);
  return names;
}
