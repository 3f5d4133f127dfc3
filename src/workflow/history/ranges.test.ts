/**
 * Goal: what is listed as forgotten is what was forgotten, whether it is in the record or in the history.
 * Method: random ranges beside a plain look at each. What a retry makes of them is in test/workflow/retry-many.long.test.ts.
 */

import { describe, expect, test } from "vitest";
import { Random } from "../../testing/sim/random.ts";
import type { VersionRange } from "../stored.ts";
import { isIn, merged } from "./ranges.ts";

describe("ranges", () => {
  test("have the versions that one of them has, in order and apart from each other", () => {
    const random = new Random(9);
    for (let round = 0; round < 300; round++) {
      const ranges = Array.from({ length: random.below(12) }, (): VersionRange => {
        const from = 1 + random.below(60);
        return [from, from + random.below(6)];
      });
      const inOrder = merged(ranges);
      for (let version = 0; version < 80; version++)
        expect(isIn(inOrder, version)).toBe(ranges.some(([from, to]) => from <= version && version <= to));
      inOrder.forEach(([from], index) => {
        if (index > 0) expect(from).toBeGreaterThan((inOrder[index - 1]?.[1] ?? 0) + 1);
      });
    }
  });
});
