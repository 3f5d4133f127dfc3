/**
 * Lines to the server: checking connections out of a pool, sending trains over them with a deadline, and giving them back.
 *
 * The pool is the application's or our own; nothing here depends on which. A line that failed in any way that leaves its state
 * unclear is destroyed, and the pool makes a new one: that is all there is to reconnecting.
 */

import { endedEarly, StoreError } from "../../kernel/errors.ts";
import type { Clock } from "../../kernel/ports.ts";
import { isFatal, isServerError, LostLineError } from "./failure.ts";
import { ROLLBACK } from "./statements.ts";
import { type Answer, type Call, type PreparedNames, Train } from "./train.ts";

/** A connection of `pg`, as its Pool gives it out. */
export interface PgClient {
  query(query: object): unknown;
  release(destroy?: Error | boolean): void;
  on(event: string, listener: (message: object) => void): unknown;
  off(event: string, listener: (message: object) => void): unknown;
}

/** A Pool of `pg`, or whatever gives out connections as it does. */
export interface PgPool {
  connect(): Promise<PgClient>;
}

export interface Lines {
  readonly pool: PgPool;
  readonly clock: Clock;
  /** No train may take longer. */
  readonly answerMs: number;
}

/** What each connection has prepared, kept as long as the connection. */
const prepared = new WeakMap<PgClient, Set<string>>();

/** One that listens, one that notifies, and one for the work. */
const LARGE_POOL = 3;

/** Checked-out connections of one store. */
export class LinePool {
  readonly #lines: Lines;
  /** Prepared statements do not survive here: a pooler hands connections on between transactions. */
  #isShared = false;

  constructor(lines: Lines) {
    this.#lines = lines;
    const users = poolUsers.get(lines.pool) ?? 0;
    if (users === 0) pooled(lines.pool).on?.("connect", listenForErrors);
    poolUsers.set(lines.pool, users + 1);
  }

  /** Leaves the pool as it was. */
  close(): void {
    const users = (poolUsers.get(this.#lines.pool) ?? 1) - 1;
    if (users === 0) pooled(this.#lines.pool).off?.("connect", listenForErrors);
    poolUsers.set(this.#lines.pool, users);
  }

  /** Runs the work on a line of its own, and gives the line back. */
  async use<T>(work: (line: Line) => Promise<T>): Promise<T> {
    const line = await this.take();
    try {
      return await work(line);
    } catch (error) {
      // Whoever prepared these is another client of the pooler; from now on nothing is prepared.
      if (isServerError(error) && (error.code === "26000" || error.code === "42P05")) this.#isShared = true;
      throw error;
    } finally {
      await line.end();
    }
  }

  /** Whether a line can be kept for long without starving the rest. A pool that does not tell its size is taken to be large. */
  get isLarge(): boolean {
    const { options } = this.#lines.pool as { options?: { max?: unknown } };
    return typeof options?.max !== "number" || options.max >= LARGE_POOL;
  }

  /** A line to keep; whoever takes it ends it. */
  async take(): Promise<Line> {
    return new Line(await this.#connect(), this.#lines, this.#isShared);
  }

  async #connect(): Promise<PgClient> {
    const { pool, clock, answerMs } = this.#lines;
    let isLate = false;
    let cancel = () => {};
    const late = new Promise<never>((_, reject) => {
      cancel = clock.after(answerMs, () => {
        isLate = true;
        reject(new LostLineError(`the pool gave no connection within ${answerMs} ms`));
      });
    });
    const connecting = pool.connect();
    // One that comes after all is given back at once.
    connecting.then(
      (client) => isLate && client.release(),
      () => {},
    );
    try {
      return await Promise.race([connecting, late]);
    } catch (error) {
      throw lost(error);
    } finally {
      cancel();
    }
  }
}

/** What the server did not say, the way there did. */
function lost(error: unknown): unknown {
  if (isServerError(error) || error instanceof LostLineError) return error;
  return new LostLineError(error instanceof Error ? error.message : String(error), { cause: error });
}

const silent = (): void => {};

/** A connection that the server ends in the very moment it is handed out would otherwise end the process: nobody listens yet. */
const listenForErrors = (client: PgClient): void => void client.on("error", silent);

/** How many stores are on a pool, which may be many: they listen as one. */
const poolUsers = new WeakMap<PgPool, number>();

interface PoolEvents {
  on?(event: "connect", listener: (client: PgClient) => void): unknown;
  off?(event: "connect", listener: (client: PgClient) => void): unknown;
}

const pooled = (pool: PgPool): PoolEvents => pool as PoolEvents;

/** One connection, while it is ours. */
export class Line {
  readonly #client: PgClient;
  readonly #lines: Lines;
  readonly #prepared: PreparedNames;
  readonly #heard = (notice: object): void => {
    // The server says in this way, and with COMMIT all the same, that the standby may not have it.
    if ("routine" in notice && notice.routine === "SyncRepWaitForLSN") this.isUnreplicated = true;
  };
  /** A commit of this line did not wait for the standby. */
  isUnreplicated = false;
  #isBroken = false;
  #isOpen = false;

  constructor(client: PgClient, lines: Lines, isShared: boolean) {
    this.#client = client;
    this.#lines = lines;
    let names = prepared.get(client);
    if (names === undefined) {
      names = new Set();
      prepared.set(client, names);
    }
    this.#prepared = isShared ? null : names;
    // Without a listener, a connection that breaks would end the process.
    client.on("error", silent);
    client.on("notice", this.#heard);
  }

  /** Sends all of it at once, and resolves when the last is answered. */
  send(calls: readonly Call[], limitMs = this.#lines.answerMs): Promise<readonly Answer[]> {
    return new Promise((resolve, reject) => {
      const cancel = this.#lines.clock.after(limitMs, () => {
        this.#isBroken = true;
        this.#destroy();
        reject(new LostLineError(`the server did not answer within ${limitMs} ms`));
      });
      const train = new Train(calls, this.#prepared, (error, answers) => {
        cancel();
        if (error === undefined) resolve(answers);
        else {
          if (!isServerError(error) || isFatal(error)) this.#isBroken = true;
          reject(lost(error));
        }
      });
      this.#client.query(train);
    });
  }

  /** One statement of the user's, with `pg`'s own idea of values and rows. */
  async ask(
    text: string,
    values: readonly unknown[],
    limitMs: number,
  ): Promise<{ rows: unknown[]; rowCount: number | null }> {
    if (this.#isBroken) throw new LostLineError("the connection is gone");
    if (!this.#isOpen) throw endedEarly();
    const { clock } = this.#lines;
    // The socket's end is what ends the query.
    const cancel = clock.after(limitMs, () => this.#destroy());
    try {
      const result = await this.#client.query({ text, values });
      if (this.#hasEnded) {
        this.#isOpen = false;
        throw endedEarly();
      }
      return result as { rows: unknown[]; rowCount: number | null };
    } catch (error) {
      if (!(error instanceof StoreError) && (!isServerError(error) || isFatal(error))) this.#isBroken = true;
      throw error;
    } finally {
      cancel();
    }
  }

  /** Whether `pg` knows that no transaction is open. */
  get #hasEnded(): boolean {
    const { getTransactionStatus } = this.#client as { getTransactionStatus?(): string | null };
    return getTransactionStatus?.call(this.#client) === "I";
  }

  /** Calls back for each notification, and once when the connection is lost. */
  listen(notified: (payload: string) => void, lost: () => void): void {
    this.#client.on("notification", (message) => {
      notified("payload" in message && typeof message.payload === "string" ? message.payload : "");
    });
    const gone = () => {
      if (this.#isBroken) return;
      this.#isBroken = true;
      lost();
    };
    this.#client.on("error", gone);
    this.#client.on("end", gone);
  }

  /** Not to be given to anybody else: it listens. */
  spoil(): void {
    this.#isBroken = true;
  }

  /** Marks that a transaction is open, so that it is rolled back if the work ends without saying how. */
  began(): void {
    this.#isOpen = true;
  }

  ended(): void {
    this.#isOpen = false;
  }

  async end(): Promise<void> {
    if (this.#isOpen && !this.#isBroken)
      try {
        await this.send([ROLLBACK]);
      } catch {
        this.#isBroken = true;
      }
    this.#client.off("notice", this.#heard);
    if (this.#isBroken) this.#destroy();
    else this.#client.off("error", silent);
    this.#client.release(this.#isBroken);
  }

  /** The socket at once: a polite goodbye would wait for an answer that is not coming. */
  #destroy(): void {
    const { connection } = this.#client as { connection?: { stream?: { destroy?(): void } } };
    connection?.stream?.destroy?.();
  }
}
