/**
 * Goal: many schedules. Ten thousand that tick in the same second all start their runs; a million that sleep cost no memory.
 * Method: on SQLite, in real time. How late the runs were started is printed; no figure is a condition, because machines differ.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { heapMiB } from "../../bench/usage.ts";
import { open, type Pawl, workflow } from "../../src/index.ts";
import { newValue } from "../../src/schedule/declare.ts";
import { checkPlan } from "../../src/schedule/options.ts";
import { CREATED_QUEUE, scheduleAt } from "../../src/schedule/stored.ts";
import { PATIENCE } from "../workflow/kit.ts";

const brief = workflow("brief", async () => {});

async function onSqlite(test: (pawl: Pawl) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "pawl-schedules-"));
  const pawl = await open(join(folder, "scale.db"));
  try {
    await test(pawl);
  } finally {
    await pawl.close();
    rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** Creates schedules that are due once, at this time. */
async function createAll(pawl: Pawl, count: number, atMs: number): Promise<void> {
  const plan = checkPlan({ at: atMs });
  const target = { workflow: "brief", input: { value: undefined } };
  for (let from = 0; from < count; from += 1000) {
    const all = Array.from({ length: Math.min(1000, count - from) }, (_, i) => scheduleAt(`s-${from + i}`));
    await pawl.kernel.transact((tx) => {
      for (const at of all)
        tx.record(at).write({
          value: newValue(plan, target, tx.nowMs, 0),
          kind: CREATED_QUEUE,
          status: "active",
          dueMs: atMs,
        });
    }, all);
  }
}

it("ten thousand that tick in the same second all start", async () => {
  await onSqlite(async (pawl) => {
    const COUNT = 10_000;
    const nowMs = await pawl.kernel.transact((tx) => tx.nowMs, []);
    const atMs = nowMs + 10_000;
    await createAll(pawl, COUNT, atMs);
    pawl.work([brief]);
    const countOf = async (): Promise<number> => {
      let count = 0;
      for await (const row of pawl.kernel.rows("run")) if (row.value !== null) count += 1;
      return count;
    };
    await expect.poll(countOf, { ...PATIENCE, interval: 1000, timeout: 280_000 }).toBe(COUNT);
    const late: number[] = [];
    for await (const row of pawl.kernel.rows("run"))
      late.push((pawl.kernel.decode(row, row.value ?? "") as { startedAtMs: number }).startedAtMs - atMs);
    late.sort((a, b) => a - b);
    const share = (part: number): number => late[Math.min(COUNT - 1, Math.floor(part * COUNT))] ?? 0;
    console.log(
      `10,000 in one second, started late by: median ${share(0.5)} ms, 90 % ${share(0.9)} ms, 99 % ${share(0.99)} ms, all ${share(1)} ms`,
    );
    expect(share(0)).toBeGreaterThanOrEqual(0);
  });
});

it("a million that sleep cost no memory", { timeout: 1_200_000 }, async () => {
  await onSqlite(async (pawl) => {
    pawl.work([brief]);
    await createAll(pawl, 10_000, Date.UTC(2100, 0, 1));
    const before = heapMiB();
    await createAll(pawl, 1_000_000, Date.UTC(2100, 0, 1));
    await pawl.schedules.trigger("s-999999");
    const grown = heapMiB() - before;
    console.log(`a million schedules that sleep: the heap has grown by ${grown.toFixed(1)} MiB`);
    expect(grown).toBeLessThan(32);
  });
});
