/**
 * Goal: a decision inside the application's transaction on PostgreSQL waits for other transactions and batches, and they for it, without a deadlock
 * and without a lost write.
 * Method: plain connections as the application would have them, stopped where it matters. The laws of both stores are in joint.test.ts.
 */

import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Pawl } from "../../src/index.ts";
import { type Ground, isWaiting, type Plain, postgresGround, refusal, sleep } from "./grounds.ts";

let count = 0;
/** A name that no other test has. */
const fresh = (what: string) => `${what}-${++count}`;

describe("within a transaction on PostgreSQL, among others", () => {
  let ground: Ground;
  let pawl: Pawl;
  const open_: Plain[] = [];
  const connect = async () => {
    const plain = await ground.connect();
    open_.push(plain);
    // So that deadlocks are found at once.
    await plain.query("set deadlock_timeout = '50ms'");
    return plain;
  };
  beforeAll(async () => {
    ground = await postgresGround();
    pawl = await ground.open();
  });
  afterEach(async () => {
    for (const plain of open_.splice(0)) await plain.end();
  });
  afterAll(async () => {
    await pawl.close();
    await ground.leave();
  });

  const counter = async (name = fresh("s")) => {
    const slot = pawl.slot<number>(name, { initial: 0 });
    await slot.set(0);
    return slot;
  };

  test("it waits for a row that another transaction has locked, and sees the result", async () => {
    const slot = await counter();
    const [first, second] = [await connect(), await connect()];
    await first.query("begin");
    await pawl.within(first.executor, (tx) => tx.slot(slot).update((n) => n + 1));
    await second.query("begin");
    const waiting = pawl.within(second.executor, (tx) => tx.slot(slot).update((n) => n + 10));
    expect(await isWaiting(waiting)).toBe(true);
    await first.query("commit");
    expect((await waiting).value).toBe(11);
    await second.query("commit");
    expect(await slot.get()).toEqual({ value: 11, version: 3 });
  });

  test("it waits for a row that a batch has", async () => {
    const slot = await counter();
    const plain = await connect();
    // A batch that is slow to write: it has locked its row by then.
    await plain.query(
      "create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(0.5); return new; end $$",
    );
    await plain.query(
      `create trigger dawdle before update on pawl.record for each row when (new.key = '${slot.name}' and new.value like '%500%')
       execute function dawdle()`,
    );
    const batch = slot.set(500);
    await sleep(150);
    await plain.query("begin");
    const startedMs = performance.now();
    const answer = await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
    expect(performance.now() - startedMs).toBeGreaterThan(100);
    await plain.query("commit");
    await batch;
    expect(answer.value).toBe(501);
    await plain.query("drop trigger dawdle on pawl.record");
  });

  test("of two creators of one absent key, the second sees what the first made", async () => {
    const slot = pawl.slot<string>(fresh("s"));
    const [first, second] = [await connect(), await connect()];
    await first.query("begin");
    await second.query("begin");
    await pawl.within(first.executor, (tx) => tx.slot(slot).set("first"));
    const waiting = pawl.within(second.executor, (tx) => {
      const { value } = tx.slot(slot).get();
      tx.slot(slot).set(`${value}, second`);
    });
    expect(await isWaiting(waiting)).toBe(true);
    await first.query("commit");
    await waiting;
    await second.query("commit");
    expect(await slot.get()).toEqual({ value: "first, second", version: 2 });
  });

  test("a key that another made and rolled back is absent", async () => {
    const slot = pawl.slot<string>(fresh("s"));
    const [first, second] = [await connect(), await connect()];
    await first.query("begin");
    await pawl.within(first.executor, (tx) => tx.slot(slot).set("first"));
    await second.query("begin");
    const waiting = pawl.within(second.executor, (tx) => tx.slot(slot).get());
    expect(await isWaiting(waiting)).toBe(true);
    await first.query("rollback");
    expect(await waiting).toEqual({ value: undefined, version: 0 });
    await second.query("commit");
  });

  test("an absent key that was read stays absent until the transaction ends", async () => {
    const slot = pawl.slot<string>(fresh("s"));
    const plain = await connect();
    await plain.query("begin");
    expect((await pawl.within(plain.executor, (tx) => tx.slot(slot).get())).version).toBe(0);
    const batch = slot.set("batch");
    expect(await isWaiting(batch)).toBe(true);
    expect((await pawl.within(plain.executor, (tx) => tx.slot(slot).get())).version).toBe(0);
    await plain.query("commit");
    await batch;
    expect((await slot.get()).value).toBe("batch");
  });

  test("fifty creators and batches on one absent key are all counted", async () => {
    const slot = pawl.slot<number>(fresh("s"), { initial: 0 });
    const work = async () => {
      const plain = await connect();
      for (let i = 0; i < 5; i++) {
        await plain.query("begin");
        await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
        await plain.query("commit");
        await slot.update((n) => n + 1);
      }
    };
    await Promise.all(Array.from({ length: 5 }, work));
    expect(await slot.get()).toEqual({ value: 50, version: 50 });
  });

  test("a row locked by the application's transaction delays no other key, and its own batch only until that ends", async () => {
    const [held, free] = [await counter(), await counter()];
    const plain = await connect();
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(held).update((n) => n + 1));
    const waiting = held.update((n) => n + 10);
    const both = pawl.transact((tx) => [tx.slot(held).update((n) => n + 100), tx.slot(free).update((n) => n + 100)]);
    for (let i = 0; i < 20; i++) await free.update((n) => n + 1);
    expect(await isWaiting(waiting, 1)).toBe(true);
    expect(await isWaiting(both, 1)).toBe(true);
    await plain.query("commit");
    await Promise.all([waiting, both]);
    expect((await held.get()).value).toBe(111);
    expect((await free.get()).value).toBe(120);
  });

  test("a batch that waits too long for such a row gets an error, and has written nothing", async () => {
    await using hasty = await ground.open({ patience: 1500 });
    const slot = await counter();
    const plain = await connect();
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).set(1));
    expect(await refusal(() => hasty.slot<number>(slot.name).set(2))).toMatchObject({ code: "store_busy" });
    await plain.query("rollback");
    expect(await slot.get()).toEqual({ value: 0, version: 1 });
  });

  test("two decisions that come upon the same keys in opposite order do not deadlock", async () => {
    const [a, b] = [await counter(fresh("a")), await counter(fresh("b"))];
    const work = async (slots: readonly (typeof a)[]) => {
      const plain = await connect();
      for (let i = 0; i < 25; i++) {
        await plain.query("begin");
        await pawl.within(plain.executor, (tx) => slots.map((slot) => tx.slot(slot).update((n) => n + 1)));
        await plain.query("commit");
      }
    };
    await Promise.all([work([a, b]), work([b, a]), work([a, b]), work([b, a])]);
    expect([(await a.get()).value, (await b.get()).value]).toEqual([100, 100]);
  });

  test("nor do two that find absent keys in opposite order", async () => {
    for (let round = 0; round < 10; round++) {
      const [a, b] = [fresh("a"), fresh("b")].map((name) => pawl.slot<number>(name, { initial: 0 }));
      if (a === undefined || b === undefined) throw new Error("two");
      const work = async (slots: readonly (typeof a)[]) => {
        const plain = await connect();
        await plain.query("begin");
        await pawl.within(plain.executor, (tx) => slots.map((slot) => tx.slot(slot).update((n) => n + 1)));
        await plain.query("commit");
      };
      await Promise.all([work([a, b]), work([b, a])]);
      expect([(await a.get()).value, (await b.get()).value]).toEqual([2, 2]);
    }
  });

  test("rows locked for a decision that needs more are released before it waits", async () => {
    const [a, b] = [await counter(fresh("a")), await counter(fresh("b"))];
    const [holder, late] = [await connect(), await connect()];
    await holder.query("begin");
    await pawl.within(holder.executor, (tx) => tx.slot(a).update((n) => n + 1));
    await late.query("begin");
    // It has b, then wants a as well, which is not to be had.
    const waiting = pawl.within(late.executor, (tx) => [tx.slot(b).update((n) => n + 1), tx.slot(a).get()]);
    expect(await isWaiting(waiting)).toBe(true);
    // So b is free for everybody else.
    await b.update((n) => n + 10);
    await holder.query("commit");
    await waiting;
    await late.query("commit");
    expect((await b.get()).value).toBe(11);
  });

  test("of two transactions that lock in opposite order, one gets an error and must be retried", async () => {
    const [a, b] = [await counter(fresh("a")), await counter(fresh("b"))];
    let told = 0;
    let locked = 0;
    const { promise: bothLocked, resolve } = Promise.withResolvers<void>();
    const work = async (...slots: readonly (typeof a)[]) => {
      const plain = await connect();
      for (;;) {
        await plain.query("begin");
        try {
          for (const slot of slots) {
            await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
            locked += 1;
            if (locked === 2) resolve();
            await bothLocked;
          }
          await plain.query("commit");
          return;
        } catch (error) {
          expect(error).toMatchObject({ code: "store_busy", data: { remedy: "retry" } });
          told += 1;
          await plain.query("rollback");
        }
      }
    };
    await Promise.all([work(a, b), work(b, a)]);
    expect(told).toBeGreaterThan(0);
    expect([(await a.get()).value, (await b.get()).value]).toEqual([2, 2]);
  });

  test.each(["repeatable read", "serializable", "read uncommitted"])(
    "a transaction that is %s is refused, and stays usable",
    async (isolation) => {
      const slot = await counter();
      const plain = await connect();
      await plain.query(`begin isolation level ${isolation}`);
      const error = await refusal(() => pawl.within(plain.executor, (tx) => tx.slot(slot).set(1)));
      expect(error).toMatchObject({ code: "store_unfit" });
      expect(error.message).toContain(`begun as READ COMMITTED, and this one is ${isolation.toUpperCase()}`);
      expect(await plain.query("select 1 as one")).toEqual([{ one: 1 }]);
      await plain.query("commit");
      expect((await slot.get()).version).toBe(1);
    },
  );

  test("so is one whose isolation is the session's default", async () => {
    const plain = await connect();
    await plain.query("set default_transaction_isolation = 'serializable'");
    await plain.query("begin");
    expect(await refusal(() => pawl.within(plain.executor, () => 1))).toMatchObject({ code: "store_unfit" });
    await plain.query("rollback");
  });

  test("outside a transaction it is refused with a clear error, and nothing is written", async () => {
    const slot = await counter();
    const plain = await connect();
    const error = await refusal(() => pawl.within(plain.executor, (tx) => tx.slot(slot).set(1)));
    expect(error).toMatchObject({ code: "store_refused" });
    expect(error.message).toMatch(/needs an open transaction: call it inside one/);
    expect((await slot.get()).version).toBe(1);
  });

  test("a Pool instead of a client is refused with the same error", async () => {
    const slot = await counter();
    const pool = new pg.Pool({ connectionString: ground.where });
    const error = await refusal(() => pawl.within(pool, (tx) => tx.slot(slot).set(1)));
    expect(error.message).toMatch(/needs an open transaction.*with an executor of that transaction/);
    await pool.end();
    expect((await slot.get()).version).toBe(1);
  });

  test("a row that cannot be locked in time leaves the transaction usable", async () => {
    const slot = await counter();
    const [holder, plain] = [await connect(), await connect()];
    await holder.query("begin");
    await pawl.within(holder.executor, (tx) => tx.slot(slot).set(1));
    await plain.query("begin");
    await plain.query("set local lock_timeout = '50ms'");
    const error = await refusal(() => pawl.within(plain.executor, (tx) => tx.slot(slot).set(2)));
    expect(error).toMatchObject({ code: "store_busy", data: { remedy: "retry" } });
    await holder.query("commit");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 10));
    await plain.query("commit");
    expect((await slot.get()).value).toBe(11);
  });

  test("a transaction that has failed already takes no decision", async () => {
    const slot = await counter();
    const plain = await connect();
    await plain.query("begin");
    await refusal(() => plain.query("select 1 / 0"));
    const error = await refusal(() => pawl.within(plain.executor, (tx) => tx.slot(slot).set(1)));
    expect(error).toMatchObject({ code: "store_refused" });
    expect(error.message).toMatch(/current transaction is aborted/);
    await plain.query("rollback");
    expect((await slot.get()).version).toBe(1);
  });

  test("a savepoint of the owner's takes Pawl's part back as well", async () => {
    const slot = await counter();
    const plain = await connect();
    await plain.query("begin");
    await plain.query("savepoint mine");
    await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
    await plain.query("rollback to mine");
    // What it had locked is free.
    await slot.update((n) => n + 10);
    await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 100));
    await plain.query("commit");
    expect((await slot.get()).value).toBe(110);
  });

  test("nothing is left in the session: no setting, no advisory lock", async () => {
    const plain = await connect();
    const settings = () =>
      plain.query("select name, setting from pg_settings where name <> 'transaction_isolation' order by name");
    const before = await settings();
    await plain.query("begin");
    const slot = pawl.slot(fresh("s"));
    await pawl.within(plain.executor, (tx) => tx.slot(slot).set(1));
    await plain.query("rollback");
    expect(await settings()).toEqual(before);
    const locks = await plain.query("select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()");
    expect(locks).toEqual([]);
  });

  test("a batch, a transaction and another process count on one slot, and nothing is lost", async () => {
    await using other = await ground.open();
    const slot = await counter();
    const within = async () => {
      const plain = await connect();
      for (let i = 0; i < 20; i++) {
        await plain.query("begin");
        await pawl.within(plain.executor, (tx) => tx.slot(slot).update((n) => n + 1));
        await plain.query(i % 4 === 3 ? "rollback" : "commit");
      }
    };
    const batches = async (handle: Pawl) => {
      for (let i = 0; i < 20; i++) await handle.slot<number>(slot.name, { initial: 0 }).update((n) => n + 1);
    };
    await Promise.all([within(), within(), batches(pawl), batches(other)]);
    expect(await slot.get()).toEqual({ value: 70, version: 71 });
  });
});
