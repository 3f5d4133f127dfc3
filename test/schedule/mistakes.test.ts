/**
 * Goal: an error about a schedule says which schedule and which option it is about, and what is accepted.
 * Method: mistakes, each with the essential words of its message.
 */

import { describe, expect, test } from "vitest";
import { schedule, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";

const job = workflow("job", async () => 1);

describe("schedule()", () => {
  const mistakes = [
    { options: { cron: "0 3 * * *", tz: "UTC" }, says: 'the options of schedule "s" must not have "tz"' },
    { options: {}, says: 'the options of schedule "s" must have exactly one of' },
    { options: { every: "hour" }, says: 'schedule "s": every must be' },
    { options: { every: "100ms" }, says: 'schedule "s": every must be at least a second' },
    { options: { every: "1h", timezone: "UTC" }, says: 'schedule "s": timezone must be given with cron only' },
    { options: { every: "1h", jitter: "some" }, says: 'schedule "s": jitter must be' },
    { options: { every: "1h", starts: "2030" }, says: 'schedule "s": starts must be a valid Date' },
    { options: { every: "1h", ends: "2030" }, says: 'schedule "s": ends must be a valid Date' },
    { options: { every: "1h", max: 0 }, says: 'schedule "s": max must be' },
    { options: { every: "1h", overlap: "cancel" }, says: 'schedule "s": overlap must be "skip"' },
    { options: { every: "1h", overlap: { queue: 0 } }, says: 'schedule "s": overlap.queue must be' },
    { options: { every: "1h", catchUp: "all" }, says: 'schedule "s": catchUp must be "none"' },
    { options: { every: "1h", catchUp: 5000 }, says: 'schedule "s": catchUp must be a whole number' },
    { options: { every: "1h", revision: "2" }, says: 'schedule "s": revision must be' },
    { options: { at: "2030-01-01" }, says: 'schedule "s": at must be a valid Date' },
    { options: { at: ["2030-01-01"] }, says: 'schedule "s": at must be a valid Date' },
    { options: { at: [] }, says: 'schedule "s": at must be a date, or a list of 1 to 1000 dates' },
    {
      options: { cron: "0 3 * * FOO" },
      says: '"FOO" has characters that are not allowed there: use numbers, or the names SUN to SAT',
    },
    { options: { cron: "x 3 * * *" }, says: /"x" has characters that are not allowed there: use numbers$/ },
    { options: { cron: "@nightly" }, says: "there is no such nickname; there are @hourly, @daily," },
  ];
  test.each(mistakes)("$says", ({ options, says }) => {
    expect(() => schedule("s", options as never, job)).toThrow(says);
  });
});

describe("pawl.schedules", () => {
  test("names the schedule as well", async () => {
    await using pawl = openTest();
    const bad = { cron: "0 3 * * *", tz: "UTC" };
    await expect(pawl.schedules.create("c", bad, job)).rejects.toThrow(
      'the options of schedule "c" must not have "tz"',
    );
    await pawl.schedules.create("c", { every: "1h" }, job);
    await expect(pawl.schedules.update("c", { every: "hour" })).rejects.toThrow('schedule "c": every must be');
    await expect(pawl.schedules.preview(bad)).rejects.toThrow('the options must not have "tz"');
  });

  test("refuses times that are all past; one that is not is enough, and declared schedules may have any", async () => {
    await using pawl = openTest({ now: new Date("2031-05-01T00:00:00Z") });
    const past = new Date("2031-05-01T00:00:00Z");
    for (const at of [past, [new Date("2030-01-01T00:00:00Z"), past]])
      await expect(pawl.schedules.create("c", { at }, job)).rejects.toMatchObject({
        code: "invalid_argument",
        message: expect.stringContaining('schedule "c": at must have a time that is not past'),
      });
    expect(await pawl.schedules.get("c")).toBeNull();
    const future = new Date("2031-05-01T00:00:00.001Z");
    expect((await pawl.schedules.create("c", { at: [past, future] }, job)).state).toBe("active");
    const declared = schedule("d", { at: past }, job);
    await pawl.work([job, declared]).ready;
    await expect.poll(async () => (await pawl.schedules.get("d"))?.state).toBe("ended");
  });
});
