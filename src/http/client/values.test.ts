/**
 * Goal: a value survives the way to the server and back, as one that is stored does, and a duration is as long as the library says.
 * Method: the client's forms beside the library's own codec and check, with generated values.
 */

import fc from "fast-check";
import { expect, test } from "vitest";
import { checkDuration } from "../../kernel/check.ts";
import { FORGOTTEN as LIBRARY_FORGOTTEN } from "../../kernel/codec/forgotten.ts";
import { jsonCodec } from "../../kernel/codec/json.ts";
import { fromWire as serverFrom, toWire as serverTo } from "../server/values.ts";
import { msOf } from "./duration.ts";
import { isPawlError } from "./errors.ts";
import { FORGOTTEN, fromWire, toWire } from "./values.ts";

const PLACE = { namespace: "", space: "", key: "" };
const key = fc.oneof(
  fc.string({ unit: "grapheme" }),
  fc.constantFrom("$date", "$$map", "$x", "__proto__", "toJSON", ""),
);
const anything = fc.anything({
  key,
  withBigInt: true,
  withDate: true,
  withMap: true,
  withSet: true,
  withNullPrototype: true,
  withTypedArray: false,
  withObjectString: false,
  values: [
    fc.string({ unit: "grapheme" }),
    fc.integer(),
    fc.double(),
    fc.boolean(),
    fc.constant(null),
    fc.constant(undefined),
    fc.uint8Array().map((bytes) => new Uint8Array(bytes)),
  ],
});

/** Dates that are invalid, and maps with keys that are equal after the way, cannot be stored. */
const encoded = (value: unknown): string | undefined => {
  try {
    return jsonCodec.encode(value, PLACE);
  } catch {
    return undefined;
  }
};

test("what the client sends is what the library would store", () => {
  fc.assert(
    fc.property(anything, (value) => {
      const text = encoded(value);
      fc.pre(text !== undefined);
      expect(JSON.parse(JSON.stringify(toWire(value)))).toEqual(JSON.parse(text));
    }),
    { numRuns: 500 },
  );
});

test("what the client reads is what the library would read", () => {
  fc.assert(
    fc.property(anything, (value) => {
      const text = encoded(value);
      fc.pre(text !== undefined);
      expect(fromWire(JSON.parse(text))).toEqual(jsonCodec.decode(text, PLACE));
    }),
    { numRuns: 500 },
  );
});

test("an error arrives with its cause and data, and without its stack", () => {
  const cause = Object.assign(new TypeError("why"), { code: "E1" });
  const sent = serverTo(Object.assign(new Error("what", { cause }), { at: new Date(0) }));
  const error = fromWire(JSON.parse(JSON.stringify(sent))) as Error & { at: Date };
  expect([error.message, error.at, error.cause]).toEqual([
    "what",
    new Date(0),
    expect.objectContaining({ code: "E1" }),
  ]);
  expect((error.cause as Error).name).toBe("TypeError");
  const back = serverFrom(toWire(error)) as Error;
  expect([back.message, (back.cause as Error).message]).toEqual(["what", "why"]);
});

test("what was forgotten is recognized", () => {
  expect(fromWire(serverTo({ name: LIBRARY_FORGOTTEN }))).toEqual({ name: FORGOTTEN });
  expect(serverFrom(toWire(FORGOTTEN))).toBe(LIBRARY_FORGOTTEN);
});

test.each([
  ["a function", { a: [() => {}] }, "$.a[0]"],
  ["a symbol", Symbol("x"), "$"],
  ["a class", { x: new (class Mine {})() }, "$.x"],
  ["a hole", Object.assign([1], { length: 2 }), "$[1]"],
  ["an invalid date", new Map([[1, new Date(Number.NaN)]]), "$.values()[0]"],
])("what cannot be sent is refused with its path: %s", (_, value, path) => {
  const refused = (): unknown => {
    try {
      return toWire(value);
    } catch (error) {
      return isPawlError(error, "invalid_value") ? error.data.path : error;
    }
  };
  expect(refused()).toBe(path);
});

test("a cycle is refused", () => {
  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  expect(() => toWire(cycle)).toThrow(/deeper than 64 levels/);
});

test("a tag of a later release is refused", () => {
  expect(() => fromWire({ $later: 1 })).toThrow(/does not know/);
});

test("a duration is as long as the library says, or refused as there", () => {
  const unit = fc.constantFrom(
    "ms",
    "s",
    "sec",
    "secs",
    "m",
    "min",
    "mins",
    "h",
    "hour",
    "days",
    "d",
    "w",
    "weeks",
    "y",
    "ds",
  );
  const amount = fc.constantFrom("1", "1.5", "0", "90", "-1", "", "1e3", ".5");
  const part = fc.tuple(amount, fc.constantFrom("", " ", "  "), unit).map((parts) => parts.join(""));
  const text = fc
    .array(part, { maxLength: 3 })
    .chain((parts) => fc.constantFrom(" ", "").map((between) => parts.join(between)));
  const given = fc.oneof(
    text,
    fc.double(),
    fc.integer({ min: -5, max: 1e13 }),
    fc.constantFrom("5", "", "1s ", " 1s", "1S"),
  );
  const outcome = (read: (duration: number | string, what: string) => number, duration: number | string): unknown => {
    try {
      return read(duration, "x");
    } catch (error) {
      return (error as { readonly code?: string }).code;
    }
  };
  fc.assert(
    fc.property(given, (duration) => {
      expect(outcome(msOf, duration)).toBe(outcome(checkDuration, duration));
    }),
    { numRuns: 2000 },
  );
});
