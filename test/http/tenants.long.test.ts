// More ids, and more requests with each, than in tenants.test.ts.

import { test } from "vitest";
import { fuzz } from "./tenants.ts";

test.each([2, 3, 4, 5, 6, 7, 8, 9])(
  "what belongs to another tenant is the same as what does not exist, on every route: ids of seed %i",
  (seed) => fuzz(seed, 4),
);
