/**
 * Goal: an attempt holds its key while it works, commits its outcome with the work or not at all, and can do nothing once it is over (G2, G6).
 * Method: as in idempotency.test.ts: in memory and in a SQLite file, with a clock that stands still until it is moved.
 */

import { describe, expect, test } from "vitest";
import { balanceOf, Declined, deposit } from "../../test/idempotency/balance.ts";
import { places, twoProcesses } from "../../test/idempotency/kit.ts";
import { codeOf, storeError, unhandledDuring } from "../../test/kernel/kit.ts";
import type { Tx } from "../kernel/decision.ts";
import { FencedError } from "../kernel/errors.ts";
import type { Attempt } from "./attempt.ts";

const LEASE_MS = 30_000;

describe.each(places)("on %s", (_, arrive) => {
  const { place, a, b, ran, work, slowly } = twoProcesses(arrive);

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
      expect(ran()).toBe(2);
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
      expect([await balanceOf(a), ran()]).toEqual([1, 0]);
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
});
