/**
 * Goal: what callers hand in is taken as it is or refused with its code, on the right side of every limit.
 * Method: tables of what is taken and what is refused, and laws of the byte order against Buffer, which knows it.
 */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  checkCount,
  checkDate,
  checkDuration,
  checkId,
  checkLease,
  checkOptions,
  checkPrefix,
  checkTime,
  checkVersion,
  compareUtf8,
  optionNames,
  prefixEnd,
  utf8Length,
} from "./check.ts";
import { PawlError } from "./errors.ts";

function refusalOf(act: () => unknown): { code: string; message: string } | { taken: unknown } {
  try {
    return { taken: act() };
  } catch (error) {
    if (error instanceof PawlError) return { code: error.code, message: error.message };
    throw error;
  }
}

const DAY_MS = 86_400_000;

describe("checkOptions", () => {
  const known = optionNames<{ id?: string; tags?: string[] }>({ id: true, tags: true });
  const inheriting = Object.assign(Object.create({ inherited: 1 }) as object, { id: "a" });

  test.each([
    ["nothing", undefined],
    ["no option", {}],
    ["known ones", { id: "a", tags: [] }],
    ["known ones that are undefined", { id: undefined, tags: undefined }],
    ["a symbol", { [Symbol("a")]: 1 }],
    ["an inherited property", inheriting],
    ["an object without a prototype", Object.assign(Object.create(null) as object, { id: "a" })],
  ])("%s is fine", (_, options) => {
    expect(refusalOf(() => checkOptions(options, known))).toEqual({ taken: undefined });
  });

  test.each([
    [{ idd: "a" }, 'the options must not have "idd": there is no such option; the known options are: id, tags'],
    [
      { id: "a", Tags: undefined },
      'the options must not have "Tags": there is no such option; the known options are: id, tags',
    ],
    [["a"], "the options must be an object with options, not an array"],
    [Promise.resolve({ id: "a" }), "the options must be an object with options, not a promise: await it first"],
    [AbortSignal.abort(), "the options must be an object with options, not an AbortSignal"],
    [new Map([["id", "a"]]), "the options must be an object with options, not a Map"],
    [new Date(0), "the options must be an object with options, not a Date"],
    [null, "the options must be an object, not null"],
    ["a", 'the options must be an object, not "a"'],
  ])("%j is refused", (options, message) => {
    expect(refusalOf(() => checkOptions(options, known))).toEqual({ code: "invalid_argument", message });
  });

  test("where there are no options, it says so", () => {
    const refused = refusalOf(() => checkOptions({ by: "ann" }, optionNames<object>({}), "the options of f"));
    expect(refused).toMatchObject({
      message: expect.stringMatching(/^the options of f must not have "by": .*: none$/),
    });
  });
});

describe("checkId", () => {
  const taken = [
    ["one letter", "a"],
    ["a blank", " "],
    ["blanks around, kept", " a "],
    ["256 bytes of ASCII", "a".repeat(256)],
    ["128 letters of two bytes", "é".repeat(128)],
    ["85 letters of three bytes", "€".repeat(85)],
    ["64 letters of four bytes", "😀".repeat(64)],
    ["slashes and dots", "../a//b/."],
    ["percent signs and quotes", "%2F%00'; drop table pawl_record;--"],
    ["the highest character", "\u{10ffff}"],
    ["one before the last control of ASCII", "~"],
    ["one after the last control of Latin-1", "\u00a0"],
    ["direction overrides", "\u202e\u2066"],
    ["a joined emoji", "👨‍👩‍👧"],
  ] as const;
  test.each(taken)("%s is taken as it is", (_, id) => {
    expect(checkId(id, "the id")).toBe(id);
  });

  test("a composed and a decomposed letter stay two ids", () => {
    expect(checkId("\u00e9", "the id")).not.toBe(checkId("e\u0301", "the id"));
  });

  const refused = [
    ["nothing", ""],
    ["257 bytes of ASCII", "a".repeat(257)],
    ["129 letters of two bytes", "é".repeat(129)],
    ["86 letters of three bytes", "€".repeat(86)],
    ["65 letters of four bytes", "😀".repeat(65)],
    ["NUL", "a\u0000b"],
    ["a line feed", "a\nb"],
    ["the last of the first controls", "\u001f"],
    ["delete", "\u007f"],
    ["a control of Latin-1", "\u0080"],
    ["the last control of Latin-1", "\u009f"],
    ["a line separator", "\u2028"],
    ["a paragraph separator", "\u2029"],
    ["a lone high surrogate", "a\ud800"],
    ["a lone low surrogate", "\udc00a"],
    ["surrogates the wrong way round", "\udc00\ud800"],
    ["a number", 5],
    ["null", null],
    ["undefined", undefined],
    ["an object that would become a string", { toString: () => "a" }],
    ["a String object", new String("a")],
  ] as const;
  test.each(refused)("%s is refused", (_, id) => {
    expect(refusalOf(() => checkId(id, "the id"))).toMatchObject({
      code: "invalid_id",
      message: expect.stringMatching(/^the id must /),
    });
  });
});

describe("checkPrefix", () => {
  test.each(["", "a", "a".repeat(256)])("%j is a prefix", (prefix) => {
    expect(checkPrefix(prefix, "the prefix")).toBe(prefix);
  });
  test.each(["\u0000", "\ud83d", "a".repeat(257), null, undefined, 0])("%j is none", (prefix) => {
    expect(refusalOf(() => checkPrefix(prefix, "the prefix"))).toMatchObject({ code: "invalid_id" });
  });
});

describe("numbers", () => {
  test.each([
    [1, 10],
    [10, 10],
    [10_000, undefined],
  ])("a count of %d up to %s is taken", (count, max) => {
    expect(checkCount(count, "the count", max)).toBe(count);
  });
  test.each([
    [0, 10],
    [-1, 10],
    [1.5, 10],
    [11, 10],
    [10_001, undefined],
    [Number.NaN, 10],
    [Number.POSITIVE_INFINITY, undefined],
    ["1", 10],
    [null, 10],
    [undefined, 10],
    [1n, 10],
    [true, 10],
  ])("a count of %s up to %s is refused", (count, max) => {
    expect(refusalOf(() => checkCount(count, "the count", max))).toMatchObject({ code: "invalid_argument" });
  });

  test.each([0, 1, 2 ** 53 - 1])("%d is a version", (version) => {
    expect(checkVersion(version, "the version")).toBe(version);
  });
  test.each([-1, -2, -0, 0.5, 2 ** 53, Number.NaN, Number.POSITIVE_INFINITY, "1", null, undefined, 1n, [1]])(
    "%s is no version",
    (version) => {
      expect(refusalOf(() => checkVersion(version, "the version"))).toMatchObject({ code: "invalid_argument" });
    },
  );

  test.each([0, 1, 8.64e15])("%d is a time", (ms) => {
    expect(checkTime(ms, "the time")).toBe(ms);
  });
  test.each([-1, 0.5, 8.64e15 + 1, Number.NaN, Number.POSITIVE_INFINITY, "0", null, undefined, new Date(0)])(
    "%s is no time",
    (ms) => {
      expect(refusalOf(() => checkTime(ms, "the time"))).toMatchObject({ code: "invalid_argument" });
    },
  );
});

describe("moments that callers name", () => {
  const LAST_MS = Date.UTC(9999, 11, 31, 23, 59, 59, 999);

  test.each([
    [0, 0],
    [LAST_MS, LAST_MS],
    [new Date(0), 0],
    [new Date(LAST_MS), LAST_MS],
  ])("%s is a moment", (moment, ms) => {
    expect(checkDate(moment, "the time")).toBe(ms);
  });

  const refused = [
    ["nanoseconds", 1_800_000_000_000 * 1e6, "1800000000000000000"],
    ["microseconds", 1_800_000_000_000_000, "1800000000000000"],
    ["the year 10000", LAST_MS + 1, "253402300800000"],
    ["a Date in the year 10000", new Date(LAST_MS + 1), "+010000-01-01T00:00:00.000Z"],
    ["a Date before 1970", new Date(-1), "1969-12-31T23:59:59.999Z"],
    ["an invalid Date", new Date("31.12.2026"), "an invalid Date"],
    ["a date as a text", "2026-12-31", '"2026-12-31"'],
    ["a fraction", 0.5, "0.5"],
    ["NaN", Number.NaN, "NaN"],
    ["a bigint", 5n, "bigint"],
    ["null", null, "null"],
    ["an object with getTime", { getTime: () => 5 }, "object"],
  ] as const;
  test.each(refused)("%s is refused, and named", (_, moment, shown) => {
    expect(refusalOf(() => checkDate(moment, "the time"))).toEqual({
      code: "invalid_argument",
      message: `the time must be a valid Date or whole milliseconds since 1970, before the year 10000, not ${shown}`,
    });
  });
});

describe("durations", () => {
  const taken = [
    [0, 0],
    [1, 1],
    [0.1, 1],
    [1.0001, 2],
    [36_525 * DAY_MS, 36_525 * DAY_MS],
    ["0s", 0],
    ["5ms", 5],
    ["5 ms", 5],
    ["90s", 90_000],
    ["1 sec", 1_000],
    ["2 seconds", 2_000],
    ["1m", 60_000],
    ["3 mins", 180_000],
    ["1 minute", 60_000],
    ["1.5 hours", 5_400_000],
    ["1h", 3_600_000],
    ["2 days", 2 * DAY_MS],
    ["25d", 25 * DAY_MS],
    ["1w", 7 * DAY_MS],
    ["2 weeks", 14 * DAY_MS],
    ["36525 days", 36_525 * DAY_MS],
    ["1 millisecond", 1],
    ["0.5ms", 1],
    ["1h30m", 5_400_000],
    ["1h 30m", 5_400_000],
    ["1 hour 30 minutes", 5_400_000],
    ["1w2d3h4m5s6ms", 7 * DAY_MS + 2 * DAY_MS + 3 * 3_600_000 + 4 * 60_000 + 5_006],
    ["1.5h 0.5s", 5_400_500],
    ["36524 days 24 hours", 36_525 * DAY_MS],
  ] as const;
  test.each(taken)("%j is %d ms", (duration, ms) => {
    expect(checkDuration(duration, "the duration")).toBe(ms);
  });

  const refused = [
    Number.NaN,
    -5,
    -0.1,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
    36_525 * DAY_MS + 1,
    "5",
    "",
    "s",
    "-5s",
    "+5s",
    " 5s",
    "5s ",
    "5  s",
    "5 S",
    ".5s",
    "5.s",
    "1e3ms",
    "0x5s",
    "5ss",
    "5 hs",
    "5 years",
    "5 constructors",
    "5 constructor",
    "5 tostring",
    "30m1h",
    "1h1h",
    "1h 60min 1m",
    "1h30",
    "1h  30m",
    "1h, 30m",
    "1h and 30m",
    "1h-30m",
    "1h30m ",
    `1w ${"0".repeat(100)}1d`,
    "36525 days 1 ms",
    "Infinity s",
    `${"9".repeat(400)}s`,
    "36525.1 days",
    "5\ns",
    "٥s",
    null,
    undefined,
    5n,
    {},
    [5],
    new Date(5),
    true,
  ];
  test.each(refused)("%s is none", (duration) => {
    expect(refusalOf(() => checkDuration(duration, "the duration"))).toMatchObject({
      code: "invalid_duration",
      message: expect.stringMatching(/^the duration must /),
    });
  });

  test("a number in a string is told what it lacks", () => {
    for (const bare of ["1", "0", "1.5", "9".repeat(400)])
      expect(refusalOf(() => checkDuration(bare, "wait"))).toMatchObject({
        message: expect.stringMatching(/: a string needs a unit, such as "1s"$/),
      });
    expect(refusalOf(() => checkDuration("soon", "wait"))).toMatchObject({
      message: expect.not.stringContaining("unit"),
    });
  });

  test("a refusal quotes no more than the beginning of what it was given", () => {
    const refusal = refusalOf(() => checkDuration("x".repeat(1_000_000), "the duration"));
    expect("message" in refusal ? refusal.message.length : 0).toBeLessThan(300);
  });

  test.each([
    [10, 10],
    [9.1, 10],
    ["10ms", 10],
    ["24 hours", DAY_MS],
    [DAY_MS, DAY_MS],
  ])("%j is a lease", (lease, ms) => {
    expect(checkLease(lease, "the lease")).toBe(ms);
  });
  test.each([
    0,
    9,
    -1,
    DAY_MS + 1,
    "10 years",
    "3650 days",
    Number.NaN,
    Number.POSITIVE_INFINITY,
    "30",
    null,
    undefined,
  ])("%s is no lease", (lease) => {
    expect(refusalOf(() => checkLease(lease, "the lease"))).toMatchObject({ code: "invalid_duration" });
  });
});

describe("the order of UTF-8 bytes", () => {
  // Letters on both sides of each border: of lengths in bytes, of the surrogates, of the 16-bit range.
  const letters = [
    "a",
    "b",
    "\u007f",
    "\u0080",
    "\u07ff",
    "\u0800",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\u{10000}",
    "\u{10ffff}",
  ];
  const text = fc.array(fc.constantFrom(...letters), { maxLength: 4 }).map((parts) => parts.join(""));
  const bytes = (a: string, b: string) => Math.sign(Buffer.compare(Buffer.from(a), Buffer.from(b)));

  test("two texts compare as their bytes do", () => {
    fc.assert(fc.property(text, text, (a, b) => Math.sign(compareUtf8(a, b)) === bytes(a, b)));
  });

  test("a private-use letter comes before an emoji, although its 16-bit code is higher", () => {
    expect("\uffff" > "😀").toBe(true);
    expect(compareUtf8("\uffff", "😀")).toBeLessThan(0);
  });

  test("a text has a prefix exactly if it is at or above it and below its end", () => {
    fc.assert(
      fc.property(text, text, (prefix, other) => {
        const end = prefixEnd(prefix);
        const isInside = compareUtf8(other, prefix) >= 0 && (end === null || compareUtf8(other, end) < 0);
        return isInside === other.startsWith(prefix);
      }),
    );
  });

  test.each([
    ["", null],
    ["a", "b"],
    ["a\u007f", "a\u0080"],
    ["\ud7ff", "\ue000"],
    ["\uffff", "\u{10000}"],
    ["a\u{10ffff}", "b"],
    ["\u{10ffff}\u{10ffff}", null],
  ])("the end of prefix %j is %j", (prefix, end) => {
    expect(prefixEnd(prefix)).toBe(end);
  });

  test("the length is that of the bytes", () => {
    fc.assert(fc.property(text, (a) => utf8Length(a) === new TextEncoder().encode(a).length));
  });
});
