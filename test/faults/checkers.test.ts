/**
 * The checks of the fault runs, on made-up ledgers.
 *
 * Goal: a run that finds nothing wrong means something. Each kind of wrong that a check is for is planted once, and must be
 * found; the same ledger without it must pass.
 */

import { describe, expect, it } from "vitest";
import { Ledger, LedgerError, type Line, type Note, type Operation } from "./ledger.ts";
import { checkClaims, type Grant, type LogEntry, type Seen } from "./works/claims.ts";
import { checkDeposits, type Deposit, type DepositState } from "./works/deposits.ts";
import { checkRegisters, type Wish } from "./works/registers.ts";
import {
  type Begun,
  checkRuns,
  type Done,
  type Order,
  type Reconciled,
  type RunState,
  type RunsState,
  runs as runsWork,
} from "./works/runs.ts";
import type { Evidence, Span } from "./works/work.ts";

let clock = 0;

function operation(input: unknown, answer: "yes" | "no" | "unknown", output?: unknown, at?: Span): Operation {
  clock += 10;
  return {
    work: "made up",
    life: "w0#1",
    input,
    startedAt: at?.from ?? clock,
    endedAt: answer === "unknown" ? null : (at?.to ?? clock + 5),
    answer,
    output,
    code: answer === "yes" ? null : answer === "no" ? "store_busy" : "died",
  };
}

const evidence = (
  operations: readonly Operation[],
  notes: readonly Note[] = [],
  doubts: readonly Span[] = [],
): Evidence => ({
  operations,
  notes,
  doubts,
});

describe("deposits", () => {
  const a: Deposit = { id: "a", account: "1", amount: 10 };
  const b: Deposit = { id: "b", account: "1", amount: 5 };
  const counted = { counted: true };

  /** What the database has when these were counted, with whatever is to be different. */
  function state(there: readonly Deposit[], changes: Partial<DepositState> = {}): DepositState {
    const sum = there.reduce((total, { amount }) => total + amount, 0);
    return {
      marks: new Map(there.map((deposit) => [deposit.id, deposit])),
      accounts: new Map([["1", sum]]),
      mirrors: new Map([["1", sum]]),
      logs: new Map([["1", there.map(({ id, amount }) => ({ id, amount }))]]),
      ...changes,
    };
  }
  const both = [operation(a, "yes", counted), operation(b, "unknown")];

  it("an acknowledged deposit that is there, and an unknown one that is there or not, are fine", () => {
    expect(checkDeposits(evidence(both), state([a]))).toEqual([]);
    expect(checkDeposits(evidence(both), state([a, b]))).toEqual([]);
  });

  it("a lost acknowledgement is found", () => {
    expect(checkDeposits(evidence(both), state([b]))).toEqual(["deposit a was acknowledged and is lost"]);
  });

  it("one that was acknowledged because it was there already is lost just the same", () => {
    const twice = [operation(a, "unknown"), operation(a, "yes", { counted: false }, { from: 100, to: 110 })];
    expect(checkDeposits(evidence(twice), state([]))).toEqual(["deposit a was acknowledged and is lost"]);
    // Unless it was read while the primary showed what its standby never got.
    expect(checkDeposits(evidence(twice, [], [{ from: 105, to: 200 }]), state([]))).toEqual([]);
    const wrote = [operation(a, "yes", counted, { from: 100, to: 110 })];
    expect(checkDeposits(evidence(wrote, [], [{ from: 105, to: 200 }]), state([]))).toHaveLength(1);
  });

  it("a double count is found, in the log and in the sum", () => {
    const logs = new Map([["1", [a, a]]]);
    const twice = { logs, accounts: new Map([["1", 20]]), mirrors: new Map([["1", 20]]) };
    expect(checkDeposits(evidence(both), state([a], twice))).toEqual([
      "deposit a was counted 2 times: in 1, 1",
      'account 1 does not add up: {"account":20,"mirror":20,"log":20,"marks":10}',
    ]);
    const lost = { accounts: new Map([["1", 20]]) };
    expect(checkDeposits(evidence(both), state([a], lost))).toHaveLength(1);
  });

  it("half of a commit is found: a mark without its entry, an entry without its mark, one side without the other", () => {
    expect(checkDeposits(evidence(both), state([a], { logs: new Map() }))).toHaveLength(2);
    expect(checkDeposits(evidence(both), state([a], { marks: new Map() })).length).toBeGreaterThan(1);
    expect(checkDeposits(evidence(both), state([a], { mirrors: new Map() }))).toHaveLength(1);
    const seen = operation({ audit: "1" }, "yes", { account: 10, mirror: 5 });
    expect(checkDeposits(evidence([...both, seen]), state([a]))).toEqual([
      "w0#1 saw account 1 in the middle of a commit: 10 and 5",
    ]);
  });

  it("what nobody asked for is found, and what was asked for otherwise", () => {
    expect(checkDeposits(evidence([operation(b, "unknown")]), state([a]))).toEqual([
      "deposit a is there and was never asked for",
    ]);
    const other = [operation({ ...a, amount: 11 }, "yes", counted)];
    expect(checkDeposits(evidence(other), state([a]))).toHaveLength(1);
  });
});

describe("registers", () => {
  const set = (value: number): Wish => ({ key: "k", verb: { op: "set", value } });
  const get: Wish = { key: "k", verb: { op: "get" } };
  const last = (value: number, version: number) => new Map([["k", { value, version }]]);

  it("answers in an order that explains them are fine, with and without the unknown ones", () => {
    const history = [operation(set(1), "yes", { version: 1 }), operation(set(2), "unknown")];
    expect(checkRegisters(evidence(history), last(1, 1))).toEqual([]);
    expect(checkRegisters(evidence(history), last(2, 2))).toEqual([]);
  });

  it("an acknowledged write that is gone in the end is found", () => {
    expect(checkRegisters(evidence([operation(set(1), "yes", { version: 1 })]), last(0, 0))).toHaveLength(1);
  });

  it("a read of what is no longer true is found, unless it was read from a primary that was given up", () => {
    const writes = [
      operation(set(1), "yes", { version: 1 }, { from: 1, to: 2 }),
      operation(set(2), "yes", { version: 2 }, { from: 3, to: 4 }),
    ];
    const stale = operation(get, "yes", { value: 1, version: 1 }, { from: 5, to: 6 });
    expect(checkRegisters(evidence([...writes, stale]), last(2, 2))).toHaveLength(1);
    expect(checkRegisters(evidence([...writes, stale], [], [{ from: 6, to: 9 }]), last(2, 2))).toEqual([]);
  });

  it("a definite no that took effect is found", () => {
    expect(checkRegisters(evidence([operation(set(1), "no")]), last(0, 0))).toEqual([]);
    expect(checkRegisters(evidence([operation(set(1), "no")]), last(1, 1))).toHaveLength(1);
  });
});

describe("claims", () => {
  const entry = (version: number, fence: number, mark: string, of = "job"): LogEntry => ({ version, fence, mark, of });
  const append = (
    mark: string,
    fence: number,
    answer: "yes" | "no" | "unknown",
    version: number | null,
    at?: Span,
  ): Operation => operation({ of: "job", to: "job", fence, mark }, answer, { version }, at);
  const grant = (fence: number, at: number, since: number | null = null, life = "w0#1"): Note => ({
    work: "claims",
    life,
    at,
    what: "grant",
    data: { of: "job", fence, since } satisfies Grant,
  });
  const seen = (version: number, mark: string, at = 0): Note => ({
    work: "claims",
    life: "follower#1",
    at,
    what: "seen",
    data: { to: "job", of: "job", fence: 1, version, mark } satisfies Seen,
  });
  const log = (...entries: LogEntry[]) => new Map([["job", entries]]);
  const check = (
    operations: readonly Operation[],
    notes: readonly Note[],
    logs: ReadonlyMap<string, readonly LogEntry[]>,
    doubts: readonly Span[] = [],
  ) => checkClaims(evidence(operations, notes, doubts), logs);
  const well = [
    append("x", 1, "yes", 1, { from: 2, to: 3 }),
    append("y", 2, "yes", 2, { from: 6, to: 7 }),
    append("z", 2, "unknown", null, { from: 8, to: 9 }),
  ];

  it("a log in which each holder wrote in its turn is fine", () => {
    expect(check(well, [grant(1, 1), grant(2, 5)], log(entry(1, 1, "x"), entry(2, 2, "y")))).toEqual([]);
    expect(check(well, [], log(entry(1, 1, "x"), entry(2, 2, "y"), entry(3, 2, "z")))).toEqual([]);
  });

  const plants: { wrong: string; says: string; found: readonly string[] }[] = [
    {
      wrong: "a lost entry",
      says: "was acknowledged to w0#1 as job 2 and is lost",
      found: check(well, [], log(entry(1, 1, "x"))),
    },
    {
      wrong: "a gap",
      says: "job has entry 3 where 2 belongs",
      found: check(well, [], log(entry(1, 1, "x"), entry(3, 2, "z"))),
    },
    {
      wrong: "an entry elsewhere than was said",
      says: "was acknowledged as job 2 and is job 3",
      found: check(well, [], log(entry(1, 1, "x"), entry(2, 2, "z"), entry(3, 2, "y"))),
    },
    {
      wrong: "an entry that is there twice",
      says: "x is there twice: job 1 and job 2",
      found: check(well.slice(0, 1), [], log(entry(1, 1, "x"), entry(2, 1, "x"))),
    },
    {
      wrong: "an entry that was refused",
      says: "x was refused (store_busy) and is there: job 1",
      found: check([append("x", 1, "no", null)], [], log(entry(1, 1, "x"))),
    },
    {
      wrong: "a rest that found news and was written all the same",
      says: "x was refused (news) and is there: job 1",
      found: check([append("x", 1, "yes", null)], [], log(entry(1, 1, "x"))),
    },
    {
      wrong: "an entry that nobody asked for",
      says: "job 1 is q, which nobody asked for",
      found: check([], [], log(entry(1, 1, "q"))),
    },
    {
      wrong: "a fence going back: a stale write after a take-over",
      says: "job 2 was written under fence 1 of job, after fence 2",
      found: check([append("y", 2, "yes", 1), append("x", 1, "yes", 2)], [], log(entry(1, 2, "y"), entry(2, 1, "x"))),
    },
    {
      wrong: "a stale write elsewhere, in the name of a record that was taken over",
      says: "tally 2 was written under fence 1 of job, after fence 2",
      found: check(
        [
          operation({ of: "job", to: "tally", fence: 2, mark: "y" }, "yes", { version: 1 }),
          operation({ of: "job", to: "tally", fence: 1, mark: "x" }, "yes", { version: 2 }),
        ],
        [],
        new Map([["tally", [entry(1, 2, "y"), entry(2, 1, "x")]]]),
      ),
    },
    {
      wrong: "a write that began when another already had a newer fence",
      says: "wrote x under fence 1 of job when 2 was out",
      found: check(
        [append("x", 1, "yes", 1, { from: 20, to: 25 })],
        [grant(1, 1), grant(2, 10, null, "w1#1")],
        log(entry(1, 1, "x")),
      ),
    },
    {
      wrong: "a fence that was given out twice",
      says: "fence 1 of job was given to w0#1 and to w1#1",
      found: check([], [grant(1, 1), grant(1, 5, null, "w1#1")], log()),
    },
    {
      wrong: "a fence that fell from one claim to the next",
      says: "w1#1 asked for job after w0#1 had fence 2, and got 1",
      found: check([], [grant(2, 10), grant(1, 30, 20, "w1#1")], log()),
    },
    {
      wrong: "an entry that the follower skipped",
      says: "the follower of job saw 2 after 0",
      found: check(well, [seen(2, "y")], log(entry(1, 1, "x"), entry(2, 2, "y"))),
    },
    {
      wrong: "an entry that the follower saw twice",
      says: "the follower of job saw 1 after 1",
      found: check(well, [seen(1, "x"), seen(1, "x")], log(entry(1, 1, "x"))),
    },
    {
      wrong: "an entry that the follower saw and that is gone",
      says: "the follower saw z as job 3, and it is gone",
      found: check(well, [seen(1, "x"), seen(2, "y"), seen(3, "z")], log(entry(1, 1, "x"), entry(2, 2, "y"))),
    },
    {
      wrong: "an entry that the follower never came to",
      says: "the follower of job came to 1 of 2",
      found: check(well, [seen(1, "x")], log(entry(1, 1, "x"), entry(2, 2, "y"))),
    },
  ];

  it.each(plants)("$wrong is found", ({ says, found }) => {
    expect(found.join("\n")).toContain(says);
  });

  it("a lease that was handed on before its end is found, unless its holder may have given it back", () => {
    const ms = 1e6;
    const notes = [grant(1, 2 * ms, 1 * ms), grant(2, 1_000 * ms, 990 * ms, "w1#1")];
    const says = "w0#1 was granted job under fence 1, and 999 ms later w1#1 was as well";
    expect(check([], notes, log())).toEqual([says]);
    expect(check([], [grant(1, 2 * ms, 1 * ms), grant(2, 1_600 * ms)], log())).toEqual([]);
    const rest = (answer: "yes" | "no" | "unknown", version: number | null, at: number) =>
      operation({ of: "job", to: "job", fence: 1, mark: "r", rests: true }, answer, { version }, { from: at, to: at });
    expect(check([rest("unknown", null, 500 * ms)], notes, log())).toEqual([]);
    expect(check([rest("yes", 1, 500 * ms)], notes, log(entry(1, 1, "r")))).toEqual([]);
    expect(check([rest("no", null, 500 * ms)], notes, log())).toEqual([says]);
    expect(check([rest("yes", null, 500 * ms)], notes, log())).toEqual([says]);
    expect(check([rest("unknown", null, 1_001 * ms)], notes, log())).toEqual([says]);
  });

  it("claims that were asked for at the same time may have come in either order", () => {
    expect(check([], [grant(2, 10e9), grant(1, 30e9, 5e9, "w1#1")], log())).toEqual([]);
  });

  it("what the follower saw on a primary that was given up may be gone", () => {
    const all = log(entry(1, 1, "x"), entry(2, 2, "y"));
    const notes = [seen(1, "x"), seen(2, "y"), seen(3, "z", 50)];
    expect(check(well, notes, all, [{ from: 40, to: 60 }])).toEqual([]);
    expect(check(well, notes, all, [{ from: 51, to: 60 }])).toHaveLength(1);
  });
});

describe("runs", () => {
  const ms = 1e6;
  const order: Order = { napMs: 1, asks: true, waitMs: null };
  const ask = (wish: object, answer: "yes" | "no" | "unknown", output?: unknown, at = 1): Operation =>
    operation({ run: "r", ...wish }, answer, output, { from: at * ms, to: (at + 1) * ms });
  const start = ask({ verb: "start", order }, "yes", {});
  const first = ask({ verb: "signal", signal: "first" }, "yes", { isNew: true }, 3);
  const second = ask({ verb: "signal", signal: "second" }, "yes", { isNew: true }, 5);
  const note = (what: string, data: unknown, at = 10): Note => ({
    work: "runs",
    life: "w0#1",
    at: at * ms,
    what,
    data,
  });
  const begun = (step: string, saw: Begun["saw"], at: number, more: Partial<Begun> = {}): Note =>
    note("begun", { run: "r", step, key: `key of ${more.run ?? "r"} ${step}`, saw, stall: null, ...more }, at);
  const done = (step: string, value: string, run = "r"): Note => note("done", { run, step, value } satisfies Done);
  const said = (answer: Reconciled["said"]): Note => note("reconciled", { run: "r", step: "print", said: answer });

  const steps = ["charge", "book", "pick", "weigh", "print", "file"];
  const saw = Object.fromEntries(steps.map((step) => [step, step.toUpperCase()]));
  const value = { saw, heard: ["r first", "r second"], child: "parcel", chance: 0.5 };
  const history: [string, unknown][] = [
    ["started", {}],
    ["step charge", { ok: "CHARGE" }],
    ["step book", { ok: "BOOK" }],
    ["step pick", { ok: "PICK" }],
    ["step weigh", { ok: "WEIGH" }],
    ["intent print", {}],
    ["step print", { ok: "PRINT" }],
    ["received go", { at: 1, signal: "go", value: "r first" }],
    ["received go#2", { at: 2, signal: "go", value: "r second" }],
    ["child parcel", { run: "r/parcel" }],
    ["step file", { ok: "FILE" }],
    ["completed", { status: "completed" }],
  ];
  const numbered = (facts: [string, unknown][]): RunState["facts"] =>
    facts.map(([name, data], i) => ({ version: i + 1, name, data }));
  const facts = (change: (facts: [string, unknown][]) => [string, unknown][]): Partial<RunState> => ({
    facts: numbered(change([...history])),
  });
  const replaced = (name: string, ...by: [string, unknown][]) =>
    facts((all) => all.flatMap((fact) => (fact[0] === name ? by : [fact])));

  const parcel: RunState = {
    workflow: "parcel",
    status: "completed",
    ended: { ended: "completed", value: "parcel" },
    facts: numbered([
      ["started", {}],
      ["step stow", { ok: "STOW" }],
      ["completed", {}],
    ]),
  };
  const rows: Done[] = [
    { run: "r", step: "book", value: "BOOK" },
    { run: "r/parcel", step: "stow", value: "STOW" },
  ];
  function state(changes: Partial<RunState> = {}, more: Partial<RunsState> = {}): RunsState {
    const run: RunState = {
      workflow: "order",
      status: "completed",
      ended: { ended: "completed", value },
      facts: numbered(history),
      ...changes,
    };
    return {
      runs: new Map([
        ["r", run],
        ["r/parcel", parcel],
      ]),
      rows,
      ...more,
    };
  }
  const effects = [...steps.map((step) => done(step, step.toUpperCase())), done("stow", "STOW", "r/parcel")];
  const begins = [begun("charge", {}, 11), begun("print", { charge: "CHARGE" }, 20)];
  const told = (ended: object, at = 30): Operation => ask({ verb: "result" }, "yes", ended, at);
  const well = [start, first, second, told({ ended: "completed", value })];
  const check = (
    changes: Partial<RunState> = {},
    notes: readonly Note[] = begins,
    operations: readonly Operation[] = well,
    more: Partial<RunsState> = {},
    doubts: readonly Span[] = [],
  ) => checkRuns(evidence(operations, [...effects, ...notes], doubts), state(changes, more));

  it("a run that did everything once is fine, and so is one that began a step again before its record was known", () => {
    expect(check()).toEqual([]);
    expect(check({}, [...begins, begun("charge", {}, 19)])).toEqual([]);
  });

  it("what only timed out, was parked or was refused because it had ended is fine", () => {
    const refused = ["result_timeout", "run_parked"].map((code) => told({ refused: code }));
    const late = ask({ verb: "signal", signal: "first" }, "yes", { refused: "run_ended" }, 40);
    expect(check({}, begins, [...well, ...refused, late])).toEqual([]);
  });

  const canceled: Partial<RunState> = {
    status: "canceled",
    ended: { ended: "canceled", reason: "enough" },
    ...replaced("completed", ["canceled", {}], ["failed", {}]),
  };
  const plants: { wrong: string; says: string; found: readonly string[] }[] = [
    {
      wrong: "an acknowledged start without its run",
      says: "the start of r was acknowledged, and it is lost",
      found: check({}, [], [start], { runs: new Map() }),
    },
    {
      wrong: "a run that nobody started",
      says: "order r is there, and nobody started it",
      found: check({}, begins, []),
    },
    {
      wrong: "a lost child",
      says: "the child r/parcel is lost",
      found: check({}, begins, well, { runs: new Map([["r", state().runs.get("r") as RunState]]) }),
    },
    {
      wrong: "a run that never ends",
      says: 'r did not end: it is waiting, after "started"',
      found: check({ status: "waiting" }),
    },
    { wrong: "a run that failed", says: "r ended as failed", found: check({ status: "failed" }) },
    {
      wrong: "a run that was canceled by nobody",
      says: "r was canceled, and nobody asked for that",
      found: check(canceled),
    },
    {
      wrong: "a gap in a history",
      says: "the history of r has fact 3 where 2 belongs",
      found: check({ facts: numbered(history).filter(({ version }) => version !== 2) }),
    },
    {
      wrong: "an outcome that was recorded twice",
      says: 'the history of r has "step pick" twice',
      found: check(replaced("step weigh", ["step weigh", { ok: "WEIGH" }], ["step pick", { ok: "PICK" }])),
    },
    {
      wrong: "a history that goes on after the end",
      says: 'r is completed, and its last fact is "step late"',
      found: check(facts((all) => [...all, ["step late", {}]])),
    },
    {
      wrong: "a run that is parked for another reason than it may be",
      says: 'r was parked: the history says "step b"',
      found: check(
        replaced("step weigh", ["parked", { reason: 'the history says "step b"' }], ["step weigh", { ok: "WEIGH" }]),
      ),
    },
    {
      wrong: "an effect that began with a value that is not in the history",
      says: 'w0#1 began "print" of r with OTHER from "charge", which is CHARGE',
      found: check({}, [begun("print", { charge: "OTHER" }, 20)]),
    },
    {
      wrong: "an effect that began before the step before it was recorded",
      says: 'w0#1 began "print" of r with CHARGE from "charge", which is gone',
      found: check(replaced("step charge"), begins),
    },
    {
      wrong: "an effect of a run that is not there",
      says: 'w0#1 began "charge" of q, which is not there',
      found: check({}, [begun("charge", {}, 11, { run: "q" })]),
    },
    {
      wrong: "an outcome that never happened",
      says: '"file" of r is recorded as INVENTED, which never happened',
      found: check(replaced("step file", ["step file", { ok: "INVENTED" }])),
    },
    {
      wrong: "a recorded step that began again",
      says: 'w0#1 began "charge" of r 5.0 ms after its outcome was known',
      found: check({}, [...begins, begun("charge", {}, 25)]),
    },
    {
      wrong: "a step that began after its run had ended",
      says: 'w0#1 began "file" of r 9.0 ms after its outcome was known',
      found: check({}, [...begins, begun("file", {}, 40)]),
    },
    {
      wrong: "a row without its record",
      says: '"book" of r has a row, BOOK, and no record',
      found: check(replaced("step book")),
    },
    {
      wrong: "a record without its row",
      says: '"book" of r is recorded as BOOK, and its rows are []',
      found: check({}, begins, well, { rows: rows.slice(1) }),
    },
    {
      wrong: "a row that is there twice",
      says: '"book" of r is recorded as BOOK, and its rows are [BOOK,BOOK]',
      found: check({}, begins, well, { rows: [...rows, ...rows.slice(0, 1)] }),
    },
    {
      wrong: "a row of a step that failed",
      says: '"book" of r is recorded as undefined, and its rows are [BOOK]',
      found: check(replaced("step book", ["step book", { error: "no" }])),
    },
    {
      wrong: "what runs at most once and began again on a guess",
      says: '"print" of r began 2 times, and may 1 times',
      found: check({}, [...begins, begun("print", {}, 20)]),
    },
    {
      wrong: "what runs at most once and began without an intent",
      says: '"print" of r began, and no intent of it is recorded',
      found: check(replaced("intent print")),
    },
    {
      wrong: "a key that is also another's",
      says: '"print" of r has the key of "charge" of r',
      found: check({}, [begun("charge", {}, 11), begun("print", {}, 20, { key: "key of r charge" })]),
    },
    {
      wrong: "a step with another key the second time",
      says: '"charge" of r had several keys',
      found: check({}, [...begins, begun("charge", {}, 12, { key: "new" })]),
    },
    {
      wrong: "a signal that was kept twice",
      says: 'the signal "first" to r was new more than once',
      found: check({}, begins, [...well, first]),
    },
    {
      wrong: "a signal that was received twice",
      says: "r received a signal twice: r first, r first",
      found: check(replaced("received go#2", ["received go#2", { value: "r first" }])),
    },
    {
      wrong: "a signal that nobody sent",
      says: 'r received "r third", which nobody sent',
      found: check(replaced("received go#2", ["received go#2", { value: "r third" }])),
    },
    {
      wrong: "signals that were received in another order",
      says: "r received the signals in another order than they were sent: r second, r first",
      found: check(
        facts((all) => {
          const at = all.findIndex(([name]) => name === "received go");
          return all.toSpliced(at, 2, ["received go", { value: "r second" }], ["received go#2", { value: "r first" }]);
        }),
      ),
    },
    {
      wrong: "a signal that was lost before one that came later",
      says: "r received the signals in another order than they were sent: r second",
      found: check(replaced("received go")),
    },
    {
      wrong: "a run that a signal does not find although it was started",
      says: "w0#1 was refused a signal to r, which is there: run_not_found",
      found: check({}, begins, [
        ...well,
        ask({ verb: "signal", signal: "first" }, "yes", { refused: "run_not_found" }, 7),
      ]),
    },
    {
      wrong: "a waiter who was told something else",
      says: 'w0#1 was told that r is {"ended":"completed","value":1}, and it is {"ended":"completed"',
      found: check({}, begins, [...well, told({ ended: "completed", value: 1 })]),
    },
    {
      wrong: "a client who was told of another end when it canceled",
      says: "w0#1 was told that r is failed, and it is completed",
      found: check({}, begins, [...well, ask({ verb: "cancel" }, "yes", { status: "failed" }, 40)]),
    },
    {
      wrong: "a result that is not what the history says",
      says: 'r gave FILE for "file", and its history says OTHER',
      found: check(replaced("step file", ["step file", { ok: "OTHER" }])),
    },
    {
      wrong: "a result with signals that were not received",
      says: "r gave [r first,r second] as its signals, and received [r second]",
      found: check(replaced("received go")),
    },
    {
      wrong: "a parent that was told something else than its child gave",
      says: 'r was told "parcel" by its child, which gave {"ended":"completed","value":"other"}',
      found: check({}, begins, well, {
        runs: new Map([...state().runs, ["r/parcel", { ...parcel, ended: { ended: "completed", value: "other" } }]]),
      }),
    },
  ];

  it.each(plants)("$wrong is found", ({ says, found }) => {
    expect(found.join("\n")).toContain(says);
  });

  it("what runs at most once may begin again each time that somebody says it did not happen", () => {
    const again = [...begins, begun("print", { charge: "CHARGE" }, 20)];
    expect(check({}, [...again, said({ done: false })])).toEqual([]);
    expect(check({}, [...again, said({ unknown: true })])).toHaveLength(1);
    expect(check({}, [...again, said({ done: true, value: "PRINT" })])).toHaveLength(1);
    const resolve = (answer: "yes" | "no" | "unknown", isDone = false) =>
      ask(
        { verb: "resolve", step: "print", answer: isDone ? { done: true, value: "PRINT" } : { done: false } },
        answer,
        {},
      );
    expect(check({}, again, [...well, resolve("yes")])).toEqual([]);
    expect(check({}, again, [...well, resolve("unknown")])).toEqual([]);
    expect(check({}, again, [...well, resolve("no")])).toHaveLength(1);
    expect(check({}, again, [...well, resolve("yes", true)])).toHaveLength(1);
  });

  it("a begin right after a stall in which the outcome became known proves nothing; any later one does", () => {
    const beginning = (from: number, to: number, at: number) =>
      check({}, [...begins, begun("charge", {}, at, { stall: { from: from * ms, to: to * ms } })]);
    expect(beginning(15, 1_000, 1_001)).toEqual([]);
    expect(beginning(15, 1_000, 1_600)).toHaveLength(1);
    // The stall began when the outcome had been known already.
    expect(beginning(21, 1_000, 1_001)).toHaveLength(1);
  });

  it("one that was canceled because somebody asked for it is fine, whether or not that was acknowledged", () => {
    const cancel = ask({ verb: "cancel" }, "unknown", undefined, 8);
    expect(check(canceled, begins, [start, first, second, cancel])).toEqual([]);
  });

  it("what was read on a primary that was given up may have been otherwise", () => {
    const doubts = [{ from: 39 * ms, to: 50 * ms }];
    const other = [...well, told({ ended: "canceled", reason: "enough" }, 40)];
    expect(check({}, begins, other)).toHaveLength(1);
    expect(check({}, begins, other, {}, doubts)).toEqual([]);
    const joined = [ask({ verb: "start", order }, "unknown"), ask({ verb: "start", order }, "yes", {}, 40)];
    const gone = { runs: new Map(), rows: [] };
    expect(check({}, [], joined, gone, doubts)).toEqual([]);
    expect(check({}, [], joined, gone)).toEqual(["the start of r was acknowledged, and it is lost"]);
    expect(check({}, [], joined.slice(1), gone, doubts)).toHaveLength(1);
  });

  it("the ledger tells what happened, what did not, and what may happen yet", () => {
    const ask = (notes: readonly Note[], dead: readonly string[]) =>
      runsWork.answer?.({ run: "r", step: "print" }, { notes, dead: new Set(dead) });
    expect(ask([], [])).toEqual({ done: false });
    expect(ask([begun("print", {}, 1)], [])).toEqual({ unknown: true });
    expect(ask([begun("print", {}, 1)], ["w0#1"])).toEqual({ done: false });
    expect(ask([begun("print", {}, 1), done("print", "P")], [])).toEqual({ done: true, value: "P" });
    expect(ask([begun("charge", {}, 1), done("print", "P", "q")], [])).toEqual({ done: false });
  });
});

describe("the ledger", () => {
  const line = (line: Line): string => JSON.stringify(line);

  it("an attempt without an answer is unknown once its worker is dead", () => {
    const ledger = new Ledger();
    ledger.hear("w0#1", line({ is: "try", op: 1, work: "deposits", input: "a", at: 1 }));
    ledger.hear("w0#1", line({ is: "try", op: 2, work: "deposits", input: "b", at: 2 }));
    ledger.hear("w1#1", line({ is: "try", op: 1, work: "deposits", input: "c", at: 3 }));
    ledger.hear("w0#1", line({ is: "yes", op: 2, output: 7, at: 4 }));
    ledger.died("w0#1");
    expect(ledger.operations("deposits").map(({ input, answer }) => [input, answer])).toEqual([
      ["a", "unknown"],
      ["b", "yes"],
      ["c", "open"],
    ]);
  });

  it("what somebody alive has not heard the end of is open", () => {
    const ledger = new Ledger();
    ledger.hear("w0#1", line({ is: "try", op: 1, work: "runs", input: "a", at: 1 }));
    expect([ledger.isOpen("runs"), ledger.isOpen("deposits")]).toEqual([true, false]);
    ledger.died("w0#1");
    expect([ledger.isOpen("runs"), ledger.dead.has("w0#1")]).toEqual([false, true]);
  });

  it("a question is passed on with who asked", () => {
    const ledger = new Ledger();
    const heard: unknown[] = [];
    ledger.listen({ asked: (life, { question }) => heard.push([life, question]) });
    ledger.hear("w0#1", line({ is: "ask", ask: 1, work: "runs", question: "well?" }));
    expect(heard).toEqual([["w0#1", "well?"]]);
  });

  it("an answer to what was not tried is no answer", () => {
    const ledger = new Ledger();
    const answer = line({ is: "yes", op: 1, output: null, at: 1 });
    expect(() => ledger.hear("w0#1", answer)).toThrow(LedgerError);
    ledger.hear("w0#1", line({ is: "try", op: 1, work: "deposits", input: "a", at: 1 }));
    ledger.hear("w0#1", answer);
    expect(() => ledger.hear("w0#1", answer)).toThrow(LedgerError);
  });
});
