/**
 * Commits: all or nothing, on rows that are what the batch assumes, with one result for each key and each put.
 */

import assert from "node:assert/strict";
import type { Found, Key, Put, Receipt, Row } from "../../../kernel/contract.ts";
import {
  at,
  blank,
  changing,
  isWithin,
  making,
  plain,
  type Rule,
  range,
  rule,
  texts,
  type Writer,
} from "../law-context.ts";

const DECADES_AGO = 1;

/** What a writer reads of rows and logs. If it is equal before and after, nothing was written. */
const pictureOf = async (writer: Writer, keys: readonly Key[]): Promise<unknown> => ({
  rows: await writer.read(...keys),
  locked: await writer.locked(...keys),
  logs: await Promise.all(keys.map((key) => writer.entries(key))),
});

async function refuses(writer: Writer, puts: readonly Put[], moved: readonly Key[]): Promise<void> {
  const keys = puts.map(({ row }) => row);
  const before = await pictureOf(writer, keys);
  const receipt = await writer.commit({ decide: () => ({ puts }) });
  assert.equal(receipt.committed, false, "the batch was not refused");
  assert.deepEqual(texts(movedOf(receipt)), texts(moved), "the rows named as moved");
  assert.deepEqual(await pictureOf(writer, keys), before, "a refused batch wrote something");
}

const movedOf = (receipt: Receipt): readonly Key[] => (receipt.committed ? [] : receipt.moved);

/** A row that was deleted and then swept. */
async function gone(writer: Writer, key: string): Promise<Row> {
  const row = await writer.makeOne(blank(key));
  const next = await writer.change(row, { value: "1" });
  await writer.remove(next, DECADES_AGO);
  assert.equal(await writer.sweep(), 1);
  return next;
}

export const commits: readonly Rule[] = [
  rule("a commit writes all of its puts", async (context) => {
    const writer = await context.connect();
    const [changed] = await writer.make(blank("changed"));
    assert.ok(changed);
    const rows = range(0, 300).map((n) => blank(`made-${n}`, { value: String(n), space: n % 2 ? "odd" : "space" }));
    const puts = [...rows.map((row) => making(row, "born")), changing(changed, { value: "new" }, "changed")];
    const stored = await writer.write(...puts);
    const read = await writer.read(...stored);
    assert.deepEqual(
      read.map((row) => [row?.space, row?.key, row?.version, row?.value]),
      stored.map((row) => [row.space, row.key, row.version, row.value]),
    );
    for (const key of [stored[0], stored[299], changed]) assert.equal((await writer.log(key ?? at("none"))).length, 1);
  }),

  rule("the ids of a receipt are one for each put, in order, as later reads have them", async (context) => {
    const writer = await context.connect();
    const [first, second] = await writer.make(blank("m"), blank("a"));
    assert.ok(first && second);
    const stored = await writer.write(
      making(blank("z")),
      changing(second, { value: "1" }),
      making(blank("b")),
      changing(first, { value: "1" }),
    );
    assert.deepEqual(
      stored.map((row) => row.id),
      (await writer.read(...stored)).map((row) => row?.id),
    );
    assert.equal(new Set(stored.map((row) => row.id)).size, stored.length, "an id was given twice");
  }),

  rule("a stored row has a number above 0, and keeps it through every change", async (context) => {
    const [writer, other] = await context.connectTwo();
    const row = await writer.makeOne(blank("k"));
    assert.ok(Number.isSafeInteger(row.id) && row.id > 0, `the id is ${row.id}`);
    const changed = await other.change(row, { value: "1" });
    const removed = await writer.remove(changed, 9e14);
    const again = await other.change(removed, { value: "2", dueMs: null });
    for (const { id } of [changed, removed, again]) assert.equal(id, row.id);
    assert.equal((await writer.readOne(row))?.id, row.id);
  }),

  rule("a row that moved refuses the whole batch, and nothing of it is written", async (context) => {
    const [writer, other] = await context.connectTwo();
    const [stale, fresh] = await writer.make(blank("stale"), blank("fresh"));
    assert.ok(stale && fresh);
    await other.change(stale, { value: "moved" }, "moved");
    const late = changing(stale, { value: "late" }, "late");
    const good = changing(fresh, { value: "good" }, "good");
    for (const puts of [
      [late, good],
      [good, late],
      [making(blank("new"), "new"), good, late, making(blank("newer"), "newer")],
    ])
      await refuses(writer, puts, [stale]);
    await writer.write(good);
  }),

  rule("a refused batch names every row that moved, and no other", async (context) => {
    const [writer, other] = await context.connectTwo();
    const rows = await writer.make(blank("a"), blank("b"), blank("c"), blank("d", { space: "other" }));
    const [a, b, c, d] = rows;
    assert.ok(a && b && c && d);
    await other.write(changing(a, { value: "1" }), changing(d, { value: "1" }), making(blank("taken")));
    const change = (row: Row) => changing(row, { value: "2" });
    const taken = making(blank("taken"));
    await refuses(
      writer,
      [change(c), change(a), taken, change(b), change(d), making(blank("free"))],
      [a, d, taken.row],
    );
    await refuses(writer, [taken, making(blank("d"))], [taken.row]);
  }),

  rule(
    "an absent key is protected like an existing one: of two writers that create it, the second is refused",
    async (context) => {
      const [writer, other] = await context.connectTwo();
      await writer.makeOne(blank("k", { value: "first" }), "first");
      for (const late of [other, writer])
        await refuses(late, [making(blank("k", { value: "late" }), "late")], [at("k")]);
    },
  ),

  rule("a row of the same version with another stamp is another row: what assumes it is refused", async (context) => {
    const [writer, other] = await context.connectTwo();
    const row = await other.change(await writer.makeOne(blank("k")), { value: "1" });
    for (const stamp of [row.stamp + 1, row.stamp - 1, 0])
      for (const columns of [{ value: "2" }, { status: "late" }, { dueMs: 5 }])
        await refuses(writer, [changing({ ...row, stamp }, columns, "late")], [row]);
    await writer.write(changing(row, { value: "2" }));
  }),

  rule("a batch reads at most one row beyond its limit of bytes, and reports that it left others", async (context) => {
    const writer = await context.connect();
    const value = "x".repeat(1000);
    const keys = range(0, 20).map((n) => at(`k${n}`));
    const made = await writer.make(...keys.map(({ key }) => blank(key, { value })));
    const readWith = async (maxBytes: number | undefined, lock: readonly Key[] = keys) => {
      const seen: { isFull: boolean; read: number }[] = [];
      const receipt = await writer.commit({
        lock,
        ...(maxBytes === undefined ? {} : { maxBytes }),
        decide(found, round) {
          const read = found.rows.filter((row) => row !== undefined);
          assert.deepEqual(
            read.map((row) => (row === null ? null : plain(row))),
            made.slice(0, read.length),
          );
          seen.push({ isFull: found.isFull === true, read: read.length });
          return round === 0 && lock.length < keys.length ? { lock: keys } : { puts: [] };
        },
      });
      assert.ok(receipt.committed);
      return seen;
    };
    assert.deepEqual(await readWith(undefined), [{ isFull: false, read: 20 }]);
    assert.deepEqual(await readWith(20_000), [{ isFull: false, read: 20 }]);
    assert.deepEqual(await readWith(4_500), [{ isFull: true, read: 5 }]);
    assert.deepEqual(await readWith(1), [{ isFull: true, read: 1 }]);
    assert.deepEqual(await readWith(4_500, keys.slice(0, 2)), [
      { isFull: false, read: 2 },
      { isFull: true, read: 3 },
    ]);
  }),

  rule("a deleted row is not absent: a batch that assumes so is refused", async (context) => {
    const writer = await context.connect();
    const row = await writer.makeOne(blank("k"), "born");
    await writer.remove(row, 9e14);
    await refuses(writer, [making(blank("k"), "again")], [row]);
  }),

  rule("a batch that assumes a row that was swept is refused", async (context) => {
    const writer = await context.connect();
    const row = await gone(writer, "k");
    await refuses(writer, [changing(row, { value: "late" }, "late")], [row]);
    assert.equal(await writer.readOne(row), null);
  }),

  rule("a row created again after a sweep is another row, even at the same version", async (context) => {
    const writer = await context.connect();
    const before = await gone(writer, "k");
    const after = await writer.change(await writer.makeOne(blank("k")), { value: "another" });
    assert.equal(after.version, before.version);
    await refuses(writer, [changing(before, { value: "late" }, "late")], [before]);
  }),

  rule("a decide that throws leaves nothing, its error is thrown, and the next batch succeeds", async (context) => {
    const [writer, other] = await context.connectTwo();
    const row = await writer.makeOne(blank("there"));
    const keys = [row, at("absent"), at("late")];
    const before = await pictureOf(other, keys);
    for (const throwsIn of [0, 1]) {
      const mine = new Error("the decision throws");
      const batch = writer.commit({
        lock: [row, at("absent")],
        decide(_, round) {
          if (round === throwsIn) throw mine;
          return { lock: [at("late")] };
        },
      });
      const outcome = await batch.then(
        () => "committed",
        (error: unknown) => error,
      );
      assert.equal(outcome, mine, "the error is not the one that decide threw");
      assert.deepEqual(await pictureOf(other, keys), before);
      await writer.found(...keys);
      await other.found(...keys);
    }
    await other.change(row, { value: "1" });
    await writer.makeOne(blank("absent"));
  }),

  rule("a batch that writes nothing is committed", async (context) => {
    const writer = await context.connect();
    await writer.makeOne(blank("k"));
    for (const lock of [[], [at("k"), at("absent")]]) {
      const receipt = await writer.commit({ lock, decide: () => ({ puts: [] }) });
      assert.ok(receipt.committed);
      assert.deepEqual(receipt.ids, []);
      assert.ok(Number.isSafeInteger(receipt.nowMs));
    }
    assert.equal(await writer.readOne(at("absent")), null, "locking an absent key made a row");
  }),

  rule(
    "decide gets one row for each key, in the order of the keys, as last committed, null if there is none",
    async (context) => {
      const [writer, other] = await context.connectTwo();
      const rows = await writer.make(blank("b"), blank("c"), blank("a"), blank("a", { space: "another" }));
      const [b] = rows;
      assert.ok(b);
      await other.change(b, { value: "new", holder: "ann", fence: 4 }, "said");
      const keys = [at("c"), at("nobody"), at("a", "another"), at("b"), at("a"), at("b", "another")];
      const found = await writer.found(...keys);
      assert.deepEqual(
        found.rows.map((row) => (row ? plain(row) : row)),
        await other.read(...keys),
      );
      assert.equal(found.rows[1], null);
    },
  ),

  rule("a key requested late is read in the same batch, and its round returns only that key", async (context) => {
    const writer = await context.connect();
    await writer.make(blank("a", { value: "10" }), blank("b", { value: "20" }), blank("c", { value: "30" }));
    const seen: (readonly (string | null | undefined)[])[] = [];
    const rounds = [[at("c"), at("none")], [at("a")], []];
    const receipt = await writer.commit({
      lock: [at("b")],
      decide(found, round) {
        if (round === 0) seen.length = 0;
        seen.push(found.rows.map((row) => (row ? row.value : row)));
        const lock = rounds[round];
        return lock === undefined ? { puts: [making(blank("sum", { value: "60" }))] } : { lock };
      },
    });
    assert.ok(receipt.committed);
    assert.deepEqual(seen, [["20"], ["30", null], ["10"], []]);
    assert.equal((await writer.readOne(at("sum")))?.value, "60");
  }),

  rule("decide is called once for each verdict it returns", async (context) => {
    const writer = await context.connect();
    let calls = 0;
    const receipt = await writer.commit({
      lock: [at("a")],
      decide(_, round) {
        calls = round + 1;
        return round < 2 ? { lock: [at(`late-${round}`)] } : { puts: [making(blank("a"))] };
      },
    });
    assert.ok(receipt.committed);
    assert.equal(calls, 3);
  }),

  rule(
    "decide gets the store's clock once a row is locked, absent or not, and so does the receipt",
    async (context) => {
      const writer = await context.connect();
      await writer.makeOne(blank("there"));
      for (const lock of [[at("there")], [at("absent")]]) {
        const times: (number | null)[] = [];
        const before = await writer.nowMs();
        const receipt = await writer.commit({
          lock,
          decide(found, round) {
            times.push(found.nowMs);
            return round === 0 ? { lock: [at("late")] } : { puts: [] };
          },
        });
        const after = await writer.nowMs();
        assert.ok(receipt.committed);
        for (const nowMs of [...times, receipt.nowMs]) isWithin(nowMs, before, after);
      }
    },
  ),

  rule("a batch that needs the clock gets it, although it locks nothing", async (context) => {
    const writer = await context.connect();
    const before = await writer.nowMs();
    let seen: number | null = null;
    const receipt = await writer.commit({
      needsClock: true,
      decide(found) {
        seen = found.nowMs;
        return { puts: [making(blank("k"), "said")] };
      },
    });
    assert.ok(receipt.committed);
    isWithin(seen, before, await writer.nowMs());
  }),

  rule("a row that is not locked is never reported as locked", async (context) => {
    const writers = await context.connectAll(3);
    const keys = range(0, 20).map((n) => at(`k${n}`));
    await writers[0]?.make(...keys.slice(10).map(({ key }) => blank(key)));
    for (const writer of writers)
      for (let n = 0; n < 3; n++) {
        const found: Found = await writer.found(...keys);
        assert.equal(found.rows.length, keys.length);
        assert.ok(!found.rows.includes(undefined), "a free row was reported as locked");
      }
  }),

  rule("a batch that knows its rows locks none and gets none", async (context) => {
    const writer = await context.connect();
    let row = await writer.makeOne(blank("k"));
    for (let n = 1; n <= 3; n++) {
      const put = changing(row, { value: String(n) }, `step ${n}`);
      const receipt = await writer.commit({
        decide(found) {
          assert.deepEqual(found.rows, []);
          return { puts: [put] };
        },
      });
      assert.ok(receipt.committed);
      row = put.row;
    }
    assert.deepEqual(await writer.readOne(row), row);
  }),
];
