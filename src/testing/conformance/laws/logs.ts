/**
 * Logs: what happened to each record, in order, stamped by the store.
 */

import assert from "node:assert/strict";
import { at, blank, changing, clockRule, isWithin, making, type Rule, range, rule } from "../law-context.ts";

export const logs: readonly Rule[] = [
  rule("a log comes back as it was written, in order, without gaps, from version 1", async (context) => {
    const [writer, other] = await context.connectTwo();
    const entries = range(1, 26).map((version) => ({ version, name: `name-${version % 3}`, data: `data ${version}` }));
    let row = blank("k", { head: 0 });
    for (const [from, to] of [
      [0, 1],
      [1, 1],
      [1, 12],
      [12, 13],
      [13, 25],
    ] as const) {
      const was = row.id === 0 ? null : row;
      const next = { ...row, version: row.version + 1, head: to };
      const [stored] = await (to % 2 ? writer : other).write({ was, row: next, entries: entries.slice(from, to) });
      assert.ok(stored);
      row = stored;
    }
    assert.deepEqual(await writer.log(row), entries);
    assert.deepEqual(await other.log(row), entries);
    assert.equal((await writer.readOne(row))?.head, 25);
  }),

  rule("entries are stamped with the store's clock at their commit", async (context) => {
    const writer = await context.connect();
    let row = await writer.makeOne(blank("k"));
    const stamps: [number, number][] = [];
    for (let n = 0; n < 3; n++) {
      await context.advanceTo(writer, (await writer.nowMs()) + 3);
      const before = await writer.nowMs();
      row = await writer.change(row, {}, "one", "two");
      const after = await writer.nowMs();
      stamps.push([before, after], [before, after]);
    }
    const entries = await writer.entries(row);
    assert.equal(entries.length, stamps.length);
    for (const [index, [before, after]] of stamps.entries()) isWithin(entries[index]?.atMs ?? null, before, after);
  }),

  rule("positions increase with every entry, and none is assigned twice", async (context) => {
    const [writer, other] = await context.connectTwo();
    const keys = ["b", "a", "c"];
    let rows = await writer.write(...keys.map((key) => making(blank(key), "one", "two")));
    let last = 0;
    const all = new Set<number>();
    for (let n = 0; n < 3; n++) {
      let highest = last;
      for (const row of rows) {
        const entries = await other.entries(row, row.head - 2);
        assert.equal(entries.length, 2);
        let before = last;
        for (const { position } of entries) {
          assert.ok(Number.isSafeInteger(position) && position > before, `position ${position} came after ${before}`);
          before = position;
          all.add(position);
        }
        highest = Math.max(highest, before);
      }
      last = highest;
      rows = await (n % 2 ? writer : other).write(...rows.map((row) => changing(row, {}, "more", "yet more")));
    }
    assert.equal(all.size, 18, "a position was assigned twice");
  }),

  rule("positions keep increasing after a sweep removed the newest entries", async (context) => {
    const writer = await context.connect();
    await writer.makeOne(blank("kept"), "one");
    const doomed = await writer.makeOne(blank("doomed"), "one", "two", "three");
    const highest = (await writer.entries(doomed)).at(-1)?.position ?? Number.NaN;
    await writer.remove(doomed, 1);
    assert.equal(await writer.sweep(), 1);
    const next = await writer.makeOne(blank("next"), "one");
    const position = (await writer.entries(next))[0]?.position ?? 0;
    assert.ok(position > highest, `position ${position} came after ${highest}`);
  }),

  rule("a log is paged by version: after the given one, as many as requested", async (context) => {
    const writer = await context.connect();
    const row = await writer.makeOne(blank("k"), ...range(1, 251).map((n) => `entry ${n}`));
    const versions = async (after: number, limit: number) =>
      (await writer.entries(row, after, limit)).map(({ version }) => version);
    assert.deepEqual(await versions(0, 1), [1]);
    assert.deepEqual(await versions(1, 2), [2, 3]);
    assert.deepEqual(await versions(248, 10), [249, 250]);
    assert.deepEqual(await versions(249, 1), [250]);
    assert.deepEqual(await versions(250, 10), []);
    assert.deepEqual(await versions(1000, 10), []);
    const paged: number[] = [];
    for (let page = await versions(0, 100); page.length > 0; page = await versions(paged.length, 100))
      paged.push(...page);
    assert.deepEqual(paged, range(1, 251));
  }),

  rule(
    "a page of a log ends when it has as many bytes as requested, and one that has fewer is the last",
    async (context) => {
      const writer = await context.connect();
      // Ten bytes each, and fewer characters.
      const row = await writer.makeOne(blank("k"), ...range(1, 6).map((n) => `${n}${n}${"\u{1f980}".repeat(2)}`));
      const versions = async (after: number, limit: number, maxBytes: number) =>
        (await writer.entries(row, after, limit, maxBytes)).map(({ version }) => version);
      for (const [maxBytes, count] of [
        [1, 1],
        [10, 1],
        [11, 2],
        [20, 2],
        [21, 3],
        [50, 5],
        [51, 5],
        [1e6, 5],
      ] as const)
        assert.deepEqual(await versions(0, 100, maxBytes), range(1, count + 1), `for ${maxBytes} bytes`);
      assert.deepEqual(await versions(0, 2, 25), [1, 2]);
      assert.deepEqual(await versions(3, 100, 5), [4]);
      assert.deepEqual(await versions(3, 100, 20), [4, 5]);
      assert.deepEqual(await versions(5, 100, 1), []);
    },
  ),

  rule("each record has a log of its own", async (context) => {
    const writer = await context.connect();
    const keys = [at("k"), at("k", "another"), at("K"), at("k2")];
    for (const { space, key } of keys) await writer.makeOne(blank(key, { space }), `of ${space} ${key}`);
    for (const name of keys)
      assert.deepEqual(
        (await writer.log(name)).map(({ data }) => data),
        [`of ${name.space} ${name.key}`],
      );
  }),

  rule("a record without entries has an empty log, and so has an absent record", async (context) => {
    const writer = await context.connect();
    await writer.makeOne(blank("other"), "said");
    const silent = await writer.makeOne(blank("silent"));
    assert.deepEqual(await writer.entries(silent), []);
    assert.deepEqual(await writer.entries(at("nobody")), []);
  }),

  rule("a deleted row keeps its log", async (context) => {
    const writer = await context.connect();
    const row = await writer.makeOne(blank("k"), "one", "two");
    await writer.remove(row, 9e14);
    assert.deepEqual(
      (await writer.log(row)).map(({ data }) => data),
      ["one", "two"],
    );
  }),

  clockRule(
    "a clock that steps back does not reorder a log: stamps go back, versions and positions increase",
    async (context, clock) => {
      const writer = await context.connect();
      const nowMs = await writer.nowMs();
      let row = await writer.makeOne(blank("k"), "first");
      await clock.set(nowMs - 3_600_000);
      row = await writer.change(row, {}, "second");
      await clock.advance(1000);
      await writer.change(row, {}, "third");
      const [first, second, third] = await writer.entries(row);
      assert.ok(first && second && third);
      assert.deepEqual([first.data, second.data, third.data], ["first", "second", "third"]);
      assert.ok(first.position < second.position && second.position < third.position);
      assert.ok(second.atMs < first.atMs - 3_000_000 && second.atMs < third.atMs && third.atMs < first.atMs);
    },
  ),
];
