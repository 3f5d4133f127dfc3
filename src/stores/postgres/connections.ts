/**
 * Connections to the server: checking them out of a pool, sending pipelines over them with a deadline, and releasing them.
 *
 * The pool is the application's or Pawl's own; nothing here depends on which. A connection that failed in any way that leaves its state
 * unclear is destroyed, and the pool makes a new one: there is no other reconnecting.
 */

import { endedEarly, StoreError } from "../../kernel/errors.ts";
import type { Clock } from "../../kernel/ports.ts";
import {
  failure,
  isFatal,
  isServerError,
  isUnprepared,
  LostConnectionError,
  PoolExhaustedError,
  SlowConnectionError,
} from "./failure.ts";
import { type Call, Pipeline, type PreparedNames, type Result } from "./pipeline.ts";
import { ROLLBACK } from "./statements.ts";
import { PoolTraffic, whyNoConnection } from "./traffic.ts";

/** A connection of `pg`, as its Pool returns it. */
export interface PgClient {
  query(query: object): unknown;
  release(destroy?: Error | boolean): void;
  on(event: string, listener: (message: object) => void): unknown;
  off(event: string, listener: (message: object) => void): unknown;
}

/** A Pool of `pg`, or anything that hands out connections as it does. */
export interface PgPool {
  connect(): Promise<PgClient>;
}

export interface PoolOptions {
  readonly pool: PgPool;
  readonly clock: Clock;
  /** The longest time that a pipeline may take. */
  readonly replyMs: number;
}

/** A connection whose reply takes longer counts as lost. */
export const REPLY_MS = 5000;

/** The last attempt before the time is over has at least this long. */
const LAST_MS = 500;

interface ConnectionOptions extends PoolOptions {
  readonly traffic: PoolTraffic<PgClient>;
}

/** The prepared statements of each connection, kept as long as the connection. */
const prepared = new WeakMap<PgClient, Set<string>>();

/** One connection listens, one notifies, and one does the work. */
const LARGE_POOL = 3;

/** Checked-out connections of one store. */
export class ConnectionPool {
  readonly #options: PoolOptions;
  /** Prepared statements do not survive, because a pooler switches connections between transactions. */
  #isShared = false;
  readonly #traffic: PoolTraffic<PgClient>;
  /** When the store gives up what it is doing, as while it is being opened. */
  giveUpAtMs = Number.POSITIVE_INFINITY;

  constructor(options: PoolOptions) {
    this.#options = options;
    const shared = sharedPools.get(options.pool) ?? {
      users: 0,
      traffic: new PoolTraffic(options.pool, listenForErrors),
    };
    shared.users += 1;
    sharedPools.set(options.pool, shared);
    this.#traffic = shared.traffic;
  }

  /** Removes the listeners from the pool. */
  close(): void {
    const shared = sharedPools.get(this.#options.pool);
    if (shared === undefined) return;
    shared.users -= 1;
    if (shared.users > 0) return;
    sharedPools.delete(this.#options.pool);
    shared.traffic.close();
  }

  /** Runs the work on a connection of its own, and releases the connection. When `over` aborts, a connection is no longer waited for. */
  async use<T>(work: (connection: Connection) => Promise<T>, over?: AbortSignal): Promise<T> {
    const connection = await this.take(over);
    try {
      return await work(connection);
    } catch (error) {
      // Another client of the pooler prepared these statements. From now on, nothing is prepared.
      if (isServerError(error) && isUnprepared(error)) this.#isShared = true;
      throw error;
    } finally {
      await connection.end();
    }
  }

  /** How many connections the pool has at most. Default, if the pool does not say: 10, as in `pg`. */
  get size(): number {
    const { options } = this.#options.pool as { options?: { max?: unknown } };
    return typeof options?.max === "number" ? options.max : 10;
  }

  /** Whether the pool is large enough to keep one connection for long. */
  get isLarge(): boolean {
    return this.size >= LARGE_POOL;
  }

  /** Takes a connection. The caller must end it. */
  async take(over?: AbortSignal): Promise<Connection> {
    const client = await this.#connect(over);
    return new Connection(client, { ...this.#options, replyMs: this.#replyMs, traffic: this.#traffic }, this.#isShared);
  }

  /** The longest time that a connection, or a reply, is waited for now. */
  get #replyMs(): number {
    const { clock, replyMs } = this.#options;
    return Math.min(replyMs, Math.max(LAST_MS, Math.ceil(this.giveUpAtMs - clock.nowMs())));
  }

  async #connect(over?: AbortSignal): Promise<PgClient> {
    const { pool, clock } = this.#options;
    const limitMs = this.#replyMs;
    const before = this.#traffic.read(clock.nowMs());
    const late = (): Error =>
      whyNoConnection(before, this.#traffic.read(clock.nowMs())) === "server"
        ? new LostConnectionError(`it did not reply within ${limitMs} ms`)
        : new PoolExhaustedError(
            `no connection became free in the pool within ${limitMs} ms: use a larger pool, or release connections sooner`,
          );
    let isLate = false;
    let cancel = () => {};
    const gaveUp = new Promise<never>((_, reject) => {
      const giveUp = (error: Error): void => {
        isLate = true;
        reject(error);
      };
      const stop = (): void => giveUp(over?.reason);
      over?.addEventListener("abort", stop);
      const cancelLimit = clock.after(limitMs, () => giveUp(late()));
      cancel = () => {
        cancelLimit();
        over?.removeEventListener("abort", stop);
      };
      if (over?.aborted === true) stop();
    });
    const connecting = Promise.resolve().then(() => pool.connect());
    // A connection that arrives late is released immediately.
    connecting.then(
      (client) => isLate && client.release(),
      () => {},
    );
    try {
      return await Promise.race([connecting, gaveUp]);
    } catch (error) {
      throw lost(error);
    } finally {
      cancel();
    }
  }
}

/** Whether a statement of the user's failed because the connection ended, and not because of its text or values. */
function isConnectionLoss(error: unknown): boolean {
  if (isServerError(error)) return error.severity === "FATAL" || error.severity === "PANIC" || /^57P/.test(error.code);
  if (!(error instanceof Error)) return false;
  const isOfSystem = "syscall" in error || ("code" in error && /^E[A-Z]+$/.test(String(error.code)));
  return isOfSystem || /terminated|not queryable|was closed|connection error|timeout/i.test(error.message);
}

/** An error that the server did not report comes from the connection. */
function lost(error: unknown): unknown {
  if (isServerError(error) || error instanceof LostConnectionError) return error;
  return new LostConnectionError(error instanceof Error ? error.message : String(error), { cause: error });
}

const ignore = (): void => {};

/** Without a listener, a connection that the server ends just before it is handed out would end the process. */
const listenForErrors = (client: PgClient): void => void client.on("error", ignore);

/** The stores that use a pool share its counters, and its listeners. */
const sharedPools = new WeakMap<PgPool, { users: number; readonly traffic: PoolTraffic<PgClient> }>();

/** `idle`: in no transaction. `open`: in one. `broken`: must not be used again, because its state is unclear or it listens. */
type ConnectionState = "idle" | "open" | "broken";

/** One connection, while it is checked out. */
export class Connection {
  readonly #client: PgClient;
  readonly #options: ConnectionOptions;
  readonly #prepared: PreparedNames;
  readonly #noticed = (notice: object): void => {
    // The server sends this notice, and still completes COMMIT, when the standby may not have the commit.
    if ("routine" in notice && notice.routine === "SyncRepWaitForLSN") this.isUnreplicated = true;
  };
  /** A commit on this connection did not wait for the standby. */
  isUnreplicated = false;
  #state: ConnectionState = "idle";
  #whenLost: (() => void) | undefined;
  /** The server ended the transaction because it was idle for too long. */
  wasIdle = false;
  readonly #lost = (error?: object): void => {
    if (isServerError(error) && error.code === "25P03") this.wasIdle = true;
    if (this.#state === "broken") return;
    this.#state = "broken";
    this.#whenLost?.();
  };

  constructor(client: PgClient, options: ConnectionOptions, isShared: boolean) {
    this.#client = client;
    this.#options = options;
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

  /** Sends all statements in one round trip, and resolves with their results. */
  send(calls: readonly Call[], limitMs = this.#options.replyMs): Promise<readonly Result[]> {
    return new Promise((resolve, reject) => {
      const ended = this.#options.traffic.sent(this.#options.clock.nowMs());
      const cancel = this.#options.clock.after(limitMs, () => {
        ended("silent");
        this.destroy();
        reject(new SlowConnectionError(`the server did not reply within ${limitMs} ms`));
      });
      const pipeline = new Pipeline(calls, this.#prepared, (error, results) => {
        cancel();
        ended(error === undefined || isServerError(error) ? "replied" : "lost");
        if (error === undefined) resolve(results);
        else {
          if (!isServerError(error) || isFatal(error)) this.#state = "broken";
          reject(lost(error));
        }
      });
      this.#client.query(pipeline);
    });
  }

  /** Runs one statement of the user's, with values and rows as `pg` converts them. Throws the server's errors unchanged. */
  async query(
    text: string,
    values: readonly unknown[],
    limitMs: number,
  ): Promise<{ rows: unknown[]; rowCount: number | null }> {
    if (this.#state === "broken") throw failure(new LostConnectionError("the connection was lost"), false);
    if (this.#state === "idle") throw endedEarly();
    const { clock } = this.#options;
    // Destroying the socket ends the query.
    const cancel = clock.after(limitMs, () => this.destroy());
    try {
      const result = await this.#client.query({ text, values });
      if (this.#hasEnded) {
        this.#state = "idle";
        throw endedEarly();
      }
      return result as { rows: unknown[]; rowCount: number | null };
    } catch (error) {
      if (error instanceof StoreError || !isConnectionLoss(error)) throw error;
      this.#lost();
      throw failure(
        new LostConnectionError(error instanceof Error ? error.message : String(error), { cause: error }),
        false,
      );
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

  /** Marks the connection as unusable for anything else, because it listens. */
  markUnusable(): void {
    this.#state = "broken";
  }

  /** A transaction is open. It is rolled back if the work ends without calling `ended`. */
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
    // The connection has no owner any more, but an error without a listener would still end the process.
    if (isBroken) this.#client.on("error", ignore);
    this.#client.off("notice", this.#noticed);
    this.#client.off("error", this.#lost);
    this.#client.off("end", this.#lost);
    if (isBroken) this.destroy();
    this.#client.release(isBroken);
  }

  /** A getter, because `send` changes the state in between. */
  get #isBroken(): boolean {
    return this.#state === "broken";
  }

  /** Destroys the socket. Closing it properly would wait for a reply that does not come. */
  destroy(): void {
    this.#state = "broken";
    const { connection } = this.#client as { connection?: { stream?: { destroy?(): void } } };
    connection?.stream?.destroy?.();
  }
}
