/**
 * Goal: as many hold a lock as fit, a lease ends at its end and not after, and a renewal takes nothing away.
 * Method: one row for each rule, and one for each side of every boundary.
 */

import { describe, expect, test } from "vitest";
import { firstEnd, fits, isAlive, isFull, living, renewed } from "./decide.ts";
import type { Holder, Mode } from "./stored.ts";

const holder = (ticket: string, mode: Mode, untilMs: number | null = 100): Holder => ({
  ticket,
  mode,
  untilMs,
  fence: 7,
  sinceMs: 0,
});

const reader = holder("r", "shared");
const other = holder("o", "shared");
const third = holder("t", "shared");
const writer = holder("w", "exclusive");

describe("fits", () => {
  const rules: readonly {
    readonly rule: string;
    readonly permits: number | null;
    readonly holders: readonly Holder[];
    readonly mode: Mode;
    readonly fits: boolean;
  }[] = [
    { rule: "a free lock fits one who wants it alone", permits: null, holders: [], mode: "exclusive", fits: true },
    { rule: "a free lock fits one who would share it", permits: null, holders: [], mode: "shared", fits: true },
    {
      rule: "one who has it alone keeps out another",
      permits: null,
      holders: [writer],
      mode: "exclusive",
      fits: false,
    },
    { rule: "one who has it alone keeps out a reader", permits: null, holders: [writer], mode: "shared", fits: false },
    { rule: "a reader keeps out a writer", permits: null, holders: [reader], mode: "exclusive", fits: false },
    { rule: "readers come together", permits: null, holders: [reader], mode: "shared", fits: true },
    { rule: "any number of readers", permits: null, holders: [reader, other, third], mode: "shared", fits: true },
    { rule: "the only permit is there", permits: 1, holders: [], mode: "shared", fits: true },
    { rule: "the only permit is taken", permits: 1, holders: [reader], mode: "shared", fits: false },
    { rule: "the last permit is there", permits: 2, holders: [reader], mode: "shared", fits: true },
    { rule: "the last permit is taken", permits: 2, holders: [reader, other], mode: "shared", fits: false },
    { rule: "more hold it than may: none fits", permits: 1, holders: [reader, other], mode: "shared", fits: false },
    { rule: "still one too many", permits: 2, holders: [reader, other, third], mode: "shared", fits: false },
    { rule: "a permit does not let in beside a writer", permits: 2, holders: [writer], mode: "shared", fits: false },
    { rule: "a permit does not make alone", permits: 2, holders: [reader], mode: "exclusive", fits: false },
    {
      rule: "a writer among readers still counts",
      permits: null,
      holders: [reader, writer],
      mode: "shared",
      fits: false,
    },
  ];
  test.each(rules)("$rule", ({ permits, holders, mode, fits: answer }) => {
    expect(fits({ permits, holders }, mode)).toBe(answer);
  });
});

describe("isFull", () => {
  test.each([
    { rule: "a free lock is not full", permits: null, holders: [], full: false },
    { rule: "a free semaphore is not full", permits: 1, holders: [], full: false },
    { rule: "a writer fills it", permits: null, holders: [writer], full: true },
    { rule: "a writer fills it beside free permits", permits: 2, holders: [writer], full: true },
    { rule: "readers do not fill it", permits: null, holders: [reader, other], full: false },
    { rule: "it is not full while a permit is left", permits: 2, holders: [reader], full: false },
    { rule: "it is full when the last permit is taken", permits: 2, holders: [reader, other], full: true },
    { rule: "it is full when more hold it than may", permits: 2, holders: [reader, other, third], full: true },
  ])("$rule", ({ permits, holders, full }) => {
    expect(isFull({ permits, holders })).toBe(full);
  });
});

describe("isAlive", () => {
  test.each([
    { rule: "before its end it holds", untilMs: 100, nowMs: 99, alive: true },
    { rule: "at its end it holds no more", untilMs: 100, nowMs: 100, alive: false },
    { rule: "after its end neither", untilMs: 100, nowMs: 101, alive: false },
    { rule: "a clock that stepped back finds it alive again", untilMs: 100, nowMs: 0, alive: true },
    { rule: "a run has no end", untilMs: null, nowMs: Number.MAX_SAFE_INTEGER, alive: true },
    { rule: "an end at 0 is an end, and not a run's", untilMs: 0, nowMs: 0, alive: false },
  ])("$rule", ({ untilMs, nowMs, alive }) => {
    expect(isAlive({ untilMs }, nowMs)).toBe(alive);
  });
});

describe("living", () => {
  const early = holder("early", "shared", 50);
  const late = holder("late", "shared", 100);
  const run = holder("run", "shared", null);

  test.each([
    { rule: "all are alive", nowMs: 49, tickets: ["early", "late", "run"] },
    { rule: "one ends at its end, the others stay in their order", nowMs: 50, tickets: ["late", "run"] },
    { rule: "the last millisecond of a lease counts", nowMs: 99, tickets: ["late", "run"] },
    { rule: "only the run is left", nowMs: 100, tickets: ["run"] },
  ])("$rule", ({ nowMs, tickets }) => {
    expect(living([early, late, run], nowMs).map(({ ticket }) => ticket)).toEqual(tickets);
  });

  test("nobody is nobody", () => {
    expect(living([], 0)).toEqual([]);
  });

  test("where nobody ended, it is the very same list, so that nothing is written for it", () => {
    const holders = [early, late];
    expect(living(holders, 49)).toBe(holders);
  });
});

describe("renewed", () => {
  test.each([
    { rule: "it holds a lease from now on", untilMs: 100, nowMs: 90, leaseMs: 30, until: 120 },
    { rule: "a clock that stepped back does not shorten it", untilMs: 100, nowMs: 10, leaseMs: 30, until: 100 },
    { rule: "just as long is no shorter", untilMs: 100, nowMs: 70, leaseMs: 30, until: 100 },
    { rule: "one millisecond more is more", untilMs: 100, nowMs: 71, leaseMs: 30, until: 101 },
    { rule: "a shorter lease does not shorten what was given", untilMs: 100, nowMs: 90, leaseMs: 5, until: 100 },
    { rule: "one that has ended begins anew", untilMs: 100, nowMs: 500, leaseMs: 30, until: 530 },
  ])("$rule", ({ untilMs, nowMs, leaseMs, until }) => {
    expect(renewed(untilMs, nowMs, leaseMs)).toBe(until);
  });
});

describe("firstEnd", () => {
  const ending = (...ends: readonly (number | null)[]) => ends.map((untilMs, i) => holder(`h${i}`, "shared", untilMs));

  test.each([
    { rule: "nobody ends never", holders: [], ends: null },
    { rule: "runs end never", holders: ending(null, null), ends: null },
    { rule: "the only lease", holders: ending(100), ends: 100 },
    { rule: "the earliest, wherever it stands", holders: ending(100, 50, 70), ends: 50 },
    { rule: "the earliest, if it is the first", holders: ending(50, 100), ends: 50 },
    { rule: "a run beside it changes nothing", holders: ending(null, 100), ends: 100 },
    { rule: "nor after it", holders: ending(100, null), ends: 100 },
    { rule: "an end at 0 is an end", holders: ending(100, 0), ends: 0 },
  ])("$rule", ({ holders, ends }) => {
    expect(firstEnd(holders)).toBe(ends);
  });
});
