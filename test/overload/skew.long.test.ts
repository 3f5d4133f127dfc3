/**
 * The races of skew.test.ts that are left to chance: each of two handles creates its own key and looks whether the other's is there, and at
 * most one is first (G32).
 */

import { afterAll, beforeAll, expect, test } from "vitest";
import { freshDatabase } from "../postgres/server.ts";
import { type IsFirst, raw, withIdempotent } from "./firsts.ts";
import { handleOn, range } from "./kit.ts";

/** Races that are left to chance: few for each pair of handles, because one that guessed wrong guesses less for a while. */
const PAIRS = 6;
const RACES_PER_PAIR = 50;
/** All races of a way take a few seconds. */
const TIMEOUT_MS = 300_000;

let database: Awaited<ReturnType<typeof freshDatabase>>;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.drop());

/** In how many races that are left to chance both were first. */
async function byChance(isFirst: IsFirst): Promise<number> {
  let both = 0;
  for (const pair of range(PAIRS)) {
    await using one = await handleOn(database.url, { max: 4 });
    await using two = await handleOn(database.url, { max: 4 });
    await Promise.all([one, two].map(({ pawl }, i) => isFirst(pawl, `warm-${pair}-${i}`, `none-${pair}-${i}`)));
    for (const n of range(RACES_PER_PAIR)) {
      const [a, b] = [`a-${pair}-${n}`, `b-${pair}-${n}`];
      const firsts = await Promise.all([isFirst(one.pawl, a, b), isFirst(two.pawl, b, a)]);
      if (firsts[0] && firsts[1]) both += 1;
    }
  }
  return both;
}

test.each([
  ["tx.idempotent in transact", withIdempotent],
  ["a decision that names its own key as new", raw("raw 5", (mine) => [mine])],
])(`by chance, ${PAIRS * RACES_PER_PAIR} times, with %s`, { timeout: TIMEOUT_MS }, async (_, isFirst) => {
  expect(await byChance(isFirst)).toBe(0);
});
