/**
 * `npm run bench:peers -- streams`: event streams of Pawl and its peers side by side, on one machine, in turns.
 *
 *   npm run bench:peers -- streams                     all of them, some ten minutes
 *   npm run bench:peers -- streams --quick             to see that everything runs
 *   npm run bench:peers -- streams --only act,pawl     some of them
 *   npm run bench:peers -- streams --rounds 5          more rounds, for a noisy machine
 *   npm run bench:peers -- streams --save              also into results-streams.json and results-streams.md beside this file
 *
 * A round gives each contender a turn: a fresh database or file, a warm-up, and every case; reactions have a database of their own. What a contender cannot do is reported with its
 * error, and the others continue. The ratio is that of Pawl on the same database, by the medians.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { describeMachine } from "../machine.ts";
import { type Machine, type Measure, measureOf } from "../result.ts";
import { showMachine } from "../table.ts";
import { actPostgres, actPostgresDefault, actSqlite, actSqliteDefault } from "./act.ts";
import { emmettPostgres, emmettSqlite } from "./emmett.ts";
import { onGround } from "./on-ground.ts";
import { pawlStreamsPostgres, pawlStreamsSqlite } from "./pawl-streams.ts";
import { openPostgres, type Postgres } from "./postgres.ts";
import { drawTable, show } from "./report.ts";
import type { StreamPeer, StreamSession } from "./stream-peer.ts";
import { calls, drained } from "./stream-protocols.ts";

interface Sizes {
  readonly callers: number;
  readonly rounds: number;
  /** How long callers continue. */
  readonly forMs: number;
  readonly warmUpMs: number;
  /** What reactions catch up with. */
  readonly streams: number;
  readonly events: number;
  /** A drain that takes longer is measured by what it has handled until then. */
  readonly drainMs: number;
}

const FULL: Sizes = {
  callers: 100,
  rounds: 3,
  forMs: 4000,
  warmUpMs: 1000,
  streams: 100,
  events: 100,
  drainMs: 15_000,
};
const QUICK: Sizes = { callers: 100, rounds: 1, forMs: 500, warmUpMs: 200, streams: 20, events: 20, drainMs: 3000 };

interface Case {
  readonly id: string;
  readonly title: string;
  /** It needs a database of its own, with no other events. */
  readonly isReacting: boolean;
  run(session: StreamSession, sizes: Sizes): Promise<number>;
}

const calling = (verb: "append" | "command", isHot: boolean) => (session: StreamSession, sizes: Sizes) =>
  calls(session, verb, `${verb}-${isHot ? "one" : "many"}`, { ...sizes, isHot });

const reacting = (emits: boolean) => (session: StreamSession, sizes: Sizes) =>
  drained(session, "drain", { ...sizes, forMs: sizes.drainMs, emits });

const CASES: readonly Case[] = [
  { id: "a", title: "appends to many streams", isReacting: false, run: calling("append", false) },
  { id: "b", title: "appends to one stream", isReacting: false, run: calling("append", true) },
  { id: "c", title: "commands on many streams", isReacting: false, run: calling("command", false) },
  { id: "d", title: "commands on one stream", isReacting: false, run: calling("command", true) },
  { id: "e", title: "reactions", isReacting: true, run: reacting(false) },
  { id: "f", title: "reactions that append", isReacting: true, run: reacting(true) },
];

const PEERS: readonly StreamPeer[] = [
  pawlStreamsPostgres,
  actPostgres,
  actPostgresDefault,
  emmettPostgres,
  pawlStreamsSqlite,
  actSqlite,
  actSqliteDefault,
  emmettSqlite,
];

interface Contender extends Pick<StreamPeer, "id" | "name" | "version" | "store" | "settings"> {
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

await main();

async function main(): Promise<void> {
  const sizes = chooseSizes();
  const peers = choosePeers();
  const home = mkdtempSync(join(tmpdir(), "pawl-peers-"));
  process.once("exit", () => rmSync(home, { recursive: true, force: true }));
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => process.exit(1));
  const postgres = peers.some(({ store }) => store === "postgres") ? await openPostgres() : null;
  const startedMs = performance.now();
  try {
    const { figures, errors } = await measure(peers, sizes, postgres, home);
    const report: Report = {
      format: 1,
      date: options.date,
      mode: options.quick ? "quick" : "full",
      seconds: Math.round((performance.now() - startedMs) / 1000),
      rounds: sizes.rounds,
      machine: describeMachine(`${postgres?.server ?? "no PostgreSQL"}, SQLite ${process.versions["sqlite"]}`, home),
      contenders: peers.map((peer) => ({
        id: peer.id,
        name: peer.name,
        version: peer.version,
        store: peer.store,
        settings: peer.settings,
        measures: CASES.map(({ id, title }) => {
          const found = figures.get(`${peer.id} ${id}`) ?? [];
          return found.length === 0 ? null : measureOf(title, found);
        }),
      })),
      notes: [...errors, ...options.note],
    };
    console.log(`\n${drawReport(report)}\n`);
    if (options.save) save(report);
  } finally {
    await postgres?.close();
  }
  // A contender may have left timers behind.
  process.exit();
}

/** Every contender has its turn in every round. What fails is reported once, and not tried again. */
async function measure(
  peers: readonly StreamPeer[],
  sizes: Sizes,
  postgres: Postgres | null,
  home: string,
): Promise<{ figures: ReadonlyMap<string, readonly number[]>; errors: readonly string[] }> {
  const figures = new Map<string, number[]>();
  const errors = new Map<string, string>();
  const guarded = async (id: string, what: string, work: () => Promise<void>): Promise<void> => {
    if (errors.has(id)) return;
    try {
      await work();
    } catch (error) {
      errors.set(id, `${what}: ${error instanceof Error ? `${error.name}: ${error.message.split("\n")[0]}` : error}`);
    }
  };
  for (let round = 0; round < sizes.rounds; round++)
    for (const peer of peers) {
      const turnMs = performance.now();
      process.stdout.write(`round ${round + 1}  ${peer.name} … `);
      const turn = (cases: readonly Case[]) =>
        guarded(peer.id, `${peer.name} did not run`, () =>
          onGround(peer, postgres, home, async (ground) => {
            const session = await peer.open(ground);
            try {
              if (!cases.some(({ isReacting }) => isReacting))
                await calls(session, "command", "warm-up", { ...sizes, forMs: sizes.warmUpMs, isHot: false });
              await postgres?.settle();
              for (const one of cases)
                await guarded(`${peer.id} ${one.id}`, `${peer.name}, ${one.title}`, async () => {
                  const rate = await one.run(session, sizes);
                  figures.set(`${peer.id} ${one.id}`, [...(figures.get(`${peer.id} ${one.id}`) ?? []), rate]);
                });
            } finally {
              await session.close();
            }
          }),
        );
      if (peer.isForReactions !== true) await turn(CASES.filter(({ isReacting }) => !isReacting));
      for (const one of CASES) if (one.isReacting) await turn([one]);
      console.log(`${((performance.now() - turnMs) / 1000).toFixed(1)} s`);
    }
  return { figures, errors: [...errors.values()] };
}

function drawReport(report: Report): string {
  const { contenders, rounds, mode, seconds, notes } = report;
  const heads = ["per second", ...CASES.map(({ title }) => title)];
  const rows = contenders.map((one) => [one.name, ...one.measures.map((measure) => cellOf(measure))]);
  const ratios = contenders
    .filter(({ id }) => !id.startsWith("pawl"))
    .map((peer) => {
      const pawl = contenders.find(({ id, store }) => id.startsWith("pawl") && store === peer.store);
      return [peer.name, ...peer.measures.map((measure, index) => ratioOf(pawl?.measures[index], measure))];
    });
  return [
    showMachine(report.machine),
    "",
    drawTable(heads, rows),
    "",
    rounds === 1 ? "One round." : `Medians of ${rounds} rounds in turns, with the least and the most.`,
    "",
    drawTable(["Pawl, as a multiple of", ...heads.slice(1)], ratios),
    "",
    ...contenders.map(({ name, version, settings }) => `- ${name}, version ${version}: ${settings}`),
    ...notes.map((note) => `- ${note}`),
    "",
    mode === "quick" ? "A quick run shows that everything runs: its figures mean little." : `It took ${seconds} s.`,
  ].join("\n");
}

function cellOf(measure: Measure | null): string {
  if (measure === null) return "–";
  const spread = measure.rounds.length > 1 ? ` (${show(measure.min, 0)}–${show(measure.max, 0)})` : "";
  return `${show(measure.median, 0)}${spread}`;
}

function ratioOf(pawl: Measure | null | undefined, peer: Measure | null): string {
  return pawl == null || peer === null || peer.median === 0 ? "" : show(pawl.median / peer.median, 1);
}

function chooseSizes(): Sizes {
  const sizes = options.quick ? QUICK : FULL;
  if (options.rounds === undefined) return sizes;
  const rounds = Number(options.rounds);
  if (!(Number.isSafeInteger(rounds) && rounds > 0))
    throw new Error(`--rounds must be a whole number above 0, and is "${options.rounds}"`);
  return { ...sizes, rounds };
}

function choosePeers(): readonly StreamPeer[] {
  if (options.only === "") return PEERS;
  const names = options.only.split(",").map((name) => name.trim());
  const unknown = names.find((name) => !PEERS.some(({ id }) => id === name));
  if (unknown !== undefined)
    throw new Error(`there is no contender "${unknown}"; there are ${PEERS.map(({ id }) => id).join(", ")}`);
  return PEERS.filter(({ id }) => names.includes(id));
}

function save(report: Report): void {
  // Six digits are more than any of this is worth.
  const rounded = (_: string, value: unknown) =>
    typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value;
  writeFileSync(join(import.meta.dirname, "results-streams.json"), `${JSON.stringify(report, rounded, 2)}\n`);
  writeFileSync(
    join(import.meta.dirname, "results-streams.md"),
    `# Event streams side by side, ${report.date}\n\n${drawReport(report)}\n`,
  );
}
