// The planted bugs that planted.test.ts leaves out, and one that is none.

import { expect, test } from "vitest";
import { bugs } from "./bugs.ts";
import { hunt, testHunt } from "./hunt.ts";

testHunt("long");

test("a bug that changes nothing is not caught", { timeout: 600_000 }, async () => {
  const [bug] = bugs;
  if (bug === undefined) throw new Error("there is no bug");
  const harmless = { name: "none", caughtBy: "an order is paid once, by old and new releases", edits: [] };
  await expect(hunt({ ...bug, ...harmless })).rejects.toThrow();
});
