/**
 * Goal: a connection that is lost inside `transact.sql` is reported by an error code of Pawl: `store_unreachable` if nothing was committed,
 * `outcome_unknown` if that is unknown. What the user's own SQL or code fails with stays as it is.
 * Method: the server ends the connection at a chosen moment: during a statement, between two, while `tx` waits for a row, while it
 * commits. Then the same handle continues to work, and nothing of the lost transaction is stored.
 */

import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PawlError, type Sql, StoreError, workflow } from "../../src/index.ts";
import { FaultyProxy } from "../faults/proxy.ts";
import { ownDatabase } from "../postgres/own-database.ts";
import { type Handle, handleOn, settledWithin, until } from "./kit.ts";

const SETTLED_MS = 120_000;
const TIMEOUT_MS = 300_000;

const database = ownDatabase();
let handle: Handle;
beforeAll(async () => {
  handle = await handleOn(database.url, { max: 6 });
  await database.admin.query(`
    create table orders (id text primary key);
    create table slow_orders (id text primary key);
    create function slowly() returns trigger language plpgsql as $$ begin perform pg_sleep(30); return null; end $$;
    create constraint trigger slowly after insert on slow_orders deferrable initially deferred
      for each row execute function slowly()`);
});
afterAll(async () => {
  await handle.close();
});

const pidOf = async (sql: Sql): Promise<number> =>
  Number((await sql.query<{ pid: number }>("select pg_backend_pid() as pid")).rows[0]?.pid);

/** Ends the connection, and waits until the server has. */
async function terminate(pid: number): Promise<void> {
  await database.admin.query("select pg_terminate_backend($1)", [pid]);
  await until(SETTLED_MS, "the connection is ended", async () => {
    return (await database.admin.query("select from pg_stat_activity where pid = $1", [pid])).rowCount === 0;
  });
}

/** Ends the connection as soon as it does this. */
async function terminateWhen(pid: number, condition: string): Promise<void> {
  await until(SETTLED_MS, condition, async () => {
    const text = `select from pg_stat_activity where pid = $1 and state = 'active' and ${condition}`;
    return (await database.admin.query(text, [pid])).rowCount === 1;
  });
  await terminate(pid);
}

const caught = (call: Promise<unknown>): Promise<unknown> =>
  settledWithin(
    SETTLED_MS,
    "the call",
    call.then(
      (value) => ({ notRefused: value }),
      (error: unknown) => error,
    ),
  );

/** Nothing of it is there, and the handle works. */
async function isGone(id: string): Promise<void> {
  const { pawl } = handle;
  const text = "select id from orders where id = $1 union all select id from slow_orders where id = $1";
  expect((await database.admin.query(text, [id])).rows).toEqual([]);
  expect((await pawl.slot(id).get()).version).toBe(0);
  await pawl.transact.sql(async (sql, tx) => {
    await sql.query("insert into orders values ($1)", [`${id} again`]);
    await tx((tx) => tx.slot(pawl.slot(`${id} again`)).set(1));
  });
  expect((await pawl.slot(`${id} again`).get()).value).toBe(1);
}

const insert = "insert into orders values ($1)";

describe("a connection that is lost in transact.sql, and nothing was committed", () => {
  const unreachable = (error: unknown): void => {
    expect(error).toBeInstanceOf(StoreError);
    expect(error).toMatchObject({ code: "store_unreachable" });
    expect((error as Error).cause).toBeDefined();
  };

  test("during a statement", { timeout: TIMEOUT_MS }, async () => {
    const id = "during";
    const error = await caught(
      handle.pawl.transact.sql(async (sql) => {
        await sql.query(insert, [id]);
        const pid = await pidOf(sql);
        await Promise.all([sql.query("select pg_sleep(30)"), terminateWhen(pid, "wait_event = 'PgSleep'")]);
      }),
    );
    unreachable(error);
    await isGone(id);
  });

  test("between two statements", { timeout: TIMEOUT_MS }, async () => {
    const id = "between";
    const error = await caught(
      handle.pawl.transact.sql(async (sql) => {
        await sql.query(insert, [id]);
        await terminate(await pidOf(sql));
        await sql.query("select 1");
      }),
    );
    unreachable(error);
    await isGone(id);
  });

  test("where the work does not mind, and returns", { timeout: TIMEOUT_MS }, async () => {
    const id = "caught";
    const error = await caught(
      handle.pawl.transact.sql(async (sql) => {
        await sql.query(insert, [id]);
        await terminate(await pidOf(sql));
        await sql.query("select 1").catch(() => {});
        return "done";
      }),
    );
    unreachable(error);
    await isGone(id);
  });

  test("before tx, after the statements", { timeout: TIMEOUT_MS }, async () => {
    const id = "before tx";
    const { pawl } = handle;
    const error = await caught(
      pawl.transact.sql(async (sql, tx) => {
        await sql.query(insert, [id]);
        await terminate(await pidOf(sql));
        await tx((tx) => tx.slot(pawl.slot(id)).set(1));
      }),
    );
    unreachable(error);
    await isGone(id);
  });

  test("while tx waits for a row", { timeout: TIMEOUT_MS }, async () => {
    const id = "while tx";
    const { pawl } = handle;
    const held = pawl.slot<number>("held");
    await held.set(1);
    const other = new pg.Client({ connectionString: database.url });
    await other.connect();
    await other.query("begin");
    await other.query("select from pawl.record where key = 'held' for update");
    const error = await caught(
      pawl.transact.sql(async (sql, tx) => {
        await sql.query(insert, [id]);
        const pid = await pidOf(sql);
        const decided = tx((tx) => {
          tx.slot(pawl.slot(id)).set(1);
          return tx.slot(held).set(2);
        });
        await Promise.all([decided, terminateWhen(pid, "wait_event_type = 'Lock'")]);
      }),
    );
    await other.query("rollback");
    await other.end();
    unreachable(error);
    expect((await held.get()).value).toBe(1);
    await isGone(id);
  });

  test("after tx, before it commits", { timeout: TIMEOUT_MS }, async () => {
    const id = "after tx";
    const { pawl } = handle;
    const error = await caught(
      pawl.transact.sql(async (sql, tx) => {
        await sql.query(insert, [id]);
        const pid = await pidOf(sql);
        await tx((tx) => tx.slot(pawl.slot(id)).set(1));
        await terminate(pid);
      }),
    );
    unreachable(error);
    await isGone(id);
  });
});

test("a connection that is lost at COMMIT is reported as such", { timeout: TIMEOUT_MS }, async () => {
  const id = "commit";
  const { pawl } = handle;
  const terminated = Promise.withResolvers<void>();
  const error = await caught(
    pawl.transact.sql(async (sql, tx) => {
      // It is slow when it is committed.
      await sql.query("insert into slow_orders values ($1)", [id]);
      terminateWhen(await pidOf(sql), "wait_event = 'PgSleep'").then(terminated.resolve, terminated.reject);
      await tx((tx) => tx.slot(pawl.slot(id)).set(1));
    }),
  );
  await terminated.promise;
  expect(error).toBeInstanceOf(PawlError);
  expect(["store_unreachable", "outcome_unknown"]).toContain((error as PawlError).code);
  await isGone(id);
});

describe("what is the user's own stays so", () => {
  test("an error of a statement", { timeout: TIMEOUT_MS }, async () => {
    const { pawl } = handle;
    await database.admin.query(insert, ["taken"]);
    const unique = await caught(pawl.transact.sql((sql) => sql.query(insert, ["taken"])));
    expect(unique).not.toBeInstanceOf(PawlError);
    expect(unique).toMatchObject({ code: "23505", table: "orders", severity: "ERROR" });
    const unknown = await caught(pawl.transact.sql((sql) => sql.query("select * from nowhere")));
    expect(unknown).not.toBeInstanceOf(PawlError);
    expect(unknown).toMatchObject({ code: "42P01" });
  });

  test("an error of another connection, which resembles a lost one", { timeout: TIMEOUT_MS }, async () => {
    const { pawl } = handle;
    const mine = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
    expect(await caught(pawl.transact.sql(() => Promise.reject(mine)))).toBe(mine);
    const theirs = Object.assign(new Error("terminating connection"), { code: "57P01", severity: "FATAL" });
    expect(await caught(pawl.transact.sql(() => Promise.reject(theirs)))).toBe(theirs);
    const { rows } = await pawl.transact.sql((sql) => sql.query<{ n: number }>("select 1 as n"));
    expect(rows).toEqual([{ n: 1 }]);
  });
});

test("a step.tx whose connection is lost happens once, by the next attempt", { timeout: TIMEOUT_MS }, async () => {
  await using own = await handleOn(database.url, { max: 6 });
  const { pawl } = own;
  let losses = 0;
  const pay = workflow("pay", async (ctx) =>
    ctx.step.tx("insert", async (sql) => {
      await sql.query(insert, ["step"]);
      if (losses < 2) {
        losses += 1;
        await terminate(await pidOf(sql));
        await sql.query("select 1");
      }
      return "paid";
    }),
  );
  pawl.work([pay], { lease: "3s" });
  const run = await pawl.start(pay, undefined, { id: "lost step" });
  expect(await settledWithin(2 * SETTLED_MS, "the run", run.result())).toBe("paid");
  expect(losses).toBe(2);
  expect((await database.admin.query("select from orders where id = 'step'")).rowCount).toBe(1);
});

describe("a server that is unreachable when transact.sql begins", () => {
  const away = async (patienceMs: number, awayMs: number) => {
    const proxy = await FaultyProxy.start(Number(new URL(database.url).port));
    const own = await handleOn(proxy.urlOf(database.url), { max: 4, patienceMs });
    const { pawl } = own;
    await pawl.transact.sql((sql) => sql.query("select 1"));
    const refused = proxy.refuse(awayMs);
    proxy.cutAll();
    let calls = 0;
    const call = pawl.transact.sql(async (sql) => {
      calls += 1;
      await sql.query("select 1");
      return "done";
    });
    const outcome = await settledWithin(SETTLED_MS, "transact.sql", call).catch((error: unknown) => error);
    await refused;
    await own.close();
    await proxy.close();
    return { outcome, calls };
  };

  test("is waited for, and the work runs once", { timeout: TIMEOUT_MS }, async () => {
    expect(await away(15_000, 1_500)).toEqual({ outcome: "done", calls: 1 });
  });

  test("is not waited for longer than the patience option", { timeout: TIMEOUT_MS }, async () => {
    const { outcome, calls } = await away(500, 3_000);
    expect(outcome).toBeInstanceOf(StoreError);
    expect(outcome).toMatchObject({ code: "store_unreachable" });
    expect(calls).toBe(0);
  });
});
