// No worker was there over the weekend. On Monday, `catchUp` says what happens with the ticks that were missed: here, the last two are made up for, one after the
// other. An operator starts the others by hand.

import { schedule, workflow } from "pawl";
import { openTest } from "pawl/testing";

const invoice = workflow("invoice", async (_ctx, day: string) => {
  console.log("invoices of", day);
});

const invoices = schedule(
  "invoices",
  { cron: "0 */12 * * *", catchUp: 2, overlap: "queue" },
  invoice,
  ({ scheduledAt }) => scheduledAt.toISOString().slice(0, 13),
);

await using pawl = openTest({ now: new Date("2030-01-04T10:00:00Z") });
const friday = pawl.work([invoice, invoices]);
await pawl.clock.advance("4 hours");
await friday.stop();

await pawl.clock.advance("66 hours");
console.log("Monday:", (await pawl.schedules.get(invoices))?.state);
pawl.work([invoice, invoices]);
await pawl.clock.advance("1 second");

const { entries } = await pawl.schedules.history(invoices);
for (const { outcome, scheduledAt, count } of entries.toReversed())
  console.log(outcome, count, "from", scheduledAt.toISOString());

const { runs } = await pawl.schedules.backfill(invoices, {
  from: new Date("2030-01-05T00:00:00Z"),
  to: new Date("2030-01-06T00:00:00Z"),
});
await pawl.clock.advance("1 second");
console.log("by hand:", runs.length);

// Output:
// invoices of 2030-01-04T12
// Monday: undeclared
// invoices of 2030-01-06T12
// invoices of 2030-01-07T00
// fired 1 from 2030-01-04T12:00:00.000Z
// missed 3 from 2030-01-05T00:00:00.000Z
// fired 1 from 2030-01-06T12:00:00.000Z
// queued 1 from 2030-01-07T00:00:00.000Z
// fired 1 from 2030-01-07T00:00:00.000Z
// invoices of 2030-01-05T00
// invoices of 2030-01-05T12
// invoices of 2030-01-06T00
// by hand: 3
