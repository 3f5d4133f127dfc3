/**
 * The trap of plans: a statement that was prepared while a table was small must not read all of it once it is large.
 *
 * Every kind of work is done once on small tables, which prepares its statements, and then on large ones, over the same connection.
 * How many rows were read for it is what the server itself has counted, by table and by index.
 */

import assert from "node:assert/strict";
import type pg from "pg";
import type { Row } from "../../../src/kernel/contract.ts";
import type { PostgresStore } from "../../../src/stores/postgres/postgres.ts";
import { changing, making, range, removing } from "../../../src/testing/conformance/law-context.ts";
import { poolOn } from "../kit.ts";
import { type Arena, at, commit, make, type Trap, trap } from "./arena.ts";

const LARGE = 50_000;
/** What any one kind of work may read, far below what there is. */
const FEW = 5_000;
const LONG_LOG = 1_500;

/** Records of this name, and how many. */
interface Round {
  readonly name: string;
  readonly size: number;
}

type Work = readonly [name: string, (store: PostgresStore, round: Round) => Promise<unknown>];

const keys = ({ name, size }: Round) => range(0, size).map((n) => at(`${name}-${n}`));
const others = ({ name, size }: Round) => keys({ name: `no-${name}`, size });

async function rowsOf(store: PostgresStore, round: Round): Promise<readonly Row[]> {
  const rows = (await store.read(keys(round))).filter((row) => row !== null);
  assert.equal(rows.length, round.size);
  return rows;
}

const isDone = (receipt: { readonly committed: boolean }): void => assert.ok(receipt.committed);

/** Every statement of the store that reads or writes records or logs. */
const works: readonly Work[] = [
  [
    "locking absent keys, making some of them",
    async (store, round) => {
      const made = keys(round);
      const asked = [...made, ...others(round)];
      isDone(await commit(store, asked, () => made.map((key) => make(key, "0", "said", "again"))));
    },
  ],
  ["locking absent keys, making nothing", async (store, round) => isDone(await commit(store, others(round), () => []))],
  [
    "locking rows, changing and appending",
    async (store, round) =>
      isDone(
        await commit(store, keys(round), ({ rows }) =>
          rows.map((row, n) => {
            assert.ok(row);
            return changing(row, n % 2 === 1 ? { value: "1" } : { value: "1", kind: "job", dueMs: n }, "changed");
          }),
        ),
      ),
  ],
  ["reading rows", rowsOf],
  [
    "changing known rows",
    async (store, round) => {
      const rows = await rowsOf(store, round);
      isDone(await commit(store, [], () => rows.map((row) => changing(row, { value: "2" }, "known"))));
      const again = await commit(store, [], () => rows.map((row) => changing(row, { value: "3" })));
      assert.equal(again.committed, false);
    },
  ],
  [
    "making a row with a long log",
    async (store, round) =>
      isDone(
        await commit(store, [], () => [
          making({ ...make(at(`${round.name}-x`)).row }, ...range(0, LONG_LOG).map(String)),
        ]),
      ),
  ],
  [
    "listing",
    async (store, round) =>
      assert.equal(
        (await store.list({ space: "trap", prefix: `${round.name}-`, after: null, limit: 20 })).length > 0,
        true,
      ),
  ],
  [
    "reading a log",
    async (store, round) => assert.equal((await store.entries(at(`${round.name}-0`), 2, 10)).length, 2),
  ],
  [
    "reading due records",
    async (store) => assert.ok((await store.due({ kinds: ["job", "none"], limit: 10 })).keys.length > 0),
  ],
  [
    "deleting",
    async (store, round) => {
      const [long] = await store.read([at(`${round.name}-x`)]);
      const rows = [...(await rowsOf(store, round)), ...(long ? [long] : [])];
      isDone(await commit(store, [], () => rows.map((row) => removing(row, 1))));
    },
  ],
  [
    "sweeping",
    async (store, { size }) => {
      let swept = 0;
      for (let n = 0; n < 3; n++) swept += await store.sweep(100);
      assert.equal(swept, size + 1);
    },
  ],
];

/** What the server has counted for a schema: how often tables were read from end to end, and how many rows were looked at. */
async function counted(arena: Arena, pool: pg.Pool): Promise<{ scans: number; rows: number }> {
  await pool.query("select pg_stat_force_next_flush()");
  const [row] = await arena.sql(
    `select
      (select sum(seq_scan)::int from pg_stat_user_tables where schemaname = $1 and relname in ('record', 'log')),
      (select sum(seq_tup_read)::int from pg_stat_user_tables where schemaname = $1 and relname in ('record', 'log')),
      (select sum(idx_tup_read)::int from pg_stat_user_indexes where schemaname = $1 and relname in ('record', 'log'))`,
    [arena.schema],
  );
  return { scans: Number(row?.[0]), rows: Number(row?.[1]) + Number(row?.[2]) };
}

/** `rows` are there, and counted by the server, when the statements are prepared; null where it never counted. */
const plans = (rows: number | null): Trap =>
  trap(
    `no statement reads a whole table, although ${rows === null ? "it had no statistics" : `it had ${rows} rows`} when it was prepared`,
    async (arena) => {
      await (await arena.store()).close();
      const tables = ["record", "log"].map((name) => `${arena.s}.${name}`);
      const analyze = async () => {
        for (const table of tables) await arena.sql(`vacuum analyze ${table}`);
      };
      for (const table of tables) await arena.sql(`alter table ${table} set (autovacuum_enabled = off)`);
      await fill(arena, "first", rows ?? 0);
      if (rows !== null) await analyze();
      // One connection, so that all is prepared where it is used again.
      const pool = poolOn(arena.url, 1);
      arena.atEnd(() => pool.end());
      const store = await arena.store({ pool });
      for (const [, work] of works) await work(store, { name: "small", size: 1 });
      await fill(arena, "filler", LARGE);
      const tooMuch = await readTooMuch(arena, pool, store, "large");
      // The server may also learn of its size, and plan anew.
      await analyze();
      Object.assign(tooMuch, await readTooMuch(arena, pool, store, "counted"));
      assert.deepEqual(tooMuch, {});
      const { rows: custom } = await pool.query<{ statement: string }>(
        "select statement from pg_prepared_statements where custom_plans > 0 and statement ~ '[.](record|log)\\y'",
      );
      assert.deepEqual(custom, [], "planned anew for each use");
    },
  );

async function readTooMuch(
  arena: Arena,
  pool: pg.Pool,
  store: PostgresStore,
  name: string,
): Promise<Record<string, { scans: number; rows: number }>> {
  const tooMuch: Record<string, { scans: number; rows: number }> = {};
  for (const [what, work] of works) {
    const before = await counted(arena, pool);
    await work(store, { name, size: 40 });
    const after = await counted(arena, pool);
    const read = { scans: after.scans - before.scans, rows: after.rows - before.rows };
    if (read.scans > 0 || read.rows > FEW) tooMuch[`${what}, when ${name}`] = read;
  }
  return tooMuch;
}

/**
 * Records, each with a log: half of them deleted and not to be swept yet, half of the others long due, and of a kind that nobody
 * here works on.
 */
async function fill(arena: Arena, name: string, count: number): Promise<void> {
  await arena.sql(
    `insert into ${arena.s}.record (namespace, space, key, version, fence, wakes, tries, head, value, kind, due)
    select 'default', 'trap', $1 || n, 1, 0, 0, 0, 1, case when n % 2 = 0 then 'x' end, case when n % 4 = 0 then 'other' end,
      case when n % 4 = 0 then 1 else 9e15 end
    from generate_series(1, $2::int) n`,
    [name, count],
  );
  await arena.sql(
    `insert into ${arena.s}.log (record, version, at, name, data)
    select id, 1, 1, 'said', 'x' from ${arena.s}.record where starts_with(key, $1)`,
    [name],
  );
  // What this has read itself is to be counted now, and not later.
  await arena.sql("select pg_stat_force_next_flush()");
}

export const planned: readonly Trap[] = [plans(null), plans(0), plans(1)];
