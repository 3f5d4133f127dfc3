/**
 * Databases of one PostgreSQL server: the one that `PAWL_TEST_POSTGRES` names, or a server of our own with the settings that
 * PostgreSQL is shipped with, but for those in test/postgres/server.ts.
 *
 * Each round has a database of its own with the store's tables, copied from one that the store has made, and dropped afterwards. Before the clock starts, a checkpoint writes out what the
 * round before left in memory, so that every round pays only for its own pages.
 */

import { createHash, randomUUID } from "node:crypto";
import pg from "pg";
import { startPostgres } from "../test/postgres/server.ts";
import { type Ground, leftBehind, type Place, type TableNames } from "./ground.ts";
import { openOurs } from "./ours.ts";

export interface PostgresGround extends Ground {
  /** Whether the server is one that was started here. */
  readonly isOurs: boolean;
  /** The database that we were given. */
  readonly url: Place;
  /** What the server says of itself, such as "PostgreSQL 18.1". */
  readonly server: string;
  /** Runs one statement in the database that we were given, or in another. */
  ask(sql: string, place?: Place): Promise<readonly Record<string, unknown>[]>;
  close(): Promise<void>;
}

const TABLES: TableNames = { record: "pawl.record", log: "pawl.log", followed: "pawl.followed" };

/** The server of the environment, or one of our own that ends with `close`. */
export async function postgresGround(given = process.env["PAWL_TEST_POSTGRES"]): Promise<PostgresGround> {
  const own = given === undefined || given === "" ? await startPostgres() : null;
  const url = own?.url ?? given ?? "";
  const admin = await connect(url);
  const ask = async (sql: string, place?: Place) => {
    if (place === undefined) return (await admin.query<Record<string, unknown>>(sql)).rows;
    const client = await connect(place);
    try {
      return (await client.query<Record<string, unknown>>(sql)).rows;
    } finally {
      await client.end();
    }
  };
  const databaseAt = (name: string): Place => {
    const place = new URL(url);
    place.pathname = `/${name}`;
    return String(place);
  };
  const create = async (more: string) => {
    const name = `pawl_bench_${randomUUID().replaceAll("-", "")}`;
    await ask(`create database ${name} ${more}`);
    return name;
  };
  const drop = (name: string) => ask(`drop database if exists ${name} with (force)`);
  const template = await create("");
  await (await openOurs(databaseAt(template))).kernel.close();
  const [said] = await ask("select current_setting('server_version') as version");
  return {
    isOurs: own !== null,
    url,
    server: `PostgreSQL ${String(said?.["version"]).split(" ")[0]}`,
    ask,
    fresh: async () => databaseAt(await create(`template ${template}`)),
    settle: async () => void (await ask("checkpoint")),
    fingerprint: async (place, of) => {
      const hash = createHash("sha256");
      for (const query of leftBehind(TABLES, of))
        for (const row of await ask(query, place)) hash.update(JSON.stringify(row));
      return hash.digest("hex");
    },
    remove: async (place) => void (await drop(nameOf(place))),
    close: async () => {
      await drop(template);
      await admin.end();
      await own?.destroy();
    },
  };
}

/** The name of the database at a place. */
export const nameOf = (place: Place): string => decodeURIComponent(new URL(place).pathname.slice(1));

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  return client;
}
