/**
 * Goal: a slot holds one value, its versions strictly rise, and whoever expects a version writes on that one or not at all.
 * Method: every law on both stores, through the public handle; a second handle on the same file stands for another process.
 */

import { afterAll, describe, expect, test } from "vitest";
import { bench, codeOf, drained, temporaryFolder, unhandledDuring } from "../../test/kernel/kit.ts";
import { DELETED_KEPT_MS } from "../kernel/contract.ts";
import { type OpenOptions, open } from "../open.ts";
import { Pawl } from "../pawl.ts";
import type { SlotPage, Versioned } from "./slot.ts";

const folder = temporaryFolder();
afterAll(() => folder.remove());
let files = 0;

const stores = [
  ["memory", () => "memory:"],
  [
    "SQLite",
    () => {
      files += 1;
      return folder.file(`slots-${files}.db`);
    },
  ],
] as const;

for (const [name, place] of stores)
  describe(`on ${name}`, () => {
    /** A store of its own for one law. */
    const fresh = (options: Omit<OpenOptions, "store"> = {}): Promise<Pawl> =>
      open({ store: place(), durability: "process", ...options });

    describe("one slot", () => {
      test("holds nothing at version 0 until something is stored", async () => {
        await using pawl = await fresh();
        expect(await pawl.slot("a").get()).toEqual({ value: undefined, version: 0 });
        expect(await pawl.slot("a", { initial: 5 }).get()).toEqual({ value: 5, version: 0 });
        expect(await pawl.slot("a", { initial: null }).get()).toEqual({ value: null, version: 0 });
        expect((await pawl.slots.list()).slots).toEqual([]);
      });

      test("holds what was set, at versions that rise one by one", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<unknown>("a");
        const values = [1, "two", { three: [3] }, null, undefined, new Map([["x", new Date(5)]])];
        for (const [i, value] of values.entries()) {
          expect(await slot.set(value)).toEqual({ version: i + 1 });
          expect(await slot.get()).toEqual({ value, version: i + 1 });
        }
      });

      test("is one slot for every handle of its name, and another for every other name", async () => {
        await using pawl = await fresh();
        const names = ["a", "A", " a", "a ", "a/b", "a%2Fb", "..", "\u00e9", "e\u0301"];
        for (const one of names) await pawl.slot<string>(one).set(one);
        for (const one of names) expect(await pawl.slot(one).get()).toEqual({ value: one, version: 1 });
      });

      test("gives out frozen values", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<{ list: number[] }>("a");
        await slot.set({ list: [1] });
        const { value } = await slot.get();
        expect(() => value?.list.push(2)).toThrow(TypeError);
        await expect(
          slot.update((now) => {
            now?.list.push(2);
            return { list: [] };
          }),
        ).rejects.toThrow(TypeError);
        expect(await slot.get()).toEqual({ value: { list: [1] }, version: 1 });
      });

      test("its initial value, too, cannot be changed by those who get it", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<number[]>("a", { initial: [] });
        const spoil = (value: number[]) => {
          try {
            value.push(1);
          } catch (error) {
            if (!(error instanceof TypeError)) throw error;
          }
        };
        spoil((await slot.get()).value);
        expect((await slot.get()).value).toEqual([]);
        await pawl.transact((tx) => spoil(tx.slot(slot).get().value));
        expect((await slot.get()).value).toEqual([]);
      });
    });

    describe("expecting a version", () => {
      test("a write is accepted at that version only, and a refusal says the current one", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<string>("a");
        await slot.set("one", { expectedVersion: 0 });
        await slot.set("two", { expectedVersion: 1 });
        for (const expectedVersion of [0, 1, 3, 2 ** 53 - 1]) {
          const data = { name: 'slot "a"', expected: expectedVersion, current: 2 };
          await expect(slot.set("no", { expectedVersion })).rejects.toMatchObject({ code: "version_conflict", data });
          await expect(slot.delete({ expectedVersion })).rejects.toMatchObject({ code: "version_conflict", data });
          const refusal = { ok: false, code: "version_conflict", current: 2 };
          expect(await slot.trySet("no", { expectedVersion })).toEqual(refusal);
        }
        expect(await slot.get()).toEqual({ value: "two", version: 2 });
        expect(await slot.trySet("three", { expectedVersion: 2 })).toEqual({ ok: true, version: 3 });
        expect(await slot.delete({ expectedVersion: 3 })).toEqual({ deleted: true });
      });

      test("of many who expect the same, one wins", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<number>("a");
        for (const expectedVersion of [0, 1]) {
          const answers = await Promise.all(Array.from({ length: 32 }, (_, i) => slot.trySet(i, { expectedVersion })));
          const winners = answers.flatMap((answer, i) => (answer.ok ? [i] : []));
          expect(winners.length).toBe(1);
          expect(await slot.get()).toEqual({ value: winners[0], version: expectedVersion + 1 });
        }
      });

      test("an old version never fits again, also after deletion and making it again", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<string>("a");
        const { version: old } = await slot.set("A");
        await slot.delete();
        expect(await slot.get()).toEqual({ value: undefined, version: 0 });
        const { version: anew } = await slot.set("A", { expectedVersion: 0 });
        expect(anew).toBeGreaterThan(old + 1);
        expect(await slot.trySet("B", { expectedVersion: old })).toEqual({
          ok: false,
          code: "version_conflict",
          current: anew,
        });
        expect(await slot.get()).toEqual({ value: "A", version: anew });
      });

      test("the version of a deletion fits nothing, and 0 fits what was deleted", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<string>("a");
        await slot.set("A");
        await slot.delete();
        expect(await slot.trySet("B", { expectedVersion: 2 })).toMatchObject({ ok: false, current: 0 });
        expect(await slot.trySet("B", { expectedVersion: 0 })).toEqual({ ok: true, version: 3 });
      });

      test("undefined is the same as not to expect anything", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<string>("a");
        await slot.set("one", { expectedVersion: undefined });
        await slot.set("two", {});
        expect(await slot.delete({ expectedVersion: undefined })).toEqual({ deleted: true });
      });
    });

    describe("updating", () => {
      test("from many sides at once loses nothing", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<number>("a", { initial: 0 });
        const answers = await Promise.all(Array.from({ length: 300 }, () => slot.update((n) => n + 1)));
        expect(answers.map(({ value }) => value).sort((x, y) => x - y)).toEqual(
          Array.from({ length: 300 }, (_, i) => i + 1),
        );
        expect(await slot.get()).toEqual({ value: 300, version: 300 });
      });

      test("starts from the initial value, also after a deletion", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<number>("a", { initial: 10 });
        expect(await slot.update((n) => n + 1)).toEqual({ value: 11, version: 1 });
        await slot.delete();
        expect(await slot.update((n) => n + 1)).toEqual({ value: 11, version: 3 });
        expect(await pawl.slot<number>("b").update((n) => (n === undefined ? 1 : 2))).toEqual({ value: 1, version: 1 });
      });

      test("a function that throws changes nothing", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<number>("a", { initial: 0 });
        const refused = slot.update(() => {
          throw new RangeError("no");
        });
        await expect(refused).rejects.toThrow(RangeError);
        expect(await slot.get()).toEqual({ value: 0, version: 0 });
      });

      test("what it answers has passed through the codec", async () => {
        await using pawl = await fresh();
        const mine = { list: [1] };
        const { value } = await pawl.slot<{ list: number[] }>("a").update(() => mine);
        expect(value).toEqual(mine);
        expect(value).not.toBe(mine);
        expect(Object.isFrozen(value)).toBe(true);
      });

      const asynchronous: [string, () => Promise<number>][] = [
        ["an async function", async () => 1],
        ["one that rejects", () => Promise.reject(new Error("rejected"))],
      ];
      test.each(asynchronous)("by %s is refused and ends no process", async (_, change) => {
        await using pawl = await fresh();
        const slot = pawl.slot<unknown>("a");
        const unhandled = await unhandledDuring(async () => {
          expect(await codeOf(slot.update(change as () => never))).toMatch(/^(decision_async|invalid_value)$/);
        });
        expect(await slot.get()).toMatchObject({ version: 0 });
        expect(unhandled).toEqual([]);
      });
    });

    describe("deleting", () => {
      test("says whether there was something", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<number>("a");
        expect(await slot.delete()).toEqual({ deleted: false });
        expect(await slot.delete({ expectedVersion: 0 })).toEqual({ deleted: false });
        await slot.set(1);
        expect(await slot.delete()).toEqual({ deleted: true });
        expect(await slot.delete()).toEqual({ deleted: false });
        expect(await slot.get()).toEqual({ value: undefined, version: 0 });
      });

      test("a slot that holds undefined is there to be deleted", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<undefined>("a");
        await slot.set(undefined);
        expect((await pawl.slots.list()).slots.length).toBe(1);
        expect(await slot.delete()).toEqual({ deleted: true });
      });
    });

    describe("inside a transaction", () => {
      test("several slots change at once, or none does", async () => {
        await using pawl = await fresh();
        const from = pawl.slot<number>("from", { initial: 0 });
        const to = pawl.slot<number>("to", { initial: 0 });
        await from.set(10);
        const move = (amount: number) =>
          pawl.transact((tx) => {
            tx.slot(to).update((n) => n + amount);
            const left = tx.slot(from).update((n) => n - amount).value;
            if (left < 0) throw new RangeError("not enough");
            return left;
          });
        expect(await move(4)).toBe(6);
        await expect(move(7)).rejects.toThrow(RangeError);
        expect([await from.get(), await to.get()]).toMatchObject([{ value: 6 }, { value: 4 }]);
      });

      test("the verbs see what was written before, and a refusal that is caught has written nothing", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<string>("a", { initial: "none" });
        const seen = await pawl.transact(
          (tx) => {
            const a = tx.slot(slot);
            const log: unknown[] = [a.get()];
            log.push(
              a.set("one"),
              a.get(),
              a.trySet("no", { expectedVersion: 7 }),
              a.trySet("two", { expectedVersion: 1 }),
            );
            try {
              a.set("no", { expectedVersion: 0 });
            } catch (error) {
              log.push((error as { code: string }).code);
            }
            log.push(a.delete(), a.get(), a.delete());
            return log;
          },
          { touches: [slot] },
        );
        expect(seen).toEqual([
          { value: "none", version: 0 },
          { version: 1 },
          { value: "one", version: 1 },
          { ok: false, code: "version_conflict", current: 1 },
          { ok: true, version: 1 },
          "version_conflict",
          { deleted: true },
          { value: "none", version: 0 },
          { deleted: false },
        ]);
        expect(await slot.get()).toEqual({ value: "none", version: 0 });
      });
    });

    describe("listing", () => {
      test("gives the slots that hold something, in the order of their bytes", async () => {
        await using pawl = await fresh();
        const inOrder = [
          "%",
          "A",
          "_",
          "a",
          "a ",
          "a!",
          "a/b",
          "aa",
          "b",
          "\u00e9",
          "\ud7ff",
          "\ue000",
          "\uffff",
          "😀",
          "\u{10ffff}",
        ];
        for (const one of [...inOrder].reverse()) await pawl.slot(one).set({ named: one });
        await pawl.slot("gone").set(1);
        await pawl.slot("gone").delete();
        const { slots, next } = await pawl.slots.list();
        expect(slots.map((slot) => slot.name)).toEqual(inOrder);
        expect(slots.every(({ name, value }) => (value as { named: string }).named === name)).toBe(true);
        expect(next).toBeNull();
      });

      const names = [
        "",
        "%",
        "%a",
        "_",
        "a",
        "a%",
        "a/",
        "a/b",
        "a/b/c",
        "a0",
        "ab",
        "b",
        "\\",
        "'",
        "\u{10ffff}",
        "\u{10ffff}\u{10ffff}",
        "\u{10ffff}".repeat(64),
      ];
      test("by prefix takes the prefix literally", async () => {
        await using pawl = await fresh();
        for (const one of names.slice(1)) await pawl.slot(one).set(1);
        for (const prefix of names) {
          const { slots } = await pawl.slots.list({ prefix });
          expect(slots.map((slot) => slot.name).sort(), prefix).toEqual(
            names
              .slice(1)
              .filter((one) => one.startsWith(prefix))
              .sort(),
          );
        }
      });

      test("in pages gives each once, for every size of page and every prefix", async () => {
        await using pawl = await fresh();
        for (const one of names.slice(1)) await pawl.slot(one).set(1);
        for (const prefix of ["", "a", "a/", "\u{10ffff}", "none"]) {
          const whole = (await pawl.slots.list({ prefix })).slots.map((slot) => slot.name);
          for (const limit of [1, 2, 3, whole.length, whole.length + 1].filter((size) => size > 0)) {
            const found: string[] = [];
            let after: string | null = null;
            do {
              const page: SlotPage = await pawl.slots.list({ prefix, limit, after });
              expect(page.slots.length).toBeLessThanOrEqual(limit);
              if (page.next !== null) expect(page.slots.length).toBe(limit);
              found.push(...page.slots.map((slot) => slot.name));
              after = page.next;
            } while (after !== null);
            expect(found).toEqual(whole);
          }
        }
      });

      test("goes on after a name that is not there, or not of the prefix", async () => {
        await using pawl = await fresh();
        for (const one of ["b1", "b3", "c"]) await pawl.slot(one).set(1);
        const list = async (prefix: string, after: string) =>
          (await pawl.slots.list({ prefix, after })).slots.map((slot) => slot.name);
        expect(await list("b", "b2")).toEqual(["b3"]);
        expect(await list("b", "a")).toEqual(["b1", "b3"]);
        expect(await list("b", "b")).toEqual(["b1", "b3"]);
        expect(await list("b", "b3")).toEqual([]);
        expect(await list("b", "z")).toEqual([]);
        expect(await list("", "b3")).toEqual(["c"]);
        expect(await list("b1", "b1")).toEqual([]);
      });

      test("has 100 on a page unless said otherwise, and at most 1000", async () => {
        await using pawl = await fresh();
        const all = Array.from({ length: 1_001 }, (_, i) => pawl.slot<number>(`k${String(i).padStart(4, "0")}`));
        await Promise.all(all.map((slot) => slot.set(1)));
        expect((await pawl.slots.list()).slots.length).toBe(100);
        const page = await pawl.slots.list({ limit: 1_000 });
        expect([page.slots.length, page.next]).toEqual([1_000, "k0999"]);
        expect(await codeOf(pawl.slots.list({ limit: 1_001 }))).toBe("invalid_argument");
      });
    });

    describe("watching", () => {
      test("gives the value now, and then each change of this process", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<string>("a", { initial: "none" });
        const seen: Versioned<string>[] = [];
        const stop = new AbortController();
        const watching = (async () => {
          for await (const now of slot.watch({ abortSignal: stop.signal })) seen.push(now);
        })();
        const until = async (count: number) => {
          for (let i = 0; i < 400 && seen.length < count; i++) await drained();
          expect(seen.length).toBe(count);
        };
        await until(1);
        await pawl.slot<number>("other").set(1);
        await drained();
        await slot.set("one");
        await until(2);
        await slot.delete();
        await until(3);
        await slot.set("two");
        await until(4);
        expect(seen).toEqual([
          { value: "none", version: 0 },
          { value: "one", version: 1 },
          { value: "none", version: 0 },
          { value: "two", version: 3 },
        ]);
        stop.abort();
        await watching;
      });

      test("ends when it is aborted: before it begins, while it waits, and between two values", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<number>("a");
        await slot.set(1);
        const before = slot.watch({ abortSignal: AbortSignal.abort() });
        expect(await before.next()).toEqual({ done: true, value: undefined });

        const stop = new AbortController();
        const waiting = slot.watch({ abortSignal: stop.signal });
        expect(await waiting.next()).toMatchObject({ value: { value: 1, version: 1 } });
        const next = waiting.next();
        await drained();
        stop.abort();
        expect(await next).toEqual({ done: true, value: undefined });
        expect(await waiting.next()).toEqual({ done: true, value: undefined });

        const stopBetween = new AbortController();
        const between = slot.watch({ abortSignal: stopBetween.signal });
        await between.next();
        stopBetween.abort();
        await slot.set(2);
        expect(await between.next()).toEqual({ done: true, value: undefined });
      });

      test("may leave out what was soon replaced, and never the last", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<number>("a", { initial: 0 });
        const versions: number[] = [];
        const adding = (async () => {
          for (let i = 0; i < 50; i++) await slot.update((n) => n + 1);
        })();
        for await (const { value, version } of slot.watch()) {
          versions.push(version);
          if (value === 50) break;
        }
        await adding;
        expect(versions).toEqual([...versions].sort((x, y) => x - y));
        expect(new Set(versions).size).toBe(versions.length);
        expect(versions.at(-1)).toBe(50);
      });

      test("ends soon when the handle is closed", async () => {
        const pawl = await fresh();
        const watch = pawl.slot<number>("a", { initial: 0 }).watch();
        await watch.next();
        const next = watch.next().then(
          ({ done }) => (done === true ? "done" : "went on"),
          (error: { code: string }) => error.code,
        );
        await drained();
        await pawl.close();
        const second = new Promise((resolve) => setTimeout(resolve, 1_000, "still waiting after a second"));
        expect(await Promise.race([next, second])).toMatch(/^(done|closed)$/);
      });

      test("by several at once is each told", async () => {
        await using pawl = await fresh();
        const slot = pawl.slot<number>("a", { initial: 0 });
        const watchers = Array.from({ length: 5 }, () => slot.watch());
        for (const watcher of watchers) expect(await watcher.next()).toMatchObject({ value: { value: 0 } });
        const nexts = watchers.map((watcher) => watcher.next());
        await drained();
        await slot.set(1);
        for (const next of nexts) expect(await next).toMatchObject({ value: { value: 1 } });
        for (const watcher of watchers) await watcher.return?.();
      });
    });
  });

describe("a slot that was deleted long ago and swept up", () => {
  test("is seen by those who watch when it is made again", async () => {
    const { clock, kernel, store } = bench();
    const slot = new Pawl(kernel).slot<string>("a");
    await slot.set("one");
    await slot.set("two");
    await slot.delete();
    const watch = slot.watch();
    expect(await watch.next()).toMatchObject({ value: { version: 0 } });
    await clock.advance(DELETED_KEPT_MS);
    expect(await store.sweep(10)).toBe(1);
    await slot.set("anew");
    const seen = (async () => {
      for await (const { value } of watch) if (value === "anew") return value;
      return "ended";
    })();
    expect(await clock.finish(seen)).toBe("anew");
  });
});

describe("two processes on one SQLite file", () => {
  test("see and refuse each other's writes", async () => {
    const file = folder.file("shared.db");
    await using ann = await open(file, { durability: "process" });
    await using bob = await open(file, { durability: "process" });
    await ann.slot<string>("a").set("ann");
    expect(await bob.slot<string>("a").get()).toEqual({ value: "ann", version: 1 });
    expect(await bob.slot<string>("a").trySet("bob", { expectedVersion: 0 })).toMatchObject({ ok: false, current: 1 });
    const adds = [ann, bob].flatMap((pawl) =>
      Array.from({ length: 50 }, () => pawl.slot<number>("n", { initial: 0 }).update((n) => n + 1)),
    );
    await Promise.all(adds);
    expect(await ann.slot<number>("n").get()).toEqual({ value: 100, version: 100 });
  });

  test("a watch sees the other's commits", async () => {
    const file = folder.file("watched.db");
    await using ann = await open(file, { durability: "process" });
    await using bob = await open(file, { durability: "process" });
    const watch = ann.slot<number>("a", { initial: 0 }).watch();
    expect(await watch.next()).toMatchObject({ value: { version: 0 } });
    for (let i = 1; i <= 5; i++) {
      const next = watch.next();
      await drained();
      await bob.slot<number>("a").set(i);
      expect(await next).toMatchObject({ value: { value: i, version: i } });
    }
    await watch.return?.();
  });

  test("namespaces of one file are apart", async () => {
    const file = folder.file("namespaces.db");
    await using ann = await open(file, { namespace: "ann", durability: "process" });
    await using bob = await open(file, { namespace: "bob", durability: "process" });
    await ann.slot<string>("a").set("secret");
    expect(await bob.slot("a").get()).toEqual({ value: undefined, version: 0 });
    expect((await bob.slots.list()).slots).toEqual([]);
    await bob.slot<string>("a").set("other");
    expect(await ann.slot("a").get()).toEqual({ value: "secret", version: 1 });
  });
});
