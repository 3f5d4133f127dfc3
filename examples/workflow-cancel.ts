// A run is canceled while it waits, and cleans up: the wait throws, once, and steps after that run normally. The run ends as canceled because
// the function throws that error; if it caught the error and returned, the run would be completed.

import { open, RunCanceledError, signal, workflow } from "pawl";

const released = signal("released");

const hold = workflow("hold", async (ctx, seat: string) => {
  await ctx.step("take", () => console.log("taken:", seat));
  try {
    await ctx.waitForSignal(released);
  } finally {
    await ctx.step("free", () => console.log("freed:", seat));
  }
});

await using pawl = await open("seats.db");
pawl.work([hold]);

const run = await pawl.start(hold, "12A", { id: "hold-12A" });
await run.cancel({ reason: "the show is off" });
await run.result().catch((error: Error) => console.log(error instanceof RunCanceledError, error.message));
console.log((await run.status()).status);

// Output:
// taken: 12A
// freed: 12A
// true run "hold-12A" was canceled: the show is off
// canceled
