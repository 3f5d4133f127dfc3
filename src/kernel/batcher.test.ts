/**
 * Goal: whatever the store does, every caller hears once, what it hears is true, and what was decided is there once.
 * Method: kernels on a store that fails as told (test/kernel/kit.ts), with a clock that is moved by hand. Most tests
 * count on one record: a decision that took effect twice, or not at all, shows in the sum.
 */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  a,
  add,
  b,
  c,
  failing,
  hasEnded,
  held,
  hold,
  lostReply,
  lostRequest,
  sumOf,
} from "../../test/kernel/batches.ts";
import { bench, codeOf, drained, gate, textsOf } from "../../test/kernel/kit.ts";
import type { Batch, Receipt } from "./contract.ts";
import { type Address, address } from "./contract.ts";
import type { Decision } from "./decision.ts";

describe("group commit", () => {
  test("a caller hears only after the commit, whether its decision returned or threw", async () => {
    const { kernel, store } = bench();
    const replied = gate();
    store.commits.push(async (batch, pass) => {
      const receipt = await pass(batch);
      await replied.opened;
      return receipt;
    });
    const yes = kernel.transact(add(a), [a]);
    const no = kernel.transact(() => {
      throw new RangeError("no");
    }, [a]);
    expect(await hasEnded(Promise.race([yes, no]))).toBe(false);
    expect(await sumOf(kernel, a)).toBe(1);
    replied.open();
    expect(await yes).toBe(1);
    await expect(no).rejects.toThrow(RangeError);
  });

  test("an idle store is asked at once, and callers of one moment share a batch", async () => {
    const { kernel, store } = bench();
    const sums = await Promise.all(Array.from({ length: 100 }, () => kernel.transact(add(a), [a])));
    expect(sums).toEqual(Array.from({ length: 100 }, (_, i) => i + 1));
    expect(store.batches.length).toBe(1);
  });

  test("while one batch is under way, the next one fills", async () => {
    const { kernel, store } = bench();
    const first = gate();
    store.commits.push(held(first));
    const calls = [kernel.transact(add(a), [a])];
    await drained();
    for (let i = 0; i < 100; i++) {
      calls.push(kernel.transact(add(a), [a]));
      if (i % 10 === 0) await drained();
    }
    expect(store.batches.length).toBe(1);
    first.open();
    expect((await Promise.all(calls)).at(-1)).toBe(101);
    expect(store.batches.length).toBe(2);
  });

  test("a batch takes no more than 512 decisions", async () => {
    const { kernel, store } = bench();
    const ranIn: number[] = [];
    const calls = Array.from({ length: 1025 }, () => kernel.transact(() => ranIn.push(store.batches.length), [a]));
    await Promise.all(calls);
    expect([1, 2, 3].map((batch) => ranIn.filter((ran) => ran === batch).length)).toEqual([512, 512, 1]);
  });

  test("a decision that renews a lease is in the next batch, before all that wait", async () => {
    const { kernel, store } = bench();
    const first = gate();
    store.commits.push(held(first));
    const calls: Promise<unknown>[] = [kernel.transact(add(a), [a])];
    await drained();
    for (let i = 0; i < 1500; i++) calls.push(kernel.transact(add(b), [b]));
    let ranIn: number | undefined;
    const renew: Decision<void> = (tx) => {
      tx.record(c).write({ value: 1 });
      ranIn = store.batches.length;
    };
    calls.push(kernel.transactUrgently(renew, [c]));
    first.open();
    await Promise.all(calls);
    expect(ranIn).toBe(2);
    expect(store.batches.length).toBe(4);
  });

  test("a batch that is full of bytes leaves the rest to the next", async () => {
    const { kernel, store } = bench();
    const mebibyte = "x".repeat(1024 * 1024 - 2);
    const ranIn: number[] = [];
    const calls = Array.from({ length: 20 }, (_, i) =>
      kernel.transact(
        (tx) => {
          ranIn.push(store.batches.length);
          tx.record(address("n", String(i))).write({ value: mebibyte });
        },
        [address("n", String(i))],
      ),
    );
    await Promise.all(calls);
    expect(store.batches.length).toBe(3);
    for (const batch of [1, 2, 3]) expect(ranIn.filter((ran) => ran === batch).length).toBeLessThanOrEqual(9);
    expect((await kernel.list({ space: "n", prefix: "", after: null, limit: 100 })).length).toBe(20);
  });

  test("keys that two decisions name are locked once, and each is named once", async () => {
    const { kernel, store } = bench();
    await Promise.all([kernel.transact(add(a), [a, b, a]), kernel.transact(add(b), [b, a])]);
    expect(store.batches.map((batch) => textsOf(batch.lock).sort())).toEqual([[a.text, b.text]]);
  });
});

describe("lanes", () => {
  test("a record is in at most one flight, and others fly meanwhile", async () => {
    const { kernel, store } = bench({ lanes: 3 });
    store.slowRounds = true;
    const inFlight = new Map<number, Set<string>>();
    let most = 0;
    const watched = async (batch: Batch, pass: (batch: Batch) => Promise<Receipt>): Promise<Receipt> => {
      store.commits.unshift(watched);
      const mine = new Set<string>();
      inFlight.set(batch.lane, mine);
      const take = (texts: readonly string[]) => {
        for (const text of texts) {
          for (const [lane, others] of inFlight)
            if (lane !== batch.lane) expect(others, `${text} is in two flights`).not.toContain(text);
          mine.add(text);
        }
      };
      take(textsOf(batch.lock));
      most = Math.max(most, inFlight.size);
      const receipt = await pass({
        ...batch,
        decide(found) {
          const verdict = batch.decide(found);
          if ("lock" in verdict) take(textsOf(verdict.lock));
          return verdict;
        },
      });
      await drained();
      inFlight.delete(batch.lane);
      return receipt;
    };
    store.commits.push(watched);
    const keys = Array.from({ length: 5 }, (_, i) => address("n", `k${i}`));
    const calls: Promise<unknown>[] = [];
    for (let i = 0; i < 200; i++) {
      const named = keys[i % 5] as Address;
      const late = keys[(i * 7 + 3) % 5] as Address;
      calls.push(kernel.transact((tx) => [add(named)(tx), add(late)(tx)], [named]));
      if (i % 3 === 0) await new Promise(setImmediate);
    }
    await Promise.all(calls);
    const sums = await Promise.all(keys.map((at) => sumOf(kernel, at)));
    expect(sums.reduce((sum, one) => sum + one, 0)).toBe(400);
    expect(most).toBeGreaterThan(1);
  });

  test("a late record that another flight has puts the decision off until that has landed", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    const first = gate();
    store.commits.push(held(first));
    const holder = kernel.transact(add(a), [a]);
    await drained();
    const late = kernel.transact((tx) => [add(b)(tx), add(a)(tx)], [b]);
    const beside = kernel.transact(add(c), [c]);
    expect(await beside).toBe(1);
    expect(await hasEnded(late)).toBe(false);
    first.open();
    expect(await holder).toBe(1);
    expect(await late).toEqual([1, 2]);
  });

  test("what waits for its record lets others pass", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    const first = gate();
    store.commits.push(held(first));
    const holder = kernel.transact(add(a), [a]);
    await drained();
    const waiting = kernel.transact(add(a), [a]);
    expect(await kernel.transact(add(b), [b])).toBe(1);
    expect(await hasEnded(waiting)).toBe(false);
    first.open();
    expect(await Promise.all([holder, waiting])).toEqual([1, 2]);
  });

  test("what needs a record of a flight leaves with it, and the rest in another one", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    const ranIn: string[] = [];
    const on = (at: Address) =>
      kernel.transact(
        (tx) => {
          ranIn.push(`${at.key} ${store.batches.length}`);
          return add(at)(tx);
        },
        [at],
      );
    store.slowRounds = true;
    await Promise.all(Array.from({ length: 120 }, (_, i) => on(i % 2 === 0 ? a : address("n", String(i)))));
    expect(store.batches.map(({ lock }) => lock.length)).toEqual([31, 30]);
    expect(ranIn.filter((one) => one.startsWith(`${a.key} `)).length).toBe(60);
  });

  test("a known decision does not wait for the locked ones", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    await hold(kernel, a);
    const slow = gate();
    store.commits.push(held(slow));
    const locked = kernel.transact(add(b), [b]);
    const known = kernel.transactHeld(add(a), a);
    expect(await known).toBe(2);
    slow.open();
    expect(await locked).toBe(1);
  });

  test("each has a sequence of its own, which rises within its epoch", async () => {
    const { kernel, store, clock } = bench({ lanes: 2 });
    store.slowRounds = true;
    store.commits.push(lostReply, failing("store_busy", "retry"), lostRequest);
    const calls = Array.from({ length: 60 }, (_, i) => address("n", `k${i % 6}`)).map(async (at, i) => {
      for (let turns = 0; turns < i; turns++) await new Promise(setImmediate);
      return kernel.transact(add(at), [at]);
    });
    await clock.finish(Promise.all(calls));
    for (const lane of [0, 1]) {
      const marks = store.batches
        .filter((batch) => batch.lane === lane)
        .map(({ epoch, sequence }) => [epoch, sequence]);
      expect(marks.length).toBeGreaterThan(3);
      for (const [i, [epoch = 0, sequence = 0]] of marks.entries()) {
        const [epochBefore = 0, sequenceBefore = 0] = marks[i - 1] ?? [0, 0];
        expect(epoch > epochBefore || (epoch === epochBefore && sequence > sequenceBefore)).toBe(true);
      }
    }
  });
});

describe("too many keys", () => {
  const keys = Array.from({ length: 1_001 }, (_, i) => address("n", `k${i}`));

  test("a thousand records fit into one decision, and one more does not", async () => {
    const { kernel } = bench();
    const writeAll = (count: number, named: readonly Address[]) =>
      kernel.transact((tx) => {
        for (const at of keys.slice(0, count)) tx.record(at).write({ value: 1 });
      }, named);
    expect(await codeOf(writeAll(1_001, keys.slice(0, 990)))).toBe("too_many_keys");
    expect(await kernel.list({ space: "n", prefix: "", after: null, limit: 1 })).toEqual([]);
    await writeAll(1_000, keys.slice(0, 990));
    expect((await kernel.list({ space: "n", prefix: "", after: null, limit: 2_000 })).length).toBe(1_000);
  });

  test("it is no matter whether they are named before", async () => {
    const { kernel } = bench();
    await kernel.transact(() => 1, keys.slice(0, 1_000));
    expect(await codeOf(kernel.transact(() => 1, keys))).toBe("too_many_keys");
  });

  test("a decision that has too many harms no other of its batch", async () => {
    const { kernel } = bench();
    const many = kernel.transact(
      (tx) => {
        for (const at of keys) tx.record(at);
      },
      keys.slice(0, 999),
    );
    const other = kernel.transact(add(a), [a]);
    expect(await codeOf(many)).toBe("too_many_keys");
    expect(await other).toBe(1);
  });
});

describe("closing", () => {
  test("lets what was submitted finish, and takes nothing more", async () => {
    const { kernel, store, database } = bench();
    const first = gate();
    store.commits.push(held(first));
    const calls = [kernel.transact(add(a), [a])];
    await drained();
    calls.push(kernel.transact(add(a), [a]));
    const closed = kernel.close();
    expect(await codeOf(kernel.transact(add(a), [a]))).toBe("closed");
    expect(await hasEnded(closed)).toBe(false);
    first.open();
    expect(await Promise.all(calls)).toEqual([1, 2]);
    await closed;
    const [row] = await database.connect("test").read([a]);
    expect(row?.value).toBe("2");
  });

  test("waits for those that the store puts off", async () => {
    const { kernel, store, clock } = bench();
    store.commits.push(failing("store_busy", "retry"), lostRequest);
    const call = kernel.transact(add(a), [a]);
    const closed = kernel.close();
    expect(await clock.finish(call)).toBe(1);
    await clock.finish(closed);
  });

  test("twice is the same as once", async () => {
    const { kernel } = bench();
    await Promise.all([kernel.close(), kernel.close()]);
    await kernel.close();
    expect(await codeOf(kernel.transact(add(a), [a]))).toBe("closed");
    expect(await codeOf(kernel.read([a]))).toBe("closed");
  });
});

describe("all of it at once", () => {
  const faults = {
    fine: undefined,
    busy: failing("store_busy", "retry"),
    split: failing("store_refused", "split"),
    lostReply,
    lostRequest,
  } as const;

  test("whatever the store does, each decision that was acknowledged counts once", async () => {
    const script = fc.array(fc.constantFrom(...(Object.keys(faults) as (keyof typeof faults)[])), { maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(script, fc.integer({ min: 1, max: 3 }), async (names, lanes) => {
        const { kernel, store, clock } = bench({ lanes, patienceMs: 100_000 });
        for (const name of names) store.commits.push(faults[name] ?? ((batch, pass) => pass(batch)));
        const keys = [a, b, c];
        const calls = Array.from({ length: 12 }, async (_, i) => {
          for (let turns = 0; turns < i; turns++) await new Promise(setImmediate);
          const named = keys[i % 3] as Address;
          const late = keys[(i + 1) % 3] as Address;
          return codeOf(kernel.transact((tx) => [add(named)(tx), add(late)(tx)].length, [named]));
        });
        const answers = await clock.finish(Promise.all(calls));
        const done = answers.filter((answer) => typeof answer === "object");
        const sums = await Promise.all(keys.map((at) => sumOf(kernel, at)));
        expect(sums.reduce((sum, one) => sum + one, 0)).toBe(2 * done.length);
        for (const answer of answers) if (typeof answer !== "object") expect(answer).toBe("store_refused");
      }),
      { numRuns: 60 },
    );
  });
});
