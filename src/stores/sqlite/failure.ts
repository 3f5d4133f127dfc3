/**
 * Maps SQLite's result codes to errors that the kernel can act on.
 *
 * Whether anything was written depends on the code and on when it came: before COMMIT, nothing was. At COMMIT, an I/O error may come after
 * the frames reached the log file, and a crash at that moment would bring them back: that outcome is unknown until a later commit has
 * overwritten them. A full disk is noticed while the frames are being written.
 */

import { type Remedy, type StoreCode, StoreError } from "../../kernel/errors.ts";

const ERROR = 1;
const BUSY = 5;
const LOCKED = 6;
const READONLY = 8;
const IOERR = 10;
const CORRUPT = 11;
const FULL = 13;
const CANTOPEN = 14;
const PROTOCOL = 15;
const TOOBIG = 18;
const CONSTRAINT = 19;
const NOTADB = 26;

const FAILURES: ReadonlyMap<number, readonly [StoreCode, Remedy, string]> = new Map([
  [ERROR, ["store_unfit", "fail", "the database rejected Pawl's tables, or has other tables of the same names"]],
  [BUSY, ["store_busy", "retry", "another process is writing"]],
  [LOCKED, ["store_busy", "retry", "another connection is writing"]],
  [READONLY, ["store_readonly", "fail", "the database is read-only: check the permissions of the file and its folder"]],
  [IOERR, ["store_io", "fail", "reading or writing the database file failed: check the disk, and that it is not full"]],
  [CORRUPT, ["store_corrupt", "fail", "the database file is damaged: restore a backup"]],
  [FULL, ["store_full", "fail", "the disk is full: free some space, and work resumes"]],
  [
    CANTOPEN,
    [
      "store_unreachable",
      "fail",
      "the database file cannot be opened: check that it is a file, and that its folder exists and may be written",
    ],
  ],
  [PROTOCOL, ["store_busy", "retry", "other processes are opening the database at the same moment"]],
  [TOOBIG, ["store_refused", "split", "a value is larger than SQLite can hold"]],
  [CONSTRAINT, ["store_refused", "split", "the database refused a row"]],
  [NOTADB, ["store_corrupt", "fail", "the file is not an SQLite database: check the path"]],
]);

/** Returns the error for the kernel if it comes from SQLite; otherwise the error itself. */
export function failure(error: unknown, when: "before" | "commit", path = ""): unknown {
  if (!isSqliteError(error)) return error;
  const primary = error.errcode & 0xff;
  if (when === "commit" && primary === IOERR)
    return new StoreError("outcome_unknown", "settle", `the commit failed half-way: ${error.message}`, {
      cause: error,
    });
  const [code, remedy, advice] = FAILURES.get(primary) ?? ["store_io", "fail", "SQLite failed"];
  const where = path === "" ? "" : `${path}: `;
  return new StoreError(code, remedy, `${where}${advice} (${error.message})`, { cause: error });
}

interface SqliteError extends Error {
  readonly errcode: number;
}

function isSqliteError(error: unknown): error is SqliteError {
  return error instanceof Error && "errcode" in error && typeof error.errcode === "number";
}
