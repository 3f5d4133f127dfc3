/**
 * Rows: locking and reading records.
 *
 * A row that another transaction has locked is skipped and reported as busy, unless the batch may wait for it.
 *
 * An absent row has nothing to lock. What a batch assumes or reads to be absent is protected by the unique index instead: what the batch
 * makes is inserted, and for what it only read a *placeholder* is inserted, a row with version 0 and no value. Two transactions that rest
 * on the absence of the same key, and one that makes it, thus meet at the index: the second waits for the first, and fails if that commits.
 * To everything outside this store a placeholder is an absent record; it is swept away after a while. No lock of the server is used, so
 * the number of absent records is bounded by nothing but the batch.
 */

import type { Key, Put, Row } from "../../kernel/contract.ts";
import { textArray } from "./arrays.ts";
import { assertion, MOVED } from "./statements.ts";
import { type Call, statement, type TextRow } from "./train.ts";

export const COLUMNS = "id, version, stamp, fence, wakes, tries, holder, kind, status, due, head, value";
export const SELECTED = COLUMNS.split(", ")
  .map((name) => `r.${name}`)
  .join(", ");

/** Columns as the server gives them, from this one on: those of COLUMNS. */
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

/** Stands for a record that is absent. */
export const isPlaceholder = ({ version }: Pick<Row, "version">): boolean => version === 0;

const PLACEHOLDER_KEPT_MS = 10 * 60 * 1000;
/** No kind of any record: so they are found for sweeping, apart from deleted records. */
const PLACEHOLDER_KIND = "\n";

/** Keeps others from making the record until the transaction has ended, and nothing more. */
export function placeholderOf({ space, key }: Key, id: number, nowMs: number): Put {
  const numbers = {
    id,
    version: 0,
    stamp: 0,
    fence: 0,
    wakes: 0,
    tries: 0,
    head: 0,
    dueMs: nowMs + PLACEHOLDER_KEPT_MS,
  };
  const row = { space, key, ...numbers, holder: null, kind: PLACEHOLDER_KIND, status: null, value: null };
  return { was: null, row, entries: [] };
}

/** The keys of a batch as two arrays. */
export const keyArrays = (keys: readonly Key[]): [spaces: Buffer, names: Buffer] => [
  textArray(keys.map(({ space }) => space)),
  textArray(keys.map(({ key }) => key)),
];

/** Fewer rows than this are read without counting their bytes first. */
const MANY = 8;

const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;

export interface RowStatements {
  /**
   * Returns for each key its place, a number, the columns, and whether it was left unread because `maxBytes` had been read before it.
   * No number means busy, no further columns absent.
   */
  lock(namespace: string, keys: readonly Key[], how: { mayWait: boolean; maxBytes: number | undefined }): Call;
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
export function rowStatements(s: string, clock: string): RowStatements {
  const record = `${s}.record`;
  const at = "r.namespace = $1 and r.space = k.space and r.key = k.key";
  const KEYS = "unnest($2::text[], $3::text[]) with ordinality as k(space, key, n)";
  const NEW_ID = `nextval(${literal(`${s}.record_id_seq`)})`;

  // Numbers that are mostly 0 are left out, which saves making text of them and reading it: `toRow` takes null for 0.
  const NUMBERED = `case when r.id is not null then r.id
        when (select true from ${record} r where ${at} limit 1) then null
        else ${NEW_ID} end`;
  const REST = SELECTED.replace("r.id, ", "").replace(/r\.(stamp|fence|wakes|tries|head)/g, "nullif(r.$1, 0)");
  const locked = (skip: string) => `${KEYS} left join lateral (
      select ${COLUMNS} from ${record} r where ${at} for no key update ${skip}
    ) r on true`;
  const LOCK = statement(`select k.n, ${NUMBERED}, ${REST}, null from ${locked("skip locked")}`);
  const LOCK_WAITING = statement(`select k.n, ${NUMBERED}, ${REST}, null from ${locked("")}`);
  // The length of a long value is known without fetching it; what is not read is not fetched.
  const LOCK_SOME = statement(`
    select k.n, ${NUMBERED}, ${REST.replace("r.value", "case when r.before < $4::text::bigint then r.value end")},
      case when r.before >= $4::text::bigint then 1 end
    from (
      select k.n, k.space, k.key, r.*,
        coalesce(sum(octet_length(r.value)) over (order by k.n rows between unbounded preceding and 1 preceding), 0) as before
      from ${locked("skip locked")}) r cross join lateral (select r.n, r.space, r.key) k`);

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
    stillAbsent: (namespace, keys) => ({ statement: STILL_ABSENT, values: [namespace, ...keyArrays(keys)] }),
  };
}
