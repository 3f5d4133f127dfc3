/** The transactions that lists.test.ts leaves out, and those of several processes on SQLite and PostgreSQL. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "vitest";
import { freshDatabase } from "../postgres/server.ts";
import { checkLists, PATHS, SQL } from "./check-lists.ts";

/** Only ends a test that hangs: a busy machine takes longer. */
const TIMEOUT = { timeout: 600_000 };

for (const lanes of [1, 3])
  test(`in memory, with ${lanes} ${lanes === 1 ? "lane" : "lanes"}`, TIMEOUT, async () => {
    await checkLists({ store: "memory:", transactions: 5_000, processes: 3, lanes }, PATHS);
  });

test("on SQLite, in three processes", TIMEOUT, async () => {
  const folder = mkdtempSync(join(tmpdir(), "pawl-lists-"));
  await checkLists({ store: join(folder, "lists.db"), transactions: 4_000, processes: 3 }, [...PATHS, ...SQL]);
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

test("on PostgreSQL, in three processes", TIMEOUT, async () => {
  const { url, drop } = await freshDatabase();
  await checkLists({ store: url, transactions: 4_000, processes: 3 }, [...PATHS, ...SQL]);
  await drop();
});
