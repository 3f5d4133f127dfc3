/**
 * Looks: reading many rows without locks. Each is one statement, and so sees one moment.
 */

import { compareUtf8, prefixEnd } from "../../kernel/check.ts";
import type { DuePage, DueQuery, Key, ListQuery, Row, StoredEntry } from "../../kernel/contract.ts";
import { textArray } from "./arrays.ts";
import { SELECTED, toRow } from "./rows.ts";
import { type Answer, type Call, statement } from "./train.ts";

/** Above any key: keys have at most 256 bytes, and this has 260 of the highest. */
const ABOVE_ALL_KEYS = "\u{10ffff}".repeat(65);

export interface LookStatements {
  list(namespace: string, query: ListQuery): Call;
  entries(namespace: string, key: Key, after: number, limit: number): Call;
  due(namespace: string, query: DueQuery): Call;
}

export function lookStatements(s: string, clock: string): LookStatements {
  /** A range of the index of names, so that a short prefix of a large space costs what it gives. */
  const LIST = statement(`
    select r.key, ${SELECTED} from ${s}.record r
    where namespace = $1 and space = $2 and key >= $3 and key < $4 and key <> $5 and value is not null
    order by namespace, space, key limit $6::text::bigint`);

  const ENTRIES = statement(`
    select l.version, l.name, l.data, l.at, l.position from ${s}.log l
    where l.record = (select r.id from ${s}.record r where r.namespace = $1 and r.space = $2 and r.key = $3)
      and l.version > $4::text::bigint
    order by l.record, l.version limit $5::text::bigint`);

  /**
   * One look for each kind: many due records of a kind that nobody here works on cost nothing. The first row is the clock, then come
   * those that are due, and for each kind the next time.
   */
  const DUE = statement(`
    with now as materialized (select ${clock} as ms), kinds as (select distinct kind from unnest($2::text[]) k(kind))
    select ms, null::text, null::text, null::bigint, null::bigint from now
    union all
    select null, d.space, d.key, d.due, d.id from kinds k cross join lateral (
      select r.space, r.key, r.due, r.id from ${s}.record r
      where r.namespace = $1 and r.kind = k.kind and r.due <= (select ms from now)
      order by r.namespace, r.kind, r.due, r.id limit $3::text::bigint) d
    union all
    select null, null, null, d.due, null from kinds k cross join lateral (
      select r.due from ${s}.record r
      where r.namespace = $1 and r.kind = k.kind and r.due > (select ms from now)
      order by r.namespace, r.kind, r.due limit 1) d`);

  return {
    list(namespace, { space, prefix, after, limit }) {
      const start = after !== null && compareUtf8(after, prefix) > 0 ? after : prefix;
      const end = prefixEnd(prefix) ?? ABOVE_ALL_KEYS;
      return { statement: LIST, values: [namespace, space, start, end, after ?? "", String(limit)] };
    },
    entries: (namespace, { space, key }, after, limit) => ({
      statement: ENTRIES,
      values: [namespace, space, key, String(after), String(limit)],
    }),
    due: (namespace, { kinds, limit }) => ({
      statement: DUE,
      values: [namespace, textArray(kinds), String(limit)],
    }),
  };
}

export function toRows(space: string, { rows }: Answer): readonly Row[] {
  return rows.map((columns) => toRow({ space, key: columns[0] ?? "" }, columns, 1));
}

export function toEntries({ rows }: Answer): readonly StoredEntry[] {
  return rows.map(([version, name, data, at, position]) => ({
    version: Number(version),
    name: name ?? "",
    data: data ?? "",
    atMs: Number(at),
    position: Number(position),
  }));
}

export function toDuePage({ rows }: Answer, limit: number): DuePage {
  let nowMs = 0;
  let nextDueMs: number | null = null;
  const found: { readonly dueMs: number; readonly id: number; readonly at: Key }[] = [];
  for (const [ms, space, key, due, id] of rows)
    if (ms != null) nowMs = Number(ms);
    else if (space != null && key != null) found.push({ dueMs: Number(due), id: Number(id), at: { space, key } });
    else nextDueMs = Math.min(nextDueMs ?? Number.POSITIVE_INFINITY, Number(due));
  found.sort((a, b) => a.dueMs - b.dueMs || a.id - b.id);
  return { nowMs, keys: found.slice(0, limit).map(({ at }) => at), nextDueMs };
}
