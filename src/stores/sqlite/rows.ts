/**
 * Rows: finding, making and changing records, and appending to their logs. All of it runs under the file's write lock, except
 * `findRow`, which also reads in a snapshot.
 */

import type { Entry, Key, Row } from "../../kernel/contract.ts";
import type { Prepared } from "./prepared.ts";

export const COLUMNS = "id, space, key, version, fence, wakes, tries, holder, kind, status, due, head, value";

type Columns = readonly [
  id: number,
  space: string,
  key: string,
  version: number,
  fence: number,
  wakes: number,
  tries: number,
  holder: string | null,
  kind: string | null,
  status: string | null,
  due: number | null,
  head: number,
  value: string | null,
];

export function toRow(columns: unknown): Row {
  const [id, space, key, version, fence, wakes, tries, holder, kind, status, dueMs, head, value] = columns as Columns;
  return { id, space, key, version, fence, wakes, tries, holder, kind, status, dueMs, head, value };
}

const FIND = `select ${COLUMNS} from pawl_record where namespace = ? and space = ? and key = ?`;

export function findRow(on: Prepared, namespace: string, { space, key }: Key): Row | null {
  const columns = on.sql(FIND).get(namespace, space, key);
  return columns === undefined ? null : toRow(columns);
}

const INSERT = `
  insert into pawl_record (namespace, space, key, version, fence, wakes, tries, holder, kind, status, due, head, value)
  values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing`;

/** The new row's number, or undefined if there is one of that name already. */
export function insertRow(on: Prepared, namespace: string, row: Row): number | undefined {
  const { space, key, version, fence, wakes, tries, holder, kind, status, dueMs, head, value } = row;
  const { changes, lastInsertRowid } = on
    .sql(INSERT)
    .run(namespace, space, key, version, fence, wakes, tries, holder, kind, status, dueMs, head, value);
  return changes === 1 ? Number(lastInsertRowid) : undefined;
}

const UPDATE = `
  update pawl_record set version = ?, fence = ?, wakes = ?, tries = ?, holder = ?, status = ?, head = ?, value = ?
  where id = ? and version = ?`;

const UPDATE_WITH_DUE = `
  update pawl_record set version = ?, fence = ?, wakes = ?, tries = ?, holder = ?, status = ?, head = ?, value = ?,
    kind = ?, due = ?
  where id = ? and version = ?`;

/** The row's number, or undefined if it is not what it was. */
export function updateRow(on: Prepared, was: Row, row: Row): number | undefined {
  const { version, fence, wakes, tries, holder, kind, status, dueMs, head, value } = row;
  // Naming `kind` and `due` would rewrite the index of due records, which most commits leave as it is.
  const { changes } =
    was.dueMs === dueMs && was.kind === kind
      ? on.sql(UPDATE).run(version, fence, wakes, tries, holder, status, head, value, was.id, was.version)
      : on
          .sql(UPDATE_WITH_DUE)
          .run(version, fence, wakes, tries, holder, status, head, value, kind, dueMs, was.id, was.version);
  return changes === 1 ? was.id : undefined;
}

const APPEND = "insert into pawl_log (record, version, name, data, at) values (?, ?, ?, ?, ?)";

export function appendEntries(on: Prepared, id: number, entries: readonly Entry[], nowMs: number): void {
  for (const { version, name, data } of entries) on.sql(APPEND).run(id, version, name, data, nowMs);
}
