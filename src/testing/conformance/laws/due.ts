/**
 * Due: which records are due now by the store's clock, and when the next one will be.
 */

import assert from "node:assert/strict";
import type { Key } from "../../../kernel/contract.ts";
import { at, blank, type LawContext, making, type Rule, range, rule, type Writer } from "../law-context.ts";

const names = (keys: readonly Key[]): readonly string[] => keys.map(({ key }) => key);

/** Creates rows, timed from the store's clock in the same commit; returns that clock. */
export async function makeTimed(writer: Writer, rows: (nowMs: number) => ReturnType<typeof blank>[]): Promise<number> {
  let madeAtMs = 0;
  const receipt = await writer.commit({
    lock: [at("locking reads the clock")],
    decide(found) {
      madeAtMs = found.nowMs ?? 0;
      return { puts: rows(madeAtMs).map((row) => making(row)) };
    },
  });
  assert.ok(receipt.committed && madeAtMs > 0, "the store did not return its clock");
  return madeAtMs;
}

/**
 * Runs the check with one row for each millisecond around now; if the store's clock has passed them, with more rows. A stopped clock needs
 * few, and a running one hits one of them.
 */
export async function onGrid(
  context: LawContext,
  check: (writer: Writer, startMs: number, size: number, tag: string) => Promise<boolean>,
  row: (tag: string, dueMs: number) => ReturnType<typeof blank>,
): Promise<void> {
  const writer = await context.connect();
  for (const size of [20, 200, 2000]) {
    const tag = `grid${size}`;
    const startMs = await makeTimed(writer, (nowMs) => range(-3, size).map((n) => row(tag, nowMs + n)));
    if (await check(writer, startMs - 3, size + 3, tag)) return;
  }
  assert.fail("the store took seconds for what should take milliseconds");
}

export const due: readonly Rule[] = [
  rule("due returns the requested kinds, and no others", async (context) => {
    const writer = await context.connect();
    const kinds = ["mail", "Mail", "mai", "mail2", "%", "call"];
    await writer.make(...kinds.map((kind, n) => blank(`k-${kind}`, { kind, dueMs: n + 1, space: `space ${n % 2}` })));
    for (const kind of kinds) assert.deepEqual(await writer.dueKeys([kind]), [`k-${kind}`]);
    assert.deepEqual([...(await writer.dueKeys(["call", "mail"]))].sort(), ["k-call", "k-mail"]);
    assert.deepEqual(await writer.dueKeys(["mail", "mail"]), ["k-mail"]);
    assert.deepEqual(await writer.dueKeys(["unknown"]), []);
    const [found] = (await writer.due(["Mail"])).keys;
    assert.deepEqual({ space: found?.space, key: found?.key }, { space: "space 1", key: "k-Mail" });
  }),

  rule("due returns the kind of each record, and how often it was tried", async (context) => {
    const writer = await context.connect();
    await writer.make(
      ...range(0, 4).map((n) =>
        blank(`tried ${n}`, { kind: n % 2 === 0 ? "mail" : "call", dueMs: n + 1, tries: 7 * n }),
      ),
    );
    const found = (await writer.due(["mail", "call"])).keys.map(({ key, kind, tries }) => `${key} ${kind} ${tries}`);
    assert.deepEqual(
      found.toSorted(),
      range(0, 4).map((n) => `tried ${n} ${n % 2 === 0 ? "mail" : "call"} ${7 * n}`),
    );
  }),

  rule("a record is due from its exact millisecond, and the next is the one after", (context) =>
    onGrid(
      context,
      async (writer, startMs, size, tag) => {
        const { nowMs, keys, nextDueMs } = await writer.due([tag], 5000);
        if (nowMs + 1 >= startMs + size) return false;
        assert.deepEqual(
          names(keys),
          range(startMs, nowMs + 1).map((ms) => `${tag}-${ms}`),
        );
        assert.equal(nextDueMs, nowMs + 1);
        return true;
      },
      (tag, dueMs) => blank(`${tag}-${dueMs}`, { kind: tag, dueMs }),
    ),
  ),

  rule("the longest due of a kind come first, and the limit leaves out the latest", async (context) => {
    const writer = await context.connect();
    const times = [50, 10, 40, 20, 30];
    await writer.make(...times.map((dueMs) => blank(`a${dueMs}`, { kind: "a", dueMs })));
    await writer.make(...times.map((dueMs) => blank(`b${dueMs + 5}`, { kind: "b", dueMs: dueMs + 5 })));
    assert.deepEqual(await writer.dueKeys(["a"]), ["a10", "a20", "a30", "a40", "a50"]);
    assert.deepEqual(await writer.dueKeys(["a"], 2), ["a10", "a20"]);
    for (const limit of [1, 4, 7, 10]) {
      const keys = await writer.dueKeys(["a", "b"], limit);
      assert.equal(keys.length, limit);
      for (const kind of ["a", "b"]) {
        const mine = keys.filter((key) => key.startsWith(kind));
        assert.deepEqual(mine, (await writer.dueKeys([kind])).slice(0, mine.length));
      }
    }
  }),

  rule("nextDueMs is the next time of these kinds, whatever is due now, and null if there is none", async (context) => {
    const writer = await context.connect();
    const startMs = await makeTimed(writer, (nowMs) => [
      blank("other", { kind: "other", dueMs: nowMs + 1_000_000 }),
      blank("b2", { kind: "b", dueMs: nowMs + 3_000_000 }),
      blank("b1", { kind: "b", dueMs: nowMs + 2_000_000 }),
      blank("a1", { kind: "a", dueMs: nowMs + 2_500_000 }),
      blank("now1", { kind: "now", dueMs: 1 }),
      blank("now2", { kind: "now", dueMs: 2 }),
      blank("never", { kind: "a" }),
      blank("kindless", { dueMs: nowMs + 1_500_000 }),
    ]);
    const next = async (kinds: readonly string[], limit?: number) => {
      const { nextDueMs } = await writer.due(kinds, limit);
      return nextDueMs === null ? null : nextDueMs - startMs;
    };
    assert.equal(await next(["b"]), 2_000_000);
    assert.equal(await next(["a"]), 2_500_000);
    assert.equal(await next(["a", "b"]), 2_000_000);
    assert.equal(await next(["b", "a"]), 2_000_000);
    assert.equal(await next(["now", "a"], 1), 2_500_000);
    assert.equal(await next(["now"]), null);
    assert.equal(await next(["unknown"]), null);
  }),

  rule("many due records of another kind do not hide mine", async (context) => {
    const writer = await context.connect();
    for (const part of range(0, 3))
      await writer.make(...range(0, 500).map((n) => blank(`other-${part}-${n}`, { kind: "other", dueMs: 1 + n })));
    await writer.makeOne(blank("mine", { kind: "mine", dueMs: 400 }));
    assert.deepEqual(await writer.dueKeys(["mine"], 1), ["mine"]);
    assert.deepEqual(await writer.dueKeys(["mine"], 10), ["mine"]);
  }),

  rule("a record without a kind or without a time is never due, and neither is a deleted one", async (context) => {
    const writer = await context.connect();
    const [timeless, kindless, doomed] = await writer.make(
      blank("timeless", { kind: "mail" }),
      blank("kindless", { dueMs: 1 }),
      blank("doomed", { kind: "mail", dueMs: 1 }),
    );
    assert.ok(timeless && kindless && doomed);
    await writer.remove(doomed, 1);
    for (const kinds of [["mail"], ["", "null", "mail"]]) {
      const { keys, nextDueMs } = await writer.due(kinds);
      assert.deepEqual([keys, nextDueMs], [[], null]);
    }
  }),

  rule("a record becomes due when the store's clock passes its time", async (context) => {
    const writer = await context.connect();
    const startMs = await makeTimed(writer, (nowMs) => [blank("k", { kind: "mail", dueMs: nowMs + 40 })]);
    const early = await writer.due(["mail"]);
    if (early.nowMs < startMs + 40) assert.deepEqual([early.keys, early.nextDueMs], [[], startMs + 40]);
    await context.advanceTo(writer, startMs + 40);
    const late = await writer.due(["mail"]);
    assert.deepEqual([names(late.keys), late.nextDueMs], [["k"], null]);
    assert.ok(late.nowMs >= startMs + 40);
  }),

  rule("a changed time or kind counts immediately", async (context) => {
    const [writer, reader] = await context.connectTwo();
    let row = await writer.makeOne(blank("k", { kind: "mail", dueMs: 5 }));
    const looks = async (dueNow: boolean, kind: string, nextDueMs: number | null) => {
      const page = await reader.due([kind]);
      assert.deepEqual([names(page.keys), page.nextDueMs], [dueNow ? ["k"] : [], nextDueMs]);
    };
    await looks(true, "mail", null);
    row = await writer.change(row, { dueMs: 8e14 });
    await looks(false, "mail", 8e14);
    row = await writer.change(row, { dueMs: 8e14 - 1, holder: "ann" });
    await looks(false, "mail", 8e14 - 1);
    row = await writer.change(row, { dueMs: 7, holder: null });
    await looks(true, "mail", null);
    row = await writer.change(row, { kind: "call" });
    await looks(false, "mail", null);
    await looks(true, "call", null);
    row = await writer.change(row, { dueMs: null });
    await looks(false, "call", null);
    row = await writer.change(row, { dueMs: 9 });
    await looks(true, "call", null);
    await writer.remove(row, 1);
    await looks(false, "call", null);
  }),

  rule("a lease that has ended is due like a timer, and one that has not ended is the next due", async (context) => {
    const writer = await context.connect();
    await writer.make(
      blank("timer", { kind: "mail", dueMs: 2 }),
      blank("ended", { kind: "mail", dueMs: 1, holder: "ann", fence: 1, tries: 1 }),
      blank("held", { kind: "mail", dueMs: 8e14, holder: "bob", fence: 1, tries: 1 }),
    );
    const { keys, nextDueMs } = await writer.due(["mail"]);
    assert.deepEqual([names(keys), nextDueMs], [["ended", "timer"], 8e14]);
  }),
];
