/**
 * Goal: with SQL of the user's own, the effect and the stored answer, or the effect and the mark of a message, are one transaction: both
 * or neither, once (G2, G6, G29).
 * Method: the same laws on PostgreSQL and on SQLite. Overlaps are forced: the first transaction is kept open by a gate while the second
 * one arrives.
 */

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Idempotency } from "../../src/idempotency/idempotency.ts";
import type { Pawl, Sql } from "../../src/index.ts";
import { address } from "../../src/kernel/contract.ts";
import type { Tx } from "../../src/kernel/decision.ts";
import { plainly } from "../../src/kernel/sql/in-sql.ts";
import { codeOf, gate } from "../kernel/kit.ts";
import { type Ground, grounds, isWaiting, sleep } from "../sql/grounds.ts";

const COUNT = address("test", "count");

function count(tx: Tx): number {
  const record = tx.record(COUNT);
  const next = (record.exists ? (record.value as number) : 0) + 1;
  record.write({ value: next });
  return next;
}

let tables = 0;

describe.each(grounds)("on %s", (store, arrive) => {
  let ground: Ground;
  beforeAll(async () => {
    ground = await arrive();
  });
  afterAll(() => ground.leave());

  let pawl: Pawl;
  let other: Pawl;
  let keys: Idempotency<Tx, object>;
  let peer: Idempotency<Tx, object>;
  let table: string;
  beforeEach(async () => {
    table = `orders_${++tables}`;
    const plain = await ground.connect();
    await plain.query(`create table ${table} (id text primary key)`);
    await plain.end();
    const namespace = table;
    [pawl, other] = [await ground.open({ namespace }), await ground.open({ namespace })];
    [keys, peer] = [new Idempotency(pawl.kernel, plainly), new Idempotency(other.kernel, plainly)];
  });
  afterEach(async () => {
    await Promise.all([pawl.close(), other.close()]);
  });

  const insert = (sql: Sql, id: string) => sql.query(ground.says(`insert into ${table} values (?)`), [id]);
  const found = async () => {
    const plain = await ground.connect();
    const rows = await plain.query(`select id from ${table} order by id`);
    await plain.end();
    const [row] = await pawl.kernel.read([COUNT]);
    return { ids: rows.map((row) => row["id"]), count: Number(row?.value ?? 0) };
  };

  describe("commitSql", () => {
    const order = (by: typeof keys, id: string, key = "k") =>
      by.idempotent(key, {}, ({ commitSql }) =>
        commitSql(async (sql, tx) => {
          await insert(sql, id);
          return { id, number: await tx(count) };
        }),
      );

    test("the statements, the decisions and the answer are one transaction", async () => {
      expect(await order(keys, "a")).toEqual({ value: { id: "a", number: 1 }, replayed: false });
      expect(await order(peer, "b")).toEqual({ value: { id: "a", number: 1 }, replayed: true });
      expect(await found()).toEqual({ ids: ["a"], count: 1 });
    });

    test("what the work throws rolls all of it back, and frees the key", async () => {
      const failing = keys.idempotent("k", {}, ({ commitSql }) =>
        commitSql(async (sql, tx) => {
          await insert(sql, "a");
          await tx(count);
          throw new Error("no");
        }),
      );
      await expect(failing).rejects.toThrow("no");
      expect(await found()).toEqual({ ids: [], count: 0 });
      expect(await order(peer, "b")).toMatchObject({ value: { id: "b" }, replayed: false });
    });

    test("an answer that cannot be stored rolls all of it back", async () => {
      const failing = keys.idempotent("k", {}, ({ commitSql }) =>
        commitSql(async (sql) => {
          await insert(sql, "a");
          return () => 1;
        }),
      );
      expect(await codeOf(failing)).toBe("invalid_value");
      expect(await found()).toEqual({ ids: [], count: 0 });
    });

    test("one that was taken over meanwhile rolls all of it back", async () => {
      const [taken, working] = [gate(), gate()];
      const stale = keys.idempotent("k", { lease: 50 }, async ({ lapse, commitSql }) => {
        lapse();
        working.open();
        await taken.opened;
        return commitSql(async (sql) => {
          await insert(sql, "stale");
          return "stale";
        });
      });
      await working.opened;
      await sleep(60);
      const fresh = await peer.idempotent("k", {}, ({ commitSql, attempt }) =>
        commitSql(async (sql) => {
          await insert(sql, `attempt ${attempt}`);
          return "fresh";
        }),
      );
      taken.open();
      expect(await codeOf(stale)).toBe("fenced");
      expect(fresh).toEqual({ value: "fresh", replayed: false });
      expect((await found()).ids).toEqual(["attempt 2"]);
    });

    test("statements come before decisions, and nothing comes after the work", async () => {
      let kept: Sql | undefined;
      const late = keys.idempotent("k", {}, ({ commitSql }) =>
        commitSql(async (sql, tx) => {
          kept = sql;
          await tx(count);
          await insert(sql, "a");
        }),
      );
      expect(await codeOf(late)).toBe("sql_after_tx");
      expect(await codeOf(kept === undefined ? Promise.resolve() : insert(kept, "b"))).toBe("sql_over");
      expect(await found()).toEqual({ ids: [], count: 0 });
    });

    test("a statement that was not waited for is part of the transaction", async () => {
      await keys.idempotent("k", {}, ({ commitSql }) =>
        commitSql(async (sql) => {
          void insert(sql, "a");
        }),
      );
      expect((await found()).ids).toEqual(["a"]);
    });
  });

  describe("dedupe.sql", () => {
    const ship = (by: typeof keys, id: string) =>
      by.dedupe.sql("ship", id, async (sql, tx) => {
        await insert(sql, id);
        return tx(count);
      });

    test("a message has its effect once, and every delivery succeeds", async () => {
      expect(await ship(keys, "m")).toEqual({ deduplicated: false, value: 1 });
      expect(await ship(keys, "m")).toEqual({ deduplicated: true });
      expect(await ship(peer, "m")).toEqual({ deduplicated: true });
      expect(await ship(peer, "n")).toEqual({ deduplicated: false, value: 2 });
      expect(await found()).toEqual({ ids: ["m", "n"], count: 2 });
    });

    test("a second delivery waits for the transaction of the first, and does not run its own statements", async () => {
      const [open, end] = [gate(), gate()];
      const first = keys.dedupe.sql("ship", "m", async (sql) => {
        await insert(sql, "m");
        open.open();
        await end.opened;
        return "first";
      });
      await open.opened;
      let ran = 0;
      const second = peer.dedupe.sql("ship", "m", async (sql) => {
        ran += 1;
        await insert(sql, "m");
      });
      expect(await isWaiting(second)).toBe(true);
      // Another message does not wait, where the store has room for two transactions.
      if (store === "PostgreSQL") expect(await ship(peer, "n")).toMatchObject({ deduplicated: false });
      end.open();
      expect(await first).toEqual({ deduplicated: false, value: "first" });
      expect(await second).toEqual({ deduplicated: true });
      expect(ran).toBe(0);
      expect((await found()).ids).toEqual(store === "PostgreSQL" ? ["m", "n"] : ["m"]);
    });

    test("a second delivery has the effect if the first one fails", async () => {
      const [open, end] = [gate(), gate()];
      const first = keys.dedupe.sql("ship", "m", async (sql) => {
        await insert(sql, "m");
        open.open();
        await end.opened;
        throw new Error("no");
      });
      first.catch(() => {});
      await open.opened;
      const second = ship(peer, "m");
      expect(await isWaiting(second)).toBe(true);
      end.open();
      await expect(first).rejects.toThrow("no");
      expect(await second).toEqual({ deduplicated: false, value: 1 });
      expect(await found()).toEqual({ ids: ["m"], count: 1 });
    });

    test("many concurrent deliveries all succeed, by SQL and by decision", async () => {
      const answers = await Promise.all(
        Array.from({ length: 12 }, (_, i) => {
          const by = i % 2 ? keys : peer;
          return i % 3 ? ship(by, "m") : by.dedupe("ship", "m", count);
        }),
      );
      expect(answers.filter(({ deduplicated }) => !deduplicated)).toHaveLength(1);
      expect((await found()).count).toBe(1);
    });

    test("bad input is refused before a transaction is opened", async () => {
      expect(await codeOf(keys.dedupe.sql("", "m", async () => 1))).toBe("invalid_id");
      expect(await codeOf(keys.dedupe.sql("c", "m\n", async () => 1))).toBe("invalid_id");
      expect(await codeOf(keys.dedupe.sql("c", "m", undefined as unknown as () => Promise<number>))).toBe(
        "invalid_argument",
      );
    });
  });
});
