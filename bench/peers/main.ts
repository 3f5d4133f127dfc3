/**
 * `npm run bench:peers`: the peers of Pawl's workflows side by side, on one machine, in turns.
 *
 *   npm run bench:peers                              all peers, some twelve minutes
 *   npm run bench:peers -- --quick                   to see that everything runs, in about two minutes
 *   npm run bench:peers -- --only dbos,restate       some of them
 *   npm run bench:peers -- --pawl                    Pawl as well
 *   npm run bench:peers -- --absurd-schema <file>    Absurd as well, whose absurd.sql is not on npm
 *   npm run bench:peers -- --rounds 5                more rounds, for a noisy machine
 *   npm run bench:peers -- --save                    also into results.json and results.md beside this file
 *
 * A round gives each contender a turn: a fresh database or folder, a warm-up, every case, and an end. Only one contender is open
 * at a time, because some of them poll while they have nothing to do. What a run costs PostgreSQL is counted at the end, once.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { describeMachine } from "../machine.ts";
import { measureOf } from "../result.ts";
import { absurd } from "./absurd.ts";
import { type Costs, costsOf } from "./costs.ts";
import { dbos } from "./dbos.ts";
import { onGround } from "./on-ground.ts";
import { openWorkflowPostgres, openWorkflowSqlite } from "./openworkflow.ts";
import type { Peer, PeerSession } from "./peer.ts";
import { openPostgres, type Postgres } from "./postgres.ts";
import { atOnce, callers, lone } from "./protocols.ts";
import { CASES, type Case, type Contender, drawReport, type Report } from "./report.ts";
import { restate } from "./restate.ts";

interface Sizes {
  readonly rounds: number;
  /** How long callers continue, and a lone caller too. */
  readonly forMs: number;
  readonly warmUpMs: number;
  /** How many runs are submitted together. */
  readonly runs: number;
}

const CALLERS = 100;
const FULL: Sizes = { rounds: 3, forMs: 5000, warmUpMs: 2000, runs: 500 };
const QUICK: Sizes = { rounds: 1, forMs: 1000, warmUpMs: 500, runs: 100 };

const { values: options } = parseArgs({
  options: {
    only: { type: "string", default: "" },
    quick: { type: "boolean", default: false },
    save: { type: "boolean", default: false },
    pawl: { type: "boolean", default: false },
    "absurd-schema": { type: "string", default: "" },
    rounds: { type: "string" },
    date: { type: "string", default: new Date().toISOString().slice(0, 10) },
  },
});

await main();

async function main(): Promise<void> {
  const { quick, date } = options;
  const sizes = chooseSizes();
  const { peers, notes } = await choosePeers();
  const home = mkdtempSync(join(tmpdir(), "pawl-peers-"));
  process.once("exit", () => rmSync(home, { recursive: true, force: true }));
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => process.exit(1));
  const postgres = peers.some(({ store }) => store === "postgres") ? await openPostgres() : null;
  const startedMs = performance.now();
  try {
    const figures = await measure(peers, sizes, postgres, home);
    const contenders: Contender[] = [];
    for (const peer of peers) {
      const { id, name, version, settings } = peer;
      const measures = CASES.map((one) => measureOf(one.title, figures.get(peer)?.get(one) ?? []));
      contenders.push({ id, name, version, settings, measures, costs: await count(peer, sizes, postgres, home) });
    }
    const report: Report = {
      format: 1,
      date,
      mode: quick ? "quick" : "full",
      seconds: Math.round((performance.now() - startedMs) / 1000),
      rounds: sizes.rounds,
      machine: describeMachine(`${postgres?.server ?? "no PostgreSQL"}, SQLite ${process.versions["sqlite"]}`, home),
      contenders,
      notes,
    };
    console.log(`\n${drawReport(report)}\n`);
    if (options.save) save(report);
  } finally {
    await postgres?.close();
  }
}

// ---------------------------------------------------------------------------------------------------- the measuring

type Figures = ReadonlyMap<Peer, ReadonlyMap<Case, readonly number[]>>;

/** Every contender has its turn in every round. */
async function measure(
  peers: readonly Peer[],
  sizes: Sizes,
  postgres: Postgres | null,
  home: string,
): Promise<Figures> {
  const figures = new Map(peers.map((peer) => [peer, new Map(CASES.map((one): [Case, number[]] => [one, []]))]));
  for (let round = 0; round < sizes.rounds; round++)
    for (const [peer, ofPeer] of figures) {
      const turnMs = performance.now();
      process.stdout.write(`round ${round + 1}  ${peer.name} … `);
      await onGround(peer, postgres, home, async (ground) => {
        const session = await peer.open(ground);
        try {
          await callers(session, 10, CALLERS, sizes.warmUpMs);
          await postgres?.settle();
          for (const [one, found] of ofPeer) found.push(await measureCase(one, session, sizes));
        } finally {
          await session.close();
        }
      });
      console.log(`${((performance.now() - turnMs) / 1000).toFixed(1)} s`);
    }
  return figures;
}

function measureCase({ id, steps }: Case, session: PeerSession, { forMs, runs }: Sizes): Promise<number> {
  if (id.startsWith("a")) return callers(session, steps, CALLERS, forMs);
  if (id.startsWith("b")) return atOnce(session, steps, runs);
  return lone(session, steps, forMs);
}

async function count(peer: Peer, { runs }: Sizes, postgres: Postgres | null, home: string): Promise<Costs | null> {
  if (peer.store !== "postgres" || postgres === null) return null;
  process.stdout.write(`costs    ${peer.name} … `);
  const startedMs = performance.now();
  const stepCounts = [...new Set(CASES.map(({ steps }) => steps))];
  const costs = await costsOf(postgres, peer, home, stepCounts, runs);
  console.log(`${((performance.now() - startedMs) / 1000).toFixed(1)} s`);
  return costs;
}

// ------------------------------------------------------------------------------------------- what was asked, and saved

function chooseSizes(): Sizes {
  const sizes = options.quick ? QUICK : FULL;
  if (options.rounds === undefined) return sizes;
  const rounds = Number(options.rounds);
  if (!(Number.isSafeInteger(rounds) && rounds > 0))
    throw new Error(`--rounds must be a whole number above 0, and is "${options.rounds}"`);
  return { ...sizes, rounds };
}

async function choosePeers(): Promise<{ peers: readonly Peer[]; notes: readonly string[] }> {
  const notes: string[] = [];
  const peers: Peer[] = [dbos, restate];
  const schema = options["absurd-schema"];
  if (schema !== "") peers.push(absurd(schema));
  else notes.push("Absurd is left out: its SQL is not on npm. With `--absurd-schema <absurd.sql>` it takes part.");
  peers.push(openWorkflowPostgres, openWorkflowSqlite);
  // Only when it is asked for, as it is not a peer but what the peers are compared with.
  if (options.pawl) {
    const { pawlPostgres, pawlSqlite } = await import("./pawl.ts");
    peers.push(pawlPostgres, pawlSqlite);
  }
  if (options.only === "") return { peers, notes };
  const names = options.only.split(",").map((name) => name.trim());
  const unknown = names.find((name) => !peers.some(({ id }) => id === name));
  if (unknown !== undefined)
    throw new Error(`there is no contender "${unknown}"; there are ${peers.map(({ id }) => id).join(", ")}`);
  return { peers: peers.filter(({ id }) => names.includes(id)), notes: [] };
}

function save(report: Report): void {
  // Six digits are more than any of this is worth.
  const rounded = (_: string, value: unknown) =>
    typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value;
  writeFileSync(join(import.meta.dirname, "results.json"), `${JSON.stringify(report, rounded, 2)}\n`);
  writeFileSync(
    join(import.meta.dirname, "results.md"),
    `# The peers side by side, ${report.date}\n\n${drawReport(report)}\n`,
  );
}
