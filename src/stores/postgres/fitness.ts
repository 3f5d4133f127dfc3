/**
 * Whether a server is fit: everything that would break a promise is found when the store is opened, and said in one sentence.
 *
 * What would lose acknowledged work is refused. What only makes something slower or unavailable is a warning.
 */

import { StoreError } from "../../kernel/errors.ts";
import type { Line } from "./lines.ts";
import { quoted, run } from "./schema.ts";

/** One thing that is not as it should be. */
export interface Finding {
  readonly code: string;
  /** Opening fails because of it. */
  readonly isRefused: boolean;
  readonly sentence: string;
}

const OLDEST_SERVER = 140_000;

interface Facts {
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

export async function factsOf(line: Line): Promise<Facts> {
  const [row = []] = await run(line, FACTS);
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

/** What is to be said of a server with these settings. */
export function judge(facts: Facts, durability: "full" | "process"): readonly Finding[] {
  const findings: Finding[] = [];
  const refuse = (code: string, sentence: string) => findings.push({ code, isRefused: true, sentence });
  const warn = (code: string, sentence: string) => findings.push({ code, isRefused: false, sentence });
  const isFull = durability === "full";
  if (facts.version < OLDEST_SERVER)
    refuse("old_server", `the server is PostgreSQL ${Math.floor(facts.version / 10_000)}: Pawl needs 14 or newer`);
  if (facts.encoding !== "UTF8")
    refuse("encoding", `the database's encoding is ${facts.encoding}: make one with the encoding UTF8`);
  if (facts.isStandby) refuse("standby", "the server is a standby, which cannot be written: connect to the primary");
  else if (facts.isReadOnly)
    warn("read_only", "default_transaction_read_only is on: Pawl writes all the same, your own transactions will not");
  if (isFull && facts.fsync !== "on")
    refuse("fsync", `fsync is ${facts.fsync}, so a power cut can lose or damage everything: set fsync = on`);
  if (isFull && facts.fullPageWrites !== "on")
    refuse(
      "full_page_writes",
      "full_page_writes is off, so a power cut can damage the data: set full_page_writes = on",
    );
  if (isFull && facts.synchronousCommit === "off")
    refuse(
      "synchronous_commit",
      'synchronous_commit is off, so a crash loses commits that were acknowledged: set it to on, or open with durability "process"',
    );
  if (facts.synchronousCommit === "local" && facts.standbys !== "")
    warn(
      "synchronous_commit_local",
      "synchronous_commit is local although there are synchronous standbys: a promotion can lose commits that were acknowledged",
    );
  if (facts.isolation !== "read committed")
    warn(
      "isolation",
      `default_transaction_isolation is ${facts.isolation}: Pawl's own transactions are not affected, but pawl.within needs one that was begun as READ COMMITTED`,
    );
  return findings;
}

/** The rights that Pawl needs on its tables, when they are there. */
export async function missingRights(line: Line, schema: string): Promise<readonly Finding[]> {
  const rows = await run(
    line,
    `select t.name, p.privilege from (values ('record'), ('log'), ('writer'), ('meta')) t(name)
     cross join (values ('select'), ('insert'), ('update'), ('delete')) p(privilege)
     where not has_table_privilege(format('%I.%I', $1::text, t.name), p.privilege)`,
    [schema],
  );
  const [sequence] = await run(line, "select has_sequence_privilege(format('%I.record_id_seq', $1::text), 'usage')", [
    schema,
  ]);
  const lacking = rows.map(([table, right]) => `${right} on ${quoted(schema)}.${table}`);
  if (sequence?.[0] !== "t") lacking.push(`usage on sequence ${quoted(schema)}.record_id_seq`);
  if (lacking.length === 0) return [];
  const shown = lacking.slice(0, 3).join(", ");
  return [
    {
      code: "rights",
      isRefused: true,
      sentence: `the role lacks the right to ${shown}${lacking.length > 3 ? " and more" : ""}: grant select, insert, update, delete on all tables in schema ${quoted(schema)}, and usage on all sequences in it`,
    },
  ];
}

export const NO_LISTEN: Finding = {
  code: "listen",
  isRefused: false,
  sentence:
    "notifications do not arrive here, as behind a pooler in transaction mode or with a pool of less than three connections: Pawl polls instead, and hears of other processes up to 200 ms later",
};

export function refuseUnfit(findings: readonly Finding[]): void {
  const refused = findings.filter(({ isRefused }) => isRefused);
  if (refused.length === 0) return;
  throw new StoreError(
    refused.some(({ code }) => code === "standby") ? "store_readonly" : "store_unfit",
    "fail",
    refused.map(({ sentence }) => sentence).join("; "),
  );
}
