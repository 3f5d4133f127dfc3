// Goal: mistakes of a newcomer are refused with a clear error, immediately, and do nothing. Method: one test for each mistake that was made
// or is likely with the public API.

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { jsonCodec, type OpenOptions, open, type Pawl, PawlError, type Slot, transformed } from "../../src/index.ts";
import type { Store } from "../../src/kernel/contract.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { simulate } from "../../src/testing/index.ts";

const folder = mkdtempSync(join(tmpdir(), "pawl-misuse-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** What it was refused with: its code and its words. */
async function refusal(act: () => unknown): Promise<string> {
  try {
    await act();
  } catch (error) {
    if (error instanceof PawlError) return `${error.code}: ${error.message}`;
    throw error;
  }
  throw new Error("it was not refused");
}

/** A store of the user's own, without one of the contract's properties. */
const storeWithout = (name: keyof Store): object =>
  Object.defineProperty(new MemoryDatabase(() => 0).connect("default"), name, { value: undefined });

describe("opening", () => {
  // As plain JavaScript would call it.
  const openAnything = open as (what?: unknown, more?: unknown) => Promise<Pawl>;
  const wrong: readonly [string, unknown, RegExp][] = [
    [
      "a URL that is no file's",
      new URL("https://example.com/x.db"),
      /must not be a URL of "https:": give it as a string/,
    ],
    ["a URL of a server", { store: new URL("postgres://localhost/x") }, /must not be a URL of "postgres:"/],
    ["a number", 42, /must be a path, or an object of options/],
    ["null", null, /must be a path, or an object of options/],
    ["a list", ["x.db"], /must be a path, or an object of options/],
    [
      "an option that does not exist",
      { path: "x.db" },
      /must not have "path": there is no such option; the known options are: store, pool, /,
    ],
    ["a variable that is not set", undefined, /what to open must not be undefined: .* write open\(\)/],
    ["a pool that is not there", { pool: undefined }, /the pool must not be undefined: .* write open\(\)/],
    ["a store that is not there", { store: undefined }, /the store must not be undefined: .* write open\(\)/],
    ["a store without methods", { store: {} }, /a store with its methods/],
    ["a store that does not say whether it is remote", { store: storeWithout("isRemote") }, /must have isRemote/],
    ["a store that does not say whether it has one writer", { store: storeWithout("hasOneWriter") }, /hasOneWriter/],
    ["a store that is a number", { store: 5 }, /a store with its methods/],
    ["a codec without methods", { store: "memory:", codec: {} }, /must have the methods encode and decode/],
    ["a codec that is null", { store: "memory:", codec: null }, /must have the methods encode and decode/],
  ];
  test.each(wrong)("%s is refused, and no file is made", async (_, what, words) => {
    const before = readdirSync(".");
    expect(await refusal(() => openAnything(what))).toMatch(words);
    expect(readdirSync(".")).toEqual(before);
  });

  test("undefined is refused with options after it too, and is fine beside a place that is given", async () => {
    expect(await refusal(() => openAnything(undefined, { namespace: "a" }))).toMatch(/must not be undefined/);
    for (const more of [undefined, { pool: undefined, retention: undefined }])
      await (await openAnything("memory:", more)).close();
  });

  test("another application's file with tables of our names is refused as unfit", async () => {
    const { DatabaseSync } = await import("node:sqlite");
    const path = join(folder, "clash.db");
    const db = new DatabaseSync(path);
    db.exec("create table pawl_now (x)");
    db.close();
    expect(await refusal(() => open(path))).toMatch(/^store_unfit: .*other tables of the same names/);
  });
});

describe("a slot of another handle", () => {
  test("is not written to this one's database", async () => {
    await using a = await open("memory:");
    await using b = await open("memory:");
    const foreign = b.slot<string>("s");
    expect(await refusal(() => a.transact((tx) => tx.slot(foreign).set("x")))).toMatch(/"s" must be of the handle/);
    expect(await refusal(() => a.transact(() => 1, { touches: [foreign] }))).toMatch(/"s" must be of the handle/);
    expect((await a.slots.list()).slots).toEqual([]);
  });

  test("a name is no slot", async () => {
    await using pawl = await open("memory:");
    const name = "s" as unknown as Slot<string>;
    expect(await refusal(() => pawl.transact((tx) => tx.slot(name)))).toMatch(/must be a handle, as pawl.slot gives/);
  });
});

describe.each(["memory:", "file"])("the handle inside a decision, on %s", (where) => {
  const start = (more: Omit<OpenOptions, "store"> = {}) =>
    open(where === "file" ? join(folder, "inside.db") : where, more);

  const uses: readonly [string, (slot: Slot<string>) => unknown][] = [
    ["a write", (slot) => slot.set("nested")],
    ["a read", (slot) => slot.get()],
  ];
  test.each(uses)("%s is noticed, and nothing of either is done", async (_, use) => {
    await using pawl = await start();
    const slot = pawl.slot<string>("inner");
    const outer = pawl.slot<string>("outer");
    const mixed = pawl.transact((tx) => {
      tx.slot(outer).set("x");
      void use(slot);
      return 1;
    });
    expect(await refusal(() => mixed)).toMatch(/^decision_impure: .*tx\.slot\(slot\)/);
    expect((await pawl.slots.list()).slots).toEqual([]);
    expect(await pawl.transact((tx) => tx.slot(outer).get().version)).toBe(0);
  });

  test("what a decision was given ends with it", async () => {
    await using pawl = await start();
    const slot = pawl.slot<string>("kept");
    const kept = await pawl.transact((tx) => ({ tx, inner: tx.slot(slot) }));
    const uses = [() => kept.inner.set("x"), () => kept.tx.uuid(), () => kept.tx.nowMs, () => kept.tx.slot(slot)];
    for (const use of uses) expect(await refusal(use)).toMatch(/^decision_over: /);
  });

  test("a generator function is no decision", async () => {
    await using pawl = await start();
    const lazy = function* () {
      yield 1;
    };
    expect(await refusal(() => pawl.transact(lazy))).toMatch(/^decision_async: /);
  });
});

describe("a codec of one's own", () => {
  const sealing = (seal: unknown) =>
    transformed(jsonCodec, { name: "mine", seal: seal as (text: string) => string, open: (text) => text });
  const wrong: readonly [string, unknown, RegExp][] = [
    ["is async", async (text: string) => text, /must return text synchronously, and returned a promise/],
    ["gives nothing", () => undefined, /must return text synchronously, and returned undefined/],
    ["gives a NUL", () => "\0", /the codec returned text with NUL/],
    ["gives half a character", () => "\ud800", /the codec returned text with NUL or lone surrogates/],
  ];
  test.each(wrong)("whose seal %s loses no value silently", async (_, seal, words) => {
    await using pawl = await open("memory:", { codec: sealing(seal) });
    expect(await refusal(() => pawl.slot("s").set(1))).toMatch(words);
    expect((await pawl.slot("s").get()).version).toBe(0);
  });

  test("that encodes later is refused", async () => {
    const later = { encode: async () => "1", decode: () => 1 } as unknown as typeof jsonCodec;
    await using pawl = await open("memory:", { codec: later });
    expect(await refusal(() => pawl.slot("s").set(1))).toMatch(/the codec returned a promise instead of text/);
  });
});

test("an error of a value names the slot, also among several", async () => {
  await using pawl = await open("memory:", { maxValueBytes: 100 });
  const good = pawl.slot("good");
  const bad = pawl.slot<unknown>("bad");
  const both = (value: unknown) =>
    pawl.transact((tx) => {
      tx.slot(good).set(1);
      tx.slot(bad).set(value);
    });
  expect(await refusal(() => both({ f: () => 1 }))).toBe(
    'invalid_value: cannot store the value of slot "bad" at $.f: it is a function',
  );
  expect(await refusal(() => both("x".repeat(200)))).toMatch(
    /^value_too_large: the value of slot "bad" takes 202 bytes/,
  );
});

describe("watching", () => {
  test("ends without an error when the handle is closed", async () => {
    const pawl = await open("memory:");
    const seen: unknown[] = [];
    const watching = (async () => {
      for await (const { value } of pawl.slot<number>("n", { initial: 0 }).watch()) seen.push(value);
    })();
    while (seen.length === 0) await new Promise((resolve) => setImmediate(resolve));
    await pawl.close();
    await watching;
    expect(seen).toEqual([0]);
  });

  test("that begins after closing is refused", async () => {
    const pawl = await open("memory:");
    const slot = pawl.slot<number>("n");
    await pawl.close();
    expect(await refusal(() => slot.watch().next())).toMatch(/^closed: /);
  });

  test("can be ended from outside while it waits", async () => {
    await using pawl = await open("memory:");
    const values = pawl.slot<number>("n", { initial: 0 }).watch();
    await values.next();
    const waiting = values.next();
    expect(await values.return?.()).toEqual({ done: true, value: undefined });
    expect(await waiting).toEqual({ done: true, value: undefined });
  });
});

describe("arguments of the wrong kind", () => {
  test("are named", async () => {
    await using pawl = await open("memory:");
    const slot = pawl.slot<number>("n", { initial: 0 }) as unknown as Record<string, (...given: unknown[]) => unknown>;
    const transact = pawl.transact.bind(pawl) as (...given: unknown[]) => unknown;
    expect(await refusal(() => slot["trySet"]?.(1))).toMatch(/^invalid_argument: expectedVersion must be/);
    expect(await refusal(() => slot["update"]?.(5))).toMatch(
      /^invalid_argument: the update function must be a function/,
    );
    expect(await refusal(() => transact())).toMatch(/^invalid_argument: the decision must be a function/);
    expect(await refusal(() => transact(() => 1, { touches: ["n"] }))).toMatch(/^invalid_argument: the slot must be/);
  });
});

describe("a simulation that would try nothing", () => {
  const run = simulate as (name: string, options: unknown, scenario: unknown) => Promise<unknown>;
  const idle = async () => {};
  const wrong: readonly [string, unknown, unknown, RegExp][] = [
    ["no seeds", { seeds: 0 }, idle, /the number of seeds must be a whole number/],
    ["seeds that are no number", { seeds: Number.NaN }, idle, /the number of seeds must be a whole number/],
    ["a fault that is always more than sure", { crash: 5 }, idle, /crash must be a probability/],
    ["a fault that does not exist", { crashes: 0.5 }, idle, /must not have "crashes"/],
    ["no scenario", { seeds: 1 }, undefined, /the scenario must be a function/],
  ];
  test.each(wrong)("is refused: %s", async (_, options, scenario, words) => {
    expect(await refusal(() => run("nothing", options, scenario))).toMatch(words);
  });

  test("is a failure: a scenario that never lets the world run", async () => {
    const forgetful = run("forgetful", { seeds: 1 }, async (world: { process(name: string, run: unknown): void }) => {
      world.process("p", async () => {});
    });
    await expect(forgetful).rejects.toThrow("await world.finish()");
  });

  test("names the timer that kept a program waiting forever", async () => {
    const real = simulate("real timer", { seeds: 1 }, async (world) => {
      world.process("p", async () => {
        await new Promise((resolve) => setTimeout(resolve, 5_000));
      });
      await world.finish();
    });
    await expect(real).rejects.toThrow(/setTimeout\(\) called .*misuse\.test\.ts/);
  });
});
