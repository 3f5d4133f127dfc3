/** Takes the write lock of a file with plain SQLite, prints that, and releases it after the given milliseconds. */

import { DatabaseSync } from "node:sqlite";

const [path = "", ms = ""] = process.argv.slice(2);
const db = new DatabaseSync(path);
db.exec("begin immediate");
process.stdout.write("held\n");
setTimeout(() => {
  process.stdout.write("released\n");
  db.exec("commit");
}, Number(ms));
