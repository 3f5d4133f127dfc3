/**
 * Watching: a store notices other writers' commits soon. No single call is guaranteed, so the laws commit until one comes.
 */

import assert from "node:assert/strict";
import { blank, type LawContext, type Rule, rule, sleep, type Writer } from "../law-context.ts";

/** How long a watch must not call back to count as stopped. */
const SILENT_MS = 25;

let names = 0;

/** Commits repeatedly until the condition holds. */
async function committing(context: LawContext, writer: Writer, what: string, isSo: () => boolean): Promise<void> {
  let looks = 0;
  await context.until(what, async () => {
    if (looks++ % 50 === 0) await writer.makeOne(blank(`k${names++}`));
    return isSo();
  });
}

/** Commits, and waits for late calls of a watch. */
async function stir(writer: Writer): Promise<void> {
  for (let n = 0; n < 3; n++) await writer.makeOne(blank(`k${names++}`));
  await sleep(SILENT_MS);
}

export const watching: readonly Rule[] = [
  rule("a watch is called for another writer's commit, repeatedly", async (context) => {
    const [writer, other] = await context.connectTwo();
    let calls = 0;
    const stop = writer.store.watch(() => {
      calls += 1;
    });
    for (const n of [1, 2, 3]) {
      const before = calls;
      await committing(context, other, `the watch is called, for the ${n}. time`, () => calls > before);
      // The commits can be read.
      assert.ok((await writer.list()).length >= n);
    }
    stop();
  }),

  rule("a watch that was stopped is not called, and may be stopped again", async (context) => {
    const [writer, other] = await context.connectTwo();
    let calls = 0;
    const stop = writer.store.watch(() => {
      calls += 1;
    });
    await committing(context, other, "the watch is called", () => calls > 0);
    stop();
    stop();
    calls = 0;
    await stir(other);
    assert.equal(calls, 0);
  }),

  rule("each watch of a store is called and stopped independently", async (context) => {
    const [writer, other] = await context.connectTwo();
    const calls = { first: 0, second: 0 };
    const stopFirst = writer.store.watch(() => {
      calls.first += 1;
    });
    const stopSecond = writer.store.watch(() => {
      calls.second += 1;
    });
    await committing(context, other, "both watches are called", () => calls.first > 0 && calls.second > 0);
    stopFirst();
    calls.first = 0;
    calls.second = 0;
    await committing(context, other, "the second watch is called without the first", () => calls.second > 0);
    assert.equal(calls.first, 0);
    stopSecond();
  }),

  rule("closing a store ends its watch", async (context) => {
    const [writer, other] = await context.connectTwo();
    let calls = 0;
    writer.store.watch(() => {
      calls += 1;
    });
    await committing(context, other, "the watch is called", () => calls > 0);
    await writer.store.close();
    calls = 0;
    await stir(other);
    assert.equal(calls, 0);
  }),
];
