/**
 * Goal: a lock in plain code does what its verbs say, on every store: one holder at a time, in the order of arrival, released whatever happens,
 * and lost only to a lease that ended or to an operator.
 * Method: two handles on one database, as two processes have them, through the public handle alone. Where time matters: time.test.ts.
 */

import { describe, expect, test } from "vitest";
import {
  ClosedError,
  LockLostError,
  LockNestedError,
  type LockPlace,
  LockTimeoutError,
  type Pawl,
} from "../../src/index.ts";
import { codeOf, drained } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { acquireNow, OPERATOR, queueUp, recordOf, whoOf } from "./kit.ts";

onStores(EVERY, (place) => {
  describe("a mutex", () => {
    test("is acquired under a fence with the name of its holder, and is free again after its release", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      expect(await lock.inspect()).toEqual({
        name: "m",
        kind: "mutex",
        permits: null,
        holders: [],
        waiting: 0,
        waiters: [],
      });
      const hold = await lock.acquire({ by: "ann" });
      const { holders, waiting } = await lock.inspect();
      expect(waiting).toBe(0);
      expect(holders).toEqual([
        {
          ticket: hold.ticket,
          fence: hold.fence,
          by: "ann",
          run: null,
          mode: "exclusive",
          since: expect.any(Date),
          until: expect.any(Date),
        },
      ]);
      const [holder] = holders;
      expect((holder?.until?.getTime() ?? 0) - (holder?.since.getTime() ?? 0)).toBe(30_000);
      expect(await hold.release()).toEqual({ released: true });
      expect((await lock.inspect()).holders).toEqual([]);
    });

    test("released twice is released once, and the second release does not affect the next holder", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const hold = await one.mutex("m").acquire();
      expect(await hold.release()).toEqual({ released: true });
      expect(await hold.release()).toEqual({ released: false });
      const next = await two.mutex("m").acquire({ by: "bob" });
      expect(await hold.release()).toEqual({ released: false });
      expect(await hold.renew()).toBe(false);
      expect(whoOf((await one.mutex("m").inspect()).holders)).toEqual(["bob"]);
      await next.release();
    });

    test("has a higher fence with each grant, to whichever holder", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const fences: number[] = [];
      for (const pawl of [one, two, two, one, two]) {
        const hold = await pawl.mutex("m").acquire();
        fences.push(hold.fence);
        await hold.release();
      }
      expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
      expect(fences.length).toBe(5);
    });

    test("of another name, or of another kind with the same name, is another lock", async () => {
      const pawl = await place.open();
      const all = [pawl.mutex("m"), pawl.mutex("n"), pawl.semaphore("m", { permits: 1 }), pawl.rwlock("m").write];
      const holds = await Promise.all(all.map((lock) => acquireNow(lock)));
      expect(holds.length).toBe(4);
    });

    test("is still held after a renewal, and not after a forced release, of which the holder is notified", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const hold = await lock.acquire();
      const before = (await lock.inspect()).holders[0]?.until?.getTime() ?? 0;
      expect(await hold.renew()).toBe(true);
      expect((await lock.inspect()).holders[0]?.until?.getTime()).toBeGreaterThanOrEqual(before);
      expect(hold.abortSignal.aborted).toBe(false);
      expect(await lock.forceRelease(OPERATOR)).toEqual({ released: 1 });
      expect(await hold.renew()).toBe(false);
      expect(hold.abortSignal.aborted).toBe(true);
      expect(hold.abortSignal.reason).toBeInstanceOf(LockLostError);
      expect(hold.abortSignal.reason).toMatchObject({ code: "lock_lost", data: { fence: hold.fence } });
      expect(await hold.release()).toEqual({ released: false });
    });

    test("leaves nothing behind when tryAcquire fails", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const locks = (pawl: Pawl) => [
        pawl.mutex("m"),
        pawl.semaphore("s", { permits: 1 }),
        pawl.rwlock("rw").write,
        pawl.mutex(["a", "b"]),
      ];
      const holds = [];
      for (const lock of locks(one)) holds.push(await acquireNow(lock));
      for (const lock of locks(two)) {
        expect(await lock.tryAcquire()).toEqual({ ok: false, code: "lock_busy", place: 1 });
        expect(await codeOf(two.transact((tx) => tx.lock(lock).take()))).toBe("lock_busy");
        expect((await lock.inspect()).waiters).toEqual([]);
      }
      for (const hold of holds) await hold.release();
      for (const lock of locks(one)) {
        expect((await lock.inspect()).holders).toEqual([]);
        await acquireNow(lock);
      }
      expect(await codeOf(two.mutex("m").tryAcquire({ queue: true } as object))).toBe("invalid_argument");
      expect(await codeOf(two.mutex("m").enqueue({ queue: true } as object))).toBe("invalid_argument");
    });

    test("is granted to a caller that enqueues if it is free; otherwise the caller gets a place in the queue", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const at = await one.mutex("m").enqueue({ by: "ann" });
      if (!at.granted) throw new Error("it is free");
      const { hold } = at;
      const entered = await two.mutex("m").enqueue({ by: "bob" });
      const first = entered.granted ? undefined : entered.place;
      const second = await queueUp(one.mutex("m"), "cid");
      expect(await second.position()).toBe(2);
      expect(await second.renew()).toBe(true);
      expect(await two.mutex("m").tryAcquire()).toMatchObject({ place: 3 });
      expect(whoOf((await one.mutex("m").inspect()).waiters)).toEqual(["bob", "cid"]);
      await hold.release();
      const held = await first?.acquire();
      expect(await first?.position()).toBe(0);
      expect(await second.position()).toBe(1);
      await second.leave();
      expect((await one.mutex("m").inspect()).waiting).toBe(0);
      expect(await second.renew()).toBe(false);
      expect(await codeOf(second.acquire())).toBe("place_lost");
      expect(await first?.acquire()).toBe(held);
      expect(await first?.renew()).toBe(true);
      await first?.leave();
      expect(await held?.release()).toEqual({ released: true });
      expect(await one.mutex("m").tryAcquire()).toMatchObject({ ok: true });
    });

    test("granted to a place that is then left goes to the next waiter", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const hold = await acquireNow(one.mutex("m"));
      const [bob, cid] = [await queueUp(two.mutex("m"), "bob"), await queueUp(two.mutex("m"), "cid")];
      await hold.release();
      expect(await bob.renew()).toBe(true);
      expect(whoOf((await one.mutex("m").inspect()).holders)).toEqual(["bob"]);
      await bob.leave();
      expect(whoOf((await one.mutex("m").inspect()).holders)).toEqual(["cid"]);
      // A wait that ends leaves the place.
      const blocked = await queueUp(one.mutex("m"), "dan");
      expect(await codeOf(blocked.acquire({ timeout: 1 }))).toBe("lock_timeout");
      expect(await codeOf(blocked.acquire())).toBe("place_lost");
      expect((await one.mutex("m").inspect()).waiting).toBe(0);
      await (await cid.acquire()).release();
    });

    test("is granted in the order of arrival, across processes", async () => {
      const handles = await Promise.all([place.open(), place.open()]);
      const [one] = handles;
      const hold = await acquireNow(one.mutex("m"));
      const order: number[] = [];
      const waiters = [];
      for (let n = 0; n < 8; n++) waiters.push(await queueUp(handles[n % 3 === 0 ? 0 : 1].mutex("m"), `w${n}`));
      expect(whoOf((await one.mutex("m").inspect()).waiters)).toEqual(waiters.map((_, n) => `w${n}`));
      // Asking for the grant first gives no precedence.
      const turns = waiters.map(async (waiter, n) => {
        const mine = await waiter.acquire();
        order.push(n);
        await mine.release();
      });
      turns.reverse();
      await hold.release();
      await Promise.all(turns);
      expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    });

    test("keeps its queue in order when waiters leave it, at its ends and in its middle", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const hold = await acquireNow(lock);
      const waiters = new Map<string, LockPlace>();
      for (const by of ["a", "b", "c", "d", "e", "f", "g"]) waiters.set(by, await queueUp(lock, by));
      const inLine = async () => whoOf((await lock.inspect()).waiters);
      for (const [by, left] of [
        ["d", "abcefg"],
        ["c", "abefg"],
        ["a", "befg"],
        ["g", "bef"],
      ] as const) {
        await waiters.get(by)?.leave();
        expect(await inLine()).toEqual([...left]);
      }
      waiters.set("h", await queueUp(lock, "h"));
      let last = hold;
      for (const by of "befh") {
        await last.release();
        expect(whoOf((await lock.inspect()).holders)).toEqual([by]);
        last = (await waiters.get(by)?.acquire()) ?? last;
      }
      await last.release();
      expect(await recordOf(pawl, "m")).toMatchObject({ holders: [], waiting: 0, first: null, last: null });
    });

    test("with many concurrent waiters has one holder at a time", async () => {
      const handles = await Promise.all([place.open(), place.open()]);
      let inside = 0;
      let most = 0;
      const fences: number[] = [];
      const visit = (n: number) =>
        handles[n % 2 === 0 ? 0 : 1].lock("m", async ({ fence }) => {
          inside += 1;
          most = Math.max(most, inside);
          fences.push(fence);
          await drained();
          inside -= 1;
        });
      await Promise.all(Array.from({ length: 20 }, (_, n) => visit(n)));
      expect(most).toBe(1);
      expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
    });

    test("is no longer waited for after the timeout, and the place in the queue is left", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const hold = await acquireNow(one.mutex("m"));
      const late = two.mutex("m").acquire({ timeout: 30 });
      await expect(late).rejects.toThrow(LockTimeoutError);
      await expect(late).rejects.toMatchObject({ code: "lock_timeout", data: { name: 'mutex "m"', timeoutMs: 30 } });
      expect((await one.mutex("m").inspect()).waiting).toBe(0);
      const waiter = await queueUp(two.mutex("m"));
      await expect(waiter.acquire({ timeout: 0 })).rejects.toThrow('mutex "m" was not granted within 0 ms');
      expect(await waiter.position()).toBe(0);
      await hold.release();
      await (await acquireNow(one.mutex("m"))).release();
    });

    test("is no longer waited for after an abort, with its reason; an aborted signal sends no request", async () => {
      const { pawl, commits } = await place.openHandle();
      const lock = pawl.mutex("m");
      const hold = await acquireNow(lock);
      const abort = new AbortController();
      const waiting = lock.acquire({ abortSignal: abort.signal });
      await expect.poll(async () => (await lock.inspect()).waiting, PATIENCE).toBe(1);
      const reason = new Error("never mind");
      abort.abort(reason);
      await expect(waiting).rejects.toBe(reason);
      expect((await lock.inspect()).waiting).toBe(0);
      const before = commits();
      await expect(lock.acquire({ abortSignal: abort.signal })).rejects.toBe(reason);
      expect(commits()).toBe(before);
      await hold.release();
      expect(await recordOf(pawl, "m")).toMatchObject({ holders: [], waiting: 0 });
    });

    test("a waiter that is removed from the queue is notified, those behind it move up, and the audit trail says by whom", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const lock = one.mutex("m");
      const hold = await acquireNow(lock);
      // A removed waiter is notified at its next renewal, at the latest.
      const first = await queueUp(two.mutex("m", { lease: 6_000 }), "bob");
      const second = await queueUp(two.mutex("m"), "cid");
      const turn = codeOf(first.acquire());
      expect(await lock.removeWaiter(first.ticket, OPERATOR)).toEqual({ removed: true });
      expect(await turn).toBe("lock_removed");
      expect(await second.position()).toBe(1);
      expect(await lock.removeWaiter(first.ticket, OPERATOR)).toEqual({ removed: false });
      expect(await lock.removeWaiter(hold.ticket, OPERATOR)).toEqual({ removed: false });
      await hold.release();
      await (await second.acquire()).release();
      expect(await lock.history()).toEqual([
        {
          name: "removed",
          at: expect.any(Date),
          data: { ...OPERATOR, waiter: expect.objectContaining({ ticket: first.ticket, by: "bob" }) },
        },
      ]);
    });

    test("goes to the next waiter in the commit of a forced release, and the audit trail says by whom", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const lock = two.mutex("m");
      const hold = await one.mutex("m").acquire({ by: "bob" });
      const waiter = await queueUp(lock, "cid");
      expect(await lock.forceRelease(OPERATOR)).toEqual({ released: 1 });
      expect(whoOf((await lock.inspect()).holders)).toEqual(["cid"]);
      const next = await waiter.acquire();
      expect(next.fence).toBeGreaterThan(hold.fence);
      expect(await hold.renew()).toBe(false);
      await next.release();
      expect(await lock.forceRelease(OPERATOR)).toEqual({ released: 0 });
      expect(await lock.forceRelease({ ...OPERATOR, ticket: "unknown" })).toEqual({ released: 0 });
      const history = await lock.history();
      expect(history).toEqual([
        {
          name: "forced",
          at: expect.any(Date),
          data: { ...OPERATOR, holder: expect.objectContaining({ ticket: hold.ticket, fence: hold.fence, by: "bob" }) },
        },
      ]);
    });

    test("its audit trail is read in pages, the oldest first", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      for (const reason of ["one", "two", "three"]) {
        await acquireNow(lock);
        await lock.forceRelease({ by: "ann", reason });
      }
      const reasons = async (options?: { after?: number; limit?: number }) =>
        (await lock.history(options)).map(({ data }) => (data as { reason: string }).reason);
      expect(await reasons()).toEqual(["one", "two", "three"]);
      expect(await reasons({ limit: 2 })).toEqual(["one", "two"]);
      expect(await reasons({ after: 2 })).toEqual(["three"]);
    });

    test("inspect returns the number of waiters, and the first of them up to its limit", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      await acquireNow(lock);
      for (const by of ["a", "b", "c"]) await queueUp(lock, by);
      const { waiting, waiters } = await lock.inspect({ limit: 2 });
      expect(waiting).toBe(3);
      expect(whoOf(waiters)).toEqual(["a", "b"]);
    });
  });

  describe("a lock around a function", () => {
    test("is held while the function runs, returns its result, and is released", async () => {
      const pawl = await place.open();
      const answer = await pawl.lock("m", async ({ fence, ticket, abortSignal }) => {
        expect((await pawl.mutex("m").inspect()).holders).toMatchObject([{ ticket, fence }]);
        expect(abortSignal.aborted).toBe(false);
        return "done";
      });
      expect(answer).toBe("done");
      expect(await pawl.mutex("m").with(() => 5)).toBe(5);
      expect((await pawl.mutex("m").inspect()).holders).toEqual([]);
    });

    test.each([
      [
        "throws",
        () => {
          throw new TypeError("bad");
        },
      ],
      ["rejects", () => Promise.reject(new TypeError("bad"))],
    ])("that %s releases it and throws its own error", async (_, work) => {
      const pawl = await place.open();
      await expect(pawl.lock("m", work)).rejects.toThrow(new TypeError("bad"));
      expect(await pawl.mutex("m").tryAcquire()).toMatchObject({ ok: true });
    });

    test("that is lost meanwhile throws that, whatever the function returns; an error of the function is thrown as it is", async () => {
      const pawl = await place.open();
      const lost = pawl.lock("m", async () => {
        await pawl.mutex("m").forceRelease(OPERATOR);
        return "done";
      });
      await expect(lost).rejects.toThrow(LockLostError);
      await expect(lost).rejects.toMatchObject({ code: "lock_lost", data: { name: 'mutex "m"' } });
      await expect(
        pawl.lock("m", async () => {
          await pawl.mutex("m").forceRelease(OPERATOR);
          throw new TypeError("bad");
        }),
      ).rejects.toThrow(TypeError);
    });

    test("waits as acquire does, also with a timeout", async () => {
      const pawl = await place.open();
      const hold = await acquireNow(pawl.mutex("m"));
      let ran = 0;
      const visit = () => {
        ran += 1;
      };
      expect(await codeOf(pawl.lock("m", visit, { timeout: 20 }))).toBe("lock_timeout");
      expect(ran).toBe(0);
      await hold.release();
      await pawl.lock("m", visit, { timeout: 20_000 });
      expect(ran).toBe(1);
    });

    test("of a block (await using) is released at its end", async () => {
      const pawl = await place.open();
      const inside = async () => {
        await using hold = await pawl.mutex("m").acquire();
        expect((await pawl.mutex("m").inspect()).holders[0]?.ticket).toBe(hold.ticket);
        throw new TypeError("bad");
      };
      await expect(inside()).rejects.toThrow(TypeError);
      expect((await pawl.mutex("m").inspect()).holders).toEqual([]);
    });

    test("requested by the code that holds it is refused immediately, because it would wait for itself", async () => {
      const { pawl, commits } = await place.openHandle();
      const nested: [string, () => Promise<unknown>][] = [
        ["the same", () => pawl.lock("m", () => {})],
        ["one of several", () => pawl.lock(["x", "m"], () => {})],
      ];
      await pawl.lock("m", async () => {
        const before = commits();
        for (const [, again] of nested) {
          const error = await again().catch((reason: unknown) => reason);
          expect(error).toBeInstanceOf(LockNestedError);
          expect(error).toMatchObject({ code: "lock_nested", data: { name: 'mutex "m"' } });
        }
        expect(commits()).toBe(before);
        // In a nested call, and after a turn of the event loop, it is still the same code.
        await pawl.lock("n", async () => {
          await drained();
          expect(await codeOf(pawl.lock("m", () => {}))).toBe("lock_nested");
        });
      });
      await pawl.lock(["a", "b"], async () => {
        expect(await codeOf(pawl.lock("b", () => {}))).toBe("lock_nested");
      });
      const { read, write } = pawl.rwlock("rw");
      await write.with(async () => {
        expect(await codeOf(read.with(() => {}))).toBe("lock_nested");
        expect(await codeOf(write.with(() => {}))).toBe("lock_nested");
      });
      await read.with(async () => {
        expect(await codeOf(write.with(() => {}))).toBe("lock_nested");
        expect(await codeOf(read.with(() => {}))).toBe("lock_nested");
      });
      // Afterwards, and concurrently, it is not nesting.
      await pawl.lock("m", () => {});
      const later = Promise.withResolvers<unknown>();
      await pawl.lock("m", () => {
        setTimeout(() => pawl.lock("m", () => "acquired").then(later.resolve, later.reject), 20);
      });
      expect(await later.promise).toBe("acquired");
      await pawl
        .mutex("m")
        .with(async (hold) => {
          await hold.release();
          expect(await pawl.lock("m", () => "acquired")).toBe("acquired");
          return hold.fence;
        })
        .catch((error: unknown) => expect(error).toBeInstanceOf(LockLostError));
      await Promise.all([pawl.lock("m", () => drained()), pawl.lock("m", () => drained())]);
    });

    test("a second permit of a semaphore is not nesting", async () => {
      const pawl = await place.open();
      const both = pawl.semaphore("s", { permits: 2 });
      expect(await both.with(() => both.with(() => "both"))).toBe("both");
    });
  });

  describe("a process", () => {
    test("that closes releases its locks and leaves its places, and its holders and waiters are notified", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const hold = await acquireNow(one.mutex("m"), "one");
      const bobs = await acquireNow(two.mutex("n"), "bob");
      const waiting = one.mutex("n").acquire();
      const code = codeOf(waiting);
      const turn = await queueUp(two.mutex("m"), "two");
      await expect.poll(async () => (await two.mutex("n").inspect()).waiting, PATIENCE).toBe(1);
      await one.close();
      expect(await code).toBe("closed");
      expect(hold.abortSignal.reason).toBeInstanceOf(ClosedError);
      expect((await two.mutex("n").inspect()).waiting).toBe(0);
      expect(whoOf((await two.mutex("m").inspect()).holders)).toEqual(["two"]);
      await (await turn.acquire()).release();
      await bobs.release();
    });

    test("that is dead blocks no other process for longer than its lease, neither as a holder nor as a waiter", async () => {
      const [one, two] = await Promise.all([place.openHandle(), place.open()]);
      const lease = 400;
      await acquireNow(one.pawl.mutex("m", { lease }), "dead holder");
      await queueUp(one.pawl.mutex("m", { lease }), "dead waiter");
      one.die();
      const startedMs = performance.now();
      const hold = await two.mutex("m", { lease: "30s" }).acquire({ timeout: 20_000, by: "alive" });
      expect(performance.now() - startedMs).toBeGreaterThan(lease / 2);
      expect(whoOf((await two.mutex("m").inspect()).holders)).toEqual(["alive"]);
      expect((await two.mutex("m").inspect()).waiting).toBe(0);
      await hold.release();
    });
  });

  describe("in a decision, a lock", () => {
    test("that is held lets the decision commit, and one that was lost discards all of it", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const slot = pawl.slot<string>("s", { initial: "" });
      const hold = await acquireNow(lock);
      const write = (value: string) =>
        pawl.transact((tx) => {
          tx.slot(slot).set(value);
          tx.lock(lock).check(hold);
        });
      await write("held");
      expect((await slot.get()).value).toBe("held");
      await lock.forceRelease(OPERATOR);
      await acquireNow(lock);
      await expect(write("lost")).rejects.toMatchObject({ code: "lock_lost", data: { fence: hold.fence } });
      expect((await slot.get()).value).toBe("held");
    });

    test("is released by the commit, which grants it to the next; a commit that fails releases nothing", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const hold = await acquireNow(lock);
      const waiter = await queueUp(lock, "next");
      const giveBack = (error?: Error) =>
        pawl.transact((tx) => {
          const { released } = tx.lock(lock).release(hold);
          if (error !== undefined) throw error;
          return released;
        });
      await expect(giveBack(new TypeError("no"))).rejects.toThrow(TypeError);
      expect((await lock.inspect()).holders[0]?.ticket).toBe(hold.ticket);
      expect(await giveBack()).toBe(true);
      expect(whoOf((await lock.inspect()).holders)).toEqual(["next"]);
      expect(await giveBack()).toBe(false);
      await (await waiter.acquire()).release();
    });

    test("is acquired by the commit, or discards all of it", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const slot = pawl.slot<number>("s", { initial: 0 });
      const take = () =>
        pawl.transact((tx) => {
          tx.slot(slot).update((n) => n + 1);
          return tx.lock(lock).take();
        });
      const { ticket, fence } = await take();
      expect((await lock.inspect()).holders).toMatchObject([{ ticket, fence }]);
      expect(await codeOf(take())).toBe("lock_busy");
      expect((await slot.get()).value).toBe(1);
      // Several together, too.
      const both = pawl.mutex(["m", "n"]);
      expect(await codeOf(pawl.transact((tx) => tx.lock(both).take()))).toBe("lock_busy");
      await lock.forceRelease(OPERATOR);
      const taken = await pawl.transact((tx) => tx.lock(both).take());
      expect((await pawl.mutex("n").inspect()).holders).toMatchObject([taken]);
    });

    test("reports whether it is free, and how many wait", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const look = () => pawl.transact((tx) => tx.lock(lock).get());
      expect(await look()).toEqual({ isFree: true, waiting: 0 });
      const hold = await acquireNow(lock);
      expect(await look()).toEqual({ isFree: false, waiting: 0 });
      const waiter = await queueUp(lock);
      expect(await look()).toEqual({ isFree: false, waiting: 1 });
      await waiter.leave();
      await hold.release();
      expect(await look()).toEqual({ isFree: true, waiting: 0 });
    });
  });
});
