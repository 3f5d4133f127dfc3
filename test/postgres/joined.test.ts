/**
 * Goal: whether the transaction of an application was committed is found out afterwards, and nothing that goes wrong with that reaches
 * the application.
 * Method: a store joins a transaction, and its pool is ended, or the store closed, while the transaction is still open.
 */

import { randomUUID } from "node:crypto";
import pg from "pg";
import { expect, test } from "vitest";
import type { Executor } from "../../src/kernel/contract.ts";
import { blank, making } from "../../src/testing/conformance/law-context.ts";
import { connect, poolOn } from "./kit.ts";
import { ownDatabase } from "./own-database.ts";

const database = ownDatabase();

async function stage() {
  const pool = poolOn(database.url);
  const store = await connect(database.url, { schema: `joined_${randomUUID().replaceAll("-", "")}`, pool });
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  await client.query("begin");
  const executor: Executor = async (text, value) =>
    (await client.query(text, value === undefined ? [] : [value])).rows as readonly unknown[];
  const put = making(blank("record", { value: "1" }));
  const joined = await store.join(executor, { lock: [put.row], decide: () => ({ puts: [put] }) });
  if (!joined.written) throw new Error("nothing was written");
  return { pool, store, client, committed: joined.committed };
}

test("a commit is noticed", async () => {
  const { pool, store, client, committed } = await stage();
  await client.query("commit");
  expect(await committed).toBe(true);
  await client.end();
  await store.close();
  await pool.end();
});

test("with a pool that has ended, the promise does not reject", async () => {
  const { pool, store, client, committed } = await stage();
  await pool.end();
  // Several looks fail before the store is closed.
  await new Promise((resolve) => setTimeout(resolve, 50));
  await store.close();
  expect(await committed).toBe(false);
  await client.query("rollback");
  await client.end();
});
