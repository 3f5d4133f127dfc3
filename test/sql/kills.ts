/**
 * Kills: processes that take orders through a library and Pawl in one transaction are killed repeatedly; then the two sides are compared.
 *
 * Goal: for every order both sides exist or neither, and for every acknowledged one both, however its process ended.
 * Method: a child (children/orders.ts) works on a database that it shares with others of its way, and is killed by SIGKILL: by us at any
 * moment, or by itself right before COMMIT is sent, right after it was sent, or right after its reply. When no connection is open any
 * more, rows, markers and stocks are read through a plain connection, which knows nothing of Pawl but the name of a view.
 *
 * Out of scope: a test runner, so that scripts can use it too.
 */

import { join } from "node:path";
import { Child, spawnNode } from "../node/child.ts";
import { type Ground, postgresGround, sleep, sqliteGround } from "./grounds.ts";
import type { LibraryName } from "./libraries/library.ts";

/** The last is a planted bug: Pawl's part is a transaction of its own, beside that of the library. */
export type Way = LibraryName | "transact.sql on PostgreSQL" | "transact.sql on SQLite" | "pg and Pawl apart";

export const ways: readonly Way[] = [
  "pg",
  "drizzle",
  "kysely",
  "knex",
  "typeorm",
  "prisma",
  "transact.sql on PostgreSQL",
  "node:sqlite",
  "transact.sql on SQLite",
];

/** When the child dies. Of these orders, those "before COMMIT" must be gone, and those "after COMMIT" there. */
export type Moment = "any moment" | "before COMMIT" | "COMMIT sent" | "after COMMIT";

const MOMENTS: readonly Moment[] = [
  "any moment",
  "before COMMIT",
  "any moment",
  "COMMIT sent",
  "any moment",
  "after COMMIT",
];

/** On SQLite, COMMIT is a call: nothing is between sending it and its answer but the call itself, which any moment may hit. */
const momentOf = (number: number, isSqlite: boolean): Moment => {
  const moment = MOMENTS[number % MOMENTS.length] ?? "any moment";
  return isSqlite && moment === "COMMIT sent" ? "any moment" : moment;
};

export interface Report {
  readonly way: Way;
  kills: number;
  readonly moments: Map<Moment, number>;
  begun: number;
  acked: number;
  both: number;
  neither: number;
  /** Orders whose process died when COMMIT was just sent, and that are there. */
  survivors: number;
  readonly violations: string[];
}

export interface KillOptions {
  readonly kills: number;
  /** Processes at once. */
  readonly atOnce: number;
  readonly random: () => number;
}

export async function killOrders(way: Way, options: KillOptions): Promise<Report> {
  const isSqlite = way === "node:sqlite" || way === "transact.sql on SQLite";
  const ground = await (isSqlite ? sqliteGround() : postgresGround());
  try {
    return await killOn(ground, way, options);
  } finally {
    await ground.leave();
  }
}

/** What the children said. */
interface Said {
  readonly begun: Set<string>;
  readonly acked: Set<string>;
  /** The orders that were chosen to die, and when. */
  readonly died: Map<string, Moment>;
}

async function killOn(ground: Ground, way: Way, { kills, atOnce, random }: KillOptions): Promise<Report> {
  const plain = await ground.connect();
  await plain.query("create table orders (id text primary key, item text not null)");
  await plain.end();
  // Makes Pawl's tables, so that the first children do not wait for each other.
  await (await ground.open()).close();
  const said: Said = { begun: new Set(), acked: new Set(), died: new Map() };
  const moments = new Map<Moment, number>();
  let started = 0;
  const crew = async () => {
    while (started < kills) {
      const number = started++;
      const moment = momentOf(number, ground.store === "SQLite");
      await killOne(ground, way, `c${number}`, moment, random, said);
      moments.set(moment, (moments.get(moment) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, crew));
  return compare(ground, way, said, moments);
}

const DIES_WITHIN_MS = 30_000;
const PROGRAM = join(import.meta.dirname, "children", "orders.ts");

async function killOne(
  ground: Ground,
  way: Way,
  name: string,
  moment: Moment,
  random: () => number,
  said: Said,
): Promise<void> {
  // Past this order nothing is left to chance: the child dies in it.
  const nth = moment === "any moment" ? -1 : Math.floor(random() * 12);
  const child = new Child(spawnNode(PROGRAM, [way, ground.where, name, moment, String(nth)]), `${way} ${name}`);
  const ready = await child.line();
  if (ready !== "ready") throw new Error(`${way} ${name} said "${ready}" instead of being ready`);
  if (moment === "any moment") {
    await sleep(random() * 120);
    await child.kill();
  }
  const ending = await Promise.race([child.ended, sleep(DIES_WITHIN_MS)]);
  if (ending === undefined) {
    await child.kill();
    throw new Error(`${way} ${name} did not come to its end, ${moment}: ${child.complaints}`);
  }
  if (ending.signal !== "SIGKILL") throw new Error(`${way} ${name} ended by itself: ${child.complaints}`);
  for await (const line of linesLeft(child)) {
    const [verb = "", id = ""] = line.split(" ");
    if (verb === "begun") said.begun.add(id);
    else if (verb === "acked") said.acked.add(id);
    else if (verb === "dies") said.died.set(id, moment);
  }
}

/** What a child that has ended has said. */
async function* linesLeft(child: Child): AsyncGenerator<string> {
  for (;;)
    try {
      yield await child.line();
    } catch {
      return;
    }
}

async function compare(ground: Ground, way: Way, said: Said, moments: Map<Moment, number>): Promise<Report> {
  const { rows, markers, sold } = await readBoth(ground);
  const violations: string[] = [];
  const all = new Set([...said.begun, ...rows, ...markers]);
  let both = 0;
  let neither = 0;
  for (const id of all) {
    const [isRow, isMarker] = [rows.has(id), markers.has(id)];
    if (isRow && isMarker) both += 1;
    else if (!isRow && !isMarker) neither += 1;
    else violations.push(`${id} has ${isRow ? "a row and no marker" : "a marker and no row"}`);
    if (said.acked.has(id) && !(isRow && isMarker)) violations.push(`${id} was acknowledged, and is not there`);
    if (!said.begun.has(id)) violations.push(`${id} is there, and was never begun`);
    const moment = said.died.get(id);
    if (moment === "before COMMIT" && isRow) violations.push(`${id} is there, and was never committed`);
    if (moment === "after COMMIT" && !isRow) violations.push(`${id} was committed, and is not there`);
  }
  if (sold !== both) violations.push(`the stocks say ${sold}, and the orders ${both}`);
  const survivors = [...said.died].filter(([id, moment]) => moment === "COMMIT sent" && rows.has(id)).length;
  const kills = [...moments.values()].reduce((sum, count) => sum + count, 0);
  const { size: begun } = said.begun;
  return { way, kills, moments, begun, acked: said.acked.size, both, neither, survivors, violations };
}

/** Both sides in one snapshot, once nobody is at work any more. */
async function readBoth(ground: Ground): Promise<{ rows: Set<string>; markers: Set<string>; sold: number }> {
  const plain = await ground.connect();
  const isPostgres = ground.store === "PostgreSQL";
  const others = "select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
  const startedMs = performance.now();
  while (isPostgres && (await plain.query(others)).length > 0) {
    if (performance.now() - startedMs > 20_000) throw new Error("connections of dead processes are still there");
    await sleep(10);
  }
  const now = isPostgres ? "pawl.now" : "pawl_now";
  await plain.query(isPostgres ? "begin isolation level repeatable read" : "begin");
  const rows = (await plain.query("select id from orders")).map((row) => String(row["id"]));
  const slots = await plain.query(`select key, value from ${now} where namespace = 'default' and space = 'slot'`);
  await plain.query("commit");
  await plain.end();
  const named = (prefix: string) => slots.filter((slot) => String(slot["key"]).startsWith(prefix));
  const markers = named("order/").map((slot) => String(slot["key"]).slice("order/".length));
  const sold = -named("stock/").reduce((sum, slot) => sum + Number(slot["value"]), 0);
  return { rows: new Set(rows), markers: new Set(markers), sold };
}

/** The reports as a table. */
export function describeKills(reports: readonly Report[]): string {
  const heads = ["way", "kills", "begun", "acked", "both", "neither", "COMMIT sent: there", "violations"];
  const lines = reports.map((report) => [
    report.way,
    ...[report.kills, report.begun, report.acked, report.both, report.neither].map(String),
    `${report.survivors} of ${report.moments.get("COMMIT sent") ?? 0}`,
    String(report.violations.length),
  ]);
  const table = [heads, ...lines];
  const widths = heads.map((_, column) => Math.max(...table.map((line) => line[column]?.length ?? 0)));
  return table
    .map((line) =>
      line.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join("  "),
    )
    .join("\n");
}
