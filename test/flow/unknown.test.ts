/**
 * Goal: a run that is started without the definition of its workflow, by a process that does not have it or by a schedule, keeps to the options of that
 * workflow where a worker can decide them.
 * Method: one handle starts by name, another one works; both on one database, with the virtual clock of the test kit where time matters.
 */

import { describe, expect, test } from "vitest";
import { schedule, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";

const go = signal("go");

describe.each([1000, 0])("with %d warm runs", (warm) => {
  test("the function of a batch gets a list of one input", async () => {
    await using pawl = openTest();
    const got: unknown[] = [];
    const options = { name: "insert", batch: { size: 10, maxWait: "1 minute" } } as const;
    const insert = workflow(options, async (ctx, rows: readonly number[]) => {
      await ctx.step("insert", () => void got.push(rows));
      // A replay gets the same.
      await ctx.sleep("1s");
      await ctx.step("report", () => void got.push(rows));
    });
    // No worker here has the definition yet.
    const byName = await pawl.start("insert", 1);
    pawl.work([insert, schedule("one", { every: "1 hour", max: 1 }, insert, 2)], { warm });
    await byName.result();
    expect(got).toEqual([[1], [1]]);
    await pawl.clock.advance("61 minutes");
    expect(got).toEqual([[1], [1], [2], [2]]);
    await pawl.start(insert, 3);
    await pawl.start(insert, 4);
    await pawl.clock.advance("2 minutes");
    expect(got.slice(4)).toEqual([
      [3, 4],
      [3, 4],
    ]);
  });
});

test("a ttl counts for it", async () => {
  await using pawl = openTest();
  const job = workflow({ name: "job", concurrency: { max: 1 }, ttl: "1 minute" }, async (ctx) => ctx.waitForSignal(go));
  const runs = [await pawl.start("job"), await pawl.start("job"), await pawl.start("job")];
  const statuses = async () => (await Promise.all(runs.map((run) => run.status()))).map(({ status }) => status).sort();
  pawl.work([job]);
  await pawl.clock.advance("1s");
  expect(await statuses()).toEqual(["queued", "queued", "waiting"]);
  await pawl.clock.advance("1 minute");
  expect(await statuses()).toEqual(["expired", "expired", "waiting"]);
});
