/**
 * Goal: a stream is closed once, whatever crashes or races: no event is lost, stored twice or appended after the tombstone; on every store. The
 * same of one that is pruned.
 * Method: handles as processes have them, which die before or after any call of their store; archives that fail, lie or are damaged.
 */

import { describe, expect, test } from "vitest";
import { type Archive, event, type Pawl } from "../../src/index.ts";
import { streamAt } from "../../src/stream/stored.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores } from "../workflow/kit.ts";
import { Carried, kept, Shelf } from "./closing-kit.ts";
import { KEYS } from "./forget-kit.ts";
import { account, all, deposits, Opened } from "./kit.ts";

/** Crashes before and after each call of the store, until there is no such call. Returns how many there were. */
async function crashes(round: (call: number, when: "before" | "after") => Promise<boolean>): Promise<number> {
  for (let call = 1; ; call++)
    for (const when of ["before", "after"] as const) if (!(await round(call, when))) return call - 1;
}

onStores(EVERY, (place) => {
  describe("close", () => {
    test("archives the events, removes them, and leaves a tombstone; nothing is appended after it", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive });
      const ann = pawl.stream("ann");
      const before = [...deposits(1500)];
      await ann.append(before.slice(0, 1000));
      await ann.append(before.slice(1000));
      const events = await all(ann.read());
      const closed = await pawl.streams.close("ann", { expectedVersion: 1500, actor: "bob", reason: "moved away" });
      expect(closed).toEqual({ version: 1501, archived: 1500 });
      expect(archive.versions("ann").length).toBe(1500);
      const [tombstone, ...more] = await all(ann.read({ from: "kept" }));
      expect(more).toEqual([]);
      expect(tombstone).toMatchObject({ version: 1501, name: "$closed", actor: "bob", data: { reason: "moved away" } });
      expect(await all(ann.read())).toEqual([...events, tombstone]);
      expect(await codeOf(ann.append(deposits(1)))).toBe("stream_closed");
      expect(await codeOf(ann.append([]))).toBe("stream_closed");
      expect(await ann.tryAppend(deposits(1))).toEqual({ ok: false, code: "stream_closed", version: 1501 });
      expect(await codeOf(pawl.aggregate(account, "ann").execute("look"))).toBe("stream_closed");
      const refused = { ok: false, code: "stream_closed", version: 1501 };
      expect(await pawl.aggregate(account, "ann").tryExecute("look")).toEqual(refused);
      expect(await pawl.transact((tx) => tx.aggregate(account, "ann").tryExecute("look"))).toEqual(refused);
      expect(await codeOf(pawl.transact((tx) => void tx.stream("ann").append(deposits(1))))).toBe("stream_closed");
      expect(await codeOf(pawl.transact((tx) => void tx.aggregate(account, "ann").execute("look")))).toBe(
        "stream_closed",
      );
      expect((await pawl.aggregate(account, "ann").state()).state.count).toBe(1500);
      expect(await ann.head()).toBe(1501);
    });

    test("repeated, changes nothing", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive });
      await pawl.stream("ann").append(deposits(3));
      const closed = await pawl.streams.close("ann");
      expect(await pawl.streams.close("ann")).toEqual(closed);
      expect(await pawl.streams.close("ann", { expectedVersion: 3 })).toEqual(closed);
      expect(await pawl.streams.close("ann", { expectedVersion: 4 })).toEqual(closed);
      expect(await codeOf(pawl.streams.close("ann", { expectedVersion: 2 }))).toBe("concurrency_conflict");
      expect(await codeOf(pawl.streams.close("ann", { expectedVersion: 5 }))).toBe("concurrency_conflict");
      expect([archive.writes, await pawl.stream("ann").head()]).toEqual([1, 4]);
    });

    test("with an opening event, the stream continues with the next version", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive });
      const restart = Carried({ balance: 6 });
      await pawl.stream("ann").append(deposits(3));
      const closed = { version: 4, archived: 3, restartedAt: 5 };
      expect(await pawl.streams.close("ann", { expectedVersion: 3, restart, actor: "bob" })).toEqual(closed);
      expect(await kept(pawl, "ann")).toEqual(["ann 4 $closed", "ann 5 Carried"]);
      expect((await all(pawl.stream("ann").read({ from: 5 })))[0]).toMatchObject({
        data: { balance: 6 },
        actor: "bob",
      });
      // The reply was lost: it was done.
      expect(await pawl.streams.close("ann", { expectedVersion: 3, restart })).toEqual(closed);
      expect(await pawl.streams.close("ann", { restart })).toEqual(closed);
      await pawl.stream("ann").append(deposits(1), { expectedVersion: 5 });
      expect(await pawl.streams.close("ann", { expectedVersion: 3, restart })).toEqual(closed);
      expect(await codeOf(pawl.streams.close("ann", { expectedVersion: 3 }))).toBe("concurrency_conflict");
      // A second year.
      expect(await pawl.streams.close("ann", { expectedVersion: 6, restart })).toEqual({
        version: 7,
        archived: 3,
        restartedAt: 8,
      });
      expect(archive.versions("ann")).toEqual([1, 2, 3, 4, 5, 6]);
      expect((await all(pawl.stream("ann").read())).map(({ version, name }) => `${version} ${name}`)).toEqual([
        "1 Deposited",
        "2 Deposited",
        "3 Deposited",
        "4 $closed",
        "5 Carried",
        "6 Deposited",
        "7 $closed",
        "8 Carried",
      ]);
      // A closed stream can be restarted later, and in another way.
      await pawl.streams.close("ann");
      expect(await pawl.streams.close("ann", { restart: Opened() })).toMatchObject({ version: 9, restartedAt: 10 });
    });

    test("an unknown stream is not closed, and neither is one at another version", async () => {
      const pawl = await place.open({ archive: new Shelf() });
      expect(await codeOf(pawl.streams.close("nobody"))).toBe("stream_not_found");
      expect(await codeOf(pawl.streams.close("nobody", { expectedVersion: 0 }))).toBe("stream_not_found");
      expect(await codeOf(pawl.streams.prune("nobody", { before: 1 }))).toBe("stream_not_found");
      await pawl.stream("ann").append(deposits(2));
      expect(await codeOf(pawl.streams.close("ann", { expectedVersion: 1 }))).toBe("concurrency_conflict");
      await pawl.stream("ann").append(deposits(1), { expectedVersion: 2 });
    });

    test("needs an archive, or to be told that none is wanted", async () => {
      const pawl = await place.open();
      await pawl.stream("ann").append(deposits(2));
      expect(await codeOf(pawl.streams.close("ann"))).toBe("invalid_argument");
      expect(await codeOf(pawl.streams.close("ann", { archive: new Shelf(), discard: true }))).toBe("invalid_argument");
      expect(await pawl.streams.close("ann", { discard: true })).toEqual({ version: 3, archived: 0 });
      expect(await codeOf(all(pawl.stream("ann").read()))).toBe("events_archived");
      expect(await kept(pawl, "ann")).toEqual(["ann 3 $closed"]);
    });

    test("an archive that fails or lies removes nothing, and the call can be repeated", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive });
      await pawl.stream("ann").append(deposits(5));
      const left = async () => (await all(pawl.stream("ann").read({ from: "kept" }))).length;
      archive.onEvent = ({ version }) => {
        if (version === 3) throw new Error("disk full");
        return undefined;
      };
      await expect(pawl.streams.close("ann")).rejects.toThrow("disk full");
      expect([await left(), await codeOf(pawl.stream("ann").append(deposits(1)))]).toEqual([6, "stream_closed"]);
      archive.onEvent = (one) => (one.version === 3 ? undefined : one);
      const incomplete = { code: "archive_incomplete", data: { stream: "ann", events: 5, stored: 4 } };
      await expect(pawl.streams.close("ann")).rejects.toMatchObject({
        ...incomplete,
        message: expect.stringContaining("returned 4"),
      });
      archive.onEvent = (one) => (one.version === 3 ? { ...one, text: `${one.text} ` } : one);
      expect(await codeOf(pawl.streams.close("ann"))).toBe("archive_incomplete");
      const half: Archive = {
        async write(_, events) {
          for await (const { version } of events) if (version === 4) return;
        },
      };
      expect(await codeOf(pawl.streams.close("ann", { archive: half }))).toBe("archive_incomplete");
      expect(await left()).toBe(6);
      archive.onEvent = (one) => one;
      expect(await pawl.streams.close("ann")).toEqual({ version: 6, archived: 5 });
      expect([await left(), archive.versions("ann")]).toEqual([1, [1, 2, 3, 4, 5]]);
    });

    test("of appends and closes in a race, each event is before the tombstone or refused", async () => {
      const archive = new Shelf();
      const pawls = await Promise.all([place.open({ archive }), place.open({ archive }), place.open({ archive })]);
      const [one] = pawls as [Pawl, ...Pawl[]];
      await one.stream("ann").append(deposits(1));
      const appended: number[] = [];
      const refused: string[] = [];
      const appending = pawls.map(async (pawl) => {
        for (let i = 0; i < 20; i++)
          await pawl
            .stream("ann")
            .append(deposits(1))
            .then(
              ({ version }) => appended.push(version),
              ({ code }) => refused.push(code),
            );
      });
      const closes = await Promise.all(pawls.slice(1).map((pawl) => pawl.streams.close("ann")));
      await Promise.all(appending);
      const version = closes[0]?.version ?? 0;
      expect(closes).toEqual([closes[0], closes[0]]);
      expect(new Set(refused).size).toBeLessThanOrEqual(1);
      expect(refused.length + appended.length).toBe(60);
      expect(appended.every((each) => each < version)).toBe(true);
      expect(archive.versions("ann")).toEqual(Array.from({ length: version - 1 }, (_, i) => i + 1));
      expect(await kept(one, "ann")).toEqual([`ann ${version} $closed`]);
    });

    test("an event that is appended before the tombstone, after it was looked for, is a conflict, or is closed too", async () => {
      const archive = new Shelf();
      const [handle, other] = [await place.openHandle({ archive }), await place.open({ archive })];
      for (const expectedVersion of [2, undefined]) {
        const stream = `s-${expectedVersion}`;
        await other.stream(stream).append(deposits(2));
        const { promise: isAppended, resolve: appended } = Promise.withResolvers<void>();
        handle.hold("request", isAppended);
        const closing = handle.pawl.streams.close(stream, { expectedVersion });
        const outcome = closing.catch(({ code }) => code);
        await other.stream(stream).append(deposits(1));
        appended();
        expect(await outcome).toEqual(expectedVersion === 2 ? "concurrency_conflict" : { version: 4, archived: 3 });
        expect(await other.stream(stream).head()).toBe(expectedVersion === 2 ? 3 : 4);
      }
    });

    test("an opening event that cannot be appended is refused before anything is written", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive, maxValueBytes: 2_000, ...KEYS });
      await pawl.stream("ann").append(deposits(3));
      const Named = event("Named", {
        personal: { subject: (data: { readonly who: string; readonly name: string }) => data.who, fields: ["name"] },
      });
      await pawl.stream("other").append([Named({ who: "p-1", name: "Ann" })]);
      await pawl.forget("p-1");
      const tooLarge = event<string>("Large")("x".repeat(3_000));
      const forgotten = Named({ who: "p-1", name: "Ann" });
      const intact = ["ann 1 Deposited", "ann 2 Deposited", "ann 3 Deposited"];
      for (const force of [false, true])
        for (const [restart, code] of [
          [tooLarge, "value_too_large"],
          [forgotten, "subject_forgotten"],
        ] as const) {
          expect(await codeOf(pawl.streams.close("ann", { restart, force }))).toBe(code);
          expect(await kept(pawl, "ann")).toEqual(intact);
          expect(archive.writes).toBe(0);
        }
      // It is open, and the rehearsal of an event that can be appended writes nothing twice.
      const closed = await pawl.streams.close("ann", { restart: Named({ who: "p-2", name: "Bob" }) });
      expect(closed).toEqual({ version: 4, archived: 3, restartedAt: 5 });
      expect((await all(pawl.stream("ann").read({ from: 5 })))[0]?.data).toEqual({ who: "p-2", name: "Bob" });
      // Neither are the events of one that is closed already removed.
      await pawl.stream("bob").append(deposits(2));
      archive.onWrite = async () => {
        throw new Error("down");
      };
      await expect(pawl.streams.close("bob")).rejects.toThrow("down");
      archive.onWrite = async () => {};
      expect(await codeOf(pawl.streams.close("bob", { restart: tooLarge }))).toBe("value_too_large");
      expect(await kept(pawl, "bob")).toEqual(["bob 1 Deposited", "bob 2 Deposited", "bob 3 $closed"]);
    });

    test("a person who is forgotten while the events are archived: the error says that it is closed, and the way out", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive, ...KEYS });
      const Named = event("Named", {
        personal: { subject: (data: { readonly who: string; readonly name: string }) => data.who, fields: ["name"] },
      });
      await pawl.stream("ann").append([Named({ who: "p-1", name: "Ann" })]);
      archive.onWrite = async () => void (await pawl.forget("p-1"));
      const close = (who: string) =>
        pawl.streams.close("ann", { expectedVersion: 1, restart: Named({ who, name: "Ann" }) });
      // Also when it is repeated.
      for (let i = 0; i < 2; i++)
        await expect(close("p-1")).rejects.toMatchObject({
          code: "subject_forgotten",
          data: { subject: "p-1", isClosed: true },
          message: expect.stringContaining("call close again with another opening event"),
        });
      expect(await codeOf(pawl.stream("ann").append(deposits(1)))).toBe("stream_closed");
      expect(await close("p-2")).toEqual({ version: 2, archived: 1, restartedAt: 3 });
      expect(await kept(pawl, "ann")).toEqual(["ann 2 $closed", "ann 3 Named"]);
    });

    test("two that restart do it once", async () => {
      const archive = new Shelf();
      const [one, two] = [await place.open({ archive }), await place.open({ archive })];
      await one.stream("ann").append(deposits(7));
      const restart = Carried({ balance: 28 });
      const closed = { version: 8, archived: 7, restartedAt: 9 };
      const both = [one, two].map((pawl) => pawl.streams.close("ann", { expectedVersion: 7, restart }));
      expect(await Promise.all(both)).toEqual([closed, closed]);
      expect(await kept(one, "ann")).toEqual(["ann 8 $closed", "ann 9 Carried"]);
    });

    test("one that is overtaken while it archives ends in the same way", async () => {
      const archive = new Shelf();
      const [one, two] = [await place.open({ archive }), await place.open({ archive })];
      await one.stream("ann").append(deposits(5));
      const { promise: isStopped, resolve: stopped } = Promise.withResolvers<void>();
      const { promise: isFree, resolve: free } = Promise.withResolvers<void>();
      archive.onWrite = () => {
        archive.onWrite = async () => {};
        stopped();
        return isFree;
      };
      const slow = one.streams.close("ann", { restart: Opened() });
      await isStopped;
      const fast = await two.streams.close("ann", { restart: Opened() });
      await two.stream("ann").append(deposits(1));
      free();
      expect(await slow).toEqual(fast);
      expect(archive.versions("ann")).toEqual([1, 2, 3, 4, 5]);
      expect(await kept(one, "ann")).toEqual(["ann 6 $closed", "ann 7 Opened", "ann 8 Deposited"]);
    });

    test("a process that dies before or after any of its calls loses nothing, and the next call does the rest", async () => {
      const restart = Carried({ balance: 3 });
      const archive = new Shelf();
      const reference = await place.open({ archive });
      const calls = await crashes(async (call, when) => {
        const stream = `s-${call}-${when}`;
        await reference.stream(stream).append(deposits(3));
        const handle = await place.openHandle({ archive });
        const { died } = handle.dieAt(call, when);
        await Promise.race([handle.pawl.streams.close(stream, { expectedVersion: 3, restart }), died]);
        // Readable all the time.
        const versions = (await all(reference.stream(stream).read())).map(({ version }) => version);
        expect(versions.slice(0, 3)).toEqual([1, 2, 3]);
        const closed = { version: 4, archived: 3, restartedAt: 5 };
        expect(await reference.streams.close(stream, { expectedVersion: 3, restart })).toEqual(closed);
        expect(await kept(reference, stream)).toEqual([`${stream} 4 $closed`, `${stream} 5 Carried`]);
        expect(archive.versions(stream)).toEqual([1, 2, 3]);
        return handle.isDead();
      });
      expect(calls).toBeGreaterThan(5);
    });
  });

  describe("prune", () => {
    test("keeps what no state has, the last event, and what is after the time", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive });
      const ann = pawl.stream("ann");
      await ann.append(deposits(4));
      expect(await codeOf(pawl.streams.prune("ann", { before: 3 }))).toBe("invalid_argument");
      expect(archive.writes).toBe(0);
      // A state that took few events to fold is not stored: what it says to do is to run a command.
      await pawl.aggregate(account, "ann").state();
      await expect(pawl.streams.prune("ann", { before: 3 })).rejects.toThrow("Run a command of one");
      await pawl.aggregate(account, "ann").execute("look");
      await ann.append(deposits(4));
      expect(await codeOf(pawl.streams.prune("ann", { before: 6 }))).toBe("invalid_argument");
      expect(await pawl.streams.prune("ann", { before: 5 })).toEqual({ firstVersion: 5, archived: 4 });
      expect(await pawl.streams.prune("ann", { before: 5 })).toEqual({ firstVersion: 5, archived: 0 });
      expect(await pawl.streams.prune("ann", { before: 2 })).toEqual({ firstVersion: 5, archived: 0 });
      expect(await codeOf(pawl.streams.prune("ann", { before: 9, discard: true }))).toBe("invalid_argument");
      // The stream is open, and its versions continue.
      await ann.append(deposits(1), { expectedVersion: 8 });
      await pawl.aggregate(account, "ann").execute("deposit", { amount: 1 });
      expect((await pawl.aggregate(account, "ann").state()).state.count).toBe(10);
      const [ninth] = await all(ann.read({ from: 9 }));
      const { firstVersion } = await pawl.streams.prune("ann", { before: ninth?.at ?? new Date() });
      // Several may have been committed in the same millisecond.
      expect(firstVersion).toBeLessThanOrEqual(9);
      expect((await all(ann.read({ from: "kept" })))[0]?.version).toBe(firstVersion);
      const { firstVersion: last } = await pawl.streams.prune("ann", { before: new Date(Date.now() + 3_600_000) });
      expect(last).toBe(10);
      expect((await all(ann.read())).map(({ version }) => version)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
      await pawl.streams.close("ann");
      expect(await codeOf(pawl.streams.prune("ann", { before: 10 }))).toBe("stream_closed");
      expect(archive.versions("ann")).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    });

    test("a process that dies before or after any of its calls loses nothing, and the next call does the rest", async () => {
      const archive = new Shelf();
      const reference = await place.open({ archive });
      const calls = await crashes(async (call, when) => {
        const stream = `s-${call}-${when}`;
        await reference.stream(stream).append(deposits(4));
        await reference.aggregate(account, stream).execute("look");
        const handle = await place.openHandle({ archive });
        const { died } = handle.dieAt(call, when);
        await Promise.race([handle.pawl.streams.prune(stream, { before: 3 }), died]);
        expect((await all(reference.stream(stream).read())).map(({ version }) => version)).toEqual([1, 2, 3, 4]);
        expect(await reference.streams.prune(stream, { before: 3 })).toMatchObject({ firstVersion: 3 });
        expect(await kept(reference, stream)).toEqual([`${stream} 3 Deposited`, `${stream} 4 Deposited`]);
        const left = await reference.kernel.entries(streamAt(stream), 0, 10);
        expect(left.map(({ version }) => version)).toEqual([3, 4]);
        expect(archive.versions(stream)).toEqual([1, 2]);
        return handle.isDead();
      });
      expect(calls).toBeGreaterThan(5);
    });
  });
});
