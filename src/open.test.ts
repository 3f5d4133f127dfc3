/**
 * Goal: `open` takes what makes sense, refuses the rest before it makes any file, and gives a handle that closes.
 * Method: a table of refusals, each with a look at the folder; then the handle's own laws on both stores.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { afterAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { codeOf, temporaryFolder } from "../test/kernel/kit.ts";
import { jsonCodec } from "./kernel/codec/json.ts";
import { transformed } from "./kernel/codec/transform.ts";
import { type OpenOptions, open } from "./open.ts";
import type { Pawl } from "./pawl.ts";
import { MemoryDatabase } from "./stores/memory/memory.ts";
import { workflow } from "./workflow/definitions/definition.ts";
import { RunWorker } from "./workflow/execution/worker.ts";

const folder = temporaryFolder();
afterAll(() => folder.remove());
const files = () => readdirSync(folder.file("."));

describe("refusals", () => {
  const path = () => folder.file("refused.db");
  const refused: [string, () => OpenOptions, string][] = [
    ["an empty path", () => ({ store: "" }), "invalid_argument"],
    ["SQLite's own name for memory", () => ({ store: ":memory:" }), "invalid_argument"],
    ["a database that this release does not know", () => ({ store: "redis://localhost" }), "invalid_argument"],
    ["a NUL in the path", () => ({ store: `${path()}\0.db` }), "invalid_argument"],
    ["an empty namespace", () => ({ store: path(), namespace: "" }), "invalid_id"],
    ["a namespace with a line feed", () => ({ store: path(), namespace: "a\nb" }), "invalid_id"],
    ["a namespace of 257 bytes", () => ({ store: path(), namespace: "a".repeat(257) }), "invalid_id"],
    ["patience that is no number", () => ({ store: path(), patience: Number.NaN }), "invalid_duration"],
    ["negative patience", () => ({ store: path(), patience: -5 }), "invalid_duration"],
    ["endless patience", () => ({ store: path(), patience: Number.POSITIVE_INFINITY }), "invalid_duration"],
    ["patience without a unit", () => ({ store: path(), patience: "5" }), "invalid_duration"],
    ["values of no bytes", () => ({ store: path(), maxValueBytes: 0 }), "invalid_argument"],
    ["values of -1 bytes", () => ({ store: path(), maxValueBytes: -1 }), "invalid_argument"],
    ["values of 1.5 bytes", () => ({ store: path(), maxValueBytes: 1.5 }), "invalid_argument"],
    ["values of any size", () => ({ store: path(), maxValueBytes: Number.POSITIVE_INFINITY }), "invalid_argument"],
    ["a durability nobody knows", () => ({ store: path(), durability: "none" as "full" }), "invalid_argument"],
    ["a folder that is not there", () => ({ store: folder.file("none/pawl.db") }), "store_unreachable"],
    ["an in-memory file by its URI", () => ({ store: "file:x?mode=memory" }), "invalid_argument"],
  ];
  test.each(refused)("%s is refused, and no file is made", async (_, options, code) => {
    const before = files();
    expect(await codeOf(open(options()))).toBe(code);
    expect(files()).toEqual(before);
    expect(existsSync("file:x?mode=memory")).toBe(false);
  });

  test.each(
    refused.filter(
      ([, options]) => "namespace" in options() || "maxValueBytes" in options() || "patience" in options(),
    ),
  )("%s is refused for memory, too", async (_, options, code) => {
    expect(await codeOf(open({ ...options(), store: "memory:" }))).toBe(code);
  });

  test("a refusal does not repeat a password", async () => {
    const refusal = await open("mysql://ann:hunter2@localhost/app").catch((error: unknown) => error);
    expect(String(refusal)).toContain("mysql");
    expect(JSON.stringify(refusal) + String(refusal)).not.toContain("hunter2");
  });

  test("a file that is no database is refused and left as it was", async () => {
    const file = folder.file("letter.txt");
    writeFileSync(file, "Dear Ann, this is not a database. ".repeat(100));
    const before = readFileSync(file);
    expect(await codeOf(open(file))).toBe("store_corrupt");
    expect(readFileSync(file)).toEqual(before);
  });

  test("a folder is refused", async () => {
    mkdirSync(folder.file("folder.db"));
    expect(await codeOf(open(folder.file("folder.db")))).toMatch(/^store_/);
  });
});

const stores: [string, () => string][] = [
  ["memory", () => "memory:"],
  ["SQLite", () => folder.file(`open-${Math.random()}.db`)],
];
describe.each(stores)("on %s", (_, place) => {
  test("closing lets what is under way finish, refuses what comes after, and may be repeated", async () => {
    const pawl = await open({ store: place(), durability: "process" });
    const slot = pawl.slot<number>("a", { initial: 0 });
    const calls = Array.from({ length: 20 }, () => slot.update((n) => n + 1));
    const closing = pawl.close();
    expect((await Promise.all(calls)).at(-1)).toMatchObject({ value: 20 });
    await closing;
    await pawl.close();
    const after = [
      slot.get(),
      slot.set(1),
      slot.delete(),
      pawl.slots.list(),
      pawl.transact(() => 1),
      slot.watch().next(),
    ];
    expect(await Promise.all(after.map(codeOf))).toEqual(Array.from({ length: 6 }, () => "closed"));
  });

  test("closing again while it is under way is the same closing", async () => {
    const pawl = await open({ store: place(), durability: "process" });
    const stuck = workflow("stuck", (ctx) => ctx.step("hang", () => new Promise(() => {})));
    const { stop } = RunWorker.prototype;
    const stopped = vi.spyOn(RunWorker.prototype, "stop").mockImplementation(function (this: RunWorker) {
      return stop.call(this, 1);
    });
    onTestFinished(() => stopped.mockRestore());
    pawl.work([stuck]);
    await pawl.start(stuck);
    const closing = pawl.close();
    expect(pawl.close()).toBe(closing);
    await closing;
    expect(pawl.close()).toBe(closing);
    expect(stopped).toHaveBeenCalledTimes(1);
  });

  test("`await using` closes", async () => {
    let left: Pawl | undefined;
    {
      await using pawl = await open({ store: place(), durability: "process" });
      left = pawl;
      await pawl.slot("a").set(1);
    }
    expect(await codeOf(left.slot("a").get())).toBe("closed");
  });

  test("a transaction answers what it returns and draws from its tape", async () => {
    await using pawl = await open({ store: place(), durability: "process" });
    const before = Date.now();
    const [at, luck, id, again] = await pawl.transact((tx) => [tx.nowMs, tx.random(), tx.uuid(), tx.uuid()]);
    expect(at).toBeGreaterThanOrEqual(before);
    expect(at).toBeLessThanOrEqual(Date.now());
    expect(luck).toBeLessThan(1);
    expect(id).not.toBe(again);
  });

  test("a transaction that is async is refused, also without types", async () => {
    await using pawl = await open({ store: place(), durability: "process" });
    const slot = pawl.slot<number>("a");
    const refused = pawl.transact((async (tx: { slot(of: typeof slot): { set(n: number): void } }) => {
      tx.slot(slot).set(1);
    }) as never);
    expect(await codeOf(refused)).toBe("decision_async");
    expect(await slot.get()).toEqual({ value: undefined, version: 0 });
  });

  test("naming what it touches saves a run and changes nothing else", async () => {
    await using pawl = await open({ store: place(), durability: "process", checkPurity: false });
    const one = pawl.slot<number>("one", { initial: 1 });
    const two = pawl.slot<string>("two");
    let runs = 0;
    const decide = (tx: Parameters<Parameters<Pawl["transact"]>[0]>[0]) => {
      runs += 1;
      return [tx.slot(one).get().value, tx.slot(two).get().version];
    };
    expect(await pawl.transact(decide)).toEqual([1, 0]);
    expect(runs).toBe(3);
    expect(await pawl.transact(decide, { touches: [one, two] })).toEqual([1, 0]);
    expect(runs).toBe(4);
  });

  test("the limit on values and the codec are as given", async () => {
    const codec = transformed(jsonCodec, {
      name: "backwards",
      seal: (text) => [...text].reverse().join(""),
      open: (text) => [...text].reverse().join(""),
    });
    await using pawl = await open({ store: place(), durability: "process", codec, maxValueBytes: 20 });
    await pawl.slot("a").set({ n: 1 });
    expect(await pawl.slot("a").get()).toEqual({ value: { n: 1 }, version: 1 });
    const [row] = await pawl.kernel.read([pawl.slot("a").touches]);
    expect(row?.value).toBe('~backwards:}1:"n"{');
    // Sealed text counts, so a few characters less than the limit fit.
    expect(await codeOf(pawl.slot("a").set("x".repeat(8)))).toBe("value_too_large");
  });
});

describe("on a store of one's own", () => {
  test("everything works as on Pawl's", async () => {
    const store = new MemoryDatabase(() => 1_000).connect("mine");
    await using pawl = await open({ store });
    await pawl.slot<number>("n", { initial: 0 }).update((n) => n + 1);
    expect(await store.read([{ space: "slot", key: "n" }])).toMatchObject([{ version: 1, value: "1" }]);
    expect(await pawl.transact((tx) => tx.nowMs)).toBe(1_000);
  });
});

describe("checking purity", () => {
  const impure = async (options: OpenOptions) => {
    await using pawl = await open({ ...options, durability: "process" });
    return codeOf(pawl.slot<number>("a").update(() => Date.now() * 0));
  };

  test("is on for memory, off for a file, and as one says", async () => {
    expect(await impure({ store: "memory:" })).toBe("decision_impure");
    expect(await impure({ store: "memory:", checkPurity: false })).toMatchObject({ notRefused: { value: 0 } });
    expect(await impure({ store: folder.file("pure-1.db") })).toMatchObject({ notRefused: { value: 0 } });
    expect(await impure({ store: folder.file("pure-2.db"), checkPurity: true })).toBe("decision_impure");
  });
});

describe("where things are", () => {
  test("every `memory:` is a store of its own, and a file is the same for all", async () => {
    await using one = await open("memory:");
    await using two = await open("memory:");
    await one.slot("a").set(1);
    expect(await two.slot("a").get()).toMatchObject({ version: 0 });
    const file = folder.file("same.db");
    await using three = await open(file);
    await three.slot("a").set(1);
    await using four = await open({ store: file });
    expect(await four.slot("a").get()).toMatchObject({ version: 1 });
  });

  test("what was stored is there after closing and opening again", async () => {
    const file = folder.file("again.db");
    {
      await using pawl = await open(file);
      await pawl.slot("a").set({ kept: true });
    }
    await using pawl = await open(file);
    expect(await pawl.slot("a").get()).toEqual({ value: { kept: true }, version: 1 });
    expect(await pawl.slot("a").set(2)).toEqual({ version: 2 });
  });

  test("names that only look odd are files", async () => {
    for (const name of ["a b.db", "%2F.db", "ünïcode 😀.db", "'; drop.db"]) {
      await using pawl = await open(folder.file(name), { durability: "process" });
      await pawl.slot("a").set(name);
      expect(files()).toContain(name);
    }
  });
});
