/**
 * Opens each file that it is told of, at the moment it is told, adds one to a slot, closes it again, and says what the slot
 * had become; or why it could not.
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
