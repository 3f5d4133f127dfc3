/**
 * `npm run bench -- --against <commit>`: this checkout beside an older one, as ratios with their standard errors.
 *
 *   npm run bench -- --against v0.1.0
 *   npm run bench -- sqlite --against HEAD~3 --only w1,w10 --processes 8 --callers 100
 *
 * A run of minutes cannot resolve five percent on a noisy machine, because the machine changes meanwhile. Here both checkouts take turns of 250 ms
 * in one process, many times; a process gives one ratio, the mean of the logarithms of its pairs without the eighths at both ends. Processes differ
 * from each other by more than their pairs do (the compiler decides anew in each), so the standard error is that of the processes: take six
 * or more. Above 1 means that this checkout takes longer. SQLite's files are in the system's temporary folder, or in `--folder`.
 */

import { execFileSync, fork } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { join, resolve } from "node:path";
import { type AgainstCase, againstCases } from "./against-cases.ts";
import type { AgainstTask, Slice } from "./against-child.ts";
import { postgresGround } from "./ground-postgres.ts";
import type { StoreName } from "./result.ts";

export interface AgainstOptions {
  readonly commit: string;
  readonly stores: readonly StoreName[];
  /** Ids of cases; none for all. */
  readonly only: readonly string[];
  readonly processes: number;
  readonly pairs: number;
  readonly callers: number;
  readonly sliceMs: number;
  readonly folder: string;
}

const here = resolve(import.meta.dirname, "..");

export async function compareAgainst(options: AgainstOptions): Promise<void> {
  const { commit, only, stores, folder } = options;
  const unknown = only.find((id) => !againstCases.some((one) => one.id === id));
  if (unknown !== undefined)
    throw new Error(`there is no case "${unknown}"; the cases are ${againstCases.map(({ id }) => id).join(", ")}`);
  const scratch = mkdtempSync(join(folder, "pawl-against-"));
  const old = join(scratch, "old");
  const git = (...given: string[]) => execFileSync("git", given, { cwd: here, encoding: "utf8" }).trim();
  const name = git("rev-parse", "--short", commit);
  git("worktree", "add", "--detach", old, commit);
  try {
    if (!existsSync(join(old, "node_modules"))) symlinkSync(join(here, "node_modules"), join(old, "node_modules"));
    console.log(
      `this checkout beside ${name}: time for each operation, ${options.callers} callers; above 1 is slower than ${name}`,
    );
    for (const store of stores) {
      const { place, close } = await places(store, scratch);
      try {
        for (const one of againstCases)
          if (only.length === 0 || only.includes(one.id)) console.log(await compare(store, one, old, place, options));
      } finally {
        await close();
      }
    }
  } finally {
    git("worktree", "remove", "--force", old);
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Where databases are: files in the folder, or databases of a server. */
async function places(
  store: StoreName,
  scratch: string,
): Promise<{ place(): Promise<string>; close(): Promise<void> }> {
  if (store === "sqlite") {
    let files = 0;
    const place = async (): Promise<string> => {
      files += 1;
      return join(scratch, `${files}.db`);
    };
    return { place, close: async () => {} };
  }
  const ground = await postgresGround();
  // Not with the tables of this checkout: each side makes its own.
  const names: string[] = [];
  const place = async (): Promise<string> => {
    const name = `pawl_against_${process.pid}_${names.length}`;
    names.push(name);
    await ground.ask(`create database ${name}`);
    const url = new URL(ground.url);
    url.pathname = `/${name}`;
    return String(url);
  };
  return {
    place,
    close: async () => {
      for (const name of names) await ground.ask(`drop database if exists ${name} with (force)`);
      await ground.close();
    },
  };
}

async function compare(
  store: StoreName,
  { id, title }: AgainstCase,
  old: string,
  place: () => Promise<string>,
  { processes, pairs, callers, sliceMs }: AgainstOptions,
): Promise<string> {
  const slices: Slice[][][] = [];
  for (let round = 0; round < processes; round++) {
    const sides = [
      { root: old, place: await place() },
      { root: here, place: await place() },
    ];
    slices.push(await inProcess({ id, callers, pairs, sliceMs, sides }));
  }
  const wall = ratio(slices, ({ wallUs }) => wallUs);
  const cpu = ratio(slices, ({ cpuUs }) => cpuUs);
  const us = (index: number) => median(slices.flat().map((both) => both[index]?.wallUs ?? Number.NaN)).toFixed(1);
  return `${store.padEnd(9)}${id.padEnd(7)} wall ${wall}   processor ${cpu}   ${us(0)} µs → ${us(1)} µs   ${title}`;
}

function inProcess(task: AgainstTask): Promise<Slice[][]> {
  return new Promise((done, failed) => {
    const child = fork(join(import.meta.dirname, "against-child.ts"), {
      execArgv: [...process.execArgv, "--expose-gc"],
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    child.once("message", (slices) => done(slices as Slice[][]));
    child.once("error", failed);
    child.once("exit", (code) => failed(new Error(`a process of the comparison ended with ${code}`)));
    child.send(task);
  });
}

/** The ratio of the processes, and its standard error. */
function ratio(processes: readonly Slice[][][], of: (slice: Slice) => number): string {
  const means = processes.map((slices) => meanLog(slices, of));
  const mean = meanOf(means);
  const variance = means.reduce((sum, one) => sum + (one - mean) ** 2, 0) / Math.max(1, means.length - 1);
  return `${Math.exp(mean).toFixed(3)} ± ${Math.sqrt(variance / means.length).toFixed(3)}`;
}

/** The mean of the logarithms of a process's ratios, without the eighths at both ends. */
function meanLog(slices: readonly Slice[][], of: (slice: Slice) => number): number {
  const logs = slices
    .flatMap(([old, now]) => (old === undefined || now === undefined ? [] : [Math.log(of(now) / of(old))]))
    .sort((a, b) => a - b);
  const cut = Math.floor(logs.length / 8);
  return meanOf(logs.slice(cut, logs.length - cut));
}

const meanOf = (numbers: readonly number[]): number => numbers.reduce((sum, one) => sum + one, 0) / numbers.length;

function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
