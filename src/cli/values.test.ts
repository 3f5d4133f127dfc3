import { expect, test } from "vitest";
import { FORGOTTEN } from "../kernel/codec/forgotten.ts";
import { plain } from "./values.ts";

class Coded extends Error {
  readonly code = "odd";
  readonly data = { at: new Date(0) };
}

let deep: unknown = "bottom";
for (let i = 0; i < 100_000; i++) deep = { deep };

test.each([
  { rule: "a date is its ISO text", value: new Date(0), becomes: "1970-01-01T00:00:00.000Z" },
  { rule: "an invalid date is said to be one", value: new Date(Number.NaN), becomes: "Invalid Date" },
  {
    rule: "a number that JSON has not is a text",
    value: [Number.NaN, Number.NEGATIVE_INFINITY, 1.5],
    becomes: ["NaN", "-Infinity", 1.5],
  },
  { rule: "a large number is a text", value: 10n ** 20n, becomes: "100000000000000000000" },
  { rule: "bytes are base64", value: new Uint8Array([1, 2]), becomes: "AQI=" },
  { rule: "a map is its entries", value: new Map([["a", new Date(0)]]), becomes: [["a", "1970-01-01T00:00:00.000Z"]] },
  { rule: "a set is a list", value: new Set([1]), becomes: [1] },
  { rule: "what is undefined is left out", value: { a: undefined, b: null }, becomes: { b: null } },
  { rule: "__proto__ is data", value: JSON.parse('{"__proto__":1}'), becomes: JSON.parse('{"__proto__":1}') },
  {
    rule: "an error has its code and data",
    value: new Coded("no"),
    becomes: { name: "Error", message: "no", code: "odd", data: { at: "1970-01-01T00:00:00.000Z" } },
  },
  { rule: "what was forgotten says so", value: FORGOTTEN, becomes: { $forgotten: true } },
])("plain: $rule", ({ value, becomes }) => expect(plain(value)).toEqual(becomes));

test("a value of any depth can be printed", () => {
  expect(JSON.stringify(plain(deep))).toContain("…");
});
