/**
 * Executors and errors of `transact.sql` and `within`, where Pawl shares a transaction with other SQL.
 *
 * An executor runs one statement in an open transaction: a client of `pg`, a `DatabaseSync` of `node:sqlite`, or a function of two lines
 * around an ORM's raw query. Pawl's statements have at most one parameter, a text.
 */

import type { Executor } from "../contract.ts";
import { InvalidArgumentError, PawlError } from "../errors.ts";

/** Runs one statement with its values, and returns an array of rows, or an object with `rows`. */
export type SqlExecutor =
  | ((text: string, values: string[]) => unknown)
  | { query(text: string, values: string[]): unknown }
  | { prepare(text: string): { all(...values: string[]): unknown } };

/** In `transact.sql`, a statement was run after `tx`. Run your SQL first: Pawl's rows are locked last, and briefly. */
export class SqlAfterTxError extends PawlError<"sql_after_tx", Record<string, never>> {
  constructor() {
    super(
      "sql_after_tx",
      "a statement was run after tx in transact.sql: run all statements before tx, because Pawl's rows are locked last, and briefly",
      {},
    );
  }
}

/** `sql` or `tx` of a `transact.sql` was used after its work ended. Do not keep them: open another transaction. */
export class SqlOverError extends PawlError<"sql_over", Record<string, never>> {
  constructor() {
    super(
      "sql_over",
      "sql or tx of transact.sql was used after its transaction ended: await everything inside the work, or open another transaction",
      {},
    );
  }
}

/** Converts to the kernel's executor; the same one for the same client, so that its decisions run one after another. */
export function executorOf(given: SqlExecutor): Executor {
  const run = runnerOf(given);
  const known = executors.get(given);
  if (known !== undefined) return known;
  const executor: Executor = async (text, value) => rowsOf(await run(text, value === undefined ? [] : [value]));
  executors.set(given, executor);
  return executor;
}

const executors = new WeakMap<object, Executor>();

function runnerOf(given: SqlExecutor): (text: string, values: string[]) => unknown {
  if (typeof given === "function") return given;
  if (typeof given === "object" && given !== null) {
    if ("query" in given && typeof given.query === "function") return (text, values) => given.query(text, values);
    if ("prepare" in given && typeof given.prepare === "function")
      return (text, values) => given.prepare(text).all(...values);
  }
  throw new InvalidArgumentError(
    "the executor",
    "must be a function (text, values), or have the method query, as a client of pg does, or prepare, as node:sqlite does",
  );
}

function rowsOf(result: unknown): readonly unknown[] {
  if (Array.isArray(result)) return result;
  if (typeof result === "object" && result !== null && "rows" in result && Array.isArray(result.rows))
    return result.rows;
  throw new InvalidArgumentError("the executor", "must return an array of rows, or an object with rows");
}
