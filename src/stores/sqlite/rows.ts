/**
 * Rows: finding records, and writing what a batch decided. Writing runs under the file's write lock, when it is known that all rows are
 * unchanged since the batch read them.
 *
 * The bulk statements end the whole transaction if they fail (`or rollback`), which should not happen: to be able to undo a single
 * statement, SQLite would first copy every page that it changes.
 */

import type { SQLInputValue } from "node:sqlite";
import type { Key, Put, Row } from "../../kernel/contract.ts";
import { bulk, runBulk } from "./bulk.ts";
import type { Prepared } from "./prepared.ts";

export const COLUMNS = "id, space, key, version, stamp, fence, wakes, tries, holder, kind, status, due, head, value";

type Columns = readonly [
  id: number,
  space: string,
  key: string,
  version: number,
  stamp: number,
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
  const [id, space, key, version, stamp, fence, wakes, tries, holder, kind, status, dueMs, head, value] =
    columns as Columns;
  return { id, space, key, version, stamp, fence, wakes, tries, holder, kind, status, dueMs, head, value };
}

const FIND = `select ${COLUMNS} from pawl_record where namespace = ? and space = ? and key = ?`;

export function findRow(on: Prepared, namespace: string, { space, key }: Key): Row | null {
  const columns = on.row(FIND, namespace, space, key);
  return columns === undefined ? null : toRow(columns);
}

const LAST_ID = "select seq from sqlite_sequence where name = 'pawl_record'";

const INSERT = bulk(
  15,
  (rows) => `
  insert or rollback into pawl_record
    (id, namespace, space, key, version, stamp, fence, wakes, tries, holder, status, head, value, kind, due)
  values ${rows}`,
);

/** The columns that most commits change. */
const UPDATE_VALUE = bulk(
  5,
  (rows) => `
  update or rollback pawl_record set version = v.column2, stamp = v.column3, head = v.column4, value = v.column5
  from (values ${rows}) v where id = v.column1`,
);

/** When a run takes a step, only these change. */
const UPDATE_HEAD = bulk(
  4,
  (rows) => `
  update or rollback pawl_record set version = v.column2, stamp = v.column3, head = v.column4
  from (values ${rows}) v where id = v.column1`,
);

/** All columns except those of the index of due records: setting those would rewrite the index. */
const UPDATE = bulk(
  10,
  (rows) => `
  update or rollback pawl_record set version = v.column2, stamp = v.column3, head = v.column4, value = v.column5,
    fence = v.column6, wakes = v.column7, tries = v.column8, holder = v.column9, status = v.column10
  from (values ${rows}) v where id = v.column1`,
);

const UPDATE_WITH_DUE = bulk(
  12,
  (rows) => `
  update or rollback pawl_record set version = v.column2, stamp = v.column3, head = v.column4, value = v.column5,
    fence = v.column6, wakes = v.column7, tries = v.column8, holder = v.column9, status = v.column10, kind = v.column11,
    due = v.column12
  from (values ${rows}) v where id = v.column1`,
);

const APPEND = bulk(5, (rows) => `insert or rollback into pawl_log (record, version, name, data, at) values ${rows}`);

/** Inserts the `followed` rows of entries that were just appended. */
const FOLLOW = bulk(
  4,
  (rows) => `
  insert or rollback into pawl_followed (namespace, space, position, record, version)
  select v.column1, v.column2, l.position, l.record, l.version
  from (values ${rows}) v cross join pawl_log l on l.record = v.column3 and l.version = v.column4`,
);

/** Writes all puts and returns the rows' numbers. */
export function writePuts(on: Prepared, namespace: string, puts: readonly Put[], nowMs: number): number[] {
  const inserted: SQLInputValue[] = [];
  const headed: SQLInputValue[] = [];
  const valued: SQLInputValue[] = [];
  const updated: SQLInputValue[] = [];
  const updatedWithDue: SQLInputValue[] = [];
  const appended: SQLInputValue[] = [];
  const followed: SQLInputValue[] = [];
  let lastId: number | undefined;
  const ids = puts.map(({ was, row, entries }) => {
    const { space, key, version, stamp, fence, wakes, tries, holder, kind, status, dueMs, head, value } = row;
    let id: number;
    if (was === null) {
      lastId ??= on.number(LAST_ID) ?? 0;
      lastId += 1;
      id = lastId;
      inserted.push(id, namespace, space, key, version, stamp, fence, wakes, tries);
      inserted.push(holder, status, head, value, kind, dueMs);
    } else {
      id = was.id;
      if (was.dueMs !== dueMs || was.kind !== kind)
        updatedWithDue.push(id, version, stamp, head, value, fence, wakes, tries, holder, status, kind, dueMs);
      else if (isValueOnly(was, row)) {
        if (was.value === value) headed.push(id, version, stamp, head);
        else valued.push(id, version, stamp, head, value);
      } else updated.push(id, version, stamp, head, value, fence, wakes, tries, holder, status);
    }
    for (const entry of entries) {
      appended.push(id, entry.version, entry.name, entry.data, nowMs);
      if (entry.isFollowed === true) followed.push(namespace, space, id, entry.version);
    }
    return id;
  });
  const changed =
    runBulk(on, INSERT, inserted) +
    runBulk(on, UPDATE_HEAD, headed) +
    runBulk(on, UPDATE_VALUE, valued) +
    runBulk(on, UPDATE, updated) +
    runBulk(on, UPDATE_WITH_DUE, updatedWithDue);
  if (changed !== puts.length)
    throw new Error(`${changed} rows were changed under the write lock instead of ${puts.length}`);
  runBulk(on, APPEND, appended);
  runBulk(on, FOLLOW, followed);
  return ids;
}

function isValueOnly(was: Row, row: Row): boolean {
  return (
    was.fence === row.fence &&
    was.wakes === row.wakes &&
    was.tries === row.tries &&
    was.holder === row.holder &&
    was.status === row.status
  );
}

const IDENTITY = "select version, stamp from pawl_record where id = ?";

/** What distinguishes the current content of a row from earlier ones; undefined if there is no row. */
export function identityOf(on: Prepared, id: number): Pick<Row, "version" | "stamp"> | undefined {
  const found = on.row(IDENTITY, id) as [version: number, stamp: number] | undefined;
  return found === undefined ? undefined : { version: found[0], stamp: found[1] };
}
