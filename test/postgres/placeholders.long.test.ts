/**
 * Goal: a decision that only read absent records leaves no row behind permanently: the process that inserted placeholders sweeps them, in
 * whatever way its decisions are committed.
 * Method: decisions that read hundreds of absent records; the placeholders are made older by hand, and the same is repeated.
 */

import pg from "pg";
import { expect, test } from "vitest";
import { open, type Pawl, type Tx } from "../../src/index.ts";
import { ownDatabase } from "./own-database.ts";

const database = ownDatabase();

const KEYS = 100;
const ROUNDS = 3;

/** Looks at records that are absent, and writes one, so that there is something to commit. */
const look = (pawl: Pawl, name: string) => {
  const absent = Array.from({ length: KEYS }, (_, n) => pawl.slot(`${name} ${n}`));
  const written = pawl.slot<string>("written");
  return (tx: Tx): void => {
    for (const slot of absent) tx.slot(slot).get();
    tx.slot(written).set(name);
  };
};

const ways: Readonly<Record<string, (pawl: Pawl, name: string) => Promise<unknown>>> = {
  transact: (pawl, name) => pawl.transact(look(pawl, name)),
  "transact.sql": (pawl, name) => pawl.transact.sql((_sql, decide) => decide(look(pawl, name))),
  within: async (pawl, name) => {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    await client.query("begin");
    await pawl.within(client, look(pawl, name));
    await client.query("commit");
    await client.end();
  },
};

test.each(Object.keys(ways))("%s", async (way) => {
  const pawl = await open(database.url, { namespace: way });
  const run = ways[way];
  const count = async () => {
    const { rows } = await database.admin.query(
      "select count(*) from pawl.record where namespace = $1 and kind = chr(10)",
      [way],
    );
    return Number(rows[0]?.count);
  };
  for (let round = 0; round < ROUNDS; round++) await run?.(pawl, `first ${round}`);
  expect(await count()).toBe(KEYS * ROUNDS);
  await database.admin.query("update pawl.record set due = due - 3600000 where namespace = $1 and kind = chr(10)", [
    way,
  ]);
  for (let round = 0; round < ROUNDS; round++) await run?.(pawl, `second ${round}`);
  // Each sweep takes some hundred.
  await expect.poll(count).toBeLessThanOrEqual(KEYS * ROUNDS + KEYS);
  await pawl.close();
});
