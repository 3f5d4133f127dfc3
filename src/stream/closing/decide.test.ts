import { describe, expect, test } from "vitest";
import type { StreamValue } from "../stored.ts";
import {
  type CloseRequest,
  decideClose,
  decidePrune,
  decideStart,
  hasRemoved,
  type StreamState,
  withRemoved,
  withTombstone,
} from "./decide.ts";

const state = (head: number, value: StreamValue = {}): StreamState => ({ head, value });
const any: CloseRequest = { expectedVersion: undefined, restart: undefined };
const restarted = { version: 4, archived: 3, at: 5, hash: "new year" };
const again = { is: "restarted", version: 4, archived: 3, restartedAt: 5 };

describe("close", () => {
  test.each([
    { rule: "a stream without a record is missing", at: undefined, asked: any, step: { is: "missing" } },
    { rule: "a stream without events is missing", at: state(0), asked: any, step: { is: "missing" } },
    { rule: "an open stream is closed", at: state(3), asked: any, step: { is: "close" } },
    { rule: "at the expected version", at: state(3), asked: { ...any, expectedVersion: 3 }, step: { is: "close" } },
    { rule: "and at no other", at: state(3), asked: { ...any, expectedVersion: 2 }, step: { is: "conflict" } },
    {
      rule: "a closed stream is archived up to its tombstone",
      at: state(4, { closed: { version: 4 } }),
      asked: { ...any, expectedVersion: 3 },
      step: { is: "archive", version: 4, from: 1, to: 3 },
    },
    {
      rule: "from what is kept",
      at: state(9, { closed: { version: 9 }, firstVersion: 5 }),
      asked: any,
      step: { is: "archive", version: 9, from: 5, to: 8 },
    },
    ...[2, 5].map((expectedVersion) => ({
      rule: `the expected version is that of the last event or of the tombstone, and not ${expectedVersion}`,
      at: state(4, { closed: { version: 4 } }),
      asked: { ...any, expectedVersion },
      step: { is: "conflict" },
    })),
    {
      rule: "a caller that has seen the tombstone does the rest",
      at: state(4, { closed: { version: 4 } }),
      asked: { ...any, expectedVersion: 4 },
      step: { is: "archive", version: 4, from: 1, to: 3 },
    },
    {
      rule: "an archived stream is removed",
      at: state(4, { closed: { version: 4, archived: 3 }, firstVersion: 4 }),
      asked: any,
      step: { is: "remove", version: 4, archived: 3 },
    },
    {
      rule: "also where nothing was archived",
      at: state(4, { closed: { version: 4, archived: 0 }, firstVersion: 4 }),
      asked: any,
      step: { is: "remove", version: 4, archived: 0 },
    },
    {
      rule: "a call that restarted the stream was done",
      at: state(5, { restarted }),
      asked: { ...any, restart: "new year" },
      step: again,
    },
    {
      rule: "also if events followed, where it says what it expects",
      at: state(7, { restarted }),
      asked: { expectedVersion: 3, restart: "new year" },
      step: again,
    },
    {
      rule: "which may be the tombstone",
      at: state(7, { restarted }),
      asked: { expectedVersion: 4, restart: "new year" },
      step: again,
    },
    {
      rule: "and not something else",
      at: state(7, { restarted }),
      asked: { expectedVersion: 2, restart: "new year" },
      step: { is: "conflict" },
    },
    {
      rule: "where it does not, they are closed",
      at: state(7, { restarted }),
      asked: { ...any, restart: "new year" },
      step: { is: "close" },
    },
    {
      rule: "another opening event is another call",
      at: state(5, { restarted }),
      asked: { ...any, restart: "another" },
      step: { is: "close" },
    },
    {
      rule: "a call without a restart closes a restarted stream",
      at: state(5, { restarted }),
      asked: any,
      step: { is: "close" },
    },
    {
      rule: "one that expects an earlier version does not",
      at: state(5, { restarted }),
      asked: { ...any, expectedVersion: 3 },
      step: { is: "conflict" },
    },
    {
      rule: "a call whose tombstone was passed is over",
      at: state(7, { restarted }),
      asked: { ...any, restart: "new year", tombstone: 4 },
      step: again,
    },
    {
      rule: "and one that does not restart the stream, too",
      at: state(7, { restarted }),
      asked: { ...any, tombstone: 4 },
      step: again,
    },
    {
      rule: "one whose opening event is not the one that is there is refused",
      at: state(7, { restarted }),
      asked: { ...any, restart: "another", tombstone: 4 },
      step: { is: "conflict" },
    },
    {
      rule: "also while the stream is closed a second time",
      at: state(8, { restarted, closed: { version: 8 } }),
      asked: { ...any, tombstone: 4 },
      step: again,
    },
    {
      rule: "the second closing goes its own way",
      at: state(8, { restarted, firstVersion: 4, closed: { version: 8 } }),
      asked: { ...any, restart: "new year", tombstone: 8 },
      step: { is: "archive", version: 8, from: 4, to: 7 },
    },
    {
      rule: "also if the same event opened the stream before",
      at: state(6, { restarted, firstVersion: 4, closed: { version: 6 } }),
      asked: { expectedVersion: 5, restart: "new year" },
      step: { is: "archive", version: 6, from: 4, to: 5 },
    },
  ])("$rule", ({ at, asked, step }) => {
    expect(decideClose(at, asked)).toEqual(step);
  });
});

describe("prune", () => {
  const fold = (version: number) => ({ by: "me", version, state: 0 });
  const folds = { account: [fold(4), fold(2)], other: [fold(1)] };
  const request = (before: number, isDiscarded = false) => ({ before, isDiscarded });
  test.each([
    { rule: "a stream without a record is missing", at: undefined, asked: request(1), step: { is: "missing" } },
    { rule: "a stream without events is missing", at: state(0), asked: request(1), step: { is: "missing" } },
    {
      rule: "a closed one is not pruned",
      at: state(4, { closed: { version: 4 } }),
      asked: request(2),
      step: { is: "closed" },
    },
    { rule: "the last event stays", at: state(4, { folds }), asked: request(5, true), step: { is: "beyond", most: 4 } },
    {
      rule: "events that a state has are archived",
      at: state(9, { folds }),
      asked: request(5),
      step: { is: "archive", from: 1, to: 4 },
    },
    { rule: "others are not", at: state(9, { folds }), asked: request(6), step: { is: "unfolded", most: 5 } },
    { rule: "without a state none is", at: state(9), asked: request(2), step: { is: "unfolded", most: 1 } },
    {
      rule: "unless they are discarded",
      at: state(9),
      asked: request(9, true),
      step: { is: "archive", from: 1, to: 8 },
    },
    {
      rule: "from what is kept",
      at: state(9, { folds, firstVersion: 4 }),
      asked: request(5),
      step: { is: "archive", from: 4, to: 4 },
    },
    {
      rule: "what is removed is removed",
      at: state(9, { firstVersion: 4 }),
      asked: request(4),
      step: { is: "remove" },
    },
    { rule: "nothing before the first is removed", at: state(9), asked: request(1), step: { is: "remove" } },
  ])("$rule", ({ at, asked, step }) => {
    expect(decidePrune(at, asked)).toEqual(step);
  });
});

describe("what is stored", () => {
  test("a tombstone moves the states of the event before it, and no others", () => {
    const fold = (version: number) => ({ by: "me", version, state: "kept" });
    expect(withTombstone({ folds: { a: [fold(3), fold(2)], b: [fold(3)] } }, 4)).toEqual({
      folds: { a: [fold(4), fold(2)], b: [fold(4)] },
      closed: { version: 4 },
    });
    expect(withTombstone({}, 4)).toEqual({ closed: { version: 4 } });
  });

  test("the names of removed events are collected, until they are too many", () => {
    const once = withRemoved({}, 3, { names: ["b", "a"], position: 7 });
    expect(once).toEqual({ firstVersion: 3, removedNames: ["a", "b"], removedUpTo: 7 });
    expect(withRemoved(once, 5, { names: ["c", "a"], position: 9 })).toEqual({
      firstVersion: 5,
      removedNames: ["a", "b", "c"],
      removedUpTo: 9,
    });
    const many = Array.from({ length: 201 }, (_, i) => `event-${i}`);
    const unknown = withRemoved(once, 5, { names: many, position: 9 });
    expect(unknown).toEqual({ firstVersion: 5, removedUpTo: 9 });
    // What was not listed once cannot be listed later.
    expect(withRemoved(unknown, 7, { names: ["c"], position: 11 })).toEqual({ firstVersion: 7, removedUpTo: 11 });
    // Another call was faster.
    const further = { firstVersion: 9, removedNames: [], removedUpTo: 20 };
    expect(withRemoved(further, 5, { names: [], position: 8 })).toEqual(further);
  });

  test.each([
    { rule: "nothing was removed", value: {}, removed: false },
    { rule: "others were removed", value: { firstVersion: 2, removedNames: ["b"] }, removed: false },
    { rule: "one of them was removed", value: { firstVersion: 2, removedNames: ["b", "a"] }, removed: true },
    { rule: "it is not known which were removed", value: { firstVersion: 2 }, removed: true },
  ])("$rule: $removed", ({ value, removed }) => {
    expect(hasRemoved(value, new Set(["a"]))).toBe(removed);
  });
});

describe("where to fold from", () => {
  const fold = (by: string, version: number) => ({ by, version, state: `${by} ${version}` });
  const rules = (startsFromKept: boolean) => ({ name: "account", by: "new", startsFromKept });
  const of = (...list: ReturnType<typeof fold>[]): StreamValue => ({ folds: { account: list }, firstVersion: 6 });
  test.each([
    {
      rule: "its own state",
      value: of(fold("old", 9), fold("new", 8)),
      kept: true,
      canRead: false,
      start: fold("new", 8),
    },
    { rule: "none of others", value: of(fold("old", 9)), kept: false, canRead: false, start: undefined },
    {
      rule: "none of others where the archive is read",
      value: of(fold("old", 9)),
      kept: true,
      canRead: true,
      start: undefined,
    },
    {
      rule: "the newest of others, where that is accepted",
      value: of(fold("old", 7), fold("older", 9)),
      kept: true,
      canRead: false,
      start: fold("older", 9),
    },
    {
      rule: "one after which all events are kept",
      value: of(fold("old", 5)),
      kept: true,
      canRead: false,
      start: fold("old", 5),
    },
    { rule: "not an earlier one", value: of(fold("old", 4)), kept: true, canRead: false, start: undefined },
    {
      rule: "of others, if its own is too old",
      value: of(fold("new", 4), fold("old", 7)),
      kept: true,
      canRead: false,
      start: fold("old", 7),
    },
    {
      rule: "its own, if events after it must be read",
      value: of(fold("new", 4), fold("old", 7)),
      kept: true,
      canRead: true,
      start: fold("new", 4),
    },
    {
      rule: "none of others, if no event was removed",
      value: { folds: { account: [fold("old", 9)] } },
      kept: true,
      canRead: false,
      start: undefined,
    },
    {
      rule: "nothing of another aggregate",
      value: { folds: { other: [fold("new", 9)] } },
      kept: true,
      canRead: false,
      start: undefined,
    },
  ])("$rule", ({ value, kept, canRead, start }) => {
    expect(decideStart(value, rules(kept), canRead)).toEqual(start);
  });
});
