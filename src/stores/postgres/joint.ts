/**
 * Pawl's part of somebody else's transaction, in statements that any way of running SQL can run: one text as the only parameter,
 * one column of text as the answer. Slower than a batch, and needs nothing but an executor.
 *
 * Rows are waited for here, in the order of their keys. What is absent is inserted, as a record or as a placeholder (`rows.ts`), so that it
 * stays absent to others until the transaction ends. A savepoint stands before it all: what is locked for a decision that needs more is
 * released, and locked again with the rest, so that nothing is locked out of order. Nothing is set in the transaction that its owner
 * would notice.
 */

import { compareUtf8 } from "../../kernel/check.ts";
import {
  type Executor,
  type Joined,
  type Joining,
  type Key,
  keyText,
  type Put,
  type Row,
} from "../../kernel/contract.ts";
import { StoreError } from "../../kernel/errors.ts";
import { ask } from "../../kernel/executor.ts";
import { failure, isServerError, type ServerError } from "./failure.ts";
import { COLUMNS, isPlaceholder, placeholderOf } from "./rows.ts";

const INPUT = "input as materialized (select $1::text::json as j)";
const KEYS = "input cross join json_to_recordset(j -> 'keys') as k(n int, space text, key text)";

export interface JointStatements {
  readonly lock: string;
  readonly clock: string;
  readonly write: string;
}

export function jointStatements(s: string, clock: string, knownSchema: number): JointStatements {
  const record = `${s}.record`;
  return {
    lock: `with ${INPUT}, had as (
        select k.n, r.* from ${KEYS} cross join lateral (
          select ${COLUMNS} from ${record} r
          where r.namespace = j ->> 'namespace' and r.space = k.space and r.key = k.key for no key update) r)
      select coalesce(json_agg(json_build_array(n, ${COLUMNS})), '[]')::text as pawl from had`,
    clock: `select json_build_array(${clock}, coalesce((select number from ${s}.meta where name = 'fence_floor'), 0),
        current_setting('transaction_isolation'),
        coalesce((select number from ${s}.meta where name = 'oldest'), 0) <= ${knownSchema})::text as pawl`,
    write: `with ${INPUT},
      v as materialized (select v.* from input, json_to_recordset(j -> 'rows') as v(old bigint, was bigint, was_stamp bigint,
        space text, key text, version bigint, stamp bigint, fence bigint, wakes bigint, tries bigint, holder text, kind text, status text, due bigint, head bigint, value text)),
      updated as (
        update ${record} r set version = v.version, stamp = v.stamp, fence = v.fence, wakes = v.wakes, tries = v.tries,
          holder = v.holder, kind = v.kind, status = v.status, due = v.due, head = v.head, value = v.value
        from v where r.id = any (array[v.old]) and r.version = v.was and r.stamp = v.was_stamp returning r.id, r.space, r.key),
      inserted as (
        insert into ${record} (namespace, space, key, version, stamp, fence, wakes, tries, holder, kind, status, due, head, value)
        select j ->> 'namespace', space, key, version, stamp, fence, wakes, tries, holder, kind, status, due, head, value
        from input, v where v.old is null returning id, space, key),
      written as (select * from updated union all select * from inserted),
      appended as (
        insert into ${s}.log (record, version, name, data, at)
        select w.id, e.version, e.name, e.data, e.at
        from input cross join json_to_recordset(j -> 'entries') as e(space text, key text, version bigint, name text, data text, at bigint)
        join written w on w.space = e.space and w.key = e.key)
      select json_build_array((select count(*) from written), pg_current_xact_id()::text)::text as pawl`,
  };
}

type Clock = [nowMs: number, fenceFloor: number, isolation: string, isFit: boolean];

type Columns = [
  n: number,
  id: number,
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

const SAVEPOINT = "savepoint pawl_joint";
const UNDO = "rollback to savepoint pawl_joint";
const RELEASE = "release savepoint pawl_joint";

/** Runs the batch in the executor's transaction. `ended` tells whether the transaction of this number was committed. */
export async function join(
  executor: Executor,
  { lock, clock, write }: JointStatements,
  namespace: string,
  batch: Joining,
  ended: (xid: string) => Promise<boolean>,
  madePlaceholders: (count: number) => void,
): Promise<Joined> {
  try {
    await executor(SAVEPOINT);
    const keys = [...batch.lock].sort((a, b) => compareUtf8(keyText(a), keyText(b)));
    const byKey = new Map<string, Row>();
    if (keys.length > 0) {
      const asked = keys.map((key, n) => ({ n, ...nameOf(key) }));
      for (const columns of JSON.parse(await ask(executor, lock, { namespace, keys: asked })) as Columns[]) {
        const row = toRow(nameOf(keys[columns[0]]), columns);
        byKey.set(keyText(row), row);
      }
    }
    const [nowMs, fenceFloor, isolation, isFit] = JSON.parse(await ask(executor, clock)) as Clock;
    if (!isFit) throw tooOldToJoin();
    if (isolation !== "read committed") throw wrongIsolation(isolation);
    const rows = batch.lock.map((key) => {
      const row = byKey.get(keyText(key));
      return row === undefined || isPlaceholder(row) ? null : row;
    });
    const verdict = batch.decide({ nowMs, fenceFloor, rows });
    if ("lock" in verdict) {
      await executor(UNDO);
      await executor(RELEASE);
      return { written: false };
    }
    const written = new Set(verdict.puts.map(({ row }) => keyText(row)));
    const onlyRead = keys.filter((key) => !byKey.has(keyText(key)) && !written.has(keyText(key)));
    const puts = [
      // What had a placeholder takes its row.
      ...verdict.puts.map((put) => ({ ...put, was: put.was ?? byKey.get(keyText(put.row)) ?? null })),
      ...onlyRead.map((key) => placeholderOf(key, 0, nowMs)),
    ].sort((a, b) => compareUtf8(keyText(a.row), keyText(b.row)));
    if (puts.length === 0) {
      await executor(RELEASE);
      return { written: true, committed: Promise.resolve(false) };
    }
    const [count, xid] = JSON.parse(await ask(executor, write, input(namespace, puts, nowMs))) as [number, string];
    if (count !== puts.length)
      throw new Error(`${count} rows were written under their locks instead of ${puts.length}`);
    await executor(RELEASE);
    madePlaceholders(onlyRead.length);
    return { written: true, committed: verdict.puts.length > 0 ? ended(xid) : Promise.resolve(false) };
  } catch (error) {
    const cause = serverErrorIn(error);
    if (cause?.code === "25P01") throw noTransaction(error);
    if (cause?.code === "42P01" && cause.message.includes(SAVEPOINT)) throw noExecutor(error);
    // What the decision threw must not take the rest of the transaction with it.
    await executor(UNDO).catch(() => {});
    await executor(RELEASE).catch(() => {});
    if (cause?.code === "23505") return { written: false };
    throw failure(cause ?? error, false);
  }
}

const nameOf = (key: Key | undefined): Key => ({ space: key?.space ?? "", key: key?.key ?? "" });

function toRow({ space, key }: Key, columns: Columns): Row {
  const [, id, version, stamp, fence, wakes, tries, holder, kind, status, dueMs, head, value] = columns;
  return { id, space, key, version, stamp, fence, wakes, tries, holder, kind, status, dueMs, head, value };
}

function input(namespace: string, puts: readonly Put[], nowMs: number): object {
  return {
    namespace,
    rows: puts.map(({ was, row: { id: _, dueMs, ...row } }) => ({
      ...row,
      due: dueMs,
      old: was?.id ?? null,
      was: was?.version ?? null,
      was_stamp: was?.stamp ?? null,
    })),
    entries: puts.flatMap(({ row: { space, key }, entries }) =>
      entries.map((entry) => ({ space, key, ...entry, at: nowMs })),
    ),
  };
}

/** Where ORMs wrap the driver's error, the server's own, or at least its code, is a few steps further down. */
function serverErrorIn(error: unknown): ServerError | undefined {
  let at: unknown = error;
  for (let depth = 0; depth < 6 && typeof at === "object" && at !== null; depth++) {
    if (isServerError(at)) return at;
    const code = member(at, "originalCode");
    if (typeof code === "string") {
      const message = String(member(at, "originalMessage") ?? (error instanceof Error ? error.message : ""));
      return Object.assign(new Error(message, { cause: error }), { code, severity: "ERROR" });
    }
    at = WRAPPINGS.map((name) => member(at as object, name)).find(
      (inner) => typeof inner === "object" && inner !== null,
    );
  }
  return undefined;
}

/** TypeORM, some drivers, and Prisma with a driver adapter. */
const WRAPPINGS = ["cause", "driverError", "originalError", "meta", "driverAdapterError"] as const;

const member = (of: object, name: string): unknown => (of as Record<string, unknown>)[name];

const noExecutor = (cause: unknown): StoreError =>
  new StoreError(
    "store_refused",
    "fail",
    "the executor must run the text it is given as a statement: wrap the raw query",
    {
      cause,
    },
  );

const noTransaction = (cause: unknown): StoreError =>
  new StoreError(
    "store_refused",
    "fail",
    "pawl.within needs a transaction that is open: run it inside one, with an executor of that transaction",
    { cause },
  );

const tooOldToJoin = (): StoreError =>
  new StoreError(
    "store_unfit",
    "fail",
    "the schema has become too new for this release of Pawl: upgrade Pawl in this process",
  );

const wrongIsolation = (isolation: string): StoreError =>
  new StoreError(
    "store_unfit",
    "fail",
    `pawl.within needs a transaction begun as READ COMMITTED, and this one is ${isolation.toUpperCase()}: what was absent when it began could be there by now`,
  );
