/**
 * The check of the work on lists, on made-up ledgers: each kind of wrong is planted once and must be found; what is right must pass.
 */

import { describe, expect, test } from "vitest";
import type { LastRead, ListOperation } from "../../../src/testing/checkers/lists/transactions.ts";
import type { Note, Operation } from "../ledger.ts";
import { checkLists, type DecidedNote, type ListsInput } from "./lists.ts";
import type { Evidence, Span } from "./work.ts";

const read = (key: string, list: readonly number[] | null): ListOperation => ({ op: "read", key, list, version: 0 });
const create = (key: string, value: number): ListOperation => ({ op: "create", key, value, version: 1 });
const append = (key: string, value: number): ListOperation => ({ op: "append", key, value, version: 2 });

let clock = 0;

/** An attempt in a window; what it decided was noted before it ended, if it did. */
function attempt(
  mark: string,
  answer: "yes" | "unknown",
  operations: readonly ListOperation[],
  at?: Span,
): { readonly operation: Operation; readonly note: Note } {
  clock += 10;
  const input: ListsInput = { mark, window: "w", about: "made up" };
  return {
    operation: {
      work: "lists",
      life: "w0#1",
      input,
      startedAt: at?.from ?? clock,
      endedAt: answer === "unknown" ? null : (at?.to ?? clock + 5),
      answer,
      output: answer === "yes" ? { outcome: "committed", operations } : undefined,
      code: answer === "yes" ? null : "died",
    },
    note: {
      work: "lists",
      life: "w0#1",
      at: clock,
      what: "decided",
      data: { mark, operations } satisfies DecidedNote,
    },
  };
}

const evidence = (attempts: readonly ReturnType<typeof attempt>[], doubts: readonly Span[] = []): Evidence => ({
  operations: attempts.map(({ operation }) => operation),
  notes: attempts.map(({ note }) => note),
  doubts,
});

const last = (lists: Record<string, readonly number[] | null>): ReadonlyMap<string, LastRead> =>
  new Map(Object.entries(lists).map(([key, list]) => [key, { list }]));

describe("lists", () => {
  test("what is in order passes, and unknown outcomes are counted", () => {
    const all = [
      attempt("a", "yes", [read("w/x", null), create("w/x", 1)]),
      attempt("b", "unknown", [read("w/x", [1]), append("w/x", 2)]),
      attempt("c", "unknown", [read("w/y", null), create("w/y", 3)]),
      attempt("d", "yes", [read("w/x", [1, 2])]),
    ];
    expect(checkLists(evidence(all), last({ "w/x": [1, 2], "w/y": null }))).toEqual({
      wrong: [],
      unknown: 2,
      happened: 1,
    });
  });

  test("an acknowledged append that is gone is found", () => {
    const all = [attempt("a", "yes", [read("w/x", null), create("w/x", 1)])];
    expect(checkLists(evidence(all), last({ "w/x": null })).wrong).toHaveLength(1);
  });

  test("an attempt without an answer that happened by half is found", () => {
    const all = [attempt("a", "unknown", [create("w/x", 1), create("w/y", 2)])];
    expect(checkLists(evidence(all), last({ "w/x": [1], "w/y": null })).wrong).toHaveLength(1);
    expect(checkLists(evidence(all), last({ "w/x": [1], "w/y": [2] })).wrong).toEqual([]);
  });

  test("two that did not see each other are found", () => {
    const at = { from: 1, to: 9 };
    const all = [
      attempt("a", "yes", [read("w/x", null), create("w/x", 1), read("w/y", null)], at),
      attempt("b", "yes", [read("w/y", null), create("w/y", 2), read("w/x", null)], at),
    ];
    const { wrong } = checkLists(evidence(all), last({ "w/x": [1], "w/y": [2] }));
    expect(wrong.join()).toContain("write skew");
  });

  test("what was read too late is found, unless it was only read in a time of doubt", () => {
    const all = [
      attempt("a", "yes", [read("w/x", null), create("w/x", 1)], { from: 1, to: 2 }),
      attempt("b", "yes", [read("w/x", null)], { from: 3, to: 4 }),
    ];
    expect(checkLists(evidence(all), last({ "w/x": [1] })).wrong).toHaveLength(1);
    expect(checkLists(evidence(all, [{ from: 3, to: 5 }]), last({ "w/x": [1] })).wrong).toEqual([]);
  });
});
