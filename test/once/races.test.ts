/**
 * Goal: each race of a payments service ends as it should on every store.
 * Method: `races.ts` forces the races; here they are played on all stores. That no guard is there for show is in the long suite.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Pawl } from "../../src/index.ts";
import { guards } from "./guards.ts";
import { Arena, races } from "./races.ts";
import { type Ground, grounds } from "./stores.ts";

describe.each(grounds)("on %s", (_, make) => {
  let ground: Ground;
  beforeAll(async () => {
    ground = await make();
  });
  afterAll(() => ground.leave());

  for (const [number, { name, play }] of races.entries())
    test(name, { timeout: 60_000 }, async () => {
      const arena = new Arena(ground.connect, `race-${number}`);
      try {
        await play(arena);
      } finally {
        await arena.leave();
      }
    });
});

describe.each(grounds)("the barrier on %s", (_, make) => {
  test("makes a race: two who look and then act are both told that they won", async () => {
    const ground = await make();
    const arena = new Arena(ground.connect, "naive");
    const redeem = (pawl: Pawl) => async () => {
      const coupon = pawl.slot<string>("coupon", { initial: "unused" });
      if ((await coupon.get()).value !== "unused") return "too late";
      await coupon.set("used");
      return "won";
    };
    const answers = await arena.atOnce(2, (await arena.processes(2)).map(redeem));
    expect(answers.map((answer) => answer.status === "fulfilled" && answer.value)).toEqual(["won", "won"]);
    await arena.leave();
    await ground.leave();
  });
});

test("every race has a guard, and every guard a name of its own", () => {
  const guarded = new Set(guards.map(({ race }) => race));
  expect(races.filter(({ name }) => !guarded.has(name)).map(({ name }) => name)).toEqual([]);
  expect(guards.filter(({ race }) => !races.some(({ name }) => name === race))).toEqual([]);
  expect(new Set(guards.map(({ name }) => name)).size).toBe(guards.length);
});
