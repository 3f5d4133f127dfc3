/**
 * Goal: closing a handle does not wait for the user's SQL longer than it says. A transaction that is still open then is rolled back, on the server too, and its
 * caller gets to know that; one whose COMMIT was sent is never dropped, and a step that was dropped is run again by a peer.
 * Method: work that never settles, in each place where it can be, on PostgreSQL and SQLite; for the kernel, the seconds of closing pass quickly, and the store has
 * real ones. Nothing but closing ends a transaction on PostgreSQL here.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Pawl, workflow } from "../../src/index.ts";
import { CLOSING_MS } from "../../src/kernel/closing.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { FaultyProxy } from "../faults/proxy.ts";
import { connect, poolOn } from "../postgres/kit.ts";
import { type Ground, grounds, postgresGround, refusal, sleep } from "./grounds.ts";
import { type Pair, pairOn } from "./pairs.ts";

/** How long a transaction may be open on PostgreSQL, so that nothing else ends it. */
const HOUR_MS = 3_600_000;

const never = (): Promise<never> => new Promise(() => {});

/** The seconds of closing pass quickly. */
const quick: Ports = {
  ...nodePorts,
  clock: {
    ...nodePorts.clock,
    nowMs: () => nodePorts.clock.nowMs(),
    after: (ms, callback) => nodePorts.clock.after(ms > CLOSING_MS / 2 && ms <= CLOSING_MS ? 50 : ms, callback),
    soon: (callback) => nodePorts.clock.soon(callback),
  },
};

/** A handle of the test's own, whose store has the real clock. */
async function openOn(where: string): Promise<{ pawl: Pawl; close: () => Promise<void> }> {
  const common = { namespace: "default", durability: "full", patienceMs: 30_000, ports: nodePorts } as const;
  if (!where.startsWith("postgres")) {
    const pawl = pawlOn(await openSqlite({ ...common, path: where, wallMs }), quick, common);
    return { pawl, close: () => pawl.close() };
  }
  const pool = poolOn(where, 4);
  const pawl = pawlOn(await connect(where, { ...common, pool, sharedMs: HOUR_MS }), quick, common);
  return { pawl, close: () => pawl.close().then(() => pool.end()) };
}

const closed = { code: "closed", message: expect.stringMatching(/was rolled back, and nothing of it was committed/) };

describe.each(grounds)("closing on %s", (_, arrive) => {
  let ground: Ground;
  let pair: Pair;
  beforeAll(async () => {
    ground = await arrive();
    pair = await pairOn(ground);
  });
  afterAll(() => ground.leave());

  test("rolls back work that never settles, and its caller gets to know that", async () => {
    const { pawl, close } = await openOn(ground.where);
    const begun = Promise.withResolvers<void>();
    const call = refusal(() =>
      pawl.transact.sql(async (sql, tx) => {
        await pair.insert(sql, "never");
        await tx((tx) => tx.slot(pawl.slot(pair.slot)).set("never"));
        begun.resolve();
        await never();
      }),
    );
    await begun.promise;
    await close();
    expect(await call).toMatchObject(closed);
    expect(await pair.found()).toEqual([[], ""]);
  });

  test("lets work finish that does so in time", async () => {
    const { pawl, close } = await openOn(ground.where);
    const begun = Promise.withResolvers<void>();
    const finish = Promise.withResolvers<void>();
    const call = pawl.transact.sql(async (sql, tx) => {
      await pair.insert(sql, "in time");
      begun.resolve();
      await finish.promise;
      await tx((tx) => tx.slot(pawl.slot(pair.slot)).set("in time"));
      return "done";
    });
    await begun.promise;
    const closing = close();
    finish.resolve();
    await closing;
    expect(await call).toBe("done");
    expect(await pair.found()).toEqual([["in time"], "in time"]);
  });

  test.each([
    { how: "when the worker was stopped before", isStopped: true },
    { how: "when the handle is closed with its worker", isStopped: false },
  ])("a step.tx that is dropped is run again by a peer, $how", async ({ isStopped }) => {
    const { pawl, close } = await openOn(ground.where);
    const steps = await pairOn(ground);
    const begun = Promise.withResolvers<void>();
    let attempts = 0;
    const pay = workflow("pay", async (ctx) =>
      ctx.step.tx("insert", async (sql) => {
        await steps.insert(sql, "paid");
        begun.resolve();
        attempts += 1;
        if (attempts === 1) await never();
        return "paid";
      }),
    );
    const worker = pawl.work([pay], { lease: 1000 });
    const id = `pay ${isStopped}`;
    await pawl.start(pay, undefined, { id });
    await begun.promise;
    if (isStopped) await worker.stop({ timeout: 10 });
    await close();
    expect((await steps.found())[0]).toEqual([]);
    await using peer = await ground.open();
    peer.work([pay]);
    expect(await peer.run(pay, id).result()).toBe("paid");
    expect((await steps.found())[0]).toEqual(["paid"]);
    expect(attempts).toBe(2);
  });
});

describe("closing on PostgreSQL alone", () => {
  let ground: Ground;
  let pair: Pair;
  beforeAll(async () => {
    ground = await postgresGround();
    pair = await pairOn(ground);
  });
  afterAll(() => ground.leave());

  test("ends a statement on the server, so that its locks are free", async () => {
    const { pawl, close } = await openOn(ground.where);
    const inserted = Promise.withResolvers<void>();
    const call = refusal(() =>
      pawl.transact.sql(async (sql) => {
        await pair.insert(sql, "locked");
        inserted.resolve();
        await sql.query("select pg_sleep(600)");
      }),
    );
    await inserted.promise;
    await close();
    expect(await call).toMatchObject(closed);
    // Another transaction that inserts the same id waits until the first one has ended.
    const other = await ground.connect();
    await other.query("set lock_timeout = '10s'");
    await other.query(`insert into ${pair.table} values (?)`, "locked");
    await other.query(`delete from ${pair.table}`);
    await other.end();
  });

  test("refuses work that waits for a connection", async () => {
    const pool = poolOn(ground.where, 1);
    const pawl = pawlOn(await connect(ground.where, { pool, namespace: "default" }), quick, { namespace: "default" });
    await pawl.transact.sql(async () => {});
    const theirs = await pool.connect();
    const call = refusal(() => pawl.transact.sql(() => never()));
    await sleep(10);
    const closing = pawl.close();
    expect(await call).toMatchObject(closed);
    theirs.release();
    await closing;
    await pool.end();
  });

  test("does not drop a transaction whose COMMIT was sent", async () => {
    const proxy = await FaultyProxy.start(Number(new URL(ground.where).port));
    const { pawl, close } = await openOn(proxy.urlOf(ground.where));
    await pawl.transact.sql(async () => {});
    const call = pawl.transact.sql(async (sql) => {
      await pair.insert(sql, "sent");
      // Much longer than closing waits here, and so is what follows the call.
      proxy.delayCommitReply(500);
      return "sent";
    });
    await expect.poll(() => proxy.counts.commitRepliesDelayed, { interval: 1 }).toBe(1);
    await close();
    expect(await call).toBe("sent");
    expect(await pair.found()).toEqual([["sent"], ""]);
    await proxy.close();
  });
});
