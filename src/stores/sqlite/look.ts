/**
 * A look at an SQLite file from outside: whether it has Pawl's tables, in which schema, and how large it is. And a copy of it while others write.
 *
 * Opening a store creates the file and brings its schema up to date. Whoever only wants to know what is there looks first.
 *
 * Guarantees: a look changes nothing. A backup is one moment of the database, whatever is committed meanwhile (G28), and the file appears under its name
 * only when it is complete, checked and on the disk.
 */

import type { Stats } from "node:fs";
import { open, rename, rm, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { StoreError } from "../../kernel/errors.ts";
import { failure } from "./failure.ts";
import { MIGRATIONS } from "./schema.ts";

/** The schema of a database, and what this release would do to it. */
export interface SchemaLook {
  /** The number of its schema; 0 where there are no tables of Pawl. */
  readonly schema: number;
  /** The number that this release knows. */
  readonly known: number;
  /** The statements of the migrations that are missing, one text for each. */
  readonly missing: readonly string[];
}

/** How much there is. */
export interface NamespaceSize {
  readonly namespace: string;
  readonly records: number;
}

export interface SqliteSurvey extends SchemaLook {
  readonly version: string;
  readonly bytes: number;
  /** The size of the log file that is not copied back yet. */
  readonly walBytes: number;
  readonly journalMode: string;
  readonly namespaces: readonly NamespaceSize[];
  readonly logEntries: number;
  /** When the last entry of a log was committed. */
  readonly lastAtMs: number | null;
  /** What SQLite found wrong in the file; empty if nothing. */
  readonly damage: readonly string[];
}

/** Returns null where there is no file, or an empty one. */
export async function lookAtSqlite(path: string): Promise<SchemaLook | null> {
  return withFile(path, (db) => schemaOf(db));
}

/** The same with sizes and a check of the file's structure, which reads all of it. */
export async function surveySqlite(path: string): Promise<SqliteSurvey | null> {
  const sizes = await Promise.all([statOf(path), statOf(`${path}-wal`)]);
  return withFile(path, (db) => {
    const schema = schemaOf(db);
    const hasTables = schema.schema > 0;
    const namespaces = hasTables
      ? db.prepare("select namespace, count(*) as records from pawl_record where value is not null group by 1").all()
      : [];
    const entries = hasTables ? db.prepare("select count(*) as entries from pawl_log").get() : undefined;
    const last = hasTables ? db.prepare("select at from pawl_log order by position desc limit 1").get() : undefined;
    return {
      ...schema,
      version: process.versions["sqlite"] ?? "",
      bytes: sizes[0]?.size ?? 0,
      walBytes: sizes[1]?.size ?? 0,
      journalMode: String(db.prepare("pragma journal_mode").get()?.["journal_mode"]),
      namespaces: namespaces.map((row) => ({ namespace: String(row["namespace"]), records: Number(row["records"]) })),
      logEntries: Number(entries?.["entries"] ?? 0),
      lastAtMs: last === undefined ? null : Number(last["at"]),
      damage: damageOf(db, "quick_check"),
    };
  });
}

export interface BackupOptions {
  /** How many pages are copied at a time. */
  readonly pages: number;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

export interface BackedUp {
  readonly bytes: number;
  readonly pages: number;
  readonly schema: number;
}

/**
 * Copies the database to a new file. A read transaction is open on the source meanwhile, so that the copy is of one moment and does not begin again with
 * each commit of others; they are not delayed.
 */
export async function backUpSqlite(path: string, to: string, { pages, onProgress }: BackupOptions): Promise<BackedUp> {
  const { backup, DatabaseSync } = await import("node:sqlite");
  const target = resolve(to);
  if ((await statOf(target)) !== undefined)
    throw new StoreError("store_refused", "fail", `${to} is there already: name a file that does not exist`);
  const part = `${target}.${process.pid}.part`;
  const source = await openThere(path);
  if (source === undefined) throw new StoreError("store_unreachable", "fail", `there is no database at ${path}`);
  try {
    source.exec("begin");
    const { schema } = schemaOf(source);
    if (schema === 0) throw new StoreError("store_unfit", "fail", `${path} has no tables of Pawl`);
    const copied = await backup(source, part, {
      rate: pages,
      progress: ({ totalPages, remainingPages }) => onProgress?.(totalPages - remainingPages, totalPages),
    });
    onProgress?.(copied, copied);
    const copy = new DatabaseSync(part);
    try {
      const damage = damageOf(copy, "integrity_check");
      if (damage.length > 0)
        throw new StoreError("store_corrupt", "fail", `the copy is damaged, as the database may be: ${damage[0]}`);
      if (schemaOf(copy).schema !== schema)
        throw new StoreError("store_corrupt", "fail", "the copy does not have the schema of the database");
    } finally {
      copy.close();
    }
    await syncFile(part);
    await placeFile(part, target);
    await syncFile(dirname(target));
    return { bytes: (await stat(target)).size, pages: copied, schema };
  } catch (error) {
    throw failure(error, "before", path);
  } finally {
    source.close();
    for (const left of [part, `${part}-wal`, `${part}-shm`]) await rm(left, { force: true });
  }
}

/** Claims the name first, so that a file that was made meanwhile is not replaced. */
async function placeFile(part: string, target: string): Promise<void> {
  await (await open(target, "wx")).close();
  try {
    await rename(part, target);
  } catch (error) {
    await rm(target, { force: true });
    throw error;
  }
}

async function syncFile(path: string): Promise<void> {
  const file = await open(path, "r");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

async function withFile<T>(path: string, look: (db: DatabaseSync) => T): Promise<T | null> {
  try {
    const db = await openThere(path);
    if (db === undefined) return null;
    try {
      return look(db);
    } finally {
      db.close();
    }
  } catch (error) {
    throw failure(error, "before", path);
  }
}

/** Opens a file that is there. With the right to write, SQLite tidies up its log file when it closes. */
async function openThere(path: string): Promise<DatabaseSync | undefined> {
  const { DatabaseSync } = await import("node:sqlite");
  const found = await statOf(path);
  if (found === undefined || (found.isFile() && found.size === 0)) return undefined;
  try {
    return checked(new DatabaseSync(path, { timeout: 5000 }));
  } catch (error) {
    const mapped = failure(error, "before", path);
    if (!(mapped instanceof StoreError) || mapped.code !== "store_readonly") throw mapped;
    return checked(new DatabaseSync(path, { timeout: 5000, readOnly: true }));
  }
}

/** SQLite reads nothing of a file before it is asked something. */
function checked(db: DatabaseSync): DatabaseSync {
  try {
    db.prepare("select count(*) from sqlite_schema").get();
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

function schemaOf(db: DatabaseSync): SchemaLook {
  const known = MIGRATIONS.length;
  const meta = db.prepare("select 1 from sqlite_schema where type = 'table' and name = 'pawl_meta'").get();
  const row = meta === undefined ? undefined : db.prepare("select number from pawl_meta where name = 'schema'").get();
  const schema = Number(row?.["number"] ?? 0);
  return { schema, known, missing: MIGRATIONS.slice(schema) };
}

function damageOf(db: DatabaseSync, check: "quick_check" | "integrity_check"): readonly string[] {
  const found = db
    .prepare(`pragma ${check}(10)`)
    .all()
    .map((row) => String(Object.values(row)[0]));
  return found.filter((text) => text !== "ok");
}

async function statOf(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR"))
      return undefined;
    throw error;
  }
}
