/**
 * Traps around sessions: connections are the application's, or a pooler's, and are used by others next.
 */

import assert from "node:assert/strict";
import type pg from "pg";
import { poolOn } from "../kit.ts";
import { type Arena, addOne, at, commit, make, refusal, type Trap, trap, within } from "./arena.ts";

/** Everything that a session can be told, as it is on the pool's only connection. */
async function settingsOf(pool: pg.Pool): Promise<Record<string, string>> {
  assert.equal(pool.totalCount, 1, "there is one connection, so this is the one");
  const { rows } = await pool.query<{ name: string; setting: string }>("select name, setting from pg_settings");
  return Object.fromEntries(rows.map(({ name, setting }) => [name, setting]));
}

/** A pool with one connection, which is never the same as the server's defaults. */
async function onlyConnection(arena: Arena): Promise<pg.Pool> {
  const pool = poolOn(arena.url, 1);
  arena.atEnd(() => pool.end());
  await pool.query("set lock_timeout = '77s'; set statement_timeout = '78s'; set enable_seqscan = on");
  return pool;
}

export const session: readonly Trap[] = [
  trap(
    "no setting is left behind on a connection: not by opening, a commit, a read, a sweep or a failure",
    async (arena) => {
      const pool = await onlyConnection(arena);
      const before = await settingsOf(pool);
      const same = async (after: string) => assert.deepEqual(await settingsOf(pool), before, `after ${after}`);
      const store = await within("a store with one connection", arena.store({ pool }));
      await same("opening");
      // So that somebody is told of the commits.
      await arena.listener();
      await commit(store, [at("k")], () => [make(at("k"))]);
      await same("a commit that locked");
      await commit(store, [], () => [make(at("j"))]);
      await same("a commit that knew its rows");
      assert.equal((await commit(store, [], () => [make(at("j"))])).committed, false);
      await same("a commit that was refused");
      await commit(store, [at("k")], () => []);
      await same("a look");
      await store.read([at("k")]);
      await store.due({ kinds: ["job"], limit: 1 });
      await store.list({ space: "trap", prefix: "", after: null, limit: 1 });
      await same("reads");
      await store.sweep(10);
      await same("a sweep");
      const throws = (): never => {
        throw new RangeError("no");
      };
      await assert.rejects(commit(store, [at("k")], throws), RangeError);
      await same("a decision that threw");
      await arena.sql(`alter table ${arena.s}.record add check (value <> 'poison')`);
      assert.equal(await refusal(commit(store, [], () => [make(at("p"), "poison")])), "store_refused");
      await same("a row that the server refused");
    },
  ),

  trap("the name of a statement means one text, whichever client prepared it on the connection", async (arena) => {
    const pool = await onlyConnection(arena);
    const one = await within("a store with one connection", arena.store({ pool }));
    const other = await within("another on the same", arena.store({ pool, schema: `${arena.schema} too` }));
    arena.atEnd(() => arena.sql(`drop schema "${arena.schema} too" cascade`));
    for (const store of [one, other]) {
      assert.equal((await commit(store, [at("k")], () => [make(at("k"))])).committed, true);
      assert.equal((await store.list({ space: "trap", prefix: "", after: null, limit: 10 })).length, 1);
    }
    const { rows } = await pool.query<{ name: string }>("select name from pg_prepared_statements");
    assert.ok(rows.length > 10, "nothing is prepared");
  }),

  trap("a prepared statement that is missing is sent as text from then on", async (arena) => {
    const pool = await onlyConnection(arena);
    const kernel = await within("a kernel with one connection", arena.kernel({ pool }));
    await addOne(kernel, at("k"));
    await pool.query("deallocate all");
    assert.equal(await within("it finds its way", addOne(kernel, at("k"))), 2);
    await pool.query("deallocate all");
    assert.equal(await within("and prepares nothing more", addOne(kernel, at("k"))), 3);
    const { rows } = await pool.query("select from pg_prepared_statements");
    assert.equal(rows.length, 0);
  }),
];
