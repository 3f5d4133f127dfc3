/**
 * Goal: any number of operations in one turn: children, slots, locks, timers, and children that end with their parent.
 * Method: more than one commit can take, in the test kit, and a hundred thousand children on SQLite.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { open, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";

const child = workflow("child", async (_ctx, n: number) => n);
const sleeper = workflow("sleeper", async (ctx) => ctx.sleep("300 days"));
const MANY = 1100;
const numbers = Array.from({ length: MANY }, (_, n) => n);

test("children", async () => {
  await using pawl = openTest();
  const it = workflow("it", async (ctx) => {
    const values = await Promise.all(numbers.map((n) => ctx.call(child, n)));
    return values.reduce((sum, n) => sum + n, 0);
  });
  pawl.work([it, child]);
  await expect((await pawl.start(it)).result()).resolves.toBe((MANY * (MANY - 1)) / 2);
});

test("a hundred thousand children", { timeout: 900_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "pawl-fan-out-"));
  try {
    await using pawl = await open(join(folder, "fan-out.db"), { durability: "process" });
    const it = workflow("it", async (ctx, count: number) => {
      const values = await Promise.all(Array.from({ length: count }, (_, n) => ctx.call(child, n)));
      return values.reduce((sum, n) => sum + n, 0);
    });
    pawl.work([it, child]);
    const count = 100_000;
    await expect((await pawl.start(it, count)).result()).resolves.toBe((count * (count - 1)) / 2);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("slots, sleeps and locks", async () => {
  await using pawl = openTest();
  const it = workflow("it", async (ctx) => {
    await Promise.all(numbers.map((n) => ctx.slot(`s${n}`).set(n)));
    await Promise.all(numbers.map(() => ctx.sleep(1000)));
    await Promise.all(numbers.map((n) => ctx.mutex(`l${n}`).acquire()));
    return (await ctx.slot<number>(`s${MANY - 1}`).get()).value;
  });
  pawl.work([it], { warm: 1000 });
  await expect((await pawl.start(it)).result()).resolves.toBe(MANY - 1);
});

test("a parent that is canceled ends its running children, however many", async () => {
  await using pawl = openTest();
  const it = workflow("it", async (ctx) => Promise.all(numbers.map(() => ctx.call(sleeper))));
  pawl.work([it, sleeper], { warm: 0 });
  const run = await pawl.start(it, undefined, { id: "it" });
  await pawl.clock.advance("1 hour");
  await run.cancel();
  await expect(run.result()).rejects.toMatchObject({ code: "run_canceled" });
  await pawl.clock.advance("1 hour");
  const { runs } = await pawl.runs.list({ workflow: sleeper, status: ["pending", "running", "waiting"] });
  expect(runs).toHaveLength(0);
});
