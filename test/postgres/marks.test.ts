/**
 * Goal: if a mark is swept while its process lives, the process settles once, and nothing happens twice or out of order.
 * Method: a store whose clock the test moves by a month, and a sweep by another process; then the process continues, and an older batch
 * arrives late.
 */

import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { address, type Batch } from "../../src/kernel/contract.ts";
import { Kernel } from "../../src/kernel/kernel.ts";
import { nodePorts } from "../../src/node/ports.ts";
import type { PostgresStore } from "../../src/stores/postgres/postgres.ts";
import { quoted } from "../../src/stores/postgres/schema.ts";
import { CLOCK } from "../../src/stores/postgres/statements.ts";
import { blank, making } from "../../src/testing/conformance/law-context.ts";
import { connect } from "./kit.ts";
import { ownDatabase } from "./own-database.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

const database = ownDatabase();

/** Two processes on a schema of their own, and a function that sweeps all marks: the clock jumps, and the other process sweeps. */
async function stage() {
  const id = randomUUID().replaceAll("-", "");
  const schema = `marks_${id}`;
  await database.admin.query(`create table shift_${id} as select 0::bigint as ms`);
  const options = { schema, clock: `(${CLOCK} + (select ms from public.shift_${id}))`, lanes: 1 };
  const store = await connect(database.url, options);
  const other = await connect(database.url, options);
  const count = async () =>
    Number((await database.admin.query(`select count(*) as marks from ${quoted(schema)}.writer`)).rows[0]?.marks);
  const jump = async () => {
    expect(await count()).toBeGreaterThan(0);
    await database.admin.query(`update shift_${id} set ms = ms + ${31 * DAY_MS}`);
    await other.sweep(10);
    expect(await count()).toBe(0);
  };
  const close = async () => void (await Promise.all([store.close(), other.close()]));
  return { store, jump, [Symbol.asyncDispose]: close };
}

const batch = (epoch: number, sequence: number, key: string): Batch => ({
  lane: 0,
  epoch,
  sequence,
  lock: [],
  needsClock: false,
  decide: () => ({ puts: [making({ ...blank(key, { value: "1" }), space: "s" })] }),
});

const isThere = async (store: PostgresStore, key: string) => (await store.read([{ space: "s", key }]))[0] !== null;

test("it returns with an epoch that was never used, and an older batch is refused", async () => {
  await using at = await stage();
  const { store, jump } = at;
  const epochs = [await store.settle(0), await store.settle(0), await store.settle(0)].map(({ epoch }) => epoch);
  await jump();
  const { epoch } = await store.settle(0);
  expect(epoch).toBeGreaterThan(Math.max(...epochs));
  for (const old of epochs)
    await expect(store.commit(batch(old, 7, "late"))).rejects.toMatchObject({
      code: "store_refused",
      data: { remedy: "settle" },
    });
  expect(await isThere(store, "late")).toBe(false);
  expect(await store.commit(batch(epoch, 1, "new"))).toMatchObject({ committed: true });
});

test("a process whose marks were swept continues, and its commits happen once", async () => {
  await using at = await stage();
  const kernel = new Kernel(at.store, nodePorts, { namespace: "default", patienceMs: 10_000 });
  const key = address("s", "count");
  const addOne = () =>
    kernel.transact(
      (tx) => {
        const count = Number(tx.record(key).value ?? 0) + 1;
        tx.record(key).write({ value: count });
        return count;
      },
      [key],
    );
  for (let n = 1; n <= 3; n++) {
    expect(await addOne()).toBe(2 * n - 1);
    expect(await addOne()).toBe(2 * n);
    await at.jump();
  }
  expect(await addOne()).toBe(7);
  await kernel.close();
});
