/**
 * Pawl's part of a transaction of the application, in statements that any way of running SQL can run: one text as the only parameter, one
 * column of text as the result. Slower than a batch, and needs nothing but an executor.
 *
 * It waits for rows, in the order of their keys. Absent keys are inserted, as a record or as a placeholder (`rows.ts`), so that they stay
 * absent to others until the transaction ends. All of it runs after a savepoint: if a decision needs more rows, those already locked are
 * released, and locked again with the rest, so that nothing is locked out of order. It changes no setting that the application would
 * notice.
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
import { ask } from "../../kernel/sql/ask.ts";
import { lowestNewFence } from "./commit.ts";
import { failure, isServerError, type ServerError } from "./failure.ts";
import { isFollowed, positions } from "./followed.ts";
import { COLUMNS, isPlaceholder, placeholderOf } from "./rows.ts";

const INPUT = "input as materialized (select $1::text::json as j)";
const KEYS = "input cross join json_to_recordset(j -> 'keys') as k(n int, space text, key text)";

export interface JointStatements {
  readonly lock: string;
  readonly clock: string;
  readonly write: string;
  /** The same if some of the entries are followed; `announce` runs before it (`followed.ts`). */
  readonly writeFollowed: string;
  readonly announce: string;
}

export function jointStatements(s: string, clock: string, knownSchema: number, announce: string): JointStatements {
  const record = `${s}.record`;
  const APPENDED = `
      appended as (
        insert into ${s}.log (record, version, name, data, at)
        select w.id, e.version, e.name, e.data, e.at
        from input cross join json_to_recordset(j -> 'entries') as e(space text, key text, version bigint, name text, data text, at bigint)
        join written w on w.space = e.space and w.key = e.key)`;
  const FOLLOWED = `
      entry as materialized (
        select e.*, nextval(${positions(s)}) as position from input cross join json_to_recordset(j -> 'entries')
          as e(space text, key text, version bigint, name text, data text, at bigint, "isFollowed" boolean)),
      appended as (
        insert into ${s}.log (record, version, position, name, data, at) overriding system value
        select w.id, e.version, e.position, e.name, e.data, e.at
        from entry e join written w on w.space = e.space and w.key = e.key),
      followed as (
        insert into ${s}.followed (namespace, space, position, record, version)
        select j ->> 'namespace', e.space, e.position, w.id, e.version
        from input cross join entry e join written w on w.space = e.space and w.key = e.key where e."isFollowed")`;
  const writing = (appended: string): string => `with ${INPUT},
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
      written as (select * from updated union all select * from inserted),${appended}
      select json_build_array((select count(*) from written), pg_current_xact_id()::text)::text as pawl`;
  return {
    lock: `with ${INPUT}, had as (
        select k.n, r.* from ${KEYS} cross join lateral (
          select ${COLUMNS} from ${record} r
          where r.namespace = j ->> 'namespace' and r.space = k.space and r.key = k.key for no key update) r)
      select coalesce(json_agg(json_build_array(n, ${COLUMNS})), '[]')::text as pawl from had`,
    clock: `select json_build_array(${clock}, coalesce((select number from ${s}.meta where name = 'fence_floor'), 0),
        current_setting('transaction_isolation'),
        coalesce((select number from ${s}.meta where name = 'oldest'), 0) <= ${knownSchema})::text as pawl`,
    write: writing(APPENDED),
    writeFollowed: writing(FOLLOWED),
    announce,
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

/** Runs the batch in the executor's transaction. `ended` resolves with whether the transaction of this number was committed. */
export async function join(
  executor: Executor,
  { lock, clock, write, writeFollowed, announce }: JointStatements,
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
      // A new record reuses the row of its placeholder.
      ...verdict.puts.map((put) => ({ ...put, was: put.was ?? byKey.get(keyText(put.row)) ?? null })),
      ...onlyRead.map((key) => placeholderOf(key, 0, nowMs)),
    ].sort((a, b) => compareUtf8(keyText(a.row), keyText(b.row)));
    if (puts.length === 0) {
      await executor(RELEASE);
      return { written: true, committed: Promise.resolve(false) };
    }
    const hasFollowed = isFollowed(puts);
    if (hasFollowed) await executor(announce);
    const writing = hasFollowed ? writeFollowed : write;
    const [count, xid] = JSON.parse(await ask(executor, writing, input(namespace, puts, nowMs))) as [number, string];
    if (count !== puts.length)
      throw new Error(`${count} rows were written under their locks instead of ${puts.length}`);
    // As in a batch (`commit.ts`): a record of the same name with a higher fence may have come and gone.
    const fence = lowestNewFence(verdict.puts);
    if (fence !== null) {
      const [, floor] = JSON.parse(await ask(executor, clock)) as Clock;
      if (floor > Math.max(fenceFloor, fence)) {
        await executor(UNDO);
        await executor(RELEASE);
        return { written: false };
      }
    }
    await executor(RELEASE);
    madePlaceholders(onlyRead.length);
    return { written: true, committed: verdict.puts.length > 0 ? ended(xid) : Promise.resolve(false) };
  } catch (error) {
    const cause = serverErrorIn(error);
    if (cause?.code === "25P01") throw noTransaction(error);
    if (cause?.code === "42P01" && cause.message.includes(SAVEPOINT)) throw noExecutor(error);
    // An error of the decision must not roll back the rest of the transaction.
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

/** ORMs wrap the driver's error: looks for the server's error, or at least its code, a few levels down. */
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
    "the executor did not run the text that it received as a statement: pass a function that runs it as a raw query",
    {
      cause,
    },
  );

const noTransaction = (cause: unknown): StoreError =>
  new StoreError(
    "store_refused",
    "fail",
    "pawl.within needs an open transaction: call it inside one, with an executor of that transaction",
    { cause },
  );

const tooOldToJoin = (): StoreError =>
  new StoreError(
    "store_unfit",
    "fail",
    "the schema is now too new for this release of Pawl: upgrade Pawl in this process",
  );

const wrongIsolation = (isolation: string): StoreError =>
  new StoreError(
    "store_unfit",
    "fail",
    `pawl.within needs a transaction begun as READ COMMITTED, and this one is ${isolation.toUpperCase()}: it does not see records that were created after it began`,
  );
