/**
 * Stores with a mistake each, held to all laws: for `broken.test.ts` and `broken.long.test.ts`.
 *
 * One in eight is in the short suite, the others are in the long one.
 */

import { expect, test } from "vitest";
import { lawsBrokenBy, lawsOf, sound } from "./broken.ts";
import { BROKEN } from "./mistakes/index.ts";

const IN_SHORT = 8;

export const laws = lawsOf(sound).map(({ name }) => name);

/** The law whose name begins so: exactly one does. */
export function lawThatBegins(start: string): string {
  const [name, ...more] = laws.filter((law) => law.startsWith(start));
  if (name === undefined || more.length > 0)
    throw new Error(`${more.length ? "several laws begin" : "no law begins"} "${start}"`);
  return name;
}

export const inOrder = (names: Iterable<string>): readonly string[] => {
  const set = new Set(names);
  return laws.filter((law) => set.has(law));
};

/** The tests of one of the suites. */
export function testMistakes(suite: "short" | "long"): void {
  const chosen = BROKEN.filter((_, index) => (index % IN_SHORT === 0) === (suite === "short"));
  for (const broken of chosen)
    test.concurrent(`a store that ${broken.bug} is found out`, async () => {
      expect(broken.breaks).not.toEqual([]);
      expect(await lawsBrokenBy(broken)).toEqual(inOrder(broken.breaks.map(lawThatBegins)));
    });
}
