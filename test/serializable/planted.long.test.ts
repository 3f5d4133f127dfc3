/**
 * Goal: the workload and the checker can be trusted: a store or a kernel under which committed decisions are not serializable does not
 * get past them (G32).
 * Method: the same workload on a store whose commits really meet, which must pass, and then with one promise broken at a time; and on the
 * real kernel and stores with a mistake planted into their source. The checker must find each within some thousands of transactions.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Violation } from "../../src/testing/checkers/lists/report.ts";
import { Child, spawnNode } from "../node/child.ts";
import { freshDatabase } from "../postgres/server.ts";
import { edits, type PlantedEdit, weaknesses } from "./planted.ts";
import { describeTotals, runInterleaved, runLists } from "./run.ts";

const TIMEOUT = { timeout: 600_000 };

describe("on a store whose commits meet", () => {
  for (const lanes of [1, 3])
    test(`nothing is found where nothing is wrong, with ${lanes} lanes`, TIMEOUT, async () => {
      const totals = await runInterleaved({}, { seed: 1, lanes });
      expect(totals.violations, describeTotals(totals, 0)).toEqual([]);
      expect(totals.rw).toBeGreaterThan(500);
    });

  for (const { name, weakness, anomalies } of weaknesses)
    test(name, TIMEOUT, async () => {
      const { violations } = await runInterleaved(weakness, { seed: 1, transactions: 80_000 });
      const found = new Set(violations.map(({ anomaly }) => anomaly));
      expect(
        anomalies.some((one) => found.has(one)),
        [...found].join(", "),
      ).toBe(true);
    });
});

describe("planted into the source", () => {
  for (const planted of edits)
    test(planted.name, TIMEOUT, async () => {
      expect(await hunt(planted)).toBeDefined();
    });
});

async function hunt({ on, edits }: PlantedEdit): Promise<Violation | undefined> {
  if (on === "interleaved") {
    const child = new Child(
      spawnNode(join(import.meta.dirname, "children", "inside.ts"), [JSON.stringify(edits)]),
      "a planted mistake",
    );
    const { code } = await child.ended;
    expect(code, child.complaints).toBe(0);
    return JSON.parse(await child.line()) as Violation;
  }
  const options = { transactions: 30_000, seed: 1, processes: 3, edits, forMs: 550_000, callers: 8 };
  if (on === "postgres") {
    const { url, drop } = await freshDatabase();
    // Without pairs, which have an anomaly of their own to find.
    const { violations } = await runLists({ ...options, store: url, pairCallers: 0 });
    await drop();
    return violations[0];
  }
  const folder = mkdtempSync(join(tmpdir(), "pawl-lists-"));
  const { violations } = await runLists({ ...options, store: join(folder, "lists.db") });
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
  return violations[0];
}
