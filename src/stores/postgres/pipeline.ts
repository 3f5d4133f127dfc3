/**
 * A pipeline: several statements for PostgreSQL in one round trip, ended by one Sync.
 *
 * `pg` accepts any object that can submit itself, which is how its cursors are made. This one writes all its statements in one go and
 * collects their rows as arrays of text. With one Sync at the end, the server skips everything after a statement that failed: a COMMIT
 * never runs after an error.
 *
 * Statements are prepared once for each connection, under a name made of their text. Behind a pooler in transaction mode, a prepared
 * statement can be missing or belong to another client; then statements are sent unnamed.
 */

import { createHash } from "node:crypto";

/** The part of `pg`'s connection that a pipeline needs, the same that its cursors use. */
export interface PgConnection {
  parse(message: { name: string; text: string }): void;
  bind(message: { statement: string; values: readonly unknown[] }): void;
  execute(message: { rows?: number }): void;
  close(message: { type: "S" | "P"; name: string }): void;
  sync(): void;
  readonly stream: { cork?(): void; uncork?(): void; destroy(): void };
}

export interface Statement {
  /** Empty for a statement that is not worth preparing. */
  readonly name: string;
  readonly text: string;
}

/** A statement that is prepared under a name made of its text, so that one name never means two texts. */
export function statement(text: string): Statement {
  return { name: `pawl_${createHash("sha256").update(text).digest("hex").slice(0, 32)}`, text };
}

/** A statement with its values: text, binary (as a Buffer), or null. */
export interface Call {
  readonly statement: Statement;
  readonly values: readonly (string | Buffer | null)[];
}

export type TextRow = readonly (string | null)[];

/** The result of one statement. */
export interface Result {
  readonly rows: readonly TextRow[];
  /** For instance "COMMIT". The COMMIT of a failed transaction has "ROLLBACK". */
  readonly tag: string;
}

/** The statements that a connection has prepared; null if it keeps none. */
export type PreparedNames = Set<string> | null;

export class Pipeline {
  readonly #calls: readonly Call[];
  readonly #prepared: PreparedNames;
  readonly #results: Result[] = [];
  readonly #done: (error: unknown, results: readonly Result[]) => void;
  #rows: TextRow[] = [];
  #isDone = false;
  /** Set by `pg` if the pool has a query timeout, which runs until this is called. */
  callback: (() => void) | undefined;

  constructor(
    calls: readonly Call[],
    prepared: PreparedNames,
    done: (error: unknown, results: readonly Result[]) => void,
  ) {
    this.#calls = calls;
    this.#prepared = prepared;
    this.#done = done;
  }

  submit(connection: PgConnection): null {
    connection.stream.cork?.();
    try {
      for (const { statement, values } of this.#calls) {
        const name = this.#prepared === null ? "" : statement.name;
        if (name === "") connection.parse({ name, text: statement.text });
        else if (this.#prepared?.has(name) !== true) {
          // A pipeline that failed may have prepared it. Closing a statement that does not exist is no error.
          connection.close({ type: "S", name });
          connection.parse({ name, text: statement.text });
          this.#prepared?.add(name);
        }
        connection.bind({ statement: name, values });
        connection.execute({});
      }
      connection.sync();
    } finally {
      connection.stream.uncork?.();
    }
    return null;
  }

  handleDataRow(message: { readonly fields: TextRow }): void {
    this.#rows.push(message.fields);
  }

  handleCommandComplete(message: { readonly text: string }): void {
    this.#results.push({ rows: this.#rows, tag: message.text });
    this.#rows = [];
  }

  handleReadyForQuery(): void {
    this.#finish(undefined);
  }

  #finish(error: unknown): void {
    if (this.#isDone) return;
    this.#isDone = true;
    this.callback?.();
    this.#done(error, this.#results);
  }

  handleError(error: unknown): void {
    if (this.#isDone) return;
    // Statements after the failed one were not prepared either.
    if (this.#prepared !== null)
      for (const { statement } of this.#calls.slice(this.#results.length)) this.#prepared.delete(statement.name);
    this.#finish(error);
  }

  handleRowDescription(): void {}
  handleEmptyQuery(): void {}
  handlePortalSuspended(): void {}
  handleCopyInResponse(): void {}
  handleCopyData(): void {}
}
