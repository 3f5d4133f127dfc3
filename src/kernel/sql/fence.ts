/**
 * Fences in the user's own tables: a write under an older fence is refused by the database that it goes to.
 *
 * A process that has lost a lock may not know it yet; only the resource can refuse its writes. `checkFence` does so for any table: a small
 * table of the user's stores the highest fence of each resource. In the transaction of the writes, `checkFence` raises it to the given fence,
 * or throws if it is higher already. The raised row stays locked until that transaction ends, so an older holder's check waits for a newer
 * one's commit, and is then refused; an older one that came first has committed before.
 *
 * The statements are the same for PostgreSQL and SQLite, and for every library that runs SQL in a transaction. They have no parameters, whose
 * placeholders differ: a fence is a number, and a resource is encoded in characters that have no special meaning in SQL.
 *
 * Guarantees: once a transaction under a fence has committed, none under a lower fence of that resource does (G6).
 * Out of scope: the table, which the user creates with FENCES_TABLE; and writes without a check.
 */

import { checkCount, checkId } from "../check.ts";
import { InvalidArgumentError } from "../errors.ts";
import { executorOf, type SqlExecutor } from "./executors.ts";
import { StaleFenceError } from "./fence-errors.ts";

/** Creates the table of fences. Fences are about as large as milliseconds since 1970, so they need 64 bits. */
export const FENCES_TABLE = "create table if not exists pawl_fences (resource text primary key, fence bigint not null)";

/** Raises the fence of a resource, and returns a row unless it is higher already. */
const raise = (resource: string, fence: number): string =>
  `insert into pawl_fences (resource, fence) values ('${encode(resource)}', ${fence})
   on conflict (resource) do update set fence = excluded.fence where pawl_fences.fence <= excluded.fence
   returning fence`;

const current = (resource: string): string => `select fence from pawl_fences where resource = '${encode(resource)}'`;

/** Fails on PostgreSQL outside a transaction, where the check and the writes would not be atomic. */
const SAVEPOINT = "savepoint pawl_fence";
const RELEASE = "release savepoint pawl_fence";

/**
 * Throws `stale_fence` if a higher fence has written to the resource; do not catch it inside the transaction, so that it is rolled back. Call
 * it first in the transaction that writes, with that transaction's executor: the `sql` of `transact.sql` or `step.tx`, a client of `pg`, a
 * `DatabaseSync`, or a function around an ORM's raw query.
 */
export async function checkFence(sql: SqlExecutor, resource: string, fence: number): Promise<void> {
  checkArguments(resource, fence);
  const run = executorOf(sql);
  checkTransaction(sql);
  await run(SAVEPOINT);
  const raised = await run(raise(resource, fence));
  const found = raised.length > 0 ? raised : await run(current(resource));
  await run(RELEASE);
  if (raised.length === 0) throw stale(resource, fence, found);
}

/** The same for a synchronous transaction on SQLite: of `node:sqlite`, or of `better-sqlite3`. */
export function checkFenceSync(db: SyncSql, resource: string, fence: number): void {
  checkArguments(resource, fence);
  if (typeof db?.prepare !== "function")
    throw new InvalidArgumentError(
      "the database",
      "must have the method prepare, as a DatabaseSync of node:sqlite has",
    );
  checkTransaction(db);
  if (db.prepare(raise(resource, fence)).all().length === 0)
    throw stale(resource, fence, db.prepare(current(resource)).all());
}

/** A synchronous connection to SQLite. */
export interface SyncSql {
  prepare(text: string): { all(): readonly unknown[] };
}

function checkArguments(resource: string, fence: number): void {
  checkId(resource, "the resource");
  checkCount(fence, "the fence", Number.MAX_SAFE_INTEGER);
}

/** SQLite connections have a property for it: `isTransaction` in node:sqlite, `inTransaction` in better-sqlite3. */
function checkTransaction(db: unknown): void {
  if (typeof db !== "object" || db === null) return;
  const { isTransaction, inTransaction } = db as { isTransaction?: unknown; inTransaction?: unknown };
  if (isTransaction === false || inTransaction === false)
    throw new InvalidArgumentError(
      "the executor",
      "must be in the transaction that writes: outside a transaction, an older write could come after the check",
    );
}

function stale(resource: string, fence: number, rows: readonly unknown[]): StaleFenceError {
  const [row] = rows;
  // PostgreSQL returns large numbers as strings.
  const higher = typeof row === "object" && row !== null && "fence" in row ? Number(row.fence) : null;
  return new StaleFenceError(resource, fence, higher);
}

/** Letters, digits and / _ . - stay, all other bytes become %XX: different names have different encodings. */
function encode(resource: string): string {
  return Array.from(Buffer.from(resource, "utf8"), (byte) => {
    const letter = String.fromCharCode(byte);
    return /[A-Za-z0-9/_.-]/.test(letter) ? letter : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }).join("");
}
