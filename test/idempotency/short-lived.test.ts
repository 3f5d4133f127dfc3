/**
 * Goal: keys and marks that have expired go away also where no process lives for long: a command, a function in the cloud.
 * Method: one handle after another is opened on a file, makes one key or mark, and is closed; then the rows are counted.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { KEYS, MARKS } from "../../src/idempotency/stored.ts";
import { open, type Pawl } from "../../src/index.ts";
import { sleep } from "../sql/grounds.ts";

const TTL_MS = 20;

const makes: readonly [string, (pawl: Pawl, name: string) => Promise<unknown>][] = [
  ["a key", (pawl, name) => pawl.idempotent(name, { ttl: TTL_MS }, () => "done")],
  // With a `ttl` through the public handle, which refused it once.
  ["a mark", (pawl, name) => pawl.dedupe("mailer", name, () => {}, { ttl: TTL_MS })],
  [
    "a key in a decision",
    (pawl, name) => pawl.transact((tx) => tx.idempotent(name, { ttl: TTL_MS }, () => "done").value),
  ],
];

test.each(makes)("processes that make %s each, and end, leave none behind that has expired", async (_, make) => {
  const folder = mkdtempSync(join(tmpdir(), "pawl-short-lived-"));
  const path = join(folder, "shop.db");
  const made = async (name: string): Promise<void> => {
    const pawl = await open(path);
    await make(pawl, name);
    await pawl.close();
  };
  try {
    for (let i = 0; i < 20; i++) await made(`request-${i}`);
    await sleep(TTL_MS + 10);
    await made("request-20");
    await using pawl = await open(path);
    const { keys } = await pawl.kernel.due({ kinds: [KEYS, MARKS], limit: 100 });
    // The last one may have expired by now, and is for the next process.
    expect(keys.length).toBeLessThan(2);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
