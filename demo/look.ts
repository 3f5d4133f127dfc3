/**
 * Reads a Pawl database with SQL, for machines without an SQLite shell. It opens the file for reading only.
 *
 * `node demo/look.ts <database>` prints a few rows of both views; with a query as second argument, the rows of that query.
 * `pawl_now` has the current records, `pawl_past` the log entries.
 */

import { existsSync } from "node:fs";
import { openReadOnly } from "./evidence.ts";

const [database, ...queries] = process.argv.slice(2);

const SOME_ROWS = [
  "select space, key, version, status, value, fence from pawl_now order by space desc, key limit 5",
  "select key, version, name, data, at_utc from pawl_past order by position desc limit 8",
];

if (database === undefined || !existsSync(database)) {
  console.error('Name a database: node demo/look.ts <database> ["select …"]');
  process.exitCode = 2;
} else {
  const db = openReadOnly(database);
  for (const query of queries.length > 0 ? queries : SOME_ROWS) {
    console.log(`\n${query}`);
    console.table(db.prepare(query).all());
  }
  db.close();
}
