/**
 * Opens each file that it is given, at the given moment, adds one to a slot, closes it again, and prints the value of the
 * slot, or the error.
 */

import { createInterface } from "node:readline";
import { open } from "../../../src/open.ts";

process.stdout.write("ready\n");
for await (const path of createInterface({ input: process.stdin })) {
  if (path === "") break;
  try {
    const pawl = await open(path);
    const { value } = await pawl.slot<number>("starts", { initial: 0 }).update((n) => n + 1);
    await pawl.close();
    process.stdout.write(`${value}\n`);
  } catch (error) {
    process.stdout.write(`${error}\n`);
  }
}
process.stdin.destroy();
