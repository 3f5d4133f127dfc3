/**
 * Reads: what was committed, by any writer, and nothing else; in the requested order; in the writer's own namespace.
 */

import assert from "node:assert/strict";
import { at, blank, changing, type Rule, range, rule, turn } from "../law-context.ts";

export const reads: readonly Rule[] = [
  rule(
    "a read returns rows in the order of the keys, null for absent ones, and a key twice if it is given twice",
    async (context) => {
      const writer = await context.connect();
      const [c, a] = await writer.make(blank("c"), blank("a"), blank("b"));
      assert.deepEqual(await writer.read(at("c"), at("none"), at("a"), at("c"), at("a", "other")), [
        c,
        null,
        a,
        c,
        null,
      ]);
    },
  ),

  rule("a read of no keys returned rows", async (context) => {
    const writer = await context.connect();
    await writer.makeOne(blank("k", { kind: "mail", dueMs: 1 }));
    assert.deepEqual(await writer.read(), []);
    const page = await writer.due([]);
    assert.deepEqual([page.keys, page.nextDueMs], [[], null]);
    assert.deepEqual(await writer.list("", { space: "empty" }), []);
  }),

  rule("what was committed before is seen by every kind of read, whichever writer wrote it", async (context) => {
    const writers = await context.connectAll(3);
    let row = blank("k", { kind: "mail", dueMs: 1 });
    for (let n = 0; n < 6; n++) {
      const writer = writers[n % 3];
      assert.ok(writer);
      const said = `change ${n}`;
      row =
        n === 0
          ? await writer.makeOne({ ...row, value: said }, said)
          : await writer.change(row, { value: said, kind: said, dueMs: n }, said);
      for (const reader of writers) {
        assert.deepEqual(await reader.readOne(row), row);
        assert.deepEqual(await reader.list(), [row]);
        assert.equal((await reader.entries(row, n))[0]?.data, said);
        assert.deepEqual(await reader.dueKeys([row.kind ?? ""]), ["k"]);
        assert.deepEqual((await reader.found(row)).rows[0]?.version, row.version);
      }
    }
  }),

  rule("a read or a list of several rows sees all of a commit or nothing of it", async (context) => {
    const [writer, reader] = await context.connectTwo();
    let rows = await writer.make(...range(0, 5).map((n) => blank(`k${n}`, { value: "0" })));
    let writing = true;
    const write = async () => {
      try {
        for (const n of range(1, 26)) {
          rows = await writer.write(...rows.map((row) => changing(row, { value: String(n) })));
          await turn();
        }
      } finally {
        writing = false;
      }
    };
    const look = async () => {
      while (writing) {
        await turn();
        const [read, list] = [await reader.read(...rows), await reader.list()];
        for (const seen of [read, list]) {
          assert.equal(seen.length, rows.length);
          assert.equal(new Set(seen.map((row) => row?.value)).size, 1, "a commit was seen in part");
        }
      }
    };
    await Promise.all([write(), look()]);
  }),

  rule("namespaces do not see each other", async (context) => {
    const names = ["tenant", "Tenant", "tenant2", "tenan_", "%", "tenant "];
    const writers = await Promise.all(names.map((name) => context.connect(name)));
    for (const [index, writer] of writers.entries()) {
      assert.equal(await writer.readOne(at("k")), null);
      await writer.makeOne(blank("k", { kind: "mail", dueMs: index + 1, value: String(index) }), `of ${index}`);
      await writer.makeOne(blank(`own-${index}`, { kind: "later", dueMs: 8e14 + index }));
    }
    for (const [index, writer] of writers.entries()) {
      assert.equal((await writer.readOne(at("k")))?.value, String(index));
      assert.equal((await writer.found(at("k"))).rows[0]?.value, String(index));
      assert.deepEqual(
        (await writer.log(at("k"))).map(({ data }) => data),
        [`of ${index}`],
      );
      assert.deepEqual(await writer.listKeys(), ["k", `own-${index}`]);
      const { keys, nextDueMs } = await writer.due(["mail", "later"]);
      assert.deepEqual([keys.map(({ key }) => key), nextDueMs], [["k"], 8e14 + index]);
    }
  }),
];
