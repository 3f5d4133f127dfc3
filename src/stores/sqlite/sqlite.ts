/**
 * The SQLite store: one file, any number of processes on one machine.
 *
 * A commit is synchronous: BEGIN IMMEDIATE takes the one write lock of the file, the decisions run inside, COMMIT syncs the
 * log. Nobody waits for the lock inside SQLite (`busy_timeout` is 0), which would block the event loop; a busy file is an
 * error that the kernel tries again after a short pause. Locking the file locks every row, absent ones included.
 *
 * The clock is the machine's. A commit that SQLite reported as done is done, and one that failed is not, except for an I/O
 * error at COMMIT: then `settle` overwrites what may be left of it before it answers.
 *
 * Promises: G1 by `synchronous = full` in WAL mode; G19 through `failure.ts`.
 */

import { DatabaseSync, type StatementSync } from "node:sqlite";
import { compareUtf8, prefixEnd } from "../../kernel/check.ts";
import type {
  Batch,
  DuePage,
  DueQuery,
  Found,
  Key,
  ListQuery,
  Put,
  Receipt,
  Row,
  Store,
  StoredEntry,
} from "../../kernel/contract.ts";
import { ClosedError, StoreError } from "../../kernel/errors.ts";
import { type Ports, pause } from "../../kernel/ports.ts";
import { RowCache } from "./cache.ts";
import { failure } from "./failure.ts";
import { migrate } from "./schema.ts";
import { watchCommits } from "./watch.ts";

export interface SqliteOptions {
  readonly path: string;
  readonly namespace: string;
  readonly ports: Ports;
  /** The machine's clock, in milliseconds since 1970. */
  readonly wallMs: () => number;
  /** "full" survives power loss; "process" only the death of the process, and must be asked for by name. */
  readonly durability: "full" | "process";
  readonly patienceMs: number;
}

/** Pages in the log file before they are copied back. Large enough that a page changed often is copied once. */
const CHECKPOINT_PAGES = 4000;
const CACHE_KIB = 16 * 1024;

/** Opens the file, makes it fit, and brings its schema up to date; waits its turn where many start at once. */
export async function openSqlite(options: SqliteOptions): Promise<SqliteStore> {
  const { clock, chance } = options.ports;
  refuseOldSqlite();
  const giveUpAtMs = clock.nowMs() + options.patienceMs;
  for (;;) {
    let db: DatabaseSync | undefined;
    try {
      db = new DatabaseSync(options.path, { timeout: 0 });
      configure(db, options.durability);
      migrate(db);
      return new SqliteStore(db, options);
    } catch (cause) {
      db?.close();
      const error = failure(cause, "before", options.path);
      if (!(error instanceof StoreError) || error.data.remedy !== "retry" || clock.nowMs() >= giveUpAtMs) throw error;
    }
    await pause(clock, 1 + 20 * chance.random());
  }
}

/**
 * Before 3.51.3 (and the repaired 3.50.7 and 3.44.6), two processes that reset the log file at the same moment could lose a
 * commit.
 */
export function isFitSqlite(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split(".").map(Number);
  if (major !== 3) return major > 3;
  if (minor === 44) return patch >= 6;
  if (minor === 50) return patch >= 7;
  return minor > 51 || (minor === 51 && patch >= 3);
}

function refuseOldSqlite(): void {
  const version = process.versions["sqlite"] ?? "0";
  if (isFitSqlite(version)) return;
  throw new StoreError(
    "store_unfit",
    "fail",
    `this Node has SQLite ${version}, which can lose commits when several processes write: use Node 22.22.3, 24.15 or newer`,
  );
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

function weak(what: string, cure: string): StoreError {
  return new StoreError("store_unfit", "fail", `the database would not keep what it acknowledges: ${what}; ${cure}`);
}

/** Above any key: keys have at most 256 bytes, and this has 260 of the highest. */
const ABOVE_ALL_KEYS = "\u{10ffff}".repeat(65);

type SqliteRow = readonly [
  id: number,
  space: string,
  key: string,
  version: number,
  fence: number,
  wakes: number,
  tries: number,
  holder: string | null,
  kind: string | null,
  status: string | null,
  due: number | null,
  head: number,
  value: string | null,
];

const COLUMNS = "id, space, key, version, fence, wakes, tries, holder, kind, status, due, head, value";

function toRow(columns: unknown): Row {
  const [id, space, key, version, fence, wakes, tries, holder, kind, status, dueMs, head, value] = columns as SqliteRow;
  return { id, space, key, version, fence, wakes, tries, holder, kind, status, dueMs, head, value };
}

export class SqliteStore implements Store {
  readonly lanes = 1;
  readonly #db: DatabaseSync;
  readonly #namespace: string;
  readonly #options: SqliteOptions;
  readonly #sql: Statements;
  readonly #mark = { epoch: 0, sequence: 0 };
  readonly #cache = new RowCache();
  /** A commit failed in a way that may have left something behind. */
  #doubtful = false;
  #closed = false;
  readonly #watching = new Set<() => void>();

  constructor(db: DatabaseSync, options: SqliteOptions) {
    this.#db = db;
    this.#options = options;
    this.#namespace = options.namespace;
    this.#sql = new Statements(db);
  }

  async settle(): Promise<{ epoch: number; sequence: number }> {
    this.#check();
    if (this.#doubtful) {
      // The next commit starts where the failed one did, and so leaves nothing of it to recover.
      this.#transaction(() => this.#sql.touch.run());
      this.#doubtful = false;
    }
    this.#mark.epoch += 1;
    return { ...this.#mark };
  }

  async commit(batch: Batch): Promise<Receipt> {
    this.#check();
    let puts: readonly Put[] = [];
    if (batch.epoch !== this.#mark.epoch)
      throw new StoreError(
        "store_refused",
        "settle",
        "the batch is of an older epoch: its outcome was settled without it",
      );
    const receipt = this.#transaction(() => {
      const nowMs = this.#options.wallMs();
      const fenceFloor = (this.#sql.fenceFloor.get() as unknown as [number] | undefined)?.[0] ?? 0;
      this.#cache.begin(this.#dataVersion());
      const found = (keys: readonly Key[]): Found => ({
        nowMs,
        fenceFloor,
        rows: keys.map((key) => this.#recall(key)),
      });
      let verdict = batch.decide(found(batch.lock));
      while ("lock" in verdict) verdict = batch.decide(found(verdict.lock));
      puts = verdict.puts;
      return this.#write(puts, nowMs);
    });
    if (!receipt.committed) this.#cache.clear();
    else {
      this.#mark.sequence = batch.sequence;
      for (const [i, { row }] of puts.entries())
        this.#cache.keep(row.id === 0 ? { ...row, id: receipt.ids[i] ?? 0 } : row);
    }
    return receipt;
  }

  /** A row as it is now, under the write lock. */
  #recall(key: Key): Row | null {
    const kept = this.#cache.get(key);
    if (kept !== undefined) return kept;
    const row = this.#find(key);
    if (row !== null) this.#cache.keep(row);
    return row;
  }

  #write(puts: readonly Put[], nowMs: number): Receipt {
    const ids: number[] = [];
    const moved: Key[] = [];
    for (const put of puts) {
      const id = put.was === null ? this.#insert(put.row) : this.#update(put.was, put.row);
      if (id === undefined) moved.push(put.row);
      else for (const { version, name, data } of put.entries) this.#sql.append.run(id, version, name, data, nowMs);
      ids.push(id ?? 0);
    }
    if (moved.length === 0) return { committed: true, nowMs, ids };
    return { committed: false, moved };
  }

  #insert(row: Row): number | undefined {
    const { space, key, version, fence, wakes, tries, holder, kind, status, dueMs, head, value } = row;
    const { changes, lastInsertRowid } = this.#sql.insert.run(
      this.#namespace,
      space,
      key,
      version,
      fence,
      wakes,
      tries,
      holder,
      kind,
      status,
      dueMs,
      head,
      value,
    );
    return changes === 1 ? Number(lastInsertRowid) : undefined;
  }

  #update(was: Row, row: Row): number | undefined {
    const { version, fence, wakes, tries, holder, kind, status, dueMs, head, value } = row;
    // Naming `kind` and `due` would rewrite the index of due records, which most commits leave as it is.
    const { changes } =
      was.dueMs === dueMs && was.kind === kind
        ? this.#sql.update.run(version, fence, wakes, tries, holder, status, head, value, was.id, was.version)
        : this.#sql.updateDue.run(
            version,
            fence,
            wakes,
            tries,
            holder,
            status,
            head,
            value,
            kind,
            dueMs,
            was.id,
            was.version,
          );
    return changes === 1 ? was.id : undefined;
  }

  #find(key: Key): Row | null {
    const columns = this.#sql.find.get(this.#namespace, key.space, key.key);
    return columns === undefined ? null : toRow(columns);
  }

  async read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    return this.#reading(() => keys.map((key) => this.#find(key)));
  }

  async list({ space, prefix, after, limit }: ListQuery): Promise<readonly Row[]> {
    const start = after !== null && compareUtf8(after, prefix) > 0 ? after : prefix;
    const end = prefixEnd(prefix) ?? ABOVE_ALL_KEYS;
    return this.#reading(() => this.#sql.list.all(this.#namespace, space, start, end, after ?? "", limit).map(toRow));
  }

  async entries(key: Key, after: number, limit: number): Promise<readonly StoredEntry[]> {
    return this.#reading(() =>
      this.#sql.entries.all(this.#namespace, key.space, key.key, after, limit).map((columns) => {
        const [version, name, data, atMs, position] = columns as unknown as [number, string, string, number, number];
        return { version, name, data, atMs, position };
      }),
    );
  }

  async due({ kinds, limit }: DueQuery): Promise<DuePage> {
    return this.#reading(() => {
      const nowMs = this.#options.wallMs();
      const keys: { readonly dueMs: number; readonly id: number; readonly at: Key }[] = [];
      let nextDueMs: number | null = null;
      // One look for each kind: many due records of a kind nobody works on cost nothing.
      for (const kind of new Set(kinds)) {
        for (const columns of this.#sql.due.all(this.#namespace, kind, nowMs, limit)) {
          const [space, key, dueMs, id] = columns as unknown as [string, string, number, number];
          keys.push({ dueMs, id, at: { space, key } });
        }
        const [next] = this.#sql.nextDue.get(this.#namespace, kind, nowMs) as unknown as [number | null];
        if (next !== null && (nextDueMs === null || next < nextDueMs)) nextDueMs = next;
      }
      keys.sort((a, b) => a.dueMs - b.dueMs || a.id - b.id);
      return { nowMs, keys: keys.slice(0, limit).map(({ at }) => at), nextDueMs };
    });
  }

  async sweep(limit: number): Promise<number> {
    this.#check();
    return this.#transaction(() => {
      const gone = this.#sql.deleted.all(this.#namespace, this.#options.wallMs(), limit) as unknown as [
        number,
        number,
      ][];
      for (const [id, fence] of gone) {
        this.#sql.liftFenceFloor.run(fence + 1);
        this.#sql.removeLog.run(id);
        this.#sql.remove.run(id);
      }
      this.#cache.clear();
      return gone.length;
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
    return (this.#sql.dataVersion.get() as unknown as [number])[0];
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const stop of this.#watching) stop();
    this.#db.close();
  }

  /** Runs the work under the file's write lock. What it throws is rolled back; so is a receipt that says nothing was written. */
  #transaction<T>(work: () => T): T {
    let when: "before" | "commit" = "before";
    try {
      this.#sql.begin.run();
      const result = work();
      when = "commit";
      const refused = typeof result === "object" && result !== null && "committed" in result && !result.committed;
      (refused ? this.#sql.rollback : this.#sql.commit).run();
      return result;
    } catch (cause) {
      if (this.#db.isTransaction) this.#sql.rollback.run();
      this.#cache.clear();
      const error = failure(cause, when);
      if (error instanceof StoreError && error.data.remedy === "settle") this.#doubtful = true;
      throw error;
    }
  }

  /** Reads in one snapshot, so that a commit of another process is seen whole or not at all. */
  #reading<T>(read: () => T): T {
    this.#check();
    try {
      this.#sql.beginRead.run();
      const result = read();
      this.#sql.commit.run();
      return result;
    } catch (cause) {
      if (this.#db.isTransaction) this.#sql.rollback.run();
      throw failure(cause, "before");
    }
  }

  #check(): void {
    if (this.#closed) throw new ClosedError();
  }
}

/** Every statement the store runs, prepared once. */
class Statements {
  readonly begin: StatementSync;
  readonly beginRead: StatementSync;
  readonly commit: StatementSync;
  readonly rollback: StatementSync;
  readonly find: StatementSync;
  readonly insert: StatementSync;
  readonly update: StatementSync;
  readonly updateDue: StatementSync;
  readonly append: StatementSync;
  readonly list: StatementSync;
  readonly entries: StatementSync;
  readonly due: StatementSync;
  readonly nextDue: StatementSync;
  readonly deleted: StatementSync;
  readonly remove: StatementSync;
  readonly removeLog: StatementSync;
  readonly fenceFloor: StatementSync;
  readonly liftFenceFloor: StatementSync;
  readonly touch: StatementSync;
  readonly dataVersion: StatementSync;

  constructor(db: DatabaseSync) {
    const prepare = (sql: string): StatementSync => {
      const statement = db.prepare(sql);
      statement.setReturnArrays(true);
      return statement;
    };
    this.begin = prepare("begin immediate");
    this.beginRead = prepare("begin deferred");
    this.commit = prepare("commit");
    this.rollback = prepare("rollback");
    this.find = prepare(`select ${COLUMNS} from pawl_record where namespace = ? and space = ? and key = ?`);
    // A row that is there already is reported as moved; the caller rolls back.
    this.insert = prepare(
      `insert into pawl_record
         (namespace, space, key, version, fence, wakes, tries, holder, kind, status, due, head, value)
       values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing`,
    );
    this.update = prepare(
      `update pawl_record set version = ?, fence = ?, wakes = ?, tries = ?, holder = ?, status = ?, head = ?, value = ?
       where id = ? and version = ?`,
    );
    this.updateDue = prepare(
      `update pawl_record set version = ?, fence = ?, wakes = ?, tries = ?, holder = ?, status = ?, head = ?, value = ?,
         kind = ?, due = ? where id = ? and version = ?`,
    );
    this.append = prepare("insert into pawl_log (record, version, name, data, at) values (?, ?, ?, ?, ?)");
    this.list = prepare(
      `select ${COLUMNS} from pawl_record
       where namespace = ? and space = ? and key >= ? and key < ? and key <> ? and value is not null order by key limit ?`,
    );
    this.entries = prepare(
      `select version, name, data, at, position from pawl_log
       where record = (select id from pawl_record where namespace = ? and space = ? and key = ?) and version > ?
       order by version limit ?`,
    );
    this.due = prepare(
      "select space, key, due, id from pawl_record where namespace = ? and kind = ? and due <= ? order by due, id limit ?",
    );
    this.nextDue = prepare("select min(due) from pawl_record where namespace = ? and kind = ? and due > ?");
    this.deleted = prepare(
      "select id, fence from pawl_record where namespace = ? and kind is null and due <= ? and value is null limit ?",
    );
    this.remove = prepare("delete from pawl_record where id = ?");
    this.removeLog = prepare("delete from pawl_log where record = ?");
    this.fenceFloor = prepare("select number from pawl_meta where name = 'fence_floor'");
    this.liftFenceFloor = prepare(
      `insert into pawl_meta (name, number) values ('fence_floor', ?)
       on conflict do update set number = max(number, excluded.number)`,
    );
    this.touch = prepare(
      "insert into pawl_meta (name, number) values ('touched', 1) on conflict do update set number = number + 1",
    );
    this.dataVersion = prepare("pragma data_version");
  }
}
