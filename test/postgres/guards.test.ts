/**
 * Goal: no guard against a trap is there for show: without it, the trap closes.
 * Method: each guard is taken out of a copy of the source (`guards.ts`, `run-guards.ts`), and its trap is run against that copy.
 */

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { guards } from "./guards.ts";
import type { GuardReport } from "./run-guards.ts";
import { traps } from "./traps/index.ts";

const runner = fileURLToPath(new URL("./run-guards.ts", import.meta.url));
const args = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning", runner];
const waiting = new Map(guards.map(({ name }) => [name, Promise.withResolvers<GuardReport>()]));
const running = { end: () => {} };

beforeAll(() => {
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  running.end = () => void child.kill("SIGKILL");
  let complaints = "";
  child.stderr.on("data", (text) => {
    complaints += text;
  });
  createInterface({ input: child.stdout }).on("line", (line) => {
    const report: GuardReport = JSON.parse(line);
    waiting.get(report.guard)?.resolve(report);
  });
  child.on("close", () => {
    for (const { promise, reject } of waiting.values()) {
      promise.catch(() => {});
      reject(new Error(`the run of the guards ended without a word on this one: ${complaints}`));
    }
  });
});
afterAll(() => running.end());

describe("the trap closes when it is not so that", () => {
  for (const { name } of guards)
    test(name, { timeout: 120_000 }, async () => {
      expect(await waiting.get(name)?.promise).toMatchObject({ is: "caught" });
    });
});

test("every trap has a guard, and every guard a name of its own", () => {
  const guarded = new Set(guards.map(({ trap }) => trap));
  expect(traps.filter(({ name }) => !guarded.has(name)).map(({ name }) => name)).toEqual([]);
  expect(new Set(guards.map(({ name }) => name)).size).toBe(guards.length);
});
