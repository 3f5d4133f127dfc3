// A trip is booked with three vendors, or with none. Bookings are undone in reverse order by ordinary steps, so undoing resumes after a crash
// too. A cancellation is thrown as an error as well, and is cleaned up after in the same way.

import { NonRetryableError, open, RunFailedError, workflow } from "pawl";

/** Stands for the vendors. */
const booked = new Set<string>();
function book(what: string): string {
  if (what === "car") throw new NonRetryableError("no car left");
  booked.add(what);
  return `${what}-1`;
}
function cancel(what: string): void {
  booked.delete(what);
  console.log("canceled:", what);
}

const trip = workflow("trip", async (ctx) => {
  const undo: (() => PromiseLike<void>)[] = [];
  try {
    for (const what of ["flight", "hotel", "car"]) {
      // Before the booking, because a booking that fails may have happened nevertheless.
      undo.unshift(() => ctx.step(`cancel ${what}`, () => cancel(what)));
      await ctx.step(`book ${what}`, () => book(what));
    }
  } catch (error) {
    for (const step of undo) await step();
    throw error;
  }
});

await using pawl = await open("trips.db");
pawl.work([trip]);

const run = await pawl.start(trip);
try {
  await run.result();
} catch (error) {
  if (!(error instanceof RunFailedError)) throw error;
  console.log(error.message.replace(run.id, "…"));
}
console.log("booked:", booked.size, "and the run is", (await run.status()).status);

// Output:
// canceled: car
// canceled: hotel
// canceled: flight
// run "…" failed: no car left
// booked: 0 and the run is failed
