/**
 * Goal: several locks at once, locks for readers and writers, and semaphores keep the same order and limits as a mutex, on every store.
 * Method: as in laws.test.ts: two handles on one database, as two processes have them, through the public handle alone.
 */

import { describe, expect, test } from "vitest";
import { lockAt } from "../../src/lock/stored.ts";
import { codeOf, drained } from "../kernel/kit.ts";
import { EVERY, onStores } from "../workflow/kit.ts";
import { have, lineUp, PERSON, whoOf } from "./kit.ts";

onStores(EVERY, (place) => {
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

    test("an operator takes them from a holder that is gone, also if one of them is swept already", async () => {
      const pawl = await place.open();
      await have(pawl.mutex(["a", "b"]));
      // As after an hour in which its holder was dead and no process used it.
      const b = lockAt({ kind: "mutex", name: "b" });
      await pawl.kernel.transact((tx) => tx.record(b).remove(), [b]);
      expect(await pawl.mutex("a").forceRelease(PERSON)).toEqual({ released: 1 });
      expect((await pawl.mutex("a").inspect()).holders).toEqual([]);
    });

    test("the audit trail names only those that the holder still had", async () => {
      const pawl = await place.open();
      // No process renews what a decision took.
      await pawl.transact((tx) => tx.lock(pawl.mutex(["a", "b"], { lease: "1s" })).take());
      const next = await pawl.mutex("b").acquire();
      expect(await pawl.mutex("a").forceRelease(PERSON)).toEqual({ released: 1 });
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
});
