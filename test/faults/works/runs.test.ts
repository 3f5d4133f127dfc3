/**
 * The checks of the fault runs on runs, on made-up ledgers.
 *
 * Goal: a run that finds nothing wrong means something. Each kind of wrong that a check is for is planted once, and must be
 * found; the same ledger without it must pass.
 */

import { describe, expect, it } from "vitest";
import type { Note, Operation } from "../ledger.ts";
import { checkRuns, type RunState, type RunsState } from "./check-runs.ts";
import { evidence, operation } from "./evidence.ts";
import type { Begun, Done, Order, Reconciled } from "./orders.ts";
import { runs as runsWork } from "./runs.ts";
import type { Span } from "./work.ts";

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
      wrong: "a run that was not started",
      says: "order r exists, and no client started it",
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
      wrong: "a run that was canceled without a request",
      says: "r was canceled, and no client requested that",
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
      wrong: "a history that continues after the end",
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
      wrong: "a key that belongs to another run too",
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
      wrong: "a signal that was not sent",
      says: 'r received "r third", which no client sent',
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
      wrong: "a waiter that got another result",
      says: 'w0#1 was told that r is {"ended":"completed","value":1}, and it is {"ended":"completed"',
      found: check({}, begins, [...well, told({ ended: "completed", value: 1 })]),
    },
    {
      wrong: "a client that got another end when it canceled",
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
      wrong: "a parent that got another result than its child returned",
      says: 'r was told "parcel" by its child, which gave {"ended":"completed","value":"other"}',
      found: check({}, begins, well, {
        runs: new Map([...state().runs, ["r/parcel", { ...parcel, ended: { ended: "completed", value: "other" } }]]),
      }),
    },
  ];

  it.each(plants)("$wrong is found", ({ says, found }) => {
    expect(found.join("\n")).toContain(says);
  });

  it("an at-most-once step may begin again each time that an operator says it did not happen", () => {
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

  it("a run that was canceled on request is fine, whether or not the request was acknowledged", () => {
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

  it("the ledger knows what happened, what did not, and what may still happen", () => {
    const ask = (notes: readonly Note[], dead: readonly string[]) =>
      runsWork.answer?.({ run: "r", step: "print" }, { notes, dead: new Set(dead) });
    expect(ask([], [])).toEqual({ done: false });
    expect(ask([begun("print", {}, 1)], [])).toEqual({ unknown: true });
    expect(ask([begun("print", {}, 1)], ["w0#1"])).toEqual({ done: false });
    expect(ask([begun("print", {}, 1), done("print", "P")], [])).toEqual({ done: true, value: "P" });
    expect(ask([begun("charge", {}, 1), done("print", "P", "q")], [])).toEqual({ done: false });
  });
});
