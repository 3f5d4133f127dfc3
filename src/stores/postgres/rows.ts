/**
 * Rows: locking and reading records, and writing what a batch decided.
 *
 * Nobody waits for a row: one that another has locked is passed over and reported as busy. Absent rows have nothing to lock, so
 * an advisory lock on the key stands for them; that they are absent still is checked when the batch is written, in a later
 * snapshot, because the reading statement may have looked before the lock was had.
 */

import type { Entry, Key, Put, Row } from "../../kernel/contract.ts";
import { int8Array, textArray } from "./arrays.ts";
import { assertion, MOVED } from "./statements.ts";
import { type Call, statement, type TextRow } from "./train.ts";

const COLUMNS = "id, version, fence, wakes, tries, holder, kind, status, due, head, value";
export const SELECTED = COLUMNS.split(", ")
  .map((name) => `r.${name}`)
  .join(", ");

/** Columns as the server gives them, from this one on: those of COLUMNS. */
export function toRow({ space, key }: Key, columns: TextRow, from: number): Row {
  const number = (at: number): number => Number(columns[from + at]);
  const due = columns[from + 8] ?? null;
  return {
    id: number(0),
    space,
    key,
    version: number(1),
    fence: number(2),
    wakes: number(3),
    tries: number(4),
    holder: columns[from + 5] ?? null,
    kind: columns[from + 6] ?? null,
    status: columns[from + 7] ?? null,
    dueMs: due === null ? null : Number(due),
    head: number(9),
    value: columns[from + 10] ?? null,
  };
}

/** The keys of a batch as two arrays. */
export const keyArrays = (keys: readonly Key[]): [spaces: Buffer, names: Buffer] => [
  textArray(keys.map(({ space }) => space)),
  textArray(keys.map(({ key }) => key)),
];

/** What stands for an absent key `k`: its hash, with the names of schema and namespace in it. */
export const keyHash = (schema: string, namespace: string): string =>
  `hashtextextended(${literal(schema)} || chr(10) || ${namespace} || chr(10) || k.space || chr(10) || k.key, 0)`;

const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;

export interface RowStatements {
  /** Answers for each key its place, a number, and the columns: no number means busy, no further columns absent. */
  lock(namespace: string, keys: readonly Key[]): Call;
  /** The clock and the fence floor, in a snapshot after the locks. */
  readonly clock: Call;
  /** Numbers for rows that are made without having been looked for. */
  reserve(count: number): Call;
  read(namespace: string, keys: readonly Key[]): Call;
  /** Fails unless all of them are absent in a snapshot of its own. */
  stillAbsent(namespace: string, keys: readonly Key[]): Call;
  /** Writes rows, if they are still what the batch saw, and appends to their logs. One number for each put. */
  write(namespace: string, puts: readonly Put[], ids: readonly number[], nowMs: number | null): Call[];
}

/**
 * Plans are made once, perhaps while a table is nearly empty, so nothing may depend on how large it is: a look-up is written so that
 * it cannot be turned round into a walk through the table (`limit 1` in a lateral subquery, `= any (array[…])` in a join).
 */
export function rowStatements(s: string, schema: string, clock: string): RowStatements {
  const record = `${s}.record`;
  const at = "r.namespace = $1 and r.space = k.space and r.key = k.key";
  const KEYS = "unnest($2::text[], $3::text[]) with ordinality as k(space, key, n)";
  const NEW_ID = `nextval(${literal(`${s}.record_id_seq`)})`;

  // Numbers that are mostly 0 are left out, which saves making text of them and reading it: `toRow` takes null for 0.
  const LOCK = statement(`
    select k.n, case when r.id is not null then r.id
        when (select true from ${record} r where ${at} limit 1) then null
        when pg_try_advisory_xact_lock(${keyHash(schema, "$1")}) then ${NEW_ID} end,
      ${SELECTED.replace("r.id, ", "").replace(/r\.(fence|wakes|tries|head)/g, "nullif(r.$1, 0)")}
    from ${KEYS} left join lateral (
      select ${COLUMNS} from ${record} r where ${at} for no key update skip locked
    ) r on true`);

  const CLOCK_AND_FLOOR = statement(
    `select ${clock}, coalesce((select number from ${s}.meta where name = 'fence_floor'), 0)`,
  );

  const RESERVE = statement(`select ${NEW_ID} from generate_series(1, $1::text::int)`);

  const READ = statement(`
    select k.n, ${SELECTED} from ${KEYS} cross join lateral (
      select ${COLUMNS} from ${record} r where ${at} limit 1
    ) r`);

  const STILL_ABSENT = statement(`
    select ${assertion("count(*) = 0", MOVED)} from ${KEYS} cross join lateral (
      select from ${record} r where ${at} limit 1
    ) r`);

  /** What most commits change. */
  const UPDATE_VALUE = statement(`
    with done as (
      update ${record} r set version = v.version, head = v.head, value = v.value
      from unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[]) v(id, was, version, head, value)
      where r.id = any (array[v.id]) and r.version = v.was returning 1)
    select ${assertion("count(*) = $1::text::bigint", MOVED)} from done`);

  const UPDATE = statement(`
    with done as (
      update ${record} r set version = v.version, head = v.head, value = v.value, fence = v.fence, wakes = v.wakes,
        tries = v.tries, due = v.due, holder = v.holder, kind = v.kind, status = v.status
      from unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[],
        $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[])
        v(id, was, version, head, value, fence, wakes, tries, due, holder, kind, status)
      where r.id = any (array[v.id]) and r.version = v.was returning 1)
    select ${assertion("count(*) = $1::text::bigint", MOVED)} from done`);

  /** One that is there after all fails the statement. */
  const INSERT = statement(`
    insert into ${record}
      (namespace, space, key, id, version, head, value, fence, wakes, tries, due, holder, kind, status)
    select $1, v.* from unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[],
      $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::text[]) v`);

  const APPEND = statement(`
    insert into ${s}.log (record, version, name, data, at)
    select v.record, v.version, v.name, v.data, coalesce($1::text::bigint, (select ${clock}))
    from unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[]) v(record, version, name, data)`);

  return {
    lock: (namespace, keys) => ({ statement: LOCK, values: [namespace, ...keyArrays(keys)] }),
    clock: { statement: CLOCK_AND_FLOOR, values: [] },
    reserve: (count) => ({ statement: RESERVE, values: [String(count)] }),
    read: (namespace, keys) => ({ statement: READ, values: [namespace, ...keyArrays(keys)] }),
    stillAbsent: (namespace, keys) => ({ statement: STILL_ABSENT, values: [namespace, ...keyArrays(keys)] }),
    write(namespace, puts, ids, nowMs) {
      const calls: Call[] = [];
      const valued: Put[] = [];
      const updated: Put[] = [];
      const inserted: Put[] = [];
      const newIds: number[] = [];
      const entries: Entry[] = [];
      const records: number[] = [];
      puts.forEach((put, index) => {
        const id = ids[index] ?? 0;
        if (put.was === null) {
          inserted.push(put);
          newIds.push(id);
        } else if (isValueOnly(put.was, put.row)) valued.push(put);
        else updated.push(put);
        for (const entry of put.entries) {
          entries.push(entry);
          records.push(id);
        }
      });
      if (valued.length > 0) calls.push({ statement: UPDATE_VALUE, values: [...identity(valued), ...content(valued)] });
      if (updated.length > 0)
        calls.push({ statement: UPDATE, values: [...identity(updated), ...content(updated), ...rest(updated)] });
      if (inserted.length > 0) {
        const keys = keyArrays(inserted.map(({ row }) => row));
        const values = [namespace, ...keys, int8Array(newIds), ...content(inserted), ...rest(inserted)];
        calls.push({ statement: INSERT, values });
      }
      if (entries.length > 0)
        calls.push({ statement: APPEND, values: [textOf(nowMs), ...entryArrays(records, entries)] });
      return calls;
    },
  };
}

const textOf = (number: number | null): string | null => (number === null ? null : String(number));

const entryArrays = (records: readonly number[], entries: readonly Entry[]): Buffer[] => [
  int8Array(records),
  int8Array(entries.map(({ version }) => version)),
  textArray(entries.map(({ name }) => name)),
  textArray(entries.map(({ data }) => data)),
];

const identity = (puts: readonly Put[]): (string | Buffer)[] => [
  String(puts.length),
  int8Array(puts.map(({ was }) => was?.id ?? 0)),
  int8Array(puts.map(({ was }) => was?.version ?? 0)),
];

const content = (puts: readonly Put[]): Buffer[] => [
  int8Array(puts.map(({ row }) => row.version)),
  int8Array(puts.map(({ row }) => row.head)),
  textArray(puts.map(({ row }) => row.value)),
];

const rest = (puts: readonly Put[]): Buffer[] => [
  int8Array(puts.map(({ row }) => row.fence)),
  int8Array(puts.map(({ row }) => row.wakes)),
  int8Array(puts.map(({ row }) => row.tries)),
  int8Array(puts.map(({ row }) => row.dueMs)),
  textArray(puts.map(({ row }) => row.holder)),
  textArray(puts.map(({ row }) => row.kind)),
  textArray(puts.map(({ row }) => row.status)),
];

function isValueOnly(was: Row, row: Row): boolean {
  return (
    was.fence === row.fence &&
    was.wakes === row.wakes &&
    was.tries === row.tries &&
    was.holder === row.holder &&
    was.kind === row.kind &&
    was.status === row.status &&
    was.dueMs === row.dueMs
  );
}
