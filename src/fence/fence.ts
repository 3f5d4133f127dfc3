/**
 * Fences in the user's own tables: a write under an older fence is refused by the database that it goes to.
 *
 * A lock says who may write; only the resource can refuse one who still believes it may. `checkFence` does so for any table: a small
 * table of the user's remembers the highest fence that each resource has seen. In the transaction of the writes it lifts that to the
 * fence at hand, or throws where it is higher already. The row it lifts stays locked until that transaction ends, so an older
 * holder's check waits for a newer one's commit, and is then refused; an older one that came first has committed before.
 *
 * The statements are the same for PostgreSQL and SQLite, and for whatever runs SQL in a transaction: they have no parameters,
 * whose signs differ, because a fence is a number and a resource is spelt in letters that no SQL reads as anything else.
 *
 * Promises: once a transaction under a fence has committed, none under a lower fence of that resource does (G6).
 * Leaves out: the table, which the user makes with FENCES_TABLE; and writes that do not check.
 */

import { checkCount, checkId } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { executorOf, type SqlExecutor } from "../kernel/sql.ts";
import { StaleFenceError } from "./errors.ts";

/** Makes the table of fences. Fences are about milliseconds since 1970, so they need 64 bits. */
export const FENCES_TABLE = "create table if not exists pawl_fences (resource text primary key, fence bigint not null)";

/** Lifts the fence of a resource, and answers a row unless it is higher already. */
const lift = (resource: string, fence: number): string =>
  `insert into pawl_fences (resource, fence) values ('${spell(resource)}', ${fence})
   on conflict (resource) do update set fence = excluded.fence where pawl_fences.fence <= excluded.fence
   returning fence`;

const current = (resource: string): string => `select fence from pawl_fences where resource = '${spell(resource)}'`;

/** Fails on PostgreSQL outside a transaction, where the check and the writes would be apart; the rest of the transaction is not touched. */
const SAVEPOINT = "savepoint pawl_fence";
const RELEASE = "release savepoint pawl_fence";

/**
 * Lets the transaction go on if no higher fence has written to this resource, and throws `stale_fence` otherwise: let it go on, so that the
 * transaction is rolled back. Call it first in the transaction that writes, with that very transaction: the `sql` of `transact.sql` or
 * `step.tx`, a client of `pg`, a `DatabaseSync`, or a function around an ORM's raw query.
 */
export async function checkFence(sql: SqlExecutor, resource: string, fence: number): Promise<void> {
  checkArguments(resource, fence);
  const run = executorOf(sql);
  checkTransaction(sql);
  await run(SAVEPOINT);
  const lifted = await run(lift(resource, fence));
  const seen = lifted.length > 0 ? lifted : await run(current(resource));
  await run(RELEASE);
  if (lifted.length === 0) throw stale(resource, fence, seen);
}

/** The same at once, for a synchronous transaction on SQLite: of `node:sqlite`, or of `better-sqlite3`. */
export function checkFenceSync(db: SyncSql, resource: string, fence: number): void {
  checkArguments(resource, fence);
  if (typeof db?.prepare !== "function")
    throw new InvalidArgumentError("the database", "must have prepare as a DatabaseSync of node:sqlite does");
  checkTransaction(db);
  if (db.prepare(lift(resource, fence)).all().length === 0)
    throw stale(resource, fence, db.prepare(current(resource)).all());
}

/** A connection to SQLite that answers at once. */
export interface SyncSql {
  prepare(text: string): { all(): readonly unknown[] };
}

function checkArguments(resource: string, fence: number): void {
  checkId(resource, "the resource");
  checkCount(fence, "the fence", Number.MAX_SAFE_INTEGER);
}

/** On SQLite the connection itself can tell; `isTransaction` is of node:sqlite, `inTransaction` of better-sqlite3. */
function checkTransaction(db: unknown): void {
  if (typeof db !== "object" || db === null) return;
  const { isTransaction, inTransaction } = db as { isTransaction?: unknown; inTransaction?: unknown };
  if (isTransaction === false || inTransaction === false)
    throw new InvalidArgumentError(
      "the executor",
      "must be in a transaction, the one that writes: outside of one, an older write could come after the check",
    );
}

function stale(resource: string, fence: number, rows: readonly unknown[]): StaleFenceError {
  const [row] = rows;
  // PostgreSQL gives large numbers as text.
  const seen = typeof row === "object" && row !== null && "fence" in row ? Number(row.fence) : null;
  return new StaleFenceError(resource, fence, seen);
}

/** Letters, digits and / _ . - as they are, all other bytes as %XX: two names are never spelt alike. */
function spell(resource: string): string {
  return Array.from(Buffer.from(resource, "utf8"), (byte) => {
    const letter = String.fromCharCode(byte);
    return /[A-Za-z0-9/_.-]/.test(letter) ? letter : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }).join("");
}
