/**
 * A process that writes the same slots again and again, each alone, as fast as it can, from one line of its input until the next. Says
 * "ready" before, and afterwards how many updates it made.
 */

import { once } from "node:events";
import { createInterface } from "node:readline";
import { open } from "../../../src/open.ts";

const [url = "", prefix = "", count = "", callers = ""] = process.argv.slice(2);
const pawl = await open(url);
const slots = Array.from({ length: Number(count) }, (_, i) => pawl.slot<number>(`${prefix}/${i}`, { initial: 0 }));
await Promise.all(slots.map((slot) => slot.update((n) => n)));

const lines = createInterface({ input: process.stdin });
process.stdout.write("ready\n");
await once(lines, "line");

let isOver = false;
const ended = once(lines, "line").then(() => {
  isOver = true;
});
let updates = 0;
const hammer = async (caller: number): Promise<void> => {
  for (let i = caller; !isOver; i++) {
    await slots[i % slots.length]?.update((n) => n + 1);
    updates += 1;
  }
};
await Promise.all([ended, ...Array.from({ length: Number(callers) }, (_, caller) => hammer(caller * 7))]);
process.stdout.write(`${updates}\n`);
await pawl.close();
lines.close();
