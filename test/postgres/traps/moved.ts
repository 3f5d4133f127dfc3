/**
 * Traps around rows that others change: what was read may be stale, and a former holder must not write.
 */

import assert from "node:assert/strict";
import { wake } from "../../../src/kernel/claim/claim.ts";
import type { Row } from "../../../src/kernel/contract.ts";
import type { Draft } from "../../../src/kernel/draft.ts";
import { FencedError } from "../../../src/kernel/errors.ts";
import type { Kernel } from "../../../src/kernel/kernel.ts";
import { changing, sleep } from "../../../src/testing/conformance/law-context.ts";
import { addOne, at, claimJob, commit, make, makeJob, type Trap, trap, within } from "./arena.ts";

export const moved: readonly Trap[] = [
  trap(
    "a wake-up raises the version and not the fence: a live holder continues, and does not sleep through it",
    async (arena) => {
      const [holder, other] = [await arena.kernel(), await arena.kernel()];
      const key = at("job");
      await makeJob(holder, key);
      const held = await claimJob(holder, key, "holder", 60_000);
      await other.transact((tx) => wake(tx, key), [key]);
      const [row] = await other.read([key]);
      assert.equal(row?.fence, held.fence);
      assert.equal(row?.holder, "holder");
      assert.ok((row?.dueMs ?? 0) > (await nowMs(other)) + 30_000, "the wake-up released the lease");
      await held.commit((record) => record.write({ value: "still mine" }));
      assert.equal(await held.rest(() => null), "woken");
      await held.look(() => undefined);
      assert.equal(await held.rest(() => null), "rested");
    },
  ),

  trap("a holder that was taken over appends and changes nothing, although it knows its row", async (arena) => {
    const [slow, quick] = [await arena.kernel(), await arena.kernel()];
    const late: readonly ((record: Draft) => void)[] = [
      (record) => record.append("said", "by who was taken over"),
      (record) => record.write({ value: "by who was taken over" }),
      (record) => record.write({ status: "by who was taken over" }),
    ];
    for (const [n, act] of late.entries()) {
      const key = at(`job ${n}`);
      await makeJob(slow, key);
      const lost = await claimJob(slow, key, "slow");
      const held = await claimJob(quick, key, "quick", 60_000);
      await assert.rejects(lost.commit(act), FencedError);
      assert.equal(await arena.entryCount(key), 0);
      await held.commit((record) => record.append("said", "by the holder"));
      assert.equal(await arena.entryCount(key), 1);
      assert.equal((await quick.read([key]))[0]?.status, null);
    }
  }),

  trap("a row that moves while it is being locked comes with its own head", async (arena) => {
    const { gate, url } = await arena.lookGate();
    const [late, quick] = [await arena.store({ url }), await arena.kernel()];
    await addOne(quick, at("row"));
    let seen: Row | null | undefined;
    // The absent key comes first: the statement stops there, with its snapshot taken.
    const looking = commit(late, [at("absent"), at("row")], ({ rows }) => {
      seen = rows[1];
      return [];
    });
    await gate.reached();
    await addOne(quick, at("row"));
    await gate.open();
    await within("the read is done", looking);
    assert.deepEqual([seen?.version, seen?.head, seen?.value], [2, 2, "2"]);
  }),

  trap("the clock is read after the last lock was acquired", async (arena) => {
    const { gate, url } = await arena.lookGate();
    const late = await arena.store({ url });
    let clockMs: number | null = 0;
    const looking = commit(late, [at("absent")], ({ nowMs }) => {
      clockMs = nowMs;
      return [];
    });
    await gate.reached();
    await sleep(100);
    const openedMs = Number(await arena.value("select floor(extract(epoch from clock_timestamp()) * 1000)"));
    await gate.open();
    const receipt = await within("the read is done", looking);
    assert.ok(clockMs >= openedMs, `the clock is ${openedMs - clockMs} ms old`);
    assert.ok(receipt.committed && receipt.nowMs >= openedMs);
  }),

  trap("a batch that knows its rows is refused when one of them moved, and names it", async (arena) => {
    const [one, two] = [await arena.store(), await arena.store()];
    await commit(one, [], () => [make(at("a")), make(at("b"))]);
    const [a, b] = await one.read([at("a"), at("b")]);
    assert.ok(a && b);
    assert.equal((await commit(two, [], () => [changing(b, { value: "theirs" })])).committed, true);
    const receipt = await commit(one, [], () => [changing(a, { value: "mine" }), changing(b, { value: "mine" })]);
    assert.ok(!receipt.committed);
    assert.deepEqual(
      receipt.moved.map(({ key }) => key),
      ["b"],
    );
    assert.deepEqual(
      (await one.read([at("a"), at("b")])).map((row) => row?.value),
      ["0", "theirs"],
    );
  }),
];

async function nowMs(kernel: Kernel): Promise<number> {
  return (await kernel.due({ kinds: [], limit: 1 })).nowMs;
}
