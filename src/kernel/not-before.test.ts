/**
 * Goal: a decision is not before what its records say, and a store clock that was set back is not taken for a record that was locked late.
 * Method: one row for each rule and for each side of its boundary.
 */

import { expect, test } from "vitest";
import { notBefore } from "./not-before.ts";

test.each([
  { rule: "what was written before changes nothing", lastMs: 99_999, atMs: 100_000 },
  { rule: "nor does what was written at the same time", lastMs: 100_000, atMs: 100_000 },
  { rule: "what was written a little later was written before the lock", lastMs: 100_001, atMs: 100_001 },
  { rule: "by as much as a commit may take", lastMs: 110_000, atMs: 110_000 },
  { rule: "more than that is a clock that was set back", lastMs: 110_001, atMs: 100_000 },
])("$rule", ({ lastMs, atMs }) => expect(notBefore(100_000, lastMs)).toBe(atMs));
