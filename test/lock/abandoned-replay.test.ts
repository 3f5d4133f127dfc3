/**
 * Goal: a worker that abandons a run in the middle of its replay writes nothing about it: its code has seen only a part of the history, and
 * may act as if it held a lock that it released later (G6). The next worker finishes the run, and its locks are free then (G30).
 * Method: `abandoned-replay.ts`, in a time that the test moves. The same on sources without the guards, in a process of its own: there
 * the lock is acquired again for a run that does not know of it, which then waits for itself.
 */

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { type Result, runAbandoned, WAYS } from "./abandoned-replay.ts";

const runner = fileURLToPath(new URL("./run-abandoned-replay.ts", import.meta.url));

const FREE = { holders: [], waiters: [] };
const TAKEN = { holders: ["dora"], waiters: [] };

describe("a replay that is abandoned half-way, because", () => {
  for (const way of WAYS)
    test.each([
      ["free", false],
      ["held by another process", true],
    ])(`${way}, requests no lock that was released later, and that is %s now`, async (_, isTaken) => {
      const { reported, ...result } = await runAbandoned(way, isTaken);
      expect(reported).toEqual([way === "it could not read the rest" ? "run.trouble" : "run.lost"]);
      expect(result).toEqual({
        wroteBrief: 0,
        brief: isTaken ? TAKEN : FREE,
        kept: { holders: ["one"], waiters: [] },
        outcome: "done",
        left: [FREE, FREE],
        began: ["ann", "cleo"],
      });
    });
});

test("without the guards, a run waits for a lock that an abandoned replay acquired again", {
  timeout: 300_000,
}, async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [runner]);
  const lines = stdout.trim().split("\n");
  const all = lines.map((line): Result & { readonly isTaken: boolean } => JSON.parse(line));
  expect(all.length).toBe(4);
  for (const { isTaken, brief, outcome } of all) {
    expect(brief).toEqual(isTaken ? { ...TAKEN, waiters: ["one"] } : { ...FREE, holders: ["one"] });
    expect(outcome).toContain('run "one" waits for mutex "brief", held by run "one"');
  }
});
