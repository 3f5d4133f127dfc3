/**
 * Takes guards out of a copy of the source, and runs the trap of each against that copy (`guards.ts`, `run-guards.ts`), where it must close.
 *
 * One in twenty-four is taken out in the short suite, the others in the long one.
 */

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { guards } from "./guards.ts";
import type { GuardReport } from "./run-guards.ts";

const IN_SHORT = 24;

const runner = fileURLToPath(new URL("./run-guards.ts", import.meta.url));
/** Without its guard a trap may wait for what never comes; what is right has come by then, or is found by the run of the traps. */
const env = { ...process.env, PAWL_TRAP_SOON_MS: "4000" };
const args = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning", runner];

/** The tests of one of the suites. */
export function testGuards(suite: "short" | "long"): void {
  const chosen = guards.filter((_, index) => (index % IN_SHORT === 0) === (suite === "short"));
  const waiting = new Map(chosen.map(({ name }) => [name, Promise.withResolvers<GuardReport>()]));
  const running = { end: () => {} };

  beforeAll(() => {
    const child = spawn(process.execPath, [...args, ...waiting.keys()], { env, stdio: ["ignore", "pipe", "pipe"] });
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
    for (const { name } of chosen)
      test(name, { timeout: 600_000 }, async () => {
        const report = await waiting.get(name)?.promise;
        expect(report, report?.message).toMatchObject({ is: "caught" });
      });
  });
}
