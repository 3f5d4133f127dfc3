/**
 * Goal: an action is in one state at a time, and can be taken exactly when it is active, not claimed, and its PIN was right.
 * Method: one row for each rule, and one for each side of each boundary in time.
 */

import { describe, expect, test } from "vitest";
import {
  expiryOf,
  keptUntil,
  refundTry,
  refuseCanceling,
  refuseSettled,
  refuseTaking,
  stateOf,
  statusOf,
  tried,
  triesLeftOf,
  used,
  usesLeftOf,
} from "./decide.ts";
import type { ActionRequest, ActionValue } from "./stored.ts";

const action = (request: ActionRequest = {}, more: Partial<ActionValue> = {}): ActionValue => ({
  request,
  createdAtMs: 0,
  from: 1,
  used: 0,
  ...more,
});

const pin = { pepper: "p", hash: "h", maxTries: 5 };
const plain = action();
const windowed = action({ activeAtMs: 10, expiresAtMs: 20 }, { expiresAtMs: 20 });
const spent = action({}, { used: 1, last: { atMs: 7, by: "ann" } });
const halfSpent = action({ uses: 2 }, { used: 1, last: { atMs: 7 } });
const canceled = action({}, { canceled: { atMs: 8, by: "bob", reason: "fraud" } });
const withPin = action({ pin }, { tries: 4 });
const locked = action({ pin }, { tries: 5 });

describe("stateOf", () => {
  test.each([
    { rule: "without a time window it is active", of: plain, nowMs: 0, state: "active" },
    { rule: "before activeAt it is pending", of: windowed, nowMs: 9, state: "pending" },
    { rule: "it is active from its first millisecond", of: windowed, nowMs: 10, state: "active" },
    { rule: "it is active up to its last millisecond", of: windowed, nowMs: 19, state: "active" },
    { rule: "it ends at its expiry, not after", of: windowed, nowMs: 20, state: "expired" },
    { rule: "without uses left it is consumed", of: spent, nowMs: 0, state: "consumed" },
    { rule: "with a use left it is active", of: halfSpent, nowMs: 0, state: "active" },
    { rule: "a canceled action is canceled", of: canceled, nowMs: 0, state: "canceled" },
    { rule: "with a try left it is active", of: withPin, nowMs: 0, state: "active" },
    { rule: "the last wrong PIN locks it", of: locked, nowMs: 0, state: "locked" },
    {
      rule: "it stays consumed after its expiry",
      of: { ...windowed, used: 1, last: { atMs: 15 } },
      nowMs: 99,
      state: "consumed",
    },
    {
      rule: "it stays canceled after its expiry",
      of: { ...windowed, canceled: { atMs: 15 } },
      nowMs: 99,
      state: "canceled",
    },
    { rule: "a locked action can be canceled", of: { ...locked, canceled: { atMs: 1 } }, nowMs: 2, state: "canceled" },
    { rule: "tries do not matter without a PIN", of: action({}, { tries: 9 }), nowMs: 0, state: "active" },
    {
      rule: "the right PIN at the last try is a use, not a lock",
      of: { ...locked, used: 1, last: { atMs: 1 } },
      nowMs: 2,
      state: "consumed",
    },
  ])("$rule", ({ of, nowMs, state }) => {
    expect(stateOf(of, nowMs)).toBe(state);
  });
});

describe("refuseTaking", () => {
  const free = { nowMs: 15, leaseEndsAtMs: null, isProven: true };
  test.each([
    { rule: "an active action without a claim is taken", of: windowed, taking: free, answer: undefined },
    {
      rule: "a pending action is refused with its start",
      of: windowed,
      taking: { ...free, nowMs: 9 },
      answer: { code: "not_active", activeAt: new Date(10) },
    },
    {
      rule: "an expired action is refused with its expiry",
      of: windowed,
      taking: { ...free, nowMs: 20 },
      answer: { code: "expired", expiredAt: new Date(20) },
    },
    {
      rule: "a used action is refused with the time and the user",
      of: spent,
      taking: free,
      answer: { code: "already_used", usedAt: new Date(7), by: "ann" },
    },
    {
      rule: "an action used without a name is refused with the time",
      of: { ...spent, last: { atMs: 7 } },
      taking: free,
      answer: { code: "already_used", usedAt: new Date(7), by: null },
    },
    {
      rule: "a canceled action is refused with the canceler and the reason",
      of: canceled,
      taking: free,
      answer: { code: "canceled", canceledAt: new Date(8), by: "bob", reason: "fraud" },
    },
    {
      rule: "a locked action is refused, with the right PIN too",
      of: locked,
      taking: free,
      answer: { code: "locked" },
    },
    {
      rule: "a lease excludes others up to its last millisecond",
      of: { ...plain, claim: { atMs: 1, by: "cy" } },
      taking: { ...free, leaseEndsAtMs: 16 },
      answer: { code: "claimed", by: "cy", until: new Date(16) },
    },
    {
      rule: "a lease ends at its end, not after",
      of: plain,
      taking: { ...free, leaseEndsAtMs: 15 },
      answer: undefined,
    },
    {
      rule: "without the right PIN it is refused with the tries left",
      of: withPin,
      taking: { ...free, isProven: false },
      answer: { code: "invalid_pin", triesLeft: 1 },
    },
    {
      rule: "the state is checked before the PIN",
      of: spent,
      taking: { ...free, isProven: false },
      answer: { code: "already_used", usedAt: new Date(7), by: "ann" },
    },
    {
      rule: "the claim is checked before the PIN",
      of: withPin,
      taking: { nowMs: 0, leaseEndsAtMs: 1, isProven: false },
      answer: { code: "claimed", by: null, until: new Date(1) },
    },
  ])("$rule", ({ of, taking, answer }) => {
    expect(refuseTaking(of, taking)).toEqual(answer);
  });
});

describe("refuseSettled", () => {
  test.each([
    { rule: "an open action is not settled", of: plain, code: undefined },
    { rule: "nor is one whose PIN is locked", of: locked, code: undefined },
    { rule: "a used one is settled", of: spent, code: "already_used" },
    { rule: "a canceled one is settled", of: canceled, code: "canceled" },
  ])("$rule", ({ of, code }) => {
    expect(refuseSettled(of)?.code).toBe(code);
  });
});

describe("refuseCanceling", () => {
  const at = (nowMs: number, leaseEndsAtMs: number | null = null) => ({ nowMs, leaseEndsAtMs });
  test.each([
    { rule: "a pending action can be canceled", of: windowed, taking: at(0), code: undefined },
    { rule: "an active action can be canceled", of: windowed, taking: at(15), code: undefined },
    { rule: "an action with uses left can be canceled", of: halfSpent, taking: at(15), code: undefined },
    { rule: "a locked action can be canceled, too", of: locked, taking: at(15), code: undefined },
    { rule: "a canceled action stays canceled", of: canceled, taking: at(15), code: undefined },
    { rule: "an action without uses left cannot be canceled", of: spent, taking: at(15), code: "already_used" },
    { rule: "an expired action cannot be canceled", of: windowed, taking: at(20), code: "expired" },
    { rule: "a claimed action cannot be canceled", of: plain, taking: at(15, 16), code: "claimed" },
    { rule: "an action whose claim has ended can be canceled", of: plain, taking: at(16, 16), code: undefined },
  ])("$rule", ({ of, taking, code }) => {
    expect(refuseCanceling(of, taking)?.code).toBe(code);
  });
});

describe("expiryOf", () => {
  test.each([
    { rule: "without an expiry it never expires", of: {}, nowMs: 5, end: undefined },
    { rule: "a time is used as it is", of: { expiresAtMs: 3 }, nowMs: 5, end: 3 },
    { rule: "a duration counts from now", of: { expiresInMs: 3 }, nowMs: 5, end: 8 },
    { rule: "a duration counts from when it becomes active", of: { expiresInMs: 3, activeAtMs: 9 }, nowMs: 5, end: 12 },
    { rule: "or from now if it is active already", of: { expiresInMs: 3, activeAtMs: 1 }, nowMs: 5, end: 8 },
  ])("$rule", ({ of, nowMs, end }) => {
    expect(expiryOf(of, nowMs)).toBe(end);
  });
});

describe("keptUntil", () => {
  const expiring = action({}, { expiresAtMs: 20 });
  test.each([
    { rule: "an action that never expires is kept forever", of: spent, until: null },
    { rule: "an action that expires is kept for the retention after that", of: expiring, until: 120 },
    { rule: "also if it was used before", of: { ...expiring, used: 1, last: { atMs: 3 } }, until: 120 },
    { rule: "from its use if that came later", of: { ...expiring, used: 1, last: { atMs: 33 } }, until: 133 },
    { rule: "from its cancelation if that came later", of: { ...expiring, canceled: { atMs: 44 } }, until: 144 },
  ])("$rule", ({ of, until }) => {
    expect(keptUntil(of, 100)).toBe(until);
  });
});

describe("counting", () => {
  test("a use is counted and ends the claim", () => {
    const now = used({ ...halfSpent, claim: { atMs: 1 } }, { atMs: 9, by: "dan" });
    expect([usesLeftOf(now), statusOf(now), now.last?.by, now.claim]).toEqual([0, "consumed", "dan", undefined]);
  });

  test("a try is counted, and refunded if the PIN was right", () => {
    const now = tried(withPin);
    expect([triesLeftOf(now), statusOf(now)]).toEqual([0, "locked"]);
    expect([triesLeftOf(refundTry(now)), statusOf(refundTry(now))]).toEqual([1, "open"]);
  });

  test("the tries left are never below zero or above the limit", () => {
    expect(triesLeftOf(tried(locked))).toBe(0);
    expect(triesLeftOf(refundTry(action({ pin })))).toBe(5);
  });

  test("an action without a PIN has no tries", () => {
    expect(triesLeftOf(plain)).toBe(0);
  });
});
