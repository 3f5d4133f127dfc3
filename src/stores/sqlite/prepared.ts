/**
 * Prepared statements: each text of SQL is compiled once for a connection, and gives its rows as arrays.
 */

import type { DatabaseSync, StatementSync } from "node:sqlite";

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

  /** The first column of the first row. */
  number(text: string): number | undefined {
    return (this.sql(text).get() as unknown as [number] | undefined)?.[0];
  }
}
