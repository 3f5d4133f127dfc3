/**
 * Hunts for the planted bugs: each is planted into the real source in a process of its own, and its scenario must break.
 *
 * One in sixty-four is hunted in the short suite, the others in the long one.
 */

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { type Bug, bugs } from "./bugs.ts";

const IN_SHORT = 64;
/** Only ends a hunt that hangs, its process first. */
const HUNT = { timeout: 600_000 };
const PROCESS = { timeout: 590_000 };

const run = promisify(execFile);
const runner = fileURLToPath(new URL("./run-bug.ts", import.meta.url));

export async function hunt(bug: Bug): Promise<string> {
  const env = { ...process.env, PAWL_BUG: JSON.stringify(bug), PAWL_SEED: "" };
  const { stdout } = await run(process.execPath, [runner, bug.name], { ...PROCESS, env });
  return stdout;
}

/** The tests of one of the suites. */
export function testHunt(suite: "short" | "long"): void {
  const chosen = bugs.filter((_, index) => (index % IN_SHORT === 0) === (suite === "short"));
  describe.concurrent("a planted bug is caught", () => {
    for (const bug of chosen)
      test(bug.name, HUNT, async () => {
        expect(await hunt(bug)).toContain("caught by seed");
      });
  });
}
