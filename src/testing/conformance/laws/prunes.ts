/**
 * Prunes: the oldest entries of a log are removed, and everything else of the record stays as it is.
 */

import assert from "node:assert/strict";
import type { Key } from "../../../kernel/contract.ts";
import { at, blank, changing, followed, making, type Rule, range, rule, type Writer } from "../law-context.ts";

const versionsOf = async (writer: Writer, key: Key): Promise<readonly number[]> =>
  (await writer.entries(key)).map(({ version }) => version);

/** Prunes until nothing is left to prune; returns how many were removed. A store may remove fewer than it is asked for, but not none. */
async function pruneAll(writer: Writer, key: Key, upTo: number): Promise<number> {
  let removed = 0;
  for (let step = await writer.prune(key, upTo); step > 0; step = await writer.prune(key, upTo)) removed += step;
  return removed;
}

export const prunes: readonly Rule[] = [
  rule("pruning removes the entries up to a version, and neither later ones nor the row", async (context) => {
    const [writer, other] = await context.connectTwo();
    const row = await writer.makeOne(
      blank("k", { fence: 3, kind: "mail", status: "new", dueMs: 4 }),
      ...range(1, 8).map((n) => `entry ${n}`),
    );
    const before = await writer.entries(row);
    assert.equal(await pruneAll(writer, row, 4), 4);
    for (const who of [writer, other]) {
      assert.deepEqual(await who.entries(row), before.slice(4));
      assert.deepEqual(await who.entries(row, 2, 2), before.slice(4, 6));
      assert.deepEqual(await who.readOne(row), row);
      assert.deepEqual(await who.locked(row), [row]);
    }
    assert.deepEqual(await writer.dueKeys(["mail"]), ["k"]);
  }),

  rule(
    "pruning removes the oldest entries first, at most as many as requested, and returns how many",
    async (context) => {
      const writer = await context.connect();
      const row = await writer.makeOne(blank("k"), ...range(1, 11).map((n) => `entry ${n}`));
      let removed = 0;
      for (let step = 0; removed < 9; step++) {
        const limit = 1 + (step % 4);
        const now = await writer.prune(row, 9, limit);
        assert.ok(now >= 1 && now <= limit, `${now} entries were removed, and at most ${limit} were requested`);
        removed += now;
        assert.deepEqual(await versionsOf(writer, row), range(removed + 1, 11));
      }
      assert.equal(removed, 9);
      assert.equal(await writer.prune(row, 9, 5), 0);
    },
  ),

  rule("pruning again removes nothing, and so does pruning an absent record", async (context) => {
    const writer = await context.connect();
    const row = await writer.makeOne(blank("k"), "one", "two", "three");
    const silent = await writer.makeOne(blank("silent"));
    assert.equal(await pruneAll(writer, row, 2), 2);
    assert.equal(await writer.prune(row, 2), 0);
    assert.equal(await writer.prune(row, 1), 0);
    assert.equal(await writer.prune(row, 0), 0);
    assert.equal(await writer.prune(silent, 5), 0);
    assert.equal(await writer.prune(at("nobody"), 5), 0);
    assert.deepEqual(await versionsOf(writer, row), [3]);
  }),

  rule("what was pruned is not followed again, and what comes after it is", async (context) => {
    const [writer, other] = await context.connectTwo();
    const names = async () =>
      (await other.follow()).entries.map(({ key, version, data }) => `${key} ${version} ${data}`);
    const [a] = await writer.write(followed(making(blank("a"), "a1", "a2", "a3")), followed(making(blank("b"), "b1")));
    assert.ok(a !== undefined);
    assert.equal(await pruneAll(writer, a, 2), 2);
    assert.deepEqual((await names()).toSorted(), ["a 3 a3", "b 1 b1"]);
    const { upTo } = await other.follow();
    await writer.write(followed(changing(a, {}, "a4")));
    const later = await other.follow({ after: upTo });
    assert.deepEqual(
      later.entries.map(({ key, version }) => [key, version]),
      [["a", 4]],
    );
    assert.deepEqual((await names()).toSorted(), ["a 3 a3", "a 4 a4", "b 1 b1"]);
  }),

  rule("a log that was pruned whole continues after its head, with later positions", async (context) => {
    const writer = await context.connect();
    const row = await writer.makeOne(blank("k"), "one", "two", "three");
    const highest = (await writer.entries(row)).at(-1)?.position ?? Number.NaN;
    assert.equal(await pruneAll(writer, row, 1000), 3);
    assert.deepEqual(await writer.entries(row), []);
    const again = await writer.change(row, { value: "1" }, "four");
    const [four, ...more] = await writer.entries(again);
    assert.deepEqual([four?.version, four?.data, more.length], [4, "four", 0]);
    assert.ok((four?.position ?? 0) > highest, `position ${four?.position} came after ${highest}`);
    assert.deepEqual(await versionsOf(writer, again), [4]);
  }),

  rule("pruning stays with its record, in its space and namespace", async (context) => {
    const [mine, theirs] = [await context.connect("mine"), await context.connect("theirs")];
    for (const writer of [mine, theirs])
      for (const { space, key } of [at("k"), at("k", "another"), at("k2")])
        await writer.makeOne(blank(key, { space }), "one", "two");
    assert.equal(await pruneAll(mine, at("k"), 2), 2);
    assert.deepEqual(await versionsOf(mine, at("k")), []);
    for (const [writer, key] of [
      [mine, at("k", "another")],
      [mine, at("k2")],
      [theirs, at("k")],
    ] as const)
      assert.deepEqual(await versionsOf(writer, key), [1, 2]);
  }),
];
