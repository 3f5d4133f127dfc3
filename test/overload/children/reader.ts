/**
 * A process that, in one moment, asks for a decision on each of many large slots, and says how they ended and how much memory it took
 * at most, in megabytes. The slots are made by another process, so that what that takes is not counted.
 */

import { open } from "../../../src/open.ts";
import { endsOf } from "../kit.ts";
import { largeSlots } from "../large.ts";

const [url = "", what = "", count = ""] = process.argv.slice(2);
const pawl = await open(url);
const slots = largeSlots(pawl, Number(count));
const megabytes = (): number => Math.round(process.memoryUsage.rss() / 1024 / 1024);
if (what === "make") {
  // One at a time, and each alone.
  const text = "x".repeat(970 * 1024);
  for (const slot of slots) await slot.set(text);
  process.stdout.write(`${JSON.stringify({ ends: {}, megabytes: megabytes() })}\n`);
} else {
  let most = megabytes();
  const watching = setInterval(() => {
    most = Math.max(most, megabytes());
  }, 20);
  const ends = await endsOf(
    slots.map((slot) => pawl.transact((tx) => tx.slot(slot).get().value?.length, { touches: [slot] })),
  );
  clearInterval(watching);
  process.stdout.write(`${JSON.stringify({ ends, megabytes: Math.max(most, megabytes()) })}\n`);
}
await pawl.close();
