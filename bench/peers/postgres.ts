/**
 * The PostgreSQL server that contenders share: out of npm, with fsync on (test/postgres/server.ts), a database for each.
 *
 * It also counts: transactions of one database, and bytes of the server's log.
 */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { startPostgres } from "../../test/postgres/server.ts";

const LEAVE_WITHIN_MS = 20_000;

export interface Postgres {
  /** What the server says of itself, such as "PostgreSQL 18.1". */
  readonly server: string;
  /** An empty database, as a URL. */
  create(): Promise<string>;
  drop(database: string): Promise<void>;
  /** Writes out what a contender left in memory, so that the next one does not pay for it. */
  settle(): Promise<void>;
  /** Transactions committed in a database, once all connections are closed: each server process adds its count when it ends. */
  transactions(database: string): Promise<number>;
  /** How far the server's log has come, in bytes. */
  logPosition(): Promise<number>;
  close(): Promise<void>;
}

export async function openPostgres(): Promise<Postgres> {
  const own = await startPostgres();
  const admin = new pg.Client({ connectionString: own.url });
  admin.on("error", () => {});
  await admin.connect();
  const ask = async (sql: string, values: readonly string[] = []): Promise<Record<string, unknown>> =>
    (await admin.query<Record<string, unknown>>(sql, [...values])).rows[0] ?? {};
  const untilEmpty = async (name: string) => {
    const giveUpMs = performance.now() + LEAVE_WITHIN_MS;
    for (;;) {
      const { there } = await ask(
        "select count(*)::int as there from pg_stat_activity where datname = $1 and backend_type = 'client backend'",
        [name],
      );
      if (there === 0) return;
      if (performance.now() > giveUpMs) throw new Error("a contender does not leave its database");
      await sleep(25);
    }
  };
  const { version } = await ask("select current_setting('server_version') as version");
  return {
    server: `PostgreSQL ${String(version).split(" ")[0]}`,
    create: async () => {
      const name = `peers_${randomUUID().replaceAll("-", "")}`;
      await ask(`create database ${name}`);
      const url = new URL(own.url);
      url.pathname = `/${name}`;
      return String(url);
    },
    drop: async (database) => void (await ask(`drop database if exists ${nameOf(database)} with (force)`)),
    settle: async () => void (await ask("checkpoint")),
    transactions: async (database) => {
      await untilEmpty(nameOf(database));
      const { count } = await ask("select xact_commit::int as count from pg_stat_database where datname = $1", [
        nameOf(database),
      ]);
      return Number(count);
    },
    logPosition: async () => Number((await ask("select pg_current_wal_lsn() - '0/0' as bytes"))["bytes"]),
    close: async () => {
      await admin.end();
      await own.destroy();
    },
  };
}

const nameOf = (database: string): string => new URL(database).pathname.slice(1);
