/**
 * Goal: under one key the work is done once, everybody who asks for it hears what it came to, and nobody else does (G2, G3, G6).
 * Method: every law in memory and in a SQLite file, with a clock that stands still until it is moved; a second kernel on the same store
 * stands for another process. Overlaps are forced by gates inside the work.
 */

import { describe, expect, test } from "vitest";
import { Declined } from "../../test/idempotency/balance.ts";
import { places, twoProcesses } from "../../test/idempotency/kit.ts";
import { codeOf } from "../../test/kernel/kit.ts";
import { address } from "../kernel/contract.ts";
import { isReplayed } from "./errors.ts";
import type { IdempotentOptions } from "./idempotency.ts";

const DAY_MS = 24 * 3_600_000;
const LEASE_MS = 30_000;

describe.each(places)("on %s", (_, arrive) => {
  const { place, a, b, ran, countRun, work, slowly } = twoProcesses(arrive);

  describe("asked again", () => {
    test("the work is not done again, and its answer is given, here and elsewhere", async () => {
      expect(await a.keys.idempotent("k", {}, work())).toEqual({ value: "done", replayed: false });
      expect(await a.keys.idempotent("k", {}, work())).toEqual({ value: "done", replayed: true });
      expect(await b.keys.idempotent("k", undefined, work())).toEqual({ value: "done", replayed: true });
      expect(ran()).toBe(1);
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
      expect(ran()).toBe(1);
    });

    test("of many at once, one does the work", async () => {
      const calls = Array.from({ length: 20 }, (_, i) => codeOf((i % 2 ? a : b).keys.idempotent("k", {}, work())));
      const answers = await place.clock.finish(Promise.all(calls));
      expect(ran()).toBe(1);
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
      expect(ran()).toBe(1);
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
      expect(ran()).toBe(calls.length);
      for (const [scope, key] of calls) await b.keys.idempotent(key, { scope }, work());
      expect(ran()).toBe(calls.length);
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

  describe("an error", () => {
    const decline = () => {
      countRun();
      throw new Declined();
    };

    test("that is not stored frees the key at once", async () => {
      await expect(a.keys.idempotent("k", { fingerprint: 1 }, decline)).rejects.toThrow(Declined);
      expect(await b.keys.idempotent("k", { fingerprint: 2 }, work())).toEqual({ value: "done", replayed: false });
      expect(ran()).toBe(2);
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
      expect(ran()).toBe(1);
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
    expect(ran()).toBe(2);
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
    expect(ran()).toBe(0);
    await place.clock.advance(1);
    expect((await a.kernel.due({ kinds: ["idempotent", "dedupe"], limit: 10 })).nextDueMs).toBeNull();
  });

  test("a key that a newer release wrote is refused, not misread", async () => {
    await a.keys.idempotent("k", {}, work());
    const at = address("idempotent", "k");
    await a.kernel.transact((tx) => tx.record(at).write({ status: "paused" }), [at]);
    expect(await codeOf(a.keys.idempotent("k", {}, work()))).toBe("unsupported_encoding");
  });
});
