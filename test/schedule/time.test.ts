/**
 * Goal: what depends on time: jitter, starts and ends, definitions that come and go, rules of a time zone that change, and a history that does not grow.
 * Method: the simulated time of `openTest`; where the rules of a zone change, the function that computes the next times is replaced.
 */

import { describe, expect, it } from "vitest";
import { type Pawl, schedule, workflow } from "../../src/index.ts";
import { jitterOf } from "../../src/schedule/decide.ts";
import { declareSchedule } from "../../src/schedule/declare.ts";
import { scheduleRules } from "../../src/schedule/definition.ts";
import { type ScheduleValue, scheduleAt, tickRunId } from "../../src/schedule/stored.ts";
import { fireSchedule } from "../../src/schedule/ticks.ts";
import { type NextTime, nextTime } from "../../src/schedule/times.ts";
import { openTest, type TestPawl } from "../../src/testing/index.ts";
import { wordsOf } from "./kit.ts";

const START = Date.UTC(2030, 0, 1);
const HOUR = 3_600_000;
const brief = workflow("brief", async () => {});

const timesOf = async (pawl: Pawl, name: string): Promise<string[]> => {
  const { entries } = await pawl.schedules.history(name, { limit: 1000 });
  return entries.map(({ outcome, scheduledAt }) => `${outcome} ${scheduledAt.toISOString().slice(5, 16)}`).reverse();
};

it("a tick is due at its time and its jitter, and its run knows the time of the tick", async () => {
  await using pawl = openTest({ now: START });
  const seen: number[][] = [];
  const late = workflow("late", async (ctx) => void seen.push([ctx.scheduledAt.getTime(), ctx.now().getTime()]));
  pawl.work([late]);
  await pawl.schedules.create("jittery", { every: "1 hour", jitter: "20 minutes" }, late);
  await pawl.clock.advance("3 hours");
  await pawl.clock.advance("20 minutes");
  const ticks = [1, 2, 3].map((n) => START + n * HOUR);
  const delays = ticks.map((ms) => jitterOf("jittery", HOUR / 3, ms));
  expect(seen).toEqual(ticks.map((ms, i) => [ms, ms + (delays[i] ?? 0)]));
  expect(new Set(delays).size).toBe(3);
});

it("starts and ends are the first and the last moment", async () => {
  await using pawl = openTest({ now: START });
  pawl.work([brief]);
  const options = { every: "1 hour", starts: START + 90 * 60_000, ends: START + 3.5 * HOUR } as const;
  await pawl.schedules.create("bounded", options, brief);
  await pawl.clock.advance("10 hours");
  expect(await timesOf(pawl, "bounded")).toEqual(["fired 01-01T01:30", "fired 01-01T02:30", "fired 01-01T03:30"]);
  expect(await pawl.schedules.get("bounded")).toMatchObject({ state: "ended", nextAt: null });
});

it("a schedule that never ticks has ended when it is created", async () => {
  await using pawl = openTest({ now: START });
  expect(await pawl.schedules.create("never", { cron: "0 0 31 2 *" }, brief)).toMatchObject({ state: "ended" });
});

it("an update counts from now on", async () => {
  await using pawl = openTest({ now: START });
  pawl.work([brief]);
  await pawl.schedules.create("changed", { every: "4 hours", max: 5 }, brief);
  await pawl.clock.advance("5 hours");
  await pawl.schedules.update("changed", { cron: "30 * * * *" });
  await pawl.clock.advance("1 hour");
  await pawl.schedules.update("changed", { max: 3, timezone: "Asia/Kolkata" });
  await pawl.clock.advance("3 hours");
  expect(await timesOf(pawl, "changed")).toEqual(["fired 01-01T04:00", "fired 01-01T05:30", "fired 01-01T07:00"]);
  expect(await pawl.schedules.get("changed")).toMatchObject({ state: "ended", timezone: "Asia/Kolkata" });
});

describe("a schedule that is declared", () => {
  const declared = schedule("declared", { every: "1 hour" }, brief);

  it("is undeclared when no worker declares it, does not fire, and can be deleted", async () => {
    await using pawl = openTest({ now: START });
    const worker = pawl.work([brief, declared]);
    await pawl.clock.advance("90 minutes");
    await worker.stop();
    pawl.work([brief]);
    expect(await pawl.schedules.get(declared)).toMatchObject({ state: "active", fired: 1 });
    await pawl.clock.advance("3 hours");
    expect(await pawl.schedules.get(declared)).toMatchObject({ state: "undeclared", fired: 1, nextAt: null });
    expect(await pawl.schedules.delete("declared")).toEqual({ deleted: true });
  });

  it("makes up for the last tick when it is declared again", async () => {
    await using pawl = openTest({ now: START });
    await pawl.work([brief, declared]).stop();
    await pawl.clock.advance("150 minutes");
    pawl.work([brief, declared]);
    await pawl.clock.advance("1 second");
    expect(await timesOf(pawl, "declared")).toEqual(["missed 01-01T01:00", "fired 01-01T02:00"]);
  });

  it("of a lower revision counts when the higher one was not declared for a while", async () => {
    await using pawl = openTest({ now: START });
    const [low, high] = [1, 2].map((revision) => schedule("rolled", { every: "1 hour", revision }, brief));
    if (low === undefined || high === undefined) throw new Error("there are two");
    const worker = pawl.work([brief, high]);
    await pawl.clock.advance("1 second");
    pawl.work([low]);
    await pawl.clock.advance("10 seconds");
    await worker.stop();
    expect(await pawl.schedules.get("rolled")).toMatchObject({ revision: 2 });
    for (let i = 0; i < 5; i++) await pawl.clock.advance("61 seconds");
    expect(await pawl.schedules.get("rolled")).toMatchObject({ revision: 1, state: "active" });
  });

  it("does not replace one that was created at run time", async () => {
    await using pawl = openTest({ now: START });
    await pawl.schedules.create("declared", { every: "2 hours" }, brief);
    pawl.work([brief, declared]);
    await pawl.clock.advance("5 hours");
    expect(await pawl.schedules.get("declared")).toMatchObject({ isDeclared: false, everyMs: 2 * HOUR, fired: 2 });
  });

  it("is refused twice in one worker", async () => {
    await using pawl = openTest({ now: START });
    const other = schedule("declared", { every: "2 hours" }, brief);
    expect(() => pawl.work([declared, other])).toThrow('two schedules named "declared"');
  });
});

it.each(["allow", "queue"] as const)(
  "making up for many ticks computes each of them a few times: %s",
  async (overlap) => {
    const computed = async (catchUp: number): Promise<number> => {
      await using pawl = openTest({ now: START });
      const options = {
        every: "1 minute",
        catchUp,
        overlap: overlap === "allow" ? overlap : { queue: catchUp },
      } as const;
      await pawl.schedules.create("s", options, brief);
      await pawl.clock.advance(catchUp * 60_000);
      let count = 0;
      const next: NextTime = (timing, fromMs) => {
        count += 1;
        return nextTime(timing, fromMs);
      };
      const at = scheduleAt("s");
      for (let isLate = true; isLate; )
        isLate = await pawl.kernel.transact(
          (tx) => {
            fireSchedule(tx, at, undefined, next);
            return (tx.record(at).value as ScheduleValue).cursorMs < START + catchUp * 60_000;
          },
          [at],
        );
      const { fired, queued } = (await pawl.schedules.get("s")) ?? { fired: 0, queued: [] };
      expect(fired + queued.length).toBe(catchUp);
      return count;
    };
    const [some, many] = [await computed(100), await computed(900)];
    expect(many).toBeLessThan(12 * some);
  },
);

describe("a rule of the time zone that changes while a schedule sleeps", () => {
  const daily = schedule("daily", { cron: "0 8 * * *", timezone: "Europe/Berlin" }, brief);
  const rules = scheduleRules(daily);
  if (rules === undefined) throw new Error("it is no schedule");
  const at = scheduleAt("daily");
  /** As if the zone had moved its clocks. */
  const shifted =
    (ms: number): NextTime =>
    (timing, fromMs) =>
      (nextTime(timing, fromMs - ms) ?? 0) + ms;

  async function look(pawl: TestPawl, nowMs: number, next: NextTime) {
    await pawl.clock.advance(0);
    return pawl.kernel.transact(
      (tx) => {
        expect(tx.nowMs).toBe(nowMs);
        fireSchedule(tx, at, rules, next);
        const { dueMs, value } = tx.record(at);
        return { dueMs, fired: (value as ScheduleValue).lastFired?.atMs };
      },
      [at],
    );
  }
  it("a time that is no tick any more does not fire; the new one does", async () => {
    await using pawl = openTest({ now: START });
    const eight = START + 7 * HOUR;
    await pawl.kernel.transact((tx) => declareSchedule(tx, rules, true), [at]);
    await pawl.clock.advance("7 hours");
    expect(await look(pawl, eight, shifted(HOUR))).toEqual({ dueMs: eight + HOUR, fired: undefined });
    await pawl.clock.advance("1 hour");
    const nine = { dueMs: eight + 25 * HOUR, fired: eight + HOUR };
    expect(await look(pawl, eight + HOUR, shifted(HOUR))).toEqual(nine);
  });

  it("a tick that was moved to an earlier time fires once, when the schedule is looked at", async () => {
    await using pawl = openTest({ now: START });
    const eight = START + 7 * HOUR;
    await pawl.kernel.transact((tx) => declareSchedule(tx, rules, true), [at]);
    await pawl.clock.advance("7 hours");
    expect(await look(pawl, eight, shifted(-HOUR))).toEqual({ dueMs: eight + 23 * HOUR, fired: eight - HOUR });
  });

  it("a worker that begins with new rules sets the time anew", async () => {
    await using pawl = openTest({ now: START });
    const due = (next: NextTime) =>
      pawl.kernel.transact(
        (tx) => {
          declareSchedule(tx, rules, true, next);
          return tx.record(at).dueMs;
        },
        [at],
      );
    expect(await due(nextTime)).toBe(START + 7 * HOUR);
    expect(await due(shifted(-HOUR))).toBe(START + 6 * HOUR);
  });
});

it("a tick whose run a backfill has started starts no other", async () => {
  await using pawl = openTest({ now: START });
  await pawl.schedules.create("filled", { every: "1 hour", overlap: "allow" }, brief);
  await pawl.clock.advance("90 minutes");
  expect((await pawl.schedules.backfill("filled", { from: START, to: START + 2 * HOUR })).runs).toHaveLength(2);
  pawl.work([brief]);
  await pawl.clock.advance("1 second");
  expect(await timesOf(pawl, "filled")).toEqual(["fired 01-01T00:00", "fired 01-01T01:00", "skipped 01-01T01:00"]);
});

it("about a thousand entries of a history are kept, in pages", async () => {
  await using pawl = openTest({ now: START });
  const often = { every: "1 minute", overlap: "allow" } as const;
  await pawl.schedules.create("often", often, brief);
  pawl.work([brief]);
  await pawl.clock.advance("20 hours");
  const page = await pawl.schedules.history("often", { limit: 600 });
  const rest = await pawl.schedules.history("often", { limit: 600, before: page.next });
  expect([page.entries.length, rest.entries.length, rest.next]).toEqual([600, 400, null]);
  expect(page.entries[0]?.run).toBe(tickRunId("often", START + 20 * HOUR));
  const stored = await pawl.kernel.entries(scheduleAt("often"), 0, 10_000);
  expect(stored.length).toBeLessThan(1_300);
  expect((await wordsOf(pawl, "often")).length).toBe(1_000);
});

it("ids of runs fit for the longest name", async () => {
  await using pawl = openTest({ now: START });
  pawl.work([brief]);
  const name = "n".repeat(256);
  await pawl.schedules.create(name, { every: "1 hour" }, brief);
  await pawl.clock.advance("1 hour");
  expect((await pawl.schedules.get(name))?.lastFired?.run).toHaveLength(256);
});
