/**
 * Goal: an action is in one state at a time, and can be taken exactly when it is active, free and proven.
 * Method: one row for each rule, and one for each side of each moment.
 */

import { describe, expect, test } from "vitest";
import {
  expiryOf,
  givenBack,
  keptUntil,
  refuseCanceling,
  refuseTaking,
  stateOf,
  statusOf,
  tried,
  triesLeftOf,
  used,
  usesLeftOf,
} from "./decide.ts";
import type { ActionRequest, ActionValue } from "./words.ts";

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
    { rule: "what has no window is active", of: plain, nowMs: 0, state: "active" },
    { rule: "before its time it is pending", of: windowed, nowMs: 9, state: "pending" },
    { rule: "it is active from its first millisecond", of: windowed, nowMs: 10, state: "active" },
    { rule: "it is active up to its last millisecond", of: windowed, nowMs: 19, state: "active" },
    { rule: "it ends at its expiry, not after", of: windowed, nowMs: 20, state: "expired" },
    { rule: "what was used up is consumed", of: spent, nowMs: 0, state: "consumed" },
    { rule: "what has a use left is active", of: halfSpent, nowMs: 0, state: "active" },
    { rule: "what was canceled is canceled", of: canceled, nowMs: 0, state: "canceled" },
    { rule: "a try left leaves it active", of: withPin, nowMs: 0, state: "active" },
    { rule: "the last wrong PIN locks it", of: locked, nowMs: 0, state: "locked" },
    {
      rule: "consumed it stays after its time",
      of: { ...windowed, used: 1, last: { atMs: 15 } },
      nowMs: 99,
      state: "consumed",
    },
    {
      rule: "canceled it stays after its time",
      of: { ...windowed, canceled: { atMs: 15 } },
      nowMs: 99,
      state: "canceled",
    },
    { rule: "locked can be canceled", of: { ...locked, canceled: { atMs: 1 } }, nowMs: 2, state: "canceled" },
    { rule: "tries count for nothing without a PIN", of: action({}, { tries: 9 }), nowMs: 0, state: "active" },
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
    { rule: "what is active and free is given", of: windowed, taking: free, answer: undefined },
    {
      rule: "what is pending is told when",
      of: windowed,
      taking: { ...free, nowMs: 9 },
      answer: { code: "not_active", activeAt: new Date(10) },
    },
    {
      rule: "what is expired is told since when",
      of: windowed,
      taking: { ...free, nowMs: 20 },
      answer: { code: "expired", expiredAt: new Date(20) },
    },
    {
      rule: "what is used is told when and by whom",
      of: spent,
      taking: free,
      answer: { code: "already_used", usedAt: new Date(7), by: "ann" },
    },
    {
      rule: "what is used by nobody known is told when",
      of: { ...spent, last: { atMs: 7 } },
      taking: free,
      answer: { code: "already_used", usedAt: new Date(7), by: null },
    },
    {
      rule: "what is canceled is told by whom and why",
      of: canceled,
      taking: free,
      answer: { code: "canceled", canceledAt: new Date(8), by: "bob", reason: "fraud" },
    },
    { rule: "what is locked stays so, proven or not", of: locked, taking: free, answer: { code: "locked" } },
    {
      rule: "a lease keeps others away up to its last millisecond",
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
      rule: "what is not proven is told how many tries are left",
      of: withPin,
      taking: { ...free, isProven: false },
      answer: { code: "invalid_pin", triesLeft: 1 },
    },
    {
      rule: "the state is told before the PIN is asked for",
      of: spent,
      taking: { ...free, isProven: false },
      answer: { code: "already_used", usedAt: new Date(7), by: "ann" },
    },
    {
      rule: "that it is claimed is told before the PIN is asked for",
      of: withPin,
      taking: { nowMs: 0, leaseEndsAtMs: 1, isProven: false },
      answer: { code: "claimed", by: null, until: new Date(1) },
    },
  ])("$rule", ({ of, taking, answer }) => {
    expect(refuseTaking(of, taking)).toEqual(answer);
  });
});

describe("refuseCanceling", () => {
  const at = (nowMs: number, leaseEndsAtMs: number | null = null) => ({ nowMs, leaseEndsAtMs });
  test.each([
    { rule: "what is pending can be canceled", of: windowed, taking: at(0), code: undefined },
    { rule: "what is active can be canceled", of: windowed, taking: at(15), code: undefined },
    { rule: "what has some uses left can be canceled", of: halfSpent, taking: at(15), code: undefined },
    { rule: "what is locked can be canceled", of: locked, taking: at(15), code: undefined },
    { rule: "what is canceled stays canceled", of: canceled, taking: at(15), code: undefined },
    { rule: "what is used up cannot", of: spent, taking: at(15), code: "already_used" },
    { rule: "what is expired cannot", of: windowed, taking: at(20), code: "expired" },
    { rule: "what somebody works on cannot", of: plain, taking: at(15, 16), code: "claimed" },
    { rule: "what somebody worked on can", of: plain, taking: at(16, 16), code: undefined },
  ])("$rule", ({ of, taking, code }) => {
    expect(refuseCanceling(of, taking)?.code).toBe(code);
  });
});

describe("expiryOf", () => {
  test.each([
    { rule: "without an end there is none", of: {}, nowMs: 5, end: undefined },
    { rule: "a time is that time", of: { expiresAtMs: 3 }, nowMs: 5, end: 3 },
    { rule: "a length counts from now", of: { expiresInMs: 3 }, nowMs: 5, end: 8 },
    { rule: "a length counts from when it becomes active", of: { expiresInMs: 3, activeAtMs: 9 }, nowMs: 5, end: 12 },
    { rule: "or from now if that is over", of: { expiresInMs: 3, activeAtMs: 1 }, nowMs: 5, end: 8 },
  ])("$rule", ({ of, nowMs, end }) => {
    expect(expiryOf(of, nowMs)).toBe(end);
  });
});

describe("keptUntil", () => {
  const expiring = action({}, { expiresAtMs: 20 });
  test.each([
    { rule: "what never expires is kept for ever", of: spent, until: null },
    { rule: "what expires is kept for the retention after that", of: expiring, until: 120 },
    { rule: "also if it was used before", of: { ...expiring, used: 1, last: { atMs: 3 } }, until: 120 },
    { rule: "from its use if that came later", of: { ...expiring, used: 1, last: { atMs: 33 } }, until: 133 },
    { rule: "from its cancelation if that came later", of: { ...expiring, canceled: { atMs: 44 } }, until: 144 },
  ])("$rule", ({ of, until }) => {
    expect(keptUntil(of, 100)).toBe(until);
  });
});

describe("counting", () => {
  test("a use takes one off and ends the claim", () => {
    const now = used({ ...halfSpent, claim: { atMs: 1 } }, { atMs: 9, by: "dan" });
    expect([usesLeftOf(now), statusOf(now), now.last?.by, now.claim]).toEqual([0, "consumed", "dan", undefined]);
  });

  test("a try is counted, and given back if it was right", () => {
    const now = tried(withPin);
    expect([triesLeftOf(now), statusOf(now)]).toEqual([0, "locked"]);
    expect([triesLeftOf(givenBack(now)), statusOf(givenBack(now))]).toEqual([1, "open"]);
  });

  test("tries left are never less than none, nor given back beyond all", () => {
    expect(triesLeftOf(tried(locked))).toBe(0);
    expect(triesLeftOf(givenBack(action({ pin })))).toBe(5);
  });
});
