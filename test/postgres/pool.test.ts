/**
 * Goal: Pawl works with the application's own Pool of `pg`, whatever its settings, and leaves it unchanged.
 * Method: pools of many kinds, `open({ pool })`, and a check of the pool afterwards. The server ends connections while they are idle, in
 * use and listening.
 */

import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import pg from "pg";
import { afterEach, describe, expect, test } from "vitest";
import { address } from "../../src/kernel/contract.ts";
import { InvalidArgumentError, StoreError } from "../../src/kernel/errors.ts";
import { Kernel } from "../../src/kernel/kernel.ts";
import { nodePorts } from "../../src/node/ports.ts";
import { type OpenOptions, open } from "../../src/open.ts";
import type { Pawl } from "../../src/pawl.ts";
import { openPostgres } from "../../src/stores/postgres/postgres.ts";
import { range } from "../../src/testing/conformance/law-context.ts";
import { ownDatabase } from "./own-database.ts";

const database = ownDatabase();

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

function makePool(config: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ connectionString: database.url, ...config });
  pool.on("error", () => {});
  ends.push(async () => pool.ended || pool.end());
  return pool;
}

async function openOn(pool: pg.Pool, options: OpenOptions = {}): Promise<Pawl> {
  const pawl = await open({ pool, schema: `pool ${randomUUID()}`, ...options });
  ends.push(() => pawl.close());
  return pawl;
}

async function countUp(pawl: Pawl): Promise<number> {
  return (await pawl.slot<number>("n", { initial: 0 }).update((n) => n + 1)).value;
}

/** Nobody has a connection out, and the pool serves as before. */
async function expectAsBefore(pool: pg.Pool): Promise<void> {
  await expect.poll(() => [pool.totalCount - pool.idleCount, pool.waitingCount]).toEqual([0, 0]);
  expect([pool.ending, pool.ended]).toEqual([false, false]);
  const { rows } = await pool.query("select 1 as one");
  expect(rows).toEqual([{ one: 1 }]);
}

describe("the application's pool", () => {
  test("serves Pawl and the application, and is left open with no connection out", async () => {
    const pool = makePool();
    const pawl = await openOn(pool);
    await pool.query("create table if not exists theirs (n int)");
    const counts = await Promise.all(
      range(0, 20).map(async (n) => {
        await pool.query("insert into theirs values ($1)", [n]);
        return countUp(pawl);
      }),
    );
    expect(Math.max(...counts)).toBe(20);
    await pawl.close();
    await expectAsBefore(pool);
    expect((await pool.query("select count(*)::int as n from theirs")).rows).toEqual([{ n: 20 }]);
  });

  test("gets its connections back from a Pawl that watched, too", async () => {
    const pool = makePool();
    const pawl = await openOn(pool);
    const watching = new AbortController();
    const seen = (async () => {
      for await (const _ of pawl.slot<number>("n", { initial: 0 }).watch({ abortSignal: watching.signal })) break;
    })();
    await countUp(pawl);
    watching.abort();
    await seen.catch(() => {});
    await pawl.close();
    await expectAsBefore(pool);
  });

  test("is not ended when opening is refused", async () => {
    const pool = makePool({ options: "-c synchronous_commit=off" });
    await expect(openOn(pool)).rejects.toThrow("synchronous_commit is off");
    await expectAsBefore(pool);
  });

  test("is not ended by closing twice, and serves another Pawl at the same time and afterwards", async () => {
    const pool = makePool();
    const schema = `pool ${randomUUID()}`;
    const [one, two] = await Promise.all([openOn(pool, { schema }), openOn(pool, { schema, namespace: "other" })]);
    expect([await countUp(one), await countUp(two), await countUp(one)]).toEqual([1, 1, 2]);
    await Promise.all([one.close(), one.close()]);
    expect(await countUp(two)).toBe(2);
    await two.close();
    expect(await countUp(await openOn(pool, { schema }))).toBe(3);
  });

  const kinds: readonly { kind: string; config: pg.PoolConfig }[] = [
    { kind: "of one connection", config: { max: 1 } },
    { kind: "of two connections", config: { max: 2 } },
    { kind: "of three connections", config: { max: 3 } },
    { kind: "that requests binary results", config: { binary: true } as pg.PoolConfig },
    { kind: "that closes idle connections immediately", config: { idleTimeoutMillis: 1 } },
    { kind: "that uses a connection twice at most", config: { maxUses: 2 } },
    {
      kind: "with short timeouts of the server",
      config: { statement_timeout: 4000, lock_timeout: 500, idle_in_transaction_session_timeout: 4000 },
    },
    { kind: "with a short timeout of its own", config: { query_timeout: 2000 } },
    {
      kind: "that speaks another date and number style",
      config: { options: "-c DateStyle=German,DMY -c extra_float_digits=-5 -c bytea_output=escape" },
    },
    {
      kind: "in another time zone and search path",
      config: { options: "-c TimeZone=Asia/Kathmandu -c search_path=nowhere" },
    },
  ];

  test.each(kinds)("may be one $kind", async ({ config }) => {
    const pool = makePool(config);
    const startMs = performance.now();
    const pawl = await openOn(pool, { patience: "5s" });
    let openedMs = performance.now() - startMs;
    // No part of it waits for a connection that another part keeps: that takes two seconds each time, a busy machine only now and then.
    for (let tries = 0; tries < 10 && openedMs >= 1900; tries++) {
      const againMs = performance.now();
      await using _again = await openOn(makePool(config), { patience: "5s" });
      openedMs = performance.now() - againMs;
    }
    expect(openedMs).toBeLessThan(1900);
    let changes = 0;
    const unlisten = pawl.kernel.listen(() => {
      changes += 1;
    });
    expect(Math.max(...(await Promise.all(range(0, 10).map(() => countUp(pawl)))))).toBe(10);
    await sleep(350);
    expect(await countUp(pawl)).toBe(11);
    expect(changes).toBeGreaterThan(0);
    unlisten();
    await pawl.close();
    await expectAsBefore(pool);
  });

  test("that pipelines is refused before anything is asked of it", async () => {
    const pool = makePool({ pipeline: true } as pg.PoolConfig);
    const refused = await openOn(pool).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(InvalidArgumentError);
    expect(String(refused)).toContain(
      "the pool must be one without `pipeline`: Pawl sends its statements together anyway",
    );
    expect(pool.totalCount).toBe(0);
  });

  test("that has no free connection is waited for, and its late connection is released", async () => {
    const pool = makePool({ max: 1 });
    const pawl = await openOn(pool, { patience: "5s" });
    await countUp(pawl);
    const theirs = await pool.connect();
    const counting = countUp(pawl);
    expect(await Promise.race([counting, sleep(300, "waits")])).toBe("waits");
    theirs.release();
    expect(await counting).toBe(2);
    // And one that never has any is told of, with the connection that comes too late given back.
    const again = await pool.connect();
    const refused = open({ pool, patience: 200, schema: `pool ${randomUUID()}` }).catch((error: unknown) => error);
    expect(await refused).toBeInstanceOf(StoreError);
    expect(String(await refused)).toMatch(/no connection became free in the pool within 200 ms/);
    again.release();
    await pawl.close();
    await expectAsBefore(pool);
  });
});

describe("a pool with a timeout of its own", () => {
  test("still gets its listening connection replaced, long after the timeout", async () => {
    const pool = makePool({ query_timeout: 500, application_name: "timed" });
    const store = await openPostgres({
      pool,
      schema: `pool ${randomUUID()}`,
      namespace: "default",
      ports: nodePorts,
      durability: "full",
      patienceMs: 5000,
    });
    ends.push(() => store.close());
    ends.push(async () => stop());
    const stop = store.watch(() => {});
    const listening = async () =>
      (
        await database.admin.query<{ pid: number }>(
          "select pid from pg_stat_activity where application_name = 'timed' and query like 'listen %'",
        )
      ).rows;
    await expect.poll(async () => (await listening()).length).toBe(1);
    await sleep(1_000);
    const [old] = await listening();
    await database.admin.query("select pg_terminate_backend($1)", [old?.pid]);
    await expect.poll(async () => (await listening()).filter(({ pid }) => pid !== old?.pid).length).toBe(1);
  });

  test("bounds each statement, and not a whole transaction of many", async () => {
    const pool = makePool({ query_timeout: 2000 });
    const store = await openPostgres({
      pool,
      schema: `pool ${randomUUID()}`,
      namespace: "default",
      ports: nodePorts,
      durability: "full",
      patienceMs: 5000,
    });
    const kernel = new Kernel(store, nodePorts, { namespace: "default" });
    ends.push(() => kernel.close());
    const key = address("pool", "k");
    const value = await kernel.share(async (sql, join) => {
      await sql.query("select 1");
      await sleep(2500);
      await sql.query("select 2");
      return join(
        (tx) => {
          tx.record(key).write({ value: "shared" });
          return "shared";
        },
        [key],
      );
    });
    expect(value).toBe("shared");
    expect((await kernel.read([key]))[0]?.value).toBe('"shared"');
  });
});

describe("a connection that the server ends", () => {
  const ended = (name: string) =>
    database.admin.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1", [name]);

  test("while it is idle is replaced when it is needed", async () => {
    const name = `idle ${randomUUID()}`;
    const url = new URL(database.url);
    url.searchParams.set("application_name", name);
    const pawl = await open(url.href, { schema: `pool ${randomUUID()}` });
    ends.push(() => pawl.close());
    for (const n of range(1, 4)) {
      expect(await countUp(pawl)).toBe(n);
      await ended(name);
      await sleep(20);
    }
    expect(await countUp(pawl)).toBe(4);
  });

  test("while many are at work is found out, and nothing is lost or done twice", async () => {
    const pool = makePool({ application_name: "busy" });
    const pawl = await openOn(pool, { patience: "10s" });
    let isOver = false;
    const endMs = performance.now() + 1000;
    const storm = (async () => {
      while (!isOver) {
        await sleep(100);
        await ended("busy");
      }
    })();
    try {
      for (let n = 1; performance.now() < endMs; n++) expect(await countUp(pawl)).toBe(n);
    } finally {
      isOver = true;
      await storm;
    }
    await pawl.close();
    await expectAsBefore(pool);
  });

  test("ends no process that did not ask to be told, whatever Pawl had the connection for", async () => {
    // A process of its own, whose pool nobody listens to for errors.
    const child = fileURLToPath(new URL("./children/unheard.ts", import.meta.url));
    const args = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning", child, database.url];
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 290_000 });
    const lived = ["1 ended when it was checked out", "one ended that listened", "one ended that worked", "counted 4"];
    expect(stdout.trim().split("\n")).toEqual(lived);
  });
});
