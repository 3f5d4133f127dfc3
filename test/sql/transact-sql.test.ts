/**
 * Goal: `transact.sql` is one transaction with the user's SQL in it, and its caller hears the truth about it, whatever happens to the
 * connection.
 * Method: the same laws on PostgreSQL and on SQLite; then, on PostgreSQL, connections through a proxy that loses the reply to COMMIT or
 * the COMMIT itself; and, on SQLite, a transaction that keeps the file. Storms of terminated connections are in storms.long.test.ts.
 */

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Pawl, SqlAfterTxError } from "../../src/index.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { FaultyProxy } from "../faults/proxy.ts";
import { type Ground, grounds, isWaiting, postgresGround, refusal, sleep, sqliteGround } from "./grounds.ts";
import { openThrough, order, type Pair, pairOn } from "./pairs.ts";

describe.each(grounds)("transact.sql on %s", (_, arrive) => {
  let ground: Ground;
  let pawl: Pawl;
  let pair: Pair;
  beforeAll(async () => {
    ground = await arrive();
    pawl = await ground.open();
  });
  afterAll(async () => {
    await pawl.close();
    await ground.leave();
  });
  beforeEach(async () => {
    pair = await pairOn(ground);
  });
  const slot = () => pawl.slot<string>(pair.slot, { initial: "" });

  test("commits both, and answers what the work returned", async () => {
    expect(await order(pawl, pair, "a")).toBe("a");
    expect(await order(pawl, pair, "b")).toBe("ab");
    expect(await pair.found()).toEqual([["a", "b"], "ab"]);
  });

  test("what the work throws rolls all of it back, and is what the caller hears", async () => {
    const mine = new RangeError("mine");
    const error = await refusal(() =>
      pawl.transact.sql(async (sql, tx) => {
        await pair.insert(sql, "a");
        await tx((tx) => tx.slot(slot()).set("a"));
        throw mine;
      }),
    );
    expect(error).toBe(mine);
    expect(await pair.found()).toEqual([[], ""]);
  });

  test("what the decision throws does the same", async () => {
    const mine = new RangeError("mine");
    const error = await refusal(() =>
      pawl.transact.sql(async (sql, tx) => {
        await pair.insert(sql, "a");
        await tx((tx) => {
          tx.slot(slot()).set("a");
          throw mine;
        });
      }),
    );
    expect(error).toBe(mine);
    expect(await pair.found()).toEqual([[], ""]);
  });

  test("where the work catches that, the SQL is committed without it", async () => {
    await pawl.transact.sql(async (sql, tx) => {
      await pair.insert(sql, "a");
      const refused = tx((tx) => {
        tx.slot(slot()).set("a");
        throw new Error("never mind");
      });
      await refused.catch(() => {});
    });
    expect(await pair.found()).toEqual([["a"], ""]);
  });

  test("a statement that the database refuses rejects with the database's own error, and all is rolled back", async () => {
    await order(pawl, pair, "a");
    const error = await refusal(() => order(pawl, pair, "a"));
    expect(error.message).toMatch(/unique/i);
    expect(error.code).toMatch(/^(23505|ERR_SQLITE_ERROR)$/);
    expect(await pair.found()).toEqual([["a"], "a"]);
  });

  test("a statement after tx is refused, and all is rolled back", async () => {
    const error = await refusal(() =>
      pawl.transact.sql(async (sql, tx) => {
        await pair.insert(sql, "a");
        await tx((tx) => tx.slot(slot()).set("a"));
        await pair.insert(sql, "b");
      }),
    );
    expect(error).toBeInstanceOf(SqlAfterTxError);
    expect(error).toMatchObject({ code: "sql_after_tx" });
    expect(error.message).toMatch(/run all statements before tx/);
    expect(await pair.found()).toEqual([[], ""]);
  });

  test("several decisions may follow, and see each other's writes", async () => {
    await pawl.transact.sql(async (sql, tx) => {
      await pair.insert(sql, "a");
      for (const id of "abc") await tx((tx) => tx.slot(slot()).update((ids) => ids + id));
    });
    expect(await pair.found()).toEqual([["a"], "abc"]);
  });

  test("neither part is needed", async () => {
    await pawl.transact.sql((sql) => pair.insert(sql, "a"));
    await pawl.transact.sql((_sql, tx) => tx((tx) => tx.slot(slot()).set("only")));
    expect(await pawl.transact.sql(async () => "nothing at all")).toBe("nothing at all");
    expect(await pair.found()).toEqual([["a"], "only"]);
  });

  test("rows come as objects, and counts of what was changed", async () => {
    await pawl.transact.sql(async (sql) => {
      const says = (text: string) => ground.says(text.replaceAll("orders", pair.table));
      expect(await sql.query(says("insert into orders values (?), (?)"), ["a", "b"])).toMatchObject({ rowCount: 2 });
      const read = await sql.query<{ id: string }>(says("select id from orders where id <> ? order by id"), ["c"]);
      expect(read.rows.map(({ id }) => id)).toEqual(["a", "b"]);
      expect(read.rowCount).toBe(2);
      expect(await sql.query(says("update orders set id = id where id = ?"), ["c"])).toEqual({ rows: [], rowCount: 0 });
      expect((await sql.query(says("delete from orders where id = 'a' returning id"))).rows).toEqual([{ id: "a" }]);
    });
  });

  test("many at once are all there, and each once", async () => {
    const ids = Array.from({ length: 30 }, (_, i) => `<${i}>`);
    await Promise.all(ids.map((id) => order(pawl, pair, id)));
    const [rows, value] = await pair.found();
    expect(rows).toEqual(ids.toSorted());
    expect(value.match(/<\d+>/g)?.toSorted()).toEqual(ids.toSorted());
  });

  test("two handles and their batches are counted too", async () => {
    await using other = await ground.open();
    const ids = Array.from({ length: 10 }, (_, i) => `<${i}>`);
    await Promise.all(
      ids.flatMap((id) => [
        order(pawl, pair, `a${id}`),
        order(other, pair, `b${id}`),
        slot().update((value) => `${value}c${id}`),
      ]),
    );
    const [rows, value] = await pair.found();
    expect(rows.length).toBe(20);
    expect(value.match(/[abc]<\d+>/g)?.length).toBe(30);
  });

  test("close() waits for what is under way, and takes nothing more", async () => {
    const mine = await ground.open();
    const begun = Promise.withResolvers<void>();
    const mayEnd = Promise.withResolvers<void>();
    const under = mine.transact.sql(async (sql, tx) => {
      begun.resolve();
      await mayEnd.promise;
      await pair.insert(sql, "a");
      return tx((tx) => tx.slot(mine.slot<string>(pair.slot)).set("a"));
    });
    await begun.promise;
    const closed = mine.close();
    expect(await refusal(() => mine.transact.sql(async () => 1))).toMatchObject({ code: "closed" });
    expect(await isWaiting(closed, 50)).toBe(true);
    mayEnd.resolve();
    expect(await under).toEqual({ version: 1 });
    await closed;
    expect(await pair.found()).toEqual([["a"], "a"]);
  });

  test("work that is no function is refused", async () => {
    expect(await refusal(() => pawl.transact.sql(5 as never))).toMatchObject({ code: "invalid_argument" });
    expect(await refusal(() => pawl.transact.sql((_, tx) => tx(5 as never)))).toMatchObject({
      code: "invalid_argument",
    });
  });

  test("who watches hears of it, in this process and in another", async () => {
    await using other = await ground.open();
    const watch = async (handle: Pawl) => {
      for await (const { value } of handle.slot<string>(pair.slot).watch()) if (value === "a") return true;
      return false;
    };
    const heard = [watch(pawl), watch(other)];
    await sleep(400);
    await order(pawl, pair, "a");
    expect(await Promise.all(heard)).toEqual([true, true]);
  });
});

describe("transact.sql on PostgreSQL, when the connection is lost", () => {
  let ground: Ground;
  let proxy: FaultyProxy;
  let pair: Pair;
  beforeAll(async () => {
    ground = await postgresGround();
    proxy = await FaultyProxy.start(Number(new URL(ground.where).port));
  });
  afterAll(async () => {
    await proxy.close();
    await ground.leave();
  });
  beforeEach(async () => {
    pair = await pairOn(ground);
  });

  test("a reply to COMMIT that is lost is found by its mark: yes, and once", async () => {
    await using through = await openThrough(proxy, ground);
    const { pawl } = through;
    const droppedBefore = proxy.counts.commitRepliesDropped;
    const told: string[] = [];
    for (const id of "abc") {
      proxy.dropCommitReplies(1);
      told.push(await order(pawl, pair, id));
    }
    expect(told).toEqual(["a", "ab", "abc"]);
    expect(proxy.counts.commitRepliesDropped - droppedBefore).toBe(3);
    expect(await pair.found()).toEqual([["a", "b", "c"], "abc"]);
  });

  test("a COMMIT that never arrived is a definite no, and nothing is there", async () => {
    // With one connection, nothing can be asked for beside the transaction: what goes next is COMMIT.
    await using through = await openThrough(proxy, ground, { max: 1 });
    const { pawl } = through;
    const droppedBefore = proxy.counts.requestsDropped;
    const error = await refusal(() =>
      pawl.transact.sql(async (sql, tx) => {
        await pair.insert(sql, "a");
        await tx((tx) => tx.slot(pawl.slot<string>(pair.slot)).set("a"));
        proxy.dropRequests(1);
      }),
    );
    expect(error).toMatchObject({ code: "store_unreachable", data: { remedy: "retry" } });
    expect(proxy.counts.requestsDropped - droppedBefore).toBe(1);
    expect(await pair.found()).toEqual([[], ""]);
    // The same handle goes on.
    await order(pawl, pair, "b");
    expect(await pair.found()).toEqual([["b"], "b"]);
  });

  test("while the server stays away, the outcome is unknown, and the work is not done again", async () => {
    await using through = await openThrough(proxy, ground, { patience: 700, max: 1 });
    const { pawl } = through;
    let runs = 0;
    let refused: Promise<void> | undefined;
    const error = await refusal(() =>
      pawl.transact.sql(async (sql) => {
        runs += 1;
        await pair.insert(sql, "a");
        proxy.dropCommitReplies(1);
        refused = proxy.refuse(2500);
      }),
    );
    expect(error).toMatchObject({ code: "outcome_unknown" });
    expect(error.message).toMatch(/lost while committing/);
    await refused;
    expect(runs).toBe(1);
    // This time it had happened.
    expect((await pair.found())[0]).toEqual(["a"]);
    await order(pawl, pair, "b");
    expect((await pair.found())[0]).toEqual(["a", "b"]);
  });

  test("a connection that ends while the work is under way ends the work: nothing is there", async () => {
    await using through = await openThrough(proxy, ground);
    const { pawl } = through;
    const error = await refusal(() =>
      pawl.transact.sql(async (sql, tx) => {
        await pair.insert(sql, "a");
        proxy.cutAll();
        return tx((tx) => tx.slot(pawl.slot<string>(pair.slot)).set("a"));
      }),
    );
    expect(error.message).toMatch(/connection|terminated|reset/i);
    expect(await pair.found()).toEqual([[], ""]);
    await order(pawl, pair, "b");
    expect(await pair.found()).toEqual([["b"], "b"]);
  });

  test("a server that is away from the start is a definite no", async () => {
    await using through = await openThrough(proxy, ground, { patience: 700 });
    const { pawl } = through;
    proxy.cutAll();
    const back = proxy.refuse(2000);
    const error = await refusal(() => order(pawl, pair, "a"));
    expect(error).toMatchObject({ code: "store_unreachable" });
    await back;
    expect(await pair.found()).toEqual([[], ""]);
  });

  test("a work that is idle for too long after tx loses its locks: a definite no", async () => {
    await using through = await openThrough(proxy, ground);
    const { pawl } = through;
    const error = await refusal(() =>
      pawl.transact.sql(async (sql, tx) => {
        await pair.insert(sql, "a");
        await tx((tx) => tx.slot(pawl.slot<string>(pair.slot)).set("a"));
        await sleep(2600);
      }),
    );
    expect(error).toMatchObject({
      code: "store_busy",
      message: expect.stringContaining("idle for more than two seconds"),
    });
    expect(await pair.found()).toEqual([[], ""]);
  });
});

describe("transact.sql on SQLite, which holds the file", () => {
  let ground: Ground;
  let pawl: Pawl;
  let pair: Pair;
  beforeAll(async () => {
    ground = await sqliteGround();
    pawl = await ground.open();
  });
  afterAll(async () => {
    await pawl.close();
    await ground.leave();
  });
  beforeEach(async () => {
    pair = await pairOn(ground);
  });

  test("several come one after another, in their order", async () => {
    const seen: string[] = [];
    const work = (name: string) =>
      pawl.transact.sql(async (sql) => {
        seen.push(`${name} begins`);
        await sleep(20);
        await pair.insert(sql, name);
        seen.push(`${name} ends`);
      });
    await Promise.all([work("a"), work("b"), work("c")]);
    expect(seen).toEqual(["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
  });

  test("one that fails does not hold up the next", async () => {
    const first = refusal(() =>
      pawl.transact.sql(async (sql) => {
        await pair.insert(sql, "a");
        throw new Error("no");
      }),
    );
    await order(pawl, pair, "b");
    await first;
    expect(await pair.found()).toEqual([["b"], "b"]);
  });

  test("other commits, of this process and of others, wait for it and go on", async () => {
    await using other = await ground.open();
    const begun = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    const under = pawl.transact.sql(async (sql, tx) => {
      await pair.insert(sql, "a");
      begun.resolve();
      await release.promise;
      return tx((tx) => tx.slot(pawl.slot<string>(pair.slot, { initial: "" })).update((ids) => `${ids}a`).value);
    });
    await begun.promise;
    const others = [pawl, other].map((handle, i) =>
      handle.slot<string>(pair.slot, { initial: "" }).update((ids) => `${ids}${i}`),
    );
    for (const waiting of others) expect(await isWaiting(waiting, 60)).toBe(true);
    // Reading goes on meanwhile.
    expect((await other.slot<string>(pair.slot).get()).version).toBe(0);
    release.resolve();
    expect(await under).toBe("a");
    await Promise.all(others);
    expect([...(await pair.found())[1]].toSorted()).toEqual(["0", "1", "a"]);
  });

  test("one that keeps the file for too long is rolled back and told so, and the others go on", async () => {
    const hasty = {
      ...nodePorts,
      clock: {
        ...nodePorts.clock,
        after: (ms: number, callback: () => void) => nodePorts.clock.after(ms === 5000 ? 120 : ms, callback),
      },
    };
    const options = { path: ground.where, namespace: "default", durability: "full", patienceMs: 20_000 } as const;
    const mine = pawlOn(await openSqlite({ ...options, ports: hasty, wallMs }), hasty, { namespace: "default" });
    let late: Error | undefined;
    const gate = Promise.withResolvers<void>();
    const resumed = Promise.withResolvers<void>();
    const slow = refusal(() =>
      mine.transact.sql(async (sql) => {
        await pair.insert(sql, "slow");
        await gate.promise;
        late = await refusal(() => pair.insert(sql, "late"));
        resumed.resolve();
      }),
    );
    await sleep(30);
    // The slow one does not go on before the next is done.
    expect(await order(mine, pair, "b")).toBe("b");
    const error = await slow;
    expect(error).toMatchObject({ code: "store_busy", data: { remedy: "fail" } });
    expect(error.message).toBe(
      "the transaction held the file for more than 5000 ms and was rolled back: make it shorter",
    );
    gate.resolve();
    await resumed.promise;
    expect(late?.message).toBe(
      "the transaction held the file for more than 5000 ms and was rolled back: make it shorter",
    );
    expect(await pair.found()).toEqual([["b"], "b"]);
    await mine.close();
  });

  test.each(["commit", "end", "rollback"])("a statement %j inside is noticed", async (statement) => {
    const works: Parameters<Pawl["transact"]["sql"]>[0][] = [
      (sql) => sql.query(statement),
      // Also where the work does not mind.
      (sql) => sql.query(statement).catch(() => {}),
      async (sql, tx) => {
        await sql.query(statement).catch(() => {});
        return tx((tx) => tx.slot(pawl.slot<string>(pair.slot)).set("a"));
      },
    ];
    for (const work of works) {
      const error = await refusal(() => pawl.transact.sql(work));
      expect(error).toMatchObject({ code: "store_refused" });
      expect(error.message).toMatch(/ended the transaction, which Pawl shares/);
    }
    expect(await pair.found()).toEqual([[], ""]);
    // The connection is fit for the next.
    await order(pawl, pair, "b");
    expect(await pair.found()).toEqual([["b"], "b"]);
  });

  test("a file that another keeps is waited for as long as patience says", async () => {
    await using hasty = await ground.open({ patience: 200 });
    const holder = await ground.connect();
    await holder.query("begin immediate");
    expect(await refusal(() => order(hasty, pair, "a"))).toMatchObject({ code: "store_busy" });
    const patient = order(pawl, pair, "b");
    await sleep(50);
    await holder.query("commit");
    expect(await patient).toBe("b");
    await holder.end();
    expect(await pair.found()).toEqual([["b"], "b"]);
  });
});
