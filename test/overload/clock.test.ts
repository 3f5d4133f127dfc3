/**
 * Goal: when the server's clock jumps ahead by a month, and a sweep removes live marks as old ones, a call whose reply was lost still
 * does not report that nothing was written if it was, and its decision does not run twice (G2, G17).
 * Method: the reply to a COMMIT is lost in a proxy. Settling is held back until the clock has jumped and another
 * handle has swept. Afterwards, the caller's result is compared with what is stored.
 */

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { nodePorts } from "../../src/node/ports.ts";
import { type Pawl, pawlOn } from "../../src/pawl.ts";
import { CLOCK } from "../../src/stores/postgres/statements.ts";
import { FaultyProxy } from "../faults/proxy.ts";
import { connect, poolOn } from "../postgres/kit.ts";
import { ownDatabase } from "../postgres/own-database.ts";
import { WatchedPool } from "../postgres/watched.ts";
import { endOf, handleOn, settledWithin, until } from "./kit.ts";

const DAY_MS = 24 * 60 * 60 * 1000;
const SETTLED_MS = 120_000;
/** As the store has it: the server's clock, and a shift that the test changes. */
const SHIFTED = `(${CLOCK} + (select ms from public.shift))`;
/** The train in which a lane asks where it stands. */
const isSettle = (texts: readonly string[]): boolean => texts.some((text) => /\bepoch = w\.epoch \+ 1\b/.test(text));

const database = ownDatabase();
let proxy: FaultyProxy;
beforeAll(async () => {
  await database.admin.query("create table public.shift as select 0::bigint as ms; create table orders (id text)");
  proxy = await FaultyProxy.start(Number(new URL(database.url).port));
});
afterAll(async () => {
  await proxy.close();
});
beforeEach(() => database.admin.query("update public.shift set ms = 0"));

/** Loses the reply of the next commit, and lets a sweep pass by, so many days later, before the outcome is asked for. */
async function lose(days: number, act: (pawl: Pawl) => Promise<unknown>): Promise<string> {
  const pool = poolOn(proxy.urlOf(database.url), 4);
  const watched = new WatchedPool(pool);
  const store = await connect(database.url, { pool: watched, clock: SHIFTED, patienceMs: 5000 });
  const pawl = pawlOn(store, nodePorts, { namespace: "default", patienceMs: 5000 });
  const sweeper = await connect(database.url, { clock: SHIFTED });
  try {
    // Lanes are settled before, so that the next COMMIT is that of the call, and the next to settle is whoever lost its reply.
    await act(pawl);
    await watched.quiet();
    const settling = watched.hold(isSettle);
    const droppedBefore = proxy.counts.commitRepliesDropped;
    proxy.dropCommitReplies(1);
    const end = endOf(act(pawl));
    await settledWithin(SETTLED_MS, "the outcome is requested", settling.reached);
    expect(proxy.counts.commitRepliesDropped - droppedBefore).toBe(1);
    await database.admin.query("update public.shift set ms = $1", [days * DAY_MS]);
    await sweeper.sweep(1000);
    settling.open();
    return await settledWithin(SETTLED_MS, "the call", end);
  } finally {
    proxy.disarm();
    await pawl.close();
    await pool.end();
    await sweeper.close();
  }
}

/** What a caller may be told, for what is stored of its second call. */
const truths = ["ok, stored once", "outcome_unknown, stored once", "outcome_unknown, not stored"];

describe.each([0, 1, 31, 400])("a reply that is lost before the clock jumps by %d days", (days) => {
  test("a commit", async () => {
    const name = `after ${days} days`;
    const told = await lose(days, (pawl) => pawl.slot<number>(name, { initial: 0 }).update((n) => n + 1));
    await using reader = await handleOn(database.url, { clock: SHIFTED });
    const { value = 0 } = await reader.pawl.slot<number>(name).get();
    const stored = value === 2 ? "stored once" : value === 1 ? "not stored" : `stored ${value - 1} times`;
    expect(truths).toContain(`${told}, ${stored}`);
    // Where no mark was lost, the outcome is known.
    if (days < 2) expect(told).toBe("ok");
  });

  test("a transact.sql", async () => {
    const name = `sql after ${days} days`;
    const told = await lose(days, (pawl) =>
      pawl.transact.sql((sql) => sql.query("insert into orders values ($1)", [name])),
    );
    const { rowCount } = await database.admin.query("select from orders where id = $1", [name]);
    const stored =
      rowCount === 2 ? "stored once" : rowCount === 1 ? "not stored" : `stored ${Number(rowCount) - 1} times`;
    expect(truths).toContain(`${told}, ${stored}`);
    if (days < 2) expect(told).toBe("ok");
  });
});

test("a handle whose marks were swept continues", async () => {
  const store = await connect(database.url, { clock: SHIFTED });
  const pawl = pawlOn(store, nodePorts, { namespace: "default", patienceMs: 20_000 });
  const sweeper = await connect(database.url, { clock: SHIFTED });
  const slot = pawl.slot<number>("works on", { initial: 0 });
  await slot.update((n) => n + 1);
  await pawl.transact.sql((sql) => sql.query("insert into orders values ('works on')"));
  await database.admin.query("update public.shift set ms = $1", [400 * DAY_MS]);
  await sweeper.sweep(1000);
  await slot.update((n) => n + 1);
  expect((await slot.get()).value).toBe(2);
  // This one may be told once that it did not happen, and then it did not.
  let rows = 1;
  await until(SETTLED_MS, "transact.sql works", async () => {
    const end = await endOf(pawl.transact.sql((sql) => sql.query("insert into orders values ('works on')")));
    if (end === "ok") rows += 1;
    return end === "ok";
  });
  expect((await database.admin.query("select from orders where id = 'works on'")).rowCount).toBe(rows);
  await pawl.close();
  await sweeper.close();
});
