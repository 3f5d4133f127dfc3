// A run is canceled while it waits, and cleans up: the wait throws, once, and steps after that work as ever. The run is canceled because
// the error is thrown on; one that is caught for good would make it complete.

import { open, RunCanceledError, signal, workflow } from "pawl";

const released = signal("released");

const hold = workflow("hold", async (ctx, seat: string) => {
  await ctx.step("take", () => console.log("taken:", seat));
  try {
    await ctx.waitForSignal(released);
  } finally {
    await ctx.step("give back", () => console.log("given back:", seat));
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
// given back: 12A
// true run "hold-12A" was canceled: the show is off
// canceled
