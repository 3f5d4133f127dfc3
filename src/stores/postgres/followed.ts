/**
 * Followed entries: reading many logs in one order, such that no entry ever appears behind a reader.
 *
 * Positions come from a sequence, and transactions commit in another order than they draw positions: a reader that remembers the highest
 * position it saw misses entries that are committed later with a lower one. So a transaction that appends followed entries first
 * *announces* itself: it reads the sequence's last value `b` and takes a shared advisory lock whose key holds `b`, until it ends. Only
 * then, in a later statement, does it draw, so all its positions are above `b`. A reader computes its *horizon*: it reads the sequence's
 * last value `s`, then the locks, and takes the lowest of `s` and every `b`. Then, in a later statement and so in a later snapshot, it
 * reads up to the horizon.
 *
 * Why nothing is missed: assume an entry is at or below a reader's horizon, and not in its snapshot. It was drawn before `s` was read, and
 * its transaction ended after the snapshot was taken. So when the reader read the locks, in between, that transaction held one (the server
 * releases locks after a commit becomes visible), with a `b` below the entry. Then the horizon is not above that `b`, which contradicts the
 * assumption. A gap that a rollback leaves blocks no reader, because the lock is gone as well.
 *
 * The lock is shared, so no transaction waits for it, and there is at most one for each transaction. It works in a transaction of the
 * user's, behind a pooler, and in a transaction prepared for two-phase commit, which keeps its locks. Locks belong to one database, and the
 * key contains the schema and the namespace, so others on the server do not delay readers. A lock of the application's that has such a key
 * by chance can only delay readers, never make them miss an entry.
 *
 * The key holds 32 bits of `b`, and the rest is computed from `s`: this is correct while fewer than 2^32 - 2^24 entries are appended during
 * one transaction. The sequence must not reserve numbers in advance (CACHE 1), or a draw could be below `b`: `requirements.ts` refuses
 * that. A standby does not know the locks, and is not read.
 *
 * After a promotion or a restore that loses commits, positions are drawn again. A reader whose cursor is above the sequence's last value
 * can see that from `upTo`; one that reads later, when the sequence has passed its cursor, cannot. A cursor that is stored in the same
 * database, in the commit that uses the entries, is restored with them.
 *
 * Entries that are not followed have no extra cost: no announcement, no row, and the same statements as without followed entries.
 */

import { createHash } from "node:crypto";
import { prefixEnd } from "../../kernel/check.ts";
import type { FollowedEntry, FollowPage, FollowQuery, LostEntry, Put } from "../../kernel/contract.ts";
import { textArray } from "./arrays.ts";
import { type Call, type Result, statement } from "./pipeline.ts";
import { ABOVE_ALL_KEYS } from "./queries.ts";

export const isFollowed = (puts: readonly Put[]): boolean =>
  puts.some(({ entries }) => entries.some((entry) => entry.isFollowed === true));

/** The sequence that the positions of all entries come from, as SQL. */
export const positions = (s: string): string => `'${s.replaceAll("'", "''")}.log_position_seq'::regclass`;

/** A lock may belong to a transaction that announced itself after `s` was read, but not more than this many draws later. */
const AHEAD = 2 ** 24;
const LOW_BITS = 2 ** 32 - 1;

const HORIZON = "pawl.horizon";

export interface FollowStatements {
  /** Announces that the transaction is about to draw positions. Runs before the statement that draws. */
  readonly announce: Call;
  /** The same for a transaction of the user's, which may draw many times: announces once, and again if that was rolled back. */
  readonly announceOnce: string;
  /** Computes the horizon. Returns the horizon, the sequence's last value, and the store's clock. */
  readonly horizon: Call;
  /** Reads the entries of a space up to the horizon. Of those that do not match, returns only the position. */
  follow(query: FollowQuery): Call;
}

export function followStatements(s: string, clock: string, schema: string, namespace: string): FollowStatements {
  const digest = createHash("sha256").update(`pawl followed\n${schema}\n${namespace}`).digest();
  const lockClass = digest.readInt32BE();
  const last = `coalesce(pg_sequence_last_value(${positions(s)}), 0)`;
  // The value is computed before the lock is taken, because it is an argument.
  const announce = `pg_advisory_xact_lock_shared(${lockClass}, ${last}::bit(32)::int)`;
  // A rollback to a savepoint undoes a setting made after it, and releases the lock as well.
  const announced = `pawl.announced_${digest.toString("hex", 0, 8)}`;

  /** The locks are read for each row of `o`, and so after the last value. */
  const LOWEST = `
    select min(o.last - (((o.last - l.objid::bigint + ${AHEAD}) & ${LOW_BITS}) - ${AHEAD})) from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 2 and l.classid = ${lockClass >>> 0}::bigint::oid
      and l.database = (select d.oid from pg_database d where d.datname = current_database()) and o.last >= 0`;

  const followed = `
    select f.position, e.version, e.name, e.data, e.at, e.key, f.version as place, case when l.record is null then
      (select g.key from ${s}.record g where g.id = f.record and g.key >= $5 and g.key < $6 and g.value is not null) end as lost from (
      select f.position, f.record, f.version from ${s}.followed f
      where f.namespace = $1 and f.space = $2 and f.position > $3::text::bigint
        and f.position <= current_setting('${HORIZON}')::bigint
      order by f.namespace, f.space, f.position limit $4::text::bigint
    ) f left join lateral (
      select l.record, l.version, l.name, l.data, l.at from ${s}.log l
      where l.record = f.record and l.version = f.version limit 1
    ) l on true left join lateral (
      select l.version, l.name, l.data, l.at, r.key from ${s}.record r
      where r.id = l.record and r.key >= $5 and r.key < $6 and ($7::text[] is null or l.name = any ($7)) limit 1
    ) e on true
    order by f.position`;

  const FOLLOW = statement(followed);

  /** The same until there are enough bytes, and how many there are. Sizes are known without the data, so what is left out is not read. */
  const FOLLOW_UP_TO = statement(`
    select f.* from (
      select f.*, sum(coalesce(octet_length(f.data), 0)) over (order by f.position) as bytes from (${followed}) f) f
    where f.bytes - coalesce(octet_length(f.data), 0) < $8::text::bigint order by f.position`);

  return {
    announce: { statement: statement(`select ${announce}`), values: [] },
    announceOnce: `select case when current_setting('${announced}', true) = 'yes' then ''
      else ${announce}::text || set_config('${announced}', 'yes', true) end as pawl`,
    horizon: {
      statement: statement(`
        select set_config('${HORIZON}', least(o.last, (${LOWEST}))::text, true), o.last, ${clock}
        from (select ${last} as last offset 0) o`),
      values: [],
    },
    follow({ space, prefix = "", names, after, limit, maxBytes }) {
      const values = [
        namespace,
        space,
        String(after),
        String(limit),
        prefix,
        prefixEnd(prefix) ?? ABOVE_ALL_KEYS,
        names === undefined ? null : textArray(names),
      ];
      if (maxBytes === undefined) return { statement: FOLLOW, values };
      return { statement: FOLLOW_UP_TO, values: [...values, String(maxBytes)] };
    },
  };
}

/** Returns the page for the results of the two statements. */
export function toFollowPage(
  { space, after, limit, maxBytes = Number.POSITIVE_INFINITY }: FollowQuery,
  horizon: Result,
  page: Result,
): FollowPage {
  const [upToText, lastText, nowText] = horizon.rows[0] ?? [];
  const last = Number(lastText);
  const nowMs = Number(nowText);
  if (after > last) return { nowMs, entries: [], upTo: last, hasMore: false };
  const entries: FollowedEntry[] = [];
  const lost: LostEntry[] = [];
  for (const [position, version, name, data, at, key, place, lostKey] of page.rows)
    if (lostKey != null) lost.push({ space, key: lostKey, version: Number(place), position: Number(position) });
    else if (version != null && key != null)
      entries.push({
        space,
        key,
        version: Number(version),
        name: name ?? "",
        data: data ?? "",
        atMs: Number(at),
        position: Number(position),
      });
  const hasMore = page.rows.length === limit || Number(page.rows.at(-1)?.[8] ?? 0) >= maxBytes;
  // A transaction that announced itself with an older value may lower the horizon. A reader never goes back.
  const upTo = hasMore ? Number(page.rows.at(-1)?.[0]) : Math.max(after, Number(upToText));
  const result = { nowMs, entries, upTo, hasMore };
  return lost.length === 0 ? result : { ...result, lost };
}
