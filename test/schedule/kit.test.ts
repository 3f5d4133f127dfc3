/** Schedules with the test kit: its clock stops at each tick. */

import { expect, it } from "vitest";
import { schedule, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";

const go = signal("go");

it("a declared schedule starts a run for each tick, and its code knows the times", async () => {
  await using pawl = openTest({ now: Date.UTC(2030, 0, 1) });
  const seen: unknown[] = [];
  const report = workflow("report", async (ctx, input: string) => {
    seen.push([ctx.runId, ctx.scheduledAt.toISOString(), ctx.lastScheduledAt?.toISOString(), input]);
  });
  const nightly = schedule("nightly", { cron: "30 1 * * *", timezone: "Europe/Berlin" }, report, ({ scheduledAt }) =>
    scheduledAt.toISOString().slice(0, 10),
  );
  pawl.work([report, nightly]);
  await pawl.clock.advance("3 days");
  expect(seen).toEqual([
    ["nightly/2030-01-01T00:30:00.000Z", "2030-01-01T00:30:00.000Z", undefined, "2030-01-01"],
    ["nightly/2030-01-02T00:30:00.000Z", "2030-01-02T00:30:00.000Z", "2030-01-01T00:30:00.000Z", "2030-01-02"],
    ["nightly/2030-01-03T00:30:00.000Z", "2030-01-03T00:30:00.000Z", "2030-01-02T00:30:00.000Z", "2030-01-03"],
  ]);
  expect(await pawl.schedules.get("nightly")).toMatchObject({
    state: "active",
    fired: 3,
    missed: 0,
    nextAt: new Date("2030-01-04T00:30:00Z"),
  });
});

it("a wait that only ticks of schedules could end is given up, and says so", async () => {
  await using pawl = openTest({ now: Date.UTC(2030, 0, 1) });
  const waits = workflow("waits", async (ctx) => void (await ctx.waitForSignal(go)));
  const ping = workflow("ping", async () => {});
  pawl.work([waits, ping, schedule("pings", { every: "2s" }, ping)]);
  const run = await pawl.start(waits, undefined, { id: "w" });
  await expect(run.result()).rejects.toThrow(
    /within 500 ticks of schedules, and nothing else is left.*run "w" is waiting/,
  );
});

it("a wait for what is due later passes any number of ticks", async () => {
  await using pawl = openTest({ now: Date.UTC(2030, 0, 1) });
  const sleeps = workflow("sleeps", async (ctx) => void (await ctx.sleep("11 hours")));
  const ping = workflow("ping", async () => {});
  pawl.work([sleeps, ping, schedule("pings", { every: "1 minute", overlap: "allow" }, ping)]);
  await (await pawl.start(sleeps)).result();
  expect(await pawl.schedules.get("pings")).toMatchObject({ fired: 11 * 60 });
});

it("a schedule that was created is fired by every worker", async () => {
  await using pawl = openTest({ now: Date.UTC(2030, 0, 1) });
  const seen: string[] = [];
  const ping = workflow("ping", async (ctx, input: number) => void seen.push(`${ctx.runId} ${input}`));
  pawl.work([ping]);
  await pawl.schedules.create("pings", { every: "1 hour", max: 2 }, ping, 7);
  await pawl.clock.advance("5 hours");
  expect(seen).toEqual(["pings/2030-01-01T01:00:00.000Z 7", "pings/2030-01-01T02:00:00.000Z 7"]);
  expect(await pawl.schedules.get("pings")).toMatchObject({ state: "ended", fired: 2, nextAt: null });
  const { entries } = await pawl.schedules.history("pings");
  expect(entries.map(({ outcome, run }) => [outcome, run])).toEqual([
    ["fired", "pings/2030-01-01T02:00:00.000Z"],
    ["fired", "pings/2030-01-01T01:00:00.000Z"],
  ]);
});
