/**
 * Goal: a worker that gives up a run in the middle of its replay writes nothing about it: its code has seen a part of the history only, and
 * may believe that it holds a lock which it released later (G6). The next worker finishes the run, and its locks are free then (G30).
 * Method: `abandoned-replay.ts`, in a time that the test moves. The same on sources without the guards, in a process of its own: there
 * the lock is acquired again for a run that does not know of it, which then waits for itself.
 */

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { type Played, play, WAYS } from "./abandoned-replay.ts";

const runner = fileURLToPath(new URL("./run-abandoned-replay.ts", import.meta.url));

const FREE = { holders: [], waiters: [] };
const TAKEN = { holders: ["dora"], waiters: [] };

describe("a replay that is given up half-way, because", () => {
  for (const way of WAYS)
    test.each([
      ["free", false],
      ["held by another process", true],
    ])(`${way}, asks for no lock that was released since then, and that is %s now`, async (_, isTaken) => {
      const { told, ...played } = await play(way, isTaken);
      expect(told).toEqual([way === "it could not read the rest" ? "run.trouble" : "run.lost"]);
      expect(played).toEqual({
        wroteBrief: 0,
        brief: isTaken ? TAKEN : FREE,
        kept: { holders: ["one"], waiters: [] },
        outcome: "done",
        left: [FREE, FREE],
        began: ["ann", "cleo"],
      });
    });
});

test("without the guards, a run waits for a lock that was acquired again by a replay that was given up", {
  timeout: 300_000,
}, async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [runner]);
  const lines = stdout.trim().split("\n");
  const all = lines.map((line): Played & { readonly isTaken: boolean } => JSON.parse(line));
  expect(all.length).toBe(4);
  for (const { isTaken, brief, outcome } of all) {
    expect(brief).toEqual(isTaken ? { ...TAKEN, waiters: ["one"] } : { ...FREE, holders: ["one"] });
    expect(outcome).toContain('run "one" waits for mutex "brief", held by run "one"');
  }
});
