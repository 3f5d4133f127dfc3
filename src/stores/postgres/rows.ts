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
  lock(namespace: string, keys: readonly Key[]): Call;
  /** The clock and the fence floor, in a snapshot after the locks. */
  readonly clock: Call;
  read(namespace: string, keys: readonly Key[]): Call;
  /** Fails unless all of them are absent in a snapshot of its own. */
  stillAbsent(namespace: string, keys: readonly Key[]): Call;
  /** Writes rows that are there, if they are still what the batch saw, and appends to their logs. */
  update(puts: readonly Put[], nowMs: number | null): Call[];
  /** Makes rows, and answers their numbers. */
  insert(namespace: string, puts: readonly Put[]): Call;
  /** Appends to the logs of rows that were just made. */
  append(namespace: string, puts: readonly Put[], nowMs: number | null): Call[];
}

export function rowStatements(s: string, schema: string, clock: string): RowStatements {
  const record = `${s}.record`;
  const at = (k: string): string => `r.namespace = $1 and r.space = ${k}.space and r.key = ${k}.key`;
  const KEYS = "unnest($2::text[], $3::text[]) with ordinality as k(space, key, n)";

  const LOCK = statement(`
    select k.n, case when r.id is not null then true
        when exists (select from ${record} r where ${at("k")}) then false
        else pg_try_advisory_xact_lock(${keyHash(schema, "$1")}) end,
      ${SELECTED}
    from ${KEYS} left join lateral (
      select ${COLUMNS} from ${record} r where ${at("k")} for no key update skip locked
    ) r on true`);

  const CLOCK_AND_FLOOR = statement(
    `select ${clock}, coalesce((select number from ${s}.meta where name = 'fence_floor'), 0)`,
  );

  const READ = statement(`select k.n, ${SELECTED} from ${KEYS} join ${record} r on ${at("k")}`);

  /** What most commits change. */
  const UPDATE_VALUE = statement(`
    with done as (
      update ${record} r set version = v.version, head = v.head, value = v.value
      from unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[]) v(id, was, version, head, value)
      where r.id = v.id and r.version = v.was returning 1)
    select ${assertion("count(*) = $1::text::bigint", MOVED)} from done`);

  const UPDATE = statement(`
    with done as (
      update ${record} r set version = v.version, head = v.head, value = v.value, fence = v.fence, wakes = v.wakes,
        tries = v.tries, due = v.due, holder = v.holder, kind = v.kind, status = v.status
      from unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[],
        $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[])
        v(id, was, version, head, value, fence, wakes, tries, due, holder, kind, status)
      where r.id = v.id and r.version = v.was returning 1)
    select ${assertion("count(*) = $1::text::bigint", MOVED)} from done`);

  /** In the order given, which is the order of the numbers that come back. One that is there after all fails the statement. */
  const INSERT = statement(`
    insert into ${record}
      (namespace, space, key, version, head, value, fence, wakes, tries, due, holder, kind, status)
    select $1, space, key, version, head, value, fence, wakes, tries, due, holder, kind, status
    from unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[],
      $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[])
      with ordinality v(space, key, version, head, value, fence, wakes, tries, due, holder, kind, status, n)
    order by n
    returning id`);

  const STILL_ABSENT = statement(`
    select ${assertion("count(*) = 0", MOVED)}
    from unnest($2::text[], $3::text[]) k(space, key) join ${record} r on ${at("k")}`);

  const ENTRIES = "$1::bigint[], $2::text[], $3::text[]";

  const APPEND = statement(`
    insert into ${s}.log (record, version, name, data, at)
    select v.record, v.version, v.name, v.data, coalesce($4::text::bigint, (select ${clock}))
    from unnest(${ENTRIES}, $5::bigint[]) v(version, name, data, record)`);

  /** For records that the same transaction has just made, whose numbers are not known here yet. */
  const APPEND_BY_KEY = statement(`
    insert into ${s}.log (record, version, name, data, at)
    select r.id, v.version, v.name, v.data, coalesce($4::text::bigint, (select ${clock}))
    from unnest(${ENTRIES}, $6::text[], $7::text[]) v(version, name, data, space, key)
    join ${record} r on r.namespace = $5 and r.space = v.space and r.key = v.key`);

  return {
    lock: (namespace, keys) => ({ statement: LOCK, values: [namespace, ...keyArrays(keys)] }),
    clock: { statement: CLOCK_AND_FLOOR, values: [] },
    read: (namespace, keys) => ({ statement: READ, values: [namespace, ...keyArrays(keys)] }),
    stillAbsent: (namespace, keys) => ({ statement: STILL_ABSENT, values: [namespace, ...keyArrays(keys)] }),
    insert: (namespace, puts) => ({
      statement: INSERT,
      values: [namespace, ...keyArrays(puts.map(({ row }) => row)), ...content(puts), ...rest(puts)],
    }),
    update(puts, nowMs) {
      const calls: Call[] = [];
      const valued: Put[] = [];
      const others: Put[] = [];
      for (const put of puts) (isValueOnly(put) ? valued : others).push(put);
      if (valued.length > 0) calls.push({ statement: UPDATE_VALUE, values: [...identity(valued), ...content(valued)] });
      if (others.length > 0)
        calls.push({ statement: UPDATE, values: [...identity(others), ...content(others), ...rest(others)] });
      const entries = puts.flatMap(({ row, entries }) => entries.map((entry) => ({ row, entry })));
      if (entries.length > 0) {
        const ids = int8Array(entries.map(({ row }) => row.id));
        calls.push({ statement: APPEND, values: [...entryArrays(entries), textOf(nowMs), ids] });
      }
      return calls;
    },
    append(namespace, puts, nowMs) {
      const entries = puts.flatMap(({ row, entries }) => entries.map((entry) => ({ row, entry })));
      if (entries.length === 0) return [];
      const keys = keyArrays(entries.map(({ row }) => row));
      return [{ statement: APPEND_BY_KEY, values: [...entryArrays(entries), textOf(nowMs), namespace, ...keys] }];
    },
  };
}

const textOf = (number: number | null): string | null => (number === null ? null : String(number));

const entryArrays = (entries: readonly { readonly entry: Entry }[]): Buffer[] => [
  int8Array(entries.map(({ entry }) => entry.version)),
  textArray(entries.map(({ entry }) => entry.name)),
  textArray(entries.map(({ entry }) => entry.data)),
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

function isValueOnly({ was, row }: Put): boolean {
  return (
    was !== null &&
    was.fence === row.fence &&
    was.wakes === row.wakes &&
    was.tries === row.tries &&
    was.holder === row.holder &&
    was.kind === row.kind &&
    was.status === row.status &&
    was.dueMs === row.dueMs
  );
}
