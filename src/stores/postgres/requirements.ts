/**
 * The requirements on a server. When the store is opened, it looks for everything that would break a guarantee, and reports each problem in
 * one sentence.
 *
 * Settings that would lose acknowledged work are refused. Settings that only make something slower or unavailable cause a warning.
 */

import { StoreError } from "../../kernel/errors.ts";
import type { Connection } from "./connections.ts";
import { quoted, run } from "./schema.ts";

/** One problem that was found. */
export interface Finding {
  readonly code: string;
  /** Whether opening fails because of it. */
  readonly isRefused: boolean;
  readonly sentence: string;
}

const OLDEST_SERVER = 140_000;

interface ServerSettings {
  readonly version: number;
  readonly fsync: string;
  readonly fullPageWrites: string;
  readonly synchronousCommit: string;
  readonly standbys: string;
  readonly isStandby: boolean;
  readonly isReadOnly: boolean;
  readonly isolation: string;
  readonly encoding: string;
}

const FACTS = `
  select current_setting('server_version_num'), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), pg_is_in_recovery(),
    current_setting('default_transaction_read_only'), current_setting('default_transaction_isolation'),
    current_setting('server_encoding')`;

export async function readSettings(connection: Connection): Promise<ServerSettings> {
  const [row = []] = await run(connection, FACTS);
  const text = (at: number): string => row[at] ?? "";
  return {
    version: Number(text(0)),
    fsync: text(1),
    fullPageWrites: text(2),
    synchronousCommit: text(3),
    standbys: text(4),
    isStandby: text(5) === "t",
    isReadOnly: text(6) === "on",
    isolation: text(7),
    encoding: text(8),
  };
}

/** Returns the problems of a server with these settings. */
export function checkServer(settings: ServerSettings, durability: "full" | "process"): readonly Finding[] {
  const findings: Finding[] = [];
  const refuse = (code: string, sentence: string) => findings.push({ code, isRefused: true, sentence });
  const warn = (code: string, sentence: string) => findings.push({ code, isRefused: false, sentence });
  const isFull = durability === "full";
  if (settings.version < OLDEST_SERVER)
    refuse("old_server", `the server is PostgreSQL ${Math.floor(settings.version / 10_000)}: Pawl needs 14 or newer`);
  if (settings.encoding !== "UTF8")
    refuse(
      "encoding",
      `the encoding of the database is ${settings.encoding}: create a database with the encoding UTF8`,
    );
  if (settings.isStandby) refuse("standby", "the server is a standby, which is read-only: connect to the primary");
  else if (settings.isReadOnly)
    warn(
      "read_only",
      "default_transaction_read_only is on: Pawl still writes, but your own transactions are read-only",
    );
  if (isFull && settings.fsync !== "on")
    refuse("fsync", `fsync is ${settings.fsync}, so a power cut can lose or damage everything: set fsync = on`);
  if (isFull && settings.fullPageWrites !== "on")
    refuse(
      "full_page_writes",
      "full_page_writes is off, so a power cut can damage the data: set full_page_writes = on",
    );
  if (isFull && settings.synchronousCommit === "off")
    refuse(
      "synchronous_commit",
      'synchronous_commit is off, so a crash can lose acknowledged commits: set it to on, or open with durability "process"',
    );
  if (settings.synchronousCommit === "local" && settings.standbys !== "")
    warn(
      "synchronous_commit_local",
      "synchronous_commit is local although there are synchronous standbys: promoting a standby can lose acknowledged commits",
    );
  if (settings.isolation !== "read committed")
    warn(
      "isolation",
      `default_transaction_isolation is ${settings.isolation}: Pawl's own transactions are not affected, but pawl.within needs a transaction that was begun as READ COMMITTED`,
    );
  return findings;
}

/** Returns missing rights on Pawl's tables and sequences, and sequences with wrong settings. */
export async function checkSchema(connection: Connection, schema: string): Promise<readonly Finding[]> {
  const rows = await run(
    connection,
    `select t.name, p.privilege from (values ('record'), ('log'), ('followed'), ('writer'), ('meta')) t(name)
     cross join (values ('select'), ('insert'), ('update'), ('delete')) p(privilege)
     where not has_table_privilege(format('%I.%I', $1::text, t.name), p.privilege)`,
    [schema],
  );
  const sequences = await run(
    connection,
    `select t.name, has_sequence_privilege(format('%I.%I', $1::text, t.name), 'usage'), s.seqcache
     from (values ('record_id_seq'), ('log_position_seq')) t(name)
     join pg_sequence s on s.seqrelid = format('%I.%I', $1::text, t.name)::regclass`,
    [schema],
  );
  const lacking = rows.map(([table, right]) => `${right} on ${quoted(schema)}.${table}`);
  for (const [name, isUsable] of sequences)
    if (isUsable !== "t") lacking.push(`usage on sequence ${quoted(schema)}.${name}`);
  if (lacking.length === 0) return sequences.some(([name, , cache]) => isCached(name, cache)) ? [cached(schema)] : [];
  const shown = lacking.slice(0, 3).join(", ");
  return [
    {
      code: "rights",
      isRefused: true,
      sentence: `the role lacks the right to ${shown}${lacking.length > 3 ? " and more" : ""}: grant select, insert, update, delete on all tables in schema ${quoted(schema)}, and usage on all sequences in it`,
    },
  ];
}

/** A session that reserves positions could use numbers below those that readers have passed (`followed.ts`). */
const isCached = (name: string | null | undefined, cache: string | null | undefined): boolean =>
  name === "log_position_seq" && cache !== "1";

function cached(schema: string): Finding {
  const sequence = `${quoted(schema)}.log_position_seq`;
  const sentence = `the sequence ${sequence} reserves numbers for each session, so readers would miss entries: run alter sequence ${sequence} cache 1`;
  return { code: "sequence_cache", isRefused: true, sentence };
}

export const NO_LISTEN: Finding = {
  code: "listen",
  isRefused: false,
  sentence:
    "notifications do not arrive, which is normal behind a pooler in transaction mode or with a pool of less than three connections: Pawl polls instead, and notices commits of other processes up to 200 ms later",
};

export function throwIfRefused(findings: readonly Finding[]): void {
  const refused = findings.filter(({ isRefused }) => isRefused);
  if (refused.length === 0) return;
  throw new StoreError(
    refused.some(({ code }) => code === "standby") ? "store_readonly" : "store_unfit",
    "fail",
    refused.map(({ sentence }) => sentence).join("; "),
  );
}
