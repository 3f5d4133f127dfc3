/**
 * Queries that read many rows without locks. Each is one statement, and so reads one snapshot.
 */

import { compareUtf8, prefixEnd } from "../../kernel/check.ts";
import type { DueKey, DuePage, DueQuery, Key, ListQuery, Row, StoredEntry } from "../../kernel/contract.ts";
import { textArray } from "./arrays.ts";
import { type Call, type Result, statement } from "./pipeline.ts";
import { SELECTED, toRow } from "./rows.ts";

/** Above any key: keys have at most 256 bytes, and this has 260 of the highest. */
export const ABOVE_ALL_KEYS = "\u{10ffff}".repeat(65);
const ABOVE_ALL_NUMBERS = String(Number.MAX_SAFE_INTEGER);

export interface QueryStatements {
  list(namespace: string, query: ListQuery): Call;
  entries(namespace: string, key: Key, after: number, limit: number, maxBytes: number | undefined): Call;
  due(namespace: string, query: DueQuery): Call;
}

export function queryStatements(s: string, clock: string): QueryStatements {
  /** A range of the index of names, so that listing a short prefix of a large space reads only the rows it returns. */
  const LIST = statement(`
    select r.key, ${SELECTED} from ${s}.record r
    where namespace = $1 and space = $2 and key >= $3 and key < $4 and key <> $5 and value is not null
    order by namespace, space, key limit $6::text::bigint`);

  const CHOSEN = "($7::text[] is null or r.kind = any ($7)) and ($8::text[] is null or r.status = any ($8))";

  /** The same range; rows that do not match are read and skipped. */
  const CHOSEN_BY_KEY = statement(`
    select r.key, ${SELECTED} from ${s}.record r
    where namespace = $1 and space = $2 and key >= $3 and key < $4 and key <> $5 and value is not null and ${CHOSEN}
    order by namespace, space, key limit $6::text::bigint`);

  /**
   * A scan along the primary key that ends with the page. The index of names must not be used, because the whole space would be read and
   * sorted: that index does not match names with an empty string appended. Parallel workers must not be used, because starting them takes
   * longer than reading most pages: a scan that starts at a row of a join cannot use them.
   */
  const byNumber = (isAfter: "<" | ">", direction: "asc" | "desc") =>
    statement(`
    select r.* from unnest(array[$5::text::bigint]) last(id) cross join lateral (
      select r.key, ${SELECTED} from ${s}.record r
      where r.id ${isAfter} last.id and r.namespace || '' = $1 and r.space || '' = $2
        and r.key || '' >= $3 and r.key || '' < $4 and r.value is not null and ${CHOSEN}
      order by r.id ${direction} limit $6::text::bigint) r
    order by r.id ${direction}`);

  const NEWEST = byNumber("<", "desc");
  const OLDEST = byNumber(">", "asc");

  const ENTRIES = statement(`
    select l.version, l.name, l.data, l.at, l.position from ${s}.log l
    where l.record = (select r.id from ${s}.record r where r.namespace = $1 and r.space = $2 and r.key = $3)
      and l.version > $4::text::bigint
    order by l.record, l.version limit $5::text::bigint`);

  /** The same until there are enough bytes. Sizes are known without the data, so what is left out is not read. */
  const ENTRIES_UP_TO = statement(`
    select l.version, l.name, l.data, l.at, l.position from (
      select l.*, sum(octet_length(l.data)) over (order by l.version) - octet_length(l.data) as before from (
        select l.version, l.name, l.data, l.at, l.position from ${s}.log l
        where l.record = (select r.id from ${s}.record r where r.namespace = $1 and r.space = $2 and r.key = $3)
          and l.version > $4::text::bigint
        order by l.record, l.version limit $5::text::bigint) l) l
    where l.before < $6::text::bigint order by l.version`);

  /**
   * One lookup for each kind: many due records of a kind that this process does not work on cost nothing. The first row is the clock, then
   * come the due records, and for each kind the next due time.
   */
  const DUE = statement(`
    with now as materialized (select ${clock} as ms), kinds as (select distinct kind from unnest($2::text[]) k(kind))
    select ms, null::text, null::text, null::bigint, null::bigint, null::text, null::bigint from now
    union all
    select null, d.space, d.key, d.due, d.id, k.kind, d.tries from kinds k cross join lateral (
      select r.space, r.key, r.due, r.id, r.tries from ${s}.record r
      where r.namespace = $1 and r.kind = k.kind and r.due <= (select ms from now)
      order by r.namespace, r.kind, r.due, r.id limit $3::text::bigint) d
    union all
    select null, null, null, d.due, null, null, null from kinds k cross join lateral (
      select r.due from ${s}.record r
      where r.namespace = $1 and r.kind = k.kind and r.due > (select ms from now)
      order by r.namespace, r.kind, r.due limit 1) d`);

  return {
    list(namespace, { space, prefix, order = "key", after, kinds, statuses, limit }) {
      const end = prefixEnd(prefix) ?? ABOVE_ALL_KEYS;
      const chosen = [kinds, statuses].map((texts) => (texts === undefined ? null : textArray(texts)));
      if (order !== "key") {
        const last = after ?? (order === "newest" ? ABOVE_ALL_NUMBERS : "0");
        const values = [namespace, space, prefix, end, last, String(limit), ...chosen];
        return { statement: order === "newest" ? NEWEST : OLDEST, values };
      }
      const start = after !== null && compareUtf8(after, prefix) > 0 ? after : prefix;
      const range = [namespace, space, start, end, after ?? "", String(limit)];
      if (kinds === undefined && statuses === undefined) return { statement: LIST, values: range };
      return { statement: CHOSEN_BY_KEY, values: [...range, ...chosen] };
    },
    entries(namespace, { space, key }, after, limit, maxBytes) {
      const values = [namespace, space, key, String(after), String(limit)];
      if (maxBytes === undefined) return { statement: ENTRIES, values };
      return { statement: ENTRIES_UP_TO, values: [...values, String(maxBytes)] };
    },
    due: (namespace, { kinds, limit }) => ({
      statement: DUE,
      values: [namespace, textArray(kinds), String(limit)],
    }),
  };
}

export function toRows(space: string, { rows }: Result): readonly Row[] {
  return rows.map((columns) => toRow({ space, key: columns[0] ?? "" }, columns, 1));
}

export function toEntries({ rows }: Result): readonly StoredEntry[] {
  return rows.map(([version, name, data, at, position]) => ({
    version: Number(version),
    name: name ?? "",
    data: data ?? "",
    atMs: Number(at),
    position: Number(position),
  }));
}

export function toDuePage({ rows }: Result, limit: number): DuePage {
  let nowMs = 0;
  let nextDueMs: number | null = null;
  const found: { readonly dueMs: number; readonly id: number; readonly at: DueKey }[] = [];
  for (const row of rows) {
    // By number: hundreds of rows are taken apart at a time, and seldom enough that this code is not optimized.
    const [ms, space, key, due] = [row[0], row[1], row[2], row[3]];
    if (ms != null) nowMs = Number(ms);
    else if (space != null && key != null)
      found.push({
        dueMs: Number(due),
        id: Number(row[4]),
        at: { space, key, kind: row[5] ?? "", tries: Number(row[6]) },
      });
    else nextDueMs = Math.min(nextDueMs ?? Number.POSITIVE_INFINITY, Number(due));
  }
  found.sort((a, b) => a.dueMs - b.dueMs || a.id - b.id);
  return { nowMs, keys: found.slice(0, limit).map(({ at }) => at), nextDueMs };
}
