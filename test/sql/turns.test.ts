// Goal: concurrent and wrong uses of transact.sql and within have a defined effect: nothing is lost, and every error is reported.
// Method: decisions that are awaited together, on SQLite and PostgreSQL; works that follow each other while others want the file; mistakes.

import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { open } from "../../src/open.ts";
import type { Pawl } from "../../src/pawl.ts";
import { codeOf, temporaryFolder, unhandledDuring } from "../kernel/kit.ts";
import { type FreshDatabase, freshDatabase } from "../postgres/server.ts";

const folder = temporaryFolder();
let database: FreshDatabase | undefined;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(async () => {
  await database?.drop();
  folder.remove();
});

const stores = ["sqlite", "postgres"] as const;
const whereOf = (store: (typeof stores)[number], name: string): string =>
  store === "sqlite" ? folder.file(`${name}.db`) : (database?.url ?? "");

describe.each(stores)("on %s", (store) => {
  test("decisions of one transact.sql that are awaited together take turns", async () => {
    await using pawl = await open(whereOf(store, "turns"));
    const slot = pawl.slot<number>("turns", { initial: 0 });
    const add = () => pawl.transact.sql((_, tx) => Promise.all([1, 2, 3].map(() => tx((tx) => one(pawl, tx)))));
    const one = (_: Pawl, tx: Parameters<Parameters<Pawl["transact"]>[0]>[0]) =>
      tx.slot(slot).update((n) => n + 1).value;
    expect(await add()).toEqual([1, 2, 3]);
    expect((await slot.get()).value).toBe(3);
  });

  test("decisions within one transaction that are awaited together take turns", async () => {
    await using pawl = await open(whereOf(store, "within"));
    const slot = pawl.slot<number>("within", { initial: 0 });
    await slot.set(0);
    const add = (executor: Parameters<Pawl["within"]>[0]) =>
      Promise.all([1, 2, 3].map(() => pawl.within(executor, (tx) => tx.slot(slot).update((n) => n + 1).value)));
    if (store === "sqlite") {
      const db = new DatabaseSync(whereOf(store, "within"));
      db.exec("begin immediate");
      expect(await add(db)).toEqual([1, 2, 3]);
      db.exec("commit");
      db.close();
    } else {
      const client = new pg.Client({ connectionString: database?.url });
      await client.connect();
      await client.query("begin");
      expect(await add(client)).toEqual([1, 2, 3]);
      await client.query("commit");
      await client.end();
    }
    expect((await slot.get()).value).toBe(3);
  });

  test("close() refuses works that have not begun", async () => {
    const pawl = await open(whereOf(store, "closing"));
    const works = Array.from({ length: 12 }, () => codeOf(pawl.transact.sql(async () => void (await sleep(300)))));
    await sleep(100);
    await pawl.close();
    const ends = await Promise.all(works);
    expect(ends.filter((end) => end === "closed").length).toBeGreaterThan(4);
  });
});

test("on SQLite, a text with a second statement is refused, and one with a comment behind it is not", async () => {
  await using pawl = await open(folder.file("second.db"));
  await pawl.transact.sql((sql) => sql.query("create table second (id text); -- and nothing more"));
  const two = pawl.transact.sql((sql) => sql.query("insert into second values ('a'); insert into second values ('b')"));
  expect(await codeOf(two)).toBe("invalid_argument");
  expect((await pawl.transact.sql((sql) => sql.query("select * from second /* all */ ;"))).rows).toEqual([]);
});

test("on SQLite, works that follow each other leave the file to commits in between", async () => {
  await using pawl = await open(folder.file("fair.db"));
  await pawl.transact.sql((sql) => sql.query("create table imported (id integer)"));
  const slot = pawl.slot<number>("fair", { initial: 0 });
  let isOver = false;
  const updates = (async () => {
    let count = 0;
    for (; !isOver; count++) await slot.update((n) => n + 1);
    return count;
  })();
  for (let n = 0; n < 60; n++)
    await pawl.transact.sql(async (sql) => {
      await sql.query("insert into imported values (?)", [n]);
      await sleep(5);
    });
  isOver = true;
  expect(await updates).toBeGreaterThan(20);
});

test("on PostgreSQL, a malformed address is refused in words, without the password, and nothing is left behind", async () => {
  const unhandled = await unhandledDuring(async () => {
    for (const url of ["postgres://app:s3cret/word@db.example.com/app", "postgres://app@127.0.0.1:99999/app"]) {
      const error = await open(url).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: "invalid_argument", message: expect.stringContaining("postgres://user") });
      expect(String((error as Error).stack)).not.toContain("s3cret");
    }
  });
  expect(unhandled).toEqual([]);
});

test("on PostgreSQL, what a statement of the user's fails with stays what it is, and the connection is kept", async () => {
  await using pawl = await open(database?.url ?? "");
  const failing: readonly [string, RegExp][] = [
    ["do $$ begin raise exception 'out of stock' using errcode = 'MY001'; end $$", /out of stock/],
    ["select $1::int + $2::int", /bind message|parameter/i],
  ];
  for (const [text, words] of failing) {
    const error = await pawl.transact.sql((sql) => sql.query(text)).catch((thrown: unknown) => thrown);
    expect(error).not.toMatchObject({ code: "store_unreachable" });
    expect(String(error)).toMatch(words);
  }
});

test("a misspelt option is refused, and so is what is no object of options", async () => {
  await using pawl = await open("memory:");
  const slot = pawl.slot<number>("n", { initial: 0 });
  const set = slot.set.bind(slot) as (value: number, options: unknown) => Promise<unknown>;
  for (const options of [{ expectedversion: 1 }, { expected: 1 }, 5, null])
    expect(await codeOf(set(1, options))).toBe("invalid_argument");
  const transact = pawl.transact as unknown as (decide: () => void, options: unknown) => Promise<unknown>;
  expect(await codeOf(transact(() => {}, { touchs: [slot] }))).toBe("invalid_argument");
  const openAny = open as (where: unknown) => Promise<unknown>;
  for (const where of [Promise.resolve("x.db"), new Date(), new Map()])
    expect(await codeOf(openAny(where))).toBe("invalid_argument");
});
