// Goal: the simulator can be trusted: a kernel or workflows with a known bug do not get past it.
// Method: each bug is planted into the real source in a process of its own; its scenario must break.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { bugs } from "./bugs.ts";
import { replaceOnce } from "./plant.ts";

const run = promisify(execFile);
const runner = fileURLToPath(new URL("./run-bug.ts", import.meta.url));

async function hunt(bug: (typeof bugs)[number]): Promise<string> {
  const env = { ...process.env, PAWL_BUG: JSON.stringify(bug), PAWL_SEED: "" };
  const { stdout } = await run(process.execPath, [runner, bug.name], { env, timeout: 280_000 });
  return stdout;
}

describe.concurrent("a planted bug is caught", () => {
  for (const bug of bugs)
    test(bug.name, { timeout: 300_000 }, async () => {
      expect(await hunt(bug)).toContain("caught by seed");
    });
});

test("there are at least forty of them", () => {
  expect(new Set(bugs.map((bug) => bug.name)).size).toBeGreaterThanOrEqual(40);
});

test("a bug that changes nothing is not caught", async () => {
  const [bug] = bugs;
  const harmless = { name: "none", caughtBy: "an order is paid once, by old and new releases", edits: [] };
  await expect(hunt({ ...bug, ...harmless })).rejects.toThrow();
});

test("a bug whose place is gone from the source is noticed", () => {
  expect(() => replaceOnce("a b a", { file: "f", from: "a", to: "c" })).toThrow("has 2 times");
  expect(() => replaceOnce("b", { file: "f", from: "a", to: "c" })).toThrow("has 0 times");
});
