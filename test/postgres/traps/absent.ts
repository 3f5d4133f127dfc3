/**
 * Traps around absent records: a row lock does not protect an absent row.
 */

import assert from "node:assert/strict";
import type { Kernel } from "../../../src/kernel/kernel.ts";
import type { PostgresStore } from "../../../src/stores/postgres/postgres.ts";
import { isCommit } from "../watched.ts";
import { addOne, at, commit, type Trap, trap, until, within } from "./arena.ts";

/** Makes one of two records if the other is not there. */
const makeUnless = (kernel: Kernel, mine: string, other: string): Promise<boolean> =>
  kernel.transact(
    (tx) => {
      if (tx.record(at(other)).exists) return false;
      tx.record(at(mine)).write({ value: mine });
      return true;
    },
    [at(mine), at(other)],
  );

/** What a batch is told of these keys when it asks for their locks. */
async function lookAt(store: PostgresStore, ...keys: readonly string[]): Promise<readonly string[]> {
  let seen: readonly string[] = [];
  await commit(
    store,
    keys.map((key) => at(key)),
    ({ rows }) => {
      seen = rows.map((row) => (row === undefined ? "not read" : row === null ? "absent" : "there"));
      return [];
    },
  );
  return seen;
}

export const absent: readonly Trap[] = [
  trap("two creators of one absent key: the one that writes later finds what the other created", async (arena) => {
    const pool = arena.watched();
    const first = await arena.kernel({ pool });
    const store = await arena.store();
    const held = pool.hold(isCommit);
    const making = addOne(first, at("k"));
    await within("the first has read", held.reached);
    assert.equal(await within("the second is done", addOne(arena.kernelOn(store), at("k"))), 1);
    held.open();
    assert.equal(await within("the first is done", making), 2);
    assert.equal(await arena.entryCount(at("k")), 2);
  }),

  trap("an absence that was only read holds until the commit, even if that takes long", async (arena) => {
    const one = await arena.kernel();
    const store = await arena.store();
    const gate = await arena.commitGate("x");
    const first = makeUnless(one, "x", "y");
    await gate.reached();
    assert.deepEqual(await lookAt(store, "x", "y"), ["absent", "absent"]);
    const second = makeUnless(arena.kernelOn(store), "y", "x");
    let isDone = false;
    void second.then(() => {
      isDone = true;
    });
    await until("the second waits, or is done", async () => isDone || (await arena.waitingFor("transactionid")) > 0);
    await gate.open();
    assert.deepEqual(await within("both are done", Promise.all([first, second])), [true, false]);
  }),

  trap("a key that appears between read and write: its second creator is retried", async (arena) => {
    const { gate, url } = await arena.lookGate();
    const [late, quick] = [await arena.kernel({ url }), await arena.kernel()];
    const adding = addOne(late, at("k"));
    await gate.reached();
    await addOne(quick, at("k"));
    await gate.open();
    assert.equal(await within("the late one is done", adding), 2);
    assert.equal(await arena.entryCount(at("k")), 2);
  }),

  trap(
    "a key that appears between read and write: a batch that only read its absence writes nothing",
    async (arena) => {
      const { gate, url } = await arena.lookGate();
      const [late, quick] = [await arena.kernel({ url }), await arena.kernel()];
      const first = makeUnless(late, "y", "x");
      await gate.reached();
      assert.equal(await makeUnless(quick, "x", "y"), true);
      await gate.open();
      assert.equal(await within("the late one is done", first), false);
    },
  ),

  trap(
    "a key that appears between read and write: a batch that writes nothing does not report it as absent",
    async (arena) => {
      const { gate, url } = await arena.lookGate();
      const late = await arena.store({ url });
      const quick = await arena.kernel();
      const looking = commit(late, [at("k")], () => []);
      await gate.reached();
      await addOne(quick, at("k"));
      await gate.open();
      const receipt = await within("the read is done", looking);
      assert.deepEqual(receipt, { committed: false, moved: [at("k")] });
    },
  ),
];
