/**
 * Goal: each race of a payments service ends as it should on every store, and the guard that sees to it is not there for show.
 * Method: `races.ts` forces the races; here they are played on all stores. Then each guard is taken out of a copy of the source
 * (`guards.ts`, `run-guards.ts`), in a process of its own, and its race is played on that copy, where it must fail.
 */

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Pawl } from "../../src/index.ts";
import { guards } from "./guards.ts";
import { Arena, races } from "./races.ts";
import type { GuardReport } from "./run-guards.ts";
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

describe("a race is lost", () => {
  let reports: ReadonlyMap<string, GuardReport>;
  beforeAll(async () => {
    const runner = join(import.meta.dirname, "run-guards.ts");
    const args = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning", runner];
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 100_000 });
    const lines = stdout.trim().split("\n");
    reports = new Map(lines.map((line): GuardReport => JSON.parse(line)).map((report) => [report.guard, report]));
  }, 110_000);

  for (const { name } of guards)
    test(name, () => {
      expect(reports.get(name)).toMatchObject({ is: "lost" });
    });

  test("and not where nothing is taken out", () => {
    expect(reports.get("nothing")).toMatchObject({ is: "won" });
  });
});

test("every race has a guard, and every guard a name of its own", () => {
  const guarded = new Set(guards.map(({ race }) => race));
  expect(races.filter(({ name }) => !guarded.has(name)).map(({ name }) => name)).toEqual([]);
  expect(guards.filter(({ race }) => !races.some(({ name }) => name === race))).toEqual([]);
  expect(new Set(guards.map(({ name }) => name)).size).toBe(guards.length);
});
