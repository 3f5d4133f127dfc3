/**
 * Goal: a write is accepted exactly when the slot is at the version its writer expects.
 * Method: one row for each rule, and one for each side of the expected version.
 */

import { describe, expect, test } from "vitest";
import { decideWrite, visibleVersion } from "./decide.ts";

const missing = { exists: false, version: 0 };
const stored = { exists: true, version: 7 };
const deleted = { exists: false, version: 8 };

describe("visibleVersion", () => {
  test.each([
    { rule: "what was never stored is at 0", slot: missing, version: 0 },
    { rule: "what is stored is at its version", slot: stored, version: 7 },
    { rule: "what was deleted is at 0 again", slot: deleted, version: 0 },
  ])("$rule", ({ slot, version }) => {
    expect(visibleVersion(slot)).toBe(version);
  });
});

describe("decideWrite", () => {
  const yes = { ok: true };
  const no = (current: number) => ({ ok: false, current });

  test.each([
    { rule: "without an expectation, what is missing is written", slot: missing, expected: undefined, answer: yes },
    { rule: "without an expectation, what is stored is replaced", slot: stored, expected: undefined, answer: yes },
    { rule: "without an expectation, what was deleted is made again", slot: deleted, expected: undefined, answer: yes },
    { rule: "the version that is there is replaced", slot: stored, expected: 7, answer: yes },
    { rule: "one before it is refused", slot: stored, expected: 6, answer: no(7) },
    { rule: "one after it is refused", slot: stored, expected: 8, answer: no(7) },
    { rule: "0 does not fit what is stored", slot: stored, expected: 0, answer: no(7) },
    { rule: "0 fits what was never stored", slot: missing, expected: 0, answer: yes },
    { rule: "1 does not fit what was never stored", slot: missing, expected: 1, answer: no(0) },
    { rule: "0 fits what was deleted", slot: deleted, expected: 0, answer: yes },
    { rule: "the version of the deletion fits nothing", slot: deleted, expected: 8, answer: no(0) },
    { rule: "the version before the deletion fits nothing", slot: deleted, expected: 7, answer: no(0) },
  ])("$rule", ({ slot, expected, answer }) => {
    expect(decideWrite(slot, expected)).toEqual(answer);
  });
});
