/**
 * Goal: work of `transact.sql` that never settles ends when its time is over, and costs the handle nothing but that time (G34).
 * Method: more works than there are connections hang at once, in each place where they can: in the user's own code, in a statement, after
 * `tx`, in `step.tx`, in `commitSql`. The limit is a second here. Each caller must get `store_busy`, other calls must work meanwhile
 * and afterwards, all connections must come back, nothing of the work may be stored, and `close()` must settle.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { StoreError, workflow } from "../../src/index.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { type Pawl, pawlOn } from "../../src/pawl.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { ownDatabase } from "../postgres/own-database.ts";
import { sqliteGround } from "../sql/grounds.ts";
import { endOf, endsOf, type Handle, handleOn, never, range, settledWithin, until } from "./kit.ts";

/** How long a work may take here. */
const SHARED_MS = 1000;
/** How many works hang, and how many connections there are. The first is as `open` makes it; the other is quicker. */
const LARGE = { hanging: 12, max: 10 };
const SMALL = { hanging: 5, max: 4 };
/** All of them together need a few times the limit; this is many times that. */
const SETTLED_MS = 120_000;
const TIMEOUT_MS = 300_000;

describe("work that hangs on PostgreSQL", () => {
  const database = ownDatabase();
  const left: Handle[] = [];
  beforeAll(async () => {
    await database.admin.query("create table orders (id text primary key)");
  });
  afterAll(async () => {
    // A handle that a failed test left hanging is not waited for: its connections end with the database.
    for (const handle of left) handle.close().catch(() => {});
  });

  const opened = async (max = SMALL.max): Promise<Handle> => {
    const handle = await handleOn(database.url, { sharedMs: SHARED_MS, max });
    left.push(handle);
    return handle;
  };

  const ordersLike = async (prefix: string): Promise<string[]> => {
    const text = "select id from orders where id like $1 order by id";
    return (await database.admin.query<{ id: string }>(text, [`${prefix}%`])).rows.map(({ id }) => id);
  };

  const untilNotBusy = async (act: () => Promise<unknown>): Promise<unknown> => {
    for (;;)
      try {
        return await act();
      } catch (error) {
        if (!(error instanceof StoreError && error.code === "store_busy")) throw error;
      }
  };

  /** Everything that a handle with no work under way can do. */
  const isWell = async ({ pawl, pool }: Handle, name: string): Promise<void> => {
    const calls = [
      pawl.slot<number>(`${name}/well`, { initial: 0 }).update((n) => n + 1),
      pawl.lock(`${name}/well`, async () => {}),
      // The limit is a second here, which a busy machine may need for it.
      untilNotBusy(() =>
        pawl.transact.sql(async (sql, tx) => {
          await sql.query("insert into orders values ($1)", [`${name} well`]);
          await tx((tx) => tx.slot(pawl.slot(`${name}/sql`)).set(1));
        }),
      ),
    ];
    expect(await settledWithin(SETTLED_MS, "calls after the hang", endsOf(calls))).toEqual({ ok: 3 });
    // One may stay, which listens.
    const isBack = () => pool.waitingCount === 0 && pool.totalCount - pool.idleCount <= 1;
    await until(SETTLED_MS, "the connections are back", isBack);
  };

  type Hangs = (pawl: Pawl, id: string) => Promise<unknown>;
  const hang =
    (name: string, work: Hangs, { hanging: count, max } = SMALL) =>
    async () => {
      const handle = await opened(max);
      const { pawl } = handle;
      const hanging = endsOf(range(count).map((i) => work(pawl, `${name} ${i}`)));
      // Other calls go on meanwhile.
      const meanwhile = range(20).map(() => pawl.slot<number>(`${name}/n`, { initial: 0 }).update((n) => n + 1));
      expect(await settledWithin(SETTLED_MS, "calls beside the hang", endsOf(meanwhile))).toEqual({ ok: 20 });
      expect(await settledWithin(SETTLED_MS, "those that hang", hanging)).toEqual({ store_busy: count });
      expect(await ordersLike(name)).toEqual([]);
      await isWell(handle, name);
      await settledWithin(SETTLED_MS, "close()", handle.close());
    };

  const insert = "insert into orders values ($1)";

  test(
    "in the user's own code",
    { timeout: TIMEOUT_MS },
    hang(
      "code",
      (pawl, id) =>
        pawl.transact.sql(async (sql) => {
          await sql.query(insert, [id]);
          await never();
        }),
      LARGE,
    ),
  );

  test("in a statement, which ends on the server too", { timeout: TIMEOUT_MS }, async () => {
    const name = "statement";
    await hang(name, (pawl, id) =>
      pawl.transact.sql(async (sql) => {
        await sql.query(insert, [id]);
        await sql.query("select pg_sleep(60), 'hangs'");
      }),
    )();
    await until(SETTLED_MS, "no statement is left on the server", async () => {
      const text = "select from pg_stat_activity where datname = current_database() and query like '%pg_sleep(60)%'";
      return (await database.admin.query(`${text} and state = 'active' and pid <> pg_backend_pid()`)).rowCount === 0;
    });
  });

  test(
    "after tx, when Pawl's rows are locked",
    { timeout: TIMEOUT_MS },
    hang("after tx", (pawl, id) =>
      pawl.transact.sql(async (sql, tx) => {
        await sql.query(insert, [id]);
        await tx((tx) => tx.slot(pawl.slot(`after tx/${id}`)).set(id));
        await never();
      }),
    ),
  );

  test(
    "in work that catches what its statements throw",
    { timeout: TIMEOUT_MS },
    hang("caught", (pawl, id) =>
      pawl.transact.sql(async (sql) => {
        await sql.query(insert, [id]);
        await sql.query("select pg_sleep(60)").catch(() => {});
        await never();
      }),
    ),
  );

  test(
    "in commitSql of an idempotency key",
    { timeout: TIMEOUT_MS },
    hang("commitSql", (pawl, id) =>
      pawl.idempotent(id, undefined, (attempt) =>
        attempt.commitSql(async (sql) => {
          await sql.query(insert, [id]);
          await never();
        }),
      ),
    ),
  );

  test(
    "in dedupe.sql",
    { timeout: TIMEOUT_MS },
    hang("dedupe", (pawl, id) =>
      pawl.dedupe.sql("consumer", id, async (sql) => {
        await sql.query(insert, [id]);
        await never();
      }),
    ),
  );

  test("the error says what happened and what was the limit", async () => {
    const handle = await opened();
    const error = await settledWithin(
      SETTLED_MS,
      "the call",
      handle.pawl.transact.sql(() => never()).catch((error: unknown) => error),
    );
    expect(error).toBeInstanceOf(StoreError);
    expect(error).toMatchObject({ code: "store_busy" });
    expect((error as Error).message).toContain(String(SHARED_MS));
    await settledWithin(SETTLED_MS, "close()", handle.close());
  });

  test("what the work does when its time is over does not happen", { timeout: TIMEOUT_MS }, async () => {
    const handle = await opened();
    const { pawl } = handle;
    const over = Promise.withResolvers<void>();
    const late = Promise.withResolvers<string[]>();
    const call = endOf(
      pawl.transact.sql(async (sql, tx) => {
        await sql.query(insert, ["late 1"]);
        await over.promise;
        const ends = [await endOf(sql.query(insert, ["late 2"]))];
        ends.push(await endOf(tx((tx) => tx.slot(pawl.slot("late")).set(1))));
        late.resolve(ends);
      }),
    );
    expect(await settledWithin(SETTLED_MS, "the call", call)).toBe("store_busy");
    // Others have the connections now.
    await isWell(handle, "others");
    over.resolve();
    expect(await settledWithin(SETTLED_MS, "the late work", late.promise)).not.toContain("ok");
    expect(await ordersLike("late")).toEqual([]);
    expect(await pawl.slot("late").get()).toEqual({ value: undefined, version: 0 });
    await settledWithin(SETTLED_MS, "close()", handle.close());
  });

  test("close() settles while works hang, also those that have not begun", { timeout: TIMEOUT_MS }, async () => {
    const handle = await opened();
    const calls = range(SMALL.hanging).map(() => endOf(handle.pawl.transact.sql(() => never())));
    await settledWithin(SETTLED_MS, "close()", handle.close());
    const ends = new Set(await settledWithin(SETTLED_MS, "the calls", Promise.all(calls)));
    for (const end of ends) expect(["store_busy", "closed"]).toContain(end);
  });

  test("a step.tx that hangs is retried, and other runs continue", { timeout: TIMEOUT_MS }, async () => {
    const handle = await opened();
    const { pawl } = handle;
    const hung = new Set<string>();
    const pay = workflow("pay", async (ctx, id: string) =>
      ctx.step.tx(
        "insert",
        async (sql) => {
          await sql.query(insert, [id]);
          if (id.startsWith("step hung") && !hung.has(id)) {
            hung.add(id);
            await never();
          }
          return id;
        },
        { retry: { attempts: 100, delay: 20 } },
      ),
    );
    pawl.work([pay]);
    const ids = [...range(SMALL.hanging).map((i) => `step hung ${i}`), ...range(4).map((i) => `step quick ${i}`)];
    const runs = await Promise.all(ids.map((id) => pawl.start(pay, id, { id })));
    const results = Promise.all(runs.map((run) => run.result()));
    expect((await settledWithin(2 * SETTLED_MS, "the runs", results)).toSorted()).toEqual(ids.toSorted());
    expect(hung.size).toBe(SMALL.hanging);
    expect(await ordersLike("step")).toEqual(ids.toSorted());
    await settledWithin(SETTLED_MS, "close()", handle.close());
  });
});

describe("work that hangs on SQLite", () => {
  test("ends after the limit of the file, and close() settles", { timeout: TIMEOUT_MS }, async () => {
    const ground = await sqliteGround();
    // The limit is five seconds; here it passes quickly.
    const clock = {
      ...nodePorts.clock,
      after: (ms: number, callback: () => void) => nodePorts.clock.after(ms === 5000 ? 100 : ms, callback),
    };
    const ports = { ...nodePorts, clock };
    const options = { path: ground.where, namespace: "default", durability: "full", patienceMs: 30_000 } as const;
    const pawl = pawlOn(await openSqlite({ ...options, ports, wallMs }), ports, { namespace: "default" });
    const hanging = endsOf(range(5).map(() => pawl.transact.sql(() => never())));
    const slot = pawl.slot<number>("n", { initial: 0 });
    const meanwhile = endsOf(range(5).map(() => slot.update((n) => n + 1)));
    expect(await settledWithin(SETTLED_MS, "those that hang", hanging)).toEqual({ store_busy: 5 });
    expect(await settledWithin(SETTLED_MS, "calls beside the hang", meanwhile)).toEqual({ ok: 5 });
    const last = endsOf(range(3).map(() => pawl.transact.sql(() => never())));
    await settledWithin(SETTLED_MS, "close()", pawl.close());
    const ends = Object.keys(await settledWithin(SETTLED_MS, "the calls", last));
    for (const end of ends) expect(["store_busy", "closed"]).toContain(end);
    await ground.leave();
  });
});
