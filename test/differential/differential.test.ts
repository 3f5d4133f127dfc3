/**
 * Goal: whatever is done to them, all stores answer the same and end in the same state, so that what is tested on one holds on
 * the others.
 * Method: chapters of random operations, each drawn from a seed, are played on every store; their answers are held side by
 * side, and every so often their whole states. These are a few; the long suite plays more of them, counts what must come up, and shows that
 * stores with one planted difference each are caught.
 */

import { afterAll, expect, test } from "vitest";
import { CHAPTER, describeDifference, run } from "./compare.ts";
import { memory, subjects } from "./subjects.ts";

/** Not among the seeds of the long suite. */
const SEED = 1001;

afterAll(async () => {
  for (const subject of subjects) await subject.close?.();
});

test.each([
  { where: "in this process", chosen: subjects.filter(({ isServer = false }) => !isServer), operations: CHAPTER },
  {
    where: "on a server",
    chosen: [memory("memory"), ...subjects.filter(({ isServer }) => isServer)],
    operations: CHAPTER / 4,
  },
])("all stores $where answer the same, and end in the same state", async ({ chosen, operations }) => {
  expect(chosen.length).toBeGreaterThan(1);
  const found = await run({ seed: SEED, operations, subjects: chosen });
  expect(found.difference === undefined ? "" : describeDifference(found.difference)).toBe("");
  expect(found.operations).toBe(operations);
});
