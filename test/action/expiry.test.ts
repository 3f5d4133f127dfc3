// Goal: actions whose retention is over go, however the new ones are made.
// Method: a handle on a store in memory whose clock the test moves.

import { expect, test } from "vitest";
import { nodePorts } from "../../src/node/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { drained } from "../kernel/kit.ts";

const DAY = 86_400_000;

test("actions that are created inside transact trigger sweeps", async () => {
  let nowMs = Date.UTC(2026, 0, 1);
  await using pawl = pawlOn(new MemoryDatabase(() => nowMs).connect("test"), nodePorts, { namespace: "test" });
  const create = () => pawl.transact((tx) => tx.actions.create({ expiresIn: "1 minute" }));
  const count = async () => (await pawl.kernel.list({ space: "action", prefix: "", after: null, limit: 5000 })).length;
  await Promise.all(Array.from({ length: 300 }, create));
  await drained();
  expect(await count()).toBe(300);
  nowMs += 365 * DAY;
  // Sweeps keep a second apart, by the process's own clock.
  await new Promise((resolve) => setTimeout(resolve, 1100));
  await Promise.all(Array.from({ length: 256 }, create));
  await expect.poll(count).toBe(256);
});
