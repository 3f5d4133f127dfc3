/**
 * Goal: once a transaction under a fence has committed, the user's own table accepts none under a lower one (G6).
 * Method: the same laws on PostgreSQL and SQLite, with connections as an application has them, and through each library. The test holds
 * conflicting transactions open; then many run on one resource, and record the order of their commits.
 */

import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Pawl, SqlExecutor } from "../../src/index.ts";
import { checkFence, checkFenceSync, FENCES_TABLE, type SyncSql } from "../../src/kernel/sql/fence.ts";
import { StaleFenceError } from "../../src/kernel/sql/fence-errors.ts";
import { codeOf } from "../kernel/kit.ts";
import { type Ground, grounds, isWaiting, type Plain, postgresGround, refusal } from "../sql/grounds.ts";
import { connectShop, postgresLibraries, type Shop } from "../sql/libraries/library.ts";

/** About what fences are: milliseconds since 1970, more than 32 bits. */
const F = 1_763_000_000_000;

/** Names that are two although something may take them for one, or for SQL. */
const ODD = [
  "account/42",
  "account 42",
  "Account/42",
  "account%2F42",
  "account%252F42",
  "it's",
  "it''s",
  "'; drop table pawl_fences; --",
  "a\\",
  "a\\' or true --",
  '"quoted"',
  "$1",
  "?",
  "??",
  ":name",
  "%s",
  "\u00e9",
  "e\u0301",
  "😀",
  "ы",
];

describe.each(grounds)("a fence in a table of the user's own, on %s", (_, make) => {
  let ground: Ground;
  let ann: Plain;
  let bob: Plain;
  beforeAll(async () => {
    ground = await make();
    ann = await ground.connect();
    bob = await ground.connect();
    await ann.query(FENCES_TABLE);
    await ann.query(FENCES_TABLE);
  });
  afterAll(async () => {
    await ann.end();
    await bob.end();
    await ground.leave();
  });

  const begin = (plain: Plain) => plain.query(ground.store === "SQLite" ? "begin immediate" : "begin");
  /** Checks in a transaction of its own, and commits unless it is refused. */
  const check = async (resource: string, fence: number, by: Plain = ann): Promise<unknown> => {
    await begin(by);
    try {
      await checkFence(by.executor, resource, fence);
      await by.query("commit");
      return "ok";
    } catch (error) {
      await by.query("rollback");
      return error instanceof StaleFenceError ? error.data : error;
    }
  };

  test.each([
    { rule: "the first is taken", fence: F, answer: "ok" },
    { rule: "the same again is taken: its holder writes often", fence: F, answer: "ok" },
    { rule: "one lower is refused", fence: F - 1, answer: { resource: "r", fence: F - 1, current: F } },
    { rule: "a higher one is taken", fence: F + 7, answer: "ok" },
    { rule: "the one before is refused from then on", fence: F, answer: { resource: "r", fence: F, current: F + 7 } },
    { rule: "so is the very first fence there is", fence: 1, answer: { resource: "r", fence: 1, current: F + 7 } },
    { rule: "a small one of another resource is taken", resource: "s", fence: 1, answer: "ok" },
    { rule: "the largest number there is, is taken", fence: Number.MAX_SAFE_INTEGER, answer: "ok" },
  ])("$rule", async ({ resource = "r", fence, answer }) => {
    expect(await check(resource, fence)).toEqual(answer);
  });

  test("resources of odd names are all different ones, and none is taken for SQL", async () => {
    for (const [i, resource] of ODD.entries()) expect(await check(resource, F + i)).toBe("ok");
    for (const [i, resource] of ODD.entries())
      expect(await check(resource, F + i - 1)).toEqual({ resource, fence: F + i - 1, current: F + i });
    const rows = await ann.query("select resource from pawl_fences where resource = 'account/42'");
    expect(rows).toEqual([{ resource: "account/42" }]);
  });

  test("a transaction that is rolled back has lifted nothing", async () => {
    await check("rolled back", F);
    await begin(ann);
    await checkFence(ann.executor, "rolled back", F + 5);
    await ann.query("rollback");
    expect(await check("rolled back", F + 1)).toBe("ok");
  });

  test("a caught refusal leaves the transaction unchanged", async () => {
    await check("caught", F + 1);
    await ann.query("create table if not exists notes (text text)");
    await begin(ann);
    await ann.query("insert into notes values ('before')");
    expect(await codeOf(checkFence(ann.executor, "caught", F))).toBe("stale_fence");
    await ann.query("insert into notes values ('after')");
    await ann.query("commit");
    expect(await ann.query("select text from notes")).toEqual([{ text: "before" }, { text: "after" }]);
  });

  test("outside a transaction it is refused: an older write could come after the check", async () => {
    const error = await refusal(() => checkFence(ann.executor, "outside", F));
    expect(error.message).toMatch(/transaction/);
    expect(await ann.query("select fence from pawl_fences where resource = 'outside'")).toEqual([]);
  });

  test("without the table the error says so", async () => {
    const other = await make();
    const plain = await other.connect();
    await plain.query("begin");
    const error = await refusal(() => checkFence(plain.executor, "r", F));
    expect(error.message).toMatch(/pawl_fences/);
    await plain.query("rollback");
    await plain.end();
    await other.leave();
  });

  test("an older one that comes while a newer one writes is refused when that has committed", async () => {
    if (ground.store === "SQLite") {
      // Nobody else writes there meanwhile at all.
      await begin(bob);
      await checkFence(bob.executor, "meet", F + 1);
      await expect(begin(ann)).rejects.toThrow("locked");
      await bob.query("commit");
      expect(await check("meet", F)).toMatchObject({ current: F + 1 });
      return;
    }
    await check("meet", F - 1);
    for (const [resource, current] of [
      ["meet", F + 1],
      ["meet anew", F + 1],
    ] as const) {
      await begin(bob);
      await checkFence(bob.executor, resource, F + 1);
      const older = check(resource, F);
      expect(await isWaiting(older)).toBe(true);
      await bob.query("commit");
      expect(await older).toEqual({ resource, fence: F, current });
    }
  });

  test("a newer one that comes while an older one writes goes after it", async () => {
    if (ground.store === "SQLite") return;
    await begin(bob);
    await checkFence(bob.executor, "in turn", F);
    const newer = check("in turn", F + 1);
    expect(await isWaiting(newer)).toBe(true);
    await bob.query("commit");
    expect(await newer).toBe("ok");
  });

  test("several resources can be checked in one transaction", async () => {
    await check("two", F + 1);
    await begin(ann);
    await checkFence(ann.executor, "one", F);
    expect(await codeOf(checkFence(ann.executor, "two", F))).toBe("stale_fence");
    await checkFence(ann.executor, "three", F);
    await ann.query("commit");
    expect(await check("one", F - 1)).toMatchObject({ current: F });
    expect(await check("three", F - 1)).toMatchObject({ current: F });
  });

  test("in the order of the commits, fences never fall", async () => {
    await ann.query("create table writes (n integer, fence bigint)");
    const connections = await Promise.all(Array.from({ length: 6 }, () => ground.connect()));
    let refused = 0;
    const write = async (by: Plain, fence: number): Promise<void> => {
      for (;;) {
        try {
          await begin(by);
          break;
        } catch {
          // SQLite lets one write at a time, and this connection does not wait.
          await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
        }
      }
      try {
        await checkFence(by.executor, "log", fence);
        await by.query(`insert into writes select count(*), ${fence} from writes`);
        await by.query(Math.random() < 0.2 ? "rollback" : "commit");
      } catch (error) {
        expect(error).toBeInstanceOf(StaleFenceError);
        refused += 1;
        await by.query("rollback");
      }
    };
    // Each holder believes for a while that the lock is its own, and all of them overlap.
    await Promise.all(
      connections.map(async (by, i) => {
        for (let turn = 0; turn < 25; turn++) await write(by, F + 6 * turn + i - Math.floor(Math.random() * 12));
      }),
    );
    await Promise.all(connections.map((one) => one.end()));
    const fences = (await ann.query("select n, fence from writes order by n")).map(({ fence }) => Number(fence));
    expect(fences.length).toBeGreaterThan(10);
    expect(fences).toEqual(fences.toSorted((a, b) => a - b));
    expect(refused).toBeGreaterThan(0);
  });

  test("a column of the user's own works too, if the count of changed rows is checked", async () => {
    await ann.query(
      "create table accounts (id text primary key, balance bigint not null, fence bigint not null default 0)",
    );
    await ann.query("insert into accounts (id, balance) values ('42', 0)");
    const pawl = await ground.open();
    const set = (balance: number, fence: number) =>
      pawl.transact.sql(async (sql) => {
        const text = ground.says("update accounts set balance = ?, fence = ? where id = ? and fence <= ?");
        const { rowCount } = await sql.query(text, [balance, fence, "42", fence]);
        if (rowCount === 0) throw new StaleFenceError("accounts/42", fence);
      });
    await set(10, F);
    await set(20, F + 1);
    await expect(set(30, F)).rejects.toMatchObject({
      code: "stale_fence",
      data: { resource: "accounts/42", fence: F, current: null },
    });
    await pawl.close();
    const [row] = await ann.query("select balance, fence from accounts");
    expect([Number(row?.["balance"]), Number(row?.["fence"])]).toEqual([20, F + 1]);
  });

  describe("in Pawl's transactions", () => {
    let pawl: Pawl;
    beforeAll(async () => {
      pawl = await ground.open();
    });
    afterAll(() => pawl.close());

    test("transact.sql is whole or not at all", async () => {
      await ann.query("create table balances (id text primary key, cents bigint)");
      const slot = pawl.slot<number>("writes", { initial: 0 });
      const write = (cents: number, fence: number) =>
        pawl.transact.sql(async (sql, tx) => {
          await checkFence(sql, "balances/42", fence);
          await sql.query(
            `insert into balances values ('42', ${cents}) on conflict (id) do update set cents = ${cents}`,
          );
          return tx((tx) => tx.slot(slot).update((n) => n + 1).value);
        });
      expect(await write(1, F)).toBe(1);
      expect(await write(2, F + 1)).toBe(2);
      expect(await codeOf(write(3, F))).toBe("stale_fence");
      const [row] = await ann.query("select cents from balances");
      expect(Number(row?.["cents"])).toBe(2);
      expect((await slot.get()).value).toBe(2);
    });
  });
});

describe("synchronously, on SQLite", () => {
  const [, [, make]] = grounds;

  test("the same rules hold in a synchronous transaction", async () => {
    const ground = await make();
    const plain = await ground.connect();
    const db = plain.executor as unknown as SyncSql;
    await plain.query(FENCES_TABLE);
    const check = (fence: number) => {
      db.prepare("begin immediate").all();
      try {
        checkFenceSync(db, "it's", fence);
        db.prepare("commit").all();
        return "ok";
      } catch (error) {
        db.prepare("rollback").all();
        return error instanceof StaleFenceError ? error.data.current : error;
      }
    };
    expect([F, F, F + 2, F + 1, F + 2].map(check)).toEqual(["ok", "ok", "ok", F + 2, "ok"]);
    expect(() => checkFenceSync(db, "it's", F + 3)).toThrow(/transaction/);
    expect(() => checkFenceSync({} as SyncSql, "it's", F)).toThrow("prepare");
    await plain.end();
    await ground.leave();
  });
});

describe("on PostgreSQL, through", () => {
  let ground: Ground;
  beforeAll(async () => {
    ground = await postgresGround();
    const plain = await ground.connect();
    await plain.query(FENCES_TABLE);
    await plain.query("create table orders (id text primary key, item text not null)");
    await plain.end();
  });
  afterAll(() => ground.leave());

  test.each(postgresLibraries)("%s", async (name) => {
    const shop: Shop = await connectShop(name, ground.where);
    const order = (id: string, resource: string, fence: number) =>
      shop.order(`${name}-${id}`, (executor) => checkFence(executor, `${name} ${resource}`, fence));
    for (const [i, resource] of ODD.entries()) {
      await order(`${i}`, resource, F + 1);
      const refused = await refusal(() => order(`${i}-late`, resource, F));
      expect(refused).toMatchObject({ code: "stale_fence", data: { current: F + 1 } });
    }
    await shop.close();
    const plain = await ground.connect();
    const rows = await plain.query(`select id from orders where id like '${name}-%'`);
    await plain.end();
    expect(rows).toHaveLength(ODD.length);
  });

  test("a pool, which is no transaction, is refused", async () => {
    const pool = new pg.Pool({ connectionString: ground.where });
    const error = await refusal(() => checkFence(pool, "pool", F));
    expect(error.message).toMatch(/transaction/);
    await pool.end();
  });
});

describe("what is no resource, no fence or no executor is refused before anything is asked", () => {
  const asked: string[] = [];
  const executor = (text: string) => {
    asked.push(text);
    return [];
  };
  const rows: [string, () => Promise<void>, string][] = [
    ["an empty resource", () => checkFence(executor, "", F), "invalid_id"],
    ["a resource with a NUL", () => checkFence(executor, "a\0", F), "invalid_id"],
    ["a lone surrogate", () => checkFence(executor, "\ud800", F), "invalid_id"],
    ["no text", () => checkFence(executor, 5 as unknown as string, F), "invalid_id"],
    ["fence 0", () => checkFence(executor, "r", 0), "invalid_argument"],
    ["fence -1", () => checkFence(executor, "r", -1), "invalid_argument"],
    ["fence 1.5", () => checkFence(executor, "r", 1.5), "invalid_argument"],
    ["fence NaN", () => checkFence(executor, "r", Number.NaN), "invalid_argument"],
    ["fence 2^53", () => checkFence(executor, "r", 2 ** 53), "invalid_argument"],
    ["SQL for a fence", () => checkFence(executor, "r", "1; drop table x" as unknown as number), "invalid_argument"],
    ["no fence", () => checkFence(executor, "r", undefined as unknown as number), "invalid_argument"],
    ["no executor", () => checkFence({} as SqlExecutor, "r", F), "invalid_argument"],
  ];
  test.each(rows)("%s", async (_, act, code) => {
    expect(await codeOf(act())).toBe(code);
    expect(asked).toEqual([]);
  });
});
