/**
 * Closing: a closed store refuses, and what it committed stays.
 */

import assert from "node:assert/strict";
import { ClosedError } from "../../../kernel/errors.ts";
import { at, blank, making, type Rule, rule } from "../law-context.ts";

export const closing: readonly Rule[] = [
  rule("a closed store refuses everything, and may be closed again", async (context) => {
    const [writer, witness] = await context.connectTwo();
    const { store } = writer;
    const { epoch, sequence } = await writer.settle();
    await store.close();
    await store.close();
    const late = {
      lane: 0,
      epoch,
      sequence: sequence + 1,
      lock: [],
      needsClock: false,
      decide: () => ({ puts: [making(blank("late"))] }),
    };
    const calls: Readonly<Record<string, () => Promise<unknown>>> = {
      settle: () => store.settle(0),
      commit: () => store.commit(late),
      read: () => store.read([at("k")]),
      list: () => store.list({ space: "space", prefix: "", after: null, limit: 1 }),
      entries: () => store.entries(at("k"), 0, 1),
      due: () => store.due({ kinds: ["mail"], limit: 1 }),
      sweep: () => store.sweep(1),
      prune: () => store.prune(at("k"), 1, 1),
    };
    for (const [name, call] of Object.entries(calls))
      await assert.rejects(call(), ClosedError, `${name} was not refused as closed`);
    assert.equal(await witness.readOne(at("late")), null);
  }),

  rule("closing one writer does not affect the others", async (context) => {
    const [writer, other] = await context.connectTwo();
    await other.settle();
    const row = await writer.makeOne(blank("k"), "one");
    await writer.store.close();
    const next = await other.change(row, { value: "1" }, "two");
    assert.deepEqual(await other.readOne(row), next);
  }),

  rule("committed data is there for the next connection, and its numbers continue", async (context) => {
    const first = await context.connect();
    const row = await first.makeOne(blank("k", { fence: 3, kind: "mail", dueMs: 4 }), "one", "two");
    const [before] = (await first.entries(row)).slice(-1);
    await first.store.close();
    const next = await context.connect();
    assert.deepEqual(await next.readOne(row), row);
    assert.deepEqual(await next.dueKeys(["mail"]), ["k"]);
    await next.change(row, { value: "1" }, "three");
    const entries = await next.entries(row);
    assert.deepEqual(
      entries.map(({ version, data }) => [version, data]),
      [
        [1, "one"],
        [2, "two"],
        [3, "three"],
      ],
    );
    assert.ok(before && (entries[2]?.position ?? 0) > before.position, "positions started again");
    const other = await next.makeOne(blank("j"));
    assert.notEqual(other.id, row.id, "ids started again");
  }),
];
