/**
 * A process that waits for what another does: for a slot to change, for a lock to be released, for a signal to a run. It says so when it
 * is woken, and first of all whether it was warned when it opened the store. It waits for the lock each time that its parent says so.
 */

import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { type Context, workflow } from "../../../src/index.ts";
import { open } from "../../../src/open.ts";
import { names, rung, type WaiterArguments } from "../wake-ups.ts";

const { store, namespace } = JSON.parse(process.argv[2] ?? "") as WaiterArguments;
const say = (line: string): void => void writeSync(1, `${line}\n`);

let isWarned = false;
process.on("warning", (warning) => {
  if (warning.name === "PawlWarning" && "code" in warning && warning.code === "listen") isWarned = true;
});
const lines = createInterface({ input: process.stdin });
lines.on("close", () => process.exit(3));

const pawl = await open(store, { namespace });
// Warnings are given in the next turn.
await new Promise((resolve) => setTimeout(resolve, 50));

const bellman = workflow(names.workflow, async (ctx: Context) => {
  for (;;) {
    const came = await ctx.waitForSignal(rung);
    if (came.ok) await ctx.step("say", async () => say(`signaled ${came.value}`));
  }
});
pawl.work([bellman]);

lines.on("line", async () => {
  say("waiting");
  const hold = await pawl.mutex(names.lock).acquire();
  say("granted");
  await hold.release();
});

const slot = pawl.slot<number>(names.slot, { initial: 0 });
say(isWarned ? "warned" : "quiet");
let isFirst = true;
for await (const { value } of slot.watch()) {
  if (!isFirst) say(`saw ${value}`);
  isFirst = false;
}
