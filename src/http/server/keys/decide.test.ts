/** API keys: until when each is accepted. */

import { describe, expect, test } from "vitest";
import { decideRevoke, decideRotate, endOf, isUsable, type KeyValue } from "./decide.ts";

const NEVER = Number.NEGATIVE_INFINITY;
const ALWAYS = Number.POSITIVE_INFINITY;

const made: KeyValue = {
  name: "x",
  namespace: "n",
  scopes: ["read"],
  hash: "a",
  createdAtMs: 0,
  expiresAtMs: null,
  revokedAtMs: null,
  previous: [],
};
/** Rotated at this time, to the next letter. */
const rotate = (key: KeyValue, graceMs: number, nowMs: number): KeyValue =>
  decideRotate(key, String.fromCharCode(key.hash.charCodeAt(0) + 1), graceMs, nowMs) as KeyValue;

const once = rotate(made, 100, 0);
const twice = rotate(once, 100, 50);

const rules = [
  { rule: "a key has no end", key: made, ends: { a: ALWAYS, b: NEVER } },
  { rule: "it ends at its expiry", key: { ...made, expiresAtMs: 9 }, ends: { a: 9 } },
  { rule: "without grace a rotation ends the last key", key: rotate(made, 0, 0), ends: { a: NEVER, b: ALWAYS } },
  { rule: "with grace, it ends then", key: once, ends: { a: 100, b: ALWAYS } },
  { rule: "each rotated key keeps its own grace", key: twice, ends: { a: 100, b: 150, c: ALWAYS } },
  { rule: "so also before a rotation without", key: rotate(once, 0, 50), ends: { a: 100, b: NEVER, c: ALWAYS } },
  { rule: "grace is not beyond expiry", key: { ...twice, expiresAtMs: 120 }, ends: { a: 100, b: 120, c: 120 } },
  { rule: "what has ended is forgotten", key: rotate(twice, 1, 100), ends: { a: NEVER, b: 150, c: 101, d: ALWAYS } },
  { rule: "a revocation ends all", key: decideRevoke(twice, 60), ends: { a: NEVER, b: NEVER, c: NEVER } },
] satisfies { rule: string; key: KeyValue; ends: Record<string, number> }[];

describe("when a key ends", () => {
  test.each(rules)("$rule", ({ key, ends }) => {
    for (const [hash, endMs] of Object.entries(ends)) expect(endOf(key, hash), hash).toBe(endMs);
  });

  test("a key is usable until exactly its end", () => {
    expect(isUsable(twice, "b", 149)).toBe(true);
    expect(isUsable(twice, "b", 150)).toBe(false);
  });

  test("a key that was revoked cannot be rotated", () => {
    expect(decideRotate(decideRevoke(made, 1), "b", 0, 2)).toBeUndefined();
  });
});
