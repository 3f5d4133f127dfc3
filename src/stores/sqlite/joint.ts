/**
 * Pawl's part of a transaction of the application on the same file, in statements that any way of running SQL can run: one text as the only
 * parameter, one column of text as the result.
 *
 * It begins with a write, which takes the file's only write lock: from then on, what is read is current. If the transaction has read before
 * and the file has changed since, SQLite refuses the write, and the application must start the transaction again.
 */

import type { Executor, Found, Joined, Joining, Key, Put, Row } from "../../kernel/contract.ts";
import { ask } from "../../kernel/sql/ask.ts";
import { COLUMNS, toRow } from "./rows.ts";

const TAKE_THE_LOCK = "update pawl_meta set number = number where name = 'schema'";

/** A cross join is not reordered: each key is looked up in the index, however many records there are. */
export const FIND = `
  select json_group_array(json_array(k.key, ${COLUMNS.split(", ")
    .map((column) => `r.${column}`)
    .join(", ")})) as pawl
  from (select ? as j) i cross join json_each(i.j, '$.keys') k
  cross join pawl_record r on r.namespace = json_extract(i.j, '$.namespace')
    and r.space = json_extract(k.value, '$.space') and r.key = json_extract(k.value, '$.key')`;

const FLOOR = "select coalesce((select number from pawl_meta where name = 'fence_floor'), 0) || '' as pawl";

const INSERT = `
  insert into pawl_record (namespace, space, key, version, stamp, fence, wakes, tries, holder, kind, status, due, head, value)
  select json_extract(i.j, '$.namespace'), value ->> 'space', value ->> 'key', value ->> 'version', value ->> 'stamp',
    value ->> 'fence', value ->> 'wakes', value ->> 'tries', value ->> 'holder', value ->> 'kind', value ->> 'status', value ->> 'dueMs',
    value ->> 'head', value ->> 'value'
  from (select ? as j) i, json_each(i.j, '$.inserted')`;

export const UPDATE = `
  update pawl_record set version = v.value ->> 'version', stamp = v.value ->> 'stamp', fence = v.value ->> 'fence', wakes = v.value ->> 'wakes',
    tries = v.value ->> 'tries', holder = v.value ->> 'holder', kind = v.value ->> 'kind', status = v.value ->> 'status',
    due = v.value ->> 'dueMs', head = v.value ->> 'head', value = v.value ->> 'value'
  from json_each(?) v where pawl_record.id = v.value ->> 'id'`;

export const APPEND = `
  insert into pawl_log (record, version, name, data, at)
  select r.id, e.value ->> 'version', e.value ->> 'name', e.value ->> 'data', e.value ->> 'atMs'
  from (select ? as j) i cross join json_each(i.j, '$.entries') e
  cross join pawl_record r on r.namespace = json_extract(i.j, '$.namespace')
    and r.space = e.value ->> 'space' and r.key = e.value ->> 'key'`;

/** Inserts the `followed` rows of the entries that are followed. */
export const FOLLOW = `
  insert into pawl_followed (namespace, space, position, record, version)
  select r.namespace, r.space, l.position, l.record, l.version
  from (select ? as j) i cross join json_each(i.j, '$.followed') e
  cross join pawl_record r on r.namespace = json_extract(i.j, '$.namespace')
    and r.space = e.value ->> 'space' and r.key = e.value ->> 'key'
  cross join pawl_log l on l.record = r.id and l.version = e.value ->> 'version'`;

/** Outside a transaction this begins one, and releasing it commits: Pawl's part is atomic in any case. */
const SAVEPOINT = "savepoint pawl_joint";
const UNDO = "rollback to pawl_joint";
const RELEASE = "release pawl_joint";

export async function join(
  executor: Executor,
  namespace: string,
  wallMs: () => number,
  batch: Joining,
): Promise<Joined> {
  await executor(SAVEPOINT);
  try {
    await executor(TAKE_THE_LOCK);
    const nowMs = wallMs();
    const fenceFloor = Number(await ask(executor, FLOOR));
    const find = async (keys: readonly Key[]): Promise<Found> => {
      const rows: (Row | null)[] = keys.map(() => null);
      const input = { namespace, keys: keys.map(({ space, key }) => ({ space, key })) };
      for (const [n, ...columns] of JSON.parse(await ask(executor, FIND, input)) as [number, ...unknown[]][])
        rows[n] = toRow(columns);
      return { nowMs, fenceFloor, rows };
    };
    let verdict = batch.decide(await find(batch.lock));
    while ("lock" in verdict) verdict = batch.decide(await find(verdict.lock));
    await write(executor, namespace, verdict.puts, nowMs);
    await executor(RELEASE);
  } catch (error) {
    // An error of the decision must not roll back the rest of the transaction.
    await executor(UNDO).catch(() => {});
    await executor(RELEASE).catch(() => {});
    throw error;
  }
  // Processes that watch the file notice the commit.
  return { written: true, committed: Promise.resolve(false) };
}

async function write(executor: Executor, namespace: string, puts: readonly Put[], nowMs: number): Promise<void> {
  const inserted = puts.filter(({ was }) => was === null).map(({ row }) => row);
  const updated = puts.flatMap(({ was, row }) => (was === null ? [] : [{ ...row, id: was.id }]));
  const entries = puts.flatMap(({ row: { space, key }, entries }) =>
    entries.map((entry) => ({ space, key, ...entry, atMs: nowMs })),
  );
  if (inserted.length > 0) await executor(INSERT, JSON.stringify({ namespace, inserted }));
  if (updated.length > 0) await executor(UPDATE, JSON.stringify(updated));
  if (entries.length > 0) await executor(APPEND, JSON.stringify({ namespace, entries }));
  const followed = entries
    .filter(({ isFollowed }) => isFollowed === true)
    .map(({ space, key, version }) => ({ space, key, version }));
  if (followed.length > 0) await executor(FOLLOW, JSON.stringify({ namespace, followed }));
}
