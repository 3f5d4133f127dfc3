/**
 * Prepared statements: each SQL text is compiled once for a connection, and returns its rows as arrays.
 *
 * `node:sqlite` refuses to read a whole number above 2^53, and with it every other row of the same page. Such a number is read as the
 * nearest JavaScript number, as on PostgreSQL: the kernel never writes one, and reports a row with one as unreadable.
 */

import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import { takeUpTo } from "../../kernel/read-budget.ts";

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

  /** Rows, one after another until the texts in one of their columns have `maxBytes` bytes. Without a limit, all of them. */
  rowsUpTo(
    maxBytes: number | undefined,
    column: number,
    text: string,
    ...values: SQLInputValue[]
  ): { readonly taken: unknown[]; readonly isFull: boolean } {
    if (maxBytes === undefined) return { taken: this.rows(text, ...values), isFull: false };
    const statement = this.sql(text);
    let isFull = false;
    const taken = whole(statement, () => {
      const dataOf = (row: unknown): string | null => (row as (string | null)[])[column] ?? null;
      const page = takeUpTo<unknown>(statement.iterate(...values), dataOf, maxBytes);
      ({ isFull } = page);
      return page.taken;
    });
    return { taken, isFull };
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
