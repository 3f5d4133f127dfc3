/**
 * Kills processes while they write orders through a library and Pawl in one transaction, and compares both sides.
 *
 *   node --conditions=pawl-source scripts/orm-kills.ts --kills 1000
 *   node --conditions=pawl-source scripts/orm-kills.ts --kills 50 --only kysely --at-once 3
 *
 * The kills are divided among pg, drizzle, kysely, knex, typeorm, prisma, node:sqlite, and transact.sql on both stores. It exits with 1 if an
 * order exists on one side only, if an acknowledged order is missing, or if anything else is inconsistent.
 */

import { parseArgs } from "node:util";
import { describeKills, killOrders, type Report, ways } from "../test/sql/kills.ts";

const { values } = parseArgs({
  options: {
    kills: { type: "string", default: "1000" },
    "at-once": { type: "string", default: "4" },
    only: { type: "string" },
  },
});
const total = atLeast(1, values.kills, "--kills");
const atOnce = atLeast(1, values["at-once"], "--at-once");
const chosen = ways.filter((way) => values.only === undefined || way.includes(values.only));
if (chosen.length === 0) throw new Error(`--only must be part of one of: ${ways.join(", ")}`);

const reports: Report[] = [];
for (const [index, way] of chosen.entries()) {
  const kills = Math.floor(total / chosen.length) + (index < total % chosen.length ? 1 : 0);
  if (kills === 0) continue;
  const startedMs = performance.now();
  const report = await killOrders(way, { kills, atOnce, random: Math.random });
  reports.push(report);
  console.log(`${way}: ${report.kills} kills in ${((performance.now() - startedMs) / 1000).toFixed(1)} s`);
  for (const violation of report.violations) console.log(`  VIOLATION: ${violation}`);
}
console.log(`\n${describeKills(reports)}`);
const sum = (of: (report: Report) => number) => reports.reduce((total, report) => total + of(report), 0);
const violations = sum((report) => report.violations.length);
console.log(
  `\n${sum(({ kills }) => kills)} kills, ${sum(({ acked }) => acked)} orders acknowledged, ${violations} violations`,
);
process.exitCode = violations > 0 ? 1 : 0;

function atLeast(least: number, text: string, name: string): number {
  const number = Number(text);
  if (!(Number.isInteger(number) && number >= least))
    throw new Error(`${name} must be a whole number of at least ${least}, not "${text}"`);
  return number;
}
