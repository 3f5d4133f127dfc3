/**
 * Goal: a server that is there and does not reply (a paused machine, a hung disk) is reported as that, and not as a pool that is too small; and no call waits for
 * it longer than its patience says.
 * Method: a proxy that accepts connections and holds everything back, before and after a handle was opened, with pools that are new, full and free.
 */

import pg from "pg";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { StoreError } from "../../src/kernel/errors.ts";
import { type OpenOptions, open } from "../../src/open.ts";
import { FaultyProxy } from "../faults/proxy.ts";
import { ownDatabase } from "./own-database.ts";

const database = ownDatabase();
const HOUR_MS = 3_600_000;
/** Long enough for an ordinary call on a busy machine. */
const PATIENCE_MS = 3000;

let proxy: FaultyProxy;
let url: string;
const ends: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  // The schema is made by a handle of its own, which has more patience.
  await (await open(database.url)).close();
});
afterEach(async () => {
  await proxy.close();
  for (const end of ends.splice(0).reverse()) await end();
});
afterAll(() => proxy.close());

async function start(): Promise<void> {
  proxy = await FaultyProxy.start(Number(new URL(database.url).port));
  url = proxy.urlOf(database.url);
}

/** From now on, nothing comes through; what was connected stays connected. */
const freeze = (): void => proxy.stallAll(HOUR_MS);

function poolOf(max: number): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max, idleTimeoutMillis: 0 });
  pool.on("error", () => {});
  return pool;
}

async function refusal(call: Promise<unknown>): Promise<string> {
  const error = await call.then(
    () => "ok",
    (error: unknown) => error,
  );
  if (error instanceof StoreError) return `${error.code}: ${error.message}`;
  return String(error);
}

const silent =
  /^store_unreachable: (the server cannot be reached: it did not reply within \d+ ms|the server did not reply within \d+ ms|the server cannot be reached: Connection terminated due to connection timeout|the store did not reply within \d+ ms)/;

test("open says that the server does not reply, with a connection string", async () => {
  await start();
  freeze();
  expect(await refusal(open(url, { patience: 300 }))).toMatch(silent);
});

test.each([1, 3])("and with a new pool of %d", async (max) => {
  await start();
  freeze();
  const pool = poolOf(max);
  ends.push(() => pool.end());
  expect(await refusal(open({ pool, patience: 300 }))).toMatch(silent);
});

test("a pool that the application keeps busy is still reported as one that is too small", async () => {
  await start();
  const pool = poolOf(1);
  const theirs = await pool.connect();
  ends.push(async () => {
    theirs.release();
    await pool.end();
  });
  expect(await refusal(open({ pool, patience: 300 }))).toMatch(
    /^store_busy: no connection became free in the pool within 300 ms/,
  );
});

test.each([1, 2, 10])("calls of an open handle say so too, with a pool of %d", async (max) => {
  await start();
  const pool = poolOf(max);
  const options: OpenOptions = { pool, patience: PATIENCE_MS };
  const pawl = await open(options);
  await pawl.slot("x").set(0);
  ends.push(async () => {
    await pawl.close();
    await pool.end();
  });
  freeze();
  const reads = Array.from({ length: 5 }, (_, i) => refusal(pawl.slot(`read ${i}`).get()));
  const writes = Array.from({ length: 5 }, (_, i) => refusal(pawl.slot(`write ${i}`).set(i)));
  const sql = refusal(pawl.transact.sql(async () => {}));
  for (const read of await Promise.all(reads)) expect(read).toMatch(silent);
  // A commit that was sent may have happened.
  for (const write of await Promise.all(writes))
    expect(write.startsWith("outcome_unknown") || silent.test(write), write).toBe(true);
  expect(await sql).toMatch(silent);
});
