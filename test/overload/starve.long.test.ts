/**
 * Goal: slow SQL of the user's costs its own callers time, and nothing else: leases are renewed, claims and commits continue, and callers
 * that wait for `transact.sql` are served in order or get an error with the reason (G34).
 * Method: many slow works on a pool of ten and on one of two, while a lock is held under a short lease, slots are written and runs are
 * worked on. Then works that keep all places of `transact.sql`, and callers whose patience ends.
 */

import { describe, expect, test } from "vitest";
import { StoreError, workflow } from "../../src/index.ts";
import type { Pawl } from "../../src/pawl.ts";
import { ownDatabase } from "../postgres/own-database.ts";
import { endsOf, handleOn, range, settledWithin, sleep, until } from "./kit.ts";

/** Everything is done in less than half of it on a machine with nothing else to do. */
const SETTLED_MS = 120_000;
const TIMEOUT_MS = 300_000;

const database = ownDatabase();

/** What goes on beside the slow works, until `ended` says so: each part returns how much it did, or throws. */
async function lifeBeside(pawl: Pawl, name: string, ended: () => boolean): Promise<{ slots: number; runs: number }> {
  const two = workflow(`${name} two`, async (ctx, n: number) => {
    const one = await ctx.step("one", async () => n + 1);
    return ctx.step("two", async () => one + 1);
  });
  // The leases of runs are short too.
  const worker = pawl.work([two], { lease: LEASE_MS });
  const locking = pawl.lock(
    `${name}/held`,
    async ({ abortSignal }) => {
      while (!ended()) {
        await sleep(50);
        abortSignal.throwIfAborted();
      }
    },
    { lease: LEASE_MS },
  );
  const writing = async () => {
    const slot = pawl.slot<number>(`${name}/n`, { initial: 0 });
    let count = 0;
    for (; !ended(); await sleep(20), count++) await slot.update((n) => n + 1);
    expect((await slot.get()).value).toBe(count);
    return count;
  };
  const running = async () => {
    let count = 0;
    for (; !ended(); await sleep(50), count++)
      expect(await (await pawl.start(two, count, { id: `${name} ${count}` })).result()).toBe(count + 2);
    return count;
  };
  try {
    const [slots, runs] = await Promise.all([writing(), running(), locking]);
    return { slots, runs };
  } finally {
    await worker.stop();
  }
}

/** Short, but many times what a renewal takes on a busy machine. */
const LEASE_MS = 3000;

describe("beside slow works of transact.sql", () => {
  test.each([
    // Without a limit, the last of the works is begun after about 6 s, and whoever comes behind it waits as long.
    { max: 10, works: 120, seconds: 0.5 },
    // A connection for the works and one for everything else.
    { max: 2, works: 24, seconds: 0.5 },
  ])(
    "$works of $seconds s on a pool of $max, locks, slots and runs continue",
    { timeout: TIMEOUT_MS },
    async ({ max, works, seconds }) => {
      const name = `pool of ${max}`;
      await using handle = await handleOn(database.url, { max });
      const { pawl } = handle;
      let isOver = false;
      const life = lifeBeside(pawl, name, () => isOver);
      // Nobody is refused: patience is 30 s, and all of it takes less.
      const slow = range(works).map((i) =>
        pawl.transact.sql(async (sql, tx) => {
          await sql.query("select pg_sleep($1)", [seconds]);
          await tx((tx) => tx.slot(pawl.slot(`${name}/sql/${i}`)).set(i));
        }),
      );
      const ended = endsOf(slow).finally(() => {
        isOver = true;
      });
      const { slots, runs } = await settledWithin(SETTLED_MS, "other work meanwhile", life);
      expect(await ended).toEqual({ ok: works });
      // The works take at least two seconds in all; a call that waited for them would not be made twice.
      expect(slots).toBeGreaterThan(10);
      expect(runs).toBeGreaterThan(3);
    },
  );
});

describe("callers that wait for transact.sql", () => {
  test("are served in order", { timeout: TIMEOUT_MS }, async () => {
    // Of two connections one is left to Pawl, so there is one place.
    await using handle = await handleOn(database.url, { max: 2 });
    const begun: number[] = [];
    const calls = range(12).map((i) =>
      handle.pawl.transact.sql(async (sql) => {
        begun.push(i);
        await sql.query("select pg_sleep(0.01)");
      }),
    );
    expect(await settledWithin(SETTLED_MS, "the calls", endsOf(calls))).toEqual({ ok: 12 });
    expect(begun).toEqual(range(12));
  });

  test.each([2, 4, 10])(
    "on a pool of %d get an error when their patience ends, with what they waited for",
    { timeout: TIMEOUT_MS },
    async (max) => {
      await using handle = await handleOn(database.url, { max, patienceMs: 2000 });
      const { pawl } = handle;
      await pawl.transact.sql(async () => {});
      const release = Promise.withResolvers<void>();
      const all = max + 5;
      let begun = 0;
      const errors: unknown[] = [];
      const calls = range(all).map(async () => {
        try {
          await pawl.transact.sql(() => {
            begun += 1;
            return release.promise;
          });
        } catch (error) {
          errors.push(error);
          throw error;
        }
      });
      const ended = endsOf(calls);
      await until(SETTLED_MS, "all who wait were told", () => begun + errors.length === all && errors.length > 0);
      // The rest of the handle did not notice.
      await pawl.slot(`beside ${max}`).set(1);
      release.resolve();
      expect(begun).toBeGreaterThan(0);
      expect(begun).toBeLessThan(max);
      for (const error of errors) {
        expect(error).toBeInstanceOf(StoreError);
        expect(error).toMatchObject({ code: "store_busy" });
        expect((error as Error).message).toMatch(/transact\.sql/);
        expect((error as Error).message).not.toMatch(/reach/);
      }
      const ends = await settledWithin(SETTLED_MS, "those who were served", ended);
      expect(ends).toEqual({ ok: begun, store_busy: all - begun });
    },
  );

  test("a caller that gives up leaves its place in line to the next", { timeout: TIMEOUT_MS }, async () => {
    await using handle = await handleOn(database.url, { max: 2, patienceMs: 3000 });
    const { pawl } = handle;
    const release = Promise.withResolvers<void>();
    const first = pawl.transact.sql(() => release.promise);
    const second = pawl.transact.sql(async () => "second");
    // Whoever comes much later has patience left when the second has none.
    await sleep(2000);
    const third = pawl.transact.sql(async () => "third");
    await expect(second).rejects.toMatchObject({ code: "store_busy" });
    release.resolve();
    expect(await settledWithin(SETTLED_MS, "the third", third)).toBe("third");
    await first;
  });
});

describe("2,000 concurrent calls of transact.sql", () => {
  test("all succeed, and do not leave a mark each", { timeout: TIMEOUT_MS }, async () => {
    const namespace = "many";
    await using handle = await handleOn(database.url, { namespace });
    const { pawl } = handle;
    const calls = range(2000).map(() => pawl.transact.sql(async () => {}));
    expect(await settledWithin(SETTLED_MS, "the calls", endsOf(calls))).toEqual({ ok: 2000 });
    const text = "select count(*)::int as n from pawl.writer where namespace = $1";
    const marks = (await database.admin.query<{ n: number }>(text, [namespace])).rows[0]?.n;
    // A lane for each place of the pool, those of batches, and a few that are no lanes.
    expect(marks).toBeLessThanOrEqual(20);
  });
});
