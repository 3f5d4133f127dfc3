/**
 * Goal: when a policy looks at a stream, and what it does about it, is exactly what the rules say.
 * Method: one row for each rule, and one for each side of each boundary.
 */

import { expect, test } from "vitest";
import { decideStep, isLookedAt, mostKept, restMs, type StreamFacts } from "./decide.ts";
import type { PolicyStreamValue, Taken } from "./stored.ts";

const rules = { prefix: "a-", keep: undefined, olderMs: undefined, idleMs: undefined };
const idle = { ...rules, idleMs: 100 };
const keeps = { ...rules, keep: 20 };
const ages = { ...rules, olderMs: 100 };
const both = { ...idle, keep: 20 };

/** Versions 6 to 10 are kept; the first is of 500, the last of 900. */
const facts: StreamFacts = {
  id: "a-1",
  head: 10,
  firstVersion: 6,
  closedAt: undefined,
  lastAtMs: 900,
  firstAtMs: 500,
};
const closed = { ...facts, head: 11, closedAt: 11 };
const fresh: PolicyStreamValue = {};
const closing: Taken = { is: "close", from: 6, head: 10 };
const pruning: Taken = { is: "prune", from: 3, head: 10 };

test.each([
  { rule: "a stream that is gone is left", of: idle, facts: null, nowMs: 0, step: { is: "leave" } },
  { rule: "one that is closed is left", of: idle, facts: closed, nowMs: 5000, step: { is: "leave" } },
  {
    rule: "one of other rules is left",
    of: idle,
    facts: { ...facts, id: "b-1" },
    nowMs: 5000,
    step: { is: "leave" },
  },
  { rule: "one that is idle is closed", of: idle, nowMs: 1000, step: { is: "close", taken: closing } },
  { rule: "one that is not yet waits until it is", of: idle, nowMs: 999, step: { is: "wait", dueMs: 1000 } },
  {
    rule: "with few events, it waits for more",
    of: keeps,
    nowMs: 1e9,
    step: { is: "wait", dueMs: null, prunesAt: 27 },
  },
  {
    rule: "one event before it has a tenth more than are kept, too",
    of: keeps,
    facts: { ...facts, head: 26 },
    nowMs: 0,
    step: { is: "wait", dueMs: null, prunesAt: 27 },
  },
  {
    rule: "with a tenth more than are kept, those before the last are pruned",
    of: keeps,
    facts: { ...facts, head: 27 },
    nowMs: 0,
    step: { is: "prune", before: 8, taken: { is: "prune", from: 6, head: 27 } },
  },
  {
    rule: "events that are older are pruned",
    of: ages,
    nowMs: 601,
    step: { is: "prune", before: { ms: 501 }, taken: { is: "prune", from: 6, head: 10 } },
  },
  { rule: "those that are just as old are not yet", of: ages, nowMs: 600, step: { is: "wait", dueMs: 601 } },
  {
    rule: "the last event stays, however old",
    of: ages,
    facts: { ...facts, firstVersion: 10 },
    nowMs: 1e9,
    step: { is: "wait", dueMs: null },
  },
  {
    rule: "closing comes before pruning",
    of: both,
    facts: { ...facts, head: 50 },
    nowMs: 1000,
    step: { is: "close", taken: { is: "close", from: 6, head: 50 } },
  },
  {
    rule: "what is not idle waits for both",
    of: both,
    nowMs: 900,
    step: { is: "wait", dueMs: 1000, prunesAt: 27 },
  },
  {
    rule: "of two times, the first counts",
    of: { ...ages, idleMs: 100, olderMs: 700 },
    nowMs: 900,
    step: { is: "wait", dueMs: 1000 },
  },
  {
    rule: "a closing that was begun is ended, whatever the rules",
    of: { ...keeps, prefix: "b-" },
    value: { taken: closing },
    facts: closed,
    nowMs: 0,
    step: { is: "close", taken: closing },
  },
  {
    rule: "one that was not begun is not",
    of: keeps,
    value: { taken: closing },
    nowMs: 0,
    step: { is: "wait", dueMs: null, prunesAt: 27 },
  },
  {
    rule: "one that another call began is left",
    of: idle,
    value: { taken: closing },
    facts: { ...closed, head: 12, closedAt: 12 },
    nowMs: 5000,
    step: { is: "leave" },
  },
  {
    rule: "a pruning that was begun is ended",
    of: idle,
    value: { taken: pruning },
    nowMs: 0,
    step: { is: "prune", before: 6, taken: pruning },
  },
  {
    rule: "one that has removed nothing is decided anew",
    of: idle,
    value: { taken: { ...pruning, from: 6 } },
    nowMs: 0,
    step: { is: "wait", dueMs: 1000 },
  },
])("$rule", ({ of, value = fresh, facts: found = facts, nowMs, step }) => {
  expect(decideStep(of, value, found ?? undefined, nowMs)).toEqual(step);
});

test.each([
  { rule: "a new stream is looked at, where it can be idle", of: idle, version: 1, is: true },
  { rule: "or can be old", of: ages, version: 1, is: true },
  { rule: "where only the number counts, when it has enough", of: keeps, version: 22, is: true },
  { rule: "and not before", of: keeps, version: 21, is: false },
  { rule: "one that waits for its time is not", of: idle, known: { value: {}, dueMs: 5 }, version: 9, is: false },
  { rule: "one that waits for nothing is", of: ages, known: { value: {}, dueMs: null }, version: 2, is: true },
  {
    rule: "one that waits for a version is, when it has it",
    of: both,
    known: { value: { prunesAt: 27 }, dueMs: 5 },
    version: 27,
    is: true,
  },
  {
    rule: "and not before, too",
    of: keeps,
    known: { value: { prunesAt: 27 }, dueMs: null },
    version: 26,
    is: false,
  },
])("$rule", ({ of, known, version, is }) => {
  expect(isLookedAt(of, known, version)).toBe(is);
});

test("a stream is pruned with a tenth more than are kept, and at least one more", () => {
  expect([1, 3, 10, 19, 20, 1000].map(mostKept)).toEqual([2, 4, 11, 20, 22, 1100]);
});

test("what was pruned by age rests for a tenth of it, and at most a day; by number, not at all", () => {
  const day = 24 * 3_600_000;
  expect([1000, 3_600_000, 10 * day, 90 * day].map((olderMs) => restMs({ ...rules, olderMs }))).toEqual([
    100,
    360_000,
    day,
    day,
  ]);
  expect(restMs(keeps)).toBe(0);
});
