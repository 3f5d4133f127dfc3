/**
 * Transactions that wait for the user's code: `transact.sql` on SQLite.
 *
 * They have a connection of their own, so that no other statement gets into them, and run one after another, because the file has one write
 * lock. All other commits wait for the lock, so a transaction that holds it for too long is rolled back.
 *
 * The connection is opened by the first transaction. If it cannot be opened, that transaction fails, and the next one tries again. The time
 * limit of a caller counts from its call: waiting for its turn, for the connection and for the lock. Closing rolls back the transaction in
 * progress, and rejects those that wait.
 */

import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import type { SharedWork, Sql, SyncDatabase, SyncValue } from "../../kernel/contract.ts";
import { ClosedError, endedEarly, InvalidArgumentError, StoreError } from "../../kernel/errors.ts";
import { type Ports, pause } from "../../kernel/ports.ts";
import { SqlOverError } from "../../kernel/sql/executors.ts";
import { failure } from "./failure.ts";

/** The longest that one transaction may hold the file. */
export const SHARED_MS = 5000;

const CHANGES = "select changes() as n";

interface SharedOptions {
  readonly path: string;
  readonly ports: Ports;
  readonly patienceMs: number;
  readonly connect: () => Promise<DatabaseSync>;
  /** Resolves when commits that found the file locked have had their turn. */
  readonly awaitCommits: () => Promise<void>;
}

/** A caller in the queue: `go` starts it, `reject` refuses it. */
interface Waiter {
  go(): void;
  reject(error: Error): void;
}

export class SharedConnection {
  readonly #options: SharedOptions;
  #db: DatabaseSync | undefined;
  /** In the order of their calls. */
  readonly #waiting = new Set<Waiter>();
  #isInUse = false;
  /** Ends the transaction in progress. */
  #end: ((error: Error) => void) | undefined;
  readonly #closing = new AbortController();

  constructor(options: SharedOptions) {
    this.#options = options;
  }

  /** Runs the work in a transaction; rolls it back when `dropped` aborts before the commit. */
  async run<T>(work: SharedWork<T>, dropped?: AbortSignal): Promise<T> {
    const giveUpAtMs = this.#options.ports.clock.nowMs() + this.#options.patienceMs;
    await this.#turn();
    try {
      await this.#options.awaitCommits();
      return await this.#run(await this.#begin(giveUpAtMs, dropped), work, dropped);
    } finally {
      const [next] = this.#waiting;
      if (next === undefined) this.#isInUse = false;
      else next.go();
    }
  }

  close(): void {
    this.#closing.abort();
    for (const waiter of this.#waiting) waiter.reject(new ClosedError());
    this.#end?.(new ClosedError());
    this.#drop();
  }

  /** Resolves when no other transaction is running; until the caller ends, no other begins. */
  async #turn(): Promise<void> {
    this.#check();
    if (!this.#isInUse) {
      this.#isInUse = true;
      return;
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const { ports, patienceMs } = this.#options;
    const out = (): void => {
      cancel();
      this.#waiting.delete(waiter);
    };
    const waiter: Waiter = {
      go() {
        out();
        resolve();
      },
      reject(error) {
        out();
        reject(error);
      },
    };
    const cancel = ports.clock.after(patienceMs, () =>
      waiter.reject(new StoreError("store_busy", "retry", "other transactions of this process hold the file")),
    );
    this.#waiting.add(waiter);
    return promise;
  }

  async #run<T>(db: DatabaseSync, work: SharedWork<T>, dropped?: AbortSignal): Promise<T> {
    let over: Error | undefined;
    // A failed statement may have ended the transaction, and the next statement would then run outside it.
    const check = (): void => {
      if (over === undefined && !db.isTransaction) over = endedEarly();
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
        const statement = prepareOne(db, text);
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
    const { promise: ended, reject } = Promise.withResolvers<never>();
    const end = (error: Error): void => {
      over ??= error;
      this.#rollBack(db);
      reject(over);
    };
    this.#end = end;
    const drop = (): void => end(dropped?.reason);
    dropped?.addEventListener("abort", drop);
    const cancel = this.#options.ports.clock.after(SHARED_MS, () =>
      end(
        new StoreError(
          "store_busy",
          "fail",
          `the transaction held the file for more than ${SHARED_MS} ms and was rolled back: make it shorter`,
        ),
      ),
    );
    let at: "before" | "commit" = "before";
    try {
      const value = await Promise.race([
        work(sql, async (text, value) => query(text, value === undefined ? [] : [value]).rows, syncOf(db, during)),
        ended,
      ]);
      check();
      at = "commit";
      db.exec("commit");
      return value;
    } catch (error) {
      this.#rollBack(db);
      throw at === "commit" ? unresolved(failure(error, at)) : error;
    } finally {
      over ??= new SqlOverError();
      this.#end = undefined;
      dropped?.removeEventListener("abort", drop);
      cancel();
    }
  }

  /** Opens the connection if there is none, and takes the write lock. */
  async #begin(giveUpAtMs: number, dropped?: AbortSignal): Promise<DatabaseSync> {
    const { path, ports, connect } = this.#options;
    const { clock, chance } = ports;
    for (;;) {
      this.#check();
      dropped?.throwIfAborted();
      try {
        this.#db ??= await connect();
        // The store may have been closed while the connection was being made.
        if (this.#closing.signal.aborted) this.#drop();
        this.#check();
        this.#db.exec("begin immediate");
        return this.#db;
      } catch (cause) {
        const error = failure(cause, "before", path);
        if (!(error instanceof StoreError) || error.data.remedy !== "retry" || clock.nowMs() >= giveUpAtMs) throw error;
      }
      await pause(clock, 1 + 10 * chance.random(), this.#closing.signal);
    }
  }

  /** A connection that cannot roll back is closed: its open transaction would fail every later one. */
  #rollBack(db: DatabaseSync): void {
    try {
      if (db.isOpen && db.isTransaction) db.exec("rollback");
    } catch {
      this.#drop();
    }
  }

  #drop(): void {
    const db = this.#db;
    this.#db = undefined;
    if (db?.isOpen) db.close();
  }

  #check(): void {
    if (this.#closing.signal.aborted) throw new ClosedError();
  }
}

/** What may follow a statement: white space, semicolons and comments. */
const NOTHING = /^(\s|;|--[^\n]*(\n|$)|\/\*[\s\S]*?\*\/)*$/;

/** SQLite runs the first statement of a text and silently ignores the rest. */
function prepareOne(db: DatabaseSync, text: string): StatementSync {
  const statement = db.prepare(text);
  if (!NOTHING.test(text.slice(statement.sourceSQL.length)))
    throw new InvalidArgumentError("the statement", "must be one statement: run each by itself");
  return statement;
}

/** Synchronous statements, usable as long as the transaction is the caller's. */
function syncOf(db: DatabaseSync, during: <U>(act: () => U) => U): SyncDatabase {
  return {
    prepare(text) {
      const statement = during(() => prepareOne(db, text));
      // Named parameters are only allowed as the first value, as in node:sqlite.
      const given = (values: readonly SyncValue[]) => values as SQLInputValue[];
      return {
        all: <Row>(...values: readonly SyncValue[]) => during(() => statement.all(...given(values)) as Row[]),
        get: <Row>(...values: readonly SyncValue[]) => during(() => statement.get(...given(values)) as Row | undefined),
        run: (...values) => during(() => statement.run(...given(values))),
      };
    },
  };
}

/** The outcome of a shared transaction cannot be settled later, so the error is final. */
function unresolved(error: unknown): unknown {
  if (!(error instanceof StoreError) || error.data.remedy !== "settle") return error;
  return new StoreError("outcome_unknown", "fail", error.message, { cause: error });
}
