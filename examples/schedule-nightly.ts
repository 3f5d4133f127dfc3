// A nightly job that sometimes takes longer than a day: the next tick is skipped while the run before it has not ended, and the history says so.
// Time is simulated here, so that a week passes in a moment.

import { schedule, workflow } from "pawl";
import { openTest } from "pawl/testing";

const cleanUp = workflow("clean-up", async (ctx, tables: readonly string[]) => {
  // On Wednesday there is much to do.
  await ctx.sleep(ctx.scheduledAt.getUTCDay() === 3 ? "30 hours" : "1 hour");
  return `${tables.length} tables`;
});

const nightly = schedule("nightly", { cron: "30 1 * * *" }, cleanUp, ["sessions", "carts"]);

await using pawl = openTest({ now: new Date("2030-01-01T00:00:00Z") });
pawl.work([cleanUp, nightly]);
await pawl.clock.advance("5 days");

const { entries } = await pawl.schedules.history("nightly");
for (const { outcome, scheduledAt, reason } of entries.toReversed())
  console.log(`${scheduledAt.toISOString()} ${outcome}${reason === null ? "" : `: ${reason}`}`);

const info = await pawl.schedules.get("nightly");
console.log(info?.state, info?.fired, info?.skipped, "next:", info?.nextAt?.toISOString());

// Output:
// 2030-01-01T01:30:00.000Z fired
// 2030-01-02T01:30:00.000Z fired
// 2030-01-03T01:30:00.000Z skipped: a run had not ended
// 2030-01-04T01:30:00.000Z fired
// 2030-01-05T01:30:00.000Z fired
// active 4 1 next: 2030-01-06T01:30:00.000Z
