/**
 * Goal: a lock in plain code does what its verbs say, on every store: one at a time, in the order of arrival, given back whatever happens,
 * and lost only to a lease that ended or to a person.
 * Method: two handles on one database, as two processes have them, through the public handle alone. Where time matters, processes in a
 * town whose clock is moved by hand, so that a lease can be looked at one millisecond before its end and at its end.
 */

import { describe, expect, test } from "vitest";
import {
  ClosedError,
  type Hold,
  type Lock,
  LockLostError,
  LockNestedError,
  type LockPlace,
  LockRemovedError,
  LockTimeoutError,
  type Pawl,
  type PawlError,
} from "../../src/index.ts";
import { codeOf, drained, gate } from "../kernel.fixture.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { outcomeOf, PERSON, type Peer, recordOf, Town, whoOf } from "./kit.ts";

/** Has it at once, or the test is wrong. */
async function have(lock: Lock, by?: string): Promise<Hold> {
  const tried = await lock.tryAcquire({ by });
  if (!tried.ok) throw new Error(`it is held by others, and the place would be ${tried.place}`);
  return tried.hold;
}

/** Gets in line, or the test is wrong. */
async function lineUp(lock: Lock, by?: string): Promise<LockPlace> {
  const entered = await lock.enqueue({ by });
  if (entered.granted) throw new Error("it was free");
  return entered.place;
}

onStores(EVERY, (place) => {
  describe("a mutex", () => {
    test("is had under a fence by one who says who it is, and is free again once it was given back", async () => {
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

    test("given back twice is given back once, and the second time takes nothing from the next", async () => {
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

    test("has a higher fence each time, whoever has it", async () => {
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

    test("of another name, or of another kind of that name, is another", async () => {
      const pawl = await place.open();
      const all = [pawl.mutex("m"), pawl.mutex("n"), pawl.semaphore("m", { permits: 1 }), pawl.rwlock("m").write];
      const holds = await Promise.all(all.map((lock) => have(lock)));
      expect(holds.length).toBe(4);
    });

    test("renewed is still held; forced away it is not, and the holder is told", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const hold = await lock.acquire();
      const before = (await lock.inspect()).holders[0]?.until?.getTime() ?? 0;
      expect(await hold.renew()).toBe(true);
      expect((await lock.inspect()).holders[0]?.until?.getTime()).toBeGreaterThanOrEqual(before);
      expect(hold.abortSignal.aborted).toBe(false);
      expect(await lock.forceRelease(PERSON)).toEqual({ released: 1 });
      expect(await hold.renew()).toBe(false);
      expect(hold.abortSignal.aborted).toBe(true);
      expect(hold.abortSignal.reason).toBeInstanceOf(LockLostError);
      expect(hold.abortSignal.reason).toMatchObject({ code: "lock_lost", data: { fence: hold.fence } });
      expect(await hold.release()).toEqual({ released: false });
    });

    test("tried in vain leaves nothing behind", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const locks = (pawl: Pawl) => [
        pawl.mutex("m"),
        pawl.semaphore("s", { permits: 1 }),
        pawl.rwlock("rw").write,
        pawl.mutex(["a", "b"]),
      ];
      const holds = [];
      for (const lock of locks(one)) holds.push(await have(lock));
      for (const lock of locks(two)) {
        expect(await lock.tryAcquire()).toEqual({ ok: false, code: "lock_busy", place: 1 });
        expect(await codeOf(two.transact((tx) => tx.lock(lock).take()))).toBe("lock_busy");
        expect((await lock.inspect()).waiters).toEqual([]);
      }
      for (const hold of holds) await hold.release();
      for (const lock of locks(one)) {
        expect((await lock.inspect()).holders).toEqual([]);
        await have(lock);
      }
      expect(await codeOf(two.mutex("m").tryAcquire({ queue: true } as object))).toBe("invalid_argument");
      expect(await codeOf(two.mutex("m").enqueue({ queue: true } as object))).toBe("invalid_argument");
    });

    test("is had by whoever enqueues if it is free; if not, a place in line is", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const at = await one.mutex("m").enqueue({ by: "ann" });
      if (!at.granted) throw new Error("it is free");
      const { hold } = at;
      const entered = await two.mutex("m").enqueue({ by: "bob" });
      const first = entered.granted ? undefined : entered.place;
      const second = await lineUp(one.mutex("m"), "cid");
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

    test("whose turn came to a place that is left goes to the next", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const hold = await have(one.mutex("m"));
      const [bob, cid] = [await lineUp(two.mutex("m"), "bob"), await lineUp(two.mutex("m"), "cid")];
      await hold.release();
      expect(await bob.renew()).toBe(true);
      expect(whoOf((await one.mutex("m").inspect()).holders)).toEqual(["bob"]);
      await bob.leave();
      expect(whoOf((await one.mutex("m").inspect()).holders)).toEqual(["cid"]);
      // A wait that is given up gives the place up.
      const blocked = await lineUp(one.mutex("m"), "dan");
      expect(await codeOf(blocked.acquire({ timeout: 1 }))).toBe("lock_timeout");
      expect(await codeOf(blocked.acquire())).toBe("place_lost");
      expect((await one.mutex("m").inspect()).waiting).toBe(0);
      await (await cid.acquire()).release();
    });

    test("is had in the order of arrival, over all processes", async () => {
      const handles = await Promise.all([place.open(), place.open()]);
      const [one] = handles;
      const hold = await have(one.mutex("m"));
      const order: number[] = [];
      const waiters = [];
      for (let n = 0; n < 8; n++) waiters.push(await lineUp(handles[n % 3 === 0 ? 0 : 1].mutex("m"), `w${n}`));
      expect(whoOf((await one.mutex("m").inspect()).waiters)).toEqual(waiters.map((_, n) => `w${n}`));
      // Whoever asks for its turn first has no more right to it.
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

    test("keeps its line in order when some leave it, from its ends and from its middle", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const hold = await have(lock);
      const waiters = new Map<string, LockPlace>();
      for (const by of ["a", "b", "c", "d", "e", "f", "g"]) waiters.set(by, await lineUp(lock, by));
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
      waiters.set("h", await lineUp(lock, "h"));
      let last = hold;
      for (const by of "befh") {
        await last.release();
        expect(whoOf((await lock.inspect()).holders)).toEqual([by]);
        last = (await waiters.get(by)?.acquire()) ?? last;
      }
      await last.release();
      expect(await recordOf(pawl, "m")).toMatchObject({ holders: [], waiting: 0, first: null, last: null });
    });

    test("waited for in many places at once is had by one at a time", async () => {
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

    test("waited for with a limit is given up at its end, with the place in line", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const hold = await have(one.mutex("m"));
      const late = two.mutex("m").acquire({ timeout: 30 });
      await expect(late).rejects.toThrow(LockTimeoutError);
      await expect(late).rejects.toMatchObject({ code: "lock_timeout", data: { name: 'mutex "m"', timeoutMs: 30 } });
      expect((await one.mutex("m").inspect()).waiting).toBe(0);
      const waiter = await lineUp(two.mutex("m"));
      await expect(waiter.acquire({ timeout: 0 })).rejects.toThrow('mutex "m" did not become free within 0 ms');
      expect(await waiter.position()).toBe(0);
      await hold.release();
      await (await have(one.mutex("m"))).release();
    });

    test("waited for under an abort signal is given up with its reason; under one that has aborted, nothing is asked", async () => {
      const { pawl, commits } = await place.openHandle();
      const lock = pawl.mutex("m");
      const hold = await have(lock);
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

    test("a waiter taken out of the line is told so, those behind it move up, and it is written down who did it", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const lock = one.mutex("m");
      const hold = await have(lock);
      // Whoever was removed hears of it when it next says that it is alive, at the latest.
      const first = await lineUp(two.mutex("m", { lease: 600 }), "bob");
      const second = await lineUp(two.mutex("m"), "cid");
      const turn = codeOf(first.acquire());
      expect(await lock.removeWaiter(first.ticket, PERSON)).toEqual({ removed: true });
      expect(await turn).toBe("lock_removed");
      expect(await second.position()).toBe(1);
      expect(await lock.removeWaiter(first.ticket, PERSON)).toEqual({ removed: false });
      expect(await lock.removeWaiter(hold.ticket, PERSON)).toEqual({ removed: false });
      await hold.release();
      await (await second.acquire()).release();
      expect(await lock.history()).toEqual([
        {
          name: "removed",
          at: expect.any(Date),
          data: { ...PERSON, waiter: expect.objectContaining({ ticket: first.ticket, by: "bob" }) },
        },
      ]);
    });

    test("forced away from its holder is the next one's from that commit on, and it is written down who did it", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const lock = two.mutex("m");
      const hold = await one.mutex("m").acquire({ by: "bob" });
      const waiter = await lineUp(lock, "cid");
      expect(await lock.forceRelease(PERSON)).toEqual({ released: 1 });
      expect(whoOf((await lock.inspect()).holders)).toEqual(["cid"]);
      const next = await waiter.acquire();
      expect(next.fence).toBeGreaterThan(hold.fence);
      expect(await hold.renew()).toBe(false);
      await next.release();
      expect(await lock.forceRelease(PERSON)).toEqual({ released: 0 });
      expect(await lock.forceRelease({ ...PERSON, ticket: "nobody's" })).toEqual({ released: 0 });
      const history = await lock.history();
      expect(history).toEqual([
        {
          name: "forced",
          at: expect.any(Date),
          data: { ...PERSON, holder: expect.objectContaining({ ticket: hold.ticket, fence: hold.fence, by: "bob" }) },
        },
      ]);
    });

    test("its audit trail is read in pages, the oldest first", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      for (const reason of ["one", "two", "three"]) {
        await have(lock);
        await lock.forceRelease({ by: "ann", reason });
      }
      const reasons = async (options?: { after?: number; limit?: number }) =>
        (await lock.history(options)).map(({ data }) => (data as { reason: string }).reason);
      expect(await reasons()).toEqual(["one", "two", "three"]);
      expect(await reasons({ limit: 2 })).toEqual(["one", "two"]);
      expect(await reasons({ after: 2 })).toEqual(["three"]);
    });

    test("how many wait is told, and of those the first, as many as are asked for", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      await have(lock);
      for (const by of ["a", "b", "c"]) await lineUp(lock, by);
      const { waiting, waiters } = await lock.inspect({ limit: 2 });
      expect(waiting).toBe(3);
      expect(whoOf(waiters)).toEqual(["a", "b"]);
    });
  });

  describe("a lock around a function", () => {
    test("is held while it runs, answers what it answers, and is given back", async () => {
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
    ])("that %s is given back, and the error is its own", async (_, work) => {
      const pawl = await place.open();
      await expect(pawl.lock("m", work)).rejects.toThrow(new TypeError("bad"));
      expect(await pawl.mutex("m").tryAcquire()).toMatchObject({ ok: true });
    });

    test("that was lost meanwhile says so, whatever the function answers; if the function throws, it is that", async () => {
      const pawl = await place.open();
      const lost = pawl.lock("m", async () => {
        await pawl.mutex("m").forceRelease(PERSON);
        return "done";
      });
      await expect(lost).rejects.toThrow(LockLostError);
      await expect(lost).rejects.toMatchObject({ code: "lock_lost", data: { name: 'mutex "m"' } });
      await expect(
        pawl.lock("m", async () => {
          await pawl.mutex("m").forceRelease(PERSON);
          throw new TypeError("bad");
        }),
      ).rejects.toThrow(TypeError);
    });

    test("waits as acquire does, with a limit too", async () => {
      const pawl = await place.open();
      const hold = await have(pawl.mutex("m"));
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

    test("of a block ends with it", async () => {
      const pawl = await place.open();
      const inside = async () => {
        await using hold = await pawl.mutex("m").acquire();
        expect((await pawl.mutex("m").inspect()).holders[0]?.ticket).toBe(hold.ticket);
        throw new TypeError("bad");
      };
      await expect(inside()).rejects.toThrow(TypeError);
      expect((await pawl.mutex("m").inspect()).holders).toEqual([]);
    });

    test("asked for by the code that holds it is refused at once, where it would wait for itself", async () => {
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
        // Further in, and after a turn of the event loop, it is still the same code.
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
      // Afterwards, and beside it, it is no nesting.
      await pawl.lock("m", () => {});
      const later = Promise.withResolvers<unknown>();
      await pawl.lock("m", () => {
        setTimeout(() => pawl.lock("m", () => "had").then(later.resolve, later.reject), 20);
      });
      expect(await later.promise).toBe("had");
      await pawl
        .mutex("m")
        .with(async (hold) => {
          await hold.release();
          expect(await pawl.lock("m", () => "had")).toBe("had");
          return hold.fence;
        })
        .catch((error: unknown) => expect(error).toBeInstanceOf(LockLostError));
      await Promise.all([pawl.lock("m", () => drained()), pawl.lock("m", () => drained())]);
    });

    test("a second permit of a semaphore is no nesting", async () => {
      const pawl = await place.open();
      const both = pawl.semaphore("s", { permits: 2 });
      expect(await both.with(() => both.with(() => "both"))).toBe("both");
    });
  });

  describe("several at once", () => {
    test("are had together or not at all, and nobody passes by taking one of them", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const b = await have(one.mutex("b"), "bob");
      const both = await lineUp(two.mutex(["b", "a"]), "both");
      expect((await one.mutex("a").inspect()).holders).toEqual([]);
      expect((await one.mutex("a").inspect()).waiting).toBe(1);
      const a = await one.mutex("a").enqueue({ by: "ann" });
      if (a.granted) throw new Error("it was passed");
      expect(await a.place.position()).toBe(2);
      await b.release();
      const hold = await both.acquire();
      for (const name of ["a", "b"])
        expect((await one.mutex(name).inspect()).holders).toMatchObject([{ ticket: hold.ticket, fence: hold.fence }]);
      expect(hold.fence).toBeGreaterThan(b.fence);
      expect(await hold.renew()).toBe(true);
      expect(await hold.release()).toEqual({ released: true });
      expect((await one.mutex("b").inspect()).holders).toEqual([]);
      expect((await a.place.acquire()).fence).toBeGreaterThan(hold.fence);
    });

    test("nobody passes one who wants several and is first for one of them, by being first for another", async () => {
      const pawl = await place.open();
      const [a, c] = [await have(pawl.mutex("a")), await have(pawl.mutex("c"))];
      const early = await lineUp(pawl.mutex(["b", "c"]), "early");
      const late = await lineUp(pawl.mutex(["a", "b"]), "late");
      // Both are free for the one who came later, but in the line of b it is not first.
      await a.release();
      expect((await pawl.mutex("a").inspect()).holders).toEqual([]);
      await c.release();
      expect(whoOf((await pawl.mutex("b").inspect()).holders)).toEqual(["early"]);
      await (await early.acquire()).release();
      expect(whoOf((await pawl.mutex("b").inspect()).holders)).toEqual(["late"]);
      await (await late.acquire()).release();
    });

    test("two pairs in opposite order do not wait for each other", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      let inside = 0;
      const visit = async () => {
        inside += 1;
        expect(inside).toBe(1);
        await drained();
        inside -= 1;
      };
      for (let round = 0; round < 5; round++)
        await Promise.all([
          one.lock(["a", "b"], visit, { timeout: 20_000 }),
          two.lock(["b", "a"], visit, { timeout: 20_000 }),
          two.lock(["a", "b"], visit, { timeout: 20_000 }),
          one.lock(["b", "a"], visit, { timeout: 20_000 }),
        ]);
    });

    test("a name that is given twice is one lock", async () => {
      const pawl = await place.open();
      const hold = await have(pawl.mutex(["a", "a"]));
      expect((await pawl.mutex("a").inspect()).holders.length).toBe(1);
      expect(await hold.release()).toEqual({ released: true });
    });

    test("forced away from one, they are all gone; taken out of one line, out of all", async () => {
      const pawl = await place.open();
      const hold = await have(pawl.mutex(["a", "b"]));
      const waiter = await lineUp(pawl.mutex(["b", "c"]));
      expect(await pawl.mutex("b").removeWaiter(waiter.ticket, PERSON)).toEqual({ removed: true });
      expect((await pawl.mutex("c").inspect()).waiting).toBe(0);
      expect(await pawl.mutex("a").forceRelease(PERSON)).toEqual({ released: 1 });
      expect((await pawl.mutex("b").inspect()).holders).toEqual([]);
      expect(await hold.renew()).toBe(false);
    });
  });

  describe("a reader-writer lock", () => {
    test("is had by readers together, and by a writer alone", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const readers = [await have(one.rwlock("rw").read, "r1"), await have(two.rwlock("rw").read, "r2")];
      expect(await two.rwlock("rw").write.tryAcquire()).toMatchObject({ ok: false, place: 1 });
      for (const reader of readers) await reader.release();
      const writer = await have(two.rwlock("rw").write);
      expect(await one.rwlock("rw").read.tryAcquire()).toMatchObject({ ok: false });
      expect(await one.rwlock("rw").write.tryAcquire()).toMatchObject({ ok: false });
      await writer.release();
      await have(one.rwlock("rw").read);
    });

    test("does not starve a writer: readers that come after it stand behind it, and then come together", async () => {
      const pawl = await place.open();
      const { read, write } = pawl.rwlock("rw");
      const first = await have(read, "r1");
      const writer = await lineUp(write, "w1");
      const readers = [await lineUp(read, "r2"), await lineUp(read, "r3")];
      const last = await lineUp(write, "w2");
      const later = await lineUp(read, "r4");
      expect(whoOf((await read.inspect()).holders)).toEqual(["r1"]);
      await first.release();
      expect(whoOf((await read.inspect()).holders)).toEqual(["w1"]);
      await (await writer.acquire()).release();
      expect(whoOf((await read.inspect()).holders)).toEqual(["r2", "r3"]);
      for (const reader of readers) await (await reader.acquire()).release();
      expect(whoOf((await read.inspect()).holders)).toEqual(["w2"]);
      await (await last.acquire()).release();
      expect(whoOf((await read.inspect()).holders)).toEqual(["r4"]);
      await (await later.acquire()).release();
    });

    test("a writer that gives up lets the readers behind it in at once", async () => {
      const pawl = await place.open();
      const { read, write } = pawl.rwlock("rw");
      await have(read, "r1");
      const writer = await lineUp(write);
      await lineUp(read, "r2");
      await writer.leave();
      expect(whoOf((await read.inspect()).holders)).toEqual(["r1", "r2"]);
    });
  });

  describe("a semaphore", () => {
    test("is had by as many as there are permits, each under a fence of its own, and by one unless said otherwise", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const s = (pawl = one) => pawl.semaphore("s", { permits: 2 });
      const a = await have(s());
      const b = await have(s(two));
      expect(b.fence).toBeGreaterThan(a.fence);
      const third = await lineUp(s(two), "third");
      const fourth = await lineUp(s(), "fourth");
      await a.release();
      expect((await s().inspect()).holders.map(({ ticket }) => ticket)).toEqual([b.ticket, third.ticket]);
      await (await third.acquire()).release();
      expect((await s().inspect()).holders.map(({ ticket }) => ticket)).toEqual([b.ticket, fourth.ticket]);
      expect((await s().inspect()).permits).toBe(2);
    });

    test("asked for without permits has those that were declared, and is refused where none ever were", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const unknown = two.semaphore("s");
      const refusals = [
        () => unknown.acquire(),
        () => unknown.tryAcquire(),
        () => unknown.enqueue(),
        () => unknown.with(() => {}),
        () => two.transact((tx) => tx.lock(unknown).take()),
      ];
      for (const refused of refusals) expect(await codeOf(refused())).toBe("permits_undeclared");
      expect((await unknown.inspect()).permits).toBe(null);
      await have(one.semaphore("s", { permits: 10 }));
      await have(unknown);
      expect((await unknown.inspect()).permits).toBe(10);
      for (let n = 2; n < 10; n++) await have(unknown);
      expect(await unknown.tryAcquire()).toMatchObject({ ok: false });
      expect(await unknown.history()).toEqual([]);
    });

    test("forced away from one holder leaves the others theirs", async () => {
      const pawl = await place.open();
      const s = pawl.semaphore("s", { permits: 2 });
      const [a, b] = [await have(s, "a"), await have(s, "b")];
      expect(await s.forceRelease({ ...PERSON, ticket: a.ticket })).toEqual({ released: 1 });
      expect(whoOf((await s.inspect()).holders)).toEqual(["b"]);
      expect(await b.renew()).toBe(true);
      await have(s, "c");
      expect(await s.forceRelease(PERSON)).toEqual({ released: 2 });
    });

    test("has the permits of the latest declaration from its commit on, and nobody is thrown out", async () => {
      const [old, next] = await Promise.all([place.open(), place.open()]);
      const two = () => old.semaphore("s", { permits: 2 });
      const holds = [await have(two(), "h1"), await have(two(), "h2")];
      const third = await lineUp(two(), "h3");
      // More: whoever waits has one at once.
      expect(await next.semaphore("s", { permits: 4 }).tryAcquire({ by: "h4" })).toMatchObject({ ok: true });
      expect(whoOf((await two().inspect()).holders)).toEqual(["h1", "h2", "h3", "h4"]);
      holds.push(await third.acquire());
      // The old process says its number again, and undoes nothing.
      expect(await (await lineUp(two(), "h5")).position()).toBe(1);
      expect((await two().inspect()).permits).toBe(4);
      // Fewer: all stay, and nobody comes until there are few enough.
      expect(await next.semaphore("s", { permits: 2 }).tryAcquire({ by: "deploy" })).toMatchObject({
        ok: false,
      });
      expect(whoOf((await two().inspect()).holders)).toEqual(["h1", "h2", "h3", "h4"]);
      for (const hold of holds) expect(await hold.renew()).toBe(true);
      await holds.pop()?.release();
      await holds.pop()?.release();
      expect(whoOf((await two().inspect()).holders)).toEqual(["h1", "h4"]);
      await holds.pop()?.release();
      expect(whoOf((await two().inspect()).holders)).toEqual(["h4", "h5"]);
      expect((await two().history()).map(({ name, data }) => [name, data])).toEqual([
        ["permits", { from: 2, to: 4, by: "h4" }],
        ["permits", { from: 4, to: 2, by: "deploy" }],
      ]);
    });

    test("the number that a process that begins anew declares is the latest", async () => {
      const [old, next] = await Promise.all([place.open(), place.open()]);
      await (await have(old.semaphore("s", { permits: 2 }))).release();
      await (await have(next.semaphore("s", { permits: 3 }))).release();
      const again = await place.open();
      await (await have(again.semaphore("s", { permits: 2 }))).release();
      expect((await next.semaphore("s", { permits: 3 }).inspect()).permits).toBe(2);
      expect((await next.semaphore("s").history()).length).toBe(2);
    });
  });

  describe("a process", () => {
    test("that closes gives back what it holds and leaves its places, and whoever holds or waits is told", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const hold = await have(one.mutex("m"), "one");
      const bobs = await have(two.mutex("n"), "bob");
      const waiting = one.mutex("n").acquire();
      const told = codeOf(waiting);
      const turn = await lineUp(two.mutex("m"), "two");
      await expect.poll(async () => (await two.mutex("n").inspect()).waiting, PATIENCE).toBe(1);
      await one.close();
      expect(await told).toBe("closed");
      expect(hold.abortSignal.reason).toBeInstanceOf(ClosedError);
      expect((await two.mutex("n").inspect()).waiting).toBe(0);
      expect(whoOf((await two.mutex("m").inspect()).holders)).toEqual(["two"]);
      await (await turn.acquire()).release();
      await bobs.release();
    });

    test("that is dead blocks nobody for longer than its lease, neither as a holder nor as a waiter", async () => {
      const [one, two] = await Promise.all([place.openHandle(), place.open()]);
      const lease = 400;
      await have(one.pawl.mutex("m", { lease }), "dead holder");
      await lineUp(one.pawl.mutex("m", { lease }), "dead waiter");
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
    test("that is held lets it through, and one that was lost drops all of it", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const slot = pawl.slot<string>("s", { initial: "" });
      const hold = await have(lock);
      const write = (value: string) =>
        pawl.transact((tx) => {
          tx.slot(slot).set(value);
          tx.lock(lock).check(hold);
        });
      await write("held");
      expect((await slot.get()).value).toBe("held");
      await lock.forceRelease(PERSON);
      await have(lock);
      await expect(write("lost")).rejects.toMatchObject({ code: "lock_lost", data: { fence: hold.fence } });
      expect((await slot.get()).value).toBe("held");
    });

    test("is given back with the commit, and the next has it from then on; a commit that fails gives nothing back", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const hold = await have(lock);
      const waiter = await lineUp(lock, "next");
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

    test("is taken with the commit, or refuses it whole", async () => {
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
      // Several at once, too.
      const both = pawl.mutex(["m", "n"]);
      expect(await codeOf(pawl.transact((tx) => tx.lock(both).take()))).toBe("lock_busy");
      await lock.forceRelease(PERSON);
      const taken = await pawl.transact((tx) => tx.lock(both).take());
      expect((await pawl.mutex("n").inspect()).holders).toMatchObject([taken]);
    });

    test("says whether it is free, and how many wait", async () => {
      const pawl = await place.open();
      const lock = pawl.mutex("m");
      const look = () => pawl.transact((tx) => tx.lock(lock).get());
      expect(await look()).toEqual({ isFree: true, waiting: 0 });
      const hold = await have(lock);
      expect(await look()).toEqual({ isFree: false, waiting: 0 });
      const waiter = await lineUp(lock);
      expect(await look()).toEqual({ isFree: false, waiting: 1 });
      await waiter.leave();
      await hold.release();
      expect(await look()).toEqual({ isFree: true, waiting: 0 });
    });
  });
});

describe("time", () => {
  const LEASE_MS = 30_000;

  test("a lease ends at its end, not before; then the next in line has it, and the one who lost it is told everything", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const lost = await have(ann.pawl.mutex("m"), "ann");
    const { abortSignal } = lost;
    const { opened, open } = gate();
    const working = codeOf(ann.pawl.lock("other", () => opened));
    await drained();
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ by: "bob" }));
    const others = outcomeOf(bob.pawl.mutex("other").acquire({ by: "bob" }));
    await drained();
    ann.pause();
    await town.advance(LEASE_MS - 1);
    expect([bobs.state, others.state]).toEqual(["pending", "pending"]);
    await town.advance(1);
    expect([bobs.state, others.state]).toEqual(["had", "had"]);
    expect(bobs.value?.fence).toBeGreaterThan(lost.fence);
    // Ann knows nothing of it yet.
    expect(abortSignal.aborted).toBe(false);
    await expect(ann.pawl.transact((tx) => tx.lock(ann.pawl.mutex("m")).check(lost))).rejects.toThrow(LockLostError);
    await ann.resume();
    await town.advance(1);
    expect(abortSignal.aborted).toBe(true);
    expect(["lock_lost", "lease_uncertain"]).toContain((abortSignal.reason as PawlError).code);
    expect(await lost.renew()).toBe(false);
    expect(await lost.release()).toEqual({ released: false });
    open();
    expect(await working).toBe("lock_lost");
    expect(whoOf((await bob.pawl.mutex("m").inspect()).holders)).toEqual(["bob"]);
    expect(whoOf((await bob.pawl.mutex("other").inspect()).holders)).toEqual(["bob"]);
  });

  test("a lease that ended while nobody waited has harmed nobody: it is held on, under the same fence", async () => {
    const town = new Town();
    const ann = town.process();
    const lock = ann.pawl.mutex("m");
    const hold = await have(lock);
    ann.pause();
    await town.advance(3 * LEASE_MS);
    await ann.pawl.transact((tx) => tx.lock(lock).check(hold));
    await ann.resume();
    expect(await hold.renew()).toBe(true);
    expect(hold.abortSignal.aborted).toBe(false);
    expect((await lock.inspect()).holders).toMatchObject([{ fence: hold.fence }]);
    expect((await lock.inspect()).holders[0]?.until?.getTime()).toBe(town.clock.wallMs() + LEASE_MS);
  });

  test("a lease that ended is another's as soon as one asks, also one who would not wait", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    ann.pause();
    await town.advance(LEASE_MS);
    const bobs = await have(bob.pawl.mutex("m"));
    expect(bobs.fence).toBeGreaterThan(hold.fence);
    // Asked now, it says at once that it may be another's.
    expect(hold.abortSignal.aborted).toBe(true);
    await ann.resume();
    expect(await hold.renew()).toBe(false);
  });

  test("a lease is renewed by itself for as long as its process lives", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire());
    await town.advance(20 * LEASE_MS);
    expect(bobs.state).toBe("pending");
    expect(hold.abortSignal.aborted).toBe(false);
    expect((await bob.pawl.mutex("m").inspect()).waiting).toBe(1);
    await hold.release();
    await town.advance(1);
    expect(bobs.state).toBe("had");
  });

  test("a waiter whose own lease ended is passed over, gets in line again at the end, and has its turn then", async () => {
    const town = new Town();
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ by: "bob" }));
    await drained();
    const cids = outcomeOf(cid.pawl.mutex("m").acquire({ by: "cid" }));
    await drained();
    const { waiters } = await ann.pawl.mutex("m").inspect();
    expect(whoOf(waiters)).toEqual(["bob", "cid"]);
    bob.pause();
    // As long as its lease stands, so does its place.
    await town.advance(LEASE_MS - 1);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).waiters)).toEqual(["bob", "cid"]);
    await town.advance(1);
    await hold.release();
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
    await town.advance(1);
    expect([bobs.state, cids.state]).toEqual(["pending", "had"]);
    const anns = outcomeOf(ann.pawl.mutex("m").acquire({ by: "ann" }));
    await drained();
    await bob.resume();
    await town.advance(LEASE_MS / 3);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).waiters)).toEqual(["ann", "bob"]);
    await cids.value?.release();
    await town.advance(1);
    expect([anns.state, bobs.state]).toEqual(["had", "pending"]);
    await anns.value?.release();
    await town.advance(1);
    expect(bobs.state).toBe("had");
  });

  test("a waiter that dies is not granted at the last millisecond of its lease's end", async () => {
    for (const [afterMs, holder] of [
      [LEASE_MS - 1, "bob"],
      [LEASE_MS, "cid"],
    ] as const) {
      const town = new Town();
      const [ann, bob, cid] = [town.process(), town.process(), town.process()];
      const hold = await have(ann.pawl.mutex("m"));
      await lineUp(bob.pawl.mutex("m"), "bob");
      await lineUp(cid.pawl.mutex("m", { lease: "12 hours" }), "cid");
      bob.die();
      await town.advance(afterMs);
      await hold.release();
      expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual([holder]);
    }
  });

  test("thousands of dead waiters are passed over, and the living one behind them has its turn", async () => {
    const town = new Town({ checksPurity: false });
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    // With a lease that needs no renewal, nobody looks at the line before the lock is given back.
    const hold = await have(ann.pawl.mutex("m", { lease: "12 hours" }));
    await Promise.all(Array.from({ length: 2_500 }, () => lineUp(bob.pawl.mutex("m"))));
    const cids = outcomeOf(cid.pawl.mutex("m", { lease: "12 hours" }).acquire({ by: "cid" }));
    await drained();
    bob.die();
    await town.advance(LEASE_MS);
    expect(await recordOf(ann.pawl, "m")).toMatchObject({ waiting: 2_501 });
    expect(await hold.release()).toEqual({ released: true });
    // That is more than one commit does, but whoever waits sees to it within seconds.
    expect((await recordOf(ann.pawl, "m"))?.waiting).toBeGreaterThan(0);
    for (let s = 0; s < 10 && cids.state === "pending"; s++) await town.advance(1000);
    expect(cids.state).toBe("had");
    expect(await recordOf(ann.pawl, "m")).toMatchObject({ waiting: 0, first: null, last: null });
  });

  test("more than a thousand readers behind a writer come in when it is done", async () => {
    const town = new Town({ checksPurity: false });
    const [ann, bob] = [town.process(), town.process()];
    const writer = await have(ann.pawl.rwlock("rw", { lease: "12 hours" }).write);
    const { read } = bob.pawl.rwlock("rw", { lease: "12 hours" });
    const turns = Array.from({ length: 1_010 }, () => outcomeOf(read.acquire()));
    await drained();
    expect(await writer.release()).toEqual({ released: true });
    const holders = async () => (await recordOf(ann.pawl, "rw", "rwlock"))?.holders.length ?? 0;
    for (let s = 0; s < 10 && (await holders()) < 1_010; s++) await town.advance(1000);
    expect(await holders()).toBe(1_010);
    expect(turns.every(({ state }) => state === "had")).toBe(true);
  });

  test("a holder that is late has lost it to one who waits, also if nobody has looked since", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const lock = ann.pawl.mutex("m");
    const hold = await have(lock);
    await lineUp(bob.pawl.mutex("m", { lease: "12 hours" }), "bob");
    ann.pause();
    bob.pause();
    await town.advance(LEASE_MS - 1);
    await ann.pawl.transact((tx) => tx.lock(lock).check(hold));
    await town.advance(1);
    expect((await lock.inspect()).holders.length).toBe(1);
    await expect(ann.pawl.transact((tx) => tx.lock(lock).check(hold))).rejects.toThrow(LockLostError);
    expect(await hold.renew()).toBe(false);
    expect(whoOf((await lock.inspect()).holders)).toEqual(["bob"]);
  });

  test("a waiter that is late has lost its place to those behind it, also if nobody has looked since", async () => {
    const town = new Town();
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    await have(ann.pawl.mutex("m", { lease: "12 hours" }));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ by: "bob" }));
    await drained();
    await lineUp(cid.pawl.mutex("m", { lease: "12 hours" }), "cid");
    const waiters = async () => whoOf((await ann.pawl.mutex("m").inspect()).waiters);
    bob.pause();
    await town.advance(LEASE_MS);
    expect(await waiters()).toEqual(["bob", "cid"]);
    await bob.resume();
    await town.advance(1);
    expect(await waiters()).toEqual(["cid", "bob"]);
    expect(bobs.state).toBe("pending");
  });

  test("a lock that was taken in a decision is free again when its lease is over, as nobody renews it", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const { fence } = await ann.pawl.transact((tx) => tx.lock(ann.pawl.mutex("m")).take());
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire());
    await town.advance(LEASE_MS - 1);
    expect(bobs.state).toBe("pending");
    await town.advance(1);
    expect(bobs.state).toBe("had");
    expect(bobs.value?.fence).toBeGreaterThan(fence);
  });

  test("a wait ends at its limit, and not one millisecond before", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    await have(ann.pawl.mutex("m"));
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire({ timeout: "90s" }));
    await town.advance(89_999);
    expect(bobs.state).toBe("pending");
    await town.advance(1);
    expect(bobs).toMatchObject({ state: "refused", error: { code: "lock_timeout", data: { timeoutMs: 90_000 } } });
  });

  test.each([
    ["heard of", 10],
    ["not heard of yet", 0],
  ])("a place that is left when its turn has come, %s, gives the lock to the next", async (_, ms) => {
    const town = new Town();
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = await lineUp(bob.pawl.mutex("m"), "bob");
    await lineUp(cid.pawl.mutex("m"), "cid");
    await hold.release();
    if (ms > 0) await town.advance(ms);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["bob"]);
    await bobs.leave();
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
  });

  test.each([
    ["heard of", 10],
    ["not heard of yet", 0],
  ])("a process that closes gives back what was its turn, %s, and nobody had asked for yet", async (_, ms) => {
    const town = new Town();
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    await lineUp(bob.pawl.mutex("m"), "bob");
    await lineUp(cid.pawl.mutex("m"), "cid");
    await hold.release();
    if (ms > 0) await town.advance(ms);
    await town.clock.finish(bob.pawl.close());
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
  });

  test.each(["timeout", "abort"])("a turn that came in the very moment of a %s is had, or given back", async (how) => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const abort = new AbortController();
    const options = how === "timeout" ? { timeout: 1000 } : { abortSignal: abort.signal };
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire(options));
    await town.advance(500);
    // It hears of all of it at once: the end of its patience, and then its turn.
    bob.pause();
    await town.advance(500);
    await hold.release();
    abort.abort(new Error("never mind"));
    await bob.resume();
    await town.advance(100);
    expect(bobs.state).not.toBe("pending");
    if (how === "abort") expect(bobs.state).toBe("refused");
    const { holders } = await ann.pawl.mutex("m").inspect();
    expect(holders.map(({ ticket }) => ticket)).toEqual(bobs.value === undefined ? [] : [bobs.value.ticket]);
  });

  test("a place that is not renewed ends with its lease, and the living one behind it has its turn", async () => {
    const town = new Town();
    const [ann, bob, cid] = [town.process(), town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = await lineUp(bob.pawl.mutex("m"), "bob");
    const cids = outcomeOf(cid.pawl.mutex("m").acquire({ by: "cid" }));
    await town.advance(LEASE_MS);
    await hold.release();
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["cid"]);
    await town.advance(1);
    expect(cids.state).toBe("had");
    expect(await bobs.renew()).toBe(false);
    expect(await codeOf(bobs.acquire())).toBe("place_lost");
    await bobs.leave();
  });

  test("a place that is renewed in time is kept, and so is the turn that came to it", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = await lineUp(bob.pawl.mutex("m"), "bob");
    const cids = outcomeOf(ann.pawl.mutex("m").acquire({ by: "cid" }));
    for (let times = 0; times < 3; times++) {
      await town.advance(LEASE_MS - 1);
      expect(await bobs.renew()).toBe(true);
    }
    await hold.release();
    for (let times = 0; times < 3; times++) {
      await town.advance(LEASE_MS - 1);
      expect(await bobs.renew()).toBe(true);
    }
    const held = await bobs.acquire();
    // From here on it is a hold as any other.
    await town.advance(3 * LEASE_MS);
    expect(held.abortSignal.aborted).toBe(false);
    expect(cids.state).toBe("pending");
    await held.release();
    await town.advance(1);
    expect(cids.state).toBe("had");
  });

  test("a turn that comes to a place whose owner has moved on lasts for one lease", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const bobs = await lineUp(bob.pawl.mutex("m"), "bob");
    const cids = outcomeOf(ann.pawl.mutex("m").acquire({ by: "cid" }));
    await town.advance(LEASE_MS - 1);
    await hold.release();
    await town.advance(LEASE_MS - 1);
    expect(whoOf((await ann.pawl.mutex("m").inspect()).holders)).toEqual(["bob"]);
    await town.advance(10);
    expect(cids.state).toBe("had");
    expect(await codeOf(bobs.acquire())).toBe("place_lost");
  });

  test("a handle that is closed leaves its places", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    await lineUp(bob.pawl.mutex("m"), "bob");
    await bob.pawl.close();
    expect((await ann.pawl.mutex("m").inspect()).waiting).toBe(0);
    await hold.release();
    await have(ann.pawl.mutex("m"));
  });

  test.each([
    ["this process", 0],
    ["another process", 1],
  ])("a waiter that %s removes knows it immediately, also one of several locks", async (_, by) => {
    const town = new Town();
    const peers = [town.process(), town.process()];
    const operator = peers[by] ?? peers[0];
    const [ann] = peers;
    await have(ann?.pawl.mutex("m") as Lock);
    const turns = [
      outcomeOf((ann as Peer).pawl.mutex("m").acquire({ by: "a" })),
      outcomeOf((ann as Peer).pawl.mutex(["k", "m"]).acquire({ by: "b" })),
      outcomeOf((ann as Peer).pawl.mutex("m").acquire({ by: "c" })),
    ];
    await town.advance(5);
    const { waiters } = await (ann as Peer).pawl.mutex("m").inspect();
    expect(whoOf(waiters).sort()).toEqual(["a", "b", "c"]);
    for (const waiter of waiters.filter((one) => one.by !== "c"))
      await operator?.pawl.mutex("m").removeWaiter(waiter.ticket, PERSON);
    await town.advance(5);
    expect(turns.map(({ state }) => state)).toEqual(["refused", "refused", "pending"]);
    for (const turn of turns.slice(0, 2)) expect(turn.error).toBeInstanceOf(LockRemovedError);
    expect((await (ann as Peer).pawl.mutex("k").history()).map(({ name }) => name)).toEqual(["removed"]);
  });

  test.each([
    ["this process", 0],
    ["another process", 1],
  ])("a holder whose lock %s forces away is told immediately, also one of several locks", async (_, by) => {
    const town = new Town();
    const peers = [town.process(), town.process()];
    const [ann] = peers;
    const operator = (peers[by] ?? ann) as Peer;
    const { pawl } = ann as Peer;
    const holds = [
      await have(pawl.mutex("m")),
      await have(pawl.mutex(["a", "b"])),
      await have(pawl.semaphore("s", { permits: 2 })),
      await have(pawl.semaphore("s", { permits: 2 })),
    ];
    const signals = holds.map(({ abortSignal }) => abortSignal);
    await town.advance(LEASE_MS / 10);
    await operator.pawl.mutex("m").forceRelease(PERSON);
    await operator.pawl.mutex("b").forceRelease(PERSON);
    await operator.pawl.semaphore("s").forceRelease({ ...PERSON, ticket: holds[2]?.ticket });
    // The commits of others are looked at together, and within a tenth of a second.
    await town.advance(by === 0 ? 0 : 100);
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, true, true, false]);
    expect(signals[0]?.reason).toBeInstanceOf(LockLostError);
    // One that is young when it happens is told a moment later.
    const young = await have(pawl.mutex("m"));
    const { abortSignal } = young;
    await operator.pawl.mutex("m").forceRelease(PERSON);
    await town.advance(200);
    expect(abortSignal.aborted).toBe(true);
    expect(await holds[3]?.renew()).toBe(true);
  });

  test("a removed waiter that was alive all the time knows that a person removed it, and does not get in line again", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    await have(ann.pawl.mutex("m"));
    const waiter = await lineUp(bob.pawl.mutex("m"));
    const turn = outcomeOf(waiter.acquire());
    await town.advance(5 * LEASE_MS);
    await ann.pawl.mutex("m").removeWaiter(waiter.ticket, PERSON);
    await town.advance(LEASE_MS);
    expect(turn.error).toBeInstanceOf(LockRemovedError);
    expect((await ann.pawl.mutex("m").inspect()).waiting).toBe(0);
  });

  test("a store that does not answer until the lease may be over: the holder is told before another can have it", async () => {
    const town = new Town();
    const [ann, bob] = [town.process(), town.process()];
    const hold = await have(ann.pawl.mutex("m"));
    const { abortSignal } = hold;
    const { opened, open } = gate();
    const bobs = outcomeOf(bob.pawl.mutex("m").acquire());
    await drained();
    ann.cutOff(opened);
    await town.advance(LEASE_MS - 1);
    expect([abortSignal.aborted, bobs.state]).toEqual([false, "pending"]);
    await town.advance(1);
    expect(abortSignal.reason).toMatchObject({ code: "lease_uncertain" });
    expect(bobs.state).toBe("had");
    open();
    await town.advance(1000);
    expect(await hold.release()).toEqual({ released: false });
    expect(await bobs.value?.renew()).toBe(true);
  });

  test("a lock that nobody uses is removed, and goes on under higher fences, also when nothing of it is left", async () => {
    const town = new Town();
    const ann = town.process();
    const fences = [];
    for (const days of [0, 0.1, 10]) {
      await town.advance(days * 24 * 3_600_000);
      if (days > 0) {
        // Somebody waits for something, so that somebody looks after locks.
        const other = await have(ann.pawl.mutex("other"));
        const waiter = outcomeOf(ann.pawl.mutex("other").acquire({ timeout: 10_000 }));
        await town.advance(10_000);
        expect(waiter.state).toBe("refused");
        await other.release();
        expect(await recordOf(ann.pawl, "m")).toBeUndefined();
        await town.database.connect("test").sweep(1000);
      }
      const hold = await have(ann.pawl.mutex("m"));
      fences.push(hold.fence);
      await hold.release();
    }
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
    // What a person did to it is not forgotten.
    await have(ann.pawl.mutex("m"));
    await ann.pawl.mutex("m").forceRelease(PERSON);
    await town.advance(24 * 3_600_000);
    expect((await ann.pawl.mutex("m").history()).length).toBe(1);
  });
});
