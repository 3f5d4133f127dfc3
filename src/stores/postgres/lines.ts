/**
 * Lines to the server: checking connections out of a pool, sending trains over them with a deadline, and giving them back.
 *
 * The pool is the application's or our own; nothing here depends on which. A line that failed in any way that leaves its state
 * unclear is destroyed, and the pool makes a new one: that is all there is to reconnecting.
 */

import { endedEarly, StoreError } from "../../kernel/errors.ts";
import type { Clock } from "../../kernel/ports.ts";
import {
  failure,
  isFatal,
  isServerError,
  isUnprepared,
  LostLineError,
  PoolExhaustedError,
  SlowLineError,
} from "./failure.ts";
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
      if (isServerError(error) && isUnprepared(error)) this.#isShared = true;
      throw error;
    } finally {
      await line.end();
    }
  }

  /** How many connections the pool has at most. Default for one that does not tell: 10, as `pg` has it. */
  get size(): number {
    const { options } = this.#lines.pool as { options?: { max?: unknown } };
    return typeof options?.max === "number" ? options.max : 10;
  }

  /** Whether a line can be kept for long without starving the rest. */
  get isLarge(): boolean {
    return this.size >= LARGE_POOL;
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
        reject(new PoolExhaustedError(`the pool gave no connection within ${answerMs} ms: all of them are in use`));
      });
    });
    const connecting = Promise.resolve().then(() => pool.connect());
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

/** Whether a statement of the user's failed because the connection ended, and not because of what it says or was given. */
function isLoss(error: unknown): boolean {
  if (isServerError(error)) return error.severity === "FATAL" || error.severity === "PANIC" || /^57P/.test(error.code);
  if (!(error instanceof Error)) return false;
  const isOfSystem = "syscall" in error || ("code" in error && /^E[A-Z]+$/.test(String(error.code)));
  return isOfSystem || /terminated|not queryable|was closed|connection error|timeout/i.test(error.message);
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

/** `idle`: in no transaction. `open`: in one. `broken`: not to be used again, because its state is unclear or it listens. */
type LineState = "idle" | "open" | "broken";

/** One connection, while it is ours. */
export class Line {
  readonly #client: PgClient;
  readonly #lines: Lines;
  readonly #prepared: PreparedNames;
  readonly #noticed = (notice: object): void => {
    // The server says in this way, and with COMMIT all the same, that the standby may not have it.
    if ("routine" in notice && notice.routine === "SyncRepWaitForLSN") this.isUnreplicated = true;
  };
  /** A commit of this line did not wait for the standby. */
  isUnreplicated = false;
  #state: LineState = "idle";
  #whenLost: (() => void) | undefined;
  /** The server ended the transaction because it was idle for too long. */
  wasIdle = false;
  readonly #lost = (error?: object): void => {
    if (isServerError(error) && error.code === "25P03") this.wasIdle = true;
    if (this.#state === "broken") return;
    this.#state = "broken";
    this.#whenLost?.();
  };

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
    client.on("error", this.#lost);
    client.on("end", this.#lost);
    client.on("notice", this.#noticed);
  }

  /** Sends all of it at once, and resolves when the last is answered. */
  send(calls: readonly Call[], limitMs = this.#lines.answerMs): Promise<readonly Answer[]> {
    return new Promise((resolve, reject) => {
      const cancel = this.#lines.clock.after(limitMs, () => {
        this.destroy();
        reject(new SlowLineError(`the server did not answer within ${limitMs} ms`));
      });
      const train = new Train(calls, this.#prepared, (error, answers) => {
        cancel();
        if (error === undefined) resolve(answers);
        else {
          if (!isServerError(error) || isFatal(error)) this.#state = "broken";
          reject(lost(error));
        }
      });
      this.#client.query(train);
    });
  }

  /** One statement of the user's, with `pg`'s own idea of values and rows. What the server refuses is thrown as it is. */
  async ask(
    text: string,
    values: readonly unknown[],
    limitMs: number,
  ): Promise<{ rows: unknown[]; rowCount: number | null }> {
    if (this.#state === "broken") throw failure(new LostLineError("the connection is gone"), false);
    if (this.#state === "idle") throw endedEarly();
    const { clock } = this.#lines;
    // The socket's end is what ends the query.
    const cancel = clock.after(limitMs, () => this.destroy());
    try {
      const result = await this.#client.query({ text, values });
      if (this.#hasEnded) {
        this.#state = "idle";
        throw endedEarly();
      }
      return result as { rows: unknown[]; rowCount: number | null };
    } catch (error) {
      if (error instanceof StoreError || !isLoss(error)) throw error;
      this.#lost();
      throw failure(new LostLineError(error instanceof Error ? error.message : String(error), { cause: error }), false);
    } finally {
      cancel();
    }
  }

  /** Whether `pg` knows that no transaction is open. */
  get #hasEnded(): boolean {
    const { getTransactionStatus } = this.#client as { getTransactionStatus?(): string | null };
    return getTransactionStatus?.call(this.#client) === "I";
  }

  /** Calls back once when the connection is lost. */
  whenLost(callback: (() => void) | undefined): void {
    this.#whenLost = callback;
  }

  /** Calls back for each notification, and once when the connection is lost. */
  listen(notified: (payload: string) => void, lost: () => void): void {
    this.#client.on("notification", (message) => {
      notified("payload" in message && typeof message.payload === "string" ? message.payload : "");
    });
    this.whenLost(lost);
  }

  /** Not to be used for anything else: it listens. */
  spoil(): void {
    this.#state = "broken";
  }

  /** A transaction is open: it is rolled back if the work ends without saying how. */
  began(): void {
    if (this.#state === "idle") this.#state = "open";
  }

  ended(): void {
    if (this.#state === "open") this.#state = "idle";
  }

  async end(): Promise<void> {
    this.#whenLost = undefined;
    if (this.#state === "open")
      try {
        await this.send([ROLLBACK]);
      } catch {
        this.#state = "broken";
      }
    const isBroken = this.#isBroken;
    // What breaks now is nobody's any more, but would still end the process.
    if (isBroken) this.#client.on("error", silent);
    this.#client.off("notice", this.#noticed);
    this.#client.off("error", this.#lost);
    this.#client.off("end", this.#lost);
    if (isBroken) this.destroy();
    this.#client.release(isBroken);
  }

  /** A getter, because `send` changes the state meanwhile. */
  get #isBroken(): boolean {
    return this.#state === "broken";
  }

  /** Ends the socket immediately: a polite goodbye would wait for an answer that is not coming. */
  destroy(): void {
    this.#state = "broken";
    const { connection } = this.#client as { connection?: { stream?: { destroy?(): void } } };
    connection?.stream?.destroy?.();
  }
}
