/**
 * One of many processes that count in the same slot: many increments by many concurrent callers, after "go".
 * Prints how long the others blocked it.
 */

import { once } from "node:events";
import { flushCompileCache } from "node:module";
import { open } from "../../../src/open.ts";
import { meterSqlite } from "./meter.ts";

const [path = "", amount = "", callers = ""] = process.argv.slice(2);
flushCompileCache();
const pawl = await open(path);
const waits = meterSqlite();
process.stdout.write("ready\n");
await once(process.stdin, "data");

const slot = pawl.slot<number>("count", { initial: 0 });
let left = Number(amount);
const seen: number[] = [];
async function call(): Promise<void> {
  while (left > 0) {
    left -= 1;
    const { value } = await slot.update((n) => n + 1);
    seen.push(value);
  }
}
await Promise.all(Array.from({ length: Number(callers) }, call));
await pawl.close();
process.stdout.write(`${JSON.stringify({ seen, waits })}\n`);
process.stdin.destroy();
