/**
 * A process with a watchdog, which then does what its first argument says. It prints a line when it starts and one when it has finished;
 * `hear` waits for a line that says what to do next.
 */

import { execFileSync } from "node:child_process";
import { writeSync } from "node:fs";
import { open } from "node:inspector";
import { createInterface } from "node:readline";
import { setImmediate, setTimeout } from "node:timers/promises";
import { startWatchdog } from "../../../src/node/watchdog.ts";

const [what = "", limit = ""] = process.argv.slice(2);
const limitMs = Number(limit);
const say = (line: string) => writeSync(1, `${line}\n`);

/** Keeps the loop for so long, not counting the time in which this process was stopped. */
function block(ms: number) {
  let lastMs = performance.now();
  for (let leftMs = ms; leftMs > 0; ) {
    const nowMs = performance.now();
    leftMs -= Math.min(nowMs - lastMs, 50);
    lastMs = nowMs;
  }
}

const noise = `${"noise ".repeat(1000)}\n`;

const acts: Record<string, () => void | Promise<void>> = {
  hang: () => block(Number.POSITIVE_INFINITY),
  "hang in a program": () => void execFileSync(process.execPath, ["-e", "setTimeout(() => {}, 5000)"]),
  "hang in promises": async () => {
    for (;;) {
      await null;
      dog.running("run other");
      dog.running("run fulfil-42");
    }
  },
  "hang in a write": () => {
    for (;;) writeSync(2, noise);
  },
  "hang in failing writes": () => {
    // Using it makes the pipe one that is not waited for.
    process.stderr.write(noise);
    for (;;)
      try {
        writeSync(2, noise);
      } catch (error) {
        if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) throw error;
      }
  },
  "hang without a run": () => {
    dog.running(undefined);
    block(Number.POSITIVE_INFINITY);
  },
  "hang with a long label": () => {
    dog.running("é".repeat(10_000));
    block(Number.POSITIVE_INFINITY);
  },
  "hang on two lines": () => {
    dog.running("two\nlines");
    block(Number.POSITIVE_INFINITY);
  },
  "hang with two": () => {
    startWatchdog({ limitMs: 60_000 });
    block(Number.POSITIVE_INFINITY);
  },
  "stop the shorter": () => {
    startWatchdog({ limitMs: 60_000 });
    dog.stop();
    block(4 * limitMs);
  },
  "hang after one of two stops": () => {
    const other = startWatchdog({ limitMs: 60_000 });
    other.running("run of the other");
    dog.running("run fulfil-42");
    other.stop();
    other.running("run of the stopped");
    block(Number.POSITIVE_INFINITY);
  },
  "hang after start again": async () => {
    dog.stop();
    await setTimeout(limitMs);
    startWatchdog({ limitMs }).running("run again");
    block(Number.POSITIVE_INFINITY);
  },
  slices: async () => {
    for (let i = 0; i < 12; i += 1) {
      block(limitMs / 2);
      await setImmediate();
    }
  },
  idle: async () => {
    await setTimeout(4 * limitMs);
  },
  alone: () => {},
  stop: async () => {
    dog.stop();
    dog.stop();
    await setTimeout(limitMs);
    block(4 * limitMs);
  },
  block: () => block(4 * limitMs),
  "block after the inspector opens": async () => {
    await setTimeout(limitMs);
    open(0, "127.0.0.1");
    await setTimeout(limitMs);
    block(4 * limitMs);
    process.exit();
  },
  "start often": () => {
    for (let i = 0; i < 3; i += 1) startWatchdog({ limitMs }).running("not reported");
  },
};

const dog = startWatchdog({ limitMs });
dog.running("run fulfil-42");
say("ready");
if (what === "hear") {
  const lines = createInterface({ input: process.stdin });
  for await (const line of lines) {
    if (line === "end") break;
    await acts[line]?.();
    say("done");
  }
} else {
  await acts[what]?.();
  say("done");
}
