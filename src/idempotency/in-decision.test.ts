/**
 * Goal: inside a decision a key is used once, together with everything else that is decided.
 * Method: as in idempotency.test.ts: in memory and in a SQLite file, with a clock that stands still until it is moved.
 */

import { describe, expect, test } from "vitest";
import { BALANCE, balanceOf, Declined, deposit } from "../../test/idempotency/balance.ts";
import { type Member, places, twoProcesses } from "../../test/idempotency/kit.ts";
import { codeOf } from "../../test/kernel/kit.ts";
import type { Tx } from "../kernel/decision.ts";

const DAY_MS = 24 * 3_600_000;
const LEASE_MS = 30_000;

describe.each(places)("on %s", (_, arrive) => {
  const { place, a, b, ran, work, slowly } = twoProcesses(arrive);

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
      expect([await balanceOf(a), ran()]).toEqual([1, 0]);
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
