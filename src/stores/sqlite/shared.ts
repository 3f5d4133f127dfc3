/**
 * Transactions that wait for the user's code: `transact.sql` on SQLite.
 *
 * They have a connection of their own, so that nothing else gets into them, and come one after another, as the file has one
 * write lock. Everybody else's commits wait for it, so it is taken away from a transaction that keeps it for too long.
 */

import type { DatabaseSync, SQLInputValue } from "node:sqlite";
import type { SharedWork, Sql, SyncDatabase, SyncValue } from "../../kernel/contract.ts";
import { endedEarly, StoreError } from "../../kernel/errors.ts";
import { type Ports, pause } from "../../kernel/ports.ts";
import { SqlOverError } from "../../kernel/sql.ts";
import { failure } from "./failure.ts";

/** The longest that one transaction may hold the file. */
export const SHARED_MS = 5000;

const CHANGES = "select changes() as n";

interface SharedOptions {
  readonly ports: Ports;
  readonly patienceMs: number;
}

export class SharedConnection {
  readonly #db: DatabaseSync;
  readonly #options: SharedOptions;
  #last: Promise<unknown> = Promise.resolve();

  constructor(db: DatabaseSync, options: SharedOptions) {
    this.#db = db;
    this.#options = options;
  }

  run<T>(work: SharedWork<T>): Promise<T> {
    const mine = this.#last.then(() => this.#run(work));
    this.#last = mine.catch(() => {});
    return mine;
  }

  close(): void {
    this.#db.close();
  }

  async #run<T>(work: SharedWork<T>): Promise<T> {
    await this.#begin();
    const db = this.#db;
    let over: Error | undefined;
    // A statement that fails may have ended it too, and what came next would then be a transaction of its own.
    const check = (): void => {
      if (!db.isTransaction) over ??= endedEarly();
      if (over !== undefined) throw over;
    };
    const during = <U>(act: () => U): U => {
      check();
      const result = act();
      check();
      return result;
    };
    const query = (text: string, values: readonly unknown[]) =>
      during(() => {
        const statement = db.prepare(text);
        const rows = statement.all(...(values as SQLInputValue[]));
        const rowCount = statement.columns().length > 0 ? rows.length : Number(db.prepare(CHANGES).get()?.["n"] ?? 0);
        return { rows, rowCount };
      });
    const sql: Sql = {
      async query<Row>(text: string, values: readonly unknown[] = []) {
        const { rows, rowCount } = query(text, values);
        return { rows: rows as Row[], rowCount };
      },
    };
    const { promise: late, reject } = Promise.withResolvers<never>();
    const cancel = this.#options.ports.clock.after(SHARED_MS, () => {
      over ??= new StoreError("store_busy", "fail", `the transaction held the file for more than ${SHARED_MS} ms`);
      if (db.isTransaction) db.exec("rollback");
      reject(over);
    });
    let at: "before" | "commit" = "before";
    try {
      const value = await Promise.race([
        work(sql, async (text, value) => query(text, value === undefined ? [] : [value]).rows, syncOf(db, during)),
        late,
      ]);
      check();
      at = "commit";
      db.exec("commit");
      return value;
    } catch (error) {
      if (db.isTransaction) db.exec("rollback");
      throw at === "commit" ? unresolved(failure(error, at)) : error;
    } finally {
      over ??= new SqlOverError();
      cancel();
    }
  }

  async #begin(): Promise<void> {
    const { clock, chance } = this.#options.ports;
    const giveUpAtMs = clock.nowMs() + this.#options.patienceMs;
    for (;;) {
      try {
        this.#db.exec("begin immediate");
        return;
      } catch (cause) {
        const error = failure(cause, "before");
        if (!(error instanceof StoreError) || error.data.remedy !== "retry" || clock.nowMs() >= giveUpAtMs) throw error;
      }
      await pause(clock, 1 + 10 * chance.random());
    }
  }
}

/** Statements that answer at once, for as long as the transaction is the caller's. */
function syncOf(db: DatabaseSync, during: <U>(act: () => U) => U): SyncDatabase {
  return {
    prepare(text) {
      const statement = during(() => db.prepare(text));
      // Names in an object are for the first place only, as node:sqlite has it.
      const given = (values: readonly SyncValue[]) => values as SQLInputValue[];
      return {
        all: <Row>(...values: readonly SyncValue[]) => during(() => statement.all(...given(values)) as Row[]),
        get: <Row>(...values: readonly SyncValue[]) => during(() => statement.get(...given(values)) as Row | undefined),
        run: (...values) => during(() => statement.run(...given(values))),
      };
    },
  };
}

/** Nobody can tell here what became of it: that is said at once. */
function unresolved(error: unknown): unknown {
  if (!(error instanceof StoreError) || error.data.remedy !== "settle") return error;
  return new StoreError("outcome_unknown", "fail", error.message, { cause: error });
}
