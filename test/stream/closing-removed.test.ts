/**
 * Goal: events that were removed are read from the archive, in their order, or the reader gets an error: they are never silently left out; on every store.
 * Method: streams that were closed or pruned, read by handles that can read the archive and by some that cannot; archives that lose events.
 */

import { describe, expect, test } from "vitest";
import { type Archive, aggregate, type Pawl, reaction } from "../../src/index.ts";
import { streamAt } from "../../src/stream/stored.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { Carried, Shelf, unread } from "./closing-kit.ts";
import { account, all, brief, Deposited, deposits, Opened } from "./kit.ts";

onStores(EVERY, (place) => {
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
});
