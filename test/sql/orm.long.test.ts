/**
 * Goal: an order through a library and Pawl exists on both sides or on neither, at whatever moment its process is killed.
 * Method: kills.ts, with a few kills of each moment for each way; `scripts/orm-kills.ts` does a thousand. A broken way, whose Pawl part is
 * not in the library's transaction, must be caught.
 */

import { describe, expect, test } from "vitest";
import { describeKills, killOrders, ways } from "./kills.ts";

describe("processes that are killed at their orders", () => {
  test.each(ways)("through %s leave both sides of each, or neither", async (way) => {
    const report = await killOrders(way, { kills: 6, atOnce: 3, random: Math.random });
    console.log(describeKills([report]));
    expect(report.violations).toEqual([]);
    expect(report.kills).toBe(6);
    expect(report.acked).toBeGreaterThan(0);
  });

  test("through a library and Pawl apart are caught", async () => {
    const report = await killOrders("pg and Pawl apart", { kills: 2, atOnce: 2, random: Math.random });
    expect(report.violations.filter((violation) => violation.includes("a marker and no row"))).not.toEqual([]);
    expect(report.violations.at(-1)).toMatch(/the stocks say \d+, and the orders \d+/);
  });
});
