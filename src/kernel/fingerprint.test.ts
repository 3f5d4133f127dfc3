/**
 * Goal: equal requests have equal fingerprints, and no two different ones do (the ground for G3).
 * Method: properties over drawn values, and over one value that is changed in one place; rows for what JSON cannot say.
 */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { codeOf } from "../../test/kernel/kit.ts";
import { fingerprintOf, hash } from "./fingerprint.ts";

/** The same value, put together in another order. */
function shuffled(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(shuffled);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([name, part]) => [name, shuffled(part)]),
  );
}

describe("a fingerprint", () => {
  test("does not depend on the order of keys", () => {
    fc.assert(fc.property(fc.jsonValue(), (value) => fingerprintOf(value) === fingerprintOf(shuffled(value))));
    expect(fingerprintOf({ a: 1, b: { c: 2, d: 3 } })).toBe(fingerprintOf({ b: { d: 3, c: 2 }, a: 1 }));
  });

  test("is the same for two values only if they are equal", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (a, b) => {
        const areEqual = isSame(a, b);
        return (fingerprintOf(a) === fingerprintOf(b)) === areEqual;
      }),
    );
  });

  test.each([
    ["a number and its text", { a: 1 }, { a: "1" }],
    ["nothing and undefined", {}, { a: undefined }],
    ["null and undefined", { a: null }, { a: undefined }],
    ["an empty object and an empty list", { a: {} }, { a: [] }],
    ["a list in another order", [1, 2], [2, 1]],
    ["keys that run together", { ab: "c" }, { a: "bc" }],
    ["composed and decomposed letters", "\u00e9", "e\u0301"],
    ["a date and what its tag looks like", new Date(5), { $date: "1970-01-01T00:00:00.005Z" }],
    ["bytes that differ in one bit", new Uint8Array([1, 2]), new Uint8Array([1, 3])],
    ["bytes and their text", new Uint8Array([97]), "a"],
    ["a prototype that is data", JSON.parse('{"__proto__":1}'), {}],
    ["large numbers that a double keeps apart", 2 ** 53, 2 ** 53 + 2],
    ["a large integer and a number", 5n, 5],
    ["no body and an empty one", null, ""],
  ])("tells %s apart", (_, a, b) => {
    expect(fingerprintOf(a)).not.toBe(fingerprintOf(b));
  });

  test("of what cannot be stored is refused, a circle and a great depth too", async () => {
    const circle: unknown[] = [];
    circle.push(circle);
    let deep: unknown = 1;
    for (let i = 0; i < 100_000; i++) deep = { deep };
    for (const value of [circle, deep, () => 1, Symbol("s"), new (class A {})(), Promise.resolve(1)])
      expect(await codeOf((async () => fingerprintOf(value))())).toBe("invalid_value");
  });
});

test("a hash keeps the texts it is made of apart", () => {
  expect(hash("ab", "c")).not.toBe(hash("a", "bc"));
  expect(hash("a")).not.toBe(hash("a", ""));
  expect(hash("a", "b")).toBe(hash("a", "b"));
});

/** Equal as JSON values; -0 is another number than 0. */
function isSame(a: unknown, b: unknown): boolean {
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return Object.is(a, b);
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [left, right] = [Object.entries(a), Object.entries(b)];
  const other = new Map(right);
  return left.length === right.length && left.every(([name, part]) => other.has(name) && isSame(part, other.get(name)));
}
