/**
 * Goal: functions of the user's that never answer keep no call waiting beyond the patience of the handle, and the call works when they answer again (G34).
 * Method: `subjectKeys` and archives that hang at one of their functions, on the clock of `openTest`, which has the same options as `open`.
 */

import { describe, expect, test } from "vitest";
import { type Archive, type ArchivedEvent, event, FORGOTTEN, projection, type SubjectKeys } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { all, brief, Deposited, deposits } from "./kit.ts";

const Ordered = event<{ readonly customer: string; readonly email: string }, "email">("Ordered", {
  personal: { subject: ({ customer }) => customer, fields: ["email"] },
});
const ring = { actions: { keys: { current: "one", ring: { one: new Uint8Array(32).fill(7) } } } } as const;
const order = Ordered({ customer: "c-1", email: "ann@example.org" });

const never = (): Promise<never> => new Promise(() => {});

/** Keys in memory, which hang at one function as long as they are told to. */
class Keys implements SubjectKeys {
  hanging: keyof SubjectKeys | undefined;
  readonly #keys = new Map<string, Uint8Array | "forgotten">();

  async get(subjects: readonly string[]) {
    if (this.hanging === "get") return never();
    return new Map([...this.#keys].filter(([one]) => subjects.includes(one)));
  }

  async create(subject: string) {
    if (this.hanging === "create") return never();
    const key = new Uint8Array(32).fill(3);
    this.#keys.set(subject, key);
    return key;
  }

  async destroy(subject: string) {
    if (this.hanging === "destroy") return never();
    this.#keys.set(subject, "forgotten");
  }
}

/** An archive in memory, which hangs at one place as long as it is told to. */
class Shelf implements Archive {
  hanging: "first" | "middle" | "end" | "read" | undefined;
  readonly kept: ArchivedEvent[] = [];

  async write(_: string, events: AsyncIterable<ArchivedEvent>) {
    if (this.hanging === "first") return never();
    this.kept.length = 0;
    for await (const one of events) {
      this.kept.push(one);
      if (this.hanging === "middle" && one.version === 2) return never();
    }
    if (this.hanging === "end") return never();
  }

  async *read(_: string, { from, to }: { readonly from: number; readonly to: number }) {
    for (const one of this.kept) {
      if (this.hanging === "read" && one.version === 2) await never();
      if (one.version >= from && one.version <= to) yield one;
    }
  }
}

test("openTest has the keys of personal fields, and an archive", async () => {
  const archive = new Shelf();
  await using pawl = openTest({ ...ring, archive });
  await pawl.stream("s").append([order]);
  await pawl.forget("c-1");
  expect((await all(pawl.stream("s").read({ events: [Ordered] })))[0]?.data.email).toBe(FORGOTTEN);
  await pawl.streams.close("s");
  expect(archive.kept.map(({ version }) => version)).toEqual([1]);
  expect((await all(pawl.stream("s").read())).map(brief)).toEqual(["s 1 Ordered", "s 2 $closed"]);
});

describe("keys that do not come", () => {
  const timeout = (verb: string) => ({
    code: "callback_timeout",
    data: { what: `${verb} of subjectKeys`, timeoutMs: 30_000 },
  });

  test.each(["get", "create"] as const)("an append does not wait for %s beyond its patience", async (verb) => {
    const subjectKeys = new Keys();
    await using pawl = openTest({ ...ring, subjectKeys });
    subjectKeys.hanging = verb;
    await expect(pawl.clock.during(pawl.stream("s").append([order]))).rejects.toMatchObject(timeout(verb));
    subjectKeys.hanging = undefined;
    expect((await pawl.stream("s").append([order])).version).toBe(1);
  });

  test("a reader, a projection and forget do not wait either, and work when the keys are there again", async () => {
    const subjectKeys = new Keys();
    await using pawl = openTest({ ...ring, subjectKeys, mayFail: ["emails"] });
    await pawl.stream("s").append([order]);
    // A reader asks for the key again after a minute.
    await pawl.clock.advance("2 minutes");
    subjectKeys.hanging = "get";
    await expect(pawl.clock.during(all(pawl.stream("s").read()))).rejects.toMatchObject(timeout("get"));
    const emails = projection("emails", { on: [Ordered] }, (_: unknown, e) => ({ email: e.data.email }));
    pawl.work([emails]);
    await pawl.clock.advance("1 minute");
    expect((await pawl.projection(emails).status()).building?.failure?.message).toMatch("get of subjectKeys");
    subjectKeys.hanging = undefined;
    await pawl.clock.advance("2 minutes");
    expect(await pawl.projection(emails).get("s")).toEqual({ email: "ann@example.org" });
    subjectKeys.hanging = "destroy";
    await expect(pawl.clock.during(pawl.forget("c-1"))).rejects.toMatchObject(timeout("destroy"));
    subjectKeys.hanging = undefined;
    await pawl.forget("c-1");
    expect((await all(pawl.stream("s").read({ events: [Ordered] })))[0]?.data.email).toBe(FORGOTTEN);
  });
});

describe("an archive that does not answer", () => {
  test.each(["first", "middle", "end", "read"] as const)(
    "it is given up (%s), nothing is removed, and the call can be repeated",
    async (place) => {
      const archive = new Shelf();
      await using pawl = openTest({ archive });
      await pawl.stream("s").append(deposits(3));
      const given = new Shelf();
      given.hanging = place;
      archive.hanging = place;
      const what = place === "read" ? "read of the archive" : "write of the archive";
      const late = { code: "callback_timeout", data: { what, timeoutMs: 30_000 } };
      await expect(pawl.clock.during(pawl.streams.close("s", { archive: given }))).rejects.toMatchObject(late);
      await expect(pawl.clock.during(pawl.streams.close("s"))).rejects.toMatchObject(late);
      expect((await all(pawl.stream("s").read())).map(({ version }) => version)).toEqual([1, 2, 3, 4]);
      archive.hanging = undefined;
      expect(await pawl.streams.close("s")).toEqual({ version: 4, archived: 3 });
      expect(archive.kept.map(({ version }) => version)).toEqual([1, 2, 3]);
      archive.hanging = "read";
      expect(await codeOf(pawl.clock.during(all(pawl.stream("s").read())))).toBe("callback_timeout");
    },
  );

  test("one that is slow, and takes one event after another, is not given up", async () => {
    const archive = new Shelf();
    await using pawl = openTest();
    await pawl.stream("s").append(deposits(3));
    const slow: Archive = {
      async write(stream, events) {
        async function* slowly() {
          for await (const one of events) {
            await pawl.clock.sleep("20s");
            yield one;
          }
          await pawl.clock.sleep("20s");
        }
        await archive.write(stream, slowly());
      },
    };
    expect(await pawl.clock.during(pawl.streams.close("s", { archive: slow }))).toEqual({ version: 4, archived: 3 });
  });
});

describe("an archive whose reader does not end", () => {
  /** Returns what it was given, and then the last event again and again, or nothing at all. */
  class Endless extends Shelf {
    after: "end" | "repeat" | "hang" = "end";
    asked = 0;
    override async *read(stream: string, range: { readonly from: number; readonly to: number }) {
      let last: ArchivedEvent | undefined;
      for await (last of super.read(stream, range)) yield last;
      if (this.after === "hang") await never();
      for (; this.after === "repeat" && last !== undefined; this.asked++) {
        // Without a bound, nothing else would ever happen in this process.
        if (this.asked > 1_000) throw new Error("it was asked for more and more");
        yield last;
      }
    }
  }

  test.each([
    { after: "repeat", code: "archive_incomplete" },
    { after: "hang", code: "callback_timeout" },
  ] as const)("nothing is removed ($after), and what is archived can be read", async ({ after, code }) => {
    const archive = new Endless();
    await using pawl = openTest({ archive });
    await pawl.stream("s").append(deposits(3));
    archive.after = after;
    expect(await codeOf(pawl.clock.during(pawl.streams.close("s")))).toBe(code);
    expect(archive.asked).toBeLessThan(2);
    expect((await all(pawl.stream("s").read({ from: "kept" }))).map(({ version }) => version)).toEqual([1, 2, 3, 4]);
    archive.after = "end";
    expect(await pawl.streams.close("s")).toEqual({ version: 4, archived: 3 });
    archive.after = after;
    archive.asked = 0;
    expect((await pawl.clock.during(all(pawl.stream("s").read()))).map(({ version }) => version)).toEqual([1, 2, 3, 4]);
    expect(archive.asked).toBe(0);
    const counts = projection("counts", { on: [Deposited] }, (n: number | undefined) => (n ?? 0) + 1);
    pawl.work([counts]);
    await pawl.clock.advance("1s");
    expect(await pawl.projection(counts).get("s")).toBe(3);
  });
});

describe("an archive whose read returns no async iterable", () => {
  test("is refused before anything is written, if it is an async function", async () => {
    await using pawl = openTest();
    await pawl.stream("s").append([Deposited({ amount: 1 })]);
    const archive = { write: async () => {}, read: async () => [] } as unknown as Archive;
    await expect(pawl.streams.close("s", { archive })).rejects.toMatchObject({
      code: "invalid_argument",
      data: { what: "read of the archive" },
    });
    expect(() => openTest({ archive })).toThrow("make it an async generator");
    expect((await pawl.stream("s").append([Deposited({ amount: 2 })])).version).toBe(2);
  });

  test.each([
    ["a promise", () => Promise.resolve([])],
    ["a promise that rejects", () => Promise.reject(new Error("no connection"))],
    ["a list", () => []],
    ["nothing", () => undefined],
  ])("is refused where it returns %s: nothing is removed, and the call can be repeated", async (_, read) => {
    const archive = new Shelf();
    await using pawl = openTest();
    await pawl.stream("s").append([Deposited({ amount: 1 })]);
    const write: Archive["write"] = (stream, events) => archive.write(stream, events);
    const wrong = { write, read } as unknown as Archive;
    const refused = { code: "invalid_argument", data: { what: "what read of the archive returns" } };
    await expect(pawl.streams.close("s", { archive: wrong })).rejects.toMatchObject(refused);
    expect((await all(pawl.stream("s").read())).map(({ version }) => version)).toEqual([1, 2]);
    expect(await pawl.streams.close("s", { archive })).toEqual({ version: 2, archived: 1 });
  });
});
