/**
 * Goal: every guard against a trap is needed: without it, the trap fails.
 * Method: each guard is removed from a copy of the source, and its trap is run against that copy (`guarding.ts`). These are a few; the
 * others are in the long suite.
 */

import { expect, test } from "vitest";
import { testGuards } from "./guarding.ts";
import { guards } from "./guards.ts";
import { traps } from "./traps/index.ts";

testGuards("short");

test("every trap has a guard, and every guard a unique name", () => {
  const guarded = new Set(guards.map(({ trap }) => trap));
  expect(traps.filter(({ name }) => !guarded.has(name)).map(({ name }) => name)).toEqual([]);
  expect(new Set(guards.map(({ name }) => name)).size).toBe(guards.length);
});
