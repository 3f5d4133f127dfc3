/**
 * Goal: a limit that is raised admits as many runs as it has room for, without delay: what a commit will touch is read beforehand, and not found one by one.
 *
 * Method: how often the store is asked for rows by a commit is counted, which no load changes. The workflow is paused, so that only admission is counted.
 */

import { expect, test } from "vitest";
import { open, type Pawl, workflow } from "../../src/index.ts";
import type { Store } from "../../src/kernel/contract.ts";
import { wallMs } from "../../src/node/ports.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import type { LimitValue } from "../../src/workflow/flow/stored.ts";
import { limitAt } from "../../src/workflow/flow/stored.ts";
import { PATIENCE } from "../workflow/kit.ts";
import { wrongPlaces } from "./checker.ts";

/** Counts how often commits were given rows. */
function countLooks(store: Store): () => number {
  let looks = 0;
  const commit = store.commit.bind(store);
  store.commit = (batch) =>
    commit({
      ...batch,
      decide: (found) => {
        looks += 1;
        return batch.decide(found);
      },
    });
  return () => looks;
}

const heldOf = async ({ kernel }: Pawl): Promise<number> => {
  const [row] = await kernel.read([limitAt(["shared:vendor"])]);
  return row?.value == null ? 0 : (kernel.decode(row, row.value) as LimitValue).held;
};

const RUNS = 1000;

test.each([
  { of: "one line", keys: 1 },
  { of: "many lines", keys: RUNS },
  { of: "some lines", keys: 7 },
])("$of: all runs are admitted, by few looks at the store", async ({ keys }) => {
  const database = new MemoryDatabase(wallMs);
  const jobOf = (max: number) =>
    workflow(
      { name: "job", concurrency: { name: "vendor", max }, fairness: { key: (n: number) => String(n % keys) } },
      async () => {},
    );
  await using starting = await open({ store: database.connect("raised") });
  const before = jobOf(1);
  for (let n = 0; n <= RUNS; n++) await starting.start(before, n);
  await starting.workflows.pause(before);
  const store = database.connect("raised");
  const looks = countLooks(store);
  await using pawl = await open({ store });
  pawl.work([jobOf(RUNS + 1)]);
  await expect.poll(() => heldOf(pawl), PATIENCE).toBe(RUNS + 1);
  // Each of them alone is two: that of its line, and its own.
  expect(looks()).toBeLessThan(RUNS / 5);
  expect(await wrongPlaces(pawl.kernel)).toEqual([]);
});
