// Goal: the time that a decision gets without reading the clock is not behind the store's clock, however late replies come.
// Method: every reply is delayed, for up to a minute; a decision on a known record compares its time with the store's.

import { expect, test } from "vitest";
import { address } from "../../src/kernel/contract.ts";
import { simulate } from "../../src/testing/index.ts";

test("a clock that is not requested is late and never early", async () => {
  const earlyMs: number[] = [];
  await simulate("late replies", { calm: true, delay: 1, seeds: 20 }, async (world) => {
    world.process("p", async ({ pawl: { kernel } }) => {
      const at = address("made up", "one");
      for (let times = 0; times < 3; times++)
        await kernel.transact(
          (tx) => {
            earlyMs.push(world.database.nowMs() - tx.nowUpperBoundMs);
            tx.record(at).write({ value: times });
          },
          [at],
        );
    });
    await world.finish();
  });
  expect(earlyMs.length).toBeGreaterThan(0);
  expect(Math.max(...earlyMs)).toBeLessThanOrEqual(0);
});
