// Goal: what the lossy runs look for would be found.
// Method: made-up ledgers and states, each with one thing wrong.

import { describe, expect, test } from "vitest";
import type { Note, Operation } from "./ledger.ts";
import { type Addition, checkLists } from "./works/appends.ts";
import { checkTrips, type TripState } from "./works/trips.ts";

/** Commits may be lost from 100 to 200. */
const doubts = [{ from: 100, to: 200 }];

function operation(input: unknown, startedAt: number, endedAt: number, output: unknown = {}): Operation {
  return { work: "test", life: "w0#1", input, startedAt, endedAt, answer: "yes", output, code: null };
}

const note = (what: string, data: unknown, at: number): Note => ({ work: "trips", life: "w0#1", at, what, data });

const addition = (mark: string, ...lists: string[]): Addition => ({ mark, lists, isMessage: false });

describe("lists", () => {
  const asked = [operation(addition("a", "x"), 10, 20), operation(addition("b", "x", "y"), 250, 260)];
  const check = (lists: Record<string, readonly string[]>, operations: readonly Operation[] = asked) =>
    checkLists({ operations, notes: [], doubts }, new Map(Object.entries(lists)));

  test("all that was asked for is there", () => {
    expect(check({ x: ["a", "b"], y: ["b"] })).toEqual({ wrong: [], lost: 0 });
  });

  test.each([
    { rule: "acknowledged before the loss, and gone", lists: { x: ["b"], y: ["b"] }, says: "a is in x, and it is not" },
    { rule: "acknowledged after the loss, and gone", lists: { x: ["a"] }, says: "b is in x and y, and it is not" },
    { rule: "there by half", lists: { x: ["a", "b"] }, says: "b is in x and not in all" },
    { rule: "there twice", lists: { x: ["a", "a", "b"], y: ["b"] }, says: "a is in x 2 times" },
    { rule: "never asked for", lists: { x: ["a", "b", "c"], y: ["b"] }, says: "c is in x, where no worker" },
  ])("$rule", ({ lists, says }) => {
    expect(check(lists as unknown as Record<string, readonly string[]>).wrong.join("\n")).toContain(says);
  });

  test.each([
    { rule: "within the loss", from: 120, to: 150 },
    { rule: "asked for before it ended", from: 190, to: 260 },
    { rule: "acknowledged after it began", from: 50, to: 110 },
  ])("what is gone may be: $rule", ({ from, to }) => {
    expect(check({}, [operation(addition("c", "x"), from, to)])).toEqual({ wrong: [], lost: 1 });
  });
});

describe("trips", () => {
  const trip: TripState = {
    workflow: "trip",
    status: "completed",
    parkedReason: null,
    result: "r",
    facts: [
      { version: 1, name: "started", data: {} },
      { version: 2, name: "step s0", data: { ok: "v" } },
      { version: 3, name: "completed", data: {} },
    ],
    replayed: { value: "r" },
  };
  const start = operation({ verb: "start", run: "t" }, 210, 220);
  const notes = [
    note("begun", { run: "t", step: "s0", saw: {} }, 230),
    note("done", { run: "t", step: "s0", value: "v" }, 231),
  ];
  const check = (state: Partial<TripState> | null, more: readonly Note[] = [], operations = [start]) =>
    checkTrips(
      { operations, notes: [...notes, ...more], doubts },
      new Map(state === null ? [] : [["t", { ...trip, ...state }]]),
    );

  test("a run that completed as its history says", () => {
    expect(check({})).toEqual({ wrong: [], lost: 0 });
  });

  test.each<{ rule: string; state: Partial<TripState> | null; more?: Note[]; says: string }>([
    { rule: "a run that did not end", state: { status: "waiting" }, says: "trip t is waiting" },
    {
      rule: "a history that has a gap",
      state: { facts: trip.facts.filter(({ version }) => version !== 2) },
      says: "has fact 3 where 2 belongs",
    },
    {
      rule: "a history that the code contradicts",
      state: { replayed: { wrong: "the history says" } },
      says: "the history says",
    },
    { rule: "a result that is another at replay", state: { replayed: { value: "other" } }, says: "at replay it gives" },
    { rule: "a start that is gone", state: null, says: "t is started, and it is not there" },
    {
      rule: "a value that never happened",
      state: { facts: trip.facts.map((fact) => ({ ...fact, data: { ok: "w" } })) },
      says: "which never happened",
    },
    { rule: "a run that was parked once", state: {}, more: [note("parked", { run: "t" }, 300)], says: "parked" },
    {
      rule: "a step that is begun again although its outcome was known",
      state: {},
      more: [
        note("begun", { run: "t", step: "s1", saw: { s0: "v" } }, 3e9),
        note("begun", { run: "t", step: "s0", saw: {} }, 4e9),
      ],
      says: 'began "s0" of t 1000 ms after',
    },
  ])("$rule", ({ state, more = [], says }) => {
    expect(check(state, more).wrong.join("\n")).toContain(says);
  });

  test("a result that was told after the loss, and is another", () => {
    const told = operation({ verb: "result", run: "t" }, 240, 250, { value: "other" });
    expect(check({}, [], [start, told]).wrong.join()).toContain("was told that t gave");
  });

  test("a step whose record can be among what was lost may begin again", () => {
    const again = [
      note("begun", { run: "t", step: "s1", saw: { s0: "u" } }, 150),
      note("begun", { run: "t", step: "s0", saw: {} }, 260),
    ];
    expect(check({}, again).wrong).toEqual([]);
  });

  test("a start that was acknowledged within the loss may be gone", () => {
    expect(check(null, [], [operation({ verb: "start", run: "t" }, 120, 130)])).toEqual({ wrong: [], lost: 1 });
  });
});
