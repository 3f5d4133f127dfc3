/**
 * Goal: a stream has one success for each expected version, no gaps, and one order for all readers, on every store (G11, G12).
 * Method: two handles on one database, as two processes have them; many writers of one stream; transactions that commit in the opposite order.
 */

import { describe, expect, test } from "vitest";
import { ConcurrencyError, event, type StreamEvent } from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores } from "../workflow/kit.ts";
import { all, brief, Deposited, deposits, Opened, Withdrawn } from "./kit.ts";

const range = (length: number) => Array.from({ length }, (_, i) => i);

onStores(EVERY, (place) => {
  describe("append", () => {
    test("an event gets a version, an id and a time, and keeps what it was given", async () => {
      const pawl = await place.open();
      const stream = pawl.stream("account-1");
      expect(await stream.head()).toBe(0);
      const origin = { actor: "ann", correlationId: "request-1", causationId: "click-1" };
      const { version, ids } = await stream.append([Opened(), Deposited({ amount: 10 })], origin);
      expect([version, await stream.head()]).toEqual([2, 2]);
      const [opened, deposited] = await all(stream.read());
      expect(deposited).toEqual({
        stream: "account-1",
        version: 2,
        id: ids[1],
        name: "Deposited",
        data: { amount: 10 },
        shape: 1,
        at: expect.any(Date),
        ...origin,
      });
      expect(opened).toMatchObject({ version: 1, name: "Opened", data: undefined });
      expect(new Set(ids).size).toBe(2);
    });

    test.each([
      { rule: "a stream that does not exist is at version 0", had: 0, expected: 0, is: "appended" },
      { rule: "a stream that exists is not at version 0", had: 1, expected: 0, is: "refused" },
      { rule: "the version of the last event is expected", had: 3, expected: 3, is: "appended" },
      { rule: "one version less is not", had: 3, expected: 2, is: "refused" },
      { rule: "one version more is not", had: 3, expected: 4, is: "refused" },
      { rule: "without an expectation, events are appended at the end", had: 3, expected: undefined, is: "appended" },
    ])("$rule", async ({ had, expected, is }) => {
      const pawl = await place.open();
      const stream = pawl.stream("s");
      await stream.append(deposits(had));
      const appended = stream.append([Opened()], { expectedVersion: expected });
      if (is === "appended") expect((await appended).version).toBe(had + 1);
      else {
        const error = await appended.catch((thrown: unknown) => thrown);
        expect(error).toBeInstanceOf(ConcurrencyError);
        expect(error).toMatchObject({
          code: "concurrency_conflict",
          data: { stream: "s", expectedVersion: expected, version: had },
        });
        const tried = await stream.tryAppend([Opened()], { expectedVersion: expected });
        expect(tried).toEqual({ ok: false, code: "concurrency_conflict", version: had });
        expect(await stream.head()).toBe(had);
      }
    });

    test("of 100 that create a stream, one does, and its event is the one that is there", async () => {
      const [one, two] = [await place.open(), await place.open()];
      const streams = range(8).map((n) => `new-${n}`);
      const created = await Promise.all(
        range(100).flatMap((n) =>
          streams.map((id) =>
            (n % 2 ? one : two).stream(id).tryAppend([Deposited({ amount: n })], { expectedVersion: 0 }),
          ),
        ),
      );
      for (const [i, id] of streams.entries()) {
        const tried = created.filter((_, n) => n % streams.length === i);
        const won = tried.flatMap((one) => (one.ok ? one.ids : []));
        expect(won.length).toBe(1);
        expect((await all(one.stream(id).read())).map((stored) => stored.id)).toEqual(won);
        // All others learn what is there.
        expect(new Set(tried.map(({ version }) => version))).toEqual(new Set([1]));
      }
    });

    test("of 32 writers that each append where they have read, every version has one winner, and none is missing", async () => {
      const [one, two] = [await place.open(), await place.open()];
      const won: { readonly version: number; readonly id: string | undefined; readonly by: number }[] = [];
      const writer = async (n: number) => {
        const stream = (n % 2 ? one : two).stream("hot");
        let expectedVersion = await stream.head();
        for (let wins = 0; wins < 4; ) {
          const tried = await stream.tryAppend([Deposited({ amount: n })], { expectedVersion });
          if (tried.ok) {
            expect(tried.version).toBe(expectedVersion + 1);
            won.push({ version: tried.version, id: tried.ids[0], by: n });
            wins += 1;
          } else expect(tried.version).not.toBe(expectedVersion);
          expectedVersion = tried.version;
        }
      };
      await Promise.all(range(32).map(writer));
      const acknowledged = won.toSorted((a, b) => a.version - b.version);
      expect(acknowledged.map(({ version }) => version)).toEqual(range(128).map((n) => n + 1));
      // Each acknowledged append is there once, where it was said to be, and nothing else is.
      const stored = await all(one.stream("hot").read({ events: [Deposited] }));
      expect(stored.map(({ version, id, data }) => ({ version, id, by: data.amount }))).toEqual(acknowledged);
    });

    test("events, the expectation and everything else of a decision happen together or not at all", async () => {
      const pawl = await place.open();
      const sum = pawl.slot("sum", { initial: 0 });
      const add = (expectedVersion: number) =>
        pawl.transact((tx) => {
          tx.slot(sum).update((n) => n + 1);
          tx.stream("s").append([Opened()], { expectedVersion });
          return [tx.stream("s").head, tx.stream("other").tryAppend([Opened()], { expectedVersion: 7 }).ok];
        });
      expect(await add(0)).toEqual([1, false]);
      expect(await codeOf(add(0))).toBe("concurrency_conflict");
      expect([(await sum.get()).value, await pawl.stream("s").head(), await pawl.stream("other").head()]).toEqual([
        1, 1, 0,
      ]);
    });

    test("nothing, and ten thousand", async () => {
      const pawl = await place.open();
      expect(await pawl.stream("s").append([])).toEqual({ stream: "s", version: 0, ids: [] });
      expect((await pawl.stream("s").append(deposits(10_000))).version).toBe(10_000);
      expect(await codeOf(pawl.stream("s").append(deposits(10_001)))).toBe("invalid_argument");
      const amounts = (await all(pawl.stream("s").read({ events: [Deposited] }))).map(({ data }) => data.amount);
      expect(amounts).toEqual(range(10_000).map((n) => n + 1));
    });
  });

  describe("read", () => {
    test.each([
      { how: "forwards", options: {}, from: 1, to: 1200 },
      { how: "from a version", options: { from: 1100 }, from: 1100, to: 1200 },
      { how: "from after the end", options: { from: 1201 }, from: 1, to: 0 },
      { how: "backwards", options: { backwards: true }, from: 1200, to: 1 },
      { how: "backwards from a version", options: { backwards: true, from: 700 }, from: 700, to: 1 },
      { how: "backwards from after the end", options: { backwards: true, from: 9999 }, from: 1200, to: 1 },
    ])("$how, over pages", async ({ options, from, to }) => {
      const pawl = await place.open();
      await pawl.stream("s").append(deposits(1200));
      const versions = (await all(pawl.stream("s").read(options))).map(({ version }) => version);
      const expected =
        from <= to ? range(to - from + 1).map((n) => from + n) : range(from - to + 1).map((n) => from - n);
      expect(versions).toEqual(from === 1 && to === 0 ? [] : expected);
    });

    test("only some types of events, which have their types", async () => {
      const pawl = await place.open();
      await pawl
        .stream("s")
        .append([Opened(), Deposited({ amount: 3 }), Withdrawn({ amount: 1 }), Deposited({ amount: 4 })]);
      const sum = (await all(pawl.stream("s").read({ events: [Deposited] }))).reduce(
        (n, { data }) => n + data.amount,
        0,
      );
      expect(sum).toBe(7);
      const names = (await all(pawl.stream("s").read({ events: [Opened, Withdrawn] }))).map(brief);
      expect(names).toEqual(["s 1 Opened", "s 3 Withdrawn"]);
    });

    test("an event that was stored in an older shape is read in the newest one, and one of a newer shape is refused", async () => {
      const pawl = await place.open();
      const first = event<{ cents: number }>("Paid");
      const second = event<{ amount: number }>("Paid", {
        shape: 2,
        upcast: { 1: (old: { cents: number }) => ({ amount: old.cents / 100 }) },
      });
      await pawl.stream("s").append([first({ cents: 250 }), second({ amount: 3 })]);
      const amounts = (await all(pawl.stream("s").read({ events: [second] }))).map(({ data, shape }) => [
        data.amount,
        shape,
      ]);
      expect(amounts).toEqual([
        [2.5, 2],
        [3, 2],
      ]);
      // As it is stored, where no type was given.
      expect((await all(pawl.stream("s").read())).map(({ data }) => data)).toEqual([{ cents: 250 }, { amount: 3 }]);
      expect(await codeOf(all(pawl.stream("s").read({ events: [first] })))).toBe("event_shape_unknown");
    });
  });

  describe("all streams", () => {
    test("are read in one order, from where the last reading ended", async () => {
      const [one, two] = [await place.open(), await place.open()];
      for (const n of range(3)) await (n % 2 ? one : two).stream(`s${n}`).append([Opened(), Deposited({ amount: n })]);
      const reading = one.events.read();
      const before = await all(reading);
      expect(before.map(brief)).toEqual(range(3).flatMap((n) => [`s${n} 1 Opened`, `s${n} 2 Deposited`]));
      await two.stream("s1").append([Withdrawn({ amount: 1 })]);
      expect((await all(one.events.read({ after: reading.cursor }))).map(brief)).toEqual(["s1 3 Withdrawn"]);
      // And from any event.
      expect((await all(two.events.read({ after: before[4]?.cursor }))).map(brief)).toEqual([
        "s2 2 Deposited",
        "s1 3 Withdrawn",
      ]);
    });

    test("some of them: by type, prefix, correlation and time", async () => {
      const pawl = await place.open();
      await pawl.stream("order-1").append([Opened(), Deposited({ amount: 1 })], { correlationId: "a" });
      const [first] = await all(pawl.stream("order-1").read());
      await pawl.stream("order_1").append([Opened()], { correlationId: "b" });
      await pawl.stream("orders").append([Withdrawn({ amount: 2 })], { correlationId: "a" });
      const read = async (options: Parameters<typeof pawl.events.read>[0]) =>
        (await all(pawl.events.read(options))).map(brief);
      expect(await read({ events: [Deposited, Withdrawn] })).toEqual(["order-1 2 Deposited", "orders 1 Withdrawn"]);
      expect(await read({ prefix: "order-" })).toEqual(["order-1 1 Opened", "order-1 2 Deposited"]);
      expect(await read({ prefix: "order_" })).toEqual(["order_1 1 Opened"]);
      expect(await read({ correlationId: "a", prefix: "orders" })).toEqual(["orders 1 Withdrawn"]);
      expect((await read({ since: first?.at })).length).toBe(4);
      expect(await read({ until: first?.at })).toEqual([]);
    });

    test("an order that no later commit changes: a reader that follows many writers misses nothing, and sees each stream in order", async () => {
      const [one, two, reader] = [await place.open(), await place.open(), await place.open()];
      const writing = Promise.all(
        range(8).map(async (n) => {
          for (const _ of range(25)) {
            const writer = n % 2 ? one : two;
            await writer.transact((tx) => {
              tx.stream(`a${n}`).append([Opened()]);
              tx.stream("shared").append([Deposited({ amount: n })]);
            });
          }
        }),
      );
      let isDone = false;
      void writing.then(() => {
        isDone = true;
      });
      const seen: StreamEvent[] = [];
      let after = "0";
      for (let isLast = false; !isLast; ) {
        isLast = isDone;
        // The store in memory answers without a turn of the event loop, in which the writers have their turn.
        await new Promise(setImmediate);
        const reading = reader.events.read({ after });
        seen.push(...(await all(reading)));
        after = reading.cursor;
      }
      await writing;
      expect(seen.length).toBe(400);
      const versions = Map.groupBy(seen, ({ stream }) => stream);
      for (const events of versions.values())
        expect(events.map(({ version }) => version)).toEqual(events.map((_, i) => i + 1));
    });

    test("a cursor that is none is refused, and one ahead of the store is noticed", async () => {
      const pawl = await place.open();
      for (const after of ["", "x", "-1", "1.5", " 1", "99999999999999999", 5 as unknown as string])
        expect(() => pawl.events.read({ after })).toThrow("must be a cursor");
      expect(await codeOf(all(pawl.events.read({ after: "1000000" })))).toBe("cursor_ahead");
    });
  });
});

onStores(["PostgreSQL"], (place) => {
  test("transactions that commit in the opposite order of their appends: a reader in between skips nothing (G12)", async () => {
    const [one, two, reader] = [await place.open(), await place.open(), await place.open()];
    const appended = Promise.withResolvers<void>();
    const proceed = Promise.withResolvers<void>();
    const slow = one.transact.sql(async (_, tx) => {
      await tx((inner) => inner.stream("slow").append([Opened()]));
      appended.resolve();
      await proceed.promise;
    });
    await appended.promise;
    await two.stream("fast").append([Opened()]);
    const first = reader.events.read();
    const early = (await all(first)).map(brief);
    proceed.resolve();
    await slow;
    const late = (await all(reader.events.read({ after: first.cursor }))).map(brief);
    // The one that was committed first waits for the one that was appended before it.
    expect([...early, ...late]).toEqual(["slow 1 Opened", "fast 1 Opened"]);
  });
});
