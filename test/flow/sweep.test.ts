/** A share of the crash sweep of admission (`sweep.ts`); all of it is in `sweep.long.test.ts`. */

import { expect, it } from "vitest";
import { onStores } from "../workflow/kit.ts";
import { COLLECT_CASES, type Part, RUN_CASES, sweepCollected, sweepRuns } from "./sweep.ts";

onStores(["memory", "SQLite"], (place) => {
  const part: Part = place.store === "memory" ? { first: 3, every: 9 } : { first: 7, every: 40 };
  it.each(Object.entries(RUN_CASES))("%s", async (_, one) => {
    expect(await sweepRuns(place, one, part)).toBeGreaterThan(0);
  });
  it.each(Object.entries(COLLECT_CASES))("%s", async (_, one) => {
    expect(await sweepCollected(place, one, part)).toBeGreaterThan(0);
  });
});
