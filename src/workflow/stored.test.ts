/**
 * Goal: what is stored stays readable for ever.
 * Method: the words as they are today, by hand; who changes one changes this list, and thinks of those who have stored it.
 */

import { describe, expect, test } from "vitest";
import { ENDED, operationId, parseFact, parseOperation, STATUSES, WORDS } from "./stored.ts";

test("statuses are for ever", () => {
  const statuses = [
    "pending",
    "queued",
    "running",
    "waiting",
    "completed",
    "failed",
    "canceled",
    "timed_out",
    "expired",
    "parked",
  ];
  expect(STATUSES).toEqual(statuses);
  expect([...ENDED]).toEqual(["completed", "failed", "canceled", "timed_out", "expired"]);
});

test("the words of a history are for ever, and each is about its kind of operation", () => {
  expect(WORDS).toMatchObject({
    started: null,
    step: "step",
    intent: "step",
    undone: "step",
    attempt: "step",
    progress: "step",
    sleep: "sleep",
    woke: "sleep",
    wait: "signal",
    received: "signal",
    expired: "signal",
    child: "child",
    ended: "child",
    slot: "slot",
    now: null,
    canceled: null,
    completed: null,
    failed: null,
    parked: null,
    retried: null,
  });
});

describe("operations are named", () => {
  const rules: [string, string, number, string | undefined, string][] = [
    ["by their name, the first time", "charge", 1, undefined, "charge"],
    ["with a number after that", "charge", 2, undefined, "charge#2"],
    ["by the code's id, the first time", "charge", 1, "eu", "charge#=eu"],
    ["with a number after that too", "charge", 3, "eu", "charge#=eu#3"],
    ["by a number alone where they have no name", "", 1, undefined, "1"],
    ["by an id that looks like a number, and is none", "charge", 1, "2", "charge#=2"],
  ];
  test.each(rules)("%s", (_, name, count, id, text) => {
    expect(operationId(name, count, id)).toBe(text);
  });
});

test("a fact is a word and the rest, whatever is in the rest", () => {
  expect(parseFact("started")).toEqual({ word: "started", id: "" });
  expect(parseFact("step charge#2")).toEqual({ word: "step", id: "charge#2" });
  expect(parseFact("step send the mail")).toEqual({ word: "step", id: "send the mail" });
});

test.each([
  ["room", 1],
  ["room", 2],
  ["room#2", 1],
  ["room#2", 3],
  ["room#", 12],
  ["#", 1],
  ["42", 1],
  ["42", 10],
  ['mutex "a#1"', 2],
])("the name %s and the number %i are told from each other", (name, number) => {
  const { name: parsed, number: found } = parseOperation(operationId(name, number, undefined));
  expect([parsed, found]).toEqual([name.replaceAll("#", "##"), number]);
});
