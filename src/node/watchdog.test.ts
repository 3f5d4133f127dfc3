/**
 * The watchdog, on real processes: each is told to hang, and ends. That others live on is in watchdog.long.test.ts.
 *
 * Leaves out: what a limit should be, and debuggers that pause; an open inspector stands for them.
 */

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Worker } from "node:worker_threads";
import { describe, expect, test } from "vitest";
import { Child, type SpawnOptions, spawnNode } from "../../test/node/child.ts";
import { startWatchdog } from "./watchdog.ts";

const program = join(import.meta.dirname, "../../test/node/children/watched.ts");
const LIMIT_MS = 400;
/** It takes a third more at most, but a machine has other things to do; without the watchdog it takes for ever. */
const SOON_MS = 120_000;

type Finish = (end: () => void) => void;

/** Whatever becomes of the test, the child ends with it. */
function watched(onTestFinished: Finish, what: string, options?: SpawnOptions): Child {
  const child = spawnNode(program, [what, String(LIMIT_MS)], options);
  onTestFinished(() => void child.kill("SIGKILL"));
  return new Child(child, what);
}

/** How it ended after it was ready, and how long that took. */
async function outcome(child: Child) {
  expect(await child.line()).toBe("ready");
  const startMs = performance.now();
  const ending = await child.ended;
  return { ...ending, tookMs: performance.now() - startMs, complaints: child.complaints };
}

const sentence = (who: string) =>
  new RegExp(
    `^Pawl: the event loop of process \\d+ was blocked for ${LIMIT_MS} ms while ${who} was executing; ` +
      "the process is killed, so that other processes continue its work\\.\\n$",
  );

describe.concurrent("a blocked event loop", () => {
  const hangs = [
    { rule: "by JavaScript that does not end", what: "hang", who: '"run fulfil-42"' },
    { rule: "by waiting for another program", what: "hang in a program", who: '"run fulfil-42"' },
    { rule: "by promises that keep timers from firing", what: "hang in promises", who: '"run (fulfil-42|other)"' },
    { rule: "with no run executing", what: "hang without a run", who: "no run" },
    { rule: "under a label that is cut", what: "hang with a long label", who: '"é{256}"' },
    { rule: "under a label of two lines", what: "hang on two lines", who: '"two\\\\nlines"' },
    { rule: "for longer than the shortest of two limits", what: "hang with two", who: '"run fulfil-42"' },
    { rule: "after another watchdog stopped", what: "hang after one of two stops", who: '"run fulfil-42"' },
    { rule: "after it was stopped and started", what: "hang after start again", who: '"run again"' },
  ];
  test.for(hangs)("ends the process, and the message names it: $rule", async ({ what, who }, { onTestFinished }) => {
    const { signal, tookMs, complaints } = await outcome(watched(onTestFinished, what));
    expect(complaints).toMatch(sentence(who));
    expect(signal).toBe("SIGKILL");
    expect(tookMs).toBeGreaterThan(LIMIT_MS / 2);
    expect(tookMs).toBeLessThan(SOON_MS);
  });

  const unheard = ["hang in a write", "hang in failing writes"];
  test.for(unheard)("ends the process even if standard error is not read: %s", async (what, { onTestFinished }) => {
    const folder = mkdtempSync(join(tmpdir(), "pawl-watchdog-"));
    const pipe = join(folder, "pipe");
    expect(spawnSync("mkfifo", [pipe]).status).toBe(0);
    const end = openSync(pipe, "r+");
    const child = spawn(process.execPath, [program, what, String(LIMIT_MS)], { stdio: ["ignore", "ignore", end] });
    onTestFinished(() => {
      child.kill("SIGKILL");
      closeSync(end);
      rmSync(folder, { recursive: true });
    });
    expect(await once(child, "exit")).toEqual([null, "SIGKILL"]);
  });

  const unshare = ["--pid", "--fork", "--kill-child"];
  const canUnshare = spawnSync("unshare", [...unshare, "true"]).status === 0;
  test.runIf(canUnshare)(
    "ends even the first process of a container, which no signal from within reaches",
    async ({ onTestFinished }) => {
      const parent = spawn("unshare", [...unshare, process.execPath, program, "hang", String(LIMIT_MS)]);
      onTestFinished(() => void parent.kill("SIGKILL"));
      const { code, complaints } = await outcome(new Child(parent, "the first process"));
      expect(code).toBe(137);
      expect(complaints).toContain('process 1 was blocked for 400 ms while "run fulfil-42" was executing');
    },
  );
});

describe("the thread", () => {
  test("is one for all who ask, and ends with the last of them", async () => {
    const made: Worker[] = [];
    const see = (worker: Worker) => void made.push(worker);
    process.on("worker", see);
    try {
      const dogs = [60_000, 50_000, 70_000].map((limitMs) => startWatchdog({ limitMs }));
      await expect.poll(() => made.length).toBe(1);
      const [first] = made;
      let isOver = false;
      first?.once("exit", () => {
        isOver = true;
      });
      dogs[0]?.stop();
      dogs[0]?.stop();
      dogs[1]?.stop();
      await sleep(200);
      expect(isOver).toBe(false);
      dogs[2]?.stop();
      await expect.poll(() => isOver).toBe(true);
      startWatchdog({ limitMs: 60_000 }).stop();
      await expect.poll(() => made.length).toBe(2);
    } finally {
      process.off("worker", see);
    }
  });

  test.each([0, -1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31])("a limit of %d is refused", (limitMs) => {
    expect(() => startWatchdog({ limitMs })).toThrow("limitMs");
  });
});
