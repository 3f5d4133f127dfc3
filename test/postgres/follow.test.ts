/**
 * Goal: on a server, where transactions commit in another order than they wrote, a reader that follows misses nothing (G12) and waits only
 * for transactions that append what it follows; entries that are not followed have no extra cost.
 * Method: writers that pause between writing and committing, against Pawl's cursor and one that remembers the highest position; then single
 * transactions that are held open, rolled back in part, or prepared, with a check of the server's own locks.
 */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { Executor, FollowedEntry, Put } from "../../src/kernel/contract.ts";
import type { PostgresStore } from "../../src/stores/postgres/postgres.ts";
import { MIGRATIONS, quoted } from "../../src/stores/postgres/schema.ts";
import { at, blank, followed, making, range, SPACE } from "../../src/testing/conformance/law-context.ts";
import { connect, poolOn, type StoreOptions } from "./kit.ts";
import { type FreshDatabase, freshDatabase, startPostgres } from "./server.ts";

let database: FreshDatabase | undefined;
let pool: pg.Pool;
beforeAll(async () => {
  database = await freshDatabase();
  pool = poolOn(database.url, 40);
});
afterAll(async () => {
  await pool.end();
  await database?.drop();
});

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const freshSchema = (): string => `follow ${randomUUID()}`;

async function open(options: StoreOptions & { readonly schema: string }, url = ""): Promise<PostgresStore> {
  const store = await connect(url, url === "" ? { pool, ...options } : options);
  ends.push(() => store.close());
  return store;
}

interface OwnTransaction {
  readonly executor: Executor;
  query(text: string): Promise<unknown>;
  /** Ends it with this statement, and releases its connection. */
  end(text: string): Promise<void>;
}

/** A transaction of the user's own, on a connection of its own. */
async function begin(on: pg.Pool = pool): Promise<OwnTransaction> {
  const client = await on.connect();
  let isReleased = false;
  const release = async (isBroken?: boolean) => {
    if (!isReleased) client.release(isBroken);
    isReleased = true;
  };
  ends.push(() => release(true));
  await client.query("begin");
  return {
    executor: async (text, value) => (await client.query(text, value === undefined ? [] : [value])).rows,
    query: (text) => client.query(text),
    async end(text) {
      await client.query(text);
      await release();
    },
  };
}

const said = (key: string, ...data: readonly string[]): Put =>
  followed(making(blank(key), ...(data.length ? data : ["x"])));

async function join(store: PostgresStore, executor: Executor, put: Put): Promise<void> {
  const joined = await store.join(executor, { lock: [put.row], decide: () => ({ puts: [put] }) });
  if (!joined.written) throw new Error("it was not written");
  joined.committed.catch(() => {});
}

const sequences = new WeakMap<PostgresStore, { epoch: number; sequence: number }>();

/** One batch that knows its rows. */
async function write(store: PostgresStore, ...puts: readonly Put[]): Promise<void> {
  const mark = sequences.get(store) ?? (await store.settle(0));
  const next = { ...mark, sequence: mark.sequence + 1 };
  sequences.set(store, next);
  const receipt = await store.commit({ ...next, lane: 0, lock: [], needsClock: false, decide: () => ({ puts }) });
  expect(receipt.committed).toBe(true);
}

async function follow(store: PostgresStore, after = 0, limit = 1000) {
  const page = await store.follow({ space: SPACE, after, limit });
  return { ...page, keys: page.entries.map(({ key }) => key) };
}

/** Connections of tests before this one may take a moment to end, so it is polled. */
const orderLocks = async (on: pg.Pool = pool): Promise<number> => {
  const { rows } = await on.query(
    "select count(*)::int as n from pg_locks where locktype = 'advisory' and objsubid = 2 and mode = 'ShareLock' and database = (select oid from pg_database where datname = current_database())",
  );
  return rows[0]?.n;
};

test("eight writers that pause before they commit: a cursor by the highest position misses entries, and ours none", async () => {
  const schema = freshSchema();
  const stores = await Promise.all(range(0, 8).map(() => open({ schema })));
  const reader = await open({ schema });
  const written = new Set<string>();
  const seen: FollowedEntry[] = [];
  const naive = new Set<string>();
  let naiveUpTo = 0;
  let upTo = 0;
  let working = stores.length;
  const lookNaively = async () => {
    const { rows } = await pool.query(
      `select f.position::int, r.key from ${quoted(schema)}.followed f join ${quoted(schema)}.record r on r.id = f.record
       where f.position > $1 order by f.position`,
      [naiveUpTo],
    );
    for (const { position, key } of rows) {
      naive.add(key);
      naiveUpTo = position;
    }
  };
  const look = async () => {
    const page = await reader.follow({ space: SPACE, after: upTo, limit: 20 });
    expect(page.upTo).toBeGreaterThanOrEqual(upTo);
    for (const { position } of page.entries) expect(position).toBeGreaterThan(upTo);
    seen.push(...page.entries);
    upTo = page.upTo;
    return page.hasMore;
  };
  const work = stores.map(async (store, n) => {
    try {
      // Until it is shown that the other cursor misses some, and not for ever.
      for (let round = 0; round < 15 || (round < 60 && naive.size === written.size); round++) {
        const key = `${n}-${round}`;
        const own = await begin();
        await join(store, own.executor, said(key));
        await sleep(Math.random() * 20);
        const isLost = round % 5 === 4;
        await own.end(isLost ? "rollback" : "commit");
        if (!isLost) written.add(key);
        await write(store, said(`${key} alone`));
        written.add(`${key} alone`);
      }
    } finally {
      working -= 1;
    }
  });
  const looking = async (once: () => Promise<unknown>) => {
    while (working > 0) await once();
    await once();
  };
  await Promise.all([...work, looking(look), looking(lookNaively)]);
  while (await look());
  expect(new Set(seen.map(({ key }) => key))).toEqual(written);
  expect(seen.length).toBe(written.size);
  expect(naive.size).toBeLessThan(written.size);
  await expect.poll(() => orderLocks()).toBe(0);
});

test("a reader waits for open transactions of its own namespace and schema, and for no others", async () => {
  const schema = freshSchema();
  const [store, other] = [await open({ schema }), await open({ schema })];
  const elsewhere = [await open({ schema, namespace: "another" }), await open({ schema: freshSchema() })];
  for (const away of elsewhere) await join(away, (await begin()).executor, said("open"));
  // Locks of the application's own, of all kinds.
  await (await begin()).query(
    "select pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(1, 2), pg_advisory_xact_lock(1, 3)",
  );
  // What is not followed keeps no one waiting either.
  await join(other, (await begin()).executor, making(blank("not followed"), "x"));
  await write(store, said("a"));
  const page = await follow(store);
  expect(page.keys).toEqual(["a"]);

  const held = await begin();
  await join(other, held.executor, said("held"));
  await write(store, said("b"));
  const blocked = await follow(store, page.upTo);
  expect(blocked.keys).toEqual([]);
  expect(blocked.upTo).toBeGreaterThanOrEqual(page.upTo);
  await held.end("commit");
  expect((await follow(store, blocked.upTo)).keys).toEqual(["held", "b"]);
});

test("a transaction holds one lock, however often it appends, and none for what it took back", async () => {
  const store = await open({ schema: freshSchema() });
  const own = await begin();
  for (const n of range(0, 5)) await join(store, own.executor, said(`k${n}`));
  await expect.poll(() => orderLocks()).toBe(1);
  await own.end("rollback");

  const second = await begin();
  await second.query("savepoint mine");
  await join(store, second.executor, said("taken back"));
  await second.query("rollback to savepoint mine");
  await expect.poll(() => orderLocks()).toBe(0);
  await join(store, second.executor, said("kept"));
  await expect.poll(() => orderLocks()).toBe(1);
  await write(store, said("after"));
  const { keys, upTo } = await follow(store);
  expect(keys).toEqual([]);
  await second.end("commit");
  expect((await follow(store, upTo)).keys).toEqual(["kept", "after"]);
  await expect.poll(() => orderLocks()).toBe(0);
});

test("a prepared transaction keeps its place until it is committed", async () => {
  const server = await startPostgres({ settings: { max_prepared_transactions: 5 } });
  ends.push(() => server.destroy());
  const schema = freshSchema();
  const theirs = poolOn(server.url, 8);
  ends.push(() => theirs.end());
  const store = await open({ schema, pool: theirs }, server.url);
  const own = await begin(theirs);
  await join(store, own.executor, said("prepared"));
  await own.end("prepare transaction 'later'");
  await write(store, said("meanwhile"));
  const { keys, upTo } = await follow(store);
  expect(keys).toEqual([]);
  await expect.poll(() => orderLocks(theirs)).toBe(1);
  await theirs.query("commit prepared 'later'");
  expect((await follow(store, upTo)).keys).toEqual(["prepared", "meanwhile"]);
});

test("what is not followed sends the statements that it always sent; what is followed, one more in the same round trip", async () => {
  const schema = freshSchema();
  const one = poolOn(database?.url ?? "", 1);
  ends.push(() => one.end());
  const store = await open({ schema, pool: one });
  const prepared = async () => {
    const { rows } = await one.query(
      "select statement from pg_prepared_statements where statement ~ 'followed|advisory'",
    );
    return rows.map(({ statement }) => String(statement).trim());
  };
  await write(store, making(blank("a"), "x"), making(blank("b"), "y"));
  await store.entries(at("a"), 0, 10);
  expect(await prepared()).toEqual([]);
  await write(store, said("c"));
  const texts = await prepared();
  expect(texts).toHaveLength(2);
  expect(texts.find((text) => text.includes("advisory"))).toMatch(/^select pg_advisory_xact_lock_shared\(/);
});

test("a schema of the release before is brought up to date, and what it has is not followed", async () => {
  const schema = freshSchema();
  const s = quoted(schema);
  await pool.query(`create schema ${s}; create table ${s}.meta (name text primary key, number bigint not null)`);
  const before = MIGRATIONS(s).slice(0, 2);
  for (const { statements } of before) for (const text of statements) await pool.query(text);
  await pool.query(`insert into ${s}.meta values ('schema', 2), ('oldest', 1)`);
  const store = await open({ schema });
  // As the release before writes: without a place.
  await write(store, making(blank("old"), "x"));
  await write(store, said("new"));
  expect((await follow(store)).keys).toEqual(["new"]);
  const { rows } = await pool.query(`select name, number::int from ${s}.meta order by name`);
  expect(rows).toEqual([
    { name: "oldest", number: 1 },
    { name: "schema", number: MIGRATIONS(s).length },
  ]);
  // As the release before sweeps: the entry is gone, and its place is left behind.
  await pool.query(`delete from ${s}.log where record = (select id from ${s}.record where key = 'new')`);
  await write(store, said("newer"));
  expect((await follow(store)).keys).toEqual(["newer"]);
});

test("a sequence that reserves numbers for each session is refused when the store is opened", async () => {
  const schema = freshSchema();
  await open({ schema });
  await pool.query(`alter sequence ${quoted(schema)}.log_position_seq cache 20`);
  await expect(open({ schema })).rejects.toMatchObject({
    code: "store_unfit",
    message: expect.stringContaining("log_position_seq cache 1"),
  });
});
