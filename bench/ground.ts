/**
 * Where rounds are played: a kind of database, of which each round of each side gets a fresh one.
 *
 * `Place` names one database, as a path or as a URL, so that it can be passed to other processes too.
 */

import { createHash } from "node:crypto";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";

export type Place = string;

export interface Ground {
  /** A database of its own, with nothing in it but what the store makes when it is opened. */
  fresh(): Promise<Place>;
  /** Called when a side is ready, before the clock starts: what was written so far must not be paid for by the round. */
  settle(): Promise<void>;
  /** Everything that was written, but for the times and the fences that come from them, and the numbers of rows; or only how much. */
  fingerprint(place: Place, of: Sameness): Promise<string>;
  remove(place: Place): Promise<void>;
}

/** Contenders leave the same rows behind, or rows of their own that are as many and as long. */
export type Sameness = "rows" | "lengths";

/** What rounds leave behind, in an order that does not depend on how it came there. */
export const leftBehind = ({ record, log, followed }: TableNames, of: Sameness): readonly string[] => [
  ...(of === "rows" ? rowsLeft(record, log) : lengthsLeft(record, log)),
  `select space, version, count(*) as followed from ${followed} group by 1, 2 order by 1, 2`,
];

export interface TableNames {
  readonly record: string;
  readonly log: string;
  readonly followed: string;
}

const TABLES: TableNames = { record: "pawl_record", log: "pawl_log", followed: "pawl_followed" };

const rowsLeft = (record: string, log: string): readonly string[] => [
  `select namespace, space, key, version, wakes, tries, holder, kind, status, head, value from ${record}
   order by namespace, space, key`,
  `select r.key, l.version, l.name, l.data from ${log} l join ${record} r on r.id = l.record order by r.key, l.version`,
];

const lengthsLeft = (record: string, log: string): readonly string[] => [
  `select kind, status, tries, version, head, count(*) as rows, sum(length(key)) as key, sum(length(coalesce(value, ''))) as value,
     sum(length(coalesce(holder, ''))) as holder, sum(case when due is null then 0 else 1 end) as due
   from ${record} group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5`,
  `select version, name, count(*) as entries, sum(length(data)) as data from ${log} group by 1, 2 order by 1, 2`,
];

/** Files of SQLite in this folder, one at a time. */
export function sqliteGround(folder: string): Ground {
  const path = join(folder, "round.db");
  return {
    fresh: async () => {
      removeDatabase(path);
      return path;
    },
    settle: async () => {},
    fingerprint: async (place, of) => {
      const db = new DatabaseSync(place, { readOnly: true });
      const hash = createHash("sha256");
      for (const query of leftBehind(TABLES, of))
        for (const row of db.prepare(query).iterate()) hash.update(JSON.stringify(row));
      db.close();
      return hash.digest("hex");
    },
    remove: async (place) => removeDatabase(place),
  };
}

export function removeDatabase(path: string): void {
  for (const suffix of ["", "-wal", "-shm"]) rmSync(path + suffix, { force: true });
}
