/** Runs transactions over lists on a store, and checks them: for `lists.test.ts` and `lists.long.test.ts`. */

import { expect } from "vitest";
import { PAIR_CALLERS } from "./paths.ts";
import { describeTotals, type RunOptions, runLists } from "./run.ts";

export const SQL = ["sql", "within"];
export const PATHS = [
  ...["declared", "undeclared", "late", "kernel", "taken for absent", "clock", "dedupe", "idempotent", "read", "held"],
  ...PAIR_CALLERS.map((caller) => `${caller}, pair`),
];

export async function checkLists(options: Omit<RunOptions, "seed" | "forMs">, paths: readonly string[]): Promise<void> {
  const startedMs = performance.now();
  const seed = Date.now() % 1_000_000;
  const totals = await runLists({ ...options, seed });
  const told = `seed ${seed}: ${describeTotals(totals, (performance.now() - startedMs) / 1000)}`;
  console.log(told);
  expect(totals.violations, told).toEqual([]);
  // Every path was taken, and there was something to check.
  expect(paths.filter((path) => !totals.paths.has(path))).toEqual([]);
  expect(totals.rw).toBeGreaterThan(50);
  expect(totals.absentReads).toBeGreaterThan(10);
}
