/**
 * The differential test for any number of operations: the same random operations on every store must give the same results.
 *
 *   node scripts/differential.ts --operations 1000000 --seed 1
 *   node scripts/differential.ts --operations 20000 --subject memory --subject SQLite
 *   node scripts/differential.ts --operations 100000 --at-once 4        four chapters concurrently, for remote stores
 *   node scripts/differential.ts --seed 7 --operations 120 --only 3,17,120
 *
 * Prints its progress, and at the end how often each kind of operation occurred and how long each store took. It stops at a difference, and
 * prints the few operations that show it and the command that repeats them.
 */

import { parseArgs } from "node:util";
import { describeDifference, run } from "../test/differential/compare.ts";
import { subjects } from "../test/differential/subjects.ts";

const { values } = parseArgs({
  options: {
    operations: { type: "string", default: "100000" },
    seed: { type: "string", default: "1" },
    only: { type: "string" },
    subject: { type: "string", multiple: true },
    "at-once": { type: "string", default: "1" },
  },
});

function whole(text: string, what: string): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < 1)
    throw new Error(`${what} must be a whole number above 0, not "${text}"`);
  return number;
}

const { subject: wished } = values;
const chosen = subjects.filter(({ name }) => wished === undefined || wished.includes(name));
if (chosen.length < 2 || chosen.length < (wished?.length ?? 0))
  throw new Error(`name at least two subjects of: ${subjects.map(({ name }) => name).join(", ")}`);

const PROGRESS_MS = 10_000;
const startedMs = performance.now();
let saidMs = startedMs;
const report = await run({
  operations: whole(values.operations, "--operations"),
  seed: whole(values.seed, "--seed"),
  subjects: chosen,
  atOnce: whole(values["at-once"], "--at-once"),
  only: values.only === undefined ? undefined : new Set(values.only.split(",").map((text) => whole(text, "--only"))),
  progress({ operations, chapters }) {
    if (performance.now() - saidMs < PROGRESS_MS) return;
    saidMs = performance.now();
    console.log(`${operations} operations in ${chapters} chapters after ${Math.round((saidMs - startedMs) / 1000)} s`);
  },
});
for (const subject of chosen) await subject.close?.();

for (const [what, count] of [...report.seen].sort(([a], [b]) => (a < b ? -1 : 1)))
  console.log(`${String(count).padStart(10)}  ${what}`);
for (const [name, ms] of report.tookMs) console.log(`${(ms / 1000).toFixed(1).padStart(10)} s on ${name}`);
if (report.difference !== undefined) {
  console.log(`\n${describeDifference(report.difference)}`);
  process.exitCode = 1;
} else {
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  console.log(`${report.operations} operations on ${chosen.length} subjects in ${seconds} s: no difference`);
}
