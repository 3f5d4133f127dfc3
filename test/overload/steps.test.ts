/**
 * Goal: a step that the store keeps from beginning has not failed: the trouble is the store's, and costs no attempt (G34).
 * Method: a handle with little patience on PostgreSQL, and a step with a single attempt. The connections for its transaction are held by others
 * for several times that patience. Generated programs do the same to the turns of rate limits (test/programs).
 */

import { beforeAll, expect, test } from "vitest";
import { workflow } from "../../src/index.ts";
import { ownDatabase } from "../postgres/own-database.ts";
import { handleOn, settledWithin } from "./kit.ts";

const PATIENCE_MS = 800;
const HELD_MS = 4_000;
const ONCE = { retry: { attempts: 1 } };

const database = ownDatabase();
beforeAll(async () => {
  await database.admin.query("create table orders (id text primary key)");
});

const held = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, HELD_MS));

test("step.tx waits for a connection for as long as that takes", async () => {
  await using handle = await handleOn(database.url, { max: 4, patienceMs: PATIENCE_MS, namespace: "tx" });
  const { pawl } = handle;
  const order = workflow("order", async (ctx) =>
    ctx.step.tx(
      "insert",
      (sql) => sql.query("insert into orders values ($1)", [ctx.runId]).then(() => "inserted"),
      ONCE,
    ),
  );
  pawl.work([order]);
  // Half of the pool is for transactions like these.
  const holders = [1, 2].map(() => pawl.transact.sql(held));
  const run = await pawl.start(order, undefined, { id: "o-1" });
  expect(await settledWithin(120_000, "the run", run.result())).toBe("inserted");
  await Promise.all(holders);
  expect((await database.admin.query("select id from orders")).rows).toEqual([{ id: "o-1" }]);
});
