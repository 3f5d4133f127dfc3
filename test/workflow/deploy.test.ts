/**
 * Goal: workers with old and new code side by side park no run: one whose code contradicts the history releases the run, and only one that
 * stays contradicted for long is parked.
 * Method: two workers with different code of one workflow, in the test kit and on every store.
 */

import { expect, test } from "vitest";
import { workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { EVERY, onStores, resultOf } from "./kit.ts";

const old = workflow("order", async (ctx) => {
  await ctx.step("one", () => {});
  await ctx.sleep(300);
  return ctx.step("two", () => "old");
});
const changed = workflow("order", async (ctx) => {
  await ctx.step("first", () => {});
  await ctx.sleep(300);
  return ctx.step("second", () => "new");
});

onStores(EVERY, (place) => {
  test("runs of both end with the code that began them", async () => {
    const [left, right] = await Promise.all([place.open(), place.open()]);
    left.work([old], { warm: 0 });
    right.work([changed], { warm: 0 });
    const runs = await Promise.all(
      Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? left.start(old) : right.start(changed))),
    );
    const ended = await Promise.all(runs.map(resultOf));
    expect(ended).toEqual(runs.map((_, n) => (n % 2 === 0 ? "old" : "new")));
  });
});

test("a run that only workers with the other code are left for is parked after a while, with the reason", async () => {
  await using pawl = openTest({ strict: false });
  const first = pawl.work([old], { warm: 0 });
  const run = await pawl.start(old, undefined, { id: "it" });
  await run.until("waiting");
  await pawl.clock.during(first.stop());
  pawl.work([changed], { warm: 0, parkContradictedAfter: "5 minutes" });
  await pawl.clock.advance("2 minutes");
  expect((await run.status()).status).not.toBe("parked");
  await pawl.clock.advance("10 minutes");
  expect(await run.status()).toMatchObject({ status: "parked", parkedReason: expect.stringContaining('"step one"') });
});
