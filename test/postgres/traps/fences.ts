/**
 * Traps around fences and tries: numbers that must increase, whatever happens to their record.
 */

import assert from "node:assert/strict";
import { nextFence } from "../../../src/kernel/claim/decide.ts";
import { DELETED_KEPT_MS, type Executor, type Found } from "../../../src/kernel/contract.ts";
import type { Kernel } from "../../../src/kernel/kernel.ts";
import { CLOCK } from "../../../src/stores/postgres/statements.ts";
import { isCommit } from "../watched.ts";
import { type Arena, at, claimJob, make, makeJob, type Trap, trap, until, within } from "./arena.ts";

const key = at("job");

/** A clock that the test sets: the server's, and a shift. */
async function movedClock(arena: Arena): Promise<{ clock: string; shift(ms: number): Promise<unknown> }> {
  const table = `public."shift ${arena.schema}"`;
  await arena.sql(`create table ${table} as select 0::bigint as ms`);
  arena.atEnd(() => arena.sql(`drop table ${table}`));
  return {
    clock: `(${CLOCK} + (select ms from ${table}))`,
    shift: (ms) => arena.sql(`update ${table} set ms = $1`, [ms]),
  };
}

/** Makes a record that has a fence, and returns that. */
const create = (kernel: Kernel): Promise<number> =>
  kernel.transact(
    (tx) => {
      const fence = nextFence(0, tx.fenceFloor);
      tx.record(key).write({ value: 0, fence });
      return fence;
    },
    [key],
  );

const DAY_MS = 24 * 60 * 60 * 1000;

export const fences: readonly Trap[] = [
  trap(
    "fences continue above a deleted record, and above one that was swept, although the clock stepped back",
    async (arena) => {
      const { clock, shift } = await movedClock(arena);
      const store = await arena.store({ clock });
      const kernel = arena.kernelOn(store);
      await makeJob(kernel, key);
      const first = await claimJob(kernel, key, "first");
      const remove = () => kernel.transact((tx) => tx.record(key).remove(), [key]);

      await remove();
      await shift(-2 * DAY_MS);
      await makeJob(kernel, key);
      const second = await claimJob(kernel, key, "second");
      assert.ok(second.fence > first.fence, `${second.fence} came after ${first.fence}`);

      await remove();
      await shift(DELETED_KEPT_MS + DAY_MS);
      assert.equal(await store.sweep(10), 1);
      await shift(-30 * DAY_MS);
      await makeJob(kernel, key);
      const third = await claimJob(kernel, key, "third");
      assert.ok(third.fence > second.fence, `${third.fence} came after ${second.fence}`);
    },
  ),

  trap(
    "fences continue above a record that came, was removed and was swept while its key was absent",
    async (arena) => {
      const pool = arena.watched();
      const slow = await arena.kernel({ pool });
      const store = await arena.store();
      const other = arena.kernelOn(store);
      const held = pool.hold(isCommit);
      const creating = create(slow);
      await within("the slow one has decided", held.reached);
      const fence = await create(other);
      await other.transact((tx) => tx.record(key).remove(0), [key]);
      await until("it is swept", async () => (await store.sweep(10)) === 1);
      held.open();
      const later = await within("the slow one has created it", creating);
      assert.ok(later > fence, `${later} came after ${fence}`);
    },
  ),

  trap("so they do in a transaction of the application", async (arena) => {
    const store = await arena.store();
    const client = await arena.client();
    const fenceOf = (found: Found): number => Math.max(Number(found.nowMs), found.fenceFloor);
    let fence = 0;
    // Before the statement that writes, another process creates the record, removes it and sweeps.
    const executor: Executor = async (text, value) => {
      if (text.includes("inserted as") && fence === 0) {
        const other = arena.kernelOn(await arena.store());
        fence = await create(other);
        await other.transact((tx) => tx.record(key).remove(0), [key]);
        await until("it is swept", async () => (await store.sweep(10)) === 1);
      }
      return (await client.query(text, value === undefined ? [] : [value])).rows as readonly unknown[];
    };
    await client.query("begin");
    const join = () =>
      store.join(executor, {
        lock: [key],
        decide: (found) => {
          const put = make(key);
          return { puts: [{ ...put, row: { ...put.row, fence: fenceOf(found) } }] };
        },
      });
    assert.equal((await join()).written, false);
    assert.equal((await join()).written, true);
    await client.query("commit");
    assert.ok(Number(await arena.value(`select fence from ${arena.s}.record`)) > fence);
  }),

  trap("fences continue above those of a database that was restored", async (arena) => {
    const kernel = await arena.kernel();
    await makeJob(kernel, key);
    const before = await claimJob(kernel, key, "before");
    // What a backup from before the record was made would restore.
    await arena.sql(`delete from ${arena.s}.record; delete from ${arena.s}.meta where name = 'fence_floor'`);
    await makeJob(kernel, key);
    const after = await claimJob(kernel, key, "after");
    assert.ok(after.fence > before.fence, `${after.fence} came after ${before.fence}`);
  }),

  trap("a claim is counted when it is made, so a process that crashes on it is counted too", async (arena) => {
    const [dying, other] = [await arena.kernel(), await arena.kernel()];
    await makeJob(dying, key);
    assert.equal((await claimJob(dying, key, "dying")).tries, 1);
    assert.equal((await claimJob(other, key, "other")).tries, 2);
    assert.equal(await arena.value(`select tries::int from ${arena.s}.record`), 2);
  }),
];
