/**
 * Goal: a decision over many records that other processes keep writing is made, well within its patience (G34).
 * Method: two processes update fifty slots one by one, as fast as they can, while this one adds to all fifty in single decisions. In the
 * end each slot has what was added to it. Then nothing is left to chance: other clients lock single rows, each for a moment, so that at
 * no time all fifty are free.
 */

import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Child, spawnNode } from "../node/child.ts";
import { freshDatabase } from "../postgres/server.ts";
import { endsOf, handleOn, range, settledWithin, until } from "./kit.ts";

const PROCESSES = 2;
const CALLERS = 50;
const SLOTS = 50;
/** A call that is not starved takes less than a second; patience is 30 s. */
const SETTLED_MS = 120_000;
const BIG = 1_000_000;

let database: Awaited<ReturnType<typeof freshDatabase>>;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.drop());

test("a decision over fifty slots that others write all the time", async () => {
  await using handle = await handleOn(database.url);
  const { pawl } = handle;
  const slots = range(SLOTS).map((i) => pawl.slot<number>(`hot/${i}`, { initial: 0 }));
  const file = join(import.meta.dirname, "children", "hammer.ts");
  const args = [database.url, "hot", String(SLOTS), String(CALLERS)];
  const children = range(PROCESSES).map(() => new Child(spawnNode(file, args), "hammer.ts"));
  try {
    for (const child of children) expect(await child.line()).toBe("ready");
    for (const child of children) child.tell("go");
    const addTo = (all: typeof slots, named: boolean) =>
      pawl.transact(
        (tx) => {
          for (const slot of all) tx.slot(slot).update((n) => n + BIG);
        },
        named ? { touches: all } : undefined,
      );
    // One after another, and at once; with the slots named and without, in their order and against it.
    expect(await settledWithin(SETTLED_MS, "the first", endsOf([addTo(slots, true)]))).toEqual({ ok: 1 });
    expect(await settledWithin(SETTLED_MS, "the second", endsOf([addTo(slots.toReversed(), false)]))).toEqual({
      ok: 1,
    });
    const four = [
      addTo(slots, true),
      addTo(slots, false),
      addTo(slots.toReversed(), true),
      addTo(slots.toReversed(), true),
    ];
    expect(await settledWithin(SETTLED_MS, "four at once", endsOf(four))).toEqual({ ok: 4 });
    let updates = 0;
    for (const child of children) child.tell("stop");
    for (const child of children) updates += Number(await settledWithin(SETTLED_MS, "the children", child.line()));
    const { slots: found } = await pawl.slots.list({ prefix: "hot/", limit: 100 });
    const total = found.reduce((sum, { value }) => sum + (value as number), 0);
    expect(total).toBe(6 * SLOTS * BIG + updates);
    // They did write all the time.
    expect(updates).toBeGreaterThan(500);
  } finally {
    await Promise.all(children.map((child) => child.kill()));
  }
});

/** Locks one of the rows after another, each for 30 ms, until it is over. */
async function lockOneByOne(client: pg.Client, prefix: string, isOver: () => boolean): Promise<void> {
  while (!isOver()) {
    const key = `${prefix}/${Math.floor(Math.random() * SLOTS)}`;
    await client.query(
      `begin; select from pawl.record where key = '${key}' for no key update; select pg_sleep(0.03); commit`,
    );
  }
  await client.end();
}

test("a decision over fifty slots of which some are locked at any time", async () => {
  // By chance, all five pause at once in about one of a million moments.
  const LOCKERS = 5;
  await using handle = await handleOn(database.url, { patienceMs: 12_000 });
  const { pawl } = handle;
  const slots = range(SLOTS).map((i) => pawl.slot<number>(`locked/${i}`, { initial: 0 }));
  // Made by another handle, so that nothing is known of them here.
  await using maker = await handleOn(database.url);
  await Promise.all(slots.map(({ name }) => maker.pawl.slot(name).set(0)));
  let isOver = false;
  const clients = range(LOCKERS).map(() => new pg.Client({ connectionString: database.url }));
  await Promise.all(clients.map((client) => client.connect()));
  const locking = clients.map((client) => lockOneByOne(client, "locked", () => isOver));
  await until(SETTLED_MS, "all of them have a lock", async () => {
    const text = "select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    return Number((await handle.pool.query(text)).rowCount) >= LOCKERS - 1;
  });
  try {
    const calls = [slots, slots.toReversed(), slots].map((all) =>
      pawl.transact(
        (tx) => {
          for (const slot of all) tx.slot(slot).update((n) => n + 1);
        },
        { touches: all },
      ),
    );
    // Those who want one row are not kept waiting for those who want all.
    const single = range(20).map((i) => pawl.slot(`other/${i}`).set(i));
    expect(await settledWithin(SETTLED_MS, "the calls", endsOf([...calls, ...single]))).toEqual({ ok: 23 });
  } finally {
    isOver = true;
    await Promise.all(locking);
  }
  const { slots: found } = await pawl.slots.list({ prefix: "locked/", limit: 100 });
  expect(found.map(({ value }) => value)).toEqual(range(SLOTS).map(() => 3));
});
