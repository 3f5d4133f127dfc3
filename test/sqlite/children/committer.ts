/**
 * Commits one value of a slot for each line it reads, and prints when, by the machine's monotonic clock: just before the
 * acknowledgement is known, so that a process that sees the value measures from no later than that.
 */

import { createInterface } from "node:readline";
import { open } from "../../../src/open.ts";

const [path = ""] = process.argv.slice(2);
const pawl = await open(path);
const slot = pawl.slot<number>("news");
process.stdout.write("ready\n");
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "") break;
  await slot.set(Number(line));
  process.stdout.write(`${process.hrtime.bigint()}\n`);
}
await pawl.close();
process.stdin.destroy();
