/**
 * Goal: schedules keep their rules on every store: a tick starts one run, whichever process fires it, and overlap, catch-up, pausing, triggers and backfills do
 * what is documented.
 * Method: a schedule once an hour whose cursor is put back, so that ticks are due now, as after a downtime.
 */

import { describe, expect, it } from "vitest";
import { type Pawl, schedule, signal, workflow } from "../../src/index.ts";
import { tickRunId } from "../../src/schedule/stored.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { putBack, wordsOf } from "./kit.ts";

const HOUR = 3_600_000;
const hourly = { every: "1 hour" } as const;

const go = signal("go");
const quick = workflow("quick", async (ctx, input: string) => `${input} ${ctx.scheduledAt.toISOString()}`);
const waits = workflow("waits", async (ctx) => void (await ctx.waitForSignal(go)));

const idsOf = async (pawl: Pawl, prefix: string): Promise<string[]> =>
  (await pawl.runs.list({ prefix, order: "id" })).runs.map(({ id }) => id);

const isFired = async (pawl: Pawl, name: string, count: number): Promise<void> =>
  void (await expect.poll(async () => (await pawl.schedules.get(name))?.fired, PATIENCE).toBe(count));

/** The ticks of the last hours, as times. */
const ticksSince = (fromMs: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => (Math.floor(fromMs / HOUR) + 1 + i) * HOUR);

onStores(EVERY, (place) => {
  it("a tick starts one run, although four processes look", async () => {
    const handles = await Promise.all([1, 2, 3, 4].map(() => place.open()));
    const [pawl] = handles;
    if (pawl === undefined) throw new Error("there is no handle");
    await pawl.schedules.create("often", { ...hourly, catchUp: 5, overlap: "allow" }, quick, "a");
    for (const one of handles) one.work([quick]);
    const fromMs = await putBack(pawl, "often", 5 * HOUR);
    await isFired(pawl, "often", 5);
    const ids = ticksSince(fromMs, 5).map((ms) => tickRunId("often", ms));
    expect(await idsOf(pawl, "often/")).toEqual(ids);
    const [first = ""] = ids;
    expect(await pawl.run(first).result({ timeout: "60s" })).toBe(`a ${first.slice(6)}`);
    expect(await wordsOf(pawl, "often")).toEqual(["fired", "fired", "fired", "fired", "fired"]);
  });

  it("a declared schedule is fired by the workers that declare it, and by no other", async () => {
    const [mine, other] = [await place.open(), await place.open()];
    const declared = schedule("declared", hourly, quick, ({ scheduledAt, lastScheduledAt }) =>
      [scheduledAt.getTime() % HOUR, lastScheduledAt].join(),
    );
    other.work([quick]);
    const worker = mine.work([declared]);
    await expect.poll(async () => (await mine.schedules.get("declared"))?.state, PATIENCE).toBe("active");
    await putBack(other, "declared", HOUR);
    await isFired(mine, "declared", 1);
    const [run = ""] = await idsOf(mine, "declared/");
    expect(await mine.run(run).result({ timeout: "60s" })).toBe(`0, ${run.slice(9)}`);
    await worker.stop();
    expect(await codeOf(other.schedules.trigger("declared"))).toBe("schedule_code_missing");
    expect((await other.schedules.trigger(declared)).run).toMatch(/^declared\/trigger\//);
    expect(await codeOf(other.schedules.delete("declared"))).toBe("schedule_declared");
    expect(await codeOf(other.schedules.update("declared", { max: 3 }))).toBe("schedule_declared");
  });

  describe("an overlap", () => {
    it("is skipped by default", async () => {
      const pawl = await place.open();
      await pawl.schedules.create("skipping", { ...hourly, catchUp: 2 }, waits);
      pawl.work([waits]);
      const { id: run } = await pawl.start(waits);
      await putBack(pawl, "skipping", HOUR, run);
      await expect.poll(() => wordsOf(pawl, "skipping"), PATIENCE).toEqual(["skipped"]);
      const { entries } = await pawl.schedules.history("skipping");
      expect(entries[0]).toMatchObject({ run, reason: "a run had not ended" });
    });

    it("waits for the end of the run, in line, and what exceeds the line is skipped", async () => {
      const pawl = await place.open();
      await pawl.schedules.create("lined", { ...hourly, catchUp: 4, overlap: { queue: 2 } }, waits);
      pawl.work([waits]);
      const fromMs = await putBack(pawl, "lined", 4 * HOUR);
      await expect.poll(() => wordsOf(pawl, "lined"), PATIENCE).toEqual(["fired", "queued", "queued", "skipped"]);
      const ids = ticksSince(fromMs, 3).map((ms) => tickRunId("lined", ms));
      for (const [i, id] of ids.entries()) {
        await expect.poll(() => idsOf(pawl, "lined/"), PATIENCE).toEqual(ids.slice(0, i + 1));
        await pawl.run(id).signal(go);
        await pawl.run(id).result({ timeout: "60s" });
      }
      expect((await wordsOf(pawl, "lined")).slice(4)).toEqual(["fired", "fired"]);
      expect((await pawl.schedules.get("lined"))?.queued).toEqual([]);
    });

    it("cancels the run and starts the next, in one commit", async () => {
      const pawl = await place.open();
      await pawl.schedules.create("fresh", { ...hourly, catchUp: 2, overlap: "cancel-running" }, waits);
      pawl.work([waits]);
      const first = await pawl.start(waits);
      await putBack(pawl, "fresh", 2 * HOUR, first.id);
      await isFired(pawl, "fresh", 1);
      expect(await codeOf(first.result({ timeout: "60s" }))).toBe("run_canceled");
      const [second = ""] = await idsOf(pawl, "fresh/");
      expect((await pawl.run(second).status()).isCancelRequested).toBe(false);
      expect(await wordsOf(pawl, "fresh")).toEqual(["skipped", "fired"]);
    });
  });

  describe("after a downtime", () => {
    const rules = [
      { catchUp: "none", words: ["missed 3"] },
      { catchUp: "last", words: ["missed 2", "fired"] },
      { catchUp: 2, words: ["missed", "fired", "fired"] },
    ] as const;
    it.each(rules)("catchUp $catchUp", async ({ catchUp, words }) => {
      const pawl = await place.open();
      const name = `down-${catchUp}`;
      // A tick of the last 30 s would be on time.
      await pawl.schedules.create(name, { every: "1 hour", starts: HOUR / 2, overlap: "allow", catchUp }, quick, "a");
      await putBack(pawl, name, 3 * HOUR);
      pawl.work([quick]);
      await expect.poll(() => wordsOf(pawl, name), PATIENCE).toEqual(words);
    });
  });

  it("pauses and resumes; ticks meanwhile are skipped", async () => {
    const pawl = await place.open();
    pawl.work([quick]);
    await pawl.schedules.create("paused", { ...hourly, overlap: "allow", catchUp: 5 }, quick, "a");
    expect(await pawl.schedules.pause("paused", { reason: "holidays" })).toMatchObject({
      state: "paused",
      nextAt: null,
      paused: { reason: "holidays" },
    });
    await putBack(pawl, "paused", 2 * HOUR);
    expect(await pawl.schedules.resume("paused")).toMatchObject({
      state: "active",
      fired: 0,
      skipped: 2,
      paused: null,
    });
    expect(await wordsOf(pawl, "paused")).toEqual(["skipped 2"]);
  });

  it("triggers a run beyond the ticks, and starts those that are missing between two times", async () => {
    const pawl = await place.open();
    await pawl.schedules.create("manual", { ...hourly, max: 2, overlap: "allow" }, quick, "a");
    pawl.work([quick]);
    const { run } = await pawl.schedules.trigger("manual");
    expect(await pawl.run(run).result({ timeout: "60s" })).toMatch(/^a /);
    const to = Math.floor((await pawl.kernel.transact((tx) => tx.nowMs, [])) / HOUR) * HOUR;
    const from = to - 2 * HOUR;
    const one = await pawl.schedules.backfill("manual", { from, to, limit: 2 });
    expect(one.runs).toEqual([from, from + HOUR].map((ms) => tickRunId("manual", ms)));
    const two = await pawl.schedules.backfill("manual", { from: one.next ?? 0, to });
    expect(two).toEqual({ runs: [tickRunId("manual", to)], next: null });
    expect(await pawl.schedules.backfill("manual", { from, to })).toEqual({ runs: [], next: null });
    expect(await pawl.schedules.get("manual")).toMatchObject({ fired: 0, state: "active" });
  });

  it("a trigger that is repeated with its id is the same run", async () => {
    const pawl = await place.open();
    await pawl.schedules.create("manual", hourly, quick, "a");
    const { run } = await pawl.schedules.trigger("manual", { id: "from the mail of Monday" });
    expect(run).toBe("manual/trigger/from the mail of Monday");
    const again = await place.open();
    expect(await again.schedules.trigger("manual", { id: "from the mail of Monday" })).toEqual({ run });
    expect((await again.schedules.trigger("manual", { id: "another" })).run).not.toBe(run);
    expect((await again.schedules.trigger("manual")).run).not.toBe((await again.schedules.trigger("manual")).run);
    expect(await wordsOf(pawl, "manual")).toEqual(["fired", "fired", "fired", "fired"]);
    const long = { id: "x".repeat(256) };
    expect(await pawl.schedules.trigger("manual", long)).toEqual(await pawl.schedules.trigger("manual", long));
    expect(await codeOf(pawl.schedules.trigger("manual", { id: "" }))).toBe("invalid_id");
  });

  it("an update with null takes an option away", async () => {
    const pawl = await place.open();
    const far = Date.now() + 1000 * HOUR;
    const all = { jitter: "1 minute", starts: far, ends: far + HOUR, max: 3, catchUp: 5, overlap: "allow" } as const;
    await pawl.schedules.create("one", { cron: "0 3 * * *", timezone: "Europe/Berlin", ...all }, quick, "a");
    const options = { jitter: null, starts: null, ends: null, max: null, catchUp: null, overlap: null, timezone: null };
    const updated = await pawl.schedules.update("one", options);
    await pawl.schedules.create("two", { cron: "0 3 * * *" }, quick, "a");
    const { name: _, createdAt: _created, ...other } = (await pawl.schedules.get("two")) ?? {};
    expect(updated).toMatchObject(other);
    expect(await codeOf(pawl.schedules.update("one", { cron: null as never }))).toBe("invalid_argument");
    expect((await pawl.schedules.update("one", { ends: undefined, max: 5 })).cron).toBe("0 3 * * *");
  });

  it("creates, updates, lists and deletes", async () => {
    const pawl = await place.open();
    await pawl.schedules.create("one", { cron: "0 3 * * *", timezone: "Europe/Berlin" }, quick, "a");
    expect(await codeOf(pawl.schedules.create("one", hourly, quick, "a"))).toBe("schedule_exists");
    await pawl.schedules.create("two", hourly, "unknown", { any: "thing" });
    const updated = await pawl.schedules.update("one", { every: "2 hours", overlap: "allow", input: "b" });
    expect(updated).toMatchObject({ cron: null, timezone: null, everyMs: 2 * HOUR, overlap: "allow" });
    const { schedules, next } = await pawl.schedules.list({ limit: 1 });
    expect([schedules.map(({ name }) => name), next]).toEqual([["one"], "one"]);
    expect((await pawl.schedules.list({ after: next })).schedules.map(({ name }) => name)).toEqual(["two"]);
    expect(await pawl.schedules.delete("one")).toEqual({ deleted: true });
    expect(await pawl.schedules.delete("one")).toEqual({ deleted: false });
    expect(await pawl.schedules.get("one")).toBeNull();
    expect(await codeOf(pawl.schedules.pause("one"))).toBe("schedule_not_found");
    await pawl.schedules.create("one", hourly, quick, "a");
    expect(await wordsOf(pawl, "one")).toEqual([]);
  });

  it("a tick whose input is refused is recorded, and the next one is decided", async () => {
    const pawl = await place.open();
    const broken = schedule("broken", { ...hourly, catchUp: 2, overlap: "allow" }, quick, ({ lastScheduledAt }) => {
      throw new Error(`no input ${lastScheduledAt}`);
    });
    pawl.work([quick, broken]);
    await expect.poll(async () => (await pawl.schedules.get("broken"))?.state, PATIENCE).toBe("active");
    await putBack(pawl, "broken", 2 * HOUR);
    await expect.poll(() => wordsOf(pawl, "broken"), PATIENCE).toEqual(["failed", "failed"]);
    expect((await pawl.schedules.history("broken")).entries[0]?.reason).toContain("no input");
  });

  it("of two definitions the higher revision counts, while a worker declares it", async () => {
    const [old, next] = [await place.open(), await place.open()];
    const first = schedule("rolling", { ...hourly, overlap: "allow", revision: 1 }, quick, "old");
    const second = schedule("rolling", { ...hourly, overlap: "allow", revision: 2 }, quick, "new");
    next.work([quick, second]);
    await expect.poll(async () => (await next.schedules.get("rolling"))?.revision, PATIENCE).toBe(2);
    old.work([quick, first]);
    await putBack(old, "rolling", HOUR);
    await isFired(next, "rolling", 1);
    const [run = ""] = await idsOf(next, "rolling/");
    expect(await next.run(run).result({ timeout: "60s" })).toMatch(/^new /);
    expect((await old.schedules.get("rolling"))?.revision).toBe(2);
  });
});
