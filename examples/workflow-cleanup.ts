// biome-ignore-all lint/style/noRestrictedImports: the example waits for the run.

// A run is canceled while a step creates a machine. The step's abortSignal aborts, but the machine exists already: the outcome is recorded, and the
// error has it, so that the cleanup knows what to delete. A second run is canceled inside `ctx.shield`, which runs to its end first.

import { setTimeout as pause } from "node:timers/promises";
import { open, RunCanceledError, workflow } from "pawl";

const making = Promise.withResolvers<void>();

/** Stands for a service that cannot stop in the middle. */
async function makeMachine(abortSignal: AbortSignal): Promise<string> {
  making.resolve();
  await new Promise((resolve) => abortSignal.addEventListener("abort", resolve));
  return "vm-1";
}

const build = workflow({ name: "build", grace: "5 minutes" }, async (ctx) => {
  let machine: unknown;
  try {
    machine = await ctx.step("make", ({ abortSignal }) => makeMachine(abortSignal));
    return await ctx.step("build", () => "built");
  } catch (error) {
    if (error instanceof RunCanceledError && error.data.outcome !== undefined && "ok" in error.data.outcome)
      machine = error.data.outcome.ok;
    throw error;
  } finally {
    if (machine !== undefined) await ctx.step("delete", () => console.log("deleted:", machine));
  }
});

const transfer = workflow("transfer", async (ctx) => {
  await ctx.shield(async (ctx) => {
    await ctx.step("withdraw", () => console.log("withdrawn"));
    await ctx.sleep("1s");
    await ctx.step("deposit", () => console.log("deposited"));
  });
  await ctx.step("notify", () => console.log("notified"));
});

await using pawl = await open("builds.db");
pawl.work([build, transfer]);
const run = await pawl.start(build, undefined, { id: "build-1" });
await making.promise;
console.log(await run.cancel({ reason: "no longer needed" }));
await run.result().catch((error: Error) => console.log(error.message));

const other = await pawl.start(transfer, undefined, { id: "transfer-1" });
while ((await other.status()).status !== "waiting") await pause(5);
await other.cancel();
await other.result().catch((error: Error) => console.log(error.message));

// Output:
// { status: 'running' }
// deleted: vm-1
// run "build-1" was canceled: no longer needed
// withdrawn
// deposited
// run "transfer-1" was canceled
