/**
 * Goal: in any time, no more tokens are granted than a full bucket and what is added meanwhile; no caller waits longer than necessary; a
 * waiter that gives up leaves no hole.
 * Method: one row for each rule and for each side of its boundary; then random schedules of takers, waiters, quitters and clocks that jump
 * both ways, checked against the bound over every window, and against a textbook token bucket.
 */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type Bucket,
  decideDeclare,
  decideRelease,
  decideTake,
  fillMs,
  fullBucket,
  remainingIn,
  type TakenTokens,
} from "./decide.ts";
import type { Figures } from "./timeline.ts";

/** One token in 10 ms, three at most. */
const slow: Figures = { max: 1, perMs: 10, burst: 3 };
const at = (fullAtMs: number, more: Partial<Bucket> = {}): Bucket => ({
  ...slow,
  declaredMs: 1,
  fullAtMs,
  fullAtPart: 0,
  ...more,
});

describe("taking", () => {
  test.each([
    { rule: "a full bucket grants one immediately", fullAtMs: 100, count: 1, waitMs: 0, afterMs: 110 },
    { rule: "a full bucket grants all it has immediately", fullAtMs: 100, count: 3, waitMs: 0, afterMs: 130 },
    {
      rule: "a bucket that has been full for long has no more than that",
      fullAtMs: 0,
      count: 3,
      waitMs: 0,
      afterMs: 130,
    },
    { rule: "the last token is available", fullAtMs: 120, count: 1, waitMs: 0, afterMs: 130 },
    { rule: "a moment earlier, the caller waits for it", fullAtMs: 121, count: 1, waitMs: 1, afterMs: 131 },
    { rule: "one token is not enough for two", fullAtMs: 120, count: 2, waitMs: 10, afterMs: 140 },
    { rule: "an empty bucket has one after the time of one", fullAtMs: 130, count: 1, waitMs: 10, afterMs: 140 },
    { rule: "an empty bucket has three after the time of three", fullAtMs: 130, count: 3, waitMs: 30, afterMs: 160 },
    { rule: "a later caller waits behind the waiting ones", fullAtMs: 150, count: 1, waitMs: 30, afterMs: 160 },
  ])("$rule", ({ fullAtMs, count, waitMs, afterMs }) => {
    const taken = decideTake(at(fullAtMs), 100, count);
    expect(taken.waitMs).toBe(waitMs);
    expect(taken.bucket).toEqual(at(afterMs, { takenMs: 100 }));
  });

  test.each([
    { rule: "at the time of the last taking", nowMs: 100, waitMs: 0 },
    {
      rule: "a moment before it, which is where a commit has begun before another one that it waited for",
      nowMs: 99,
      waitMs: 0,
    },
    { rule: "before, as long as a commit may take", nowMs: 100 - 10_000, waitMs: 0 },
    { rule: "not on a clock that was set back further", nowMs: 99 - 10_000, waitMs: 10_001 },
  ])("what is left is granted: $rule", ({ nowMs, waitMs }) => {
    const shifted = (ms: number): number => ms + 20_000;
    const { bucket } = decideTake(at(shifted(100)), shifted(100), 2);
    const taken = decideTake(bucket, shifted(nowMs), 1);
    expect(taken.waitMs).toBe(waitMs);
    expect(remainingIn(bucket, shifted(nowMs))).toBe(waitMs === 0 ? 1 : 0);
    // No more than at that time: the next one waits until the same moment.
    expect(shifted(nowMs) + decideTake(taken.bucket, shifted(nowMs), 1).waitMs).toBe(shifted(110));
  });

  test("thirds of a millisecond add up to whole ones", () => {
    const thirds: Figures = { max: 3, perMs: 1, burst: 1 };
    let bucket = fullBucket(thirds, 1, 100);
    const waits: number[] = [];
    for (let i = 0; i < 7; i++) {
      const taken = decideTake(bucket, 100, 1);
      waits.push(taken.waitMs);
      bucket = taken.bucket;
    }
    expect(waits).toEqual([0, 1, 1, 1, 2, 2, 2]);
    expect([bucket.fullAtMs, bucket.fullAtPart]).toEqual([102, 1]);
  });

  test("figures as large as they may be are counted exactly", () => {
    const figures: Figures = { max: 999_983, perMs: 3_153_600_000_000, burst: 1_000_000 };
    const nowMs = 1_800_000_000_000;
    const { bucket, waitMs } = decideTake(fullBucket(figures, 1, nowMs), nowMs, 999_983);
    expect({ waitMs, fullAtMs: bucket.fullAtMs, fullAtPart: bucket.fullAtPart }).toEqual({
      waitMs: 0,
      fullAtMs: nowMs + figures.perMs,
      fullAtPart: 0,
    });
    expect(remainingIn(bucket, nowMs)).toBe(17);
  });

  test("a clock that steps back grants nothing more", () => {
    const { bucket } = decideTake(at(100), 100, 3);
    for (const nowMs of [100, 99, 50, 0]) {
      expect(remainingIn(bucket, nowMs)).toBe(0);
      expect(decideTake(bucket, nowMs, 1).waitMs).toBe(110 - nowMs);
    }
    expect(decideTake(bucket, 110, 1).waitMs).toBe(0);
  });
});

describe("what remains", () => {
  test.each([
    { rule: "all of a full bucket", bucket: at(100), remaining: 3 },
    { rule: "no more of one that has been full for long", bucket: at(0), remaining: 3 },
    { rule: "one less a moment before the next is added", bucket: at(101), remaining: 2 },
    { rule: "two when one was taken", bucket: at(110), remaining: 2 },
    { rule: "none of an empty one", bucket: at(130), remaining: 0 },
    { rule: "none if others wait", bucket: at(200), remaining: 0 },
    { rule: "the tokens of a waiter that gave up", bucket: at(200, { gaps: [[110, 0, 130, 0]] }), remaining: 2 },
    { rule: "of those, only what is due", bucket: at(200, { gaps: [[115, 0, 135, 0]] }), remaining: 1 },
    { rule: "of those, only what is not past", bucket: at(200, { gaps: [[80, 0, 110, 0]] }), remaining: 1 },
  ])("$rule", ({ bucket, remaining }) => {
    expect(remainingIn(bucket, 100)).toBe(remaining);
    if (remaining > 0) expect(decideTake(bucket, 100, remaining).waitMs).toBe(0);
    if (remaining < 3) expect(decideTake(bucket, 100, remaining + 1).waitMs).toBeGreaterThan(0);
  });
});

describe("giving back", () => {
  /** An empty bucket and three waiters, at 10, 20 and 30 ms from now. */
  const empty = at(130, { takenMs: 100 });
  const first = decideTake(empty, 100, 1);
  const second = decideTake(first.bucket, 100, 1);
  const third = decideTake(second.bucket, 100, 1);
  const giveBack = (bucket: Bucket, { turn }: TakenTokens, nowMs = 100): Bucket => {
    const given = decideRelease(bucket, nowMs, turn);
    if (given === null) throw new Error("it had no effect");
    return given;
  };

  test("by the last waiter leaves the bucket as it was before", () => {
    expect(giveBack(third.bucket, third)).toEqual(second.bucket);
  });

  test("by one in the middle is for the next caller, and delays no other", () => {
    const bucket = giveBack(third.bucket, second);
    const next = decideTake(bucket, 105, 1);
    expect(next.waitMs).toBe(15);
    expect(next.bucket).toEqual({ ...third.bucket, takenMs: 105 });
    expect(decideTake(next.bucket, 105, 1).waitMs).toBe(35);
  });

  test.each([
    { order: "first to last", who: [first, second, third] },
    { order: "last to first", who: [third, second, first] },
    { order: "the middle one last", who: [first, third, second] },
    { order: "the middle one first", who: [second, first, third] },
  ])("by all leaves the bucket as it was before: $order", ({ who }) => {
    expect(who.reduce((bucket, one) => giveBack(bucket, one), third.bucket)).toEqual(empty);
  });

  test("adjacent gaps are merged, and the rest of a gap stays", () => {
    const bucket = giveBack(giveBack(third.bucket, first), second);
    expect(decideTake(bucket, 100, 2)).toMatchObject({ waitMs: 20, bucket: third.bucket });
    const half = decideTake(bucket, 100, 1);
    expect(half.waitMs).toBe(10);
    expect(decideTake(half.bucket, 100, 1)).toMatchObject({ waitMs: 20, bucket: third.bucket });
  });

  test("a gap that is too short for one is left to another", () => {
    const bucket = giveBack(third.bucket, second);
    const large = decideTake(bucket, 100, 2);
    expect(large.waitMs).toBe(50);
    expect(decideTake(large.bucket, 100, 1).waitMs).toBe(20);
  });

  test("a gap that is due is granted immediately, and a past one is dropped", () => {
    const bucket = giveBack(third.bucket, first);
    expect(decideTake(bucket, 110, 1).waitMs).toBe(0);
    expect(decideTake(bucket, 130, 1).waitMs).toBe(0);
    expect(decideTake(bucket, 131, 1).waitMs).toBe(9);
    expect(decideTake(bucket, 140, 1).bucket).not.toHaveProperty("gaps");
  });

  test("has no effect when its time is past, or other figures are in force", () => {
    expect(decideRelease(third.bucket, 150, second.turn)).toBeNull();
    expect(decideRelease(third.bucket, 149, second.turn)).not.toBeNull();
    expect(decideRelease({ ...third.bucket, declaredMs: 2 }, 100, second.turn)).toBeNull();
  });

  test("of more gaps than are kept drops the first ones", () => {
    let bucket = empty;
    const all: TakenTokens[] = [];
    for (let i = 0; i < 250; i++) {
      const taken = decideTake(bucket, 100, 1);
      all.push(taken);
      bucket = taken.bucket;
    }
    for (const [i, one] of all.entries()) if (i % 2 === 0) bucket = giveBack(bucket, one);
    expect(bucket.gaps).toHaveLength(100);
    // Gaps 0, 2, …, 48 are dropped: the first that is left is number 50.
    expect(decideTake(bucket, 100, 1).waitMs).toBe(510);
  });
});

describe("declaring", () => {
  const declare = (bucket: Bucket, figures: Figures, declaredMs = 2) => decideDeclare(bucket, figures, declaredMs, 100);

  test.each([
    { rule: "an earlier declaration changes nothing", declaredMs: 0, burst: 3 },
    { rule: "nor does one of the same moment", declaredMs: 1, burst: 3 },
    { rule: "a later one is in force", declaredMs: 2, burst: 9 },
  ])("$rule", ({ declaredMs, burst }) => {
    expect(declare(at(110), { ...slow, burst: 9 }, declaredMs).burst).toBe(burst);
  });

  test("a later one of the same figures only changes the time", () => {
    const bucket = at(117, { fullAtPart: 0, gaps: [[105, 0, 108, 0]] });
    expect(declare(bucket, slow)).toEqual({ ...bucket, declaredMs: 2 });
  });

  test.each([
    { rule: "a full bucket stays full", fullAtMs: 90, figures: { max: 1, perMs: 50, burst: 7 }, remaining: 7 },
    { rule: "what was taken stays taken", fullAtMs: 120, figures: { max: 1, perMs: 50, burst: 7 }, remaining: 5 },
    { rule: "a part of a token counts whole", fullAtMs: 111, figures: { max: 1, perMs: 50, burst: 7 }, remaining: 5 },
    {
      rule: "an empty one gets the difference when the burst grows",
      fullAtMs: 130,
      figures: { max: 1, perMs: 10, burst: 7 },
      remaining: 4,
    },
    {
      rule: "one whose burst shrinks is empty at most",
      fullAtMs: 130,
      figures: { max: 1, perMs: 10, burst: 1 },
      remaining: 0,
    },
  ])("$rule", ({ fullAtMs, figures, remaining }) => {
    const bucket = declare(at(fullAtMs), figures);
    expect(bucket).toMatchObject(figures);
    expect(remainingIn(bucket, 100)).toBe(remaining);
    const wait = remaining === 0 ? figures.perMs : 0;
    expect(decideTake(bucket, 100, 1).waitMs).toBe(wait);
  });

  test("waiters keep their turns: the next caller comes one token after the last of them", () => {
    // Two wait, at 110 and 120.
    const bucket = declare(at(150), { max: 1, perMs: 1000, burst: 2 });
    expect(decideTake(bucket, 100, 1).waitMs).toBe(20 + 1000);
    expect(remainingIn(bucket, 120)).toBe(0);
  });

  test("a larger bucket has the rest immediately, when three were taken and two wait", () => {
    const bucket = declare(at(150), { max: 1, perMs: 1000, burst: 9 });
    expect(remainingIn(bucket, 100)).toBe(5);
    expect(remainingIn(bucket, 120)).toBe(6);
  });
});

test.each([
  { figures: { max: 100, perMs: 60_000, burst: 100 }, ms: 60_000 },
  { figures: { max: 3, perMs: 10, burst: 1 }, ms: 4 },
])("a bucket of $figures.burst fills in $ms ms", ({ figures, ms }) => {
  expect(fillMs(figures)).toBe(ms);
});

// ---------------------------------------------------------------------------------------------------- random schedules

const anyFigures = fc.record({
  max: fc.oneof(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 1000 })),
  perMs: fc.oneof(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 1000 })),
  burst: fc.integer({ min: 1, max: 8 }),
});

const anyAct = fc.oneof(
  { weight: 5, arbitrary: fc.record({ act: fc.constant("take"), n: fc.integer({ min: 1, max: 8 }) }) },
  { weight: 2, arbitrary: fc.record({ act: fc.constant("wait"), n: fc.integer({ min: 1, max: 8 }) }) },
  { weight: 2, arbitrary: fc.record({ act: fc.constant("give up"), n: fc.nat(20) }) },
  { weight: 4, arbitrary: fc.record({ act: fc.constant("tick"), n: fc.integer({ min: 0, max: 30 }) }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant("step back"), n: fc.integer({ min: 1, max: 100 }) }) },
);

/** A turn on the line, in parts of a millisecond. */
interface Grant {
  readonly at: bigint;
  readonly count: number;
}

/** Runs the acts, and returns the grants with their times. */
function play(figures: Figures, acts: readonly { readonly act: string; readonly n: number }[]): Grant[] {
  const parts = BigInt(figures.max);
  let nowMs = 1000;
  let bucket = fullBucket(figures, 1, nowMs);
  const granted: Grant[] = [];
  const waiting: (Grant & { readonly taken: TakenTokens })[] = [];
  for (const { act, n } of acts) {
    const count = Math.min(n, figures.burst);
    if (act === "tick") nowMs += n;
    else if (act === "step back") nowMs = Math.max(0, nowMs - n);
    else if (act === "give up") {
      const [one] = waiting.splice(n % Math.max(1, waiting.length), 1);
      if (one !== undefined) bucket = decideRelease(bucket, nowMs, one.taken.turn) ?? bucket;
    } else {
      const taken = decideTake(bucket, nowMs, count);
      if (taken.waitMs > 0 && act === "take") continue;
      bucket = taken.bucket;
      const [, , toMs, toPart] = taken.turn.gap;
      const early = BigInt(toMs) * parts + BigInt(toPart) - BigInt(figures.burst * figures.perMs);
      const now = BigInt(nowMs) * parts;
      const grant = { at: early > now ? early : now, count };
      if (taken.waitMs === 0) granted.push(grant);
      else waiting.push({ ...grant, taken });
    }
  }
  return [...granted, ...waiting].sort((a, b) => (a.at < b.at ? -1 : 1));
}

test("in any window, over random schedules, never more than the burst and what is added", () => {
  fc.assert(
    fc.property(anyFigures, fc.array(anyAct, { maxLength: 60 }), (figures, acts) => {
      const grants = play(figures, acts);
      for (const [i, from] of grants.entries()) {
        let tokens = 0n;
        for (const { at: to, count } of grants.slice(i)) {
          tokens += BigInt(count);
          // Both sides in parts of a millisecond, of which a token has `perMs`.
          if (tokens * BigInt(figures.perMs) > BigInt(figures.burst * figures.perMs) + (to - from.at)) return false;
        }
      }
      return true;
    }),
    { numRuns: 3000 },
  );
});

test("without waiters it is exactly a textbook token bucket", () => {
  fc.assert(
    fc.property(anyFigures, fc.array(anyAct, { maxLength: 60 }), (figures, acts) => {
      let nowMs = 1000;
      let bucket = fullBucket(figures, 1, nowMs);
      // Counted in parts too: `perMs` for a token, `max` for a millisecond.
      let level = figures.burst * figures.perMs;
      for (const { act, n } of acts) {
        if (act === "tick") {
          nowMs += n;
          level = Math.min(figures.burst * figures.perMs, level + n * figures.max);
        } else if (act === "take") {
          const count = Math.min(n, figures.burst);
          expect(remainingIn(bucket, nowMs)).toBe(Math.floor(level / figures.perMs));
          const { waitMs, bucket: after } = decideTake(bucket, nowMs, count);
          const missing = count * figures.perMs - level;
          expect(waitMs).toBe(Math.max(0, Math.ceil(missing / figures.max)));
          if (waitMs > 0) continue;
          bucket = after;
          level -= count * figures.perMs;
        }
      }
    }),
    { numRuns: 1000 },
  );
});

test("when all waiters have given up, in any order, the bucket is as if they had never called", () => {
  const orders = fc
    .integer({ min: 1, max: 20 })
    .chain((n) => fc.shuffledSubarray([...Array(n).keys()], { minLength: n }));
  fc.assert(
    fc.property(
      anyFigures,
      orders,
      fc.array(fc.integer({ min: 1, max: 8 }), { minLength: 20, maxLength: 20 }),
      (figures, order, counts) => {
        const before = decideTake(fullBucket(figures, 1, 1000), 1000, figures.burst).bucket;
        let bucket = before;
        const waiting = order.map((_, i) => {
          const taken = decideTake(bucket, 1000, Math.min(counts[i] ?? 1, figures.burst));
          bucket = taken.bucket;
          return taken;
        });
        for (const i of order) {
          const one = waiting[i];
          if (one !== undefined) bucket = decideRelease(bucket, 1000, one.turn) ?? bucket;
        }
        expect(bucket).toEqual(before);
      },
    ),
  );
});
