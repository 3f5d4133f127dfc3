/**
 * Goal: a key goes to one caller at a time, an answer to those who asked the same, and nothing to those who asked something else.
 * Method: one row for each rule, and one for each side of every millisecond.
 */

import { describe, expect, test } from "vitest";
import { decideBegin, decideSweep, isMarked, type KeyState } from "./decide.ts";

/** Begun at 1,000 by p1, whose lease ends at 1,030; it expires at 2,000. */
const running: KeyState = {
  status: "in_progress",
  holder: "p1",
  dueMs: 1_030,
  fingerprint: "a",
  startedAtMs: 1_000,
  expiresAtMs: 2_000,
};
const slow: KeyState = { ...running, dueMs: 9_000, startedAtMs: 1_000 };
const left: KeyState = { ...running, holder: null, dueMs: 2_000 };
const completed: KeyState = { ...left, status: "completed" };
const failed: KeyState = { ...left, status: "failed" };
const nameless: KeyState = { ...completed, fingerprint: null };
/** Renewed past its own expiry. */
const outlasting: KeyState = { ...running, dueMs: 2_010 };

describe("decideBegin", () => {
  const wait = (retryAfterMs: number) => ({ is: "in_progress", retryAfterMs });

  test.each([
    { rule: "a key that nobody used is free", key: null, by: "a", nowMs: 0, answer: { is: "begin" } },
    { rule: "one in progress is told so", key: running, by: "a", nowMs: 1_029, answer: wait(1) },
    {
      rule: "its lease ends at its millisecond, not after",
      key: running,
      by: "a",
      nowMs: 1_030,
      answer: { is: "take_over" },
    },
    {
      rule: "a lease that ended long ago is taken over",
      key: running,
      by: "a",
      nowMs: 1_500,
      answer: { is: "take_over" },
    },
    { rule: "one that was left lying is taken over", key: left, by: "a", nowMs: 1_001, answer: { is: "take_over" } },
    {
      rule: "another request is refused while it is in progress",
      key: running,
      by: "b",
      nowMs: 1_001,
      answer: { is: "mismatch" },
    },
    { rule: "another request does not take it over", key: running, by: "b", nowMs: 1_030, answer: { is: "mismatch" } },
    { rule: "nor when it was left lying", key: left, by: "b", nowMs: 1_030, answer: { is: "mismatch" } },
    {
      rule: "an answer is for those who ask the same",
      key: completed,
      by: "a",
      nowMs: 1_001,
      answer: { is: "replay" },
    },
    { rule: "so is an error", key: failed, by: "a", nowMs: 1_001, answer: { is: "replay" } },
    {
      rule: "another request does not hear the answer",
      key: completed,
      by: "b",
      nowMs: 1_001,
      answer: { is: "mismatch" },
    },
    { rule: "nor the error", key: failed, by: "b", nowMs: 1_001, answer: { is: "mismatch" } },
    {
      rule: "nor does one that does not say what it asks",
      key: completed,
      by: null,
      nowMs: 1_001,
      answer: { is: "mismatch" },
    },
    {
      rule: "nor one that says it where the first did not",
      key: nameless,
      by: "a",
      nowMs: 1_001,
      answer: { is: "mismatch" },
    },
    {
      rule: "without any fingerprint the key alone counts",
      key: nameless,
      by: null,
      nowMs: 1_001,
      answer: { is: "replay" },
    },
    {
      rule: "an answer is there until the last millisecond",
      key: completed,
      by: "a",
      nowMs: 1_999,
      answer: { is: "replay" },
    },
    {
      rule: "the key is free from the millisecond it expires",
      key: completed,
      by: "a",
      nowMs: 2_000,
      answer: { is: "begin" },
    },
    { rule: "for another request too", key: completed, by: "b", nowMs: 2_000, answer: { is: "begin" } },
    { rule: "one that was left lying expires as well", key: left, by: "b", nowMs: 2_000, answer: { is: "begin" } },
    { rule: "one that is held does not expire", key: outlasting, by: "a", nowMs: 2_009, answer: wait(1) },
    { rule: "and is not for another request", key: outlasting, by: "b", nowMs: 2_009, answer: { is: "mismatch" } },
    { rule: "until its lease ends too", key: outlasting, by: "b", nowMs: 2_010, answer: { is: "begin" } },
    { rule: "who asks at once waits a little", key: slow, by: "a", nowMs: 1_000, answer: wait(100) },
    { rule: "who asks later waits as long as it took so far", key: slow, by: "a", nowMs: 1_700, answer: wait(700) },
    { rule: "but no longer than the lease", key: slow, by: "a", nowMs: 8_000, answer: wait(1_000) },
    { rule: "a clock that stepped back gives no odd wait", key: slow, by: "a", nowMs: 500, answer: wait(100) },
  ])("$rule", ({ key, by, nowMs, answer }) => {
    expect(decideBegin(key, { fingerprint: by, nowMs })).toEqual(answer);
  });
});

describe("decideSweep", () => {
  test.each([
    { rule: "one in progress stays", key: running, nowMs: 1_029, answer: { is: "keep" } },
    {
      rule: "when its lease has ended it rests until it expires",
      key: running,
      nowMs: 1_030,
      answer: { is: "rest", dueMs: 2_000 },
    },
    { rule: "one that rests stays", key: left, nowMs: 1_999, answer: { is: "keep" } },
    { rule: "and is removed when it expires", key: left, nowMs: 2_000, answer: { is: "remove" } },
    { rule: "an answer stays until it expires", key: completed, nowMs: 1_999, answer: { is: "keep" } },
    { rule: "and is removed then", key: completed, nowMs: 2_000, answer: { is: "remove" } },
    { rule: "one that expired is not removed while it is held", key: outlasting, nowMs: 2_009, answer: { is: "keep" } },
    { rule: "and is removed when it is not", key: outlasting, nowMs: 2_010, answer: { is: "remove" } },
  ])("$rule", ({ key, nowMs, answer }) => {
    expect(decideSweep(key, nowMs)).toEqual(answer);
  });
});

describe("isMarked", () => {
  test.each([
    { rule: "a message that was never seen is new", mark: { exists: false, dueMs: null }, nowMs: 5, is: false },
    { rule: "one that was seen is not", mark: { exists: true, dueMs: 10 }, nowMs: 9, is: true },
    {
      rule: "its mark is forgotten from the millisecond it expires",
      mark: { exists: true, dueMs: 10 },
      nowMs: 10,
      is: false,
    },
    { rule: "a mark that was removed is none", mark: { exists: false, dueMs: 10 }, nowMs: 9, is: false },
  ])("$rule", ({ mark, nowMs, is }) => {
    expect(isMarked(mark, nowMs)).toBe(is);
  });
});
