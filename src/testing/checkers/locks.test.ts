/**
 * The laws of locks, on made-up commits.
 *
 * Goal: the checker detects every violation of a law of locks. Each law is broken once, and must be named; a history with
 * everything that locks do must pass.
 */

import { expect, test } from "vitest";
import { NEW_ROW, type Row } from "../../kernel/contract.ts";
import type { Holder, LockRef, LockValue, Ticket } from "../../lock/stored.ts";
import { storedLock } from "../../lock/stored.ts";
import type { RunHold, RunStatus, RunValue } from "../../workflow/stored.ts";
import type { Commit } from "../sim/database.ts";
import { checkLockCommits } from "./locks.ts";

const M: LockRef = { kind: "mutex", name: "m" };
const N: LockRef = { kind: "mutex", name: "n" };
const S: LockRef = { kind: "semaphore", name: "s" };
const RW: LockRef = { kind: "rwlock", name: "rw" };
const BOTH = [M, N];
const LEASE_MS = 100;

const rowAt = (space: string, key: string, value: object | null, changes: Partial<Row> = {}): Row => ({
  ...NEW_ROW,
  space,
  key,
  id: 1,
  version: 1,
  stamp: 1,
  value: value === null ? null : JSON.stringify(value),
  ...changes,
});

/** A holder. Default: exclusive, from 0 to 100. */
const holder = (ticket: string, fence: number, changes: Partial<Holder> = {}): Holder => ({
  ticket,
  fence,
  mode: "exclusive",
  sinceMs: 0,
  untilMs: LEASE_MS,
  ...changes,
});

/** A lock with its line. Default of the fence: the highest of its holders. */
function lock(
  { kind, name }: LockRef,
  holders: readonly Holder[],
  line: readonly string[] = [],
  { fence, ...changes }: Partial<LockValue> & { readonly fence?: number } = {},
): Row {
  const value: LockValue = {
    permits: kind === "semaphore" ? 2 : null,
    holders,
    first: line[0] ?? null,
    last: line.at(-1) ?? null,
    waiting: line.length,
    ...changes,
  };
  return rowAt(`lock/${kind}`, name, storedLock(value), {
    fence: fence ?? Math.max(0, ...holders.map((one) => one.fence)),
  });
}

/** A waiter from 0 to 100, for exclusive use. */
const waiter = ({ kind, name }: LockRef, key: string, changes: Partial<Ticket> = {}): Row =>
  rowAt(`ticket/${kind}/${name}`, key, {
    mode: "exclusive",
    prev: null,
    next: null,
    sinceMs: 0,
    untilMs: LEASE_MS,
    leaseMs: LEASE_MS,
    ...changes,
  } satisfies Ticket);

const gone = ({ kind, name }: LockRef, key: string): Row => rowAt(`ticket/${kind}/${name}`, key, null);

function run(id: string, status: RunStatus, holds: readonly RunHold[]): Row {
  const value: RunValue = { workflow: "made up", incarnation: 1, seed: "", startedAtMs: 0, from: 1, holds };
  return rowAt("run", id, value, { status });
}

const wish = (ticket: string, fence?: number, refs: readonly LockRef[] = [M]): RunHold => ({
  id: ticket,
  refs,
  mode: "exclusive",
  ticket,
  ...(fence === undefined ? {} : { fence }),
});

const owner = { run: "r", incarnation: 1 };
const forEver = { owner, untilMs: null };

const at = (nowMs: number, ...rows: readonly Row[]): Commit => ({
  nowMs,
  puts: rows.map((row) => ({ was: null, row, entries: [] })),
});

const judged = (...commits: readonly Commit[]) => {
  try {
    checkLockCommits(commits);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  return "nothing is wrong";
};

test.each<readonly [string, readonly Commit[]]>([
  [
    "it is acquired, waited for, passed on and released",
    [
      at(0, lock(M, [holder("a", 1)])),
      at(1, lock(M, [holder("a", 1)], ["b"]), waiter(M, "b")),
      at(2, lock(M, [holder("a", 1)], ["b", "c"]), waiter(M, "b", { next: "c" }), waiter(M, "c", { prev: "b" })),
      at(3, lock(M, [holder("b", 2)], ["c"]), gone(M, "b")),
      at(4, lock(M, [holder("c", 3)]), gone(M, "c")),
      at(5, lock(M, [], [], { fence: 3 })),
      at(9, rowAt("lock/mutex", "m", null, { fence: 3 })),
    ],
  ],
  [
    "a dead holder is replaced, and a dead waiter is skipped",
    [
      at(0, lock(M, [holder("a", 1)], ["b", "c"]), waiter(M, "b", { next: "c" }), waiter(M, "c", { untilMs: 300 })),
      at(100, lock(M, [holder("c", 2, { untilMs: 200 })]), gone(M, "b"), gone(M, "c")),
    ],
  ],
  [
    "a free lock is acquired with an old time of the clock",
    [at(LEASE_MS, lock(M, [holder("a", 1)])), at(LEASE_MS + 1, lock(M, [holder("b", 2, { untilMs: 300 })]))],
  ],
  [
    "both are renewed in time, and one without waiters is renewed late",
    [
      at(0, lock(M, [holder("a", 1)], ["b"]), waiter(M, "b")),
      at(50, lock(M, [holder("a", 1, { untilMs: 150 })], ["b"]), waiter(M, "b", { untilMs: 150 })),
      at(60, lock(M, [holder("a", 1, { untilMs: 150 })]), gone(M, "b")),
      at(500, lock(M, [holder("a", 1, { untilMs: 600 })])),
    ],
  ],
  [
    "readers share, and no holder is removed when there are fewer permits",
    [
      at(0, lock(RW, [holder("a", 1, { mode: "shared" }), holder("b", 2, { mode: "shared" })])),
      at(1, lock(S, [holder("c", 1, { mode: "shared" }), holder("d", 2, { mode: "shared" })])),
      at(2, lock(S, [holder("c", 1, { mode: "shared" }), holder("d", 2, { mode: "shared" })], [], { permits: 1 })),
    ],
  ],
  [
    "two are acquired together, waited for together and released together",
    [
      at(0, lock(M, [holder("a", 1, { group: BOTH })]), lock(N, [holder("a", 1, { group: BOTH })])),
      at(
        1,
        lock(M, [holder("a", 1, { group: BOTH })], ["b"]),
        lock(N, [holder("a", 1, { group: BOTH })], ["b"]),
        waiter(M, "b", { group: BOTH }),
        waiter(N, "b", { group: BOTH }),
      ),
      at(
        2,
        lock(M, [holder("b", 2, { group: BOTH })]),
        lock(N, [holder("b", 2, { group: BOTH })]),
        gone(M, "b"),
        gone(N, "b"),
      ),
      // Its lease is over, and there is a waiter for one of them.
      at(100, lock(M, [], [], { fence: 2 })),
    ],
  ],
  [
    "a run holds it for as long as it lives, under a new fence when it is taken over",
    [
      at(0, lock(M, [holder("t", 1, forEver)]), run("r", "running", [wish("t", 1)])),
      at(5, lock(M, [holder("t", 2, forEver)]), run("r", "running", [wish("t", 2)])),
      at(9_000, lock(M, [], [], { fence: 2 }), run("r", "completed", [])),
    ],
  ],
])("passes: %s", (_, commits) => {
  expect(judged(...commits)).toBe("nothing is wrong");
});

const held = at(0, lock(M, [holder("a", 1)]));
const waited = at(0, lock(M, [holder("a", 1)], ["b"]), waiter(M, "b"));
const shared = { mode: "shared" } as const;
const pair = { group: BOTH };

test.each<readonly [string, readonly Commit[], string]>([
  ["two have a mutex", [at(0, lock(M, [holder("a", 1), holder("b", 2)]))], "mutex m: 2 hold it, 2 of them alone"],
  [
    "a writer is there beside a reader",
    [at(0, lock(RW, [holder("a", 1, shared), holder("b", 2)]))],
    "rwlock rw: 2 hold it, 1 of them alone",
  ],
  [
    "more than there are permits",
    [at(0, lock(S, [holder("a", 1, shared), holder("b", 2, shared), holder("c", 3, shared)]))],
    "semaphore s: 3 hold it, of 2",
  ],
  [
    "the line leads nowhere",
    [at(0, lock(M, [holder("a", 1)], ["b"]))],
    "mutex m: the line leads to b, which is not there",
  ],
  [
    "the line is longer than it says",
    [at(0, lock(M, [holder("a", 1)], ["b"], { waiting: 0 }), waiter(M, "b"))],
    "mutex m: the line is longer than it says",
  ],
  [
    "the line is shorter than it says",
    [at(0, lock(M, [holder("a", 1)], ["b"], { waiting: 2 }), waiter(M, "b"))],
    "mutex m: 1 are in line, and it says 2",
  ],
  [
    "the line ends elsewhere",
    [at(0, lock(M, [holder("a", 1)], ["b"], { last: "c" }), waiter(M, "b"))],
    "mutex m: the line does not end where it says",
  ],
  [
    "two in line change places",
    [
      at(0, lock(M, [holder("a", 1)], ["b", "c"]), waiter(M, "b", { next: "c" }), waiter(M, "c")),
      at(1, lock(M, [holder("a", 1)], ["c", "b"]), waiter(M, "c", { next: "b" }), waiter(M, "b")),
    ],
    "mutex m: the order of the line changed",
  ],
  [
    "a newcomer goes past the line",
    [waited, at(1, lock(M, [holder("c", 2)], ["b"]))],
    "mutex m: c acquired it before 1 who came first",
  ],
  [
    "the second in line goes first",
    [
      at(0, lock(M, [holder("a", 1)], ["b", "c"]), waiter(M, "b", { next: "c" }), waiter(M, "c")),
      at(1, lock(M, [holder("c", 2)], ["b"]), waiter(M, "b"), gone(M, "c")),
    ],
    "mutex m: c acquired it before 1 who came first",
  ],
  [
    "a lease is over when it is handed on",
    [waited, at(1, lock(M, [holder("b", 2, { untilMs: 1 })]), gone(M, "b"))],
    "mutex m: b got a lease that was over",
  ],
  [
    "a waiter has it at the millisecond at which its own lease ended",
    [waited, at(LEASE_MS, lock(M, [holder("b", 2, { untilMs: 300 })]), gone(M, "b"))],
    "mutex m: b acquired it although its own lease was over",
  ],
  [
    "a lease becomes shorter",
    [held, at(1, lock(M, [holder("a", 1, { untilMs: 99 })]))],
    "mutex m: the lease of a was cut short",
  ],
  [
    "a lease that was over is renewed while there is a waiter",
    [waited, at(LEASE_MS, lock(M, [holder("a", 1, { untilMs: 200 })], ["b"]))],
    "mutex m: the lease of a was over, and came back while 1 waited",
  ],
  [
    "a place in line becomes shorter",
    [waited, at(1, waiter(M, "b", { untilMs: 99 }))],
    "ticket/mutex/m b: its place in line was cut short",
  ],
  [
    "a place in line that was over comes back",
    [waited, at(LEASE_MS, waiter(M, "b", { untilMs: 200 }))],
    "ticket/mutex/m b: its place in line was over, and came back",
  ],
  [
    "a grant has the fence of the one before",
    [held, at(1, lock(M, [holder("b", 1)]))],
    "mutex m: b has fence 1, and 1 was used before",
  ],
  [
    "a fence starts again after the lock was removed",
    [
      at(0, lock(M, [holder("a", 7)])),
      at(1, rowAt("lock/mutex", "m", null, { fence: 7 })),
      at(2, lock(M, [holder("b", 1)])),
    ],
    "mutex m: b has fence 1, and 7 was used before",
  ],
  [
    "a take-over has an older fence",
    [
      at(0, lock(M, [holder("t", 5, forEver)]), run("r", "running", [wish("t", 5)])),
      at(1, lock(M, [holder("t", 4, forEver)], [], { fence: 5 }), run("r", "running", [wish("t", 4)])),
    ],
    "mutex m: t has fence 4, and 5 was used before",
  ],
  [
    "the record does not know how high its fences are",
    [at(0, lock(M, [holder("a", 2)], [], { fence: 1 }))],
    "mutex m: the record's fence is below its holders'",
  ],
  [
    "one of two is granted alone",
    [at(0, lock(M, [holder("a", 1, pair)]))],
    "mutex m: a got it under 1, and not mutex n",
  ],
  [
    "two are granted under two fences",
    [at(0, lock(M, [holder("a", 1, pair)]), lock(N, [holder("a", 2, pair)]))],
    "mutex m: a got it under 1, and not mutex n",
  ],
  [
    "one of two is taken away",
    [at(0, lock(M, [holder("a", 1, pair)]), lock(N, [holder("a", 1, pair)])), at(1, lock(M, [], [], { fence: 1 }))],
    "mutex m: a lost it, and not mutex n",
  ],
  [
    "one of two is waited for alone",
    [at(0, lock(M, [holder("a", 1)], ["b"]), waiter(M, "b", pair))],
    "mutex m: b waits for it, other than for mutex n",
  ],
  [
    "one of two lines is left alone",
    [
      at(
        0,
        lock(M, [holder("a", 1)], ["b"]),
        lock(N, [holder("c", 1)], ["b"]),
        waiter(M, "b", pair),
        waiter(N, "b", pair),
      ),
      at(1, lock(M, [holder("a", 1)]), gone(M, "b")),
    ],
    "mutex m: b does not wait for it, other than for mutex n",
  ],
  [
    "a dead holder is kept although there is a waiter",
    [waited, at(LEASE_MS, lock(M, [holder("a", 1)], ["b", "c"]), waiter(M, "b", { next: "c" }), waiter(M, "c"))],
    "mutex m: a holds it after its lease, and 2 wait",
  ],
  [
    "a release does not hand it on",
    [waited, at(1, lock(M, [], ["b"], { fence: 1 }))],
    "mutex m: b waits for what is free",
  ],
  [
    "one of two permits is handed on",
    [
      at(
        0,
        lock(S, [holder("a", 1, shared), holder("b", 2, shared)], ["c", "d"]),
        waiter(S, "c", { ...shared, next: "d" }),
        waiter(S, "d", shared),
      ),
      at(1, lock(S, [holder("c", 3, shared)], ["d"]), gone(S, "c")),
    ],
    "semaphore s: d waits for what is free",
  ],
  [
    "both of two are free for one who waits",
    [
      at(0, lock(M, [holder("a", 1)], ["b"]), lock(N, [], ["b"]), waiter(M, "b", pair), waiter(N, "b", pair)),
      at(1, lock(M, [], ["b"], { fence: 1 })),
    ],
    "mutex m: b waits for what is free",
  ],
  [
    "a run that is not there holds it",
    [at(0, lock(M, [holder("t", 1, forEver)]))],
    "mutex m: t is of run r, which is not there",
  ],
  [
    "a run that has ended holds it",
    [at(0, lock(M, [holder("t", 1, forEver)]), run("r", "running", [wish("t", 1)])), at(1, run("r", "canceled", []))],
    "mutex m: run r is canceled and did not release it",
  ],
  [
    "a run that has ended waits for it",
    [
      at(0, lock(M, [holder("a", 1)], ["t"]), waiter(M, "t", forEver), run("r", "waiting", [wish("t")])),
      at(1, run("r", "failed", [])),
    ],
    "mutex m: run r is failed and did not release it",
  ],
  [
    "a run does not know what it holds",
    [at(0, lock(M, [holder("t", 1, forEver)]), run("r", "running", []))],
    "mutex m: run r does not know of t",
  ],
  [
    "a run does not know that its turn has come",
    [at(0, lock(M, [holder("t", 1, forEver)]), run("r", "running", [wish("t")]))],
    "mutex m: run r knows t under undefined, and it is 1",
  ],
  [
    "a run lists it as held",
    [at(0, run("r", "running", [wish("t", 1)]))],
    "mutex m: run r lists it as held, and the lock does not",
  ],
  [
    "a run lists the second of two as held",
    [at(0, lock(M, [holder("t", 1, forEver)]), run("r", "running", [wish("t", 1, BOTH)]))],
    "mutex n: run r lists it as held, and the lock does not",
  ],
  [
    "a run lists it as waited for",
    [at(0, run("r", "waiting", [wish("t")]))],
    "mutex m: run r lists it as waited for, and the lock does not",
  ],
  [
    "a run holds it in the end",
    [at(0, lock(M, [holder("t", 1, forEver)]), run("r", "running", [wish("t", 1)]))],
    "mutex m: t of run r was never released",
  ],
])("fails: %s", (_, commits, law) => {
  expect(judged(...commits)).toBe(law);
});
