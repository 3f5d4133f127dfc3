/**
 * The SQLite store: one file, any number of processes on one machine.
 *
 * A commit is synchronous: BEGIN IMMEDIATE takes the file's only write lock, the decisions run inside, COMMIT syncs the log. No caller
 * waits for the lock inside SQLite (`busy_timeout` is 0), which would block the event loop; a busy file is an error that the kernel retries
 * after a short pause. Locking the file locks every row, absent ones included.
 *
 * The clock is the machine's. A commit that SQLite reported as done is done, and one that failed is not, except for an I/O error at COMMIT:
 * then `settle` first overwrites what may be left of it.
 *
 * Guarantees: G1 by `synchronous = full` in WAL mode; G19 through `failure.ts`.
 */

import { resolve } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import type {
  Batch,
  DuePage,
  DueQuery,
  Executor,
  FollowPage,
  FollowQuery,
  Found,
  Joined,
  Joining,
  Key,
  ListQuery,
  Put,
  Receipt,
  Row,
  SharedWork,
  SqlStore,
  StoredEntry,
} from "../../kernel/contract.ts";
import { ClosedError, StoreError, staleEpoch } from "../../kernel/errors.ts";
import { type Ports, pause } from "../../kernel/ports.ts";
import { ReadBudget } from "../../kernel/read-budget.ts";
import { RowCache } from "./cache.ts";
import { failure } from "./failure.ts";
import { join } from "./joint.ts";
import { Prepared } from "./prepared.ts";
import { findDue, followEntries, listRows, readEntries } from "./queries.ts";
import { findRow, identityOf, writePuts } from "./rows.ts";
import { migrate, refuseNewer } from "./schema.ts";
import { SharedConnection } from "./shared.ts";
import { deletedRows, fenceFloorOf, prunePiece, sweepPiece, sweepRows } from "./sweep.ts";
import { watchCommits } from "./watch.ts";

export interface SqliteOptions {
  readonly path: string;
  readonly namespace: string;
  readonly ports: Ports;
  /** The machine's clock, in milliseconds since 1970. */
  readonly wallMs: () => number;
  /** "full" survives power loss; "process" only survives the death of the process, and must be requested explicitly. */
  readonly durability: "full" | "process";
  readonly patienceMs: number;
}

/** How many pages the log file has before they are copied back. Large enough that a page changed often is copied once. */
const CHECKPOINT_PAGES = 4000;
const CACHE_KIB = 16 * 1024;

/** Opens the file, configures it, and brings its schema up to date. Processes that start at the same time take turns. */
export async function openSqlite(options: SqliteOptions): Promise<SqliteStore> {
  const { clock, chance } = options.ports;
  refuseOldSqlite();
  // Loaded only now, so that a Node without it gets the error message above.
  const { DatabaseSync } = await import("node:sqlite");
  const path = resolve(options.path);
  const giveUpAtMs = clock.nowMs() + options.patienceMs;
  for (;;) {
    let db: DatabaseSync | undefined;
    try {
      db = new DatabaseSync(path, { timeout: 0 });
      configure(db, options.durability);
      migrate(db);
      return new SqliteStore(db, { ...options, path });
    } catch (cause) {
      db?.close();
      const error = failure(cause, "before", options.path);
      if (!(error instanceof StoreError) || error.data.remedy !== "retry" || clock.nowMs() >= giveUpAtMs) throw error;
    }
    await pause(clock, 1 + 20 * chance.random());
  }
}

/**
 * Whether this version of SQLite is safe. Before 3.51.3 (and the repaired 3.50.7 and 3.44.6), two processes that reset the log file at the
 * same moment could lose a commit.
 */
export function isSafeSqlite(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split(".").map(Number);
  if (major !== 3) return major > 3;
  if (minor === 44) return patch >= 6;
  if (minor === 50) return patch >= 7;
  return minor > 51 || (minor === 51 && patch >= 3);
}

function refuseOldSqlite(): void {
  const version = process.versions["sqlite"];
  if (version !== undefined && isSafeSqlite(version)) return;
  const problem =
    version === undefined
      ? "this Node has no SQLite"
      : `this Node has SQLite ${version}, which can lose commits when several processes write`;
  throw new StoreError("store_unfit", "fail", `${problem}: use Node 22.22.3, 24.15 or newer`);
}

function configure(db: DatabaseSync, durability: SqliteOptions["durability"]): void {
  const pragma = (text: string): unknown => Object.values(db.prepare(`pragma ${text}`).get() ?? {})[0];
  const mode = pragma("journal_mode = wal");
  if (mode !== "wal")
    throw weak(
      `its journal mode is "${mode}" and cannot be made "wal"`,
      `use a file on a local disk, or "memory:" for tests`,
    );
  const level = durability === "full" ? 2 : 1;
  db.exec(`pragma synchronous = ${level}`);
  db.exec("pragma fullfsync = on; pragma checkpoint_fullfsync = on");
  db.exec(`pragma wal_autocheckpoint = ${CHECKPOINT_PAGES}; pragma cache_size = -${CACHE_KIB}`);
  const synchronous = pragma("synchronous");
  if (synchronous !== level)
    throw weak(`its "synchronous" is ${synchronous} instead of ${level}`, "use Node's own SQLite");
}

function weak(what: string, fix: string): StoreError {
  return new StoreError("store_unfit", "fail", `the database could lose acknowledged commits: ${what}; ${fix}`);
}

const BEGIN = "begin immediate";
const BEGIN_READ = "begin deferred";
const COMMIT = "commit";
const ROLLBACK = "rollback";
const DATA_VERSION = "pragma data_version";
const META = "select number from pawl_meta where name = ?";
/** A commit that overwrites what an earlier one may have left behind. */
const TOUCH =
  "insert into pawl_meta (name, number) values ('touched', 1) on conflict do update set number = number + 1";

/** A commit that found the file locked tries again within this time. */
const LONGEST_WAIT_MS = 100;

export class SqliteStore implements SqlStore {
  readonly lanes = 1;
  readonly isRemote = false;
  readonly hasOneWriter = true;
  /** The file has one write lock. */
  readonly maxShared = 1;
  readonly #db: DatabaseSync;
  readonly #namespace: string;
  readonly #options: SqliteOptions;
  readonly #on: Prepared;
  readonly #mark = { epoch: 0, sequence: 0 };
  readonly #cache = new RowCache();
  /** The data version at which this release was last found to support the schema. */
  #checkedAt = -1;
  /** Whether a commit failed in a way that may have left something behind. */
  #doubtful = false;
  #closed = false;
  /** A separate connection for transactions that wait for the user's code. */
  readonly #sharing: SharedConnection;
  readonly #watching = new Set<() => void>();
  /** Set while a commit of this process waits for the file's write lock. */
  #waitingCommit: PromiseWithResolvers<void> | undefined;
  #sweeping: Promise<unknown> = Promise.resolve();

  constructor(db: DatabaseSync, options: SqliteOptions) {
    this.#db = db;
    this.#options = options;
    this.#namespace = options.namespace;
    this.#on = new Prepared(db);
    this.#sharing = new SharedConnection({
      ...options,
      connect: () => this.#connect(),
      awaitCommits: () => this.#awaitCommits(),
    });
  }

  async settle(lane = 0): Promise<{ epoch: number; sequence: number }> {
    this.#check();
    // The outcome of a shared transaction is known when COMMIT returns, so there is nothing to settle.
    if (lane >= this.lanes) return { epoch: 1, sequence: 0 };
    if (this.#doubtful) {
      // The next commit starts where the failed one did, and so leaves nothing of it to recover.
      this.#transaction(() => this.#on.sql(TOUCH).run());
      this.#doubtful = false;
    }
    this.#mark.epoch += 1;
    return { ...this.#mark };
  }

  async commit(batch: Batch): Promise<Receipt> {
    this.#check();
    if (batch.epoch !== this.#mark.epoch) throw staleEpoch();
    let puts: readonly Put[] = [];
    const receipt = this.#transaction(() => {
      const nowMs = this.#options.wallMs();
      const fenceFloor = fenceFloorOf(this.#on);
      this.#cache.begin(this.#checkSchema());
      const budget = new ReadBudget(batch.maxBytes);
      const found = (keys: readonly Key[]): Found => ({
        nowMs,
        fenceFloor,
        ...budget.read(keys, (key) => this.#recall(key)),
      });
      let verdict = batch.decide(found(batch.lock));
      while ("lock" in verdict) verdict = batch.decide(found(verdict.lock));
      puts = verdict.puts;
      return this.#write(puts, nowMs);
    });
    if (!receipt.committed) this.#cache.clear();
    else {
      this.#mark.sequence = batch.sequence;
      puts.forEach(({ row }, i) => {
        this.#cache.keep(row, row.id === 0 ? { ...row, id: receipt.ids[i] ?? 0 } : row);
      });
    }
    return receipt;
  }

  /** A row as it is now, under the write lock. */
  #recall(key: Key): Row | null {
    const kept = this.#cache.get(key);
    if (kept !== undefined) return kept;
    const row = findRow(this.#on, this.#namespace, key);
    this.#cache.keep(key, row);
    return row;
  }

  /** Writes everything if all rows are unchanged; otherwise writes nothing, and returns the changed rows. */
  #write(puts: readonly Put[], nowMs: number): Receipt {
    const moved = puts.filter((put) => !this.#isStill(put)).map(({ row }) => row);
    if (moved.length > 0) return { committed: false, moved };
    return { committed: true, nowMs, ids: writePuts(this.#on, this.#namespace, puts, nowMs) };
  }

  #isStill({ was, row }: Put): boolean {
    if (was === null) return this.#recall(row) === null;
    const now = this.#cache.byId(was.id) ?? identityOf(this.#on, was.id);
    return now?.version === was.version && now.stamp === was.stamp;
  }

  async join(executor: Executor, batch: Joining): Promise<Joined> {
    this.#check();
    try {
      return await join(executor, this.#namespace, this.#options.wallMs, {
        lock: batch.lock,
        decide: (found) => {
          // The application's transaction has the write lock by now, so this connection sees the schema that it will commit on.
          this.#check();
          this.#checkSchema();
          return batch.decide(found);
        },
      });
    } catch (error) {
      throw failure(error, "before");
    }
  }

  async share<T>(_mark: unknown, work: SharedWork<T>, dropped?: AbortSignal): Promise<T> {
    this.#check();
    return this.#sharing.run(work, dropped);
  }

  async #connect(): Promise<DatabaseSync> {
    const { DatabaseSync } = await import("node:sqlite");
    const db = new DatabaseSync(this.#options.path, { timeout: 0 });
    try {
      configure(db, this.#options.durability);
    } catch (error) {
      db.close();
      throw error;
    }
    return db;
  }

  async read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    return this.#snapshot(() => keys.map((key) => findRow(this.#on, this.#namespace, key)));
  }

  async list(query: ListQuery): Promise<readonly Row[]> {
    return this.#snapshot(() => listRows(this.#on, this.#namespace, query));
  }

  async entries(key: Key, after: number, limit: number, maxBytes?: number): Promise<readonly StoredEntry[]> {
    return this.#snapshot(() => readEntries(this.#on, this.#namespace, key, after, limit, maxBytes));
  }

  async follow(query: FollowQuery): Promise<FollowPage> {
    return this.#snapshot(() => followEntries(this.#on, this.#namespace, query, this.#options.wallMs()));
  }

  async due(query: DueQuery): Promise<DuePage> {
    return this.#snapshot(() => findDue(this.#on, this.#namespace, query, this.#options.wallMs()));
  }

  /** Runs one sweep at a time: two would halve the time that other writers get between pieces. */
  async sweep(limit: number): Promise<number> {
    this.#check();
    const swept = this.#sweeping.then(() => this.#sweep(limit));
    this.#sweeping = swept.catch(() => {});
    return swept;
  }

  async #sweep(limit: number): Promise<number> {
    const nowMs = this.#options.wallMs();
    const ids = this.#snapshot(() => deletedRows(this.#on, this.#namespace, nowMs, limit));
    return sweepRows(ids, {
      ...this.#options,
      isClosed: () => this.#closed,
      remove: (ids) => {
        const piece = this.#transaction(() => {
          this.#checkSchema();
          return sweepPiece(this.#on, ids, nowMs);
        });
        if (piece.gone > 0) this.#cache.clear();
        return piece;
      },
    });
  }

  async prune(key: Key, upTo: number, limit: number): Promise<number> {
    this.#check();
    return this.#transaction(() => {
      this.#checkSchema();
      return prunePiece(this.#on, this.#namespace, key, upTo, limit);
    });
  }

  watch(changed: () => void): () => void {
    this.#check();
    const { path, ports } = this.#options;
    const stop = watchCommits(`${path}-wal`, ports.clock, () => this.#dataVersion(), changed);
    this.#watching.add(stop);
    return () => {
      this.#watching.delete(stop);
      stop();
    };
  }

  #dataVersion(): number {
    return this.#on.number(DATA_VERSION) ?? 0;
  }

  /**
   * Throws if another process has installed a schema that this release is too old for. Checks only if another connection has committed
   * since. Called first in each transaction, joined ones included. Returns the data version.
   */
  #checkSchema(): number {
    const dataVersion = this.#dataVersion();
    if (dataVersion !== this.#checkedAt) {
      refuseNewer((name) => (this.#on.sql(META).get(name) as unknown as [number] | undefined)?.[0]);
      this.#checkedAt = dataVersion;
    }
    return dataVersion;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const stop of this.#watching) stop();
    this.#sharing.close();
    this.#db.close();
  }

  /**
   * Waits for a commit that found the file locked. Otherwise shared transactions that follow each other would never leave the file to a
   * commit that only retries from time to time.
   */
  async #awaitCommits(): Promise<void> {
    if (this.#waitingCommit !== undefined)
      await Promise.race([this.#waitingCommit.promise, pause(this.#options.ports.clock, LONGEST_WAIT_MS)]);
  }

  /** Runs the work under the file's write lock. Rolls back if it throws, or returns a receipt that says that nothing was written. */
  #transaction<T>(work: () => T): T {
    let when: "before" | "commit" = "before";
    try {
      this.#on.sql(BEGIN).run();
      this.#waitingCommit?.resolve();
      this.#waitingCommit = undefined;
      const result = work();
      when = "commit";
      const refused = typeof result === "object" && result !== null && "committed" in result && !result.committed;
      this.#on.sql(refused ? ROLLBACK : COMMIT).run();
      return result;
    } catch (cause) {
      if (this.#db.isTransaction) this.#on.sql(ROLLBACK).run();
      this.#cache.clear();
      const error = failure(cause, when);
      if (error instanceof StoreError && error.data.remedy === "settle") this.#doubtful = true;
      if (error instanceof StoreError && error.code === "store_busy") this.#waitingCommit ??= Promise.withResolvers();
      throw error;
    }
  }

  /** Reads in one snapshot, so that a commit of another process is seen whole or not at all. */
  #snapshot<T>(read: () => T): T {
    this.#check();
    // It would end the transaction that it is called in.
    if (this.#db.isTransaction) throw new StoreError("store_busy", "retry", "a commit is in progress in the same call");
    try {
      this.#on.sql(BEGIN_READ).run();
      this.#checkSchema();
      const result = read();
      this.#on.sql(COMMIT).run();
      return result;
    } catch (cause) {
      if (this.#db.isTransaction) this.#on.sql(ROLLBACK).run();
      throw failure(cause, "before");
    }
  }

  #check(): void {
    if (this.#closed) throw new ClosedError();
  }
}
