/**
 * Goal: leases and answers end at their time and not before, and a store that fails makes no work happen twice.
 * Method: as in idempotency.test.ts: in memory and in a SQLite file, with a clock that stands still until it is moved.
 */

import { describe, expect, test } from "vitest";
import { BALANCE, deposit } from "../../test/idempotency/balance.ts";
import { type Member, places, twoProcesses } from "../../test/idempotency/kit.ts";
import { bench, codeOf, drained, storeError } from "../../test/kernel/kit.ts";
import { address } from "../kernel/contract.ts";
import { LeaseUncertainError, StoreError } from "../kernel/errors.ts";
import { plainly } from "../kernel/sql/in-sql.ts";
import { Idempotency } from "./idempotency.ts";

const DAY_MS = 24 * 3_600_000;
const LEASE_MS = 30_000;

describe.each(places)("on %s", (_, arrive) => {
  const { place, a, b, work, slowly } = twoProcesses(arrive);

  /** Sweeps once; returns how many keys and marks went. */
  const sweepOf = async ({ kernel }: Pick<Member, "kernel">, limit = 256): Promise<number> =>
    (await kernel.sweeper.sweep(["idempotent", "dedupe"], limit)).removed;

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
      expect(await sweepOf(a)).toBe(0);
      // The lease of the dead one is over; it rests until somebody takes it over or it expires.
      await place.clock.advance(LEASE_MS);
      expect(await sweepOf(b)).toBe(0);
      expect((await a.kernel.due({ kinds: ["idempotent", "dedupe"], limit: 10 })).keys).toEqual([]);
      await place.clock.advance(3_600_000 - LEASE_MS - 1);
      expect(await sweepOf(b)).toBe(0);
      await place.clock.advance(1);
      const live = await slowly(a, "live", { ttl: 1 });
      await place.clock.advance(1);
      expect(await sweepOf(b, 2)).toBe(2);
      expect(await sweepOf(b)).toBe(1);
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
      // What decisions make is counted too.
      const make = (i: number) => b.kernel.transact((tx) => b.keys.within(tx).dedupe("d", `${i}`), []);
      for (let i = 0; i < 255; i++) await make(i);
      await drained();
      // Not so soon after the last time.
      expect(await left()).toBe(20);
      await place.clock.advance(1_000);
      await make(255);
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
        await sweepOf(a);
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
    for (let i = 0; i < 50; i++)
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
