/**
 * Traps around fences and tries: numbers that must increase, whatever happens to their record.
 */

import assert from "node:assert/strict";
import { DELETED_KEPT_MS } from "../../../src/kernel/contract.ts";
import { CLOCK } from "../../../src/stores/postgres/statements.ts";
import { type Arena, at, claimJob, makeJob, type Trap, trap } from "./arena.ts";

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

const DAY_MS = 24 * 60 * 60 * 1000;
const key = at("job");

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
