/**
 * Sweeps: deleted rows are removed when their time has come, and leave behind only a floor for fences.
 */

import assert from "node:assert/strict";
import { at, blank, type Rule, range, rule, type Writer } from "../law-context.ts";
import { onGrid } from "./due.ts";

/** Deletes rows that the store may sweep immediately. */
async function discard(writer: Writer, ...keys: readonly string[]): Promise<void> {
  for (const row of await writer.make(...keys.map((key) => blank(key)))) await writer.remove(row, 1);
}

const floorOf = async (writer: Writer): Promise<number> => (await writer.found(at("nobody"))).fenceFloor;

export const sweeps: readonly Rule[] = [
  rule("a sweep removes deleted rows that are past their time, and nothing else", async (context) => {
    const writer = await context.connect();
    await discard(writer, "past");
    const kept = await writer.make(
      blank("live"),
      blank("timer", { dueMs: 1 }),
      blank("due", { kind: "mail", dueMs: 1 }),
      blank("empty", { value: "", dueMs: 1 }),
    );
    const recent = await writer.remove(await writer.makeOne(blank("recent"), "born"), 9e14);
    const revived = await writer.remove(await writer.makeOne(blank("revived"), "born"), 1);
    const again = await writer.change(revived, { value: "1", dueMs: 1 }, "again");
    assert.equal(await writer.sweep(), 1);
    assert.equal(await writer.readOne(at("past")), null);
    assert.deepEqual(await writer.locked(at("past")), [null]);
    const rows = [...kept, recent, again];
    assert.deepEqual(await writer.read(...rows), rows);
    assert.deepEqual(await writer.locked(...rows), rows);
    assert.deepEqual([(await writer.log(recent)).length, (await writer.log(again)).length], [1, 2]);
    assert.equal(await writer.sweep(), 0);
  }),

  rule("a deleted row is swept from its exact millisecond, and not before", (context) =>
    onGrid(
      context,
      async (writer, startMs, size, tag) => {
        const before = await writer.nowMs();
        await writer.sweep(5000);
        const after = await writer.nowMs();
        if (after + 1 >= startMs + size) return false;
        const times = range(startMs, startMs + size);
        const rows = await writer.read(...times.map((ms) => at(`${tag}-${ms}`)));
        for (const [index, row] of rows.entries()) {
          const keptUntilMs = startMs + index;
          if (keptUntilMs <= before) assert.equal(row, null, `at ${before}, a row kept until ${keptUntilMs} was there`);
          if (keptUntilMs > after) assert.ok(row !== null, `at ${after}, a row kept until ${keptUntilMs} was gone`);
        }
        return true;
      },
      (tag, dueMs) => blank(`${tag}-${dueMs}`, { value: null, dueMs }),
    ),
  ),

  rule("a deleted row stays until the store's clock passes its time", async (context) => {
    const writer = await context.connect();
    const keptUntilMs = (await writer.nowMs()) + 40;
    const row = await writer.remove(await writer.makeOne(blank("k")), keptUntilMs);
    const swept = await writer.sweep();
    if ((await writer.nowMs()) < keptUntilMs) assert.equal(swept, 0);
    await context.advanceTo(writer, keptUntilMs);
    assert.equal((await writer.sweep()) + swept, 1);
    assert.equal(await writer.readOne(row), null);
  }),

  rule("a sweep removes the log with the row: when it is created again, it starts at 1", async (context) => {
    const writer = await context.connect();
    const row = await writer.makeOne(blank("k"), "one", "two", "three");
    await writer.remove(row, 1);
    assert.equal(await writer.sweep(), 1);
    assert.deepEqual(await writer.entries(row), []);
    const again = await writer.makeOne(blank("k"), "anew");
    assert.deepEqual(
      (await writer.log(again)).map(({ version, data }) => [version, data]),
      [[1, "anew"]],
    );
  }),

  rule(
    "a sweep raises the fence floor above every fence it removes, for every writer, and nothing lowers it",
    async (context) => {
      const [writer, other] = await context.connectTwo();
      assert.ok((await floorOf(writer)) >= 0);
      for (const fences of [[41, 3], [7], [2 ** 40], [1]]) {
        const floor = await floorOf(other);
        for (const fence of fences) {
          const row = await writer.makeOne(blank(`k${fence}`, { fence }));
          await writer.remove(row, 1);
        }
        assert.equal(await writer.sweep(), fences.length);
        for (const who of [writer, other, await context.connect()]) {
          const now = await floorOf(who);
          assert.ok(Number.isSafeInteger(now) && now > Math.max(...fences), `the floor ${now} is not above ${fences}`);
          assert.ok(now >= floor, `the floor went down from ${floor} to ${now}`);
        }
      }
    },
  ),

  rule("a sweep removes at most as many rows as requested, and returns how many", async (context) => {
    const writer = await context.connect();
    const keys = range(0, 10).map((n) => `k${n}`);
    await discard(writer, ...keys);
    const left = async () => (await writer.read(...keys.map((key) => at(key)))).filter((row) => row !== null).length;
    assert.equal(await writer.sweep(4), 4);
    assert.equal(await left(), 6);
    assert.equal(await writer.sweep(1), 1);
    assert.equal(await left(), 5);
    assert.equal(await writer.sweep(100), 5);
    assert.equal(await writer.sweep(100), 0);
    assert.equal(await left(), 0);
  }),

  rule("a sweep stays in its namespace", async (context) => {
    const [mine, theirs] = [await context.connect("mine"), await context.connect("theirs")];
    for (const writer of [mine, theirs]) await discard(writer, "k");
    assert.equal(await mine.sweep(), 1);
    assert.notEqual(await theirs.readOne(at("k")), null);
    assert.equal(await theirs.sweep(), 1);
  }),
];
