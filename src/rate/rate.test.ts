/**
 * Goal: a rate limit is one for all processes: it never grants more than it says, callers are served in order, and waiting costs one
 * commit.
 * Method: every law on memory and SQLite, through the handle. Where time matters, the test moves it: a kernel on a memory store, with the
 * store's clock and the process's clock set by the test.
 */

import { getEventListeners } from "node:events";
import { afterAll, describe, expect, test } from "vitest";
import { bench, codeOf, drained, temporaryFolder } from "../../test/kernel/kit.ts";
import { address } from "../kernel/contract.ts";
import { Kernel } from "../kernel/kernel.ts";
import { trapAmbient } from "../node/trap.ts";
import { open } from "../open.ts";
import { MemoryDatabase } from "../stores/memory/memory.ts";
import { RateLimitedError } from "./errors.ts";
import { type RateLimit, type RateLimitOptions, RateLimits } from "./rate.ts";

const folder = temporaryFolder();
afterAll(() => folder.remove());
let files = 0;

const stores = [
  ["memory", () => "memory:"],
  ["SQLite", () => folder.file(`rates-${files++}.db`)],
] as const;

for (const [name, place] of stores)
  describe(`on ${name}`, () => {
    const fresh = () => open({ store: place(), durability: "process" });
    /** A limit that does not move while a test lasts. */
    const still = { max: 3, per: "1 hour" };

    test("grants a burst immediately, then returns when there is more", async () => {
      await using pawl = await fresh();
      const limit = new RateLimits(pawl.kernel).limit("mail", still);
      expect(await limit.tryAcquire()).toEqual({ ok: true, remaining: 2 });
      expect(await limit.tryAcquire({ count: 2 })).toEqual({ ok: true, remaining: 0 });
      const refused = await limit.tryAcquire();
      expect(refused).toMatchObject({ ok: false, code: "rate_limited" });
      const { retryAfterMs } = refused as { retryAfterMs: number };
      expect(retryAfterMs).toBeGreaterThan(20 * 60_000 - 5_000);
      expect(retryAfterMs).toBeLessThanOrEqual(20 * 60_000);
    });

    test("of many concurrent callers, exactly the burst is served", async () => {
      await using pawl = await fresh();
      const limit = new RateLimits(pawl.kernel).limit("mail", { ...still, burst: 17 });
      const answers = await Promise.all(Array.from({ length: 100 }, () => limit.tryAcquire()));
      expect(answers.filter(({ ok }) => ok)).toHaveLength(17);
      expect(answers.slice(0, 17).every(({ ok }) => ok)).toBe(true);
    });

    test("waiters are served in the order of their calls, not before their time", async () => {
      await using pawl = await fresh();
      const limit = new RateLimits(pawl.kernel).limit("mail", { max: 50, per: "1s", burst: 1 });
      const startedMs = performance.now();
      const order: number[] = [];
      await Promise.all(
        Array.from({ length: 5 }, async (_, i) => {
          const { waitedMs } = await limit.acquire();
          order.push(i);
          expect(performance.now() - startedMs).toBeGreaterThanOrEqual(20 * i - 2);
          expect(waitedMs).toBeLessThanOrEqual(performance.now() - startedMs + 2);
        }),
      );
      expect(order).toEqual([0, 1, 2, 3, 4]);
    });

    test("each key has its own bucket, and so have calls without a key", async () => {
      await using pawl = await fresh();
      const limit = new RateLimits(pawl.kernel).limit("mail", { ...still, burst: 1 });
      const keys = ["a", "A", "a/b", "..", "%", undefined, "mail"];
      for (const key of keys) expect(await limit.tryAcquire({ key })).toMatchObject({ ok: true });
      for (const key of keys) expect(await limit.tryAcquire({ key })).toMatchObject({ ok: false });
    });

    test("names and keys that are equal when concatenated have separate buckets", async () => {
      await using pawl = await fresh();
      const limits = new RateLimits(pawl.kernel);
      const one = limits.limit("a", { ...still, burst: 1 });
      const other = limits.limit("a/b", { ...still, burst: 1 });
      expect(await one.tryAcquire({ key: "b/c" })).toMatchObject({ ok: true });
      expect(await other.tryAcquire({ key: "c" })).toMatchObject({ ok: true });
      expect(await other.tryAcquire()).toMatchObject({ ok: true });
    });

    test("in a decision, tokens are taken with the whole commit or not at all", async () => {
      await using pawl = await fresh();
      const limit = new RateLimits(pawl.kernel).limit("mail", still);
      const sent = pawl.slot<number>("sent", { initial: 0 });
      const send = (count: number, isToFail = false) =>
        pawl.kernel.transact((tx) => {
          const { value } = sent.within(tx).update((n) => n + count);
          const { remaining } = limit.within(tx).take(count);
          if (isToFail) throw new RangeError("no");
          return { value, remaining };
        }, []);
      expect(await send(2)).toEqual({ value: 2, remaining: 1 });
      await expect(send(1, true)).rejects.toThrow(RangeError);
      const refusal = await send(2).catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(RateLimitedError);
      expect(refusal).toMatchObject({ code: "rate_limited", data: { limit: "mail" } });
      expect((await sent.get()).value).toBe(2);
      expect((await limit.inspect()).remaining).toBe(1);
      const twice = await pawl.kernel.transact((tx) => {
        const mail = limit.within(tx);
        return [mail.tryTake(), mail.tryTake(), mail.tryTake(1, { key: "k" })];
      }, []);
      expect(twice).toMatchObject([{ ok: true, remaining: 0 }, { ok: false }, { ok: true, remaining: 2 }]);
    });

    test("the current figures can be inspected without taking tokens", async () => {
      await using pawl = await fresh();
      const limit = new RateLimits(pawl.kernel).limit("mail", { ...still, burst: 5 });
      const full = { max: 3, perMs: 3_600_000, burst: 5, remaining: 5, waitMs: 0 };
      expect([await limit.inspect(), await limit.inspect()]).toEqual([full, full]);
      await limit.acquire({ count: 5 });
      const info = await limit.inspect();
      expect(info).toMatchObject({ remaining: 0 });
      expect(info.waitMs).toBeGreaterThan(19 * 60_000);
      expect(await limit.inspect({ key: "k" })).toEqual(full);
    });
  });

describe("bad input is refused before anything is written", () => {
  const good = { max: 1, per: "1s" };
  const options: [string, unknown, string][] = [
    ["no options", undefined, "invalid_argument"],
    ["max 0", { ...good, max: 0 }, "invalid_argument"],
    ["max -1", { ...good, max: -1 }, "invalid_argument"],
    ["max 1.5", { ...good, max: 1.5 }, "invalid_argument"],
    ["max NaN", { ...good, max: Number.NaN }, "invalid_argument"],
    ["max as text", { ...good, max: "1" }, "invalid_argument"],
    ["max of more than a million", { ...good, max: 1_000_001 }, "invalid_argument"],
    ["per 0", { ...good, per: 0 }, "invalid_duration"],
    ["per -5", { ...good, per: -5 }, "invalid_duration"],
    ["per Infinity", { ...good, per: Number.POSITIVE_INFINITY }, "invalid_duration"],
    ["per without a unit", { ...good, per: "5" }, "invalid_duration"],
    ["no per", { max: 1 }, "invalid_duration"],
    ["burst 0", { ...good, burst: 0 }, "invalid_argument"],
    ["burst 1.5", { ...good, burst: 1.5 }, "invalid_argument"],
    ["strict with a burst", { ...good, burst: 2, strict: true }, "invalid_argument"],
    ["strict that is not a boolean", { ...good, strict: "yes" }, "invalid_argument"],
    ["a bucket that never fills", { max: 1, per: "52 weeks", burst: 1000 }, "invalid_argument"],
  ];
  test.each(options)("%s", async (_, given, code) => {
    await using pawl = await open("memory:");
    const limits = new RateLimits(pawl.kernel);
    const act = async () => limits.limit("mail", given as RateLimitOptions);
    expect(await codeOf(act())).toBe(code);
  });

  const asks: [string, (limit: RateLimit) => Promise<unknown>, string][] = [
    ["a count of 0", (limit) => limit.acquire({ count: 0 }), "invalid_argument"],
    ["a count of 1.5", (limit) => limit.tryAcquire({ count: 1.5 }), "invalid_argument"],
    ["more than the burst", (limit) => limit.tryAcquire({ count: 4 }), "invalid_argument"],
    ["more than the burst, with a timeout", (limit) => limit.acquire({ count: 4 }), "invalid_argument"],
    ["an empty key", (limit) => limit.acquire({ key: "" }), "invalid_id"],
    ["a key with a NUL", (limit) => limit.tryAcquire({ key: "\0" }), "invalid_id"],
    ["a key that is no text", (limit) => limit.inspect({ key: 5 as unknown as string }), "invalid_id"],
    ["a timeout of -5", (limit) => limit.acquire({ timeout: -5 }), "invalid_duration"],
    ["a timeout without a unit", (limit) => limit.acquire({ timeout: "5" }), "invalid_duration"],
  ];
  test.each(asks)("%s", async (_, ask, code) => {
    await using pawl = await open("memory:");
    expect(await codeOf(ask(new RateLimits(pawl.kernel).limit("mail", { max: 3, per: "1s" })))).toBe(code);
    expect(await pawl.kernel.list({ space: "rate", prefix: "", after: null, limit: 10 })).toEqual([]);
  });

  test.each(["", "\n", "\ud800", "x".repeat(257)])("the name %j", async (name) => {
    await using pawl = await open("memory:");
    const act = async () => new RateLimits(pawl.kernel).limit(name, good);
    expect(await codeOf(act())).toBe("invalid_id");
  });
});

describe("waiting", () => {
  /** One in 100 ms. */
  const slow = { max: 1, per: "100ms" };
  const ground = () => {
    const { clock, kernel, store } = bench({ trap: trapAmbient });
    const limits = new RateLimits(kernel);
    return { clock, kernel, store, limits, limit: limits.limit("mail", slow) };
  };
  const later = (act: Promise<unknown>): { code: unknown } => {
    const seen: { code: unknown } = { code: "waiting" };
    act.then(
      () => {
        seen.code = "served";
      },
      (error: { code?: unknown; name: string }) => {
        seen.code = error.code ?? error.name;
      },
    );
    return seen;
  };

  test("is one commit, one timer, and no read in between", async () => {
    const { clock, store, limit } = ground();
    await limit.acquire();
    await drained();
    const before = store.batches.length;
    const ask = later(limit.acquire());
    await clock.advance(99);
    expect(ask.code).toBe("waiting");
    expect(clock.timerCount).toBe(1);
    await clock.advance(1);
    expect(ask.code).toBe("served");
    expect(store.batches.length - before).toBe(1);
    expect(clock.timerCount).toBe(0);
  });

  test("whose turn would come too late is refused immediately, and takes nothing", async () => {
    const { clock, limit } = ground();
    await limit.acquire();
    const refused = await limit.acquire({ timeout: 99 }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: "rate_limited", data: { limit: "mail", retryAfterMs: 100 } });
    const inTime = later(limit.acquire({ timeout: 100 }));
    await drained();
    expect(await codeOf(limit.acquire({ timeout: "199ms" }))).toBe("rate_limited");
    expect(await codeOf(limit.acquire({ timeout: 0 }))).toBe("rate_limited");
    await clock.advance(100);
    expect(inTime.code).toBe("served");
    await clock.advance(100);
    expect(await limit.acquire({ timeout: 0 })).toEqual({ waitedMs: 0 });
  });

  test("that is aborted ends immediately with the reason, and releases its turn to the next caller", async () => {
    const { clock, limit } = ground();
    await limit.acquire();
    const stop = new AbortController();
    const gaveUp = later(limit.acquire({ abortSignal: stop.signal }));
    const after = later(limit.acquire());
    await clock.advance(50);
    stop.abort(Object.assign(new Error("enough"), { code: "my reason" }));
    await drained();
    expect(gaveUp.code).toBe("my reason");
    const next = later(limit.acquire());
    await clock.advance(50);
    expect([after.code, next.code]).toEqual(["waiting", "served"]);
    await clock.advance(100);
    expect(after.code).toBe("served");
    expect(clock.timerCount).toBe(0);
  });

  test("leaves no listener on a long-lived signal", async () => {
    const { clock, limit } = ground();
    const { signal } = new AbortController();
    const waits = [1, 2, 3].map(() => limit.acquire({ abortSignal: signal }));
    await clock.finish(Promise.all(waits));
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });

  test("that is aborted again and again, by all callers, does not use up the limit", async () => {
    const { clock, limit } = ground();
    let served = 0;
    // Three times as many as can be served, each with a timeout of one token.
    for (let i = 0; i < 300; i++) {
      const patience = new AbortController();
      limit.acquire({ abortSignal: patience.signal }).then(
        () => {
          served += 1;
        },
        () => {},
      );
      await drained();
      await clock.advance(33);
      setTimeoutOn(clock, 100 - 33, () => patience.abort());
    }
    await clock.advance(1000);
    // 300 times 33 ms are 99 tokens, and one was there at first.
    expect(served).toBeGreaterThan(80);
    expect(served).toBeLessThanOrEqual(111);
  });
  const setTimeoutOn = (clock: ReturnType<typeof bench>["clock"], ms: number, act: () => void) => clock.after(ms, act);

  test("does not begin with a signal that is aborted already", async () => {
    const { store, limit } = ground();
    const before = store.batches.length;
    await expect(limit.acquire({ abortSignal: AbortSignal.abort() })).rejects.toThrow("aborted");
    expect(store.batches.length).toBe(before);
  });

  test("an abort while the tokens are being reserved releases them, also if they were available", async () => {
    const { limit } = ground();
    const stop = new AbortController();
    const asking = limit.acquire({ abortSignal: stop.signal });
    stop.abort();
    await expect(asking).rejects.toThrow("aborted");
    expect((await limit.inspect()).remaining).toBe(1);
  });

  test("ends when the limits are closed, and its reservation is released", async () => {
    const { clock, kernel, limits, limit } = ground();
    await limit.acquire();
    const waiting = [later(limit.acquire()), later(limit.acquire({ abortSignal: new AbortController().signal }))];
    await drained();
    expect(limits.isBusy).toBe(true);
    const late = later(limit.acquire());
    await limits.close();
    await drained();
    expect([...waiting, late].map(({ code }) => code)).toEqual(["closed", "closed", "closed"]);
    expect(limits.isBusy).toBe(false);
    expect(clock.timerCount).toBe(0);
    expect((await new RateLimits(kernel).limit("mail", slow).inspect()).waitMs).toBe(100);
  });

  test("for weeks is exact, too", async () => {
    const { clock, limits } = ground();
    const rare = limits.limit("rare", { max: 1, per: "30 days" });
    await rare.acquire();
    const asked = later(rare.acquire());
    await clock.advance(30 * 86_400_000 - 1);
    expect(asked.code).toBe("waiting");
    await clock.advance(1);
    expect(asked.code).toBe("served");
  });

  test("for more than a hundred years is refused", async () => {
    const { limits } = ground();
    const never = limits.limit("never", { max: 1, per: "4000 weeks", burst: 1 });
    expect(await never.acquire()).toEqual({ waitedMs: 0 });
    later(never.acquire());
    await drained();
    expect(await codeOf(never.acquire())).toBe("rate_limited");
  });
});

describe("other figures, while old and new processes run", () => {
  const ground = () => {
    const { clock, kernel, peer } = bench({ trap: trapAmbient });
    const other = peer();
    return { clock, kernel, other, old: new RateLimits(kernel), anew: new RateLimits(other) };
  };
  const per = "1 hour";

  test("the declaration that is used last is in force for both from then on", async () => {
    const { old, anew } = ground();
    const before = old.limit("mail", { max: 10, per });
    expect(await before.tryAcquire()).toEqual({ ok: true, remaining: 9 });
    const after = anew.limit("mail", { max: 100, per });
    // Inspecting declares nothing.
    expect(await after.inspect()).toMatchObject({ max: 10, remaining: 9 });
    expect(await after.tryAcquire()).toEqual({ ok: true, remaining: 98 });
    expect(await before.tryAcquire()).toEqual({ ok: true, remaining: 97 });
    expect(await before.inspect()).toMatchObject({ max: 100, burst: 100 });
    expect(await after.tryAcquire({ count: 50 })).toEqual({ ok: true, remaining: 47 });
    // The new burst is in force for the old process, too.
    expect(await before.tryAcquire({ count: 47 })).toEqual({ ok: true, remaining: 0 });
  });

  test("the old process gets its limit again and again, and declares nothing by it", async () => {
    const { old, anew } = ground();
    await old.limit("mail", { max: 10, per }).tryAcquire();
    await anew.limit("mail", { max: 100, per }).tryAcquire();
    expect(await old.limit("mail", { max: 10, per }).tryAcquire()).toEqual({ ok: true, remaining: 97 });
    // Other figures, though, are a new declaration, and so is going back to the first.
    expect(await old.limit("mail", { max: 20, per }).tryAcquire()).toEqual({ ok: true, remaining: 16 });
    expect(await old.limit("mail", { max: 10, per }).tryAcquire()).toEqual({ ok: true, remaining: 5 });
    expect(await anew.limit("mail", { max: 100, per }).tryAcquire()).toEqual({ ok: true, remaining: 4 });
  });

  test("of ten thousand limits the oldest is forgotten, and declared again", async () => {
    const { old, anew } = ground();
    await old.limit("mail", { max: 10, per }).tryAcquire();
    await anew.limit("mail", { max: 100, per }).tryAcquire();
    for (let i = 0; i < 9_999; i++) old.limit(`other-${i}`, { max: 1, per });
    // Getting the limit counts as use, too.
    expect(await old.limit("mail", { max: 10, per }).tryAcquire()).toEqual({ ok: true, remaining: 97 });
    for (let i = 0; i < 10_000; i++) old.limit(`more-${i}`, { max: 1, per });
    expect(await old.limit("mail", { max: 10, per }).tryAcquire()).toEqual({ ok: true, remaining: 6 });
  });

  test("a stricter declaration is in force although its own process gets nothing at first", async () => {
    const { old, anew } = ground();
    const loose = old.limit("mail", { max: 10, per });
    await loose.acquire({ count: 5 });
    const strict = anew.limit("mail", { max: 2, per });
    expect(await strict.tryAcquire()).toMatchObject({ ok: false });
    expect(await loose.tryAcquire()).toMatchObject({ ok: false });
    expect(await loose.inspect()).toMatchObject({ max: 2, remaining: 0 });
    expect(await codeOf(loose.tryAcquire({ count: 5 }))).toBe("invalid_argument");
  });

  test("a declaration in a decision that was dropped is in force from the next one on", async () => {
    const { kernel, old } = ground();
    const limit = old.limit("mail", { max: 10, per });
    await limit.tryAcquire();
    const wider = old.limit("mail", { max: 20, per });
    const dropped = kernel.transact((tx) => {
      wider.within(tx).take();
      throw new RangeError("no");
    }, []);
    await expect(dropped).rejects.toThrow(RangeError);
    expect(await limit.inspect()).toMatchObject({ max: 10, remaining: 9 });
    expect(await wider.tryAcquire()).toEqual({ ok: true, remaining: 18 });
  });

  test("is in the log of the bucket, once", async () => {
    const { kernel, old, anew } = ground();
    const before = old.limit("mail", { max: 10, per });
    const after = anew.limit("mail", { max: 100, per, burst: 5 });
    for (const limit of [before, before, after, before, after]) await limit.tryAcquire();
    const at = address("rate", "mail");
    const entries = await kernel.entries(at, 0, 10);
    expect(entries.map(({ name, data }) => [name, kernel.decode(at, data)])).toEqual([
      ["declared", { max: 100, perMs: 3_600_000, burst: 5 }],
    ]);
  });

  test("waiters keep their turns", async () => {
    const { clock, old, anew } = ground();
    const before = old.limit("mail", { max: 1, per: "100ms" });
    await before.acquire();
    const waits = [before.acquire(), before.acquire()];
    await drained();
    const after = anew.limit("mail", { max: 1, per: "1s" });
    const next = after.acquire();
    expect(await clock.finish(Promise.all([...waits, next]))).toEqual([
      { waitedMs: 100 },
      { waitedMs: 200 },
      { waitedMs: 1200 },
    ]);
  });
});

describe("a clock of the store that steps back", () => {
  test("grants no more, whatever the process's clock says", async () => {
    let wallMs = 10_000_000;
    const { ports } = bench();
    const database = new MemoryDatabase(() => wallMs);
    const limit = new RateLimits(new Kernel(database.connect("test"), ports, { namespace: "test" })).limit("mail", {
      max: 5,
      per: "1s",
    });
    expect(await limit.tryAcquire({ count: 5 })).toMatchObject({ ok: true });
    for (const backMs of [1, 500, 3_600_000]) {
      wallMs -= backMs;
      expect(await limit.tryAcquire()).toMatchObject({ ok: false });
    }
    wallMs = 10_000_199;
    expect(await limit.tryAcquire()).toMatchObject({ ok: false, retryAfterMs: 1 });
    wallMs += 1;
    expect(await limit.tryAcquire()).toMatchObject({ ok: true });
  });
});

/** As a handle has them. */
function sweptLimits(kernel: Kernel): RateLimits {
  const limits = new RateLimits(kernel);
  kernel.sweeper.add(limits.queues);
  return limits;
}

describe("unused buckets", () => {
  const HOUR = 3_600_000;
  const rows = (kernel: Kernel) => kernel.list({ space: "rate/visit", prefix: "", after: null, limit: 2000 });
  const count = async (kernel: Kernel) => (await rows(kernel)).length;

  test("are removed in small steps by processes that create others, an hour after they are full again", async () => {
    const { clock, kernel } = bench();
    const limit = sweptLimits(kernel).limit("visit", { max: 10, per: "1 minute" });
    const visit = async (from: number, to: number) => {
      for (let i = from; i < to; i++) await limit.acquire({ key: `visitor-${i}` });
      await drained();
    };
    await visit(0, 600);
    expect(await count(kernel)).toBe(600);
    await clock.advance(HOUR);
    await visit(600, 856);
    // A moment too early: each was full again 6 s after it was used.
    expect(await count(kernel)).toBe(856);
    await clock.advance(6_001);
    await visit(856, 1112);
    // One step: twice as many as were created.
    expect(await count(kernel)).toBe(1112 - 512);
    await visit(1112, 1368);
    expect((await rows(kernel)).every(({ key }) => Number(key.slice(8)) >= 600)).toBe(true);
  });

  test("are removed by a limit that is only used in decisions, too", async () => {
    const { clock, kernel } = bench({ trap: trapAmbient });
    const limit = sweptLimits(kernel).limit("visit", { max: 10, per: "1 minute" });
    const visit = (i: number) => kernel.transact((tx) => limit.within(tx).take(1, { key: `visitor-${i}` }), []);
    for (let i = 0; i < 30; i++) await visit(i);
    await clock.advance(2 * HOUR);
    for (let i = 30; i < 300; i++) await visit(i);
    await drained();
    expect((await rows(kernel)).filter(({ key }) => Number(key.slice(8)) < 30)).toEqual([]);
  });

  test("stay as long as they are not full, and are removed later", async () => {
    const { clock, kernel } = bench();
    const limit = sweptLimits(kernel).limit("visit", { max: 1, per: "2 hours", burst: 2 });
    const oftens = async () => (await rows(kernel)).filter(({ key }) => key === "often").length;
    let visitors = 0;
    const visit = async () => {
      for (let i = 0; i < 256; i++) await limit.acquire({ key: `visitor-${visitors++}` });
      await drained();
    };
    await limit.acquire({ key: "often", count: 2 });
    await clock.advance(3 * HOUR);
    // Full in three hours now, no longer in one as when it was created.
    await limit.acquire({ key: "often" });
    await clock.advance(2.5 * HOUR);
    await visit();
    expect(await oftens()).toBe(1);
    expect(await limit.inspect({ key: "often" })).toMatchObject({ remaining: 1 });
    await clock.advance(1.4 * HOUR);
    await visit();
    expect(await oftens()).toBe(1);
    await clock.advance(0.2 * HOUR);
    await visit();
    expect(await oftens()).toBe(0);
  });

  test("are found behind any number of buckets that are in use", async () => {
    const { clock, kernel } = bench();
    const limits = sweptLimits(kernel);
    const busy = limits.limit("busy", { max: 1, per: "10 hours", burst: 2 });
    const limit = limits.limit("visit", { max: 1, per: "1 minute" });
    const takeBusy = () => Promise.all(Array.from({ length: 150 }, (_, i) => busy.acquire({ key: `busy-${i}` })));
    const visit = (name: string) =>
      Promise.all(Array.from({ length: 100 }, (_, i) => limit.acquire({ key: `${name}-${i}` })));
    await takeBusy();
    await clock.advance(9 * HOUR);
    await takeBusy();
    await clock.advance(1.5 * HOUR);
    await visit("early");
    // All are due for a check now, those in use first.
    await clock.advance(1.1 * HOUR);
    for (const name of ["a", "b", "c"]) await visit(name);
    await drained();
    expect((await rows(kernel)).filter(({ key }) => key.startsWith("early"))).toEqual([]);
    expect((await busy.inspect({ key: "busy-7" })).remaining).toBe(1);
  });

  test("are created again as full ones", async () => {
    const { clock, kernel } = bench({ trap: trapAmbient });
    const limits = sweptLimits(kernel);
    const limit = limits.limit("visit", { max: 2, per: "1 minute" });
    await limit.acquire({ key: "a", count: 2 });
    await clock.advance(2 * HOUR);
    for (let i = 0; i < 256; i++) await limit.acquire({ key: `b${i}` });
    await drained();
    expect((await rows(kernel)).map(({ key }) => key)).not.toContain("a");
    expect(await limit.tryAcquire({ key: "a" })).toEqual({ ok: true, remaining: 1 });
    expect((await rows(kernel)).map(({ key }) => key)).toContain("a");
  });
});

describe("two handles on one SQLite file", () => {
  test("share one bucket", async () => {
    const file = folder.file("shared.db");
    await using ann = await open(file, { durability: "process" });
    await using bob = await open(file, { durability: "process" });
    const limits = [ann, bob].map((pawl) => pawl.rateLimit("mail", { max: 20, per: "1 hour" }));
    const asks = Array.from({ length: 40 }, (_, i) => limits[i % 2]?.tryAcquire());
    const answers = await Promise.all(asks);
    expect(answers.filter((answer) => answer?.ok)).toHaveLength(20);
  });
});

describe("in any time of length `per`", () => {
  /** The times of the grants if the callers ask as often as possible. */
  const turnsOf = async (figures: RateLimitOptions, steps: readonly number[]): Promise<number[]> => {
    let wallMs = 10_000_000;
    const { ports } = bench();
    const database = new MemoryDatabase(() => wallMs);
    const limit = new RateLimits(new Kernel(database.connect("test"), ports, { namespace: "test" })).limit(
      "mail",
      figures,
    );
    const turns: number[] = [];
    for (const step of steps) {
      wallMs += step;
      while ((await limit.tryAcquire()).ok) turns.push(wallMs);
    }
    return turns;
  };

  const mostWithin = (turns: readonly number[], ms: number): number =>
    Math.max(...turns.map((from) => turns.filter((at) => at >= from && at < from + ms).length));

  const figures = [
    { max: 10, per: 1000 },
    { max: 3, per: 1000 },
    { max: 7, per: 100 },
  ];
  test.each(figures)("a strict limit grants at most $max in $per ms, and no fewer under full load", async (given) => {
    const eager = await turnsOf({ ...given, strict: true }, Array(2_500).fill(1));
    expect(mostWithin(eager, given.per)).toBe(given.max);
    const uneven = Array.from({ length: 400 }, (_, n) => (n * n) % 37);
    expect(mostWithin(await turnsOf({ ...given, strict: true }, uneven), given.per)).toBeLessThanOrEqual(given.max);
  });

  test("a limit that is not strict grants saved tokens as well", async () => {
    const [given] = figures as [RateLimitOptions];
    const turns = await turnsOf(given, Array(1_000).fill(1));
    expect(mostWithin(turns, 1000)).toBe(19);
  });
});
