/**
 * The databases of the tests of joint transactions: PostgreSQL and SQLite with one interface, so that a law is written once.
 *
 * A ground is a separate database. On it, `open` returns a Pawl handle and `connect` a plain connection, as the application would have it:
 * it begins and ends transactions itself, and is passed to `within`.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { type OpenOptions, open, type Pawl, type SqlExecutor } from "../../src/index.ts";
import { freshDatabase } from "../postgres/server.ts";

/** A connection of the application's own. */
export interface Plain {
  /** What `within` takes. */
  readonly executor: SqlExecutor;
  /** Placeholders are ? everywhere. */
  query(text: string, ...values: string[]): Promise<Record<string, unknown>[]>;
  end(): Promise<void>;
}

export interface Ground {
  readonly store: "PostgreSQL" | "SQLite";
  /** A URL, or the path of a file. */
  readonly where: string;
  open(options?: Omit<OpenOptions, "store" | "pool">): Promise<Pawl>;
  connect(): Promise<Plain>;
  /** A statement as this database wants it, from one with ?. */
  says(text: string): string;
  leave(): Promise<void>;
}

export async function postgresGround(): Promise<Ground> {
  const { url, drop } = await freshDatabase();
  return { ...groundOn(url), leave: drop };
}

export async function sqliteGround(): Promise<Ground> {
  const folder = mkdtempSync(join(tmpdir(), "pawl-sql-"));
  const ground = groundOn(join(folder, "shop.db"));
  return { ...ground, leave: async () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }) };
}

export const grounds = [
  ["PostgreSQL", postgresGround],
  ["SQLite", sqliteGround],
] as const;

/** The ground that a URL or a path leads to. */
export function groundOn(where: string): Ground {
  const isPostgres = where.startsWith("postgres");
  let number = 0;
  const says = (text: string) => {
    number = 0;
    return isPostgres ? text.replaceAll("?", () => `$${++number}`) : text;
  };
  return {
    store: isPostgres ? "PostgreSQL" : "SQLite",
    where,
    says,
    open: (options) => open(where, options),
    connect: () => (isPostgres ? connectPostgres(where, says) : connectSqlite(where)),
    leave: async () => {},
  };
}

async function connectPostgres(url: string, says: (text: string) => string): Promise<Plain> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  return {
    executor: client,
    query: async (text, ...values) => (await client.query<Record<string, unknown>>(says(text), values)).rows,
    end: () => client.end(),
  };
}

async function connectSqlite(path: string): Promise<Plain> {
  const db = new DatabaseSync(path);
  return {
    executor: db,
    query: async (text, ...values) => db.prepare(text).all(...values),
    end: async () => db.close(),
  };
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** What it was refused with. */
export async function refusal(act: () => Promise<unknown>): Promise<Error & { code?: unknown }> {
  let answer: unknown;
  try {
    answer = await act();
  } catch (error) {
    if (error instanceof Error) return error;
    throw error;
  }
  throw new Error(`it was not refused, but answered ${JSON.stringify(answer)}`);
}

/** Whether a promise is still open after a while. */
export async function isWaiting(promise: Promise<unknown>, ms = 150): Promise<boolean> {
  const settled = promise.then(
    () => false,
    () => false,
  );
  return Promise.race([settled, sleep(ms).then(() => true)]);
}
