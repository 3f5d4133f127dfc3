/**
 * Lists: the rows of a space that are not deleted, by prefix, page by page, in the order of their keys' UTF-8 bytes.
 */

import assert from "node:assert/strict";
import { at, blank, type Rule, range, rule, type Writer } from "../stage.ts";

/** In the order of UTF-8 bytes. JavaScript's own order has the last three between \ud7ff and \ue000. */
const ORDERED: readonly string[] = [
  "!",
  "-",
  "0",
  "10",
  "9",
  "A",
  "Z",
  "_",
  "a",
  "a!",
  "aa",
  "b",
  "z",
  "~",
  "\u00df",
  "\u00e4",
  "\u0416",
  "\u65e5",
  "\ud7ff",
  "\ue000",
  "\uff21",
  "\uffff",
  "\u{10000}",
  "\u{1f600}",
  "\u{10ffff}",
];

const LAST = "\u{10ffff}";

/** Keys that a careless store would find with a prefix that they do not have, or not find with one that they have. */
const PREFIXES: readonly {
  readonly prefix: string;
  readonly has: readonly string[];
  readonly not: readonly string[];
}[] = [
  { prefix: "a", has: ["a", "a/", "aa", "a\u0308", `a${LAST}`, `a${LAST}${LAST}`], not: ["A", "\u00e4", "b", "`"] },
  { prefix: "a%", has: ["a%", "a%b"], not: ["a", "ab", "ab%"] },
  { prefix: "a_", has: ["a_", "a_b"], not: ["a", "ab", "aab"] },
  { prefix: "a*", has: ["a*", "a*b"], not: ["a", "ab"] },
  { prefix: "a[b]", has: ["a[b]", "a[b]c"], not: ["ab", "a[", "a[c]"] },
  { prefix: "a\\", has: ["a\\", "a\\b"], not: ["a", "a/"] },
  { prefix: "a'", has: ["a'", "a'b"], not: ["a", 'a"'] },
  { prefix: "caf\u00e9", has: ["caf\u00e9", "caf\u00e9s"], not: ["cafe", "cafe\u0301", "CAF\u00c9"] },
  { prefix: "cafe", has: ["cafe", "cafe\u0301"], not: ["caf\u00e9", "Cafe", "caff"] },
  { prefix: "x\ud7ff", has: ["x\ud7ff", `x\ud7ff${LAST}`], not: ["x", "x\ue000", "x\ud7fe"] },
  { prefix: "x\uffff", has: ["x\uffff", "x\uffffy"], not: ["x\ufffe", "x\u{10000}"] },
  { prefix: "x\u{1f3ff}", has: ["x\u{1f3ff}", "x\u{1f3ff}y"], not: ["x\u{1f3fe}", "x\u{1f400}", "x\u{1f400}y"] },
  { prefix: `x${LAST}`, has: [`x${LAST}`, `x${LAST}y`, `x${LAST}${LAST}`], not: ["x", "x\u{10fffe}", "y"] },
  { prefix: LAST, has: [LAST, `${LAST}y`, LAST.repeat(64)], not: ["\u{10fffe}", "z"] },
  { prefix: `${LAST}${LAST}`, has: [LAST.repeat(2), LAST.repeat(64)], not: [LAST, `${LAST}\u{10fffe}`] },
  { prefix: "\u007f", has: ["\u007f", "\u007fa"], not: ["\u0080", "~"] },
  { prefix: "\u07ff", has: ["\u07ff", "\u07ffa"], not: ["\u0800", "\u07fe"] },
];

async function paged(writer: Writer, prefix: string, limit: number): Promise<readonly string[]> {
  const all: string[] = [];
  for (;;) {
    const page = await writer.listKeys(prefix, { after: all.at(-1) ?? null, limit });
    assert.ok(page.length <= limit, `${page.length} rows on a page of ${limit}`);
    if (page.length === 0) return all;
    all.push(...page);
    assert.ok(all.length < 1000, "the pages have no end");
  }
}

export const lists: readonly Rule[] = [
  rule("a list is in the order of its keys' UTF-8 bytes", async (stage) => {
    const writer = await stage.connect();
    const [later, sooner] = [ORDERED.filter((_, n) => n % 2), ORDERED.filter((_, n) => n % 2 === 0)];
    for (const keys of [later.toReversed(), sooner]) await writer.make(...keys.map((key) => blank(key)));
    assert.deepEqual(await writer.listKeys(), ORDERED);
    assert.deepEqual(await writer.listKeys("", { after: "\ud7ff" }), ORDERED.slice(ORDERED.indexOf("\ue000")));
    assert.deepEqual(await writer.listKeys("", { after: "\u{10000}" }), ORDERED.slice(-2));
    assert.deepEqual(await paged(writer, "", 2), ORDERED);
  }),

  rule("a prefix is plain text: no pattern, no case, no normal form, and no end to what may follow", async (stage) => {
    const writer = await stage.connect();
    const all = [...new Set(PREFIXES.flatMap(({ has, not }) => [...has, ...not]))];
    await writer.make(...all.map((key) => blank(key)));
    for (const { prefix, has, not } of PREFIXES) {
      const found = new Set(await writer.listKeys(prefix));
      const shown = JSON.stringify(prefix);
      for (const key of has) assert.ok(found.has(key), `${JSON.stringify(key)} was not found by ${shown}`);
      for (const key of not) assert.ok(!found.has(key), `${JSON.stringify(key)} was found by ${shown}`);
    }
    assert.deepEqual([...(await writer.listKeys())].sort(), all.sort());
  }),

  rule("a list goes on after the key named, there or not", async (stage) => {
    const writer = await stage.connect();
    await writer.make(...["a", "b", "ba", "bb", "bc", "c"].map((key) => blank(key)));
    const cases: readonly [prefix: string, after: string | null, keys: readonly string[]][] = [
      ["", null, ["a", "b", "ba", "bb", "bc", "c"]],
      ["", "b", ["ba", "bb", "bc", "c"]],
      ["", "bab", ["bb", "bc", "c"]],
      ["", "c", []],
      ["", "!", ["a", "b", "ba", "bb", "bc", "c"]],
      ["b", null, ["b", "ba", "bb", "bc"]],
      ["b", "a", ["b", "ba", "bb", "bc"]],
      ["b", "b", ["ba", "bb", "bc"]],
      ["b", "bb", ["bc"]],
      ["b", "bbb", ["bc"]],
      ["b", "bc", []],
      ["b", "z", []],
      ["bb", "ba", ["bb"]],
      ["d", null, []],
    ];
    for (const [prefix, after, keys] of cases)
      assert.deepEqual(await writer.listKeys(prefix, { after }), keys, `prefix "${prefix}", after ${after}`);
  }),

  rule("a list has at most as many as asked for, and its pages have every row once", async (stage) => {
    const writer = await stage.connect();
    const keys = range(100, 160).map((n) => `k${n}`);
    await writer.make(...["j", ...keys, "l"].map((key) => blank(key)));
    assert.deepEqual(await writer.listKeys("", { limit: 1 }), ["j"]);
    for (const limit of [1, 7, 60, 61]) assert.deepEqual(await paged(writer, "k", limit), keys);
  }),

  rule("deleted rows are not listed, and take nobody's place on a page", async (stage) => {
    const writer = await stage.connect();
    const rows = await writer.make(...range(10, 40).map((n) => blank(`k${n}`)));
    for (const row of rows.slice(0, 20)) await writer.remove(row, 9e14);
    assert.deepEqual(await writer.listKeys("", { limit: 3 }), ["k30", "k31", "k32"]);
    assert.deepEqual(
      await paged(writer, "k", 4),
      range(30, 40).map((n) => `k${n}`),
    );
  }),

  rule("a list has the rows of its space, whole", async (stage) => {
    const writer = await stage.connect();
    const [mine] = await writer.make(
      blank("k", { fence: 3, wakes: 4, tries: 5, holder: "ann", kind: "mail", status: "waiting", dueMs: 6 }),
      blank("k", { space: "spac" }),
      blank("k2", { space: "space2" }),
      blank("k3", { space: "Space" }),
    );
    assert.deepEqual(await writer.list(), [mine]);
    assert.deepEqual(await writer.list("k"), [await writer.readOne(at("k"))]);
  }),
];
