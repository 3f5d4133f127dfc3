/**
 * A process that, in one moment, asks for a decision on each of many large slots, and says how they ended and how many megabytes were in use
 * at most. The slots are made by another process, so that what that takes is not counted. It needs `--expose-gc`.
 *
 * What is in use is measured where most is: inside decisions, when the values of their batch have been read, after a full collection. How much
 * garbage there is beside it depends on how fast the machine is, and on what else it does.
 */

import assert from "node:assert/strict";
import { open } from "../../../src/open.ts";
import { endsOf } from "../kit.ts";
import { largeSlots } from "../large.ts";

const [url = "", what = "", count = ""] = process.argv.slice(2);
const pawl = await open(url);
const slots = largeSlots(pawl, Number(count));
if (what === "make") {
  // One at a time, and each alone.
  const text = "x".repeat(970 * 1024);
  for (const slot of slots) await slot.set(text);
  process.stdout.write(`${JSON.stringify({ ends: {}, megabytes: 0 })}\n`);
} else {
  let most = 0;
  let isMeasured = false;
  /** Once for all decisions that are made together: a collection takes longer than they do. */
  const measure = (): void => {
    if (isMeasured) return;
    isMeasured = true;
    setImmediate(() => {
      isMeasured = false;
    });
    assert(global.gc !== undefined, "needs --expose-gc");
    global.gc();
    const { heapUsed, external } = process.memoryUsage();
    most = Math.max(most, Math.round((heapUsed + external) / 1024 / 1024));
  };
  const read = (slot: (typeof slots)[number]): Promise<number | undefined> =>
    pawl.transact(
      (tx) => {
        const { value } = tx.slot(slot).get();
        measure();
        return value?.length;
      },
      { touches: [slot] },
    );
  const ends = await endsOf(slots.map(read));
  process.stdout.write(`${JSON.stringify({ ends, megabytes: most })}\n`);
}
await pawl.close();
