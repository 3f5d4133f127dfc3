/**
 * A look at a PostgreSQL database from outside: whether it has Pawl's schema, which one, how large it is, and what the server is like.
 *
 * Opening a store creates the schema and brings it up to date. Whoever only wants to know what is there looks first.
 *
 * Guarantees: a look changes nothing.
 */

import type { Clock } from "../../kernel/ports.ts";
import { type Connection, ConnectionPool } from "./connections.ts";
import { failure } from "./failure.ts";
import { poolFor } from "./pool.ts";
import { checkServer, type Finding, readSettings } from "./requirements.ts";
import { MIGRATIONS, quoted, run } from "./schema.ts";

export interface PostgresLook {
  /** The number of its schema; 0 where there are no tables of Pawl. */
  readonly schema: number;
  /** The number that this release knows. */
  readonly known: number;
  /** The statements of the migrations that are missing, one text for each. */
  readonly missing: readonly string[];
}

export interface PostgresSurvey extends PostgresLook {
  readonly version: string;
  readonly nowMs: number;
  readonly bytes: number;
  readonly namespaces: readonly { readonly namespace: string; readonly records: number }[];
  readonly logEntries: number;
  /** When an entry of the newest records was last committed. */
  readonly lastAtMs: number | null;
  /** Settings that would lose work or slow it down. */
  readonly findings: readonly Finding[];
}

export interface LookOptions {
  readonly url: string;
  readonly schema: string;
  readonly clock: Clock;
  readonly patienceMs: number;
}

export async function lookAtPostgres(options: LookOptions): Promise<PostgresLook> {
  return withConnection(options, (connection) => schemaOf(connection, options.schema));
}

/** The same with sizes, the server's clock and its settings. */
export async function surveyPostgres(options: LookOptions): Promise<PostgresSurvey> {
  return withConnection(options, async (connection) => {
    const look = await schemaOf(connection, options.schema);
    const s = quoted(options.schema);
    const [server = []] = await run(
      connection,
      "select current_setting('server_version'), (extract(epoch from clock_timestamp()) * 1000)::bigint::text",
    );
    const hasTables = look.schema > 0;
    const [size = []] = hasTables
      ? await run(
          connection,
          `select coalesce(sum(pg_total_relation_size(c.oid)), 0)::text from pg_class c
           join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind = 'r'`,
          [options.schema],
        )
      : [];
    const namespaces = hasTables
      ? await run(
          connection,
          `select namespace, count(*)::text from ${s}.record where value is not null group by 1 order by 1`,
          [],
          options.patienceMs,
        )
      : [];
    const [log = []] = hasTables
      ? await run(connection, `select count(*)::text from ${s}.log`, [], options.patienceMs)
      : [];
    // Of what was written last: a record's number rises with the order in which they are made.
    const [last = []] = hasTables
      ? await run(
          connection,
          `select max(l.at)::text from ${s}.log l where l.record in (select id from ${s}.record order by id desc limit 100)`,
        )
      : [];
    return {
      ...look,
      version: server[0] ?? "",
      nowMs: Number(server[1]),
      bytes: Number(size[0] ?? 0),
      namespaces: namespaces.map(([namespace, records]) => ({
        namespace: namespace ?? "",
        records: Number(records),
      })),
      logEntries: Number(log[0] ?? 0),
      lastAtMs: last[0] == null ? null : Number(last[0]),
      findings: checkServer(await readSettings(connection), "full"),
    };
  });
}

async function schemaOf(connection: Connection, schema: string): Promise<PostgresLook> {
  const s = quoted(schema);
  const migrations = MIGRATIONS(s);
  const [found] = await run(connection, "select to_regclass($1)::text", [`${s}.meta`]);
  const rows =
    found?.[0] == null ? [] : await run(connection, `select number::text from ${s}.meta where name = 'schema'`);
  const has = Number(rows[0]?.[0] ?? 0);
  return {
    schema: has,
    known: migrations.length,
    missing: migrations.slice(has).map(({ statements }) => statements.join(";\n")),
  };
}

async function withConnection<T>(options: LookOptions, work: (connection: Connection) => Promise<T>): Promise<T> {
  const { pool, endPool } = await poolFor(options.url, options.patienceMs);
  const connections = new ConnectionPool({ pool, clock: options.clock, replyMs: options.patienceMs });
  try {
    return await connections.use(work);
  } catch (error) {
    throw failure(error, false);
  } finally {
    connections.close();
    await endPool();
  }
}
