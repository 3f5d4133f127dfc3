/**
 * Goal: a stream is closed once, whatever crashes or races: no event is lost, stored twice or appended after the tombstone, and what was removed is never
 * silently left out; on every store.
 * Method: handles as processes have them, which die before or after any call of their store; archives that fail, lie or are damaged.
 */

import { describe, expect, test } from "vitest";
import {
  type Archive,
  type ArchivedEvent,
  aggregate,
  event,
  NonRetryableError,
  type Pawl,
  reaction,
} from "../../src/index.ts";
import { reactionAt } from "../../src/stream/reactions/stored.ts";
import { streamAt } from "../../src/stream/stored.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { KEYS } from "./forget-kit.ts";
import { account, all, brief, Deposited, deposits, Opened } from "./kit.ts";

const Carried = event<{ readonly balance: number }>("Carried");

/** An archive in memory, that can be made to fail. */
class Shelf implements Archive {
  readonly events = new Map<string, Map<number, ArchivedEvent>>();
  writes = 0;
  /** Called for each event that it is given. */
  onEvent: (event: ArchivedEvent) => ArchivedEvent | undefined = (one) => one;
  /** Called before the events are taken. */
  onWrite: () => Promise<void> = async () => {};
  /** Called before events are read back. */
  onRead: () => void = () => {};

  async write(stream: string, events: AsyncIterable<ArchivedEvent>): Promise<void> {
    this.writes += 1;
    await this.onWrite();
    const taken: ArchivedEvent[] = [];
    for await (const one of events) {
      const kept = this.onEvent(one);
      if (kept !== undefined) taken.push(kept);
    }
    const shelf = this.events.get(stream) ?? new Map<number, ArchivedEvent>();
    for (const one of taken) shelf.set(one.version, one);
    this.events.set(stream, shelf);
  }

  async *read(stream: string, { from, to }: { readonly from: number; readonly to: number }) {
    this.onRead();
    const shelf = [...(this.events.get(stream)?.values() ?? [])].toSorted((a, b) => a.version - b.version);
    for (const one of shelf) if (one.version >= from && one.version <= to) yield one;
  }

  versions(stream: string): readonly number[] {
    return [...(this.events.get(stream)?.keys() ?? [])].toSorted((a, b) => a - b);
  }
}

/** The same, without a reader. */
const unread = (archive: Archive): Archive => ({ write: (...given) => archive.write(...given) });

const kept = async (pawl: Pawl, stream: string) => (await all(pawl.stream(stream).read({ from: "kept" }))).map(brief);

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

  describe("while a reaction has something to do", () => {
    const slow = (isOpen: () => boolean) =>
      reaction("slow", { on: [Deposited], target: (e) => `t-${e.stream}`, retry: { attempts: 1 } }, () => {
        if (!isOpen()) throw new Error("not yet");
      });

    test("a stream is in use; when its events are handled, it is closed", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive, logger: false });
      let isOpen = false;
      await pawl.stream("ann").append([Opened(), ...deposits(3)]);
      const worker = pawl.work([slow(() => isOpen)]);
      await expect
        .poll(async () => (await pawl.reactions.targets("slow", { status: "blocked" })).targets.length, PATIENCE)
        .toBe(1);
      await worker.stop();
      // Not routed: the events of another stream come after its cursor. Not handled: those that wait behind the first.
      await pawl.stream("bob").append([Opened(), ...deposits(2)]);
      const refusal = (stream: string, events: number) => ({
        code: "stream_in_use",
        data: { stream, reactions: [{ reaction: "slow", events }], isClosed: false },
      });
      await expect(pawl.streams.close("ann")).rejects.toMatchObject(refusal("ann", 3));
      await expect(pawl.streams.close("bob")).rejects.toMatchObject(refusal("bob", 2));
      expect(await pawl.streams.prune("ann", { before: 2, discard: true })).toMatchObject({ firstVersion: 2 });
      await expect(pawl.streams.prune("ann", { before: 3, discard: true })).rejects.toMatchObject(refusal("ann", 1));
      await expect(pawl.streams.prune("bob", { before: 3, discard: true })).rejects.toMatchObject(refusal("bob", 1));
      expect(await pawl.streams.prune("bob", { before: 2, discard: true })).toEqual({ firstVersion: 2, archived: 0 });
      // It is about nothing of this stream.
      await pawl.stream("cid").append([Opened()]);
      expect(await pawl.streams.close("cid")).toMatchObject({ version: 2 });
      expect([archive.writes, await pawl.stream("ann").head()]).toEqual([1, 4]);
      isOpen = true;
      await pawl.reactions.unblock("slow", {});
      pawl.work([slow(() => isOpen)]);
      await expect
        .poll(() => pawl.streams.close("ann").catch(({ code }) => code), PATIENCE)
        .toMatchObject({ version: 5 });
      await expect
        .poll(() => pawl.streams.close("bob").catch(({ code }) => code), PATIENCE)
        .toMatchObject({ version: 4 });
    });

    test("at the target of the stream, only that target is looked at; where targets are computed, all are", async () => {
      const pawl = await place.open({ logger: false });
      let isOpen = true;
      const by = (target?: () => string) =>
        reaction("by", { on: [Deposited], retry: { attempts: 1 }, ...(target === undefined ? {} : { target }) }, () => {
          if (!isOpen) throw new Error("not yet");
        });
      const lists: string[] = [];
      const list = pawl.kernel.list.bind(pawl.kernel);
      pawl.kernel.list = (query) => {
        lists.push(query.space);
        return list(query);
      };
      const blocked = (count: number) =>
        expect
          .poll(async () => (await pawl.reactions.targets("by", { status: "blocked" })).targets.length, PATIENCE)
          .toBe(count);
      const left = async (stream: string) => {
        lists.length = 0;
        const error = await pawl.streams.close(stream, { discard: true }).catch(({ data }) => data.reactions);
        return [error, lists.includes("reaction-target/by")];
      };
      isOpen = false;
      await pawl.stream("ann").append(deposits(2));
      let worker = pawl.work([by()]);
      await blocked(1);
      expect(await left("ann")).toEqual([[{ reaction: "by", events: 2 }], false]);
      await worker.stop();
      // Other code computes targets: the events of "bob" are elsewhere.
      await pawl.stream("bob").append(deposits(3));
      worker = pawl.work([by(() => "elsewhere")]);
      await blocked(2);
      await worker.stop();
      expect(await left("bob")).toEqual([[{ reaction: "by", events: 3 }], true]);
      expect(await left("ann")).toEqual([[{ reaction: "by", events: 2 }], true]);
      // It stays so, whatever comes later.
      worker = pawl.work([by()]);
      await pawl.stream("cid").append(deposits(1));
      await blocked(3);
      expect(await left("bob")).toEqual([[{ reaction: "by", events: 3 }], true]);
    });

    test("that an operator sent to another target, it is in use", async () => {
      const pawl = await place.open({ logger: false });
      const Odd = event<number>("Odd");
      const no = (): never => {
        throw new NonRetryableError("no");
      };
      const odd = reaction("odd", { on: [Odd], target: no }, no);
      await pawl.stream("ann").append([Odd(2)]);
      pawl.work([odd]);
      await expect.poll(async () => (await pawl.reactions.deadLetters("odd")).letters.length, PATIENCE).toBe(1);
      await pawl.reactions.redrive("odd", { stream: "ann", version: 1, target: "there" });
      await expect
        .poll(async () => (await pawl.reactions.target("odd", "there").catch(() => null))?.status, PATIENCE)
        .toBe("blocked");
      await expect(pawl.streams.close("ann", { discard: true })).rejects.toMatchObject({
        code: "stream_in_use",
        data: { reactions: [{ reaction: "odd", events: 1 }] },
      });
    });

    test("that it got while the events were archived, it is waited for; where that lasts, the error says that it is closed", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive, logger: false, patience: "2s" });
      await pawl.stream("ann").append(deposits(2));
      const worker = pawl.work([slow(() => true)]);
      await expect
        .poll(async () => (await pawl.reactions.target("slow", "t-ann").catch(() => null))?.handled, PATIENCE)
        .toBe(2);
      await worker.stop();
      archive.onWrite = async () => void (await pawl.reactions.reset("slow", {}));
      const refused = { code: "stream_in_use", data: { reactions: [{ reaction: "slow", events: 2 }], isClosed: true } };
      await expect(pawl.streams.close("ann")).rejects.toMatchObject(refused);
      expect(await kept(pawl, "ann")).toEqual(["ann 1 Deposited", "ann 2 Deposited", "ann 3 $closed"]);
      expect(await codeOf(pawl.stream("ann").append(deposits(1)))).toBe("stream_closed");
      archive.onWrite = async () => {
        pawl.work([slow(() => true)]);
      };
      expect(await pawl.streams.close("ann")).toEqual({ version: 3, archived: 2 });
    });

    test("closed by force, it leaves dead letters of what was not routed, and the archive to targets", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive, logger: false });
      let isOpen = false;
      await pawl.stream("ann").append(deposits(2));
      const worker = pawl.work([slow(() => isOpen)]);
      await expect
        .poll(async () => (await pawl.reactions.targets("slow", { status: "blocked" })).targets.length, PATIENCE)
        .toBe(1);
      await worker.stop();
      await pawl.stream("ann").append(deposits(2));
      expect(await pawl.streams.close("ann", { force: true, actor: "bob", reason: "now" })).toMatchObject({
        version: 5,
      });
      const { letters } = await pawl.reactions.deadLetters("slow");
      expect(letters.map(({ stream, version, actor, reason }) => [stream, version, actor, reason])).toEqual([
        ["ann", 3, "bob", "now"],
        ["ann", 4, "bob", "now"],
      ]);
      isOpen = true;
      await pawl.reactions.unblock("slow", {});
      await pawl.reactions.redrive("slow", { stream: "ann", version: 3, target: "t-ann" });
      pawl.work([slow(() => isOpen)]);
      await expect.poll(async () => (await pawl.reactions.target("slow", "t-ann")).handled, PATIENCE).toBe(3);
    });

    test("an event that a worker is about to route, when it is closed by force, is a dead letter and nothing else", async () => {
      const pawl = await place.open({ archive: new Shelf(), logger: false });
      const routing = await place.openHandle({ logger: false });
      const gate = Promise.withResolvers<void>();
      const arrived = Promise.withResolvers<void>();
      const handled: string[] = [];
      const late = reaction(
        "late",
        {
          on: [Deposited],
          target: (e) => {
            // The next commit of this process routes the event.
            if (e.stream === "ann") {
              routing.hold("request", gate.promise);
              arrived.resolve();
            }
            return e.stream;
          },
        },
        (e) => void handled.push(brief(e)),
      );
      await pawl.stream("ann").append(deposits(2));
      routing.pawl.work([late]);
      await arrived.promise;
      await pawl.streams.close("ann", { force: true });
      gate.resolve();
      await pawl.stream("bob").append(deposits(1));
      await expect.poll(() => handled, PATIENCE).toContain("bob 1 Deposited");
      await expect.poll(async () => (await pawl.reactions.get("late")).unrouted, PATIENCE).toBe(0);
      const { letters } = await pawl.reactions.deadLetters("late");
      expect(letters.map(({ stream, version }) => `${stream} ${version}`)).toEqual(["ann 1", "ann 2"]);
      expect(await codeOf(pawl.reactions.target("late", "ann"))).toBe("target_not_found");
      expect(handled).toEqual(["bob 1 Deposited"]);
      // What was put aside is forgotten when the reaction is past it; sent again, it is handled.
      const [row] = await pawl.kernel.read([reactionAt("late")]);
      expect(pawl.kernel.decode(reactionAt("late"), row?.value ?? "")).not.toHaveProperty("aside");
    });

    test("one that a worker routes while it is closed by force, after it was looked for, is no dead letter", async () => {
      const archive = new Shelf();
      const closing = await place.openHandle({ archive, logger: false });
      const { pawl } = closing;
      const handled: string[] = [];
      const soon = reaction("soon", { on: [Deposited] }, (e) => void handled.push(brief(e)));
      const worker = pawl.work([soon]);
      await expect.poll(async () => (await pawl.reactions.list()).length, PATIENCE).toBe(1);
      await worker.stop();
      await pawl.stream("ann").append(deposits(2));
      const gate = Promise.withResolvers<void>();
      const arrived = Promise.withResolvers<void>();
      const { kernel } = pawl;
      const entries = kernel.entries.bind(kernel);
      // The last look at the events before dead letters are written; those that are archived were read before.
      archive.onRead = () => {
        kernel.entries = async (...given) => {
          kernel.entries = entries;
          const found = await entries(...given);
          closing.hold("request", gate.promise);
          arrived.resolve();
          return found;
        };
      };
      const closed = pawl.streams.close("ann", { force: true });
      await arrived.promise;
      const other = await place.open({ archive, logger: false });
      other.work([soon]);
      await expect.poll(() => handled, PATIENCE).toEqual(["ann 1 Deposited", "ann 2 Deposited"]);
      gate.resolve();
      expect(await closed).toMatchObject({ version: 3 });
      expect((await pawl.reactions.deadLetters("soon")).letters).toEqual([]);
    });

    test("a letter that was sent again is not written again by a repeated closing", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive, logger: false });
      const worker = pawl.work([slow(() => true)]);
      await expect.poll(async () => (await pawl.reactions.list()).length, PATIENCE).toBe(1);
      await worker.stop();
      await pawl.stream("ann").append(deposits(2));
      // The letters are written, and the process dies before it says that the events may be removed.
      const closing = await place.openHandle({ archive, logger: false });
      archive.onRead = () => closing.dieBefore(2);
      void closing.pawl.streams.close("ann", { force: true });
      await expect.poll(() => closing.isDead(), PATIENCE).toBe(true);
      archive.onRead = () => {};
      await pawl.reactions.redrive("slow", { stream: "ann", version: 1, target: "t-ann" });
      await pawl.streams.close("ann", { force: true });
      const { letters } = await pawl.reactions.deadLetters("slow");
      expect(letters.map(({ version }) => version)).toEqual([2]);
      expect(await pawl.reactions.target("slow", "t-ann")).toMatchObject({ pending: 1 });
    });
  });

  describe("events that were removed", () => {
    /** A stream of ten events, of which five are kept. */
    const pruned = async (archive: Shelf): Promise<void> => {
      const pawl = await place.open({ archive });
      await pawl.stream("ann").append(deposits(10));
      await pawl.aggregate(account, "ann").execute("look");
      expect(await pawl.streams.prune("ann", { before: 6 })).toEqual({ firstVersion: 6, archived: 5 });
    };

    test("are read from the archive, forwards and backwards, or the reading throws where it needs them", async () => {
      const archive = new Shelf();
      await pruned(archive);
      const versions = async (pawl: Pawl, options?: object) =>
        (await all(pawl.stream("ann").read(options))).map(({ version }) => version);
      const reader = await place.open({ archive });
      const up = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
      expect(await versions(reader)).toEqual(up);
      expect(await versions(reader, { from: 4 })).toEqual(up.slice(3));
      expect(await versions(reader, { backwards: true })).toEqual(up.toReversed());
      expect(await versions(reader, { backwards: true, from: 3 })).toEqual([3, 2, 1]);
      expect(await versions(reader, { from: "kept" })).toEqual(up.slice(5));
      expect(await versions(reader, { from: "kept", backwards: true })).toEqual(up.slice(5).toReversed());
      const blind = await place.open({ archive: unread(archive) });
      const archived = { code: "events_archived", data: { stream: "ann", firstVersion: 6, wanted: 1 } };
      await expect(versions(blind)).rejects.toMatchObject(archived);
      await expect(versions(blind, { from: 4 })).rejects.toMatchObject({ ...archived, data: { wanted: 4 } });
      expect(await versions(blind, { from: 6 })).toEqual(up.slice(5));
      expect(await versions(blind, { from: "kept" })).toEqual(up.slice(5));
      const seen: number[] = [];
      const backwards = (async () => {
        for await (const { version } of blind.stream("ann").read({ backwards: true })) seen.push(version);
      })();
      expect([await codeOf(backwards), seen]).toEqual(["events_archived", up.slice(5).toReversed()]);
      // Lost by the archive, or not in order.
      const gap = archive.events.get("ann")?.get(3);
      archive.events.get("ann")?.delete(3);
      expect(await codeOf(versions(reader))).toBe("events_archived");
      if (gap !== undefined) archive.events.get("ann")?.set(3, gap);
      const reversed: Archive = {
        write: async () => {},
        read: (stream, { from, to }) =>
          (async function* () {
            yield* (await all(archive.read(stream, { from, to }))).toReversed();
          })(),
      };
      const confused = await place.open({ archive: reversed });
      expect(await codeOf(versions(confused))).toBe("events_archived");
    });

    test("a reader of all streams that has not read them is told so, unless it wants what is kept", async () => {
      const archive = new Shelf();
      const pawl = await place.open({ archive });
      const read = async (options = {}) => (await all(pawl.events.read(options))).map(brief);
      await pawl.stream("bob").append([Opened()]);
      await pawl.stream("ann").append(deposits(3));
      const [, second, , fourth] = await all(pawl.events.read());
      await pawl.stream("bob").append([Opened()]);
      await pawl.streams.close("ann");
      const archived = { code: "events_archived", data: { stream: "ann", firstVersion: 4 } };
      await expect(read()).rejects.toMatchObject(archived);
      await expect(read({ after: second?.cursor })).rejects.toMatchObject(archived);
      await expect(read({ prefix: "a", events: [Deposited] })).rejects.toMatchObject(archived);
      const rest = ["bob 2 Opened", "ann 4 $closed"];
      expect(await read({ after: fourth?.cursor })).toEqual(rest);
      expect(await read({ from: "kept" })).toEqual(["bob 1 Opened", ...rest]);
      // Events of another stream were removed later: those that it is about were read.
      const beforeDan = (await all(pawl.events.read({ after: fourth?.cursor }))).at(-1)?.cursor;
      await pawl.stream("dan").append(deposits(1));
      await pawl.streams.close("dan");
      await expect(read({ after: beforeDan })).rejects.toMatchObject({ data: { stream: "dan" } });
      expect(await read({ after: beforeDan, prefix: "a" })).toEqual([]);
      // What it is about was not removed.
      expect(await read({ prefix: "b" })).toEqual(["bob 1 Opened", "bob 2 Opened"]);
      expect(await read({ events: [Opened] })).toEqual(["bob 1 Opened", "bob 2 Opened"]);
    });

    test("an event that is missing without having been removed is reported", async () => {
      const handle = await place.openHandle();
      await handle.pawl.stream("ann").append(deposits(10));
      // As damage would: the store prunes what no one asked it to.
      await handle.pawl.kernel.prune(streamAt("ann"), 2, 10);
      expect(await codeOf(all(handle.pawl.stream("ann").read()))).toBe("event_gone");
      expect(await codeOf(all(handle.pawl.stream("ann").read({ backwards: true })))).toBe("event_gone");
      expect(await codeOf(handle.pawl.aggregate(account, "ann").state())).toBe("event_gone");
      expect(await codeOf(handle.pawl.streams.close("ann", { discard: true }))).toBe("event_gone");
    });

    test("so is one in the middle", async () => {
      const pawl = await place.open();
      await pawl.stream("ann").append(deposits(10));
      const entries = pawl.kernel.entries.bind(pawl.kernel);
      pawl.kernel.entries = async (...given) => (await entries(...given)).filter(({ version }) => version !== 5);
      expect(await codeOf(all(pawl.stream("ann").read()))).toBe("event_gone");
      expect(await codeOf(all(pawl.stream("ann").read({ backwards: true })))).toBe("event_gone");
      expect(await codeOf(pawl.streams.prune("ann", { before: 8, discard: true }))).toBe("event_gone");
    });

    test("changed reducers read them, or throw, or begin with a state of older ones where that is accepted", async () => {
      const archive = new Shelf();
      await pruned(archive);
      const changed = (startFrom?: "kept") =>
        aggregate("account", {
          initial: { balance: 0, count: 0 },
          on: [[Deposited, ({ balance, count }, { amount }) => ({ balance: balance + 2 * amount, count: count + 1 })]],
          commands: { deposit: (_, amount: number, { emit }) => emit(Deposited({ amount })) },
          ...(startFrom === undefined ? {} : { startFrom }),
        });
      const reader = await place.open({ archive });
      const blind = await place.open({ archive: unread(archive) });
      const none = await place.open();
      // The stored state needs none of them.
      expect((await blind.aggregate(account, "ann").state()).state).toEqual({ balance: 55, count: 10 });
      expect(await codeOf(blind.aggregate(changed(), "ann").state())).toBe("events_archived");
      expect(await codeOf(none.aggregate(changed(), "ann").execute("deposit", 1))).toBe("events_archived");
      const inDecision = none.transact((tx) => void tx.aggregate(changed(), "ann").execute("deposit", 1));
      expect(await codeOf(inDecision)).toBe("events_archived");
      expect((await reader.aggregate(changed(), "ann").state()).state).toEqual({ balance: 110, count: 10 });
      expect((await reader.aggregate(changed("kept"), "ann").state()).state.balance).toBe(110);
      await blind.aggregate(changed("kept"), "ann").execute("deposit", 1);
      expect((await blind.aggregate(changed("kept"), "ann").state()).state).toEqual({ balance: 57, count: 11 });
    });

    test("a past state is folded from the archive, or refused", async () => {
      const archive = new Shelf();
      await pruned(archive);
      const [reader, blind] = [await place.open({ archive }), await place.open()];
      const [fourth] = await all(reader.stream("ann").read({ from: 4 }));
      const at = async (pawl: Pawl, asOf: number | Date) =>
        (await pawl.aggregate(account, "ann").state({ asOf })).state.count;
      expect([await at(reader, 4), await at(reader, 7)]).toEqual([4, 7]);
      expect(await codeOf(at(blind, 4))).toBe("events_archived");
      // The state that is stored is of version 10.
      expect(await codeOf(at(blind, 7))).toBe("events_archived");
      expect(await codeOf(at(blind, new Date(Number(fourth?.at) - 1)))).toBe("events_archived");
      await reader.stream("ann").append(deposits(2));
      expect([await at(blind, 10), await at(blind, 11)]).toEqual([10, 11]);
      expect(await at(blind, new Date(Date.now() + 3_600_000))).toBe(12);
      expect(await at(blind, 0)).toBe(0);
    });
  });

  describe("a reaction that needs removed events", () => {
    const copy = (seen: string[], from?: "kept") =>
      reaction(
        "copy",
        { on: [Deposited], target: (e) => `t-${e.stream}`, ...(from === undefined ? {} : { from }) },
        (e) => {
          seen.push(brief(e));
        },
      );

    /** Two streams that were closed, one of them restarted, one that was pruned, and one of other events. */
    const closed = async (archive: Archive): Promise<void> => {
      const pawl = await place.open({ archive });
      await pawl.stream("ann").append(deposits(450));
      await pawl.stream("bob").append([Opened(), ...deposits(2)]);
      await pawl.stream("cid").append([Opened()]);
      await pawl.stream("dan").append(deposits(3));
      await pawl.streams.close("ann", { restart: Opened() });
      await pawl.stream("ann").append(deposits(1));
      await pawl.streams.close("bob");
      await pawl.streams.close("cid");
      await pawl.aggregate(account, "dan").execute("look");
      await pawl.streams.prune("dan", { before: 2 });
    };
    const expected = [
      ...Array.from({ length: 450 }, (_, i) => `ann ${i + 1} Deposited`),
      "ann 453 Deposited",
      "bob 2 Deposited",
      "bob 3 Deposited",
      "dan 1 Deposited",
      "dan 2 Deposited",
      "dan 3 Deposited",
    ];
    const inOrder = (seen: readonly string[]) =>
      ["ann", "bob", "cid", "dan"].flatMap((stream) => seen.filter((one) => one.startsWith(stream)));

    test("begins with the archive, and handles each event once, in the order of its stream", async () => {
      const archive = new Shelf();
      await closed(archive);
      const seen: string[] = [];
      const pawl = await place.open({ archive });
      pawl.work([copy(seen)]);
      await expect.poll(() => seen.length, PATIENCE).toBe(expected.length);
      expect(inOrder(seen)).toEqual(expected);
      // It is reset, and reads the archive again.
      expect(await pawl.reactions.reset("copy", { target: "t-dan" })).toBe(1);
      await expect.poll(() => seen.length, PATIENCE).toBe(expected.length + 3);
      expect(seen.slice(-3)).toEqual(expected.slice(-3));
      // By a handle that cannot read it, it is not.
      const blind = await place.open();
      expect(await codeOf(blind.reactions.reset("copy", { target: "t-dan" }))).toBe("events_archived");
      expect(await codeOf(blind.reactions.reset("copy", { dryRun: true }))).toBe("events_archived");
      expect(seen.length).toBe(expected.length + 3);
      await blind.stream("eve").append(deposits(1));
      await expect
        .poll(async () => (await blind.reactions.target("copy", "t-eve").catch(() => null))?.handled, PATIENCE)
        .toBe(1);
      expect(await blind.reactions.reset("copy", { target: "t-eve" })).toBe(1);
    });

    test("does not begin where it cannot read them, unless it is to begin with what is kept", async () => {
      const archive = new Shelf();
      await closed(archive);
      const seen: string[] = [];
      const lines: string[] = [];
      const logger = { warn: (line: string) => void lines.push(line), error: (line: string) => void lines.push(line) };
      const blind = await place.open({ archive: unread(archive), logger });
      const worker = blind.work([copy(seen)]);
      await expect.poll(() => lines.some((line) => line.includes('of stream "ann" was removed')), PATIENCE).toBe(true);
      await worker.stop();
      expect(seen).toEqual([]);
      // Another process can, and continues.
      const reader = await place.open({ archive });
      const other = reader.work([copy(seen)]);
      await expect.poll(() => seen.length, PATIENCE).toBe(expected.length);
      await other.stop();
      const rest: string[] = [];
      const kept = reaction("kept", { on: [Deposited], from: "kept" }, (e) => void rest.push(brief(e)));
      blind.work([kept]);
      await expect
        .poll(() => inOrder(rest), PATIENCE)
        .toEqual(["ann 453 Deposited", "dan 2 Deposited", "dan 3 Deposited"]);
    });

    test("of which none was removed begins as ever", async () => {
      await closed(new Shelf());
      const seen: string[] = [];
      const pawl = await place.open();
      await pawl.stream("eve").append([Carried({ balance: 1 })]);
      pawl.work([reaction("carry", { on: [Carried] }, (e) => void seen.push(brief(e)))]);
      await expect.poll(() => seen, PATIENCE).toEqual(["eve 1 Carried"]);
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
