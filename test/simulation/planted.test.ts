// Goal: the simulator can be trusted: a kernel or workflows with a known bug do not get past it.
// Method: each bug is planted into the real source, and its scenario must break (`hunt.ts`). These are a few; the others are in the long suite.

import { expect, test } from "vitest";
import { bugs } from "./bugs.ts";
import { testHunt } from "./hunt.ts";
import { replaceOnce } from "./plant.ts";

testHunt("short");

test("there are at least forty of them", () => {
  expect(new Set(bugs.map((bug) => bug.name)).size).toBeGreaterThanOrEqual(40);
});

test("a bug whose text is missing in the source is noticed", () => {
  expect(() => replaceOnce("a b a", { file: "f", from: "a", to: "c" })).toThrow("has this text 2 times");
  expect(() => replaceOnce("b", { file: "f", from: "a", to: "c" })).toThrow("has this text 0 times");
});
