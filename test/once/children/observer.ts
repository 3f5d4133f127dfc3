/**
 * A process that reads all orders while others place them, until it reads "stop": for `processes.long.test.ts`.
 *
 * It looks in three ways in turn: at everything in one statement, through a connection that knows nothing of Pawl; at some orders by one
 * read of the kernel; and at one order in a decision, under its locks. Whatever it sees of an order must be all of it or nothing.
 */

import { once } from "node:events";
import { setImmediate } from "node:timers/promises";
import { groundOn } from "../../sql/grounds.ts";
import { requestOf, type Sight } from "../orders.ts";
import { looksOf, openOne, partsOf, type Request, type Seen } from "../shop.ts";

const [where = "", count = ""] = process.argv.slice(2);
const requests = Array.from({ length: Number(count) }, (_, number) => requestOf(number));
const pawl = await openOne(where);
const plain = await groundOn(where).connect();
const table = where.startsWith("postgres") ? "pawl.record" : "pawl_record";
const EVERYTHING = `select space, key, status, head, value from ${table} where namespace = 'default'`;
const SOME = 40;

async function lookAtAll(): Promise<Seen[]> {
  return (await plain.query(EVERYTHING)).map((row) => ({
    space: String(row["space"]),
    key: String(row["key"]),
    status: row["status"] === null ? null : String(row["status"]),
    head: Number(row["head"]),
    value: row["value"] === null ? null : String(row["value"]),
  }));
}

async function read(some: readonly Request[]): Promise<Seen[]> {
  return (await pawl.kernel.read(some.flatMap(partsOf))).filter((row) => row !== null);
}

function decide(some: readonly Request[]): Promise<Seen[]> {
  const parts = some.flatMap(partsOf);
  return pawl.kernel.transact((tx) => parts.flatMap((at) => tx.record(at).row ?? []), parts);
}

let isOver = false;
void once(process.stdin, "data").then(() => {
  isOver = true;
});
const parts = new Set<string>();
let looks = 0;
const counts: number[] = [];
process.stdout.write("ready\n");
for (let isLast = false; !isLast; looks++) {
  isLast = isOver;
  const some = requests.slice(Math.floor(Math.random() * requests.length)).slice(0, SOME);
  const ways: (() => Promise<[readonly Request[], Seen[]]>)[] = [
    async () => [requests, await lookAtAll()],
    async () => [some, await read(some)],
    async () => [some.slice(0, 1), await decide(some.slice(0, 1))],
  ];
  const [at, seen] = (await ways[isLast ? 0 : looks % ways.length]?.()) ?? [[], []];
  const look = looksOf(at, seen);
  for (const part of look.parts) parts.add(part);
  if (at === requests) counts.push(look.placed.length);
  await setImmediate();
}
await plain.end();
await pawl.close();
const placed = counts.at(-1) ?? 0;
const midway = counts.filter((count) => count > 0 && count < placed).length;
process.stdout.write(`${JSON.stringify({ looks, midway, parts: [...parts] } satisfies Sight)}\n`);
process.stdin.destroy();
