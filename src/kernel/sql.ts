/**
 * Pawl beside other SQL: what `transact.sql` and `within` take and give.
 *
 * An executor is anything that runs one statement in a transaction that is open: a client of `pg`, a `DatabaseSync` of `node:sqlite`,
 * or a function of two lines around an ORM's raw query. Pawl's statements have one parameter at most, a text.
 */

import type { Executor } from "./contract.ts";
import { InvalidArgumentError, PawlError } from "./errors.ts";

/** Runs one statement with its values, and answers an array of rows, or an object with `rows`. */
export type SqlExecutor =
  | ((text: string, values: string[]) => unknown)
  | { query(text: string, values: string[]): unknown }
  | { prepare(text: string): { all(...values: string[]): unknown } };

/** In `transact.sql`, a statement was run after `tx`. Run your SQL first: Pawl's rows are locked last, and briefly. */
export class SqlAfterTxError extends PawlError<"sql_after_tx", Record<string, never>> {
  constructor() {
    super("sql_after_tx", "in transact.sql, statements come before tx: Pawl's rows are locked last, and briefly", {});
  }
}

/** `sql` or `tx` of a `transact.sql` was used when its work had ended. They must not be kept. */
export class SqlOverError extends PawlError<"sql_over", Record<string, never>> {
  constructor() {
    super("sql_over", "this transaction is over: what transact.sql gave cannot be used any more", {});
  }
}

/** The executor as the kernel wants it; the same one for the same client, so that its decisions can take turns. */
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
    "must be a function (text, values), or have query as a client of pg does, or prepare as node:sqlite does",
  );
}

function rowsOf(result: unknown): readonly unknown[] {
  if (Array.isArray(result)) return result;
  if (typeof result === "object" && result !== null && "rows" in result && Array.isArray(result.rows))
    return result.rows;
  throw new InvalidArgumentError("the executor", "must answer an array of rows, or an object with rows");
}
