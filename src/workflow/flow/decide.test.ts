import { describe, expect, test } from "vitest";
import {
  afterTurn,
  debouncedUntil,
  fits,
  isAwaited,
  isBatchFull,
  isFull,
  isTurnOver,
  mayTakeNext,
  metAtMs,
  nextLane,
  PRIORITY_MS,
  withoutFirst,
  withoutRun,
  withRun,
} from "./decide.ts";
import type { Lane } from "./stored.ts";

describe("a limit", () => {
  const rules = [
    { rule: "with room admits", held: 1, max: 2, fits: true, isFull: false },
    { rule: "is full at its maximum", held: 2, max: 2, fits: false, isFull: true },
    { rule: "above its maximum, because that was lowered, admits none", held: 3, max: 2, fits: false, isFull: true },
    {
      rule: "that others wait for is not passed by a new run",
      held: 1,
      max: 2,
      first: "line",
      fits: false,
      isFull: false,
    },
  ];
  test.each(rules)("$rule", ({ rule: _, fits: isFitting, isFull: isWithoutRoom, ...limit }) => {
    expect(fits(limit)).toBe(isFitting);
    expect(isFull(limit)).toBe(isWithoutRoom);
    expect(isAwaited(limit)).toBe(limit.first !== undefined);
  });
});

describe("the next of a line", () => {
  const lane = (priority: number, sinceMs: number): Lane => [priority, `p${priority}`, `p${priority}`, 1, sinceMs];
  const rules: { rule: string; lanes: readonly Lane[]; next: number | undefined }[] = [
    { rule: "is none in an empty line", lanes: [], next: undefined },
    { rule: "has waited longest, of one priority", lanes: [lane(0, 5)], next: 0 },
    { rule: "has the higher priority, of those that came together", lanes: [lane(0, 5), lane(1, 5)], next: 1 },
    {
      rule: "has the higher priority, if it waits up to a minute less",
      lanes: [lane(0, 5), lane(1, 5 + PRIORITY_MS)],
      next: 1,
    },
    {
      rule: "has the lower priority, if it waits more than that",
      lanes: [lane(0, 5), lane(1, 6 + PRIORITY_MS)],
      next: 0,
    },
    { rule: "may have a priority below zero", lanes: [lane(-1, 5), lane(-2, 5)], next: -1 },
  ];
  test.each(rules)("$rule", ({ lanes, next }) => {
    expect(nextLane(lanes)?.[0]).toBe(next);
    expect(nextLane(lanes.toReversed())?.[0]).toBe(next);
  });
});

describe("the lanes of a line", () => {
  const three: readonly Lane[] = [[0, "a", "c", 3, 1]];
  test("a run is added at the end of those of its priority", () => {
    expect(withRun([], "a", 0, 1)).toEqual([[0, "a", "a", 1, 1]]);
    expect(withRun(three, "d", 0, 9)).toEqual([[0, "a", "d", 4, 1]]);
    expect(withRun(three, "d", 2, 9)).toEqual([...three, [2, "d", "d", 1, 9]]);
  });
  const rules = [
    { rule: "the first", run: "a", at: { prev: null, next: "b", nextSinceMs: 2 }, lanes: [[0, "b", "c", 2, 2]] },
    { rule: "one in the middle", run: "b", at: { prev: "a", next: "c", nextSinceMs: 3 }, lanes: [[0, "a", "c", 2, 1]] },
    { rule: "the last", run: "c", at: { prev: "b", next: null }, lanes: [[0, "a", "b", 2, 1]] },
  ];
  test.each(rules)("$rule is removed", ({ run, at, lanes }) => {
    expect(withoutRun(three, run, 0, at)).toEqual(lanes);
  });
  test("the last one of a priority takes the lane with it", () => {
    expect(withoutRun([[1, "a", "a", 1, 1]], "a", 1, { prev: null, next: null })).toEqual([]);
    expect(withoutRun(three, "a", 5, { prev: null, next: null })).toBe(three);
  });
});

test.each([
  { rule: "the next line has its turn after one run", credit: 1, weight: 1, after: { credit: 1, isNext: true } },
  { rule: "a line of more weight keeps its turn", credit: 3, weight: 3, after: { credit: 2, isNext: false } },
  { rule: "until it has used it", credit: 1, weight: 3, after: { credit: 3, isNext: true } },
])("$rule", ({ credit, weight, after }) => expect(afterTurn({ credit, weight })).toEqual(after));

test.each([
  { rule: "starts begin after a quiet time", now: 100, first: 100, maxWait: null, until: 110 },
  { rule: "each start begins it anew", now: 109, first: 100, maxWait: null, until: 119 },
  { rule: "but not later than the longest wait", now: 109, first: 100, maxWait: 15, until: 115 },
  { rule: "which may be reached exactly", now: 105, first: 100, maxWait: 15, until: 115 },
])("$rule", ({ now, first, maxWait, until }) => expect(debouncedUntil(now, first, 10, maxWait)).toBe(until));

test.each([
  { count: 9, bytes: 10, isFull: false },
  { count: 10, bytes: 10, isFull: true },
  { count: 2, bytes: 1000, isFull: true },
  { count: 2, bytes: 999, isFull: false },
])("a batch of ten with $count inputs of $bytes bytes", ({ count, bytes, isFull: isComplete }) =>
  expect(isBatchFull(count, bytes, 10, 1000)).toBe(isComplete),
);

test.each([
  { rule: "a start is of its own time", nowMs: 120, dueMs: undefined, atMs: 120 },
  { rule: "and not before the first one of its run", nowMs: 99, dueMs: undefined, atMs: 100 },
  { rule: "one that meets a run which was taken is not before that was complete", nowMs: 149, dueMs: 150, atMs: 150 },
  { rule: "and is of its own time after that", nowMs: 151, dueMs: 150, atMs: 151 },
])("$rule", ({ nowMs, dueMs, atMs }) => expect(metAtMs(nowMs, 100, dueMs)).toBe(atMs));

test("a clock that was set back delays no start", () => expect(metAtMs(1_000, 99_000, 100_000)).toBe(1_000));

test.each([
  { rule: "a run that had its turn at once is never late", turn: undefined, late: 0, now: 99_999, isOver: false },
  { rule: "a turn may be taken half a second later", turn: 1000, late: 0, now: 1500, isOver: false },
  { rule: "and is over after that", turn: 1000, late: 0, now: 1501, isOver: true },
  { rule: "a second turn may be taken later", turn: 1000, late: 1, now: 3000, isOver: false },
  { rule: "and is over, too", turn: 1000, late: 1, now: 3001, isOver: true },
])("$rule", ({ turn, late, now, isOver }) => expect(isTurnOver(turn, late, now)).toBe(isOver));

test.each([
  { rule: "the process that ends a run takes the next one", inARow: 0, mayHaveMore: false, may: true },
  { rule: "fifteen times in a row", inARow: 14, mayHaveMore: false, may: true },
  { rule: "and leaves the sixteenth to others", inARow: 15, mayHaveMore: false, may: false },
  { rule: "where more is due than there are places, it takes one", inARow: 0, mayHaveMore: true, may: true },
  { rule: "and leaves the second place to that", inARow: 1, mayHaveMore: true, may: false },
])("$rule", ({ inARow, mayHaveMore, may }) => expect(mayTakeNext(inARow, mayHaveMore)).toBe(may));

describe("a line without its first run, which cannot be read,", () => {
  const lane: Lane = [0, "a", "d", 4, 100];
  const other: Lane = [5, "x", "x", 1, 50];
  const rules: {
    rule: string;
    lanes: readonly Lane[];
    next?: { run: string; sinceMs: number };
    after: readonly Lane[];
  }[] = [
    {
      rule: "begins with the next one that can be read",
      lanes: [lane, other],
      next: { run: "b", sinceMs: 110 },
      after: [[0, "b", "d", 3, 110], other],
    },
    { rule: "has none of that priority where none can be read", lanes: [lane, other], after: [other] },
    { rule: "is empty where none is left", lanes: [lane], after: [] },
    {
      rule: "never counts less than the one that is there",
      lanes: [[0, "a", "b", 1, 9]],
      next: { run: "b", sinceMs: 9 },
      after: [[0, "b", "b", 1, 9]],
    },
    {
      rule: "ends with the next one, if it ended with that",
      lanes: [[0, "a", "a", 1, 9]],
      next: { run: "b", sinceMs: 9 },
      after: [[0, "b", "b", 1, 9]],
    },
    {
      rule: "stays as it is, if it has none of that priority",
      lanes: [other],
      next: { run: "b", sinceMs: 9 },
      after: [other],
    },
  ];
  test.each(rules)("$rule", ({ lanes, next, after }) => expect(withoutFirst(lanes, 0, next)).toEqual(after));
});
