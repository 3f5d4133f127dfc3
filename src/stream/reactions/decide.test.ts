/**
 * Goal: what news, failures and operators do to a target is exactly what the rules say.
 * Method: one row for each rule, and one for each side of each boundary.
 */

import { expect, test } from "vitest";
import {
  decideClaimHere,
  decideFailed,
  decideHandled,
  decideOperation,
  decidePage,
  decideReady,
  isAside,
  isRepeated,
  isWokenByNews,
  type Operation,
  PRIORITY_MS,
  type TargetChange,
  type TargetState,
  withAside,
  withCursor,
} from "./decide.ts";
import type { RouterValue, TargetValue } from "./stored.ts";

const failure = { count: 2, name: "Error", message: "down", atMs: 5 };
const idle: TargetState = { value: { done: 3 }, routed: 3, holder: null, status: null, dueMs: null };
const due: TargetState = { ...idle, routed: 5, dueMs: 90 };
const held: TargetState = { ...due, holder: "ann", dueMs: 200 };
const retrying: TargetState = { ...due, value: { done: 3, failure }, dueMs: 300 };
const blocked: TargetState = { ...due, value: { done: 3, failure, blockedAtMs: 50 }, status: "blocked", dueMs: null };
const paused: TargetState = { ...due, value: { done: 3, pausedAtMs: 60 }, status: "paused", dueMs: null };
const pausedBlocked: TargetState = { ...blocked, value: { ...blocked.value, pausedAtMs: 60 }, status: "paused" };

test.each([
  { rule: "an idle target is woken", state: idle, isWoken: true },
  { rule: "one that is worked on learns of it", state: held, isWoken: true },
  { rule: "one that is due needs nothing", state: due, isWoken: false },
  { rule: "one that waits after a failure keeps its delay", state: retrying, isWoken: false },
  { rule: "one that is blocked stays so", state: blocked, isWoken: false },
  { rule: "one that is paused stays so", state: paused, isWoken: false },
])("$rule", ({ state, isWoken }) => {
  expect(isWokenByNews(state)).toBe(isWoken);
});

test.each([
  { rule: "a target with nothing else to do is claimed with its events", state: due, tries: 0, added: 2, is: "events" },
  { rule: "one with earlier events is claimed, and its log is read", state: due, tries: 0, added: 1, is: "rest" },
  { rule: "one that got no event is not claimed", state: due, tries: 0, added: 0, is: "no" },
  { rule: "nor one that was tried before", state: due, tries: 1, added: 2, is: "no" },
  { rule: "nor one that is worked on", state: held, tries: 0, added: 2, is: "no" },
])("$rule", ({ state, tries, added, is }) => {
  expect(decideClaimHere(state, tries, added)).toBe(is);
});

test.each([
  { rule: "where more events wait, the next page is longer", limit: 400, hasMore: true, characters: 50, next: 800 },
  { rule: "up to a limit", limit: 1600, hasMore: true, characters: 50, next: 1600 },
  { rule: "not where it would have too many characters", limit: 800, hasMore: true, characters: 51, next: 800 },
  { rule: "where it has too many, the next one is short", limit: 1600, hasMore: true, characters: 101, next: 400 },
  { rule: "so is one after the last", limit: 1600, hasMore: false, characters: 1, next: 400 },
])("$rule", ({ limit, hasMore, characters, next }) => {
  const bounds = { least: 400, most: 1600, mostCharacters: 100 };
  expect(decidePage(limit, { ...bounds, hasMore, characters })).toBe(next);
});

test.each([
  { rule: "an event that was handled is counted", value: { done: 3 }, done: 4, losses: 0, next: { done: 4 } },
  { rule: "so are several", value: { done: 3, resetAt: 9 }, done: 7, losses: 0, next: { done: 7, resetAt: 9 } },
  { rule: "their failures are forgotten", value: { done: 3, failure }, done: 4, losses: 0, next: { done: 4 } },
  { rule: "lost leases are kept", value: { done: 3 }, done: 4, losses: 2, next: { done: 4, losses: 2 } },
])("$rule", ({ value, done, losses, next }) => {
  expect(decideHandled(value as TargetValue, done, losses)).toEqual(next);
});

const error = { name: "Error", message: "down" };
test.each([
  {
    rule: "a first failure waits for its delay",
    value: { done: 3 },
    delayMs: 10,
    change: { value: { done: 3, failure: { ...error, count: 1, atMs: 100 } }, status: null, dueMs: 110 },
  },
  {
    rule: "failures are counted",
    value: { done: 3, failure },
    delayMs: 0,
    change: { value: { done: 3, failure: { ...error, count: 3, atMs: 100 } }, status: null, dueMs: 100 },
  },
  {
    rule: "the last one blocks",
    value: { done: 3, failure },
    delayMs: null,
    change: {
      value: { done: 3, failure: { ...error, count: 3, atMs: 100 }, blockedAtMs: 100 },
      status: "blocked",
      dueMs: null,
    },
  },
])("$rule", ({ value, delayMs, change }) => {
  expect(decideFailed(value as TargetValue, { error, delayMs, nowMs: 100, losses: 0 })).toEqual(change);
  const lossy = decideFailed(value as TargetValue, { error, delayMs, nowMs: 100, losses: 4 });
  expect(lossy.value.losses).toBe(4);
});

test.each([
  { rule: "a target with events left is due", done: 2, routed: 3, dueMs: 100 },
  { rule: "one without is not", done: 3, routed: 3, dueMs: null },
])("$rule", ({ done, routed, dueMs }) => {
  expect(decideReady({ done }, routed, 100)).toEqual({ value: { done }, status: null, dueMs });
});

const ready = (done: number): TargetChange => ({ value: { done }, status: null, dueMs: 100 });
const again: TargetChange = { value: { done: 0, resetAt: 5 }, status: null, dueMs: 100 };
test.each<{ rule: string; operation: Operation; state: TargetState; change: TargetChange | null }>([
  { rule: "a blocked target is unblocked", operation: "unblock", state: blocked, change: ready(3) },
  { rule: "one that is not blocked is left", operation: "unblock", state: retrying, change: null },
  {
    rule: "a target is paused",
    operation: "pause",
    state: due,
    change: { value: { done: 3, pausedAtMs: 100 }, status: "paused", dueMs: null },
  },
  { rule: "a paused one is left", operation: "pause", state: paused, change: null },
  { rule: "a paused target resumes", operation: "resume", state: paused, change: ready(3) },
  {
    rule: "a blocked one that was paused is blocked again",
    operation: "resume",
    state: pausedBlocked,
    change: { value: blocked.value, status: "blocked", dueMs: null },
  },
  { rule: "one that is not paused does not resume", operation: "resume", state: blocked, change: null },
  { rule: "a reset begins at the first event", operation: "reset", state: blocked, change: again },
  { rule: "also of one that is worked on", operation: "reset", state: held, change: again },
  {
    rule: "a paused one stays paused",
    operation: "reset",
    state: paused,
    change: { value: { done: 0, resetAt: 5, pausedAtMs: 60 }, status: "paused", dueMs: null },
  },
  { rule: "the failed event of a blocked target is skipped", operation: "skip", state: blocked, change: ready(4) },
  {
    rule: "that of a paused one, which stays paused",
    operation: "skip",
    state: paused,
    change: { value: { done: 4, pausedAtMs: 60 }, status: "paused", dueMs: null },
  },
  { rule: "not that of one that may move on", operation: "skip", state: retrying, change: null },
  { rule: "nor of one without events", operation: "skip", state: { ...paused, routed: 3 }, change: null },
  {
    rule: "the last event is skipped, and nothing is left",
    operation: "skip",
    state: { ...blocked, routed: 4 },
    change: { value: { done: 4 }, status: null, dueMs: null },
  },
  {
    rule: "a due target comes before all others",
    operation: "prioritize",
    state: due,
    change: { value: { done: 3 }, status: null, dueMs: PRIORITY_MS },
  },
  { rule: "not one that is worked on", operation: "prioritize", state: held, change: null },
  { rule: "nor one with nothing to do", operation: "prioritize", state: idle, change: null },
  { rule: "nor one that is blocked", operation: "prioritize", state: blocked, change: null },
])("$operation: $rule", ({ operation, state, change }) => {
  expect(decideOperation(operation, state, 100)).toEqual(change);
});

test.each([
  { rule: "a letter that was sent again before the reset is passed by", resetAt: 4, index: 4, isAgain: true, is: true },
  { rule: "one that was sent after it is handled", resetAt: 4, index: 5, isAgain: true, is: false },
  { rule: "without a reset it is handled", resetAt: undefined, index: 4, isAgain: true, is: false },
  { rule: "every other event is handled", resetAt: 4, index: 4, isAgain: undefined, is: false },
])("$rule", ({ resetAt, index, isAgain, is }) => {
  const value: TargetValue = { done: 0, ...(resetAt === undefined ? {} : { resetAt }) };
  expect(isRepeated(value, index, { version: 2, ...(isAgain === undefined ? {} : { isAgain: true }) })).toBe(is);
});

const router: RouterValue = { cursor: 10, on: ["Sent"] };
const ann = { stream: "ann", from: 3, to: 5, position: 20 };
const bob = { stream: "bob", from: 1, to: 1, position: 30 };

test.each([
  { rule: "the first event that is put aside is not routed", stream: "ann", version: 3, is: true },
  { rule: "nor is the last", stream: "ann", version: 5, is: true },
  { rule: "the one before is", stream: "ann", version: 2, is: false },
  { rule: "the one after is", stream: "ann", version: 6, is: false },
  { rule: "one of another stream is", stream: "bob", version: 4, is: false },
])("$rule", ({ stream, version, is }) => {
  expect(isAside({ ...router, aside: [ann] }, stream, version)).toBe(is);
  expect(isAside(router, stream, version)).toBe(false);
});

test.each([
  { rule: "events that are put aside are remembered", before: undefined, added: ann, aside: [ann] },
  { rule: "beside those of other streams", before: [ann], added: bob, aside: [ann, bob] },
  {
    rule: "earlier ones of the stream are in the same range",
    before: [ann, bob],
    added: { ...ann, from: 1, to: 2, position: 18 },
    aside: [bob, { ...ann, from: 1 }],
  },
  {
    rule: "and so are later ones",
    before: [ann],
    added: { ...ann, from: 7, to: 9, position: 24 },
    aside: [{ ...ann, to: 9, position: 24 }],
  },
])("$rule", ({ before, added, aside }) => {
  const value = before === undefined ? router : { ...router, aside: before };
  expect(withAside(value, added)).toEqual({ ...router, aside });
});

test.each([
  { rule: "before their position, they are remembered", cursor: 19, aside: [ann, bob] },
  { rule: "at their position, they are forgotten", cursor: 20, aside: [bob] },
  { rule: "when all are, nothing is left", cursor: 30, aside: undefined },
])("$rule", ({ cursor, aside }) => {
  const after = withCursor({ ...router, aside: [ann, bob] }, cursor);
  expect(after).toEqual({ ...router, cursor, ...(aside === undefined ? {} : { aside }) });
  expect(Object.hasOwn(after, "aside")).toBe(aside !== undefined);
});
