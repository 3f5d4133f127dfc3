/**
 * G1: what was acknowledged survives `kill -9`.
 *
 * Goal: kills at random moments lose no acknowledged commit, leave no half-written one and no damaged file.
 * Method: ten of them (`kills.ts`); the long suite does ninety more.
 *
 * Out of scope: power loss, which needs a machine to cut; `synchronous = full` is checked in `start.test.ts`.
 */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { open } from "../../src/open.ts";
import { Checker, killUnderLoad, Ledger, type Report } from "./kills.ts";
import { scratchFolder } from "./kit.ts";

const folder = scratchFolder();

describe("kill -9 under load", () => {
  it("an acknowledged commit survives, and no commit is there in part", () =>
    killUnderLoad(folder, { lone: 6, beside: 4 }));

  it("the comparison notices a lost commit, an invented one and half of one", async () => {
    const path = join(folder, "planted.db");
    const pawl = await open(path);
    await pawl.slot<number>("count/a0").set(5);
    await pawl.slot<{ n: number }>("left/a0").set({ n: 1 });
    await pawl.slot<{ n: number }>("right/a0").set({ n: -1 });
    await pawl.close();
    const ledger = new Ledger(join(folder, "planted.ledger"));
    const checkAgainst = (highest: Record<string, number>): Report => {
      ledger.highest.clear();
      for (const [name, number] of Object.entries(highest)) ledger.highest.set(name, number);
      const checker = new Checker();
      checker.check(path, [ledger]);
      return checker.report;
    };
    const noLog = "a0 is at 1, and its log has undefined";
    expect(checkAgainst({ "count/a0": 5 })).toEqual({ missing: 0, faults: [noLog] });
    expect(checkAgainst({ "count/a0": 7 })).toEqual({ missing: 2, faults: [noLog] });
    expect(checkAgainst({ "count/a0": 3 }).faults).toEqual(["count/a0 is at 5, and at most 4 was requested", noLog]);
    expect(checkAgainst({ "toggle/a0-1": 3, "pair/a0": 2 })).toEqual({ missing: 4, faults: [noLog] });
  });
});
