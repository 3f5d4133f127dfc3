/**
 * Goal: concurrent calls may be too much for one transaction, and are then done in several: no call fails because of it, memory
 * stays bounded, and no other client of the server is harmed (G34).
 * Method: decisions that compute for long, that read large values, and that touch many absent keys, hundreds of each at once. The last on
 * a server of their own with PostgreSQL's default table of locks, beside a client that needs a few hundred locks itself.
 */

import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Child, spawnNode } from "../node/child.ts";
import { freshDatabase, startPostgres } from "../postgres/server.ts";
import { endsOf, handleOn, range, settledWithin, sleep } from "./kit.ts";

/** Patience is 30 s; what is refused is refused then. */
const SETTLED_MS = 120_000;
const TIMEOUT_MS = 300_000;

let database: Awaited<ReturnType<typeof freshDatabase>>;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.drop());

/** Keeps the processor busy. */
function compute(ms: number): void {
  const untilMs = performance.now() + ms;
  while (performance.now() < untilMs);
}

test("700 decisions that take 6 ms each", { timeout: TIMEOUT_MS }, async () => {
  // Together 4 s, twice as long as a transaction of Pawl's may be idle.
  const count = 700;
  await using handle = await handleOn(database.url);
  const { pawl } = handle;
  const slots = range(count).map((i) => pawl.slot<number>(`slow/${i}`, { initial: 0 }));
  const calls = slots.map((slot) =>
    pawl.transact(
      (tx) => {
        compute(6);
        return tx.slot(slot).update((n) => n + 1).value;
      },
      { touches: [slot] },
    ),
  );
  expect(await settledWithin(SETTLED_MS, "the decisions", endsOf(calls))).toEqual({ ok: count });
  const { slots: found } = await pawl.slots.list({ prefix: "slow/", limit: 1000 });
  expect(found.map(({ value }) => value)).toEqual(range(count).map(() => 1));
});

test("300 decisions that read a value of 970 KB each", { timeout: TIMEOUT_MS }, async () => {
  // All values together are 290 MB, and several copies of each are made on the way.
  const count = 300;
  const file = join(import.meta.dirname, "children", "reader.ts");
  const run = async (what: string): Promise<{ ends: Record<string, number>; megabytes: number }> => {
    const args = [database.url, what, String(count)];
    const child = new Child(spawnNode(file, args, { nodeArgs: ["--expose-gc"] }), "reader.ts");
    const said = await settledWithin(SETTLED_MS, what, child.line());
    expect(await child.ended, child.complaints).toEqual({ code: 0, signal: null });
    return JSON.parse(said);
  };
  await run("make");
  // Twice, because how many values are read at once depends on how many decisions are collected first.
  for (let round = 0; round < 2; round++) {
    const { ends, megabytes } = await run("read");
    expect(ends).toEqual({ ok: count });
    // About 100 with the budget of bytes, and more than 300 without it.
    expect(megabytes).toBeLessThan(200);
  }
});

test("512 decisions with 100 absent keys each, beside another client", { timeout: TIMEOUT_MS }, async () => {
  const server = await startPostgres();
  const other = new pg.Client({ connectionString: server.url });
  try {
    await other.connect();
    await using handle = await handleOn(server.url);
    const { pawl } = handle;
    let isOver = false;
    const errors: unknown[] = [];
    let rounds = 0;
    /** What an application might do: some hundred locks, and a table with partitions. */
    const otherClient = async (): Promise<void> => {
      const partitions = range(40).map((i) => `create table part_${i} partition of whole for values in (${i});`);
      for (; !isOver; rounds++) {
        try {
          await other.query("begin");
          await other.query("select count(pg_advisory_xact_lock(g)) from generate_series(1, 300) g");
          await other.query(`create table whole (n int) partition by list (n); ${partitions.join("")}`);
        } catch (error) {
          errors.push(error);
        }
        await other.query("rollback");
        await sleep(5);
      }
    };
    const beside = otherClient();
    const calls = range(512).map((i) =>
      pawl.transact(
        (tx) => {
          let seen = 0;
          for (const slot of slotsOf(i)) if (tx.slot(slot).get().version > 0) seen += 1;
          tx.slot(pawl.slot(`absent/${i}/found`)).set(seen);
          return seen;
        },
        { touches: slotsOf(i) },
      ),
    );
    function slotsOf(i: number) {
      return range(100).map((n) => pawl.slot(`absent/${i}/${n}`));
    }
    const ends = await settledWithin(SETTLED_MS, "the decisions", endsOf(calls));
    isOver = true;
    await beside;
    expect(errors.map(String)).toEqual([]);
    expect(rounds).toBeGreaterThan(0);
    expect(ends).toEqual({ ok: 512 });
  } finally {
    await other.end();
    await server.destroy();
  }
});
