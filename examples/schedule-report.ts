// A report for each customer at eight in the morning of the customer's own time zone. The schedules are created at run time, and any worker fires them. When
// the clocks are put forward, the report still comes at eight.

import { workflow } from "pawl";
import { openTest } from "pawl/testing";

const report = workflow("report", async (ctx, customer: string) => {
  const since = ctx.lastScheduledAt?.toISOString() ?? "the beginning";
  console.log(`${ctx.scheduledAt.toISOString()} ${customer}: since ${since}`);
});

await using pawl = openTest({ now: new Date("2030-03-29T12:00:00Z") });
pawl.work([report]);

for (const [customer, timezone] of [
  ["ann", "Europe/Berlin"],
  ["bob", "Asia/Kolkata"],
] as const)
  await pawl.schedules.create(`report/${customer}`, { cron: "0 8 * * *", timezone }, report, customer);

await pawl.clock.advance("3 days");

const days = await pawl.schedules.preview({ cron: "0 8 * * MON#1", timezone: "Europe/Berlin" }, { count: 2 });
console.log("first Mondays:", days.map((day) => day.toISOString()).join(", "));

// Output:
// 2030-03-30T02:30:00.000Z bob: since the beginning
// 2030-03-30T07:00:00.000Z ann: since the beginning
// 2030-03-31T02:30:00.000Z bob: since 2030-03-30T02:30:00.000Z
// 2030-03-31T06:00:00.000Z ann: since 2030-03-30T07:00:00.000Z
// 2030-04-01T02:30:00.000Z bob: since 2030-03-31T02:30:00.000Z
// 2030-04-01T06:00:00.000Z ann: since 2030-03-31T06:00:00.000Z
// first Mondays: 2030-05-06T06:00:00.000Z, 2030-06-03T06:00:00.000Z
