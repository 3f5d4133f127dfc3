// biome-ignore-all lint/style/noRestrictedImports: the example waits for the workers.

// A rolling deploy: workers with the old and the new code of a workflow on one database. A worker whose code contradicts a run's history releases
// the run to others, so each run ends with the code that began it. New runs are begun by either.

import { setTimeout as pause } from "node:timers/promises";
import { open, workflow } from "pawl";

const before = workflow("order", async (ctx) => {
  await ctx.step("charge", () => {});
  await ctx.sleep("50ms");
  return ctx.step("ship", () => "shipped by the old code");
});
const after = workflow("order", async (ctx) => {
  await ctx.step("reserve", () => {});
  await ctx.sleep("50ms");
  return ctx.step("send", () => "sent by the new code");
});

const lines: string[] = [];
const logger = { warn: (line: string) => void lines.push(line), error: (line: string) => void lines.push(line) };
await using left = await open("deploy.db", { logger });
await using right = await open("deploy.db", { logger });

const old = left.work([before], { warm: 0 });
const run = await left.start(before, undefined, { id: "order-1" });
while ((await run.status()).status !== "waiting") await pause(5);
await old.stop();

// Only workers with the new code are left: the run is not parked, but released.
right.work([after], { warm: 0, parkContradictedAfter: "1 hour" });
while (lines.length === 0) await pause(5);
console.log(lines[0]);
left.work([before]);
console.log(await run.result());

// Output:
// pawl: run "order-1": the history says "step charge", but the code waits for "step reserve". It is left to workers with other code
// shipped by the old code
