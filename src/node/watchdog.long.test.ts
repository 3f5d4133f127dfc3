/**
 * The watchdog, on real processes that are merely busy, stopped or debugged: each lives on.
 *
 * The limit is longer than in watchdog.test.ts: a busy machine must not look like a blocked event loop.
 * Leaves out: what a limit should be, and debuggers that pause; an open inspector stands for them.
 */

import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { Child, type SpawnOptions, spawnNode } from "../../test/node/child.ts";

const program = join(import.meta.dirname, "../../test/node/children/watched.ts");
const LIMIT_MS = 1500;
/** It ends by itself when nothing is left to do, but a machine has other things to do. */
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

describe.concurrent("a process lives on", () => {
  const lives = [
    { rule: "that is busy in slices below the limit", what: "slices", atLeastMs: 4 * LIMIT_MS },
    { rule: "that has nothing to do but wait", what: "idle", atLeastMs: 3 * LIMIT_MS },
    { rule: "whose watchdog was stopped", what: "stop", atLeastMs: 4 * LIMIT_MS },
    { rule: "whose shorter watchdog was stopped", what: "stop the shorter", atLeastMs: 3 * LIMIT_MS },
    { rule: "that can be debugged", what: "block", nodeArgs: ["--inspect=127.0.0.1:0"], atLeastMs: 3 * LIMIT_MS },
    { rule: "that can be debugged since a while", what: "block after the inspector opens", atLeastMs: 4 * LIMIT_MS },
  ];
  test.for(lives)("$rule", async ({ what, nodeArgs, atLeastMs }, { onTestFinished }) => {
    const { code, signal, tookMs, complaints } = await outcome(watched(onTestFinished, what, { nodeArgs }));
    expect({ code, signal, complaints }).toEqual({
      code: 0,
      signal: null,
      complaints: expect.not.stringContaining("Pawl"),
    });
    expect(tookMs).toBeGreaterThan(atLeastMs);
  });

  test("that was stopped by a signal for longer than the limit, and is watched afterwards", async ({
    onTestFinished,
  }) => {
    const child = watched(onTestFinished, "hear");
    expect(await child.line()).toBe("ready");
    // Busy meanwhile, so that the next thing it does is not a heartbeat.
    child.tell("slices");
    for (let i = 0; i < 3; i += 1) {
      await sleep(LIMIT_MS / 2);
      child.signal("SIGSTOP");
      await sleep(3 * LIMIT_MS);
      child.signal("SIGCONT");
    }
    expect(await child.line()).toBe("done");
    child.tell("hang");
    expect((await child.ended).signal).toBe("SIGKILL");
    expect(child.complaints).toMatch(sentence('"run fulfil-42"'));
  });

  test("only as long as something else keeps it alive", async ({ onTestFinished }) => {
    const { code, tookMs, complaints } = await outcome(watched(onTestFinished, "alone"));
    expect({ code, complaints }).toEqual({ code: 0, complaints: "" });
    expect(tookMs).toBeLessThan(SOON_MS);
  });

  test("without threads, with one warning", async ({ onTestFinished }) => {
    const child = watched(onTestFinished, "start often", {
      nodeArgs: ["--permission", "--allow-fs-read=*", "--allow-fs-write=*"],
    });
    const { code, complaints } = await outcome(child);
    expect(code).toBe(0);
    expect(complaints.match(/\[no_watchdog\] PawlWarning: No watchdog: /g)).toHaveLength(1);
  });
});
