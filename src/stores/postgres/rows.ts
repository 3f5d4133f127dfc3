/**
 * Rows: locking and reading records.
 *
 * Nobody waits for a row: one that another has locked is passed over and reported as busy. Absent rows have nothing to lock, so
 * an advisory lock on the key stands for them; that they are absent still is checked when the batch is written, in a later
 * snapshot, because the reading statement may have looked before the lock was had.
 */

import type { Key, Row } from "../../kernel/contract.ts";
import { textArray } from "./arrays.ts";
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
  lock(namespace: string, keys: readonly Key[], isWaiting?: boolean): Call;
  /** The clock and the fence floor, in a snapshot after the locks. */
  readonly clock: Call;
  /** Numbers for rows that are made without having been looked for. */
  reserve(count: number): Call;
  read(namespace: string, keys: readonly Key[]): Call;
  /** Fails unless all of them are absent in a snapshot of its own. */
  stillAbsent(namespace: string, keys: readonly Key[]): Call;
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
  const lock = (orPass: string) =>
    statement(`
    select k.n, case when r.id is not null then r.id
        when (select true from ${record} r where ${at} limit 1) then null
        when pg_try_advisory_xact_lock(${keyHash(schema, "$1")}) then ${NEW_ID} end,
      ${SELECTED.replace("r.id, ", "").replace(/r\.(fence|wakes|tries|head)/g, "nullif(r.$1, 0)")}
    from ${KEYS} left join lateral (
      select ${COLUMNS} from ${record} r where ${at} for no key update ${orPass}
    ) r on true`);
  const LOCK = lock("skip locked");
  const LOCK_WAITING = lock("");

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

  return {
    lock: (namespace, keys, isWaiting = false) => ({
      statement: isWaiting ? LOCK_WAITING : LOCK,
      values: [namespace, ...keyArrays(keys)],
    }),
    clock: { statement: CLOCK_AND_FLOOR, values: [] },
    reserve: (count) => ({ statement: RESERVE, values: [String(count)] }),
    read: (namespace, keys) => ({ statement: READ, values: [namespace, ...keyArrays(keys)] }),
    stillAbsent: (namespace, keys) => ({ statement: STILL_ABSENT, values: [namespace, ...keyArrays(keys)] }),
  };
}
