/**
 * Goal: failures of event stores and subscriptions that other systems have had do not happen here, on any store (G11, G12, G13).
 * Method: `failures.ts` forces each of them; here they are played on all stores. That no guard is there for show is in the long suite.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Ground, grounds } from "../once/stores.ts";
import { Arena, failures } from "./failures.ts";
import { guards } from "./guards.ts";

/** Long enough for any machine. */
const PATIENCE_MS = 100_000;

describe.each(grounds)("on %s", (store, make) => {
  let ground: Ground;
  beforeAll(async () => {
    ground = await make();
  });
  afterAll(() => ground.leave());

  // Some can only happen where several transactions are open at a time.
  const possible = failures.filter(({ needsServer }) => needsServer !== true || store === "PostgreSQL");
  for (const [number, { name, play }] of possible.entries())
    test(name, async () => {
      const arena = new Arena(ground.connect, `failure-${number}`, PATIENCE_MS);
      try {
        await play(arena);
      } finally {
        await arena.leave();
      }
    });
});

test("every failure has a guard, and every guard a name of its own", () => {
  const guarded = new Set(guards.map(({ failure }) => failure));
  expect(failures.filter(({ name }) => !guarded.has(name)).map(({ name }) => name)).toEqual([]);
  expect(guards.filter(({ failure }) => !failures.some(({ name }) => name === failure))).toEqual([]);
  expect(new Set(guards.map(({ name }) => name)).size).toBe(guards.length);
});
