/**
 * Goal: next times are right through daylight saving changes, in zones of both hemispheres, with shifts of half an hour, at midnight and in reverse.
 * Method: rows for what is documented; and random expressions against a reference that looks at every minute of some days around each change.
 */

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { checkCron, nextOfCron } from "./cron.ts";
import { InvalidCronError, InvalidTimezoneError } from "./errors.ts";
import { nextTime } from "./times.ts";
import { checkTimezone } from "./zone.ts";

function timesOf(cron: string, zone: string, from: string, count: number): string[] {
  const times: string[] = [];
  for (let ms: number | undefined = Date.parse(from); times.length < count; ) {
    ms = nextOfCron(cron, zone, ms);
    if (ms === undefined) break;
    times.push(new Date(ms).toISOString().slice(5, 16));
  }
  return times;
}

describe("daylight saving", () => {
  const rules = [
    {
      rule: "Berlin, gap: fires at the first moment after it",
      zone: "Europe/Berlin",
      cron: "30 2 * * *",
      from: "2026-03-28T00:00Z",
      times: ["03-28T01:30", "03-29T01:00", "03-30T00:30"],
    },
    {
      rule: "Berlin, gap: several times in it fire once",
      zone: "Europe/Berlin",
      cron: "*/15 2 * * *",
      from: "2026-03-28T01:50Z",
      times: ["03-29T01:00", "03-30T00:00"],
    },
    {
      rule: "Berlin, gap: one of two hours",
      zone: "Europe/Berlin",
      cron: "0 2,14 * * *",
      from: "2026-03-29T00:00Z",
      times: ["03-29T01:00", "03-29T12:00"],
    },
    {
      rule: "Berlin, gap: every hour",
      zone: "Europe/Berlin",
      cron: "15 * * * *",
      from: "2026-03-29T00:00Z",
      times: ["03-29T00:15", "03-29T01:15", "03-29T02:15"],
    },
    {
      rule: "Berlin, gap: the time after it fires once",
      zone: "Europe/Berlin",
      cron: "0 2,3 * * *",
      from: "2026-03-29T00:00Z",
      times: ["03-29T01:00", "03-30T00:00", "03-30T01:00"],
    },
    {
      rule: "Berlin, repeated hour: fires the first time",
      zone: "Europe/Berlin",
      cron: "30 2 * * *",
      from: "2026-10-24T12:00Z",
      times: ["10-25T00:30", "10-26T01:30"],
    },
    {
      rule: "Berlin, repeated hour: every hour fires in both",
      zone: "Europe/Berlin",
      cron: "30 * * * *",
      from: "2026-10-25T00:00Z",
      times: ["10-25T00:30", "10-25T01:30", "10-25T02:30"],
    },
    {
      rule: "Berlin, repeated hour: every half hour in both",
      zone: "Europe/Berlin",
      cron: "*/30 * * * *",
      from: "2026-10-25T00:00Z",
      times: ["10-25T00:30", "10-25T01:00", "10-25T01:30", "10-25T02:00"],
    },
    {
      rule: "Berlin, repeated hour: every quarter of a named hour, in the first",
      zone: "Europe/Berlin",
      cron: "*/30 2 * * *",
      from: "2026-10-25T00:00Z",
      times: ["10-25T00:30", "10-26T01:00"],
    },
    {
      rule: "New York, gap",
      zone: "America/New_York",
      cron: "30 2 * * *",
      from: "2026-03-07T12:00Z",
      times: ["03-08T07:00", "03-09T06:30"],
    },
    {
      rule: "New York, repeated hour",
      zone: "America/New_York",
      cron: "30 1 * * *",
      from: "2026-10-31T12:00Z",
      times: ["11-01T05:30", "11-02T06:30"],
    },
    {
      rule: "Sydney, gap in October",
      zone: "Australia/Sydney",
      cron: "30 2 * * *",
      from: "2026-10-03T00:00Z",
      times: ["10-03T16:00", "10-04T15:30"],
    },
    {
      rule: "Sydney, repeated hour in April",
      zone: "Australia/Sydney",
      cron: "30 2 * * *",
      from: "2026-04-04T00:00Z",
      times: ["04-04T15:30", "04-05T16:30"],
    },
    {
      rule: "Lord Howe, a gap of half an hour",
      zone: "Australia/Lord_Howe",
      cron: "15 2 * * *",
      from: "2026-10-03T00:00Z",
      times: ["10-03T15:30", "10-04T15:15"],
    },
    {
      rule: "Lord Howe, half an hour that is there twice",
      zone: "Australia/Lord_Howe",
      cron: "45 1 * * *",
      from: "2026-04-04T00:00Z",
      times: ["04-04T14:45", "04-05T15:15"],
    },
    {
      rule: "Lord Howe, minutes that are there twice, in both",
      zone: "Australia/Lord_Howe",
      cron: "45 * * * *",
      from: "2026-04-04T14:00Z",
      times: ["04-04T14:45", "04-04T15:15", "04-04T16:15"],
    },
    {
      rule: "São Paulo, a gap at midnight",
      zone: "America/Sao_Paulo",
      cron: "0 0 * * *",
      from: "2018-11-03T00:00Z",
      times: ["11-03T03:00", "11-04T03:00", "11-05T02:00"],
    },
    {
      rule: "Casablanca, clocks go back for Ramadan",
      zone: "Africa/Casablanca",
      cron: "30 2 * * *",
      from: "2026-02-14T12:00Z",
      times: ["02-15T01:30", "02-16T02:30"],
    },
    {
      rule: "Casablanca, and forward after it",
      zone: "Africa/Casablanca",
      cron: "30 2 * * *",
      from: "2026-03-21T12:00Z",
      times: ["03-22T02:00", "03-23T01:30"],
    },
    {
      rule: "Kolkata has no daylight saving",
      zone: "Asia/Kolkata",
      cron: "30 2 * * *",
      from: "2026-03-28T12:00Z",
      times: ["03-28T21:00", "03-29T21:00"],
    },
    {
      rule: "Apia, a day that did not exist",
      zone: "Pacific/Apia",
      cron: "0 12 * * *",
      from: "2011-12-29T12:00Z",
      times: ["12-29T22:00", "12-30T10:00", "12-30T22:00"],
    },
  ];
  it.each(rules)("$rule", ({ zone, cron, from, times }) => {
    expect(timesOf(cron, zone, from, times.length)).toEqual(times);
  });

  it("every is in absolute time", () => {
    const timing = { everyMs: 24 * 3_600_000, anchorMs: Date.parse("2026-03-28T01:30Z") };
    const next = nextTime(timing, Date.parse("2026-03-28T02:00Z"));
    expect(new Date(next ?? 0).toISOString()).toBe("2026-03-29T01:30:00.000Z");
  });
});

describe("expressions", () => {
  const rules = [
    { cron: "@daily", times: ["01-02T00:00", "01-03T00:00"] },
    { cron: "0 0 29 2 *", times: ["02-29T00:00", "02-29T00:00"] },
    { cron: "0 0 31 2 *", times: [] },
    { cron: "0 0 30 2 *", times: [] },
    { cron: "0 9 * * MON#2", times: ["01-12T09:00", "02-09T09:00"] },
    { cron: "0 9 * * FRIL", times: ["01-30T09:00", "02-27T09:00"] },
    { cron: "0 9 L * *", times: ["01-31T09:00", "02-28T09:00"] },
    { cron: "0 9 * JAN-MAR sun", times: ["01-04T09:00", "01-11T09:00"] },
    { cron: "30 0 0 1 * *", times: ["02-01T00:00", "03-01T00:00"] },
  ];
  it.each(rules)("$cron", ({ cron, times }) => {
    expect(timesOf(checkCron(cron), "UTC", "2026-01-01T12:00Z", 2)).toEqual(times);
  });

  const refused = [
    { cron: "", field: null, position: 0 },
    { cron: "* * *", field: null, position: 0 },
    { cron: "0 0 1 1 * 2030 7", field: null, position: 0 },
    { cron: "61 * * * *", field: "minutes", position: 0 },
    { cron: "0 25 * * *", field: "hours", position: 2 },
    { cron: "0 0 32 * *", field: "days", position: 4 },
    { cron: "0  0  *  13 *", field: "months", position: 9 },
    { cron: "0 0 * * 8", field: "weekdays", position: 8 },
    { cron: "99 0 0 * * *", field: "seconds", position: 0 },
    { cron: "0 0 * * MOO", field: "weekdays", position: 8 },
    { cron: "*/0 * * * *", field: "minutes", position: 0 },
    { cron: "5-1 * * * *", field: "minutes", position: 0 },
    { cron: "@fortnightly", field: null, position: 0 },
    { cron: "@reboot", field: null, position: 0 },
    { cron: `${"1,".repeat(200)}1 * * * *`, field: null, position: 0 },
    { cron: "0 0 \u0000 * *", field: "days", position: 4 },
    { cron: 5, field: null, position: 0 },
    { cron: null, field: null, position: 0 },
  ];
  it.each(refused)("$cron is refused, with its place", ({ cron, field, position }) => {
    try {
      checkCron(cron);
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(InvalidCronError);
      expect((error as InvalidCronError).data).toMatchObject({ field, position });
    }
  });

  it.each(["", "Mars/Olympus", "+01:00", "-05:00", 5, null, undefined, "Europe/Berlin\u0000"])(
    "%s is no time zone",
    (zone) => {
      expect(() => checkTimezone(zone)).toThrow(InvalidTimezoneError);
    },
  );

  it("does not read the current time", () => {
    const { now } = Date;
    Date.now = () => expect.unreachable();
    try {
      expect(nextOfCron("0 0 * * *", "Europe/Berlin", 0)).toBe(23 * 3_600_000);
    } finally {
      Date.now = now;
    }
  });
});

const MINUTE = 60_000;

const walls = new Map<string, number>();

/** The wall clock of a moment, found in another way than the code does; changes are at full quarters of an hour. */
function referenceWall(format: Intl.DateTimeFormat, ms: number): number {
  const quarterMs = ms - (ms % (15 * MINUTE));
  const key = `${format.resolvedOptions().timeZone} ${quarterMs}`;
  const wall = walls.get(key) ?? computedWall(format, quarterMs);
  walls.set(key, wall);
  return wall + (ms - quarterMs);
}

function computedWall(format: Intl.DateTimeFormat, ms: number): number {
  const [date = "", time = ""] = format.format(ms).split(", ");
  const [month, day, year] = date.split("/").map(Number);
  const [hour, minute] = time.split(":").map(Number);
  return Date.UTC(year ?? 0, (month ?? 1) - 1, day, hour, minute);
}

interface Pattern {
  readonly minutes: readonly number[];
  readonly hours: readonly number[] | "*";
  readonly weekdays: readonly number[] | "*";
}

const cronOf = ({ minutes, hours, weekdays }: Pattern): string =>
  `${minutes} ${hours} * * ${weekdays === "*" ? "*" : weekdays}`;

function isMatch({ minutes, hours, weekdays }: Pattern, wallMs: number): boolean {
  const date = new Date(wallMs);
  return (
    minutes.includes(date.getUTCMinutes()) &&
    (hours === "*" || hours.includes(date.getUTCHours())) &&
    (weekdays === "*" || weekdays.includes(date.getUTCDay()))
  );
}

/** Looks at every minute. */
function reference(pattern: Pattern, zone: string, fromMs: number, toMs: number): number[] {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone: zone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
  });
  const times: number[] = [];
  const seen = new Set<number>();
  const isEveryHour = pattern.hours === "*" || new Set(pattern.hours).size === 24;
  let lastWall = referenceWall(format, fromMs - 4 * 60 * MINUTE) - MINUTE;
  for (let ms = fromMs - 4 * 60 * MINUTE; ms <= toMs; ms += MINUTE) {
    const wall = referenceWall(format, ms);
    let fires = isMatch(pattern, wall) && (isEveryHour || !seen.has(wall));
    if (!isEveryHour)
      for (let gone = lastWall + MINUTE; gone < wall; gone += MINUTE)
        if (!seen.has(gone) && isMatch(pattern, gone)) fires = true;
    seen.add(wall);
    lastWall = wall;
    if (fires && ms > fromMs) times.push(ms);
  }
  return times;
}

describe("against a look at every minute", () => {
  const around = [
    ["Europe/Berlin", "2026-03-29T01:00Z"],
    ["Europe/Berlin", "2026-10-25T01:00Z"],
    ["America/New_York", "2026-03-08T07:00Z"],
    ["America/New_York", "2026-11-01T06:00Z"],
    ["Australia/Sydney", "2026-04-04T16:00Z"],
    ["Australia/Sydney", "2026-10-03T16:00Z"],
    ["Australia/Lord_Howe", "2026-04-04T15:00Z"],
    ["Australia/Lord_Howe", "2026-10-03T15:30Z"],
    ["America/Sao_Paulo", "2018-11-04T03:00Z"],
    ["America/Sao_Paulo", "2018-02-18T02:00Z"],
    ["Africa/Casablanca", "2026-02-15T02:00Z"],
    ["Africa/Casablanca", "2026-03-22T02:00Z"],
    ["Asia/Kolkata", "2026-03-29T01:00Z"],
    ["UTC", "2026-03-29T01:00Z"],
  ] as const;
  const some = (max: number, most: number) =>
    fc.uniqueArray(fc.integer({ min: 0, max }), { minLength: 1, maxLength: most });
  const patterns: fc.Arbitrary<Pattern> = fc.record({
    minutes: fc.oneof(some(59, 3), fc.constant(Array.from({ length: 60 }, (_, i) => i)), fc.constant([0, 30])),
    hours: fc.oneof(fc.constant("*" as const), some(3, 3), some(23, 4)),
    weekdays: fc.oneof({ weight: 3, arbitrary: fc.constant("*" as const) }, some(6, 3)),
  });

  it("gives the same times", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...around),
        patterns,
        fc.integer({ min: -26 * 60, max: 3 * 60 }),
        ([zone, change], pattern, offset) => {
          const fromMs = Date.parse(change) + offset * MINUTE;
          const toMs = fromMs + 30 * 60 * MINUTE;
          const cron = cronOf(pattern);
          const times: number[] = [];
          for (let ms = nextOfCron(cron, zone, fromMs); ms !== undefined && ms <= toMs; ms = nextOfCron(cron, zone, ms))
            times.push(ms);
          expect(times).toEqual(reference(pattern, zone, fromMs, toMs));
        },
      ),
      { numRuns: 200 },
    );
  });
});
