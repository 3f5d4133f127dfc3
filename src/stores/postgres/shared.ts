/**
 * A transaction shared with the user's SQL (`transact.sql`): the user's statements come first, then Pawl's, the mark and the commit.
 *
 * It has a connection for as long as the work takes, up to a limit, after which it is rolled back, or until the handle is closed. Once Pawl has locked its rows, others wait for them: from
 * then on the transaction may not be idle for long.
 */

import type { Executor, SharedWork, Sql } from "../../kernel/contract.ts";
import { InvalidArgumentError, StoreError } from "../../kernel/errors.ts";
import type { Clock } from "../../kernel/ports.ts";
import { checkCommitted } from "./commit.ts";
import { type Connection, REPLY_MS } from "./connections.ts";
import { failure, LostConnectionError } from "./failure.ts";
import type { Call, Result } from "./pipeline.ts";
import { BEGIN, COMMIT, LIMIT_IDLE, type ServerTransaction, stillShared, transactionOf } from "./statements.ts";

export interface SharedSetup {
  readonly clock: Clock;
  /** How long the transaction may be open. */
  readonly limitMs: number;
  /** Pins the settings of the transaction. */
  readonly pinned: Call;
  readonly mark: Call;
  /** Takes the result of a transaction's first statement. */
  readonly observe: (pinned: Result | undefined) => void;
  /** Rolls the transaction back, unless its COMMIT was sent. */
  readonly dropped: AbortSignal | undefined;
}

/** How far a shared transaction has come. */
export interface Stage {
  at: "begin" | "work" | "commit";
  /** Known once it has begun. */
  transaction?: ServerTransaction | undefined;
}

export async function shareTransaction<T>(
  connection: Connection,
  { clock, limitMs, pinned, mark, observe, dropped }: SharedSetup,
  stage: Stage,
  work: SharedWork<T>,
): Promise<T> {
  const value = await unlessDropped(dropped, connection, async () => {
    connection.began();
    const [, first] = await connection.send([BEGIN, pinned]);
    observe(first);
    stage.transaction = transactionOf(first);
    stage.at = "work";
    return bounded(clock, limitMs, connection, work(...sharedSql(connection, limitMs)));
  });
  stage.at = "commit";
  const results = await connection.send([stillShared(), mark, COMMIT]);
  connection.ended();
  checkCommitted(connection, results.at(-1));
  return value;
}

/** Rejects when the transaction is dropped: nothing that was sent is waited for, neither Pawl's statements nor the user's. */
function unlessDropped<T>(dropped: AbortSignal | undefined, connection: Connection, run: () => Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const drop = (): void => {
      connection.destroy();
      reject(dropped?.reason);
    };
    if (dropped?.aborted === true) return drop();
    dropped?.addEventListener("abort", drop);
    // Before the promise settles, because COMMIT is sent next.
    const over = (): void => dropped?.removeEventListener("abort", drop);
    run().finally(over).then(resolve, reject);
  });
}

const IDLE =
  "transact.sql was idle for more than two seconds after tx, and its transaction was rolled back: after tx, await nothing but tx";

/** Rejects when the work of a shared transaction takes too long, or its connection is lost. */
function bounded<T>(clock: Clock, limitMs: number, connection: Connection, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(limitMs, () => {
      connection.destroy();
      const message = `transact.sql was not done after ${limitMs} ms: its transaction was rolled back`;
      reject(new StoreError("store_busy", "fail", message));
    });
    connection.whenLost(() => {
      const lost = failure(new LostConnectionError("the connection was lost, and nothing was committed"), false);
      reject(connection.wasIdle ? new StoreError("store_busy", "fail", IDLE) : lost);
    });
    work.then(resolve, reject).finally(() => {
      cancel();
      connection.whenLost(undefined);
    });
  });
}

/** Otherwise `pg` throws for a proxy that was revoked, and keeps the statement in its queue: the promise that it made for that rejects later, and no one has it. */
function checkValues(values: unknown): void {
  let isList = false;
  try {
    isList = Array.isArray(values);
  } catch {
    // A proxy that was revoked.
  }
  if (!isList) throw new InvalidArgumentError("the values of the statement", "must be a list");
}

/** The user's statements, and Pawl's after them. After Pawl's first statement, the transaction may not be idle for long. */
function sharedSql(connection: Connection, limitMs: number): [Sql, Executor] {
  let isIdleLimited = false;
  const sql: Sql = {
    async query<Row>(text: string, values: readonly unknown[] = []) {
      checkValues(values);
      const { rows, rowCount } = await connection.query(text, values, limitMs + REPLY_MS);
      return { rows: rows as Row[], rowCount: rowCount ?? 0 };
    },
  };
  const executor: Executor = async (text, value) => {
    if (!isIdleLimited) await connection.query(LIMIT_IDLE, [], REPLY_MS);
    isIdleLimited = true;
    return (await connection.query(text, value === undefined ? [] : [value], limitMs + REPLY_MS)).rows;
  };
  return [sql, executor];
}
