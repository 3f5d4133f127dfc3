/**
 * Committed decisions are serializable together, over any number of keys, present or absent, through every path (G32).
 *
 * Goal: no cycle in the dependencies of random transactions, on every store, in one process and in several.
 * Method: list-append, as in Elle: processes follow random plans over lists by every caller of the kernel, and a checker looks for an
 * order that explains what all of them saw. This is a short run; `npm run serializable` is a long one.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { freshDatabase } from "../postgres/server.ts";
import { PAIR_CALLERS } from "./paths.ts";
import { describeTotals, type RunOptions, runLists, type Totals } from "./run.ts";

const TIMEOUT = { timeout: 120_000 };
/** A busy machine does fewer of them. */
const FOR_MS = 15_000;

const SQL = ["sql", "within"];
const PATHS = [
  ...["declared", "undeclared", "late", "kernel", "taken for absent", "clock", "dedupe", "idempotent", "read", "held"],
  ...PAIR_CALLERS.map((caller) => `${caller}, pair`),
];

async function run(options: Omit<RunOptions, "seed" | "forMs">, paths: readonly string[]): Promise<Totals> {
  const startedMs = performance.now();
  const seed = Date.now() % 1_000_000;
  const totals = await runLists({ ...options, seed, forMs: FOR_MS });
  const told = `seed ${seed}: ${describeTotals(totals, (performance.now() - startedMs) / 1000)}`;
  console.log(told);
  expect(totals.violations, told).toEqual([]);
  // Every path was taken, and there was something to check.
  expect(paths.filter((path) => !totals.paths.has(path))).toEqual([]);
  expect(totals.rw).toBeGreaterThan(50);
  expect(totals.absentReads).toBeGreaterThan(10);
  return totals;
}

for (const lanes of [1, 3])
  test(`in memory, with ${lanes} ${lanes === 1 ? "lane" : "lanes"}`, TIMEOUT, async () => {
    await run({ store: "memory:", transactions: 6_000, processes: 3, lanes }, PATHS);
  });

test("on SQLite, in three processes", TIMEOUT, async () => {
  const folder = mkdtempSync(join(tmpdir(), "pawl-lists-"));
  await run({ store: join(folder, "lists.db"), transactions: 4_000, processes: 3 }, [...PATHS, ...SQL]);
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

test("on PostgreSQL, in three processes", TIMEOUT, async () => {
  const { url, drop } = await freshDatabase();
  await run({ store: url, transactions: 4_000, processes: 3 }, [...PATHS, ...SQL]);
  await drop();
});
