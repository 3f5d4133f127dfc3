/**
 * Goal: every law of the conformance suite can fail, and fails for the mistake it is there to find.
 * Method: stores that are the memory store with one mistake each, of the kind that authors of stores make. Each is held to
 * all laws, and must break those named beside it and no others. Every law is broken by at least one of them. These are a few; the others
 * are in the long suite.
 */

import { expect, test } from "vitest";
import { drawing, lawsBrokenBy, sound } from "./broken.ts";
import { inOrder, laws, lawThatBegins, testMistakes } from "./mistaken.ts";
import { BROKEN } from "./mistakes/index.ts";

test("a store without a mistake keeps every law", async () => {
  expect(await lawsBrokenBy(sound)).toEqual([]);
});

test("a store that draws positions before it commits keeps every law, if it knows who is drawing", async () => {
  expect(await lawsBrokenBy({ ...sound, by: drawing({}) })).toEqual([]);
});

testMistakes("short");

test("every law is broken by one of the mistakes, and no two laws have one name", () => {
  expect(inOrder(BROKEN.flatMap(({ breaks }) => breaks.map(lawThatBegins)))).toEqual(laws);
  expect(new Set(laws).size).toBe(laws.length);
});
