/**
 * The proxy, in front of a real server.
 *
 * Goal: each fault does what it says, and the server and the client have received exactly what they should have.
 * Method: plain `pg` clients through the proxy, and one that goes around it to look.
 */

import pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type FreshDatabase, freshDatabase } from "../postgres/server.ts";
import { FaultyProxy } from "./proxy.ts";

let database: FreshDatabase;
let proxy: FaultyProxy;
let direct: pg.Client;
const opened: pg.Client[] = [];

beforeAll(async () => {
  database = await freshDatabase();
  proxy = await FaultyProxy.start(Number(new URL(database.url).port));
  direct = await connect(database.url);
  await direct.query("create table t (n int)");
});

afterAll(async () => {
  await Promise.allSettled(opened.map((client) => client.end()));
  await proxy.close();
  await database.drop();
});

beforeEach(async () => {
  expect(proxy.pendingFaults).toBe(0);
  await direct.query("delete from t");
});

async function connect(url = proxy.urlOf(database.url)): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  opened.push(client);
  await client.connect();
  return client;
}

const rowsIn = async (): Promise<number[]> =>
  (await direct.query<{ n: number }>("select n from t order by n")).rows.map(({ n }) => n);

/** The server ends a transaction only when it notices that its client is gone. */
async function settled(): Promise<void> {
  for (;;) {
    const { rows } = await direct.query(
      "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'",
    );
    if (rows.length === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function timed<T>(promise: Promise<T>): Promise<number> {
  const startedMs = performance.now();
  await promise;
  return performance.now() - startedMs;
}

describe("passing", () => {
  it("bytes pass unchanged in both directions, in large pieces and in small ones", async () => {
    const client = await connect();
    const text = "ü".repeat(300_000);
    const { rows } = await client.query<{ text: string }>("select $1::text as text", [text]);
    expect(rows[0]?.text === text).toBe(true);
    const many = await client.query("select generate_series(1, 20000)");
    expect(many.rowCount).toBe(20_000);
  });

  it("every COMMIT is noticed, simple or prepared, also with a wish for encryption before it; a rollback is none", async () => {
    const before = proxy.counts.commitRepliesSeen;
    const client = await connect();
    await client.query("begin; insert into t values (1); commit");
    await client.query("begin");
    await client.query({ name: "ins", text: "insert into t values ($1)", values: [2] });
    await client.query({ name: "com", text: "commit", values: [] });
    await client.query("begin");
    await client.query("rollback");
    await client.query("begin");
    await expect(client.query("nonsense")).rejects.toThrow("syntax error");
    await client.query("commit");
    expect(proxy.counts.commitRepliesSeen - before).toBe(2);
    const wary = new pg.Client({ connectionString: proxy.urlOf(database.url), ssl: { rejectUnauthorized: false } });
    wary.on("error", () => {});
    await expect(wary.connect()).rejects.toThrow("does not support SSL");
    expect(await rowsIn()).toEqual([1, 2]);
  });

  it("what a client left unsaid when it went is the server's to notice", async () => {
    const client = await connect();
    await client.query("begin; insert into t values (1)");
    const before = proxy.connections.length;
    await client.end();
    await expect.poll(() => proxy.connections.length).toBe(before - 1);
    await settled();
    expect(await rowsIn()).toEqual([]);
  });
});

describe("cutting", () => {
  it("a cut connection fails its query immediately, and an open transaction is rolled back", async () => {
    const client = await connect();
    await client.query("begin; insert into t values (1)");
    const query = client.query("select pg_sleep(600)");
    setTimeout(() => proxy.cutAll(), 50);
    await expect(query).rejects.toThrow();
    await direct.query("select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_sleep%'");
    await settled();
    expect(await rowsIn()).toEqual([]);
  });

  it("one connection can be cut alone", async () => {
    const [first, second] = [await connect(), await connect()];
    proxy.connections.at(-1)?.cut();
    await expect(second.query("select 1")).rejects.toThrow();
    expect((await first.query("select 1 as one")).rows).toEqual([{ one: 1 }]);
  });
});

describe("stalling", () => {
  it.each(["up", "down", "both"] as const)("bytes that go %s wait, and arrive afterwards", async (direction) => {
    const client = await connect();
    proxy.stallAll(300, direction);
    const query = client.query("insert into t values (1)");
    await new Promise((resolve) => setTimeout(resolve, 150));
    // What waits on its way up has not happened; what waits on its way down has.
    expect(await rowsIn()).toEqual(direction === "down" ? [1] : []);
    await query;
    expect(await rowsIn()).toEqual([1]);
  });

  it("a connection made meanwhile waits too, and works afterwards", async () => {
    proxy.stallAll(200);
    const client = connect();
    expect(await timed(client)).toBeGreaterThan(150);
    expect((await (await client).query("select 1 as one")).rows).toEqual([{ one: 1 }]);
  });
});

describe("refusing", () => {
  it("new connections are refused for a while, existing ones continue", async () => {
    const client = await connect();
    const over = proxy.refuse(300);
    await expect(connect()).rejects.toThrow("ECONNREFUSED");
    await client.query("insert into t values (1)");
    await over;
    await (await connect()).query("insert into t values (2)");
    expect(await rowsIn()).toEqual([1, 2]);
  });
});

describe("losing a reply", () => {
  it("the commit happened, and the client gets no reply", async () => {
    const client = await connect();
    await client.query("begin; insert into t values (1)");
    proxy.dropCommitReplies(1);
    await expect(client.query("commit")).rejects.toThrow();
    expect(await rowsIn()).toEqual([1]);
    const { commitRepliesDropped } = proxy.counts;
    await (await connect()).query("begin; insert into t values (2); commit");
    expect(proxy.counts.commitRepliesDropped).toBe(commitRepliesDropped);
  });

  it("other replies pass meanwhile", async () => {
    const client = await connect();
    proxy.dropCommitReplies(1);
    await client.query("insert into t values (1)");
    await client.query("begin; insert into t values (2); rollback");
    expect(proxy.pendingFaults).toBe(1);
    await expect(client.query("begin; insert into t values (3); commit")).rejects.toThrow();
    expect(await rowsIn()).toEqual([1, 3]);
  });

  it("a late reply arrives when its time has come", async () => {
    const client = await connect();
    proxy.delayCommitReply(300);
    const commit = client.query("begin; insert into t values (1); commit");
    expect(await timed(commit)).toBeGreaterThan(250);
    expect(await rowsIn()).toEqual([1]);
  });
});

describe("losing a request", () => {
  it.each(["whole", "second half"] as const)(
    "a lost request (%s) did not happen, and the client gets an error",
    async (what) => {
      const client = await connect();
      proxy.dropRequests(1, what);
      await expect(client.query("insert into t values (1)")).rejects.toThrow();
      expect(proxy.pendingFaults).toBe(0);
      await settled();
      expect(await rowsIn()).toEqual([]);
    },
  );
});

describe("switching", () => {
  it("open connections are cut, new ones are sent to the other server", async () => {
    const client = await connect();
    const there = Number(new URL(database.url).port);
    proxy.switchTo(1);
    await expect(client.query("select 1")).rejects.toThrow();
    await expect(connect()).rejects.toThrow();
    proxy.switchTo(there);
    expect((await (await connect()).query("select 1 as one")).rows).toEqual([{ one: 1 }]);
  });
});
