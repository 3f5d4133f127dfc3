/**
 * Traps around locks: no process may wait for another that waits, is slow, or has ended.
 */

import assert from "node:assert/strict";
import type { Row } from "../../../src/kernel/contract.ts";
import { LOCKS_HELD_MS } from "../../../src/stores/postgres/statements.ts";
import { changing } from "../../../src/testing/conformance/law-context.ts";
import { isCommit, isLook } from "../watched.ts";
import { addOne, at, commit, isPending, make, type Trap, trap, until, within } from "./arena.ts";

export const locks: readonly Trap[] = [
  trap("late keys in opposite order: neither waits, each finds the other's row locked", async (arena) => {
    const pools = [arena.watched(), arena.watched()] as const;
    const one = await arena.store({ pool: pools[0] });
    const two = await arena.store({ pool: pools[1] });
    await commit(one, [], () => [make(at("a")), make(at("b"))]);
    const looks = (store: typeof one, first: string, second: string) => {
      let late: Row | null | undefined = null;
      const done = commit(store, [at(first)], ({ rows }, round) => {
        if (round === 0) return { lock: [at(second)] };
        late = rows[0];
        return [];
      });
      return done.then(() => late);
    };
    // Each has its first row, and stops before it asks for the second.
    const held = pools.map((pool) => pool.hold((texts) => isLook(texts) && !texts.some((text) => /^begin/.test(text))));
    const answers = [looks(one, "a", "b"), looks(two, "b", "a")];
    for (const answer of answers) answer.catch(() => {});
    for (const { reached } of held) await within("both have their first row", reached);
    for (const { open } of held) open();
    const [first, second] = await within("both are done", Promise.all(answers));
    assert.ok(first === undefined || second === undefined, "both were given a row that the other had");
  }),

  trap("one locked row does not delay the other decisions of a batch", async (arena) => {
    const kernel = await arena.kernel({ lanes: 1 });
    const keys = ["a", "b", "c", "d", "e"].map((key) => at(key));
    await Promise.all(keys.map((key) => addOne(kernel, key)));
    const other = await arena.client();
    await other.query("begin");
    await other.query(`select from ${arena.s}.record where key = 'c' for update`);
    const adding = keys.map((key) => addOne(kernel, key));
    const [a, b, c, d, e] = adding;
    assert.deepEqual(await within("the others are done", Promise.all([a, b, d, e])), [2, 2, 2, 2]);
    assert.ok(c !== undefined && (await isPending(c, 50)), "the locked row was written");
    await other.query("rollback");
    assert.equal(await within("the last is done", c), 2);
  }),

  trap("a locked row is waited for if that delays no other decision, instead of being retried", async (arena) => {
    const pool = arena.watched();
    const kernel = await arena.kernel({ pool, lanes: 2 });
    await addOne(kernel, at("hot"));
    await addOne(kernel, at("cold"));
    const other = await arena.client();
    await other.query("begin");
    await other.query(`select from ${arena.s}.record where key = 'hot' for update`);
    const before = pool.cargo.length;
    // Whoever looks at the clock goes the locked way.
    const later = kernel.transact(
      (tx) => {
        const record = tx.record(at("hot"));
        record.write({ value: Number(record.value ?? 0) + Math.sign(tx.nowMs) });
        return record.value;
      },
      [at("hot")],
    );
    assert.ok(await isPending(later, 150), "the locked row was written");
    const asked = pool.cargo.slice(before).filter((values) => values.includes("hot"));
    assert.equal(asked.length, 1, "it was requested more than once");
    assert.equal(await within("others continue", addOne(kernel, at("cold"))), 2);
    await other.query("rollback");
    assert.equal(await within("it is done", later), 2);
  }),

  trap(
    "a record is in one flight of a process at a time, so that flights of one process do not block each other",
    async (arena) => {
      const pool = arena.watched();
      const kernel = await arena.kernel({ pool, lanes: 4 });
      const hot = at("the hot key");
      await addOne(kernel, hot);
      const held = pool.hold(isCommit);
      const first = addOne(kernel, hot);
      await within("the first is under way", held.reached);
      const before = pool.cargo.length;
      const second = addOne(kernel, hot);
      const others = Promise.all(["x", "y", "z"].map((key) => addOne(kernel, at(key))));
      assert.deepEqual(await within("others continue in other lanes", others), [1, 1, 1]);
      assert.ok(await isPending(second, 50));
      const asking = pool.cargo.slice(before).filter((values) => values.includes(hot.key));
      assert.equal(asking.length, 0, "it was requested while another flight had it");
      held.open();
      assert.deepEqual(await within("both are done", Promise.all([first, second])), [2, 3]);
    },
  ),

  trap("an optimistic batch waits briefly for a locked row, and no longer", async (arena) => {
    const store = await arena.store();
    await commit(store, [], () => [make(at("a"))]);
    const [a] = await store.read([at("a")]);
    assert.ok(a);
    const other = await arena.client();
    await other.query("begin");
    await other.query(`select from ${arena.s}.record where key = 'a' for update`);
    const startMs = performance.now();
    const receipt = await within(
      "it gets an error",
      commit(store, [], () => [changing(a, { value: "1" })]),
    );
    assert.equal(receipt.committed, false);
    assert.ok(performance.now() - startMs < 1500, "it took too long");
    await other.query("rollback");
  }),

  trap(
    "the locks of a process that stopped between read and write are released after a while, and its batch is rolled back",
    async (arena) => {
      const pool = arena.watched();
      const [stopped, other] = [await arena.kernel({ pool }), await arena.kernel()];
      await addOne(other, at("k"));
      const held = pool.hold(isCommit);
      const late = addOne(stopped, at("k"));
      await within("it has its locks", held.reached);
      const startMs = performance.now();
      const count = await within("the other gets the row", addOne(other, at("k")));
      assert.ok(performance.now() - startMs > LOCKS_HELD_MS / 2, "it was never locked");
      held.open();
      // The one that was stopped may be quicker, once it hears that its connection is gone.
      assert.deepEqual([count, await within("the stopped one resumes", late)].sort(), [2, 3]);
      await until("no transaction is left open", async () => {
        const text =
          "select count(*)::int from pg_stat_activity where state like 'idle in transaction%' and datname = current_database()";
        return (await arena.value(text)) === 0;
      });
    },
  ),
];
