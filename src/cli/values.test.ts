import { expect, test } from "vitest";
import { FORGOTTEN as CLIENT_FORGOTTEN } from "../http/client/index.ts";
import { toWire as clientTo } from "../http/client/values.ts";
import { toWire } from "../http/server/values.ts";
import { FORGOTTEN } from "../kernel/codec/forgotten.ts";
import { plain } from "./values.ts";

class Coded extends Error {
  readonly code = "odd";
  readonly data = { at: new Date(0) };
}

const AT = { $date: "1970-01-01T00:00:00.000Z" };

test.each([
  { rule: "a date keeps its type", value: new Date(0), becomes: AT },
  {
    rule: "a number that JSON has not has a tag",
    value: [Number.NaN, Number.NEGATIVE_INFINITY, 1.5],
    becomes: [{ $number: "NaN" }, { $number: "-Infinity" }, 1.5],
  },
  { rule: "a bigint is not a text", value: 10n ** 20n, becomes: { $bigint: "100000000000000000000" } },
  { rule: "bytes are not a text", value: new Uint8Array([1, 2]), becomes: { $bytes: "AQI=" } },
  { rule: "a map is not a list", value: new Map([["a", new Date(0)]]), becomes: { $map: [["a", AT]] } },
  { rule: "a set is not a list", value: new Set([1]), becomes: { $set: [1] } },
  {
    rule: "what is undefined is not missing",
    value: { a: undefined, b: null },
    becomes: { a: { $undefined: true }, b: null },
  },
  { rule: "an object that looks like a tag is none", value: { $date: 1 }, becomes: { $$date: 1 } },
  { rule: "__proto__ is data", value: JSON.parse('{"__proto__":1}'), becomes: JSON.parse('{"__proto__":1}') },
  {
    rule: "an error has its code and data, and no stack",
    value: new Coded("no"),
    becomes: { $error: { name: "Error", message: "no", data: { code: "odd", data: { at: AT } } } },
  },
])("a value of the user: $rule, of a store and of a server", ({ value, becomes }) => {
  for (const to of [toWire, clientTo])
    expect(plain({ at: new Date(0), value }, to, ["value"])).toEqual({ at: AT.$date, value: becomes });
});

test("what was forgotten says so, of a store and of a server", () => {
  const shown = { value: { $forgotten: true } };
  expect(plain({ value: FORGOTTEN }, toWire, ["value"])).toEqual(shown);
  expect(plain({ value: CLIENT_FORGOTTEN }, clientTo, ["value"])).toEqual(shown);
});

test("what Pawl says itself is plain JSON, at any depth, and what is undefined is left out", () => {
  const result = [{ list: [{ since: new Date(0) }], none: undefined, $bigint: 1 }];
  expect(plain(result, toWire, [])).toEqual([{ list: [{ since: AT.$date }], $bigint: 1 }]);
});
