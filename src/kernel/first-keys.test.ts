// Goal: a store that is a round trip away is asked as seldom as can be: what is probably new is taken for absent, what a decision will ask for
// is foreseen, and several late records are asked for at once; and a guess that was wrong changes nothing but the number of round trips.
// Method: what reaches a store in memory with two lanes, batch by batch.

import { describe, expect, test } from "vitest";
import { bench, drained, gate } from "../../test/kernel/kit.ts";
import { trapAmbient } from "../node/trap.ts";
import { address, newAddress } from "./contract.ts";
import type { Decision } from "./decision.ts";

const a = address("n", "a");
const b = address("n", "b");

/** Adds one, and answers the sum. */
const add =
  (at = a): Decision<number> =>
  (tx) => {
    const record = tx.record(at);
    const sum = Number(record.value ?? 0) + 1;
    record.write({ value: sum });
    return sum;
  };

const locksOf = (store: ReturnType<typeof bench>["store"]): readonly (readonly string[])[] =>
  store.batches.map(({ lock }) => lock.map(({ key }) => key));

describe("what is probably new", () => {
  test("is made without a look, where a look is a round trip", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    expect(await kernel.transact(add(), [newAddress(a)])).toBe(1);
    expect(locksOf(store)).toEqual([[]]);
    expect(store.batches[0]?.needsClock).toBe(false);
  });

  test("has the time in whole milliseconds, as it was heard a moment ago, and no later than the lease needs", async () => {
    const { kernel, store, clock } = bench({ lanes: 2 });
    await kernel.transact((tx) => tx.nowMs, [b]);
    const heardMs = clock.wallMs();
    await clock.advance(40.75);
    // As a server that is not asked for it.
    store.found = (found) => ({ ...found, nowMs: null });
    const times = await kernel.transact(
      (tx) => {
        tx.record(newAddress(a)).write({ value: 1 });
        return [tx.approxNowMs, tx.nowUpperBoundMs];
      },
      [newAddress(a)],
    );
    expect(times).toEqual([heardMs + 40, heardMs + 1_000]);
    expect(locksOf(store).at(-1)).toEqual([]);
  });

  test("has the time also where decisions are checked for purity", async () => {
    const { kernel, store } = bench({ lanes: 2, trap: trapAmbient });
    await kernel.transact((tx) => tx.nowMs, [b]);
    store.found = (found) => ({ ...found, nowMs: null });
    const decide: Decision<number> = (tx) => {
      tx.record(newAddress(a)).write({ value: 1 });
      return tx.nowUpperBoundMs - tx.approxNowMs;
    };
    expect(await kernel.transact(decide, [newAddress(a)])).toBe(1000);
  });

  test("is looked for where that costs nothing", async () => {
    const { kernel, store } = bench();
    expect(await kernel.transact(add(), [newAddress(a)])).toBe(1);
    expect(locksOf(store)).toEqual([["a"]]);
  });

  test("is found under the lock where the guess was wrong, and for a while no other is made", async () => {
    const { kernel, store, peer } = bench({ lanes: 2 });
    await peer().transact(add(), [a]);
    expect(await kernel.transact(add(), [newAddress(a)])).toBe(2);
    expect(locksOf(store)).toEqual([[], ["a"]]);
    await kernel.transact(add(b), [newAddress(b)]);
    expect(locksOf(store).at(-1)).toEqual(["b"]);
    let guesses = 0;
    for (let i = 0; i < 300; i++) {
      const at = address("m", String(i));
      await kernel.transact(add(at), [newAddress(at)]);
      if (locksOf(store).at(-1)?.length === 0) guesses += 1;
    }
    expect(guesses).toBeGreaterThan(100);
    expect(guesses).toBeLessThan(200);
  });

  test("is found also where it was removed and its row is still there", async () => {
    const { kernel, store, peer } = bench({ lanes: 2 });
    const other = peer();
    await other.transact(add(), [a]);
    await other.transact((tx) => tx.record(a).remove(), [a]);
    expect(await kernel.transact((tx) => [add()(tx), tx.record(a).version], [newAddress(a)])).toEqual([1, 3]);
    expect(locksOf(store)).toEqual([[], ["a"]]);
  });

  test("is looked for where the decision only looks: nobody else would notice that it is there", async () => {
    const { kernel, store, peer } = bench({ lanes: 2 });
    await peer().transact(add(), [a]);
    expect(await kernel.transact((tx) => tx.record(a).exists, [newAddress(a)])).toBe(true);
    expect(locksOf(store).at(-1)).toEqual(["a"]);
  });

  test("and is asked for twice at once, is made by one and seen by the other", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    const sums = [kernel.transact(add(), [newAddress(a)]), kernel.transact(add(), [newAddress(a)])];
    expect(await Promise.all(sums)).toEqual([1, 2]);
    expect(locksOf(store)).toEqual([[]]);
  });
});

describe("what a decision will ask for", () => {
  test("is foreseen where it named nothing", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    expect(await kernel.transact(add(), [])).toBe(1);
    expect(locksOf(store)).toEqual([["a"]]);
  });

  test("is foreseen as far as it asks for at first, and the rest is asked for when it comes", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    const asked: string[][] = [];
    store.found = (found, keys) => {
      asked.push(keys.map(({ key }) => key));
      return found;
    };
    const both: Decision<readonly number[]> = (tx) => [add()(tx), add(b)(tx)];
    expect(await kernel.transact(both, [])).toEqual([1, 1]);
    expect(asked).toEqual([["a"], ["b"]]);
  });

  test("is looked for once, although the decision is passed over by those who know their records", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    await kernel.transact(add(b), [b]);
    const underWay = gate();
    store.commits.push(async (batch, pass) => {
      await underWay.opened;
      return pass(batch);
    });
    const inOneLane = kernel.transact(add(), [a]);
    await drained();
    let runs = 0;
    const inTheOther = [kernel.transact(add(b), [b]), kernel.transact(() => ++runs, [])];
    await Promise.all(inTheOther);
    expect(runs).toBe(2);
    underWay.open();
    await inOneLane;
  });

  test("is the same as if it had not been: chance, and what it comes to", async () => {
    const { kernel } = bench({ lanes: 2 });
    const seen: string[] = [];
    const drawn = await kernel.transact((tx) => {
      const uuid = tx.uuid();
      seen.push(uuid);
      add()(tx);
      return uuid;
    }, []);
    expect(seen.length).toBeGreaterThan(1);
    expect(new Set(seen)).toEqual(new Set([drawn]));
    expect(await kernel.transact(add(), [a])).toBe(2);
  });
});

test("several late records are asked for at once", async () => {
  const { kernel, store } = bench({ lanes: 2 });
  const both: Decision<readonly number[]> = (tx) => {
    tx.load([a, b]);
    return [add(a)(tx), add(b)(tx)];
  };
  expect(await kernel.transact(both, [])).toEqual([1, 1]);
  expect(locksOf(store)).toEqual([["a", "b"]]);
});
