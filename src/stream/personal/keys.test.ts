/** Keys that are kept elsewhere: fetched together, kept for a minute, and never more than so many. */

import { describe, expect, test } from "vitest";
import type { Clock } from "../../kernel/ports.ts";
import { checkSubjectKeys, FetchedKeys, type SubjectKeys } from "./keys.ts";

const KEY = new Uint8Array(32).fill(7);

function vault() {
  const asked: string[] = [];
  const keys = new Map<string, Uint8Array | "forgotten">();
  let nowMs = 0;
  const subjectKeys: SubjectKeys = {
    get: async (subjects) => {
      asked.push(`get ${subjects.join()}`);
      return new Map(subjects.flatMap((one) => (keys.has(one) ? [[one, keys.get(one) ?? KEY] as const] : [])));
    },
    create: async (subject) => {
      asked.push(`create ${subject}`);
      keys.set(subject, KEY);
      return KEY;
    },
    destroy: async (subject) => {
      asked.push(`destroy ${subject}`);
      keys.set(subject, "forgotten");
    },
  };
  const clock = { nowMs: () => nowMs, after: () => () => {} } as unknown as Clock;
  return {
    asked,
    keys,
    fetched: new FetchedKeys(subjectKeys, clock, 30_000),
    pass: (ms: number) => {
      nowMs += ms;
    },
  };
}

describe("keys that were fetched", () => {
  test("are asked for together, and only where they are not known", async () => {
    const { fetched, keys, asked } = vault();
    keys.set("a", KEY).set("b", KEY);
    expect([...(await fetched.get(["a", "b", "c"])).keys()]).toEqual(["a", "b"]);
    await fetched.get(["a", "b"]);
    expect(asked).toEqual(["get a,b,c"]);
    expect(fetched.known("a")).toEqual(KEY);
    expect(fetched.known("c")).toBeUndefined();
  });

  test.each([
    { rule: "after a minute they are asked for again", ms: 60_000, times: 2 },
    { rule: "before, they are not", ms: 59_999, times: 1 },
    { rule: "a clock that was set back does not keep them", ms: -60_000, times: 2 },
  ])("$rule", async ({ ms, times }) => {
    const { fetched, keys, asked, pass } = vault();
    keys.set("a", KEY);
    await fetched.get(["a"]);
    pass(ms);
    keys.set("a", "forgotten");
    expect((await fetched.get(["a"])).get("a")).toEqual(times === 2 ? "forgotten" : KEY);
    expect(asked.length).toBe(times);
  });

  test("one that is gone is not known any more", async () => {
    const { fetched, keys, pass } = vault();
    keys.set("a", KEY);
    await fetched.get(["a"]);
    pass(60_000);
    keys.delete("a");
    expect((await fetched.get(["a"])).size).toBe(0);
    expect(fetched.known("a")).toBeUndefined();
  });

  test("are made where there are none, and not where they were destroyed", async () => {
    const { fetched, keys, asked } = vault();
    keys.set("a", KEY).set("b", "forgotten");
    await fetched.ensure(["a", "b", "c"]);
    expect(asked).toEqual(["get a,b,c", "create c"]);
    expect([fetched.known("b"), fetched.known("c")]).toEqual(["forgotten", KEY]);
  });

  test("one that is destroyed is not known any more", async () => {
    const { fetched, keys } = vault();
    keys.set("a", KEY);
    await fetched.get(["a"]);
    await fetched.destroy("a");
    expect(fetched.known("a")).toBeUndefined();
    expect((await fetched.get(["a"])).get("a")).toBe("forgotten");
  });

  test("are at most 20,000; the oldest go", async () => {
    const { fetched, keys } = vault();
    const all = Array.from({ length: 20_001 }, (_, i) => `s${i}`);
    for (const one of all) keys.set(one, KEY);
    await fetched.get(all);
    expect([fetched.known("s0"), fetched.known("s1")]).toEqual([undefined, KEY]);
  });

  test("are copies: a caller that wipes its buffer does not wipe them", async () => {
    const { fetched, keys } = vault();
    const mine = Uint8Array.from(KEY);
    keys.set("a", mine);
    await fetched.get(["a"]);
    mine.fill(0);
    expect(fetched.known("a")).toEqual(KEY);
  });

  test.each([
    ["31 bytes", new Uint8Array(31)],
    ["text", "x".repeat(32)],
    ["a number", 5],
  ])("%s is no key", async (_, key) => {
    const { fetched, keys } = vault();
    keys.set("a", key as never);
    await expect(fetched.get(["a"])).rejects.toMatchObject({ code: "invalid_argument" });
  });

  test("an object is no Map", async () => {
    const fetched = new FetchedKeys(
      { get: async () => ({}) } as never,
      { nowMs: () => 0, after: () => () => {} } as unknown as Clock,
      30_000,
    );
    await expect(fetched.get(["a"])).rejects.toThrow("must resolve with a Map");
  });
});

test.each([null, 5, "kms", {}, { get() {}, create() {} }, { get() {}, create() {}, destroy: 1 }])(
  "%o is no place for keys",
  (keys) => {
    expect(() => checkSubjectKeys(keys as never)).toThrow("must have the methods get, create and destroy");
  },
);
