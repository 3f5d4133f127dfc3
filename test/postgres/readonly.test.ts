/**
 * Goal: if transactions are read-only by default, processes still wake each other, and leave nothing behind.
 * Method: a role with that setting. The listener's polls never run, so that only a notification can wake it.
 */

import { randomUUID } from "node:crypto";
import pg from "pg";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { address } from "../../src/kernel/contract.ts";
import { Kernel } from "../../src/kernel/kernel.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { nodePorts } from "../../src/node/ports.ts";
import type { PostgresStore } from "../../src/stores/postgres/postgres.ts";
import { connect } from "./kit.ts";
import { ownDatabase } from "./own-database.ts";

const database = ownDatabase();
const role = `reader_${randomUUID().replaceAll("-", "")}`;

beforeAll(async () => {
  await database.admin.query(`create role ${role} login superuser`);
  await database.admin.query(`alter role ${role} set default_transaction_read_only = on`);
});
afterAll(async () => {
  await database.admin.query(`reassign owned by ${role} to current_user; drop role ${role}`);
});

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function open(ports: Ports = nodePorts): Promise<PostgresStore> {
  const url = new URL(database.url);
  url.username = role;
  const store = await connect(url.href, { ports });
  ends.push(() => store.close());
  return store;
}

function kernelOn(store: PostgresStore): Kernel {
  const kernel = new Kernel(store, nodePorts, { namespace: "default", patienceMs: 10_000 });
  ends.push(() => kernel.close());
  return kernel;
}

/** Neither the quick polls nor the slow ones come. The test of listening has no end either, and does not need one. */
const withoutPolls: Ports = {
  ...nodePorts,
  clock: {
    ...nodePorts.clock,
    after: (ms, callback) => (ms === 200 || ms === 2000 ? () => {} : nodePorts.clock.after(ms, callback)),
  },
};

async function marks(lane: string): Promise<number> {
  const { rows } = await database.admin.query<{ count: number }>(
    `select count(*)::int as count from pawl.writer where lane ${lane}`,
  );
  return rows[0]?.count ?? -1;
}

const key = address("readonly", "count");
const until = (what: string, look: () => unknown) => expect.poll(look, { message: what, interval: 5 }).toBe(true);

/** A process that watches and has announced it, and how often it was woken. */
async function listener(): Promise<{ readonly store: PostgresStore; readonly woken: () => number }> {
  const store = await open(withoutPolls);
  let count = 0;
  const stop = store.watch(() => {
    count += 1;
  });
  ends.push(async () => stop());
  await until("it has announced that it listens", async () => (await marks("= -1")) === 1);
  return { store, woken: () => count };
}

const addOne = (kernel: Kernel) =>
  kernel.transact((tx) => void tx.record(key).write({ value: Number(tx.record(key).value ?? 0) + 1 }), [key]);

test("the setting is there", async () => {
  await open();
  const url = new URL(database.url);
  url.username = role;
  const client = new pg.Client({ connectionString: url.href });
  await client.connect();
  await expect(client.query("delete from pawl.writer")).rejects.toThrow("read-only transaction");
  await client.end();
});

test("a commit wakes another process by a notification", async () => {
  const { woken } = await listener();
  const kernel = kernelOn(await open());
  for (let n = 0; n < 3; n++) {
    const before = woken();
    await addOne(kernel);
    await until("it is woken", () => woken() > before);
  }
});

test("a decision in a transaction of the application wakes another process by a notification, and leaves a mark", async () => {
  const { woken } = await listener();
  const kernel = kernelOn(await open());
  const before = woken();
  const executor = async (text: string, value?: string) =>
    (await database.admin.query(text, value === undefined ? [] : [value])).rows;
  await database.admin.query("begin");
  await kernel.within(executor, (tx) => void tx.record(key).write({ value: "joined" }), [key]);
  await database.admin.query("commit");
  await until("it is woken", () => woken() > before);
  expect(await marks("= -2")).toBe(1);
});

test("closing takes away the marks", async () => {
  const { store } = await listener();
  const writer = await open();
  const kernel = kernelOn(writer);
  await addOne(kernel);
  expect(await marks(">= 0")).toBeGreaterThan(0);
  await kernel.close();
  await writer.close();
  await store.close();
  expect(await marks("is not null")).toBe(0);
});
