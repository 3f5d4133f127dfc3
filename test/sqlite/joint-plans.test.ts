/**
 * Goal: what Pawl does inside a transaction of the user's costs the same with a million records as with ten.
 * Method: SQLite's own query plan of each statement, on a database with records and statistics: no table may be scanned.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { open } from "../../src/index.ts";
import { APPEND, FIND, FOLLOW, UPDATE } from "../../src/stores/sqlite/joint.ts";
import { FOLLOW as READ_FOLLOWED } from "../../src/stores/sqlite/queries.ts";

let folder: string;
let db: DatabaseSync;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "pawl-plans-"));
  const path = join(folder, "x.db");
  await using pawl = await open(path);
  await Promise.all(Array.from({ length: 3000 }, (_, n) => pawl.slot(`s${n}`).set(n)));
  await pawl.close();
  db = new DatabaseSync(path);
});

afterAll(() => {
  db.close();
  rmSync(folder, { recursive: true, force: true });
});

test.each([false, true])("no statement scans the records (with statistics: %s)", (hasStatistics) => {
  if (hasStatistics) db.exec("analyze");
  for (const text of [FIND, UPDATE, APPEND, FOLLOW]) {
    const plan = db.prepare(`explain query plan ${text}`).all("{}") as { detail: string }[];
    const scans = plan.map(({ detail }) => detail).filter((detail) => /^SCAN (r|pawl_record)\b/.test(detail));
    expect(scans, text).toEqual([]);
    const lookups = plan.map(({ detail }) => detail).filter((detail) => /^SEARCH (r|pawl_record)\b/.test(detail));
    expect(lookups.length, text).toBeGreaterThan(0);
    for (const detail of lookups) expect(detail).toMatch(/rowid=\?|namespace=\? AND space=\? AND key=\?/);
  }
});

test.each([false, true])("following looks up each entry by its number (with statistics: %s)", (hasStatistics) => {
  if (hasStatistics) db.exec("analyze");
  const plans = [
    db.prepare(`explain query plan ${FOLLOW}`).all("{}"),
    db.prepare(`explain query plan ${READ_FOLLOWED}`).all("default", "space", 0, 10, "", "z", '["made"]'),
  ] as { detail: string }[][];
  for (const plan of plans) {
    const details = plan.map(({ detail }) => detail);
    expect(details.filter((detail) => /^(SCAN (l|r|pawl_\w+)\b|MATERIALIZE|.*AUTOMATIC)/.test(detail))).toEqual([]);
    expect(details.filter((detail) => /^SEARCH l\b/.test(detail))).toEqual([
      expect.stringMatching(/pawl_log_version \(record=\? AND version=\?\)/),
    ]);
  }
});
