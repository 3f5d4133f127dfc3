/**
 * Goal: whatever the store does, every caller hears once, what it hears is true, and what was decided is there once.
 * Method: kernels on a store that fails as told (test/kernel.fixture.ts), with a clock that is moved by hand. Most tests
 * count on one record: a decision that took effect twice, or not at all, shows in the sum.
 */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type Bench,
  bench,
  codeOf,
  drained,
  type Gate,
  gate,
  type ScriptedStore,
  storeError,
  textsOf,
} from "../../test/kernel.fixture.ts";
import type { Batch, Receipt, Row } from "./contract.ts";
import { type Address, address } from "./contract.ts";
import type { Decision } from "./decision.ts";
import type { Remedy } from "./errors.ts";
import type { Kernel } from "./kernel.ts";

const a = address("n", "a");
const b = address("n", "b");
const c = address("n", "c");

/** Adds one, and answers the sum. */
const add =
  (at: Address): Decision<number> =>
  (tx) => {
    const record = tx.record(at);
    const next = Number(record.value ?? 0) + 1;
    record.write({ value: next });
    return next;
  };

async function rowOf(kernel: Kernel, at: Address): Promise<Row | null> {
  const [row = null] = await kernel.read([at]);
  return row;
}

async function sumOf(kernel: Kernel, at: Address): Promise<number> {
  return Number((await rowOf(kernel, at))?.value ?? 0);
}

const failing = (code: Parameters<typeof storeError>[0], remedy: Remedy) => async (): Promise<Receipt> => {
  throw storeError(code, remedy);
};

/** The batch is committed, and the reply is lost. */
const lostReply = async (batch: Batch, pass: (batch: Batch) => Promise<Receipt>): Promise<Receipt> => {
  await pass(batch);
  throw storeError("outcome_unknown", "settle");
};

const lostRequest = failing("outcome_unknown", "settle");

/** Lets the commit through when the gate opens. */
const held = (until: Gate) => async (batch: Batch, pass: (batch: Batch) => Promise<Receipt>) => {
  await until.opened;
  return pass(batch);
};

/** Whether it has ended, without waiting for it. */
async function hasEnded(promise: Promise<unknown>): Promise<boolean> {
  let ended = false;
  const note = () => {
    ended = true;
  };
  promise.then(note, note);
  await drained();
  return ended;
}

/** The holder of a record, which knows its row. */
async function hold(kernel: Kernel, at: Address): Promise<Row> {
  await kernel.transact(add(at), [at]);
  const row = await rowOf(kernel, at);
  if (row === null) throw new Error("it was just written");
  kernel.hold(at, row);
  return row;
}

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

  test("two hundred thousand callers at once are all answered", async () => {
    const { kernel } = bench({ patienceMs: 3_600_000 });
    const started = performance.now();
    const calls = Array.from({ length: 200_000 }, () => kernel.transact(add(a), [a]));
    expect((await Promise.all(calls)).at(-1)).toBe(200_000);
    expect(performance.now() - started).toBeLessThan(15_000);
  });

  test("keys that two decisions name are locked once, and each is named once", async () => {
    const { kernel, store } = bench();
    await Promise.all([kernel.transact(add(a), [a, b, a]), kernel.transact(add(b), [b, a])]);
    expect(store.batches.map((batch) => textsOf(batch.lock).sort())).toEqual([[a.text, b.text]]);
  });
});

describe("a store that fails", () => {
  test("for a moment is asked again, after a pause that grows", async () => {
    const { kernel, store, clock } = bench();
    const pauses: number[] = [];
    let lastMs = clock.nowMs();
    for (let i = 0; i < 6; i++)
      store.commits.push(async () => {
        pauses.push(clock.nowMs() - lastMs);
        lastMs = clock.nowMs();
        throw storeError("store_busy", "retry");
      });
    expect(await clock.finish(kernel.transact(add(a), [a]))).toBe(1);
    expect(store.batches.length).toBe(7);
    expect(pauses.slice(1).every((ms) => ms > 0 && ms < 100)).toBe(true);
    expect(Math.max(...pauses.slice(4))).toBeGreaterThan(Math.max(...pauses.slice(1, 3)));
  });

  test("for longer than one is patient says so, and has nothing", async () => {
    const { kernel, store, clock } = bench({ patienceMs: 1_000 });
    for (let i = 0; i < 500; i++) store.commits.push(failing("store_busy", "retry"));
    const startedMs = clock.nowMs();
    expect(await clock.finish(codeOf(kernel.transact(add(a), [a])))).toBe("store_busy");
    expect(clock.nowMs() - startedMs).toBeGreaterThanOrEqual(1_000);
    expect(clock.nowMs() - startedMs).toBeLessThan(1_200);
    store.commits.length = 0;
    await clock.advance(1_000);
    expect(await kernel.transact(add(a), [a])).toBe(1);
  });

  test("is not waited for by those who came before their time: each has its own patience", async () => {
    const { kernel, store, clock } = bench({ patienceMs: 1_000 });
    for (let i = 0; i < 500; i++) store.commits.push(failing("store_busy", "retry"));
    const early = codeOf(kernel.transact(add(a), [a]));
    await clock.advance(600);
    const late = kernel.transact(add(a), [a]);
    await clock.advance(600);
    expect(await hasEnded(early)).toBe(true);
    store.commits.length = 0;
    expect(await early).toBe("store_busy");
    expect(await clock.finish(late)).toBe(1);
  });

  test("because of one decision runs each alone, and only that one is refused", async () => {
    const { kernel, store } = bench();
    const poison = address("n", "poison");
    const guard = async (batch: Batch, pass: (batch: Batch) => Promise<Receipt>): Promise<Receipt> => {
      store.commits.unshift(guard);
      if (textsOf(batch.lock).includes(poison.text)) throw storeError("store_refused", "split");
      return pass(batch);
    };
    store.commits.push(guard);
    const calls = [add(a), add(b), add(poison), add(c)].map((decide, i) =>
      codeOf(kernel.transact(decide, [[a, b, poison, c][i] as Address])),
    );
    expect(await Promise.all(calls)).toEqual([
      { notRefused: 1 },
      { notRefused: 1 },
      "store_refused",
      { notRefused: 1 },
    ]);
    expect(store.batches.map((batch) => batch.lock.length)).toEqual([4, 1, 1, 1, 1]);
    expect(await kernel.transact(add(a), [a])).toBe(2);
  });

  test("for good tells everybody at once, and serves the next", async () => {
    const { kernel, store } = bench();
    store.commits.push(failing("store_full", "fail"));
    const calls = [kernel.transact(add(a), [a]), kernel.transact(add(b), [b])].map(codeOf);
    expect(await Promise.all(calls)).toEqual(["store_full", "store_full"]);
    expect(store.batches.length).toBe(1);
    expect(await kernel.transact(add(a), [a])).toBe(1);
  });

  test("with an error that is no store's tells everybody what it was", async () => {
    const { kernel, store } = bench();
    const mistake = new TypeError("a mistake in the store");
    store.commits.push(async () => {
      throw mistake;
    });
    await expect(kernel.transact(add(a), [a])).rejects.toBe(mistake);
    expect(await kernel.transact(add(a), [a])).toBe(1);
  });
});

describe("a lost reply", () => {
  test("to a batch that was committed is answered with what was decided, and nothing is repeated", async () => {
    const { kernel, store } = bench();
    store.commits.push(lostReply);
    const calls = [
      kernel.transact(add(a), [a]),
      codeOf(
        kernel.transact(() => {
          throw storeError("store_io", "fail");
        }, [a]),
      ),
      kernel.transact(add(a), [a]),
    ];
    expect(await Promise.all(calls)).toEqual([1, "store_io", 2]);
    expect(store.batches.length).toBe(1);
    expect(await sumOf(kernel, a)).toBe(2);
  });

  test("to a batch that never arrived repeats it once", async () => {
    const { kernel, store } = bench();
    store.commits.push(lostRequest);
    expect(await kernel.transact(add(a), [a])).toBe(1);
    expect(store.batches.length).toBe(2);
    expect(await sumOf(kernel, a)).toBe(1);
  });

  test("rings the bell with what was committed", async () => {
    const { kernel, store } = bench();
    const rung: number[] = [];
    kernel.listen((puts) => rung.push(puts?.length ?? -1));
    store.commits.push(lostReply);
    await kernel.transact(add(a), [a]);
    expect(rung).toEqual([1]);
  });

  test("is settled by asking until the store answers", async () => {
    const { kernel, store, clock } = bench();
    await kernel.transact(add(a), [a]);
    store.commits.push(lostReply);
    for (let i = 0; i < 5; i++)
      store.settles.push(async () => {
        throw storeError("store_unreachable", i % 2 === 0 ? "retry" : "settle");
      });
    expect(await clock.finish(kernel.transact(add(a), [a]))).toBe(2);
    expect(await sumOf(kernel, a)).toBe(2);
  });

  test("that can never be settled is unknown, after the caller's patience, and the next caller is served when it can", async () => {
    const { kernel, store, clock } = bench({ patienceMs: 1_000 });
    await kernel.transact(add(a), [a]);
    store.commits.push(lostReply);
    for (let i = 0; i < 500; i++)
      store.settles.push(async () => {
        throw storeError("store_unreachable", "retry");
      });
    const startedMs = clock.nowMs();
    expect(await clock.finish(codeOf(kernel.transact(add(a), [a])))).toBe("outcome_unknown");
    expect(clock.nowMs() - startedMs).toBeGreaterThanOrEqual(1_000);
    expect(clock.nowMs() - startedMs).toBeLessThan(1_200);
    store.settles.length = 0;
    expect(await clock.finish(kernel.transact(add(a), [a]))).toBe(3);
  });

  test("to a batch that arrives after all does no harm: it is of an old epoch", async () => {
    const { kernel, store } = bench();
    let late: (() => Promise<Receipt>) | undefined;
    store.commits.push(async (batch, pass) => {
      late = () => pass(batch);
      throw storeError("outcome_unknown", "settle");
    });
    expect(await kernel.transact(add(a), [a])).toBe(1);
    await expect(late?.()).rejects.toMatchObject({ code: "store_refused", data: { remedy: "settle" } });
    expect(await sumOf(kernel, a)).toBe(1);
    expect(await kernel.transact(add(a), [a])).toBe(2);
  });

  const atTheStart = ["retry", "settle"] as const;
  test.each(atTheStart)("to the very first question, before anything was sent (%s), is asked again", async (remedy) => {
    const { kernel, store, clock } = bench();
    for (let i = 0; i < 2; i++)
      store.settles.push(async () => {
        throw storeError("store_unreachable", remedy);
      });
    expect(await clock.finish(kernel.transact(add(a), [a]))).toBe(1);
    expect(await sumOf(kernel, a)).toBe(1);
  });

  test("of an earlier batch is not taken for that of a later one", async () => {
    const { kernel, store, clock } = bench({ patienceMs: 1_000 });
    await kernel.transact(add(a), [a]);
    store.commits.push(lostReply);
    const unreachable = async () => {
      throw storeError("store_unreachable", "settle");
    };
    for (let i = 0; i < 500; i++) store.settles.push(unreachable);
    expect(await clock.finish(codeOf(kernel.transact(add(a), [a])))).toBe("outcome_unknown");
    // The store comes back while the next caller is waiting, and has the earlier batch, not this one.
    store.settles.length = 0;
    store.settles.push(unreachable, unreachable);
    expect(await clock.finish(kernel.transact(add(b), [b]))).toBe(1);
    expect(await sumOf(kernel, a)).toBe(2);
    expect(await sumOf(kernel, b)).toBe(1);
  });

  test("leaves what the holder knows right", async () => {
    const { kernel, store } = bench();
    await hold(kernel, a);
    store.commits.push(lostReply);
    expect(await kernel.transactHeld(add(a), a)).toBe(2);
    const sent = store.batches.length;
    expect(await kernel.transactHeld(add(a), a)).toBe(3);
    expect(store.batches.length - sent).toBe(1);
    expect(kernel.held(a)).toEqual(await rowOf(kernel, a));
  });
});

describe("rows that another has locked", () => {
  /** Rows of these keys are locked by another, for so many looks. */
  function lockElsewhere(store: ScriptedStore, at: Address, looks: number): void {
    let left = looks;
    store.found = (found, keys) => {
      const index = textsOf(keys).indexOf(at.text);
      if (index < 0 || left === 0) return found;
      left -= 1;
      return { ...found, rows: found.rows.map((row, i) => (i === index ? undefined : row)) };
    };
  }

  test("put off only the decisions that need them", async () => {
    const { kernel, store, clock } = bench();
    lockElsewhere(store, a, 3);
    const waiting = kernel.transact(add(a), [a]);
    const free = kernel.transact(add(b), [b]);
    expect(await free).toBe(1);
    expect(await hasEnded(waiting)).toBe(false);
    expect(await clock.finish(waiting)).toBe(1);
  });

  test("put off a decision that names one of them only late", async () => {
    const { kernel, store, clock } = bench();
    lockElsewhere(store, a, 2);
    const waiting = kernel.transact((tx) => [add(b)(tx), add(a)(tx)], [b]);
    const free = kernel.transact(add(c), [c]);
    expect(await free).toBe(1);
    expect(await clock.finish(waiting)).toEqual([1, 1]);
    expect([await sumOf(kernel, a), await sumOf(kernel, b)]).toEqual([1, 1]);
  });

  test("keep the order of those who wait for them", async () => {
    const { kernel, store, clock } = bench();
    lockElsewhere(store, a, 2);
    const order: string[] = [];
    const say = (name: string) => kernel.transact(() => order.push(name), [a]);
    const calls = Promise.all([say("first"), say("second"), kernel.transact(() => order.push("free"), [b])]);
    await clock.finish(calls);
    expect(order).toEqual(["free", "first", "second"]);
  });

  test("do not let a later caller overtake one that waits for them", async () => {
    const { kernel, store, clock } = bench();
    lockElsewhere(store, a, 1);
    const order: string[] = [];
    const say = (name: string) => kernel.transact(() => order.push(name), [a]);
    const underWay = gate();
    store.commits.push(held(underWay));
    const first = say("first");
    await drained();
    const later = say("later");
    await drained();
    underWay.open();
    await clock.finish(Promise.all([first, later]));
    expect(order).toEqual(["first", "later"]);
  });

  test("are waited for no longer than one is patient", async () => {
    const { kernel, store, clock } = bench({ patienceMs: 1_000 });
    lockElsewhere(store, a, 500);
    const startedMs = clock.nowMs();
    expect(await clock.finish(codeOf(kernel.transact(add(a), [a])))).toBe("store_busy");
    expect(clock.nowMs() - startedMs).toBeLessThan(1_200);
  });

  test("are not asked for again and again without a pause", async () => {
    const { kernel, store, clock } = bench();
    lockElsewhere(store, a, 5);
    const waiting = kernel.transact(add(a), [a]);
    await drained();
    expect(store.batches.length).toBe(1);
    expect(await clock.finish(waiting)).toBe(1);
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

describe("known rows", () => {
  test("are not locked, nor read", async () => {
    const { kernel, store } = bench();
    await hold(kernel, a);
    for (const sum of [2, 3, 4]) expect(await kernel.transactHeld(add(a), a)).toBe(sum);
    expect(store.batches.slice(-3).map((batch) => batch.lock)).toEqual([[], [], []]);
    expect(kernel.held(a)).toEqual(await rowOf(kernel, a));
  });

  test("that moved are read again under the lock, and the decision runs on what is there", async () => {
    const { kernel, store, peer } = bench();
    await hold(kernel, a);
    await peer().transact(add(a), [a]);
    const sent = store.batches.length;
    expect(await kernel.transactHeld(add(a), a)).toBe(3);
    expect(store.batches.slice(sent).map((batch) => textsOf(batch.lock))).toEqual([[], [a.text]]);
    expect(await kernel.transactHeld(add(a), a)).toBe(4);
    expect(store.batches.at(-1)?.lock).toEqual([]);
  });

  test("that moved do not harm the others of the batch", async () => {
    const { kernel, peer } = bench();
    await hold(kernel, a);
    await hold(kernel, b);
    await peer().transact(add(a), [a]);
    const sums = [kernel.transactHeld(add(a), a), kernel.transactHeld(add(b), b), kernel.transact(add(c), [c])];
    expect(await Promise.all(sums)).toEqual([3, 2, 1]);
  });

  test("are kept up to date by this process's own commits", async () => {
    const { kernel, store } = bench();
    await hold(kernel, a);
    await kernel.transact(add(a), [a]);
    expect(await kernel.transactHeld(add(a), a)).toBe(3);
    expect(store.batches.at(-1)?.lock).toEqual([]);
  });

  test("of which nothing is known any more are locked", async () => {
    const { kernel, store } = bench();
    await hold(kernel, a);
    kernel.letGo(a);
    expect(kernel.held(a)).toBeUndefined();
    expect(await kernel.transactHeld(add(a), a)).toBe(2);
    expect(textsOf(store.batches.at(-1)?.lock ?? [])).toEqual([a.text]);
  });

  test("that the same batch locks for another decision are locked for both", async () => {
    const { kernel, store, peer } = bench();
    await hold(kernel, a);
    await peer().transact(add(a), [a]);
    const sums = [kernel.transactHeld(add(a), a), kernel.transact(add(a), [a])];
    expect(await Promise.all(sums)).toEqual([3, 4]);
    expect(textsOf(store.batches.at(-1)?.lock ?? [])).toEqual([a.text]);
  });

  test("that were removed and made again by another are not taken for the same", async () => {
    const { kernel, peer } = bench();
    await hold(kernel, a);
    const other = peer();
    await other.transact((tx) => tx.record(a).remove(), [a]);
    await other.transact((tx) => tx.record(a).write({ value: 40 }), [a]);
    expect(await kernel.transactHeld(add(a), a)).toBe(41);
  });

  test("that moved are found out also where the decision only reads them and writes elsewhere", async () => {
    const { kernel, peer } = bench();
    await hold(kernel, a);
    await peer().transact(add(a), [a]);
    const copy: Decision<unknown> = (tx) => {
      const seen = tx.record(a).value;
      tx.record(b).write({ value: seen });
      return seen;
    };
    expect(await kernel.transactHeld(copy, a)).toBe(2);
    expect(await sumOf(kernel, b)).toBe(2);
  });

  test("are never shown, unlocked, to a decision that is not the holder's", async () => {
    const { kernel, peer } = bench();
    await hold(kernel, a);
    await peer().transact(add(a), [a]);
    const looks = kernel.transactHeld((tx) => tx.record(a).version, a);
    const copies = kernel.transact(
      (tx) => {
        const into = tx.record(b);
        into.write({ value: tx.record(a).value });
      },
      [b],
    );
    await Promise.all([looks, copies]);
    expect(await sumOf(kernel, b)).toBe(2);
  });
});

describe("a clock that was not read", () => {
  /** As a server does it: without locks, nobody asks for the time unless it is wanted. */
  function withoutClock({ store }: Bench): void {
    store.found = (found, keys, batch) => (keys.length === 0 && !batch.needsClock ? { ...found, nowMs: null } : found);
  }

  test("sends a known decision that wants it the locked way, and only that one", async () => {
    const on = bench();
    const { kernel, store, clock } = on;
    await hold(kernel, a);
    await hold(kernel, b);
    withoutClock(on);
    const sent = store.batches.length;
    const timely = kernel.transactHeld((tx) => [tx.nowMs, add(a)(tx)], a);
    const plain = kernel.transactHeld(add(b), b);
    expect(await Promise.all([timely, plain])).toEqual([[clock.wallMs(), 2], 2]);
    expect(store.batches.slice(sent).map((batch) => textsOf(batch.lock))).toEqual([[], [a.text]]);
  });

  test("is noticed even if the decision caught what was thrown", async () => {
    const on = bench();
    const { kernel, clock } = on;
    await hold(kernel, a);
    withoutClock(on);
    const seen = kernel.transactHeld((tx) => {
      try {
        return tx.nowMs;
      } catch {
        return "caught";
      }
    }, a);
    expect(await seen).toBe(clock.wallMs());
  });

  test("is read also for a decision that has no records at all", async () => {
    const on = bench();
    const { kernel, store, clock } = on;
    withoutClock(on);
    for (let i = 0; i < 20; i++) store.commits.push((batch, pass) => pass(batch));
    store.commits.push(failing("store_io", "fail"));
    expect(await kernel.transact((tx) => tx.nowMs, [])).toBe(clock.wallMs());
  });

  test("is wanted by fences and by removing, too", async () => {
    const on = bench();
    const { kernel } = on;
    await hold(kernel, a);
    withoutClock(on);
    expect(await kernel.transactHeld((tx) => tx.fenceFloor, a)).toBeGreaterThan(0);
    await kernel.transactHeld((tx) => tx.record(a).remove(), a);
    expect(await rowOf(kernel, a)).toMatchObject({ value: null });
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

describe("no patience at all", () => {
  test("is enough for a store that is neither busy nor away: what is put off to the next batch is done there", async () => {
    const { kernel, store } = bench({ patienceMs: 0 });
    const mebibyte = "x".repeat(1024 * 1024 - 2);
    const calls = Array.from({ length: 20 }, (_, i) => {
      const at = address("n", `large-${i}`);
      return codeOf(kernel.transact((tx) => tx.record(at).write({ value: mebibyte }), [at]));
    });
    expect(new Set((await Promise.all(calls)).map((answer) => JSON.stringify(answer)))).toEqual(new Set(["{}"]));
    expect(store.batches.length).toBeGreaterThan(1);
  });

  test("is enough for a holder whose row has moved, or who leaves it unchecked, or wants the clock", async () => {
    const { kernel, store, clock, peer } = bench({ patienceMs: 0 });
    await hold(kernel, a);
    await peer().transact(add(a), [a]);
    expect(await kernel.transactHeld(add(a), a)).toBe(3);
    expect(await kernel.transactHeld((tx) => tx.record(a).value, a)).toBe(3);
    store.found = (found, keys, batch) => (keys.length === 0 && !batch.needsClock ? { ...found, nowMs: null } : found);
    expect(await kernel.transactHeld((tx) => tx.nowMs, a)).toBe(clock.wallMs());
  });

  test("is enough for a decision whose late record another flight has", async () => {
    const { kernel, store } = bench({ lanes: 2, patienceMs: 0 });
    const first = gate();
    store.commits.push(held(first));
    const holder = kernel.transact(add(a), [a]);
    await drained();
    const late = codeOf(kernel.transact((tx) => [add(b)(tx), add(a)(tx)], [b]));
    await drained();
    first.open();
    expect(await holder).toBe(1);
    expect(await late).toEqual({ notRefused: [1, 2] });
  });

  test("is no reason to call unknown what the store said it does not have", async () => {
    const { kernel, store, clock } = bench({ patienceMs: 0 });
    store.commits.push(lostRequest);
    const answer = await clock.finish(codeOf(kernel.transact(add(a), [a])));
    expect(answer).not.toBe("outcome_unknown");
    expect(await sumOf(kernel, a)).toBe(typeof answer === "object" ? 1 : 0);
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

describe("rows that this process wrote last", () => {
  /** What each batch from here on locked. */
  const locksFrom = (store: ScriptedStore) => {
    const sent = store.batches.length;
    return () => store.batches.slice(sent).map((batch) => textsOf(batch.lock));
  };

  test("are neither locked nor read again, where the store has lanes", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    await kernel.transact(add(a), [a]);
    const locks = locksFrom(store);
    for (const sum of [2, 3, 4]) expect(await kernel.transact(add(a), [a])).toBe(sum);
    expect(locks()).toEqual([[], [], []]);
  });

  test("are read where it has only one", async () => {
    const { kernel, store } = bench();
    await kernel.transact(add(a), [a]);
    const locks = locksFrom(store);
    expect(await kernel.transact(add(a), [a])).toBe(2);
    expect(locks()).toEqual([[a.text]]);
  });

  test("can be several for one decision, but then it must know all of them", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    const both: Decision<number[]> = (tx) => [add(a)(tx), add(b)(tx)];
    await kernel.transact(add(a), [a]);
    const locks = locksFrom(store);
    expect(await kernel.transact(both, [a, b])).toEqual([2, 1]);
    expect(await kernel.transact(both, [a, b])).toEqual([3, 2]);
    expect(locks()).toEqual([[a.text, b.text], []]);
  });

  test("that moved are locked, and not believed for a while, longer each time", async () => {
    const { kernel, store, peer } = bench({ lanes: 2 });
    const other = peer();
    await kernel.transact(add(a), [a]);
    const believed: number[] = [];
    for (let turn = 0; turn < 200; turn++) {
      await other.transact(add(a), [a]);
      const locks = locksFrom(store);
      expect(await kernel.transact(add(a), [a])).toBe(2 * turn + 3);
      if (locks()[0]?.length === 0) believed.push(turn);
    }
    expect(believed).toEqual([0, 9, 26, 59, 124]);
  });

  test("are locked when the decision reads one of them without writing it, or throws", async () => {
    for (const decide of [
      (tx) => [tx.record(a).value, add(b)(tx)],
      (tx) => {
        tx.record(a).write({ value: 0 });
        throw new RangeError("no");
      },
    ] satisfies Decision<unknown>[]) {
      const { kernel, store, peer } = bench({ lanes: 2 });
      await kernel.transact((tx) => [add(a)(tx), add(b)(tx)], [a, b]);
      await peer().transact(add(c), [c]);
      const locks = locksFrom(store);
      await kernel.transact(decide, [a, b]).catch(() => {});
      expect(locks().at(-1)).toEqual([a.text, b.text]);
    }
  });

  test("are forgotten when they are deleted, long, or made by a commit whose reply was lost", async () => {
    const { kernel, store, clock } = bench({ lanes: 2 });
    await kernel.transact(add(a), [a]);
    await kernel.transact((tx) => tx.record(a).remove(), [a]);
    await kernel.transact((tx) => tx.record(b).write({ value: "x".repeat(5000) }), [b]);
    store.commits.push(lostReply);
    await clock.finish(kernel.transact(add(c), [c]));
    const locks = locksFrom(store);
    for (const at of [a, b, c]) await kernel.transact((tx) => tx.record(at).write({ value: 1 }), [at]);
    expect(locks()).toEqual([[a.text], [b.text], [c.text]]);
  });

  test("are so many at most, and those of long ago go first", async () => {
    const { kernel, store } = bench({ lanes: 2 });
    const many = Array.from({ length: 9000 }, (_, i) => address("many", `k${i}`));
    await Promise.all(many.map((at) => kernel.transact(add(at), [at])));
    const [first, last] = [many[0] as Address, many.at(-1) as Address];
    const locks = locksFrom(store);
    await kernel.transact(add(last), [last]);
    await kernel.transact(add(first), [first]);
    expect(locks()).toEqual([[], [first.text]]);
  });
});
