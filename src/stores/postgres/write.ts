/**
 * Writing a batch: the mark, the rows and their log entries in one statement, because each further statement would make a single commit
 * about a tenth slower.
 *
 * Its parts are common table expressions, combined as the batch needs them and prepared once for each combination. A part that does not
 * find its rows unchanged fails the whole statement.
 */

import { compareUtf8 } from "../../kernel/check.ts";
import type { Batch, Entry, Put, Row } from "../../kernel/contract.ts";
import { int8Array, textArray } from "./arrays.ts";
import { positions } from "./followed.ts";
import { MARK } from "./marks.ts";
import { type Call, type Statement, statement } from "./pipeline.ts";
import { keyArrays } from "./rows.ts";
import { assertion, MOVED, STALE } from "./statements.ts";

/** The mark that a batch writes. */
export type Mark = Pick<Batch, "lane" | "epoch" | "sequence"> & { readonly writer: string };

export const markOf = (writer: string, { lane, epoch, sequence }: Omit<Mark, "writer">): Mark => ({
  writer,
  lane,
  epoch,
  sequence,
});

export const markValues = ({ writer, lane, epoch, sequence }: Mark): string[] => [
  writer,
  String(lane),
  String(epoch),
  String(sequence),
];

/** The rows and entries of a batch, by the parts of the statement. */
interface Parts {
  /** Rows of which only the log's head changes, for example when a run takes a step. */
  readonly headed: Put[];
  /** Rows of which only the value and the log's head change, as in most other commits. */
  readonly valued: Put[];
  readonly updated: Put[];
  readonly inserted: Put[];
  readonly newIds: number[];
  readonly entries: Entry[];
  readonly records: number[];
  /** For each entry, its space if the entry is followed; otherwise null. */
  readonly followedIn: (string | null)[];
  isFollowed: boolean;
}

/**
 * Returns a function that makes the writing statement for a batch, with one number for each put. The statement returns one row: two columns
 * without meaning, and the store's clock.
 */
export function writing(
  s: string,
  clock: string,
): (mark: Mark, namespace: string, puts: readonly Put[], ids: readonly number[], nowMs: number | null) => Call {
  const statements = new Map<number, Statement>();
  return (mark, namespace, puts, ids, nowMs) => {
    const parts = partsOf(puts, ids);
    const { headed, valued, updated, inserted, newIds, entries, records, followedIn, isFollowed } = parts;
    const changed = headed.length + valued.length + updated.length;
    const values: (string | Buffer | null)[] = [...markValues(mark), String(changed)];
    if (headed.length > 0) values.push(...identity(headed), ...heads(headed));
    if (valued.length > 0) values.push(...identity(valued), ...content(valued));
    if (updated.length > 0) values.push(...identity(updated), ...content(updated), ...rest(updated));
    if (inserted.length > 0) {
      const keys = keyArrays(inserted.map(({ row }) => row));
      values.push(namespace, ...keys, int8Array(newIds), ...content(inserted), ...rest(inserted));
    }
    if (entries.length > 0) values.push(nowMs === null ? null : String(nowMs), ...entryArrays(records, entries));
    if (isFollowed) values.push(textArray(followedIn), namespace);
    const shape = shapeOf(parts);
    const made = statements.get(shape) ?? statement(writingText(s, clock, shape));
    statements.set(shape, made);
    return { statement: made, values };
  };
}

const VALUED = 1;
const UPDATED = 2;
const INSERTED = 4;
const APPENDED = 8;
const HEADED = 16;
const FOLLOWED = 32;

const shapeOf = ({ headed, valued, updated, inserted, entries, isFollowed }: Parts): number =>
  (headed.length > 0 ? HEADED : 0) |
  (valued.length > 0 ? VALUED : 0) |
  (updated.length > 0 ? UPDATED : 0) |
  (inserted.length > 0 ? INSERTED : 0) |
  (entries.length > 0 ? APPENDED : 0) |
  (isFollowed ? FOLLOWED : 0);

/**
 * Lookups by number are written as `= any (array[…])`, so that the planner cannot turn them into a scan of the table, whatever the table
 * was like when the plan was made.
 */
function writingText(s: string, clock: string, shape: number): string {
  const record = `${s}.record`;
  let count = 5;
  const next = (types: string): string =>
    types
      .split(" ")
      .map((type) => `$${++count}::${type}`)
      .join(", ");
  const IDENTITY = "bigint[] bigint[] bigint[]";
  const HEAD = "bigint[] bigint[] bigint[]";
  // Version and stamp together identify what is replaced: the same version can have been assigned twice (G31).
  const IS_STILL = "r.id = any (array[v.id]) and r.version = v.was and r.stamp = v.was_stamp";
  const REST = "bigint[] bigint[] bigint[] bigint[] text[] text[] text[]";
  const ctes = [`mark as (${MARK(s, clock)})`];
  if (shape & HEADED)
    ctes.push(`headed as (
      update ${record} r set version = v.version, stamp = v.stamp, head = v.head
      from unnest(${next(`${IDENTITY} ${HEAD}`)}) v(id, was, was_stamp, version, stamp, head)
      where ${IS_STILL} returning 1)`);
  if (shape & VALUED)
    ctes.push(`valued as (
      update ${record} r set version = v.version, stamp = v.stamp, head = v.head, value = v.value
      from unnest(${next(`${IDENTITY} ${HEAD} text[]`)}) v(id, was, was_stamp, version, stamp, head, value)
      where ${IS_STILL} returning 1)`);
  if (shape & UPDATED)
    ctes.push(`updated as (
      update ${record} r set version = v.version, stamp = v.stamp, head = v.head, value = v.value, fence = v.fence,
        wakes = v.wakes, tries = v.tries, due = v.due, holder = v.holder, kind = v.kind, status = v.status
      from unnest(${next(`${IDENTITY} ${HEAD} text[] ${REST}`)})
        v(id, was, was_stamp, version, stamp, head, value, fence, wakes, tries, due, holder, kind, status)
      where ${IS_STILL} returning 1)`);
  // A row that exists fails the statement.
  if (shape & INSERTED)
    ctes.push(`inserted as (
      insert into ${record}
        (namespace, space, key, id, version, stamp, head, value, fence, wakes, tries, due, holder, kind, status)
      select ${next("text")}, v.* from unnest(${next(`text[] text[] bigint[] ${HEAD} text[] ${REST}`)}) v)`);
  // Followed entries must have been announced in an earlier statement. All entries draw their positions here, in order, so that the rows in
  // `log` and `followed` have the same positions.
  if (shape & FOLLOWED) {
    const at = `coalesce(${next("text")}::bigint, (select at from mark))`;
    ctes.push(
      `entry as materialized (
      select v.*, nextval(${positions(s)}) as position
      from unnest(${next("bigint[] bigint[] text[] text[] text[]")}) v(record, version, name, data, space))`,
      `appended as (
      insert into ${s}.log (record, version, position, name, data, at) overriding system value
      select record, version, position, name, data, ${at} from entry)`,
      `followed as (
      insert into ${s}.followed (namespace, space, position, record, version)
      select ${next("text")}, space, position, record, version from entry where space is not null)`,
    );
  } else if (shape & APPENDED)
    ctes.push(`appended as (
      insert into ${s}.log (record, version, name, data, at)
      select v.record, v.version, v.name, v.data, coalesce(${next("text")}::bigint, (select at from mark))
      from unnest(${next("bigint[] bigint[] text[] text[]")}) v(record, version, name, data))`);
  const found = [shape & HEADED && "headed", shape & VALUED && "valued", shape & UPDATED && "updated"].filter(Boolean);
  const counted = found.map((name) => `(select count(*) from ${name})`).join(" + ") || "0";
  return `with ${ctes.join(",\n    ")}
    select ${assertion("(select count(*) from mark) = 1", STALE)},
      ${assertion(`${counted} = $5::text::bigint`, MOVED)}, (select at from mark)`;
}

function partsOf(puts: readonly Put[], ids: readonly number[]): Parts {
  const parts: Parts = {
    headed: [],
    valued: [],
    updated: [],
    inserted: [],
    newIds: [],
    entries: [],
    records: [],
    followedIn: [],
    isFollowed: false,
  };
  const made: [put: Put, id: number][] = [];
  puts.forEach((put, index) => {
    const id = ids[index] ?? 0;
    if (put.was === null) made.push([put, id]);
    else if (!isValueOnly(put.was, put.row)) parts.updated.push(put);
    else if (put.was.value === put.row.value) parts.headed.push(put);
    else parts.valued.push(put);
    for (const entry of put.entries) {
      parts.entries.push(entry);
      parts.records.push(id);
      parts.followedIn.push(entry.isFollowed === true ? put.row.space : null);
      if (entry.isFollowed === true) parts.isFollowed = true;
    }
  });
  // An insert waits for another transaction that inserts the same key, so all insert in the same order. Updates wait likewise.
  made.sort(([a], [b]) => compareUtf8(a.row.space, b.row.space) || compareUtf8(a.row.key, b.row.key));
  for (const [put, id] of made) {
    parts.inserted.push(put);
    parts.newIds.push(id);
  }
  for (const changed of [parts.headed, parts.valued, parts.updated])
    changed.sort((a, b) => (a.was?.id ?? 0) - (b.was?.id ?? 0));
  return parts;
}

const entryArrays = (records: readonly number[], entries: readonly Entry[]): Buffer[] => [
  int8Array(records),
  int8Array(entries.map(({ version }) => version)),
  textArray(entries.map(({ name }) => name)),
  textArray(entries.map(({ data }) => data)),
];

const identity = (puts: readonly Put[]): Buffer[] => [
  int8Array(puts.map(({ was }) => was?.id ?? 0)),
  int8Array(puts.map(({ was }) => was?.version ?? 0)),
  int8Array(puts.map(({ was }) => was?.stamp ?? 0)),
];

const heads = (puts: readonly Put[]): Buffer[] => [
  int8Array(puts.map(({ row }) => row.version)),
  int8Array(puts.map(({ row }) => row.stamp)),
  int8Array(puts.map(({ row }) => row.head)),
];

const content = (puts: readonly Put[]): Buffer[] => [...heads(puts), textArray(puts.map(({ row }) => row.value))];

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
