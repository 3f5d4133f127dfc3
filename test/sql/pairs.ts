/**
 * What the tests of `transact.sql` share: a table and a slot that are written in one transaction, and handles whose connections are cut.
 */

import pg from "pg";
import { open, type Pawl, type Sql } from "../../src/index.ts";
import type { FaultyProxy } from "../faults/proxy.ts";
import type { Ground } from "./grounds.ts";

let count = 0;
const fresh = (what: string) => `${what}_${++count}`;

/** A table and a slot, and what is in them. */
export interface Pair {
  readonly table: string;
  readonly slot: string;
  insert(sql: Sql, id: string): Promise<unknown>;
  /** The rows, and what the slot has; it has the ids of the decisions, joined. */
  found(): Promise<[rows: unknown[], value: string]>;
}

export async function pairOn(ground: Ground): Promise<Pair> {
  const [table, slot] = [fresh("orders"), fresh("slot")];
  const plain = await ground.connect();
  await plain.query(`create table ${table} (id text primary key)`);
  await plain.end();
  return {
    table,
    slot,
    insert: (sql, id) => sql.query(ground.says(`insert into ${table} values (?)`), [id]),
    async found() {
      const plain = await ground.connect();
      const rows = await plain.query(`select id from ${table} order by id`);
      await plain.end();
      const pawl = await ground.open();
      const { value = "" } = await pawl.slot<string>(slot).get();
      await pawl.close();
      return [rows.map((row) => row["id"]), value];
    },
  };
}

/** Both sides of one order, in one transaction. */
export const order = (pawl: Pawl, pair: Pair, id: string): Promise<string> =>
  pawl.transact.sql(async (sql, tx) => {
    await pair.insert(sql, id);
    return tx((tx) => tx.slot(pawl.slot<string>(pair.slot, { initial: "" })).update((ids) => ids + id).value);
  });

/** A handle through the proxy whose lane is settled already, so that the next COMMIT is that of the work. */
export async function openThrough(
  proxy: FaultyProxy,
  ground: Ground,
  options: { patience?: number; max?: number } = {},
) {
  const { patience = 10_000, max = 4 } = options;
  const pool = new pg.Pool({ connectionString: proxy.urlOf(ground.where), max });
  pool.on("error", () => {});
  // One that is ended in the very moment it was made has no other listener yet, and would end the process.
  pool.on("connect", (client) => client.on("error", () => {}));
  const pawl = await open({ pool, patience });
  await pawl.transact.sql(async () => {});
  return {
    pawl,
    async [Symbol.asyncDispose]() {
      await pawl.close();
      await pool.end();
    },
  };
}
