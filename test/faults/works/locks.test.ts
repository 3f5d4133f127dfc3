/**
 * The checks of the work with locks, on made-up ledgers.
 *
 * Goal: a run that finds nothing wrong with locks means something. Each kind of wrong is planted once, and must be found; the same ledger
 * without it must pass.
 */

import { describe, expect, it } from "vitest";
import type { Note, Operation } from "../ledger.ts";
import {
  checkLockUses,
  type LockGrant,
  type LockResult,
  type LocksState,
  locks,
  type Row,
  type Wish,
} from "./locks.ts";
import type { Evidence, Span } from "./work.ts";

/** At this time by the ledger, which counts in nanoseconds; the database counts in milliseconds. */
const op = (from: number, to: number, input: Wish, output: LockResult | "no" | "unknown"): Operation => ({
  work: locks.name,
  life: "w0#1",
  input,
  startedAt: from,
  endedAt: output === "unknown" ? null : to,
  answer: typeof output === "string" ? output : "yes",
  output: typeof output === "string" ? undefined : output,
  code: output === "unknown" ? "died" : output === "no" ? "store_busy" : null,
});

const granted = (
  from: number,
  to: number,
  lock: string,
  grant: Partial<LockGrant> & Pick<LockGrant, "ticket" | "fence">,
) => op(from, to, { verb: "acquire", lock, waitMs: 1 }, { sinceMs: null, untilMs: null, ...grant });

const used = (
  at: number,
  lock: string,
  fence: number,
  mark: string,
  output: LockResult | "no" | "unknown" = { used: true },
) => op(at, at + 1, { verb: "use", lock, fence, mark }, output);

const released = (at: number, lock: string, ticket: string, fence: number) =>
  op(at, at + 1, { verb: "release", lock, ticket, fence }, { released: true });

const runUses = (at: number, run: string, lock: string, fence: number, mark: string): Note => ({
  work: locks.name,
  life: "w1#1",
  at,
  what: "run uses",
  data: { run, lock, fence, mark },
});

const row = (lock: string, n: number, fence: number, mark: string): Row => ({ lock, n, fence, mark });

const evidence = (
  operations: readonly Operation[],
  notes: readonly Note[] = [],
  doubts: readonly Span[] = [],
): Evidence => ({ operations, notes, doubts });

/** What is there in the end when these are all rows, with whatever is to be different. */
function state(rows: readonly Row[], changes: Partial<LocksState> = {}): LocksState {
  const vault = new Map<string, { uses: number; fence: number }>();
  for (const { lock, fence } of rows) {
    const { uses, fence: highest } = vault.get(lock) ?? { uses: 0, fence: 0 };
    vault.set(lock, { uses: uses + 1, fence: Math.max(highest, fence) });
  }
  return { rows, vault, left: [], runs: new Map(), ...changes };
}

const one = granted(0, 10, "a", { ticket: "t1", fence: 5, sinceMs: 1_000, untilMs: 2_500 });
const two = granted(20, 30, "a", { ticket: "t2", fence: 6, sinceMs: 2_500, untilMs: 4_000 });
const uses = [used(11, "a", 5, "m1"), used(31, "a", 6, "m2")];
const rows = [row("a", 1, 5, "m1"), row("a", 2, 6, "m2")];

describe("the table", () => {
  it("uses in the order of their fences are fine, and so are refusals", () => {
    const stale = used(40, "a", 5, "m3", { refused: "stale_fence" });
    const lost = [used(50, "a", 6, "m4", "unknown"), used(51, "a", 6, "m5", "no")];
    expect(checkLockUses(evidence([one, two, ...uses, stale, ...lost]), state(rows))).toEqual([]);
  });

  it("an older fence after a newer one is found", () => {
    const late = [...rows, row("a", 3, 5, "m3")];
    const all = [one, two, ...uses, used(40, "a", 5, "m3")];
    expect(checkLockUses(evidence(all), state(late))).toEqual(["a was used under fence 5, after fence 6"]);
  });

  it("a gap, a double, a wrong count and a wrong fence are found", () => {
    const all = evidence([one, two, ...uses]);
    expect(checkLockUses(all, state([row("a", 1, 5, "m1"), row("a", 3, 6, "m2")]))).toEqual([
      "a has use 3 where 2 belongs",
    ]);
    expect(checkLockUses(all, state([...rows, row("a", 3, 6, "m2")]))).toEqual(["m2 is there twice in a"]);
    const counted = new Map([["a", { uses: 3, fence: 7 }]]);
    expect(checkLockUses(all, state(rows, { vault: counted }))).toEqual([
      "a counts 3 uses, and has 2",
      "a has seen fence 7, and its rows 6",
    ]);
  });

  it("what was acknowledged and is lost, and what was refused and is there, are found", () => {
    const all = evidence([one, two, ...uses]);
    expect(checkLockUses(all, state([row("a", 1, 5, "m1")]))).toEqual(["m2 was acknowledged to w0#1 and is lost"]);
    const no = evidence([one, two, used(11, "a", 5, "m1", "no"), used(31, "a", 6, "m2", { refused: "stale_fence" })]);
    expect(checkLockUses(no, state(rows))).toEqual([
      "m1 was refused (no) and is there",
      "m2 was refused (stale_fence) and is there",
      "m2 was refused under fence 6 of a, and there is no higher one",
    ]);
  });

  it("half of a pair, another fence, a wrong refusal and an unrequested use are found", () => {
    const pair = [granted(0, 10, "a+b", { ticket: "t1", fence: 5 }), used(11, "a+b", 5, "m1")];
    expect(checkLockUses(evidence(pair), state([row("a", 1, 5, "m1")]))).toEqual(["m1 is in one of a+b only"]);
    expect(checkLockUses(evidence([one, uses[0] as Operation]), state([row("a", 1, 4, "m1")]))).toEqual([
      "m1 is there with another fence than 5",
    ]);
    expect(checkLockUses(evidence([used(0, "a", 5, "m1", { refused: "sql_over" })]), state([]))).toEqual([
      "m1 was refused with sql_over",
    ]);
    expect(checkLockUses(evidence([]), state([row("a", 1, 5, "m9")]))).toEqual([
      "m9 exists, and no worker requested it",
    ]);
  });
});

describe("fences", () => {
  it("one that is given out twice is found, to plain code and to a run", () => {
    const again = granted(20, 30, "a", { ticket: "t2", fence: 5 });
    expect(checkLockUses(evidence([one, again]), state([]))).toEqual(["fence 5 of a was given to t1 and to t2"]);
    const run = runUses(40, "r", "a", 5, "m1");
    expect(checkLockUses(evidence([one], [run]), state([]))).toEqual(["fence 5 of a was given to t1 and to r"]);
  });

  it("a fence that does not increase is found, if it was requested after the other was granted", () => {
    const lower = granted(20, 30, "a", { ticket: "t2", fence: 4 });
    expect(checkLockUses(evidence([one, lower]), state([]))).toEqual([
      "t2 asked for a after t1 had fence 5, and got 4",
    ]);
    // Who asked before the other heard may have come first.
    expect(checkLockUses(evidence([one, granted(5, 30, "a", { ticket: "t2", fence: 4 })]), state([]))).toEqual([]);
  });

  it("results while reads could be lost prove nothing", () => {
    const again = granted(20, 30, "a", { ticket: "t2", fence: 5 });
    expect(checkLockUses(evidence([one, again], [], [{ from: 25, to: 26 }]), state([]))).toEqual([]);
  });
});

describe("leases, by the database's clock", () => {
  it("one after another is fine, and so is one after a release", () => {
    expect(checkLockUses(evidence([one, two]), state([]))).toEqual([]);
    const soon = granted(20, 30, "a", { ticket: "t2", fence: 6, sinceMs: 1_100, untilMs: 2_600 });
    expect(checkLockUses(evidence([one, soon, released(15, "a", "t1", 5)]), state([]))).toEqual([]);
  });

  it("a grant while another's lease holds is found, of a mutex and of one of two", () => {
    const soon = granted(20, 30, "a", { ticket: "t2", fence: 6, sinceMs: 2_499, untilMs: 4_000 });
    const wrong = ["t2 was granted a under fence 6, while it was held by t1"];
    expect(checkLockUses(evidence([one, soon]), state([]))).toEqual(wrong);
    // Given back after the other had it.
    expect(checkLockUses(evidence([one, soon, released(31, "a", "t1", 5)]), state([]))).toEqual(wrong);
    const pair = granted(20, 30, "a+b", { ticket: "t2", fence: 6, sinceMs: 2_000, untilMs: 4_000 });
    expect(checkLockUses(evidence([one, pair]), state([]))).toEqual(wrong);
  });

  it("one more than there are permits is found", () => {
    const all = ["t1", "t2", "t3"].map((ticket, i) =>
      granted(i * 20, i * 20 + 10, "room", { ticket, fence: i + 1, sinceMs: 1_000 + i, untilMs: 2_500 + i }),
    );
    expect(checkLockUses(evidence(all.slice(0, 2)), state([]))).toEqual([]);
    expect(checkLockUses(evidence(all), state([]))).toEqual([
      "t3 was granted room under fence 3, while it was held by t1, t2",
    ]);
  });
});

describe("runs", () => {
  const start = op(0, 1, { verb: "start", run: "r", job: { lock: "a", napMs: 0 } }, { used: true });
  const ended = new Map([["r", "completed" as const]]);

  it("a takeover is fine, and another holder in between is found", () => {
    const notes = [runUses(10, "r", "a", 4, "m8"), runUses(20, "r", "a", 7, "m9")];
    expect(checkLockUses(evidence([start], notes), state([], { runs: ended }))).toEqual([]);
    const between = granted(12, 18, "a", { ticket: "t1", fence: 5 });
    expect(checkLockUses(evidence([start, between], notes), state([], { runs: ended }))).toEqual([
      "t1 had a under fence 5, and run r held it from 4 to 7",
    ]);
  });

  it("one that is lost, one that did not end, and one that ended otherwise are found", () => {
    expect(checkLockUses(evidence([start]), state([]))).toEqual(["the start of r was acknowledged, and it is lost"]);
    for (const status of ["waiting", "failed", "canceled"] as const)
      expect(checkLockUses(evidence([start]), state([], { runs: new Map([["r", status]]) }))).toEqual([
        `r is ${status} in the end`,
      ]);
    const canceled = op(2, 3, { verb: "cancel", run: "r" }, { used: true });
    expect(
      checkLockUses(evidence([start, canceled]), state([], { runs: new Map([["r", "canceled" as const]]) })),
    ).toEqual([]);
  });

  it("a lock that is held in the end is found", () => {
    const left = [{ lock: "a", run: "r", waiting: 0 }];
    expect(checkLockUses(evidence([start]), state([], { runs: ended, left }))).toEqual([
      "run r is completed, and still holds a",
    ]);
    expect(checkLockUses(evidence([]), state([], { left: [{ lock: "b", run: null, waiting: 2 }] }))).toEqual([
      "in the end b is held by somebody, and 2 wait",
    ]);
  });
});

it("only what wrote something is a commit", () => {
  expect(locks.isCommit(one)).toBe(true);
  expect(locks.isCommit(released(0, "a", "t1", 5))).toBe(true);
  expect(locks.isCommit(op(0, 1, { verb: "release", lock: "a", ticket: "t1", fence: 5 }, { released: false }))).toBe(
    false,
  );
  expect(locks.isCommit(used(0, "a", 5, "m1", { refused: "stale_fence" }))).toBe(false);
  expect(locks.isCommit(used(0, "a", 5, "m1", "unknown"))).toBe(false);
});
