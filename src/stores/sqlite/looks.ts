/**
 * Looks: reading many rows without locks. Each runs in one snapshot.
 */

import { compareUtf8, prefixEnd } from "../../kernel/check.ts";
import type { DueKey, DuePage, DueQuery, Key, ListQuery, Row, StoredEntry } from "../../kernel/contract.ts";
import type { Prepared } from "./prepared.ts";
import { COLUMNS, toRow } from "./rows.ts";

/** Above any key: keys have at most 256 bytes, and this has 260 of the highest. */
const ABOVE_ALL_KEYS = "\u{10ffff}".repeat(65);

const LIST = `
  select ${COLUMNS} from pawl_record
  where namespace = ? and space = ? and key >= ? and key < ? and key <> ? and value is not null
  order by key limit ?`;

/** Lists of texts come as JSON, so that one statement does for any number of them. */
const CHOSEN = `
  (?7 is null or kind in (select value from json_each(?7))) and (?8 is null or status in (select value from json_each(?8)))`;

const CHOSEN_BY_KEY = `
  select ${COLUMNS} from pawl_record
  where namespace = ?1 and space = ?2 and key >= ?3 and key < ?4 and key <> ?5 and value is not null and ${CHOSEN}
  order by key limit ?6`;

/** Without an index, rows are walked in the order of their numbers, and the walk ends with the page instead of sorting the space. */
const byNumber = (isAfter: "<" | ">", direction: "asc" | "desc"): string => `
  select ${COLUMNS} from pawl_record not indexed
  where id ${isAfter} ?5 and namespace = ?1 and space = ?2 and key >= ?3 and key < ?4 and value is not null and ${CHOSEN}
  order by id ${direction} limit ?6`;

const NEWEST = byNumber("<", "desc");
const OLDEST = byNumber(">", "asc");

/** By key, it is a range of the index of names, so that a short prefix of a large space costs what it gives. */
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
): readonly StoredEntry[] {
  return on.rows(ENTRIES, namespace, space, key, after, limit).map((columns) => {
    const [version, name, data, atMs, position] = columns as [number, string, string, number, number];
    return { version, name, data, atMs, position };
  });
}

const DUE = `
  select space, key, due, id, tries from pawl_record where namespace = ? and kind = ? and due <= ? order by due, id limit ?`;

const NEXT_DUE = "select min(due) from pawl_record where namespace = ? and kind = ? and due > ?";

/** One look for each kind: many due records of a kind that nobody here works on cost nothing. */
export function lookForDue(on: Prepared, namespace: string, { kinds, limit }: DueQuery, nowMs: number): DuePage {
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
