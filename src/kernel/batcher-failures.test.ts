/**
 * Goal: a store that fails, is slow or loses a reply costs time and nothing else: every caller hears once, and what it hears is true.
 * Method: as in batcher.test.ts; the store fails call by call, and the clock is moved by hand.
 */

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
  rowOf,
  sumOf,
} from "../../test/kernel/batches.ts";
import { bench, codeOf, drained, gate, type ScriptedStore, storeError, textsOf } from "../../test/kernel/kit.ts";
import type { Batch, Receipt } from "./contract.ts";
import { type Address, address } from "./contract.ts";

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
