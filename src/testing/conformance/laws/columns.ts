/**
 * Columns: what is written is read back exactly, to the last digit and character, and names are compared byte by byte.
 */

import assert from "node:assert/strict";
import type { Key, Row } from "../../../kernel/contract.ts";
import { at, blank, type Rule, rule, type Writer } from "../law-context.ts";

const FULL: Partial<Row> = {
  version: 11,
  fence: 12,
  wakes: 13,
  tries: 14,
  holder: "worker 7",
  kind: "mail",
  status: "waiting",
  dueMs: 1_700_000_000_123,
  value: '{"n":1}',
};

/** One change for each column that can change. */
const CHANGES: readonly Partial<Row>[] = [
  { fence: 99 },
  { wakes: 99 },
  { tries: 99 },
  { holder: "another" },
  { holder: null },
  { kind: "another" },
  { kind: null },
  { kind: "mail" },
  { status: "another" },
  { status: null },
  { dueMs: 5 },
  { dueMs: null },
  { dueMs: 1_700_000_000_124 },
  { value: '"another"' },
  { kind: "both", dueMs: 6 },
  { version: 1000 },
];

/** Texts that a careless store trims, folds, pads, parses, escapes or cuts. */
const TEXTS: readonly string[] = [
  "",
  " ",
  " padded ",
  "line\nline\r\n\ttab\n",
  '"a \\u0000 in JSON"',
  "null",
  "NULL",
  "007",
  "1e3",
  "1.0",
  "0x10",
  "true",
  "'; drop table t; --",
  "100% _ \\ / \\\\ $1 ? :name @p {x}",
  "caf\u00e9 and cafe\u0301",
  "Stra\u00dfe STRASSE \u0130\u0131",
  "\u{1f468}\u200d\u{1f469}\u200d\u{1f467} \u{1f600}",
  "\ufeffmarked",
  "\ud7ff\ue000\uffff\u{10000}\u{10ffff}",
  "\u007f\u0080\u009f\u2028\u2029",
];

/** Names that a careless store treats as equal. */
const ALIKE: readonly Key[] = [
  at("a"),
  at("A"),
  at("a "),
  at(" a"),
  at("\u00e4"),
  at("a\u0308"),
  at("ae"),
  at("\u00df"),
  at("ss"),
  at("k"),
  at("\u212a"),
  at("1"),
  at("01"),
  at("1.0"),
  at("1e0"),
  at("a%"),
  at("a_"),
  at("a/b"),
  at("a:b"),
  at("a", "space/a"),
  at("a/a"),
  at("a", "Space"),
  at("a", "space "),
  at("ea", "spac"),
];

async function comesBack(writer: Writer, row: Row): Promise<Row> {
  const stored = await writer.makeOne(row);
  assert.deepEqual(await writer.readOne(row), stored);
  assert.deepEqual(await writer.locked(row), [stored]);
  return stored;
}

export const columns: readonly Rule[] = [
  rule("every column comes back as it was written", async (context) => {
    const [writer, other] = await context.connectTwo();
    const full = await comesBack(writer, blank("full", FULL));
    await comesBack(writer, blank("blank"));
    assert.deepEqual(await other.readOne(full), full);
  }),

  rule("a change of one column is written, and changes no other", async (context) => {
    const writer = await context.connect();
    let row = await writer.makeOne(blank("k", FULL));
    for (const change of CHANGES) {
      const next = await writer.change(row, change);
      assert.deepEqual(next, { ...row, version: row.version + 1, stamp: row.stamp + 1, ...change });
      assert.deepEqual(await writer.readOne(row), next, `after the change ${JSON.stringify(change)}`);
      assert.deepEqual(await writer.locked(row), [next]);
      row = next;
    }
  }),

  rule("whole numbers come back exactly, up to 2^53 - 1", async (context) => {
    const writer = await context.connect();
    for (const n of [0, 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32 + 1, 2 ** 52 + 1, 2 ** 53 - 2]) {
      const row = await comesBack(
        writer,
        blank(`k${n}`, { version: Math.max(1, n), stamp: n, fence: n, wakes: n, tries: n, dueMs: n }),
      );
      const next = await writer.change(row, { fence: n + 1, wakes: n + 1, tries: n + 1, dueMs: n + 1 });
      assert.deepEqual(await writer.readOne(row), next);
    }
  }),

  rule("texts come back character by character", async (context) => {
    const writer = await context.connect();
    for (const [index, text] of TEXTS.entries()) {
      const word = `${index}${text}`;
      const row = await comesBack(writer, blank(`k${index}`, { value: text, holder: word, kind: word, status: word }));
      const put = { version: 1, name: word, data: text };
      await writer.write({ was: row, row: { ...row, version: 2, head: 1 }, entries: [put] });
      assert.deepEqual(await writer.log(row), [put]);
      assert.deepEqual((await writer.due([word])).keys, []);
    }
  }),

  rule("an empty value is a value, and not a deleted one", async (context) => {
    const writer = await context.connect();
    const row = await writer.makeOne(blank("k", { value: "" }));
    assert.equal((await writer.readOne(row))?.value, "");
    assert.deepEqual(await writer.listKeys(), ["k"]);
    const next = await writer.change(await writer.change(row, { value: "x" }), { value: "", dueMs: 1 });
    assert.equal(await writer.sweep(), 0);
    assert.deepEqual(await writer.readOne(row), next);
  }),

  rule("a value and an entry of a mebibyte come back whole", async (context) => {
    const writer = await context.connect();
    for (const [name, character] of Object.entries({ narrow: "x", wide: "\u{1f600}" })) {
      const bytes = new TextEncoder().encode(character).length;
      const text = `${character.repeat(2 ** 20 / bytes - 1)}end!`.slice(0, 2 ** 20);
      const row = await writer.makeOne(blank(name, { value: text }), text);
      assert.ok((await writer.readOne(row))?.value === text, "the value came back changed");
      assert.ok((await writer.entries(row))[0]?.data === text, "the entry came back changed");
    }
  }),

  rule("names that look alike are different names", async (context) => {
    const writer = await context.connect();
    const rows = await writer.make(
      ...ALIKE.map(({ space, key }, index) => blank(key, { space, value: String(index) })),
    );
    assert.deepEqual(await writer.read(...ALIKE), rows);
    const spaces = new Set(ALIKE.map(({ space }) => space));
    for (const space of spaces) {
      const mine = ALIKE.filter((name) => name.space === space).map(({ key }) => key);
      assert.deepEqual([...(await writer.listKeys("", { space }))].sort(), mine.sort());
    }
  }),

  rule("names of 256 bytes are whole names", async (context) => {
    const writer = await context.connect();
    const long = ["a".repeat(255), "\u{10ffff}".repeat(63), "\u{1f600}".repeat(63), `${"\u00e9".repeat(127)}b`];
    const keys = long.flatMap((text) => ["x", "y"].map((end) => text + end));
    const rows = await writer.make(
      ...keys.map((key, index) => blank(key, { value: String(index), kind: key, holder: key, space: key })),
    );
    assert.deepEqual(await writer.read(...rows), rows);
    for (const row of rows) assert.deepEqual(await writer.list(row.key.slice(0, -1), { space: row.space }), [row]);
  }),

  rule("a deleted row is read with all of its numbers", async (context) => {
    const writer = await context.connect();
    const row = await writer.makeOne(blank("k", FULL), "born");
    const removed = await writer.remove(row, 9e14);
    assert.equal(removed.value, null);
    assert.deepEqual(await writer.readOne(row), removed);
    assert.deepEqual(await writer.locked(row), [removed]);
  }),

  rule("a row that is created again continues with its numbers and its log", async (context) => {
    const writer = await context.connect();
    const row = await writer.makeOne(blank("k", FULL), "born");
    const removed = await writer.remove(row, 9e14);
    const again = await writer.change(removed, { value: "1", dueMs: null }, "born again");
    assert.deepEqual(await writer.readOne(row), again);
    assert.deepEqual(
      (await writer.log(row)).map(({ version, data }) => [version, data]),
      [
        [1, "born"],
        [2, "born again"],
      ],
    );
    assert.deepEqual(await writer.listKeys(), ["k"]);
    assert.equal(await writer.sweep(), 0);
  }),
];
