/**
 * Watching: a store hears of other writers' commits soon. No single call is promised, so the laws commit until one comes.
 */

import assert from "node:assert/strict";
import { blank, type Rule, rest, rule, type Stage, type Writer } from "../stage.ts";

/** How long a watch must keep silent to count as stopped. */
const SILENT_MS = 25;

let names = 0;

/** Commits now and then until it is so. */
async function committing(stage: Stage, writer: Writer, what: string, isSo: () => boolean): Promise<void> {
  let looks = 0;
  await stage.until(what, async () => {
    if (looks++ % 50 === 0) await writer.makeOne(blank(`k${names++}`));
    return isSo();
  });
}

/** Commits, and waits for what a watch might still say. */
async function stir(writer: Writer): Promise<void> {
  for (let n = 0; n < 3; n++) await writer.makeOne(blank(`k${names++}`));
  await rest(SILENT_MS);
}

export const watching: readonly Rule[] = [
  rule("a watch hears of another writer's commit, again and again", async (stage) => {
    const [writer, other] = await stage.connectTwo();
    let calls = 0;
    const stop = writer.store.watch(() => {
      calls += 1;
    });
    for (const n of [1, 2, 3]) {
      const before = calls;
      await committing(stage, other, `a commit is heard, for the ${n}. time`, () => calls > before);
      // What was heard can be read.
      assert.ok((await writer.list()).length >= n);
    }
    stop();
  }),

  rule("a watch that was stopped is silent, and may be stopped again", async (stage) => {
    const [writer, other] = await stage.connectTwo();
    let calls = 0;
    const stop = writer.store.watch(() => {
      calls += 1;
    });
    await committing(stage, other, "a commit is heard", () => calls > 0);
    stop();
    stop();
    calls = 0;
    await stir(other);
    assert.equal(calls, 0);
  }),

  rule("each watch of a store is called, and stopped, on its own", async (stage) => {
    const [writer, other] = await stage.connectTwo();
    const calls = { first: 0, second: 0 };
    const stopFirst = writer.store.watch(() => {
      calls.first += 1;
    });
    const stopSecond = writer.store.watch(() => {
      calls.second += 1;
    });
    await committing(stage, other, "both watches hear", () => calls.first > 0 && calls.second > 0);
    stopFirst();
    calls.first = 0;
    calls.second = 0;
    await committing(stage, other, "the second watch hears without the first", () => calls.second > 0);
    assert.equal(calls.first, 0);
    stopSecond();
  }),

  rule("closing a store ends its watch", async (stage) => {
    const [writer, other] = await stage.connectTwo();
    let calls = 0;
    writer.store.watch(() => {
      calls += 1;
    });
    await committing(stage, other, "a commit is heard", () => calls > 0);
    await writer.store.close();
    calls = 0;
    await stir(other);
    assert.equal(calls, 0);
  }),
];
