/**
 * Goal: several locks together, locks for readers and writers, and semaphores keep the same order and limits as a mutex, on every store.
 * Method: as in laws.test.ts: two handles on one database, as two processes have them, through the public handle alone.
 */

import { describe, expect, test } from "vitest";
import { lockAt } from "../../src/lock/stored.ts";
import { codeOf, drained } from "../kernel/kit.ts";
import { EVERY, onStores } from "../workflow/kit.ts";
import { acquireNow, OPERATOR, queueUp, whoOf } from "./kit.ts";

onStores(EVERY, (place) => {
  describe("several locks together", () => {
    test("are granted together or not at all, and none of them is granted to a later request", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const b = await acquireNow(one.mutex("b"), "bob");
      const both = await queueUp(two.mutex(["b", "a"]), "both");
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

    test("a request for several that is first for one of them is not overtaken by the first for another", async () => {
      const pawl = await place.open();
      const [a, c] = [await acquireNow(pawl.mutex("a")), await acquireNow(pawl.mutex("c"))];
      const early = await queueUp(pawl.mutex(["b", "c"]), "early");
      const late = await queueUp(pawl.mutex(["a", "b"]), "late");
      // Both are free for the later request, but in the queue of b it is not first.
      await a.release();
      expect((await pawl.mutex("a").inspect()).holders).toEqual([]);
      await c.release();
      expect(whoOf((await pawl.mutex("b").inspect()).holders)).toEqual(["early"]);
      await (await early.acquire()).release();
      expect(whoOf((await pawl.mutex("b").inspect()).holders)).toEqual(["late"]);
      await (await late.acquire()).release();
    });

    test("an operator releases them from a dead holder by force, also if one of them was swept already", async () => {
      const pawl = await place.open();
      await acquireNow(pawl.mutex(["a", "b"]));
      // As after an hour in which its holder was dead and no process used it.
      const b = lockAt({ kind: "mutex", name: "b" });
      await pawl.kernel.transact((tx) => tx.record(b).remove(), [b]);
      expect(await pawl.mutex("a").forceRelease(OPERATOR)).toEqual({ released: 1 });
      expect((await pawl.mutex("a").inspect()).holders).toEqual([]);
    });

    test("the audit trail names only those that the holder still held", async () => {
      const pawl = await place.open();
      // No process renews what a decision acquired.
      await pawl.transact((tx) => tx.lock(pawl.mutex(["a", "b"], { lease: "1s" })).take());
      const next = await pawl.mutex("b").acquire();
      expect(await pawl.mutex("a").forceRelease(OPERATOR)).toEqual({ released: 1 });
      expect((await pawl.mutex("a").history()).map(({ name }) => name)).toEqual(["forced"]);
      expect(await pawl.mutex("b").history()).toEqual([]);
      expect(await next.renew()).toBe(true);
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
      const hold = await acquireNow(pawl.mutex(["a", "a"]));
      expect((await pawl.mutex("a").inspect()).holders.length).toBe(1);
      expect(await hold.release()).toEqual({ released: true });
    });

    test("a forced release of one releases all of them; a removal from one queue removes from all", async () => {
      const pawl = await place.open();
      const hold = await acquireNow(pawl.mutex(["a", "b"]));
      const waiter = await queueUp(pawl.mutex(["b", "c"]));
      expect(await pawl.mutex("b").removeWaiter(waiter.ticket, OPERATOR)).toEqual({ removed: true });
      expect((await pawl.mutex("c").inspect()).waiting).toBe(0);
      expect(await pawl.mutex("a").forceRelease(OPERATOR)).toEqual({ released: 1 });
      expect((await pawl.mutex("b").inspect()).holders).toEqual([]);
      expect(await hold.renew()).toBe(false);
    });
  });

  describe("a reader-writer lock", () => {
    test("is held by readers together, and by a writer alone", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const readers = [await acquireNow(one.rwlock("rw").read, "r1"), await acquireNow(two.rwlock("rw").read, "r2")];
      expect(await two.rwlock("rw").write.tryAcquire()).toMatchObject({ ok: false, place: 1 });
      for (const reader of readers) await reader.release();
      const writer = await acquireNow(two.rwlock("rw").write);
      expect(await one.rwlock("rw").read.tryAcquire()).toMatchObject({ ok: false });
      expect(await one.rwlock("rw").write.tryAcquire()).toMatchObject({ ok: false });
      await writer.release();
      await acquireNow(one.rwlock("rw").read);
    });

    test("does not starve a writer: readers that come after it wait behind it, and are then granted together", async () => {
      const pawl = await place.open();
      const { read, write } = pawl.rwlock("rw");
      const first = await acquireNow(read, "r1");
      const writer = await queueUp(write, "w1");
      const readers = [await queueUp(read, "r2"), await queueUp(read, "r3")];
      const last = await queueUp(write, "w2");
      const later = await queueUp(read, "r4");
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

    test("when a writer times out, the readers behind it are granted immediately", async () => {
      const pawl = await place.open();
      const { read, write } = pawl.rwlock("rw");
      await acquireNow(read, "r1");
      const writer = await queueUp(write);
      await queueUp(read, "r2");
      await writer.leave();
      expect(whoOf((await read.inspect()).holders)).toEqual(["r1", "r2"]);
    });
  });

  describe("a semaphore", () => {
    test("has as many holders as permits, each under a fence of its own. Default: one", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const s = (pawl = one) => pawl.semaphore("s", { permits: 2 });
      const a = await acquireNow(s());
      const b = await acquireNow(s(two));
      expect(b.fence).toBeGreaterThan(a.fence);
      const third = await queueUp(s(two), "third");
      const fourth = await queueUp(s(), "fourth");
      await a.release();
      expect((await s().inspect()).holders.map(({ ticket }) => ticket)).toEqual([b.ticket, third.ticket]);
      await (await third.acquire()).release();
      expect((await s().inspect()).holders.map(({ ticket }) => ticket)).toEqual([b.ticket, fourth.ticket]);
      expect((await s().inspect()).permits).toBe(2);
    });

    test("requested without permits has the declared ones, and is refused where none were ever declared", async () => {
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
      await acquireNow(one.semaphore("s", { permits: 10 }));
      await acquireNow(unknown);
      expect((await unknown.inspect()).permits).toBe(10);
      for (let n = 2; n < 10; n++) await acquireNow(unknown);
      expect(await unknown.tryAcquire()).toMatchObject({ ok: false });
      expect(await unknown.history()).toEqual([]);
    });

    test("keeps its other holders after a forced release of one", async () => {
      const pawl = await place.open();
      const s = pawl.semaphore("s", { permits: 2 });
      const [a, b] = [await acquireNow(s, "a"), await acquireNow(s, "b")];
      expect(await s.forceRelease({ ...OPERATOR, ticket: a.ticket })).toEqual({ released: 1 });
      expect(whoOf((await s.inspect()).holders)).toEqual(["b"]);
      expect(await b.renew()).toBe(true);
      await acquireNow(s, "c");
      expect(await s.forceRelease(OPERATOR)).toEqual({ released: 2 });
    });

    test("has the permits of the latest declaration from its commit on, and no holder loses its permit", async () => {
      const [old, next] = await Promise.all([place.open(), place.open()]);
      const two = () => old.semaphore("s", { permits: 2 });
      const holds = [await acquireNow(two(), "h1"), await acquireNow(two(), "h2")];
      const third = await queueUp(two(), "h3");
      // More: a waiter is granted one immediately.
      expect(await next.semaphore("s", { permits: 4 }).tryAcquire({ by: "h4" })).toMatchObject({ ok: true });
      expect(whoOf((await two().inspect()).holders)).toEqual(["h1", "h2", "h3", "h4"]);
      holds.push(await third.acquire());
      // The old process declares its number again, and undoes nothing.
      expect(await (await queueUp(two(), "h5")).position()).toBe(1);
      expect((await two().inspect()).permits).toBe(4);
      // Fewer: all holders stay, and no other is granted until there are few enough.
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

    test("the number that a restarted process declares is the latest", async () => {
      const [old, next] = await Promise.all([place.open(), place.open()]);
      await (await acquireNow(old.semaphore("s", { permits: 2 }))).release();
      await (await acquireNow(next.semaphore("s", { permits: 3 }))).release();
      const again = await place.open();
      await (await acquireNow(again.semaphore("s", { permits: 2 }))).release();
      expect((await next.semaphore("s", { permits: 3 }).inspect()).permits).toBe(2);
      expect((await next.semaphore("s").history()).length).toBe(2);
    });
  });
});
