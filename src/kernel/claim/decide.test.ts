/**
 * Goal: who may claim, renew, rest and wake is exactly what `decide.ts` says, to the millisecond.
 * Method: one row for each rule, and one for each side of each boundary. In every row of a refusal, all but the named
 * reason speaks for the claim, so that no rule hides behind another.
 */

import { describe, expect, test } from "vitest";
import {
  type Claimable,
  decideClaim,
  decideRenew,
  decideRest,
  decideWake,
  isHeldUnder,
  isHolder,
  nextFence,
} from "./decide.ts";

/** A timer that fires at 1000. */
const resting: Claimable = { exists: true, fence: 7, wakes: 3, tries: 0, holder: null, kind: "job", dueMs: 1000 };
/** A lease that ends at 1000. */
const held: Claimable = { ...resting, tries: 1, holder: "ann" };

describe("nextFence", () => {
  test.each([
    { rule: "is one above the record's own where the floor is below", own: 7, floor: 0, fence: 8 },
    { rule: "is one above the record's own where the floor is equal to that", own: 7, floor: 7, fence: 8 },
    { rule: "is the floor where that is one above", own: 7, floor: 8, fence: 8 },
    { rule: "is the floor where that is two above", own: 7, floor: 9, fence: 9 },
    { rule: "of a record that never had one is 1", own: 0, floor: 0, fence: 1 },
  ])("$rule", ({ own, floor, fence }) => {
    expect(nextFence(own, floor)).toBe(fence);
    expect(nextFence(own, floor)).toBeGreaterThan(own);
  });
});

describe("decideClaim", () => {
  const by = { by: "bob", leaseMs: 500, nowMs: 1000, fenceFloor: 0 };
  const refused = { granted: false };
  const granted = (changes: object = {}) => ({
    granted: true,
    changes: { holder: "bob", fence: 8, tries: 1, dueMs: 1500, ...changes },
  });

  test.each([
    { rule: "a timer that fires now is claimed", record: resting, claim: by, answer: granted() },
    { rule: "a millisecond before, it is not", record: resting, claim: { ...by, nowMs: 999 }, answer: refused },
    {
      rule: "a millisecond after, it is",
      record: resting,
      claim: { ...by, nowMs: 1001 },
      answer: granted({ dueMs: 1501 }),
    },
    { rule: "a lease that ends now is taken over", record: held, claim: by, answer: granted({ tries: 2 }) },
    { rule: "a millisecond before its end it is not", record: held, claim: { ...by, nowMs: 999 }, answer: refused },
    {
      rule: "a millisecond after its end it is",
      record: held,
      claim: { ...by, nowMs: 1001 },
      answer: granted({ tries: 2, dueMs: 1501 }),
    },
    {
      rule: "its own holder, too, claims it only when the lease has ended",
      record: held,
      claim: { ...by, by: "ann", nowMs: 999 },
      answer: refused,
    },
    {
      rule: "a record that was deleted is not claimed",
      record: { ...resting, exists: false },
      claim: by,
      answer: refused,
    },
    { rule: "a record without a kind is not claimed", record: { ...resting, kind: null }, claim: by, answer: refused },
    { rule: "a record without a time is not claimed", record: { ...resting, dueMs: null }, claim: by, answer: refused },
    {
      rule: "a record due at 0 is claimed",
      record: { ...resting, dueMs: 0 },
      claim: { ...by, nowMs: 0 },
      answer: granted({ dueMs: 500 }),
    },
    {
      rule: "every claim counts as a try",
      record: { ...resting, tries: 41 },
      claim: by,
      answer: granted({ tries: 42 }),
    },
    {
      rule: "the fence is at least the floor",
      record: resting,
      claim: { ...by, fenceFloor: 100 },
      answer: granted({ fence: 100 }),
    },
  ])("$rule", ({ record, claim, answer }) => {
    expect(decideClaim(record, claim)).toEqual(answer);
  });
});

describe("isHolder", () => {
  test.each([
    { rule: "the holder is known by its fence", record: held, fence: 7, is: true },
    {
      rule: "a holder of another name with the same fence is another",
      record: { ...held, holder: "p9" },
      fence: 7,
      is: false,
    },
    { rule: "a fence below is not the holder's", record: held, fence: 6, is: false },
    { rule: "a fence above is not the holder's", record: held, fence: 8, is: false },
    { rule: "a record that was given back has no holder", record: resting, fence: 7, is: false },
    { rule: "a record that was deleted has no holder", record: { ...held, exists: false }, fence: 7, is: false },
    {
      rule: "an expired lease that nobody took over is still held",
      record: { ...held, dueMs: 0 },
      fence: 7,
      is: true,
    },
  ])("$rule", ({ record, fence, is }) => {
    expect(isHolder(record, { fence, holder: held.holder ?? "" })).toBe(is);
  });
});

describe("isHeldUnder", () => {
  test.each([
    {
      rule: "the holder is known by its fence, whatever its name",
      record: { ...held, holder: "p9" },
      fence: 7,
      is: true,
    },
    { rule: "another fence is not the holder's", record: held, fence: 6, is: false },
    { rule: "a record that was released has no holder", record: resting, fence: 7, is: false },
    { rule: "a record that was deleted has no holder", record: { ...held, exists: false }, fence: 7, is: false },
  ])("$rule", ({ record, fence, is }) => {
    expect(isHeldUnder(record, fence)).toBe(is);
  });
});

describe("decideRenew", () => {
  const renewal = { fence: 7, holder: held.holder ?? "", leaseMs: 500, nowMs: 900 };
  const until = (dueMs: number) => ({ renewed: true, dueMs });
  const refused = { renewed: false };

  test.each([
    { rule: "the lease then ends so long after now", record: held, renewal, answer: until(1400) },
    {
      rule: "a renewal that ends one before the lease does leaves it",
      record: held,
      renewal: { ...renewal, nowMs: 499 },
      answer: until(1000),
    },
    {
      rule: "a renewal that ends with the lease leaves it",
      record: held,
      renewal: { ...renewal, nowMs: 500 },
      answer: until(1000),
    },
    {
      rule: "a renewal that ends one after the lease does moves its end",
      record: held,
      renewal: { ...renewal, nowMs: 501 },
      answer: until(1001),
    },
    {
      rule: "an expired lease that nobody took over is renewed",
      record: held,
      renewal: { ...renewal, nowMs: 5000 },
      answer: until(5500),
    },
    { rule: "a held record without a time gets one", record: { ...held, dueMs: null }, renewal, answer: until(1400) },
    { rule: "an older fence is refused", record: held, renewal: { ...renewal, fence: 6 }, answer: refused },
    { rule: "a newer fence is refused", record: held, renewal: { ...renewal, fence: 8 }, answer: refused },
    { rule: "a record that was given back is refused", record: resting, renewal, answer: refused },
    { rule: "a record that was deleted is refused", record: { ...held, exists: false }, renewal, answer: refused },
  ])("$rule", ({ record, renewal, answer }) => {
    expect(decideRenew(record, renewal)).toEqual(answer);
  });
});

describe("decideRest", () => {
  test.each([
    { rule: "the holder gives back what nobody woke", record: held, fence: 7, wakesSeen: 3, answer: "rested" },
    { rule: "a wake-up since the look is told", record: held, fence: 7, wakesSeen: 2, answer: "woken" },
    { rule: "a count of wake-ups from the future is told, too", record: held, fence: 7, wakesSeen: 4, answer: "woken" },
    { rule: "an older fence is told that it is over", record: held, fence: 6, wakesSeen: 3, answer: "fenced" },
    { rule: "a newer fence is told that it is over", record: held, fence: 8, wakesSeen: 3, answer: "fenced" },
    { rule: "losing the record comes before news", record: held, fence: 6, wakesSeen: 2, answer: "fenced" },
    { rule: "what was given back cannot be given back", record: resting, fence: 7, wakesSeen: 3, answer: "fenced" },
    {
      rule: "what was deleted cannot be given back",
      record: { ...held, exists: false },
      fence: 7,
      wakesSeen: 3,
      answer: "fenced",
    },
  ])("$rule", ({ record, fence, wakesSeen, answer }) => {
    expect(decideRest(record, { fence, holder: held.holder ?? "", wakesSeen })).toBe(answer);
  });
});

describe("decideWake", () => {
  test.each([
    { rule: "a sleeper with a later timer is due at once", record: resting, nowMs: 500, dueMs: 500 },
    { rule: "also a millisecond before its timer", record: resting, nowMs: 999, dueMs: 999 },
    { rule: "one that is due now stays due since now", record: resting, nowMs: 1000, dueMs: 1000 },
    { rule: "one that was due a millisecond ago keeps its place", record: resting, nowMs: 1001, dueMs: 1000 },
    { rule: "one that was due long ago keeps its place", record: resting, nowMs: 9000, dueMs: 1000 },
    { rule: "one without a timer is due at once", record: { ...resting, dueMs: null }, nowMs: 500, dueMs: 500 },
    { rule: "a live lease keeps its end", record: held, nowMs: 500, dueMs: 1000 },
    { rule: "an expired lease keeps its end", record: held, nowMs: 1500, dueMs: 1000 },
    { rule: "a lease without an end gets none", record: { ...held, dueMs: null }, nowMs: 500, dueMs: null },
  ])("$rule, and the wake-up is counted", ({ record, nowMs, dueMs }) => {
    expect(decideWake(record, nowMs)).toEqual({ wakes: 4, dueMs });
  });
});
