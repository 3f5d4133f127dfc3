/**
 * Goal: the store works behind a pooler in transaction mode, which keeps neither statements nor settings nor LISTEN, and reports that.
 * Method: a pooler of the tests (`pooler.ts`) that uses another server connection for each transaction. `conformance.test.ts` checks the
 * laws of the contract through it.
 */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { address } from "../../src/kernel/contract.ts";
import { Kernel } from "../../src/kernel/kernel.ts";
import { nodePorts } from "../../src/node/ports.ts";
import type { PostgresStore } from "../../src/stores/postgres/postgres.ts";
import type { Finding } from "../../src/stores/postgres/requirements.ts";
import { quoted } from "../../src/stores/postgres/schema.ts";
import { range } from "../../src/testing/conformance/law-context.ts";
import { connect, hastyPorts, poolOn, type StoreOptions } from "./kit.ts";
import { Pooler, type PoolerOptions } from "./pooler.ts";
import { type FreshDatabase, freshDatabase } from "./server.ts";
import { withoutPolls } from "./traps/arena.ts";

let database: FreshDatabase | undefined;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database?.drop());

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function start(options?: PoolerOptions): Promise<Pooler> {
  const pooler = await Pooler.start(database?.url ?? "", options);
  ends.push(() => pooler.close());
  return pooler;
}

async function client(url: string): Promise<pg.Client> {
  const one = new pg.Client({ connectionString: url });
  one.on("error", () => {});
  await one.connect();
  ends.push(() => one.end());
  return one;
}

/** The first column of the first row. */
async function ask(one: pg.Client | pg.Pool, text: string): Promise<unknown> {
  return (await one.query<unknown[]>({ text, rowMode: "array" })).rows[0]?.[0];
}

const freshSchema = (): string => `pooled ${randomUUID()}`;

async function open(url: string, options: StoreOptions = {}): Promise<PostgresStore> {
  const store = await connect(url, { schema: freshSchema(), ports: hastyPorts, ...options });
  ends.push(() => store.close());
  return store;
}

function kernelOn(store: PostgresStore): Kernel {
  const kernel = new Kernel(store, nodePorts, { namespace: "default", patienceMs: 10_000 });
  ends.push(() => kernel.close());
  return kernel;
}

const key = address("pooled", "count");

const addOne = (kernel: Kernel): Promise<number> =>
  kernel.transact(
    (tx) => {
      const record = tx.record(key);
      const count = Number(record.value ?? 0) + 1;
      record.write({ value: count });
      record.append("added", count);
      return count;
    },
    [key],
  );

describe("the pooler", () => {
  test("assigns a client one server connection for a transaction, and then another", async () => {
    const one = await client((await start()).url);
    const pid = () => ask(one, "select pg_backend_pid()");
    await one.query("begin");
    const inside = [await pid(), await pid(), await pid()];
    await one.query("commit");
    expect(new Set(inside).size).toBe(1);
    expect(new Set([await pid(), await pid(), await pid()]).size).toBe(3);
  });

  test("leaves settings, statements and LISTEN behind with the server connection", async () => {
    const pooler = await start({ serverConnections: 2 });
    const [one, other] = [await client(pooler.url), await client(pooler.url)];
    await one.query("set work_mem = '77MB'");
    expect(await ask(one, "show work_mem")).not.toBe("77MB");
    expect(await ask(other, "show work_mem")).toBe("77MB");
    await one.query({ name: "mine", text: "select 1" });
    await expect(one.query({ name: "mine", text: "select 1" })).rejects.toMatchObject({ code: "26000" });
    let heard = 0;
    one.on("notification", () => {
      heard += 1;
    });
    await one.query("listen news");
    for (const _ of range(0, 4)) await other.query("notify news");
    await sleep(50);
    expect(heard).toBe(0);
  });

  test("ends the transaction of a client that leaves in the middle of it", async () => {
    const pooler = await start({ serverConnections: 1 });
    const [one, other] = [await client(pooler.url), await client(pooler.url)];
    await one.query("create table if not exists kept (n int)");
    await one.query("begin");
    await one.query("insert into kept values (1)");
    const count = ask(other, "select count(*)::int from kept");
    await one.end();
    expect(await count).toBe(0);
  });
});

describe("through it", () => {
  test.each([true, false])(
    "stores of three processes count together (statements are forgotten: %s)",
    async (forgets) => {
      const pooler = await start({ serverConnections: 4, forgets });
      const schema = freshSchema();
      const kernels: Kernel[] = [];
      for (const _ of range(0, 3)) kernels.push(kernelOn(await open(pooler.url, { schema })));
      const addMany = (each: number) =>
        Promise.all(kernels.flatMap((kernel) => range(0, each).map(() => addOne(kernel))));
      const counts = await addMany(20);
      expect(counts.sort((a, b) => a - b)).toEqual(range(1, 61));
      const direct = await client(database?.url ?? "");
      expect(await ask(direct, `select count(*)::int from ${quoted(schema)}.past`)).toBe(60);
      expect(pooler.counts.changes).toBeGreaterThan(20);
      // Who was told once that a statement is not there prepares nothing more.
      const before = pooler.counts.namedParses;
      expect(before).toBeGreaterThan(0);
      await addMany(10);
      if (forgets) expect(pooler.counts.namedParses).toBe(before);
    },
  );

  test("a store opens on a pool that another store has used, again and again", async () => {
    const pooler = await start({ forgets: true });
    const pool = poolOn(pooler.url, 3);
    ends.push(() => pool.end());
    for (const n of range(1, 6))
      expect(await addOne(kernelOn(await open(pooler.url, { pool, schema: "again" })))).toBe(n);
  });

  test("the only warning is that notifications do not arrive", async () => {
    const pooler = await start();
    const said: Finding[] = [];
    await open(pooler.url, { warned: (finding) => said.push(finding) });
    expect(said).toEqual([
      {
        code: "listen",
        isRefused: false,
        sentence: expect.stringMatching(/^notifications do not arrive, which is normal behind a pooler.*200 ms later$/),
      },
    ]);
    said.length = 0;
    // However long it takes: the test of listening has no end here.
    await open(database?.url ?? "", { ports: withoutPolls(2000), warned: (finding) => said.push(finding) });
    expect(said).toEqual([]);
  });

  test("a process that stands still while it begins to listen listens all the same", async () => {
    const said: Finding[] = [];
    const { clock } = nodePorts;
    const after: typeof clock.after = (ms, callback) => {
      const cancel = clock.after(ms === 2000 ? 50 : ms, callback);
      // Nothing that arrives meanwhile has been looked at when the time of the test is over.
      if (ms === 2000) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500);
      return cancel;
    };
    const ports = { ...nodePorts, clock: { ...clock, after } };
    await open(database?.url ?? "", { ports, warned: (finding) => said.push(finding) });
    expect(said).toEqual([]);
  });

  test("a commit of another process is noticed by polling", async () => {
    const pooler = await start();
    const schema = freshSchema();
    const store = await open(pooler.url, { schema });
    const other = kernelOn(await open(pooler.url, { schema }));
    let rings = 0;
    ends.push(async () => stop());
    const stop = store.watch(() => {
      rings += 1;
    });
    await addOne(other);
    await sleep(700);
    // It looks every 200 ms; a busy machine may take longer now and then.
    let soon = 0;
    for (let tries = 0; tries < 20 && soon < 3; tries++) {
      const before = rings;
      await addOne(other);
      const startMs = performance.now();
      while (rings === before) await sleep(5);
      if (performance.now() - startMs < 1000) soon += 1;
    }
    expect(soon).toBe(3);
  });

  test("no setting of ours is found by the next user of a server connection", async () => {
    const pooler = await start({ serverConnections: 1 });
    const one = await client(pooler.url);
    const settings = () => one.query("select name, setting from pg_settings order by name");
    const before = (await settings()).rows;
    const kernel = kernelOn(await open(pooler.url));
    for (const _ of range(0, 3)) await addOne(kernel);
    await kernel.read([key]);
    expect((await settings()).rows).toEqual(before);
  });
});
