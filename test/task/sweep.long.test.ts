/** The crash sweep of tasks (`sweep.ts`), on real stores. */

import { expect, test } from "vitest";
import { onStores } from "../workflow/kit.ts";
import { CASES, sweep } from "./sweep.ts";

const MOST_CALLS = 60;

onStores(["SQLite", "PostgreSQL"], (place) => {
  test.each(Object.keys(CASES))("%s, whichever call to the store is the last", async (name) => {
    for (const when of ["before", "after"] as const) {
      let call = 1;
      while (call < MOST_CALLS && (await sweep(place, name, call, when))) call += 1;
      expect(call).toBeLessThan(MOST_CALLS);
    }
  });
});
