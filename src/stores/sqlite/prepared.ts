/**
 * Prepared statements: each SQL text is compiled once for a connection, and returns its rows as arrays.
 *
 * `node:sqlite` refuses to read a whole number above 2^53, and with it every other row of the same page. Such a number is read as the
 * nearest JavaScript number, as on PostgreSQL: the kernel never writes one, and reports a row with one as unreadable.
 */

import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";

export class Prepared {
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  constructor(db: DatabaseSync) {
    this.#db = db;
  }

  sql(text: string): StatementSync {
    let statement = this.#statements.get(text);
    if (statement === undefined) {
      statement = this.#db.prepare(text);
      statement.setReturnArrays(true);
      this.#statements.set(text, statement);
    }
    return statement;
  }

  /** The first row, or undefined. */
  row(text: string, ...values: SQLInputValue[]): unknown {
    const statement = this.sql(text);
    return whole(statement, () => statement.get(...values));
  }

  rows(text: string, ...values: SQLInputValue[]): unknown[] {
    const statement = this.sql(text);
    return whole(statement, () => statement.all(...values));
  }

  /** The first column of the first row. */
  number(text: string): number | undefined {
    return (this.sql(text).get() as unknown as [number] | undefined)?.[0];
  }
}

/** Reads again, with every whole number as a bigint, where one of them is too large for a number. */
function whole<T>(statement: StatementSync, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  statement.setReadBigInts(true);
  try {
    return rounded(read()) as T;
  } finally {
    statement.setReadBigInts(false);
  }
}

function rounded(value: unknown): unknown {
  if (typeof value === "bigint") return Number(value);
  return Array.isArray(value) ? value.map(rounded) : value;
}
