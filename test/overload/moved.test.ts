/**
 * Goal: a record that is never what the commit expects costs its caller patience, and no more: the call ends with `store_busy` when its
 * patience does, and the attempts until then have pauses between them (G34).
 * Method: a store whose commits always find that rows have moved, with time that only passes while a caller waits for it, so that every
 * attempt is counted and no attempt takes time. Then PostgreSQL, where a trigger skips each update and counts it.
 */

import { beforeAll, describe, expect, test } from "vitest";
import { address } from "../../src/kernel/contract.ts";
import { bench, codeOf } from "../kernel/kit.ts";
import { ownDatabase } from "../postgres/own-database.ts";
import { endOf, handleOn, settledWithin } from "./kit.ts";

const PATIENCE_MS = 300;
/** Pauses grow from about a millisecond to tens of them; without pauses there is no end of attempts. */
const MOST_ATTEMPTS = 120;
const at = address("test", "moving");

describe.each([1, 4])("where rows always move, with %d lanes", (lanes) => {
  const moving = () => {
    const { clock, store, kernel } = bench({ lanes, patienceMs: PATIENCE_MS });
    const decide = () => kernel.transact((tx) => tx.record(at).write({ value: 1 }), [at]);
    const start = async () => {
      // Known from then on, so that the next commit is tried without a read.
      await clock.finish(decide());
      const [row] = await store.inner.read([at]);
      if (row == null) throw new Error("the record is not there");
      kernel.hold(at, row);
      store.commit = async (batch) => {
        store.batches.push(batch);
        let verdict = batch.decide({ nowMs: clock.wallMs(), fenceFloor: 0, rows: batch.lock.map(() => row) });
        if ("lock" in verdict)
          verdict = batch.decide({ nowMs: clock.wallMs(), fenceFloor: 0, rows: verdict.lock.map(() => row) });
        return { committed: false, moved: [at] };
      };
      store.batches.length = 0;
      return clock.nowMs();
    };
    return { clock, store, kernel, decide, start };
  };

  test.each(["transact", "transactHeld"] as const)("%s ends with its patience, after a few attempts", async (way) => {
    const { clock, store, kernel, decide, start } = moving();
    const startMs = await start();
    const call = way === "transact" ? decide() : kernel.transactHeld((tx) => tx.record(at).write({ value: 2 }), at);
    expect(await clock.finish(codeOf(call))).toBe("store_busy");
    // At least its patience, and at most one pause more.
    expect(clock.nowMs() - startMs).toBeGreaterThanOrEqual(PATIENCE_MS);
    expect(clock.nowMs() - startMs).toBeLessThan(2 * PATIENCE_MS);
    expect(store.batches.length).toBeGreaterThan(2);
    expect(store.batches.length).toBeLessThan(MOST_ATTEMPTS);
  });

  test("all callers that need the record end, each with its own patience", async () => {
    const { clock, kernel, decide, start } = moving();
    const startMs = await start();
    const first = Array.from({ length: 50 }, () => codeOf(decide()));
    await clock.advance(PATIENCE_MS / 2);
    const second = Array.from({ length: 50 }, () => codeOf(decide()));
    expect(new Set(await clock.finish(Promise.all(first)))).toEqual(new Set(["store_busy"]));
    expect(clock.nowMs() - startMs).toBeLessThan(2 * PATIENCE_MS);
    expect(new Set(await clock.finish(Promise.all(second)))).toEqual(new Set(["store_busy"]));
    expect(clock.nowMs() - startMs).toBeLessThan(2.5 * PATIENCE_MS);
    await clock.finish(kernel.close());
  });
});

describe("where rows always move on PostgreSQL", () => {
  /** The machine may be busy; a call that ignored its patience took ten times as long as that said. */
  const SETTLED_MS = 120_000;
  const database = ownDatabase();
  beforeAll(async () => {
    await (await handleOn(database.url)).close();
    // What is skipped is not found to be as it was; a sequence counts also what is rolled back.
    await database.admin.query(`
      create sequence attempts;
      create function skip() returns trigger language plpgsql as $$ begin
        perform nextval('public.attempts'); return null; end $$;
      create trigger skip before update on pawl.record for each row when (old.key like 'moving%') execute function skip()`);
  });

  test("a call ends with its patience, after a few attempts", async () => {
    await using handle = await handleOn(database.url, { patienceMs: 1000 });
    const { pawl } = handle;
    const slot = pawl.slot<number>("moving", { initial: 0 });
    // It is made, which the trigger lets pass, and known from then on.
    await slot.set(1);
    expect(await settledWithin(SETTLED_MS, "the call", endOf(slot.set(2)))).toBe("store_busy");
    const { rows } = await database.admin.query<{ n: string }>("select last_value as n from attempts");
    expect(Number(rows[0]?.n)).toBeGreaterThan(2);
    // Pauses of tens of milliseconds for a second; without them it is tried a thousand times and more.
    expect(Number(rows[0]?.n)).toBeLessThan(300);
    // Others are not held up by it.
    const moving = endOf(slot.set(3));
    await pawl.slot("resting").set(1);
    expect(await settledWithin(SETTLED_MS, "the second call", moving)).toBe("store_busy");
  });
});
