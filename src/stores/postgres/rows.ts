/**
 * Rows: locking and reading records.
 *
 * A row that another transaction has locked is skipped and reported as busy, unless the batch may wait for it.
 *
 * An absent row cannot be locked. Keys that a batch assumes or finds to be absent are protected by the unique index instead: the batch
 * inserts the records that it creates, and for keys that it only read it inserts a *placeholder*, a row with version 0 and no value. Two
 * transactions that depend on the absence of the same key therefore conflict at the index: the second waits for the first, and fails if the
 * first commits. Everything outside this store sees a placeholder as an absent record; it is swept after a while. No lock of the server is
 * used, so only the size of the batch limits the number of absent records.
 */

import { type Key, NEW_ROW, type Put, type Row } from "../../kernel/contract.ts";
import { textArray } from "./arrays.ts";
import { type Call, statement, type TextRow } from "./pipeline.ts";
import { assertion, MOVED } from "./statements.ts";

export const COLUMNS = "id, version, stamp, fence, wakes, tries, holder, kind, status, due, head, value";
export const SELECTED = COLUMNS.split(", ")
  .map((name) => `r.${name}`)
  .join(", ");

/** Converts columns as the server returns them, starting at `from`, in the order of COLUMNS. */
export function toRow({ space, key }: Key, columns: TextRow, from: number): Row {
  const number = (at: number): number => Number(columns[from + at]);
  const due = columns[from + 9] ?? null;
  return {
    id: number(0),
    space,
    key,
    version: number(1),
    stamp: number(2),
    fence: number(3),
    wakes: number(4),
    tries: number(5),
    holder: columns[from + 6] ?? null,
    kind: columns[from + 7] ?? null,
    status: columns[from + 8] ?? null,
    dueMs: due === null ? null : Number(due),
    head: number(10),
    value: columns[from + 11] ?? null,
  };
}

/** Whether the row stands for an absent record. */
export const isPlaceholder = ({ version }: Pick<Row, "version">): boolean => version === 0;

const PLACEHOLDER_KEPT_MS = 10 * 60 * 1000;
/** No record has this kind, so placeholders can be found for sweeping, separately from deleted records. */
const PLACEHOLDER_KIND = "\n";

/** A row that keeps other transactions from creating the record until this transaction has ended. */
export function placeholderOf({ space, key }: Key, id: number, nowMs: number): Put {
  const row = { ...NEW_ROW, space, key, id, kind: PLACEHOLDER_KIND, dueMs: nowMs + PLACEHOLDER_KEPT_MS };
  return { was: null, row, entries: [] };
}

/** The keys of a batch as two arrays. */
export const keyArrays = (keys: readonly Key[]): [spaces: Buffer, names: Buffer] => [
  textArray(keys.map(({ space }) => space)),
  textArray(keys.map(({ key }) => key)),
];

/** With fewer rows than this, their bytes are not counted first. */
const MANY = 8;

const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;

export interface RowStatements {
  /**
   * Returns for each key its index, a number, the columns, and whether it was left unread because `maxBytes` was reached before it. No
   * number means busy; a number without columns means absent.
   */
  lock(namespace: string, keys: readonly Key[], how: { mayWait: boolean; maxBytes: number | undefined }): Call;
  /** The clock and the fence floor, in a snapshot after the locks. */
  readonly clock: Call;
  /** Reserves numbers for rows that are inserted without being looked up first. */
  reserve(count: number): Call;
  read(namespace: string, keys: readonly Key[]): Call;
  /** Fails unless all of the keys are absent in its own snapshot. */
  stillAbsent(namespace: string, keys: readonly Key[]): Call;
  /** Fails if the fence floor is above this in its own snapshot. */
  floorIsAtMost(fence: number): Call;
}

/**
 * Plans are made once, perhaps while a table is nearly empty, so nothing may depend on the size of a table: lookups are written so that the
 * planner cannot turn them into a scan of the table (`limit 1` in a lateral subquery, `= any (array[…])` in a join).
 */
export function rowStatements(s: string, clock: string): RowStatements {
  const record = `${s}.record`;
  const at = "r.namespace = $1 and r.space = k.space and r.key = k.key";
  const KEYS = "unnest($2::text[], $3::text[]) with ordinality as k(space, key, n)";
  const NEW_ID = `nextval(${literal(`${s}.record_id_seq`)})`;

  // Numbers that are mostly 0 are sent as null, which saves formatting and parsing them: `toRow` reads null as 0.
  const NUMBERED = `case when r.id is not null then r.id
        when (select true from ${record} r where ${at} limit 1) then null
        else ${NEW_ID} end`;
  const REST = SELECTED.replace("r.id, ", "").replace(/r\.(stamp|fence|wakes|tries|head)/g, "nullif(r.$1, 0)");
  const locked = (skip: string) => `${KEYS} left join lateral (
      select ${COLUMNS} from ${record} r where ${at} for no key update ${skip}
    ) r on true`;
  const LOCK = statement(`select k.n, ${NUMBERED}, ${REST}, null from ${locked("skip locked")}`);
  const LOCK_WAITING = statement(`select k.n, ${NUMBERED}, ${REST}, null from ${locked("")}`);
  // The length of a long value is known without fetching it, and a value that is left out is not fetched.
  const LOCK_SOME = statement(`
    select k.n, ${NUMBERED}, ${REST.replace("r.value", "case when r.before < $4::text::bigint then r.value end")},
      case when r.before >= $4::text::bigint then 1 end
    from (
      select k.n, k.space, k.key, r.*,
        coalesce(sum(octet_length(r.value)) over (order by k.n rows between unbounded preceding and 1 preceding), 0) as before
      from ${locked("skip locked")}) r cross join lateral (select r.n, r.space, r.key) k`);

  const FLOOR = `coalesce((select number from ${s}.meta where name = 'fence_floor'), 0)`;
  const CLOCK_AND_FLOOR = statement(`select ${clock}, ${FLOOR}`);
  const FLOOR_IS_AT_MOST = statement(`select ${assertion(`${FLOOR} <= $1::text::bigint`, MOVED)}`);

  const RESERVE = statement(`select ${NEW_ID} from generate_series(1, $1::text::int)`);

  const READ = statement(`
    select k.n, ${SELECTED} from ${KEYS} cross join lateral (
      select ${COLUMNS} from ${record} r where ${at} limit 1
    ) r`);

  const STILL_ABSENT = statement(`
    select ${assertion("count(*) = 0", MOVED)} from ${KEYS} cross join lateral (
      select from ${record} r where ${at} and r.version > 0 limit 1
    ) r`);

  return {
    lock: (namespace, keys, { mayWait, maxBytes }) => {
      const values = [namespace, ...keyArrays(keys)];
      if (mayWait) return { statement: LOCK_WAITING, values };
      if (maxBytes === undefined || keys.length < MANY) return { statement: LOCK, values };
      return { statement: LOCK_SOME, values: [...values, String(maxBytes)] };
    },
    clock: { statement: CLOCK_AND_FLOOR, values: [] },
    reserve: (count) => ({ statement: RESERVE, values: [String(count)] }),
    read: (namespace, keys) => ({ statement: READ, values: [namespace, ...keyArrays(keys)] }),
    floorIsAtMost: (fence) => ({ statement: FLOOR_IS_AT_MOST, values: [String(fence)] }),
    stillAbsent: (namespace, keys) => ({ statement: STILL_ABSENT, values: [namespace, ...keyArrays(keys)] }),
  };
}
