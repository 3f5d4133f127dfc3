/**
 * One comparison beside other libraries: options, turns, and the report, whatever is compared.
 *
 * A round gives each contender a turn. What a contender cannot do is reported with its error, and the others continue. The ratio is that of Pawl on
 * the same store, or on the one that a contender names, by the medians.
 *
 * Options: --only a,b   --quick   --rounds N   --note "…"   --save (into results-<name>.json and .md beside this file)   --date
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { describeMachine } from "../machine.ts";
import { type Machine, type Measure, measureOf } from "../result.ts";
import { showMachine } from "../table.ts";
import { drawTable, show } from "./report.ts";

export interface SideCase {
  readonly id: string;
  readonly title: string;
  /** Default: per second. */
  readonly unit?: "ms";
}

export interface SidePeer {
  readonly id: string;
  readonly name: string;
  readonly version: string;
  readonly store: string;
  readonly settings: string;
  /** The contender that its ratio is to. Default: Pawl on the same store. */
  readonly beside?: string;
}

/** What a turn reports: a figure for a case, or that a part of it failed. */
export interface Turn {
  /** Works on one part; if it fails, the error is noted once, and the part is not tried again. */
  guarded(part: string, title: string, work: () => Promise<void>): Promise<void>;
  found(one: SideCase, figure: number): void;
}

export interface Comparison<P extends SidePeer, S extends { readonly rounds: number }> {
  /** In the names of the files. */
  readonly name: string;
  readonly heading: string;
  readonly peers: readonly P[];
  readonly cases: readonly SideCase[];
  readonly sizes: { readonly full: S; readonly quick: S };
  /** Gives the contender its turn. `home` is a folder that is removed at the end. */
  readonly play: (peer: P, sizes: S, home: string, turn: Turn) => Promise<void>;
  /** Starts what the contenders share, and returns the names and versions of the databases. */
  readonly begin: (peers: readonly P[], home: string) => Promise<string>;
  readonly end: () => Promise<void>;
}

interface Contender extends SidePeer {
  /** In the order of the cases; null where it was not measured. */
  readonly measures: readonly (Measure | null)[];
}

interface Report {
  readonly format: 1;
  readonly date: string;
  readonly mode: "full" | "quick";
  readonly seconds: number;
  readonly rounds: number;
  readonly machine: Machine;
  readonly contenders: readonly Contender[];
  readonly notes: readonly string[];
}

/** Runs the comparison, prints its report, and ends the process. */
export async function sideBySide<P extends SidePeer, S extends { readonly rounds: number }>(
  comparison: Comparison<P, S>,
): Promise<never> {
  const { values: options } = parseArgs({
    allowPositionals: true,
    options: {
      only: { type: "string", default: "" },
      quick: { type: "boolean", default: false },
      save: { type: "boolean", default: false },
      rounds: { type: "string" },
      note: { type: "string", multiple: true, default: [] },
      date: { type: "string", default: new Date().toISOString().slice(0, 10) },
    },
  });
  const { cases, name, heading } = comparison;
  const sizes = withRounds(options.quick ? comparison.sizes.quick : comparison.sizes.full, options.rounds);
  const peers = chosen(comparison.peers, options.only);
  const home = mkdtempSync(join(tmpdir(), "pawl-peers-"));
  process.once("exit", () => rmSync(home, { recursive: true, force: true }));
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => process.exit(1));
  const startedMs = performance.now();
  try {
    const databases = await comparison.begin(peers, home);
    const { figures, errors } = await playAll(comparison, peers, sizes, home);
    const report: Report = {
      format: 1,
      date: options.date,
      mode: options.quick ? "quick" : "full",
      seconds: Math.round((performance.now() - startedMs) / 1000),
      rounds: sizes.rounds,
      machine: describeMachine(databases, home),
      contenders: peers.map(({ id, name, version, store, settings, beside }) => ({
        id,
        name,
        version,
        store,
        settings,
        ...(beside === undefined ? {} : { beside }),
        measures: cases.map((one) => {
          const found = figures.get(`${id} ${one.id}`) ?? [];
          return found.length === 0 ? null : measureOf(one.title, found);
        }),
      })),
      notes: [...errors, ...options.note],
    };
    const drawn = drawReport(report, cases);
    console.log(`\n${drawn}\n`);
    if (options.save) save(name, report, `# ${heading}, ${options.date}\n\n${drawn}\n`);
  } finally {
    await comparison.end();
  }
  // A contender may have left timers behind.
  process.exit();
}

async function playAll<P extends SidePeer, S extends { readonly rounds: number }>(
  { play }: Comparison<P, S>,
  peers: readonly P[],
  sizes: S,
  home: string,
): Promise<{ figures: ReadonlyMap<string, readonly number[]>; errors: readonly string[] }> {
  const figures = new Map<string, number[]>();
  const errors = new Map<string, string>();
  for (let round = 0; round < sizes.rounds; round++)
    for (const peer of peers) {
      const turnMs = performance.now();
      process.stdout.write(`round ${round + 1}  ${peer.name} … `);
      const turn: Turn = {
        guarded: async (part, title, work) => {
          const key = `${peer.id} ${part}`;
          if (errors.has(key)) return;
          try {
            await work();
          } catch (error) {
            const text = error instanceof Error ? `${error.name}: ${error.message.split("\n")[0]}` : String(error);
            errors.set(key, `${peer.name}, ${title}: ${text}`);
          }
        },
        found: (one, figure) => {
          const key = `${peer.id} ${one.id}`;
          figures.set(key, [...(figures.get(key) ?? []), figure]);
        },
      };
      await turn.guarded("all", "did not run", () => play(peer, sizes, home, turn));
      console.log(`${((performance.now() - turnMs) / 1000).toFixed(1)} s`);
    }
  return { figures, errors: [...errors.values()] };
}

function drawReport(report: Report, cases: readonly SideCase[]): string {
  const { contenders, rounds, mode, seconds, notes } = report;
  const heads = ["per second", ...cases.map(({ title, unit }) => (unit === undefined ? title : `${title}: ${unit}`))];
  const rows = contenders.map((one) => [
    one.name,
    ...cases.map(({ unit }, index) => cellOf(one.measures[index] ?? null, unit)),
  ]);
  const ratios = contenders
    .filter(({ id }) => !id.startsWith("pawl"))
    .map((peer) => {
      const pawl = contenders.find(({ id, store }) =>
        peer.beside === undefined ? id.startsWith("pawl") && store === peer.store : id === peer.beside,
      );
      const cells = cases.map(({ unit }, index) =>
        ratioOf(pawl?.measures[index] ?? null, peer.measures[index] ?? null, unit),
      );
      return [peer.name, ...cells];
    });
  return [
    showMachine(report.machine),
    "",
    drawTable(heads, rows),
    "",
    rounds === 1 ? "One round." : `Medians of ${rounds} rounds in turns, with the least and the most.`,
    "",
    drawTable(["Pawl, how many times better than", ...heads.slice(1)], ratios),
    "",
    ...contenders.map(({ name, version, settings }) => `- ${name}, version ${version}: ${settings}`),
    ...notes.map((note) => `- ${note}`),
    "",
    mode === "quick" ? "A quick run shows that everything runs: its figures mean little." : `It took ${seconds} s.`,
  ].join("\n");
}

function cellOf(measure: Measure | null, unit: "ms" | undefined): string {
  if (measure === null) return "–";
  const digits = unit === undefined ? 0 : 1;
  const spread = measure.rounds.length > 1 ? ` (${show(measure.min, digits)}–${show(measure.max, digits)})` : "";
  return `${show(measure.median, digits)}${spread}`;
}

function ratioOf(pawl: Measure | null, peer: Measure | null, unit: "ms" | undefined): string {
  if (pawl === null || peer === null || peer.median === 0 || pawl.median === 0) return "";
  return show(unit === undefined ? pawl.median / peer.median : peer.median / pawl.median, 1);
}

function withRounds<S extends { readonly rounds: number }>(sizes: S, given: string | undefined): S {
  if (given === undefined) return sizes;
  const rounds = Number(given);
  if (!(Number.isSafeInteger(rounds) && rounds > 0))
    throw new Error(`--rounds must be a whole number above 0, and is "${given}"`);
  return { ...sizes, rounds };
}

function chosen<P extends SidePeer>(peers: readonly P[], only: string): readonly P[] {
  if (only === "") return peers;
  const names = only.split(",").map((name) => name.trim());
  const unknown = names.find((name) => !peers.some(({ id }) => id === name));
  if (unknown !== undefined)
    throw new Error(`there is no contender "${unknown}"; there are ${peers.map(({ id }) => id).join(", ")}`);
  return peers.filter(({ id }) => names.includes(id));
}

function save(name: string, report: Report, text: string): void {
  // Six digits are more than any of this is worth.
  const rounded = (_: string, value: unknown) =>
    typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value;
  writeFileSync(join(import.meta.dirname, `results-${name}.json`), `${JSON.stringify(report, rounded, 2)}\n`);
  writeFileSync(join(import.meta.dirname, `results-${name}.md`), text);
}
