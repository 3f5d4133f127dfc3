/**
 * Goal: the user's SQL and the record of its step are one commit, once, for each form of `step.tx`; a store that lacks one says so.
 * Method: steps that insert orders, throw, end their transaction themselves, keep it for later, or lose their run in the middle.
 */

import { describe, expect, test } from "vitest";
import { type Sql, workflow } from "../../src/index.ts";
import { gate } from "../kernel/kit.ts";
import { factsOf, loseLease, onStores, PATIENCE, resultOf, SOON, SQL } from "./kit.ts";

onStores(SQL, (place) => {
  async function shop() {
    const plain = await place.connect();
    await plain.query("create table if not exists orders (id text primary key, by_run text)");
    await plain.query("delete from orders");
    return { plain, rows: async () => (await plain.query("select id from orders order by id")).map(({ id }) => id) };
  }

  describe("step.tx", () => {
    test("commits the user's SQL and the step's record together", async () => {
      const { rows } = await shop();
      const pawl = await place.open();
      const order = workflow("order", async (ctx, id: string) =>
        ctx.step.tx("insert", async (sql, { key }) => {
          await sql.query(place.says("insert into orders values (?, ?)"), [id, key]);
          const { rows: found } = await sql.query<{ n: number }>("select count(*) as n from orders");
          return Number(found[0]?.n);
        }),
      );
      pawl.work([order]);
      const run = await pawl.start(order, "o1");
      expect(await resultOf(run)).toBe(1);
      expect(await rows()).toEqual(["o1"]);
      expect(await factsOf(run)).toEqual(["started", "step insert", "completed"]);
    });

    test("leaves nothing of an attempt that threw, and tries again", async () => {
      const { rows } = await shop();
      const pawl = await place.open();
      const order = workflow("order", async (ctx) =>
        ctx.step.tx(
          "insert",
          async (sql, { attempt }) => {
            await sql.query(place.says("insert into orders values (?, ?)"), [`o${attempt}`, ""]);
            if (attempt < 3) throw new Error("no");
            return attempt;
          },
          { retry: SOON },
        ),
      );
      pawl.work([order]);
      expect(await resultOf(await pawl.start(order))).toBe(3);
      expect(await rows()).toEqual(["o3"]);
    });

    test("an attempt that ends its transaction itself has failed", async () => {
      const pawl = await place.open();
      let calls = 0;
      const order = workflow("order", async (ctx) =>
        ctx.step.tx(
          "insert",
          async (sql) => {
            calls += 1;
            await sql.query("rollback");
          },
          { retry: { ...SOON, attempts: 2 } },
        ),
      );
      pawl.work([order]);
      const run = await pawl.start(order);
      await expect(resultOf(run)).rejects.toMatchObject({
        cause: { message: "a statement ended the transaction, which Pawl shares: do not run commit or rollback in it" },
      });
      expect(calls).toBe(2);
    });

    test("a transaction that was kept cannot be used afterwards", async () => {
      const { rows } = await shop();
      const pawl = await place.open();
      let kept: Sql | undefined;
      const order = workflow("order", async (ctx) =>
        ctx.step.tx("insert", async (sql) => {
          kept = sql;
        }),
      );
      pawl.work([order]);
      await resultOf(await pawl.start(order));
      await expect(kept?.query("insert into orders values ('late', '')")).rejects.toMatchObject({ code: "sql_over" });
      expect(await rows()).toEqual([]);
    });

    test("of a worker that lost the run writes nothing, and its successor's is committed once", async () => {
      const { rows } = await shop();
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const begun = gate();
      const { opened, open } = gate();
      const order = (id: string, before: () => Promise<void>) =>
        workflow("order", async (ctx) => {
          // SQLite has one transaction that writes at a time, so there the old worker stops before it opens its own.
          if (place.store === "SQLite") await ctx.step("before", before);
          return ctx.step.tx("insert", async (sql) => {
            if (place.store !== "SQLite") await before();
            await sql.query(place.says("insert into orders values (?, ?)"), [id, ""]);
            return id;
          });
        });
      const lost: string[] = [];
      const stops = order("old", async () => {
        begun.open();
        await opened;
      });
      // With its one place in use, it does not claim the run again itself.
      one.work([stops], { concurrency: 1, lease: 1_000, on: ({ type }) => lost.push(type) });
      const run = await one.start("order", undefined, { id: "one" });
      await begun.opened;
      two.work([order("new", async () => {})]);
      await loseLease(one, "one");
      expect(await resultOf(two.run("order", "one"))).toBe("new");
      open();
      await expect.poll(() => lost, PATIENCE).toContain("run.lost");
      expect(await resultOf(run)).toBe("new");
      expect(await rows()).toEqual(["new"]);
    });
  });

  describe("step.tx.within", () => {
    test("records the step in the transaction of the user's own library", async () => {
      const { plain, rows } = await shop();
      const pawl = await place.open();
      const order = workflow("order", async (ctx, id: string) =>
        ctx.step.tx.within<string>("insert", async (record) => {
          await plain.query("begin");
          await plain.query("insert into orders values (?, ?)", id, "");
          await record(plain.executor, `inserted ${id}`);
          await plain.query("commit");
        }),
      );
      pawl.work([order]);
      const run = await pawl.start(order, "o1");
      expect(await resultOf(run)).toBe("inserted o1");
      expect(await rows()).toEqual(["o1"]);
      expect(await factsOf(run)).toEqual(["started", "step insert", "completed"]);
    });

    test("a function that never records fails the step", async () => {
      const pawl = await place.open();
      const order = workflow("order", async (ctx) =>
        ctx.step.tx.within<string>("insert", async () => "done", { retry: { attempts: 1 } }),
      );
      pawl.work([order]);
      await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
        cause: { message: expect.stringMatching(/record/) },
      });
    });

    test("continues with other steps after it, and concurrent ones", async () => {
      const { plain, rows } = await shop();
      const pawl = await place.open();
      const order = workflow("order", async (ctx) => {
        const seen: unknown[] = [];
        for (const id of ["a", "b", "c"]) {
          const both = await Promise.all([
            ctx.step.tx.within<string>("insert", async (record) => {
              await plain.query("begin");
              await plain.query("insert into orders values (?, ?)", id, "");
              await record(plain.executor, id);
              await plain.query("commit");
            }),
            ctx.step("beside", () => `beside ${id}`),
          ]);
          seen.push(...both);
        }
        return seen;
      });
      pawl.work([order]);
      const run = await pawl.start(order);
      expect(await resultOf(run)).toEqual(["a", "beside a", "b", "beside b", "c", "beside c"]);
      expect(await rows()).toEqual(["a", "b", "c"]);
      const facts = await factsOf(run);
      expect(facts.filter((name) => name.startsWith("step ")).length).toBe(6);
    });
  });
});

onStores(["memory"], (place) => {
  test("step.tx.sync says that this store has no SQL", async () => {
    const pawl = await place.open();
    const order = workflow("order", async (ctx) => ctx.step.tx.sync("insert", () => 1, { retry: { attempts: 1 } }));
    pawl.work([order]);
    await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
      cause: { message: expect.stringMatching(/SQL/) },
    });
  });

  test("step.tx says that this store has no SQL", async () => {
    const pawl = await place.open();
    const order = workflow("order", async (ctx) =>
      ctx.step.tx("insert", async (sql) => sql.query("select 1"), { retry: { attempts: 1 } }),
    );
    pawl.work([order]);
    await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
      code: "run_failed",
      cause: { message: expect.stringMatching(/SQL/) },
    });
  });
});

onStores(["SQLite"], (place) => {
  test("an attempt of step.tx whose time is over when its transaction opens does not begin", async () => {
    const pawl = await place.open();
    const { opened: failed, open: fail } = gate();
    const attempts: number[] = [];
    const order = workflow("order", async (ctx) =>
      ctx.step.tx(
        "insert",
        async (_, { attempt }) => {
          attempts.push(attempt);
          throw new Error("no");
        },
        { timeout: 20, retry: { ...SOON, attempts: 2 } },
      ),
    );
    let holder: Promise<void> | undefined;
    pawl.work([order], {
      on: ({ type }) => {
        // There is one transaction at a time: from before the second attempt until after its timeout, this is it.
        if (type === "step.retried") holder = pawl.transact.sql(() => failed);
        if (type === "step.failed") fail();
      },
    });
    const run = await pawl.start(order);
    await expect(resultOf(run)).rejects.toMatchObject({ cause: { code: "step_timeout" } });
    await holder;
    expect(attempts).toEqual([1]);
  });

  describe("step.tx.sync", () => {
    async function orders() {
      const plain = await place.connect();
      await plain.query("create table if not exists orders (id text primary key, by_run text)");
      await plain.query("delete from orders");
      return async () => (await plain.query("select id from orders order by id")).map(({ id }) => id);
    }

    test("commits the user's SQL and the step's record together", async () => {
      const rows = await orders();
      const pawl = await place.open();
      const order = workflow("order", async (ctx, id: string) =>
        ctx.step.tx.sync("insert", (db, { key }) => {
          const { changes } = db.prepare("insert into orders values (?, :key)").run({ key }, id);
          const [first] = db.prepare("select by_run from orders where id = ?").all<{ by_run: string }>(id);
          const count = db.prepare("select count(*) as n from orders").get<{ n: number }>();
          return { changes, isMine: first?.by_run === key, count: count?.n };
        }),
      );
      pawl.work([order]);
      const run = await pawl.start(order, "o1");
      expect(await resultOf(run)).toEqual({ changes: 1, isMine: true, count: 1 });
      expect(await rows()).toEqual(["o1"]);
      expect(await factsOf(run)).toEqual(["started", "step insert", "completed"]);
    });

    test("leaves nothing of an attempt that threw, and tries again", async () => {
      const rows = await orders();
      const pawl = await place.open();
      const order = workflow("order", async (ctx) =>
        ctx.step.tx.sync(
          "insert",
          (db, { attempt }) => {
            db.prepare("insert into orders values (?, '')").run(`o${attempt}`);
            if (attempt < 3) throw new Error("no");
            return attempt;
          },
          { retry: SOON },
        ),
      );
      pawl.work([order]);
      expect(await resultOf(await pawl.start(order))).toBe(3);
      expect(await rows()).toEqual(["o3"]);
    });

    test("a function that returns a promise is refused, and what it did is rolled back", async () => {
      const rows = await orders();
      const pawl = await place.open();
      let calls = 0;
      const order = workflow("order", async (ctx) =>
        // @ts-expect-error The type says so as well.
        ctx.step.tx.sync("insert", async (db) => {
          calls += 1;
          db.prepare("insert into orders values ('o1', '')").run();
          throw new Error("nobody hears of this");
        }),
      );
      pawl.work([order]);
      await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
        cause: { message: expect.stringMatching(/must be synchronous.*use ctx\.step\.tx/) },
      });
      expect(calls).toBe(1);
      expect(await rows()).toEqual([]);
    });

    test("a database or a statement that was kept cannot be used afterwards", async () => {
      const rows = await orders();
      const pawl = await place.open();
      const kept: (() => unknown)[] = [];
      const order = workflow("order", async (ctx) =>
        ctx.step.tx.sync("insert", (db) => {
          const statement = db.prepare("insert into orders values ('late', '')");
          kept.push(
            () => statement.run(),
            () => db.prepare("delete from orders"),
          );
        }),
      );
      pawl.work([order]);
      await resultOf(await pawl.start(order));
      for (const use of kept) expect(use).toThrow(expect.objectContaining({ code: "sql_over" }));
      expect(await rows()).toEqual([]);
    });

    test("an attempt that ends its transaction itself has failed", async () => {
      const pawl = await place.open();
      const order = workflow("order", async (ctx) =>
        ctx.step.tx.sync("insert", (db) => void db.prepare("rollback").run(), { retry: { attempts: 1 } }),
      );
      pawl.work([order]);
      await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
        cause: { message: "a statement ended the transaction, which Pawl shares: do not run commit or rollback in it" },
      });
    });
  });
});

onStores(["SQLite"], (place) => {
  test.each(["tx", "sync"] as const)(
    "step.%s: what comes after a statement that ended the transaction by failing does not happen",
    async (kind) => {
      const plain = await place.connect();
      await plain.query("create table if not exists seats (id text primary key)");
      await plain.query("delete from seats");
      const pawl = await place.open();
      const ENDS = "insert or rollback into seats values ('a')";
      const NEXT = "insert into seats values ('b')";
      const take = workflow("take", async (ctx) => {
        const options = { retry: { attempts: 1 } };
        if (kind === "tx")
          return ctx.step.tx(
            "insert",
            async (sql) => {
              await sql.query(ENDS);
              await sql.query(ENDS).catch(() => {});
              await sql.query(NEXT).catch(() => {});
            },
            options,
          );
        return ctx.step.tx.sync(
          "insert",
          (db) => {
            for (const text of [ENDS, ENDS, NEXT])
              try {
                db.prepare(text).run();
              } catch {
                // The code ignores the error.
              }
          },
          options,
        );
      });
      pawl.work([take]);
      await expect(resultOf(await pawl.start(take))).rejects.toMatchObject({
        cause: { message: "a statement ended the transaction, which Pawl shares: do not run commit or rollback in it" },
      });
      expect(await plain.query("select id from seats")).toEqual([]);
    },
  );
});

onStores(["PostgreSQL"], (place) => {
  test("step.tx.sync says what to use instead", async () => {
    const pawl = await place.open();
    const order = workflow("order", async (ctx) => ctx.step.tx.sync("insert", () => 1));
    pawl.work([order]);
    await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
      cause: { message: "ctx.step.tx.sync needs SQLite: elsewhere, use ctx.step.tx" },
    });
  });
});
