/**
 * One of several processes that write to the same streams: for `processes.long.test.ts`.
 *
 * It reads a wish as a line of JSON, prints a line for each append that was acknowledged, before anything else happens in it, and then "done".
 */

import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { open } from "../../../src/open.ts";
import { CREATORS_EACH, type Wish, type Won, WRITERS_EACH, Written } from "../writers.ts";

const [where = "", life = ""] = process.argv.slice(2);
const pawl = await open(where, { patience: "60s" });
const say = (line: string): void => void writeSync(1, `${line}\n`);
let marks = 0;

/** Appends one event, and says so. Returns the version that the stream has now, and whether it was this one. */
async function attempt(stream: string, expectedVersion: number): Promise<{ readonly ok: boolean; version: number }> {
  marks += 1;
  const mark = `${life}.${marks}`;
  const tried = await pawl.stream(stream).tryAppend([Written({ mark })], { expectedVersion });
  if (tried.ok) {
    const [id = ""] = tried.ids;
    say(JSON.stringify({ stream, after: expectedVersion, version: tried.version, id, mark } satisfies Won));
  }
  return tried;
}

async function write(stream: string, wins: number): Promise<void> {
  let version = await pawl.stream(stream).head();
  for (let won = 0; won < wins; ) {
    const tried = await attempt(stream, version);
    if (tried.ok) won += 1;
    ({ version } = tried);
  }
}

const times = <T>(count: number, act: () => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, () => act()));

say("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const wish: Wish = JSON.parse(line);
  if ("append" in wish) await times(WRITERS_EACH, () => write(wish.append, wish.wins));
  // Each begins with another one, so that no process leads the way for all.
  else await Promise.all(wish.create.map((stream) => times(CREATORS_EACH, () => attempt(stream, 0))));
  say("done");
}
await pawl.close();
