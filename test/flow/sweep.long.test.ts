/** The crash sweep of admission (`sweep.ts`): every call of the store. */

import { expect, it } from "vitest";
import { onStores } from "../workflow/kit.ts";
import { COLLECT_CASES, RUN_CASES, sweepCollected, sweepRuns } from "./sweep.ts";

onStores(["memory", "SQLite"], (place) => {
  it.each(Object.entries(RUN_CASES))("%s", async (_, one) => {
    expect(await sweepRuns(place, one, { first: 1, every: 1 })).toBeGreaterThan(10);
  });
  it.each(Object.entries(COLLECT_CASES))("%s", async (_, one) => {
    expect(await sweepCollected(place, one, { first: 1, every: 1 })).toBeGreaterThan(10);
  });
});
