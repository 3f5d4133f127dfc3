/**
 * A train: several statements for PostgreSQL in one round trip, ended by one Sync.
 *
 * `pg` takes any object that knows how to submit itself, which is how cursors are made; this one writes all its statements at
 * once and gathers their rows as arrays of text. With one Sync at the end, the server skips everything that stands behind a
 * statement that failed: a COMMIT is never reached after an error.
 *
 * Statements are prepared once for each connection, under a name made of their text. Where connections are shared behind our
 * back (poolers in transaction mode), a prepared statement can be gone or be somebody else's; then they are sent unnamed.
 */

import { createHash } from "node:crypto";

/** The part of `pg`'s connection that a train needs; the same that its cursors use. */
export interface PgConnection {
  parse(message: { name: string; text: string }): void;
  bind(message: { statement: string; values: readonly unknown[] }): void;
  execute(message: { rows?: number }): void;
  close(message: { type: "S" | "P"; name: string }): void;
  sync(): void;
  readonly stream: { cork?(): void; uncork?(): void; destroy(): void };
}

export interface Statement {
  /** Empty for one that is not worth preparing. */
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

/** What one statement answered. */
export interface Answer {
  readonly rows: readonly TextRow[];
  /** For instance "COMMIT"; a COMMIT of a failed transaction says "ROLLBACK". */
  readonly tag: string;
}

/** Which statements a connection has prepared; null where it keeps none. */
export type PreparedNames = Set<string> | null;

export class Train {
  readonly #calls: readonly Call[];
  readonly #prepared: PreparedNames;
  readonly #answers: Answer[] = [];
  readonly #done: (error: unknown, answers: readonly Answer[]) => void;
  #rows: TextRow[] = [];
  #isDone = false;
  /** Set by `pg` where the pool has a timeout for queries, which it takes for running until this is called. */
  callback: (() => void) | undefined;

  constructor(
    calls: readonly Call[],
    prepared: PreparedNames,
    done: (error: unknown, answers: readonly Answer[]) => void,
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
          // It may be there from a train that failed half-way; closing what is not there is no error.
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
    this.#answers.push({ rows: this.#rows, tag: message.text });
    this.#rows = [];
  }

  handleReadyForQuery(): void {
    this.#finish(undefined);
  }

  #finish(error: unknown): void {
    if (this.#isDone) return;
    this.#isDone = true;
    this.callback?.();
    this.#done(error, this.#answers);
  }

  handleError(error: unknown): void {
    if (this.#isDone) return;
    // What stood behind the failed statement was not prepared either.
    if (this.#prepared !== null)
      for (const { statement } of this.#calls.slice(this.#answers.length)) this.#prepared.delete(statement.name);
    this.#finish(error);
  }

  handleRowDescription(): void {}
  handleEmptyQuery(): void {}
  handlePortalSuspended(): void {}
  handleCopyInResponse(): void {}
  handleCopyData(): void {}
}
