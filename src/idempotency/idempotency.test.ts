/**
 * Goal: under one key the work is done once, everybody who asks for it hears what it came to, and nobody else does (G2, G3, G6).
 * Method: every law in memory and in a SQLite file, with a clock that stands still until it is moved; a second kernel on the same store
 * stands for another process. Overlaps are forced by gates inside the work.
 */

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Member, type Place, places } from "../../test/idempotency/kit.ts";
import { bench, codeOf, drained, gate, storeError, unhandledDuring } from "../../test/kernel.fixture.ts";
import { address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { FencedError, LeaseUncertainError, StoreError } from "../kernel/errors.ts";
import { plainly } from "../kernel/in-sql.ts";
import type { Attempt } from "./attempt.ts";
import { isReplayed } from "./errors.ts";
import { Idempotency, type IdempotentOptions } from "./idempotency.ts";

const DAY_MS = 24 * 3_600_000;
const LEASE_MS = 30_000;
const BALANCE = address("test", "balance");

/** An effect: one more on the balance. */
function deposit(tx: Tx, amount = 1): number {
  const record = tx.record(BALANCE);
  const balance = (record.exists ? (record.value as number) : 0) + amount;
  record.write({ value: balance });
  return balance;
}

async function balanceOf({ kernel }: Member): Promise<number> {
  const [row] = await kernel.read([BALANCE]);
  return row?.value == null ? 0 : (kernel.decode(row, row.value) as number);
}

class Declined extends Error {
  readonly code = "card_declined";
  readonly data = { reason: "empty" };
  readonly request = { authorization: "secret" };
  constructor() {
    super("the card was declined");
    this.name = "Declined";
  }
}

describe.each(places)("on %s", (_, arrive) => {
  let place: Place;
  let a: Member;
  let b: Member;
  let ran: number;
  beforeEach(async () => {
    place = await arrive();
    a = await place.join();
    b = await place.join();
    ran = 0;
  });
  afterEach(() => place.close());

  const work = (value: unknown = "done") => {
    return () => {
      ran += 1;
      return value;
    };
  };

  /** Work that has begun, and ends when it is told to. */
  async function slowly(member: Member, key = "k", options: IdempotentOptions = {}) {
    const begun = gate();
    const end = Promise.withResolvers<unknown>();
    let attempt: Attempt<Tx, object> | undefined;
    const answer = member.keys.idempotent(key, options, async (given) => {
      ran += 1;
      attempt = given;
      begun.open();
      return end.promise;
    });
    answer.catch(() => {});
    await begun.opened;
    if (attempt === undefined) throw new Error("it has not begun");
    return { answer, attempt, ...end };
  }

  describe("asked again", () => {
    test("the work is not done again, and its answer is given, here and elsewhere", async () => {
      expect(await a.keys.idempotent("k", {}, work())).toEqual({ value: "done", replayed: false });
      expect(await a.keys.idempotent("k", {}, work())).toEqual({ value: "done", replayed: true });
      expect(await b.keys.idempotent("k", undefined, work())).toEqual({ value: "done", replayed: true });
      expect(ran).toBe(1);
    });

    test("what is heard the first time is what is heard again, and belongs to whoever hears it", async () => {
      const value = { at: new Date(5), list: [1, { two: 2 }], map: new Map([["a", 1n]]), nothing: undefined };
      const first = await a.keys.idempotent("k", {}, () => value);
      const again = await a.keys.idempotent("k", {}, () => value);
      expect(first.value).toEqual(value);
      expect(first.value).not.toBe(value);
      expect(again.value).toEqual(value);
      first.value.list.push(3);
      expect((await a.keys.idempotent("k", {}, () => value)).value).toEqual(value);
      expect((await a.keys.idempotent("nothing", {}, () => undefined)).value).toBeUndefined();
      expect(await a.keys.idempotent("nothing", {}, () => undefined)).toEqual({ value: undefined, replayed: true });
    });

    test("while it is under way, the caller is told so, and how long to wait, here and elsewhere", async () => {
      const { answer, resolve } = await slowly(a);
      await place.clock.advance(2_000);
      for (const member of [a, b]) {
        const refusal = member.keys.idempotent("k", {}, work());
        await expect(refusal).rejects.toMatchObject({
          code: "idempotency_in_progress",
          data: { key: "k", retryAfterMs: 2_000 },
        });
      }
      resolve("slow");
      expect(await answer).toEqual({ value: "slow", replayed: false });
      expect(await b.keys.idempotent("k", {}, work())).toEqual({ value: "slow", replayed: true });
      expect(ran).toBe(1);
    });

    test("of many at once, one does the work", async () => {
      const calls = Array.from({ length: 20 }, (_, i) => codeOf((i % 2 ? a : b).keys.idempotent("k", {}, work())));
      const answers = await place.clock.finish(Promise.all(calls));
      expect(ran).toBe(1);
      const done = answers.filter((answer) => answer !== "idempotency_in_progress");
      expect(done).toContainEqual({ notRefused: { value: "done", replayed: false } });
      for (const answer of done) expect(answer).toMatchObject({ notRefused: { value: "done" } });
    });
  });

  describe("another request under the same key", () => {
    test("is refused while the first is under way, when it has its answer, and when it has an error", async () => {
      const { answer, resolve } = await slowly(a, "k", { fingerprint: { amount: 5 } });
      const other = () => codeOf(b.keys.idempotent("k", { fingerprint: { amount: 6 } }, work()));
      expect(await other()).toBe("idempotency_mismatch");
      resolve("five");
      await answer;
      expect(await other()).toBe("idempotency_mismatch");
      const fail = { fingerprint: 1, storeErrors: () => true };
      await codeOf(a.keys.idempotent("e", fail, () => Promise.reject(new Error("no"))));
      expect(await codeOf(a.keys.idempotent("e", { ...fail, fingerprint: 2 }, work()))).toBe("idempotency_mismatch");
      expect(ran).toBe(1);
    });

    test("is refused when the first was interrupted, and does not take it over", async () => {
      const { attempt } = await slowly(a, "k", { fingerprint: 1 });
      attempt.lapse();
      await place.clock.advance(LEASE_MS);
      expect(await codeOf(b.keys.idempotent("k", { fingerprint: 2 }, work()))).toBe("idempotency_mismatch");
      expect(await b.keys.idempotent("k", { fingerprint: 1 }, work())).toMatchObject({ value: "done" });
    });

    test("is the same one if only its keys are in another order", async () => {
      await a.keys.idempotent("k", { fingerprint: { a: 1, b: 2 } }, work());
      expect(await a.keys.idempotent("k", { fingerprint: { b: 2, a: 1 } }, work())).toMatchObject({ replayed: true });
    });
  });

  describe("keys", () => {
    test("of different scopes are different, however they are put together", async () => {
      const calls: [string | undefined, string][] = [
        [undefined, "k"],
        ["ann", "k"],
        ["bob", "k"],
        ["ann/k", "k"],
        ["ann", "k/k"],
        ["k", "ann"],
        ["ANN", "k"],
      ];
      for (const [scope, key] of calls) await a.keys.idempotent(key, { scope }, work());
      expect(ran).toBe(calls.length);
      for (const [scope, key] of calls) await b.keys.idempotent(key, { scope }, work());
      expect(ran).toBe(calls.length);
    });

    test("are kept as they are", async () => {
      const keys = ["a", "A", " a", "a ", "a/b", "a%2Fb", "..", "é", "e\u0301", "'; drop table record; --"];
      for (const key of keys) expect((await a.keys.idempotent(key, {}, () => key)).value).toBe(key);
      for (const key of keys) expect(await a.keys.idempotent(key, {}, work())).toEqual({ value: key, replayed: true });
    });

    test("leave no trace of their scope in the store", async () => {
      const scope = `Bearer ${"s".repeat(2_000)}`;
      await a.keys.idempotent("k", { scope }, work());
      const rows = (await a.kernel.due({ kinds: ["idempotent"], limit: 1 })).keys;
      await place.clock.advance(DAY_MS);
      const due = (await a.kernel.due({ kinds: ["idempotent"], limit: 10 })).keys;
      expect(rows).toEqual([]);
      expect(due).toMatchObject([{ key: "k" }]);
      expect(due[0]?.space).toMatch(/^idempotent\/[0-9a-f]{32}$/);
    });
  });

  describe("an attempt", () => {
    test("keeps its lease for as long as it works", async () => {
      const { answer, attempt, resolve } = await slowly(a, "k", { lease: "3s" });
      for (let i = 0; i < 20; i++) {
        await place.clock.advance(1_500);
        expect(await codeOf(b.keys.idempotent("k", {}, work()))).toBe("idempotency_in_progress");
      }
      expect(attempt.abortSignal.aborted).toBe(false);
      resolve("long");
      expect(await answer).toEqual({ value: "long", replayed: false });
      expect(place.clock.timerCount).toBe(0);
    });

    test("that dies is taken over from the millisecond its lease ends, with a higher fence and the same key", async () => {
      const first = await slowly(a, "k", { lease: "3s" });
      first.attempt.lapse();
      await place.clock.advance(2_999);
      await expect(b.keys.idempotent("k", {}, work())).rejects.toMatchObject({ data: { retryAfterMs: 1 } });
      await place.clock.advance(1);
      const second = await slowly(b, "k", { lease: "3s" });
      expect(second.attempt.fence).toBeGreaterThan(first.attempt.fence);
      expect([first.attempt.attempt, second.attempt.attempt]).toEqual([1, 2]);
      expect(second.attempt.key).toBe(first.attempt.key);
      expect(ran).toBe(2);
    });

    test("that was taken over stores nothing any more, and is told so", async () => {
      const first = await slowly(a);
      first.attempt.lapse();
      await place.clock.advance(LEASE_MS);
      const second = await slowly(b);
      first.resolve("stale");
      expect(await codeOf(first.answer)).toBe("fenced");
      second.resolve("fresh");
      expect(await second.answer).toEqual({ value: "fresh", replayed: false });
      expect(await a.keys.idempotent("k", {}, work())).toEqual({ value: "fresh", replayed: true });
    });

    test("that was taken over neither frees the key nor stores its error", async () => {
      for (const storeErrors of [() => true, () => false]) {
        const key = String(storeErrors());
        const first = await slowly(a, key, { storeErrors });
        first.attempt.lapse();
        await place.clock.advance(LEASE_MS);
        const second = await slowly(b, key);
        first.reject(new Error("stale"));
        // An error that is the answer is told only if it is stored.
        await expect(first.answer).rejects.toThrow(storeErrors() ? FencedError : "stale");
        expect(await codeOf(a.keys.idempotent(key, {}, work()))).toBe("idempotency_in_progress");
        second.resolve("fresh");
        expect(await second.answer).toMatchObject({ value: "fresh" });
      }
    });

    test("that is late still counts if nobody took over", async () => {
      const { answer, attempt, resolve } = await slowly(a);
      attempt.lapse();
      await place.clock.advance(10 * LEASE_MS);
      resolve("late");
      expect(await answer).toEqual({ value: "late", replayed: false });
    });

    test("that lost its lease is told to stop", async () => {
      const { attempt, answer, resolve } = await slowly(a);
      const { abortSignal } = attempt;
      place.jump(LEASE_MS);
      const second = await slowly(b);
      expect(abortSignal.aborted).toBe(false);
      await place.clock.advance(LEASE_MS / 3);
      expect(abortSignal.reason).toBeInstanceOf(FencedError);
      // Whoever looks only now hears the same.
      expect(attempt.abortSignal).toBe(abortSignal);
      resolve("stale");
      expect(await codeOf(answer)).toBe("fenced");
      second.resolve(1);
      await second.answer;
    });

    test("gets a key to pass on that is another for every key and scope", async () => {
      const passed = new Set<string>();
      for (const [scope, key] of [
        [undefined, "a"],
        [undefined, "b"],
        ["s", "a"],
        ["t", "a"],
      ] as const)
        await a.keys.idempotent(key, { scope }, (attempt) => void passed.add(attempt.key));
      expect(passed.size).toBe(4);
    });
  });

  describe("commit", () => {
    test("makes the effect and the answer in one commit", async () => {
      const commits: string[][] = [];
      const unlisten = a.kernel.listen((puts) => {
        if (puts !== undefined) commits.push(puts.map(({ row }) => `${row.space} ${row.status}`));
      });
      const answer = await a.keys.idempotent("k", {}, ({ commit }) => commit((tx) => ({ balance: deposit(tx) })));
      unlisten();
      expect(answer).toEqual({ value: { balance: 1 }, replayed: false });
      expect(commits).toEqual([
        ["idempotent in_progress"],
        expect.arrayContaining(["idempotent completed", "test null"]),
      ]);
      expect(await b.keys.idempotent("k", {}, work())).toEqual({ value: { balance: 1 }, replayed: true });
      expect([await balanceOf(a), ran]).toEqual([1, 0]);
    });

    test("can store one answer only", async () => {
      const codes: unknown[] = [];
      await a.keys.idempotent("k", {}, async ({ commit }) => {
        const [first, second] = await Promise.all([
          commit(deposit as (tx: Tx) => number),
          codeOf(commit((tx) => deposit(tx))),
        ]);
        codes.push(first, second, await codeOf(commit((tx) => deposit(tx))));
      });
      expect(codes).toEqual([1, "idempotency_answered", "idempotency_answered"]);
      expect(await balanceOf(a)).toBe(1);
    });

    test("that was not waited for is waited for", async () => {
      const answer = await a.keys.idempotent<unknown>("k", {}, ({ commit }) => {
        void commit((tx) => deposit(tx));
      });
      expect(answer).toEqual({ value: 1, replayed: false });
      const unhandled = await unhandledDuring(async () => {
        const failing = a.keys.idempotent("e", {}, ({ commit }) => {
          void commit(() => {
            throw new Error("no");
          });
        });
        await expect(failing).rejects.toThrow("no");
      });
      expect(unhandled).toEqual([]);
    });

    test("cannot be used when the attempt is over", async () => {
      let kept: Attempt<Tx, object> | undefined;
      await a.keys.idempotent("k", {}, (attempt) => {
        kept = attempt;
      });
      expect(await codeOf(kept?.commit((tx) => deposit(tx)) ?? Promise.resolve())).toBe("idempotency_answered");
      expect(await balanceOf(a)).toBe(0);
    });

    test("of a decision that throws stores nothing, and another may be tried", async () => {
      const answer = await a.keys.idempotent("k", {}, async ({ commit }) => {
        const refusal = commit((tx) => {
          deposit(tx, 100);
          throw new Declined();
        });
        await expect(refusal).rejects.toThrow(Declined);
        return commit((tx) => deposit(tx, 5));
      });
      expect(answer).toEqual({ value: 5, replayed: false });
      expect(await balanceOf(a)).toBe(5);
    });

    test("that failed and was caught leaves the answer to what the function returns", async () => {
      const answer = await a.keys.idempotent<unknown>("k", {}, async ({ commit }) => {
        await commit(() => {
          throw new Declined();
        }).catch(() => {});
        return "declined";
      });
      expect(answer).toEqual({ value: "declined", replayed: false });
    });

    test("of an async decision, or of an answer that cannot be stored, is refused, and frees the key", async () => {
      // @ts-expect-error A decision has its answer at once.
      const async = a.keys.idempotent("k", {}, ({ commit }) => commit(async (tx: Tx) => deposit(tx)));
      expect(await codeOf(async)).toBe("decision_async");
      const unstorable = a.keys.idempotent("k", {}, ({ commit }) =>
        commit((tx) => {
          deposit(tx);
          return () => 1;
        }),
      );
      expect(await codeOf(unstorable)).toBe("invalid_value");
      expect(await balanceOf(a)).toBe(0);
      expect(await a.keys.idempotent("k", {}, work())).toMatchObject({ replayed: false });
    });

    test("by an attempt that was taken over has no effect", async () => {
      const first = await slowly(a);
      first.attempt.lapse();
      await place.clock.advance(LEASE_MS);
      const second = await slowly(b);
      expect(await codeOf(first.attempt.commit((tx) => deposit(tx)))).toBe("fenced");
      second.resolve("fresh");
      await second.answer;
      expect(await codeOf(first.attempt.commit((tx) => deposit(tx)))).toBe("fenced");
      first.resolve(0);
      expect(await codeOf(first.answer)).toBe("fenced");
      expect(await balanceOf(a)).toBe(0);
    });

    test("stays, whatever the function does after it; but the answer is what was committed", async () => {
      const failing = a.keys.idempotent("k", { storeErrors: () => true }, async ({ commit }) => {
        await commit((tx) => deposit(tx));
        throw new Error("the receipt could not be mailed");
      });
      await expect(failing).rejects.toThrow("mailed");
      expect(await b.keys.idempotent("k", {}, work())).toEqual({ value: 1, replayed: true });
      const unsure = a.keys.idempotent("u", {}, async ({ commit }) => {
        await commit(() => 1);
        throw storeError("outcome_unknown", "settle");
      });
      expect(await codeOf(unsure)).toBe("outcome_unknown");
      const other = a.keys.idempotent<unknown>("l", {}, async ({ commit }) => {
        await commit((tx) => deposit(tx));
        return "something else";
      });
      expect(await codeOf(other)).toBe("invalid_argument");
      expect(await b.keys.idempotent("l", {}, work())).toEqual({ value: 2, replayed: true });
    });

    test("with SQL needs a store that has it", async () => {
      if (_ !== "memory") return;
      const answer = a.keys.idempotent("k", {}, ({ commitSql }) => commitSql(async () => 1));
      expect(await codeOf(answer)).toBe("invalid_argument");
    });
  });

  describe("an error", () => {
    const decline = () => {
      ran += 1;
      throw new Declined();
    };

    test("that is not stored frees the key at once", async () => {
      await expect(a.keys.idempotent("k", { fingerprint: 1 }, decline)).rejects.toThrow(Declined);
      expect(await b.keys.idempotent("k", { fingerprint: 2 }, work())).toEqual({ value: "done", replayed: false });
      expect(ran).toBe(2);
    });

    test("that is stored is thrown again with its name, code, message and data, and nothing else of it", async () => {
      const options = { storeErrors: (error: unknown) => error instanceof Declined };
      const first = await a.keys.idempotent("k", options, decline).catch((error: unknown) => error);
      expect(first).toBeInstanceOf(Declined);
      expect(isReplayed(first)).toBe(false);
      const again = await b.keys.idempotent("k", options, decline).catch((error: unknown) => error);
      expect(isReplayed(again)).toBe(true);
      expect(again).toMatchObject({
        name: "Declined",
        code: "card_declined",
        message: "the card was declined",
        data: { reason: "empty" },
      });
      expect(again).not.toHaveProperty("request");
      expect(ran).toBe(1);
      await expect(a.keys.idempotent("other", options, () => Promise.reject(new Error("no")))).rejects.toThrow("no");
      expect(await a.keys.idempotent("other", options, work())).toMatchObject({ replayed: false });
    });

    test("of any kind can be stored", async () => {
      const errors = [
        Object.assign(new Error("cyclic"), { data: globalThis }),
        new Error("x".repeat(3_000_000)),
        Object.assign(new Error("large"), { data: "x".repeat(3_000_000) }),
        "a text",
        () => "a function",
      ];
      for (const [i, error] of errors.entries()) {
        const call = () => a.keys.idempotent(`e${i}`, { storeErrors: () => true }, () => Promise.reject(error));
        expect(await call().catch((thrown: unknown) => thrown)).toBe(error);
        const again = await call().catch((thrown: unknown) => thrown);
        if (error instanceof Error) {
          expect(isReplayed(again)).toBe(true);
          expect(error.message.startsWith(String((again as Error).message))).toBe(true);
        } else if (typeof error === "string") expect(again).toBe(error);
        else expect(isReplayed(again)).toBe(true);
      }
    });

    test("in the choice of errors frees the key, and is heard", async () => {
      const storeErrors = () => {
        throw new Error("a mistake");
      };
      await expect(a.keys.idempotent("k", { storeErrors }, decline)).rejects.toThrow("a mistake");
      expect(await a.keys.idempotent("k", {}, work())).toMatchObject({ replayed: false });
    });
  });

  test("an answer that cannot be stored fails the call and is not asked for again", async () => {
    for (const [key, value, code] of [
      ["function", { f: () => 1 }, "invalid_value"],
      ["large", "x".repeat(2_000_000), "value_too_large"],
    ] as const) {
      expect(await codeOf(a.keys.idempotent(key, {}, work(value)))).toBe(code);
      const again = await b.keys.idempotent(key, {}, work(value)).catch((error: unknown) => error);
      expect(again).toMatchObject({ code, replayed: true });
    }
    expect(ran).toBe(2);
  });

  describe("time", () => {
    test("a key is free again from the millisecond it expires", async () => {
      await a.keys.idempotent("k", { fingerprint: 1 }, work());
      await place.clock.advance(DAY_MS - 1);
      expect(await b.keys.idempotent("k", { fingerprint: 1 }, work())).toMatchObject({ replayed: true });
      expect(await codeOf(b.keys.idempotent("k", { fingerprint: 2 }, work()))).toBe("idempotency_mismatch");
      await place.clock.advance(1);
      expect(await b.keys.idempotent("k", { fingerprint: 2 }, work("new"))).toEqual({ value: "new", replayed: false });
      expect(await a.keys.idempotent("k", { fingerprint: 2 }, work())).toEqual({ value: "new", replayed: true });
    });

    test("a replay does not put the expiry off", async () => {
      await a.keys.idempotent("k", { ttl: 1_000 }, work());
      await place.clock.advance(600);
      await a.keys.idempotent("k", { ttl: 1_000 }, work());
      await place.clock.advance(400);
      expect(await a.keys.idempotent("k", { ttl: 1_000 }, work())).toMatchObject({ replayed: false });
    });

    test("the answer of work that took longer than its ttl is kept for its ttl all the same", async () => {
      const { answer, resolve } = await slowly(a, "k", { ttl: 1_000, lease: 10_000 });
      await place.clock.advance(60_000);
      expect(await codeOf(b.keys.idempotent("k", {}, work()))).toBe("idempotency_in_progress");
      resolve("long");
      await answer;
      await place.clock.advance(999);
      expect(await b.keys.idempotent("k", {}, work())).toEqual({ value: "long", replayed: true });
      await place.clock.advance(1);
      expect(await b.keys.idempotent("k", {}, work())).toMatchObject({ replayed: false });
    });

    test("a sweep removes what has expired, and leaves what has not", async () => {
      const dead = await slowly(a, "dead", { ttl: "1 hour" });
      dead.attempt.lapse();
      await a.keys.idempotent("old", { ttl: "1 hour" }, work());
      await a.keys.idempotent("young", { ttl: "3 hours" }, work());
      await a.keys.dedupe("mail", "old", () => 1, { ttl: "1 hour" });
      await a.keys.dedupe("mail", "young", () => 1, { ttl: "3 hours" });
      expect(await a.keys.sweep()).toBe(0);
      // The lease of the dead one is over; it rests until somebody takes it over or it expires.
      await place.clock.advance(LEASE_MS);
      expect(await b.keys.sweep()).toBe(0);
      expect((await a.kernel.due({ kinds: ["idempotent", "dedupe"], limit: 10 })).keys).toEqual([]);
      await place.clock.advance(3_600_000 - LEASE_MS - 1);
      expect(await b.keys.sweep()).toBe(0);
      await place.clock.advance(1);
      const live = await slowly(a, "live", { ttl: 1 });
      await place.clock.advance(1);
      expect(await b.keys.sweep(2)).toBe(2);
      expect(await b.keys.sweep()).toBe(1);
      expect(await b.keys.idempotent("young", { ttl: "3 hours" }, work())).toMatchObject({ replayed: true });
      expect(await b.keys.dedupe("mail", "young", () => 1)).toEqual({ deduplicated: true });
      live.resolve("alive");
      expect(await live.answer).toMatchObject({ value: "alive" });
      dead.resolve("dead");
      expect(await codeOf(dead.answer)).toBe("fenced");
    });

    test("keys are swept by themselves, at first and then now and then", async () => {
      const left = async () => (await a.kernel.due({ kinds: ["idempotent", "dedupe"], limit: 1_000 })).keys.length;
      for (let i = 0; i < 20; i++) await a.keys.idempotent(`k${i}`, { ttl: 1 }, work());
      await place.clock.advance(10);
      expect(await left()).toBe(20);
      await b.keys.idempotent("first", {}, work());
      await drained();
      expect(await left()).toBe(0);
      for (let i = 0; i < 20; i++) await a.keys.dedupe("c", `${i}`, () => 1, { ttl: 1 });
      await place.clock.advance(10);
      await b.keys.dedupe("c", "one", () => 1);
      expect(await left()).toBe(20);
      // A decision cannot sweep, but it is counted.
      for (let i = 0; i < 255; i++) await b.kernel.transact((tx) => b.keys.within(tx).dedupe("d", `${i % 2}`), []);
      b.keys.tidy();
      await drained();
      // Not so soon after the last time.
      expect(await left()).toBe(20);
      await place.clock.advance(1_000);
      b.keys.tidy();
      await drained();
      expect(await left()).toBe(0);
    });

    test("the fences of a key go on rising when it has expired and is gone for good", async () => {
      const fences: number[] = [];
      for (let i = 0; i < 3; i++) {
        await a.keys.idempotent("k", { ttl: 1 }, ({ fence }) => void fences.push(fence));
        // A store whose clock steps back must not give an old fence again.
        place.jump(-5_000);
        await place.clock.advance(5_010);
        await a.keys.sweep();
        await place.clock.advance(1);
        await place.sweepStore();
        place.jump(-1_000);
      }
      expect(fences.toSorted((x, y) => x - y)).toEqual(fences);
      expect(new Set(fences).size).toBe(3);
      const [row] = await a.kernel.read([address("idempotent", "k")]);
      expect(row).toBeNull();
    });
  });

  test("closing waits for work that is under way, but not for long", async () => {
    const { answer, resolve } = await slowly(a);
    expect([a.keys.isBusy, b.keys.isBusy]).toEqual([true, false]);
    let isClosed = false;
    const closing = a.keys.close().then(() => {
      isClosed = true;
    });
    await place.clock.advance(4_999);
    expect(isClosed).toBe(false);
    resolve(1);
    await Promise.all([answer, closing]);
    expect([a.keys.isBusy, place.clock.timerCount]).toEqual([false, 0]);
    const stuck = await slowly(a, "l");
    const giving = a.keys.close();
    await place.clock.advance(5_000);
    await giving;
    stuck.resolve(1);
    await stuck.answer;
  });

  describe("in a decision", () => {
    const once = (member: Member, key: string, options: { fingerprint?: unknown } = {}) =>
      member.kernel.transact(
        (tx) => member.keys.within(tx).idempotent(key, options, () => ({ balance: deposit(tx) })),
        [BALANCE],
      );

    test("the answer is stored with everything else, in one commit, and given again", async () => {
      expect(await once(a, "k")).toEqual({ value: { balance: 1 }, replayed: false });
      expect(await once(b, "k")).toEqual({ value: { balance: 1 }, replayed: true });
      expect(await b.keys.idempotent("k", {}, work())).toEqual({ value: { balance: 1 }, replayed: true });
      expect([await balanceOf(a), ran]).toEqual([1, 0]);
      await place.clock.advance(DAY_MS);
      expect(await once(b, "k")).toEqual({ value: { balance: 2 }, replayed: false });
    });

    test("another request, and a key that is worked on, refuse the whole decision", async () => {
      await once(a, "k", { fingerprint: 1 });
      const both = (key: string) =>
        a.kernel.transact((tx) => {
          deposit(tx, 100);
          return a.keys.within(tx).idempotent(key, { fingerprint: 2 }, () => 1);
        }, []);
      expect(await codeOf(both("k"))).toBe("idempotency_mismatch");
      const { answer, resolve } = await slowly(b, "l", { fingerprint: 2 });
      expect(await codeOf(both("l"))).toBe("idempotency_in_progress");
      resolve(1);
      await answer;
      expect(await balanceOf(a)).toBe(1);
    });

    test("an attempt that was interrupted is taken over, and refused when it comes back", async () => {
      const { answer, attempt, resolve } = await slowly(b);
      attempt.lapse();
      await place.clock.advance(LEASE_MS);
      expect(await once(a, "k")).toEqual({ value: { balance: 1 }, replayed: false });
      resolve("stale");
      expect(await codeOf(answer)).toBe("fenced");
      expect(await once(a, "k")).toEqual({ value: { balance: 1 }, replayed: true });
    });

    test("an answer that cannot be stored, or is a promise, refuses it too", async () => {
      const answering = (value: unknown) =>
        a.kernel.transact((tx) => a.keys.within(tx).idempotent("k", {}, () => value), []);
      expect(await codeOf(answering(() => 1))).toBe("invalid_value");
      expect(await codeOf(answering(Promise.resolve(1)))).toBe("decision_async");
    });

    test("a message is new once", async () => {
      const isNew = (member: Member, consumer: string) =>
        member.kernel.transact((tx) => member.keys.within(tx).dedupe(consumer, "m", { ttl: 500 }), []);
      expect([await isNew(a, "mail"), await isNew(b, "mail"), await isNew(b, "ship")]).toEqual([true, false, true]);
      await place.clock.advance(499);
      expect(await isNew(a, "mail")).toBe(false);
      await place.clock.advance(1);
      expect(await isNew(a, "mail")).toBe(true);
    });
  });

  test("what cannot be a call is refused before anything is written", async () => {
    const good = { fingerprint: 1 };
    const bad: [string, () => Promise<unknown>, string][] = [
      ["an empty key", () => a.keys.idempotent("", good, work()), "invalid_id"],
      ["a key that is none", () => a.keys.idempotent(7 as unknown as string, good, work()), "invalid_id"],
      ["a key with NUL", () => a.keys.idempotent("a\0b", good, work()), "invalid_id"],
      ["a key with a lone surrogate", () => a.keys.idempotent("\ud800", good, work()), "invalid_id"],
      ["a long key", () => a.keys.idempotent("k".repeat(257), good, work()), "invalid_id"],
      ["an empty scope", () => a.keys.idempotent("k", { scope: "" }, work()), "invalid_id"],
      ["a scope with a lone surrogate", () => a.keys.idempotent("k", { scope: "\udc00" }, work()), "invalid_id"],
      [
        "a scope that is none",
        () => a.keys.idempotent("k", { scope: null as unknown as string }, work()),
        "invalid_id",
      ],
      ["a huge scope", () => a.keys.idempotent("k", { scope: "s".repeat(20_000) }, work()), "invalid_id"],
      [
        "a request that cannot be stored",
        () => a.keys.idempotent("k", { fingerprint: () => 1 }, work()),
        "invalid_value",
      ],
      ["no time", () => a.keys.idempotent("k", { ttl: 0 }, work()), "invalid_duration"],
      ["a time without a unit", () => a.keys.idempotent("k", { ttl: "5" }, work()), "invalid_duration"],
      ["an endless time", () => a.keys.idempotent("k", { ttl: Number.POSITIVE_INFINITY }, work()), "invalid_duration"],
      ["a lease of nothing", () => a.keys.idempotent("k", { lease: 0 }, work()), "invalid_duration"],
      ["a lease of ten years", () => a.keys.idempotent("k", { lease: "520 weeks" }, work()), "invalid_duration"],
      ["no function", () => a.keys.idempotent("k", good, 5 as unknown as () => number), "invalid_argument"],
      [
        "a choice that is none",
        () => a.keys.idempotent("k", { storeErrors: true as unknown as () => boolean }, work()),
        "invalid_argument",
      ],
      [
        "a misspelt option",
        () => a.keys.idempotent("k", { fingerPrint: 1 } as IdempotentOptions, work()),
        "invalid_argument",
      ],
      ["options that are none", () => a.keys.idempotent("k", "x" as IdempotentOptions, work()), "invalid_argument"],
      ["no consumer", () => a.keys.dedupe("", "m", () => 1), "invalid_id"],
      ["no message", () => a.keys.dedupe("c", "", () => 1), "invalid_id"],
      ["no decision", () => a.keys.dedupe("c", "m", undefined as unknown as () => number), "invalid_argument"],
      ["no time for a mark", () => a.keys.dedupe("c", "m", () => 1, { ttl: -1 }), "invalid_duration"],
    ];
    for (const [what, call, code] of bad) expect([what, await codeOf(call())]).toEqual([what, code]);
    expect(ran).toBe(0);
    await place.clock.advance(1);
    expect((await a.kernel.due({ kinds: ["idempotent", "dedupe"], limit: 10 })).nextDueMs).toBeNull();
  });

  test("a key that a newer release wrote is refused, not misread", async () => {
    await a.keys.idempotent("k", {}, work());
    const at = address("idempotent", "k");
    await a.kernel.transact((tx) => tx.record(at).write({ status: "paused" }), [at]);
    expect(await codeOf(a.keys.idempotent("k", {}, work()))).toBe("unsupported_encoding");
  });

  describe("dedupe", () => {
    const handle = (member: Member, id = "m", amount = 1) =>
      member.keys.dedupe("mail", id, (tx) => deposit(tx, amount));

    test("a message has its effect once, and every delivery succeeds", async () => {
      expect(await handle(a)).toEqual({ deduplicated: false, value: 1 });
      expect(await handle(a)).toEqual({ deduplicated: true });
      expect(await handle(b)).toEqual({ deduplicated: true });
      expect(await a.keys.dedupe("ship", "m", (tx) => deposit(tx))).toEqual({ deduplicated: false, value: 2 });
      expect(await handle(b, "n")).toEqual({ deduplicated: false, value: 3 });
      expect(await balanceOf(a)).toBe(3);
    });

    test("many deliveries at once all succeed, and one has the effect", async () => {
      const answers = await place.clock.finish(
        Promise.all(Array.from({ length: 20 }, (_, i) => handle(i % 2 ? a : b))),
      );
      expect(answers.filter(({ deduplicated }) => !deduplicated)).toEqual([{ deduplicated: false, value: 1 }]);
      expect(await balanceOf(a)).toBe(1);
    });

    test("a decision that throws leaves the message to be delivered again", async () => {
      const refusal = a.keys.dedupe("mail", "m", (tx) => {
        deposit(tx, 100);
        throw new Declined();
      });
      await expect(refusal).rejects.toThrow(Declined);
      expect(await handle(b)).toEqual({ deduplicated: false, value: 1 });
    });

    test("a message is forgotten from the millisecond its mark expires, and after 7 days unless said otherwise", async () => {
      await handle(a);
      await place.clock.advance(7 * DAY_MS - 1);
      expect(await handle(a)).toEqual({ deduplicated: true });
      await place.clock.advance(1);
      expect(await handle(a)).toEqual({ deduplicated: false, value: 2 });
    });

    test("an async decision is refused, and leaves no mark", async () => {
      // @ts-expect-error A decision has its answer at once.
      const answer = a.keys.dedupe("mail", "m", async (tx: Tx) => deposit(tx));
      expect(await codeOf(answer)).toBe("decision_async");
      expect(await handle(a)).toEqual({ deduplicated: false, value: 1 });
    });

    test("consumers and messages are kept apart, however they are put together", async () => {
      for (const [consumer, id] of [
        ["a", "b/c"],
        ["a/b", "c"],
        ["a/b/c", "c"],
      ] as const)
        expect(await a.keys.dedupe(consumer, id, () => 1)).toMatchObject({ deduplicated: false });
    });
  });
});

describe("when the store fails", () => {
  const keysOn = () => {
    const stage = bench();
    return { ...stage, keys: new Idempotency(stage.kernel, plainly) };
  };

  test("a lease that cannot be renewed in time tells the work to stop", async () => {
    const { clock, store, keys } = keysOn();
    const ended = Promise.withResolvers<unknown>();
    const begun = Promise.withResolvers<AbortSignal>();
    const answer = keys.idempotent("k", { lease: 9_000 }, ({ abortSignal }) => {
      begun.resolve(abortSignal);
      return ended.promise;
    });
    const abortSignal = await clock.finish(begun.promise);
    for (let i = 0; i < 5; i++)
      store.commits.push(async () => {
        throw storeError("store_io", "fail");
      });
    await clock.advance(8_999);
    expect(abortSignal.aborted).toBe(false);
    await clock.advance(1);
    expect(abortSignal.reason).toBeInstanceOf(LeaseUncertainError);
    store.commits.length = 0;
    // Nobody took it over, so what it did counts.
    ended.resolve("late");
    expect(await answer).toEqual({ value: "late", replayed: false });
  });

  test("an answer that may not be stored is not told", async () => {
    const { clock, store, keys } = keysOn();
    const answer = keys.idempotent("k", {}, () => {
      store.commits.push(async () => {
        throw storeError("store_full", "fail");
      });
      return 1;
    });
    expect(await codeOf(answer)).toBe("store_full");
    expect(await codeOf(keys.idempotent("k", {}, () => 2))).toBe("idempotency_in_progress");
    await clock.advance(LEASE_MS);
    expect(await keys.idempotent("k", {}, ({ attempt }) => attempt)).toEqual({ value: 2, replayed: false });
  });

  test("a commit of whose outcome nobody knew is looked up before anybody hears of it", async () => {
    for (const isThere of [true, false]) {
      const { clock, store, kernel, keys } = keysOn();
      const answer = keys.idempotent("k", {}, ({ commit }) => {
        store.commits.push(async (batch, pass) => {
          if (isThere) await pass(batch);
          throw storeError("outcome_unknown", "settle");
        });
        // Away for longer than the patience of one call.
        const untilMs = clock.nowMs() + 1_500;
        const away = async (pass: () => Promise<{ readonly epoch: number; readonly sequence: number }>) => {
          if (clock.nowMs() >= untilMs) return pass();
          store.settles.push(away);
          throw storeError("store_unreachable", "retry");
        };
        store.settles.push(away);
        return commit((tx) => deposit(tx));
      });
      const told = await clock.finish(answer.catch((error: unknown) => error));
      if (isThere) expect(told).toEqual({ value: 1, replayed: false });
      else expect(told).toBeInstanceOf(StoreError);
      const again = await clock.finish(keys.idempotent("k", {}, ({ commit }) => commit((tx) => deposit(tx))));
      expect(again).toEqual({ value: 1, replayed: isThere });
      const [row] = await kernel.read([BALANCE]);
      expect(row?.value).toBe("1");
    }
  });
});
