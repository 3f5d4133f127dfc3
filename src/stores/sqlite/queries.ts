/**
 * Queries that read many rows without locks. Each runs in one snapshot.
 */

import { compareUtf8, prefixEnd } from "../../kernel/check.ts";
import type {
  DueKey,
  DuePage,
  DueQuery,
  FollowedEntry,
  FollowPage,
  FollowQuery,
  Key,
  ListQuery,
  LostEntry,
  Row,
  StoredEntry,
} from "../../kernel/contract.ts";
import type { Prepared } from "./prepared.ts";
import { COLUMNS, toRow } from "./rows.ts";

/** Above any key: keys have at most 256 bytes, and this has 260 of the highest. */
const ABOVE_ALL_KEYS = "\u{10ffff}".repeat(65);

const LIST = `
  select ${COLUMNS} from pawl_record
  where namespace = ? and space = ? and key >= ? and key < ? and key <> ? and value is not null
  order by key limit ?`;

/** Lists of texts are passed as JSON, so that one statement works for any number of them. */
const CHOSEN = `
  (?7 is null or kind in (select value from json_each(?7))) and (?8 is null or status in (select value from json_each(?8)))`;

const CHOSEN_BY_KEY = `
  select ${COLUMNS} from pawl_record
  where namespace = ?1 and space = ?2 and key >= ?3 and key < ?4 and key <> ?5 and value is not null and ${CHOSEN}
  order by key limit ?6`;

/** Without an index, rows are scanned in the order of their numbers, and the scan ends with the page instead of sorting the space. */
const byNumber = (isAfter: "<" | ">", direction: "asc" | "desc"): string => `
  select ${COLUMNS} from pawl_record not indexed
  where id ${isAfter} ?5 and namespace = ?1 and space = ?2 and key >= ?3 and key < ?4 and value is not null and ${CHOSEN}
  order by id ${direction} limit ?6`;

const NEWEST = byNumber("<", "desc");
const OLDEST = byNumber(">", "asc");

/** Lists rows. By key, it reads a range of the index of names, so that a short prefix of a large space reads only the rows it returns. */
export function listRows(on: Prepared, namespace: string, query: ListQuery): readonly Row[] {
  const { space, prefix, order = "key", after, kinds, statuses, limit } = query;
  const end = prefixEnd(prefix) ?? ABOVE_ALL_KEYS;
  const chosen = [jsonOf(kinds), jsonOf(statuses)];
  if (order !== "key") {
    const last = after === null ? (order === "newest" ? Number.MAX_SAFE_INTEGER : 0) : Number(after);
    return on
      .rows(order === "newest" ? NEWEST : OLDEST, namespace, space, prefix, end, last, limit, ...chosen)
      .map(toRow);
  }
  const start = after !== null && compareUtf8(after, prefix) > 0 ? after : prefix;
  const range = [namespace, space, start, end, after ?? "", limit];
  const isPlain = kinds === undefined && statuses === undefined;
  return (isPlain ? on.rows(LIST, ...range) : on.rows(CHOSEN_BY_KEY, ...range, ...chosen)).map(toRow);
}

const jsonOf = (texts: readonly string[] | undefined): string | null =>
  texts === undefined ? null : JSON.stringify(texts);

const ENTRIES = `
  select version, name, data, at, position from pawl_log
  where record = (select id from pawl_record where namespace = ? and space = ? and key = ?) and version > ?
  order by version limit ?`;

export function readEntries(
  on: Prepared,
  namespace: string,
  { space, key }: Key,
  after: number,
  limit: number,
  maxBytes: number | undefined,
): readonly StoredEntry[] {
  const { taken } = on.rowsUpTo(maxBytes, 2, ENTRIES, namespace, space, key, after, limit);
  return taken.map((columns) => {
    const [version, name, data, atMs, position] = columns as [number, string, string, number, number];
    return { version, name, data, atMs, position };
  });
}

const LAST_POSITION = "select seq from sqlite_sequence where name = 'pawl_log'";

/**
 * The entries of a space, each found by number. Those that do not match have no key, and their data is not read. Of those that are not in the log, the last
 * columns say what they were.
 */
export const FOLLOW = `
  select f.position, r.key, l.version, l.name, case when r.id is not null then l.data end, l.at, f.version, case when l.version is null then
    (select g.key from pawl_record g where g.id = f.record and g.key >= ?5 and g.key < ?6 and g.value is not null) end
  from (select position, record, version from pawl_followed
      where namespace = ?1 and space = ?2 and position > ?3 order by position limit ?4) f
    left join pawl_log l on l.record = f.record and l.version = f.version
    left join pawl_record r on r.id = l.record and r.key >= ?5 and r.key < ?6
      and (?7 is null or l.name in (select value from json_each(?7)))
  order by f.position`;

type FollowedColumns = [
  position: number,
  key: string | null,
  version: number,
  name: string,
  data: string,
  atMs: number,
  followedVersion: number,
  lostKey: string | null,
];

/** The file has one writer, so positions are in the order of commits: all assigned positions may be followed. */
export function followEntries(on: Prepared, namespace: string, query: FollowQuery, nowMs: number): FollowPage {
  const { space, prefix = "", names, after, limit, maxBytes } = query;
  const last = on.number(LAST_POSITION) ?? 0;
  if (after > last) return { nowMs, entries: [], upTo: last, hasMore: false };
  const end = prefixEnd(prefix) ?? ABOVE_ALL_KEYS;
  const chosen = [prefix, end, jsonOf(names)];
  const { taken, isFull } = on.rowsUpTo(maxBytes, 4, FOLLOW, namespace, space, after, limit, ...chosen);
  const rows = taken as FollowedColumns[];
  const entries: FollowedEntry[] = [];
  const lost: LostEntry[] = [];
  for (const [position, key, version, name, data, atMs, followedVersion, lostKey] of rows)
    if (key !== null) entries.push({ space, key, version, name, data, atMs, position });
    else if (lostKey !== null) lost.push({ space, key: lostKey, version: followedVersion, position });
  const hasMore = isFull || rows.length === limit;
  const upTo = hasMore ? (rows.at(-1)?.[0] ?? after) : last;
  const page = { nowMs, entries, upTo, hasMore };
  return lost.length === 0 ? page : { ...page, lost };
}

const DUE = `
  select space, key, due, id, tries from pawl_record where namespace = ? and kind = ? and due <= ? order by due, id limit ?`;

const NEXT_DUE = "select min(due) from pawl_record where namespace = ? and kind = ? and due > ?";

/** One lookup for each kind: many due records of a kind that this process does not work on cost nothing. */
export function findDue(on: Prepared, namespace: string, { kinds, limit }: DueQuery, nowMs: number): DuePage {
  const found: { readonly dueMs: number; readonly id: number; readonly at: DueKey }[] = [];
  let nextDueMs: number | null = null;
  for (const kind of new Set(kinds)) {
    for (const columns of on.rows(DUE, namespace, kind, nowMs, limit)) {
      const [space, key, dueMs, id, tries] = columns as [string, string, number, number, number];
      found.push({ dueMs, id, at: { space, key, kind, tries } });
    }
    const [next] = on.row(NEXT_DUE, namespace, kind, nowMs) as [number | null];
    if (next !== null && (nextDueMs === null || next < nextDueMs)) nextDueMs = next;
  }
  found.sort((a, b) => a.dueMs - b.dueMs || a.id - b.id);
  return { nowMs, keys: found.slice(0, limit).map(({ at }) => at), nextDueMs };
}
