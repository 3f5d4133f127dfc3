// Goal: the simulator on PostgreSQL can be trusted: it finds known bugs of a store.
// Method: each bug is planted into the real source in a process of its own; its scenario must break within a bounded number of schedules.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { type PostgresBug, postgresBugs } from "./planted.ts";

const run = promisify(execFile);
const runner = fileURLToPath(new URL("./run-planted.ts", import.meta.url));

async function hunt(bug: PostgresBug): Promise<string> {
  const env = { ...process.env, PAWL_BUG: JSON.stringify(bug), PAWL_SEED: "" };
  const { stdout } = await run(process.execPath, [runner], { env, timeout: 590_000 });
  return stdout;
}

describe("a planted bug is caught", () => {
  for (const bug of postgresBugs)
    test(bug.name, { timeout: 600_000 }, async () => {
      expect(await hunt(bug)).toContain("caught by seed");
    });
});

test("a bug that changes nothing is not caught", { timeout: 600_000 }, async () => {
  const [bug] = postgresBugs;
  if (bug === undefined) throw new Error("there is no bug");
  await expect(hunt({ ...bug, edits: [], options: { ...bug.options, seeds: 3 } })).rejects.toThrow("Command failed");
});
