/**
 * Goal: what transact.sql and within leave behind when they are over: nothing that still acts, and no unreported outcome.
 */

import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { open, type Pawl, type Sql, type SqlExecutor, type TxInSql } from "../../src/index.ts";
import { executorOf } from "../../src/kernel/sql/executors.ts";
import { type Ground, grounds, postgresGround, refusal, sleep, sqliteGround } from "./grounds.ts";

let count = 0;
const fresh = (what: string) => `${what}_${++count}`;

describe.each(grounds)("transact.sql on %s", (_, arrive) => {
  let ground: Ground;
  let pawl: Pawl;
  beforeAll(async () => {
    ground = await arrive();
    pawl = await ground.open();
    await pawl.transact.sql((sql) => sql.query("create table t (id text primary key)"));
  });
  afterAll(async () => {
    await pawl.close();
    await ground.leave();
  });
  const rows = async () =>
    (await pawl.transact.sql((sql) => sql.query("select id from t order by id"))).rows.map((row) => row["id"]);

  test("a select that finds nothing counts nothing", async () => {
    await pawl.transact.sql(async (sql) => {
      await sql.query("insert into t values ('counted-1'), ('counted-2')");
      expect(await sql.query("select id from t where id = 'nobody'")).toEqual({ rows: [], rowCount: 0 });
    });
  });

  test("its sql is of no use when the work is over, and writes nothing", async () => {
    let kept: Sql | undefined;
    await pawl.transact.sql(async (sql) => {
      kept = sql;
    });
    await refusal(async () => kept?.query("insert into t values ('late')"));
    expect(await rows()).not.toContain("late");
  });

  test("nor is its tx", async () => {
    const slot = pawl.slot<number>(fresh("s"));
    let kept: TxInSql | undefined;
    await pawl.transact.sql(async (_sql, tx) => {
      kept = tx;
    });
    await refusal(async () => kept?.((tx) => tx.slot(slot).set(1)));
    expect((await slot.get()).version).toBe(0);
  });

  test("a tx that is not awaited is in the commit, or the caller gets an error; it is never written after an error", async () => {
    const slot = pawl.slot<number>(fresh("s"), { initial: 0 });
    for (let i = 1; i <= 60; i++) {
      let told: Promise<string> | undefined;
      const whole = await pawl.transact
        .sql(async (_sql, tx) => {
          told = tx((tx) => tx.slot(slot).set(i)).then(
            () => "yes",
            () => "no",
          );
          await sleep((i % 15) * 0.4);
        })
        .then(
          () => "yes",
          () => "no",
        );
      const isThere = (await slot.get()).value === i;
      expect([i, whole, await told]).toEqual([i, isThere ? "yes" : "no", isThere ? "yes" : "no"]);
    }
  });

  test("a statement that fails and is not awaited fails the transaction, with its error", async () => {
    const slot = pawl.slot<number>(fresh("s"), { initial: 0 });
    for (const isDecided of [false, true]) {
      const error = await refusal(() =>
        pawl.transact.sql(async (sql, tx) => {
          await sql.query("insert into t values ('before')");
          void sql.query("insert into nowhere_at_all values (1)");
          // It has failed by then, and nothing looked at it.
          await sleep(5);
          if (isDecided) await tx((tx) => tx.slot(slot).set(1));
        }),
      );
      expect(error.message).toContain("nowhere_at_all");
    }
    expect(await rows()).not.toContain("before");
    expect((await slot.get()).version).toBe(0);
  });

  test("a statement whose failure is caught late, behind others, is the work's own business", async () => {
    const outcome = await pawl.transact
      .sql(async (sql) => {
        const failing = sql.query("insert into nowhere_at_all values (1)");
        await sleep(5);
        await failing.catch(() => {});
        return "done";
      })
      .catch(() => "refused by the database");
    expect(["done", "refused by the database"]).toContain(outcome);
    if (pawl.kernel.isSingleWriter) expect(outcome).toBe("done");
  });

  test("a statement that ends the transaction is noticed also where no decision follows", async () => {
    const error = await refusal(() =>
      pawl.transact.sql(async (sql) => {
        await sql.query("insert into t values ('mine')");
        await sql.query("commit").catch(() => {});
        await sql.query("insert into t values ('astray')").catch(() => {});
      }),
    );
    expect(error.message).toMatch(/ended the transaction, which Pawl shares/);
    expect(await rows()).not.toContain("astray");
  });
});

test("on SQLite, too, the clock is read when the file is locked, not before", async () => {
  const ground = await sqliteGround();
  const pawl = await ground.open();
  const plain = await ground.connect();
  const run = executorOf(plain.executor);
  const late = async (text: string, values: string[]) => {
    if (text.startsWith("update pawl_meta")) await sleep(60);
    return run(text, values[0]);
  };
  const startedMs = Date.now();
  await plain.query("begin");
  const nowMs = await pawl.within(late, (tx) => tx.nowMs);
  await plain.query("commit");
  await plain.end();
  await pawl.close();
  await ground.leave();
  expect(nowMs - startedMs).toBeGreaterThanOrEqual(55);
});

describe("hearing of commits on PostgreSQL", () => {
  let ground: Ground;
  beforeAll(async () => {
    ground = await postgresGround();
  });
  afterAll(() => ground.leave());

  /** How long after `commit` another handle's watch hears of it. */
  async function heardAfter(by: Pawl, name: string, waitMs: number, commit: () => Promise<unknown>): Promise<number> {
    const stop = new AbortController();
    const { promise, resolve } = Promise.withResolvers<number>();
    const watch = (async () => {
      for await (const { value } of by.slot(name).watch({ abortSignal: stop.signal }))
        if (value === "now") resolve(performance.now());
    })();
    await sleep(waitMs);
    await commit();
    const startedMs = performance.now();
    const heardMs = await promise;
    stop.abort();
    await watch;
    return heardMs - startedMs;
  }

  async function withinOf(pawl: Pawl, name: string): Promise<void> {
    const plain = await ground.connect();
    await plain.query("begin");
    await pawl.within(plain.executor, (tx) => tx.slot(pawl.slot(name)).set("now"));
    await plain.query("commit");
    await plain.end();
  }

  test("two commits in a row without listeners do not stop later notifications", async () => {
    await using mine = await ground.open();
    await using other = await ground.open();
    for (let i = 0; i < 3; i++) await mine.slot("warm").set(i);
    // The new listener polls quickly for two seconds; after that it must be told, or hears by the slow poll. Once is enough to tell.
    let bestMs = Number.POSITIVE_INFINITY;
    for (let tries = 0; tries < 20 && bestMs >= 400; tries++) {
      const name = fresh("s");
      bestMs = Math.min(bestMs, await heardAfter(other, name, 3200, () => mine.slot(name).set("now")));
    }
    expect(bestMs).toBeLessThan(400);
  });

  test("a commit through within is also noticed by a new listener", async () => {
    await using mine = await ground.open();
    await using other = await ground.open();
    await mine.slot("warm").set(1);
    const name = fresh("s");
    await heardAfter(other, name, 300, () => withinOf(mine, name));
  });

  test("and without notifications, by the poll", async () => {
    await using mine = await ground.open();
    const pool = new pg.Pool({ connectionString: ground.where, max: 2 });
    const other = await open({ pool });
    const name = fresh("s");
    await heardAfter(other, name, 1500, () => withinOf(mine, name));
    await other.close();
    await pool.end();
  });

  test("and when its process closes right afterwards", async () => {
    await using other = await ground.open();
    const mine = await ground.open();
    const name = fresh("s");
    const commit = async () => {
      await withinOf(mine, name);
      await mine.close();
    };
    await heardAfter(other, name, 1500, commit);
  });
});

test("a transaction of Knex handed in as it is is refused with words that help", async () => {
  const { default: knex } = await import("knex");
  const ground = await postgresGround();
  const pawl = await ground.open();
  const db = knex({ client: "pg", connection: ground.where });
  const error = await refusal(() => db.transaction((trx) => pawl.within(trx as unknown as SqlExecutor, () => 1)));
  await db.destroy();
  await pawl.close();
  await ground.leave();
  expect(error.message).not.toMatch(/tables are not there/);
});
