/**
 * The check of the requests, on made-up ledgers: each kind of wrong that it is for is planted once, and must be found; the same ledger
 * without it must pass.
 */

import { describe, expect, it } from "vitest";
import type { Operation } from "../ledger.ts";
import { checkRequests, type Placed, type Request, type RequestState, requests } from "./requests.ts";
import type { Evidence, Span } from "./work.ts";

const request = (id: string, way: Request["way"] = "commit", lists: Request["lists"] = ["x", "y"]): Request => ({
  id,
  way,
  lists,
});
const a = request("a");
const b = request("b", "commitSql");

function operation(input: Request, answer: "yes" | "no" | "unknown", output?: Placed): Operation {
  const code = answer === "yes" ? null : "store_busy";
  return { work: "requests", life: "w0#1", input, startedAt: 10, endedAt: 20, answer, output, code };
}

const first: Placed = { at: [0, 0], replayed: false };
const second: Placed = { at: [1, 1], replayed: false };

const evidence = (operations: readonly Operation[], doubts: readonly Span[] = []): Evidence => ({
  operations,
  notes: [],
  doubts,
});

function state(lists: Readonly<Record<string, readonly string[]>>, rows: readonly string[] = ["b"]): RequestState {
  return { lists: new Map(Object.entries(lists)), rows };
}

const good = state({ x: ["a", "b"], y: ["a", "b"] });
const both = [operation(a, "yes", first), operation(b, "yes", second)];

describe("requests", () => {
  it("acknowledged ones that are where they were said to be are fine, and so are unknown ones that are there or not", () => {
    expect(checkRequests(evidence(both), good)).toEqual([]);
    expect(checkRequests(evidence([operation(a, "yes", first), operation(b, "unknown")]), good)).toEqual([]);
    const without = state({ x: ["a"], y: ["a"] }, []);
    expect(checkRequests(evidence([operation(a, "yes", first), operation(b, "unknown")]), without)).toEqual([]);
  });

  it("a repeated result is fine if it is the same", () => {
    const again = operation(a, "yes", { ...first, replayed: true });
    expect(checkRequests(evidence([...both, again]), good)).toEqual([]);
    const handled = operation(a, "yes", { at: null, replayed: true });
    expect(checkRequests(evidence([...both, handled]), good)).toEqual([]);
    expect(requests.isCommit(again)).toBe(false);
    const other = operation(a, "yes", { at: [1, 0], replayed: true });
    expect(checkRequests(evidence([...both, other]), good)).toEqual([
      "w0#1 was told that request a is at 1 of x, and it is at 0",
    ]);
  });

  it("a lost acknowledgement is found, unless it was read from a primary that was given up", () => {
    const none = state({ x: ["b"], y: ["b"] });
    const told = [operation(a, "yes", first), operation(b, "yes", first)];
    expect(checkRequests(evidence(told), none)).toEqual(["request a was acknowledged and is lost"]);
    const read = [operation(a, "yes", { at: [0, 0], replayed: true }), operation(b, "yes", first)];
    expect(checkRequests(evidence(read), none)).toEqual(["request a was acknowledged and is lost"]);
    expect(checkRequests(evidence(read, [{ from: 15, to: 30 }]), none)).toEqual([]);
  });

  it("one that is there twice is found, in a list and among the rows", () => {
    const twice = state({ x: ["a", "b"], y: ["a", "b", "a"] });
    expect(checkRequests(evidence(both), twice)).toContain("request a is in y 2 times");
    const rows = state({ x: ["a", "b"], y: ["a", "b"] }, ["b", "b"]);
    expect(checkRequests(evidence(both), rows)).toEqual(["request b has 2 rows"]);
  });

  it("half of a commit is found", () => {
    const half = state({ x: ["a", "b"], y: ["b"] });
    const told = [operation(a, "unknown"), operation(b, "yes", { at: [1, 0], replayed: false })];
    expect(checkRequests(evidence(told), half)).toEqual(["request a is in x only"]);
    const noRow = state({ x: ["a", "b"], y: ["a", "b"] }, []);
    expect(checkRequests(evidence(both), noRow)).toEqual(["request b is in its lists without a row"]);
    const noList = state({ x: ["a"], y: ["a"] }, ["b"]);
    const unsure = [operation(a, "yes", first), operation(b, "unknown")];
    expect(checkRequests(evidence(unsure), noList)).toEqual(["request b has a row and is in no list"]);
  });

  it("a request that was not sent is found, and one in the wrong place", () => {
    const lists = state({ x: ["a", "c"], y: ["a", "c"], z: ["a"] }, []);
    expect(checkRequests(evidence([operation(a, "yes", first)]), lists)).toEqual([
      "request c is in x, and no worker sent it",
      "request c is in y, and no worker sent it",
      "request a is in z, where it does not belong",
    ]);
  });

  it("lists that no one order explains are found, over two requests and over three", () => {
    const swapped = state({ x: ["a", "b"], y: ["b", "a"] });
    const told = [operation(a, "yes", { at: [0, 1], replayed: false }), operation(b, "unknown")];
    expect(checkRequests(evidence(told), swapped)).toEqual([
      expect.stringMatching(/^no order explains the lists: (a before b|b before a)$/),
    ]);
    const ring = [
      request("a", "commit", ["x", "z"]),
      request("b", "commit", ["x", "y"]),
      request("c", "commit", ["y", "z"]),
    ];
    const unsure = ring.map((one) => operation(one, "unknown"));
    const cycle = state({ x: ["a", "b"], y: ["b", "c"], z: ["c", "a"] }, []);
    expect(checkRequests(evidence(unsure), cycle)).toEqual([expect.stringContaining("no order explains the lists")]);
    const line = state({ x: ["a", "b"], y: ["b", "c"], z: ["a", "c"] }, []);
    expect(checkRequests(evidence(unsure), line)).toEqual([]);
  });
});
