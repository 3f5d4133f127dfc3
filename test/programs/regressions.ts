/**
 * Programs that broke a promise once, as small as they could be made. They run in every test.
 */

import type { Case, Node, RunPlan, StepNode } from "./program.ts";

const step = (name: string, more: Partial<StepNode> = {}): StepNode => ({
  op: "step",
  name,
  kind: "plain",
  ms: 0,
  ...more,
});

/** A program, and the seeds of worlds in which it broke the promise, where few do. */
export type Regression = Case & { readonly worlds?: readonly number[] };

/** One run of one workflow, without faults. */
function alone(body: readonly Node[], more: Partial<Case> & { readonly run?: Partial<RunPlan> } = {}): Case {
  const { run, ...rest } = more;
  return {
    workflows: [{ name: "root", style: "async", body }],
    runs: [{ id: "run", workflow: 0, startMs: 0, retries: 0, restarts: false, ...run }],
    signals: [],
    faults: false,
    ...rest,
  };
}

/** The root calls a child that gives its input back. */
function withChild(body: readonly Node[], child: readonly Node[] = []): Case {
  return {
    ...alone(body),
    workflows: [
      { name: "child", style: "async", body: child },
      { name: "root", style: "async", body },
    ],
    runs: [{ id: "run", workflow: 1, startMs: 0, retries: 0, restarts: false }],
  };
}

const call = (input: number): Node => ({ op: "child", verb: "call", workflow: 0, input, id: "shared" });

export const REGRESSIONS: Readonly<Record<string, Regression>> = {
  "a late heartbeat repeats nothing": alone([
    step("a"),
    step("b", { mistake: "late heartbeat", heartbeatMs: 3_000 }),
    { op: "sleep", ms: 5_000 },
    step("c"),
  ]),
  "a late heartbeat of a timed-out attempt repeats nothing": alone([
    step("a", { kind: "tx" }),
    step("b", {
      mistake: "late heartbeat of a timed-out attempt",
      ms: 6_000,
      timeoutMs: 2_000,
      attempts: 3,
      heartbeatMs: 3_000,
    }),
    { op: "sleep", ms: 20_000 },
  ]),
  "retry() repeats no recorded step": alone(
    [
      { op: "try", body: [step("handled", { fails: "always", attempts: 1 })], catch: [] },
      step("charge"),
      step("row", { kind: "tx" }),
      step("once", { kind: "once" }),
      { op: "throw", name: "t", outage: true },
    ],
    { run: { retries: 2 } },
  ),
  "retry() recovers two steps that failed in one outage": alone(
    [
      {
        op: "later",
        of: [step("a", { fails: "outage", attempts: 1 }), step("b", { fails: "outage", attempts: 1 })],
        between: [{ op: "sleep", ms: 5_000 }],
        awaited: [0, 1],
      },
    ],
    { run: { retries: 2 } },
  ),
  "retry() recovers an at-most-once step that failed": alone([step("once", { kind: "once", fails: "outage" })], {
    run: { retries: 2 },
  }),
  "retry() recovers a parent whose child failed": {
    ...withChild([{ op: "child", verb: "call", workflow: 0, input: 1 }], [step("a", { fails: "outage", attempts: 1 })]),
    runs: [{ id: "run", workflow: 1, startMs: 0, retries: 2, restarts: false }],
  },
  "a child's id with another input is refused": withChild([{ op: "try", body: [call(0), call(1)], catch: [] }]),
  "a child's id twice is one child": withChild(
    [{ op: "group", how: "Promise.all", of: [[call(0)], [call(0)]] }],
    [{ op: "sleep", ms: 3_000 }],
  ),
  "cancel lets finally run": alone([{ op: "try", body: [step("work", { ms: 5_000 })], finally: [step("cleanup")] }], {
    run: { cancelMs: 2_000 },
  }),
  "a thousand and more slots in one turn": alone([{ op: "fan", of: "slots", count: 1_030, name: "fan" }]),
  "a step inside a step throws": alone([
    { op: "try", body: [step("a", { mistake: "nested step", attempts: 1 })], catch: [] },
  ]),
  "ctx after the end throws": alone([step("a"), { op: "afterEnd", ms: 90_000 }]),
  "a rejection behind a semaphore can be awaited later": alone([
    {
      op: "try",
      body: [
        {
          op: "later",
          of: [step("a", { fails: "always", attempts: 1, semaphore: "s" })],
          between: [{ op: "sleep", ms: 9_000 }],
          awaited: [0],
        },
      ],
      catch: [],
    },
  ]),
  "a reminder that loses the race steals no signal": alone([{ op: "remind", signal: "approval", everyMs: 10_000 }], {
    signals: [{ run: "run", name: "approval", number: 0, atMs: 25_000 }],
  }),
  "a signal that comes while the reminder is sent is received before the cancellation": alone(
    [{ op: "remind", signal: "approval", everyMs: 10_000, mailMs: 20_000 }],
    { run: { cancelMs: 35_000 }, signals: [{ run: "run", name: "approval", number: 0, atMs: 25_000 }] },
  ),
  "a step that is not awaited happens": alone([{ op: "later", of: [step("a")], between: [], awaited: [] }]),
  "totalTimeout spans all attempts": alone([
    {
      op: "try",
      body: [step("a", { fails: "always", attempts: 20, delayMs: 10_000, totalTimeoutMs: 25_000 })],
      catch: [],
    },
  ]),
  "abortSignal of an attempt that is over": alone([
    step("a", { mistake: "late abortSignal", ms: 6_000, timeoutMs: 2_000, attempts: 3 }),
  ]),
  "a rate limit counts retries": alone([step("a", { fails: 1, rate: "r" })]),
  "ids that look like numbered ones": alone([
    step("a", { id: "x" }),
    { op: "later", of: [step("a", { id: "x#2" }), step("a", { id: "x" })], between: [], awaited: [0, 1] },
  ]),
  "slots whose names look like numbered ones": alone([
    {
      op: "later",
      of: [
        { op: "slot", verb: "set", name: "room", scope: "run" },
        { op: "slot", verb: "set", name: "room", scope: "run" },
        { op: "slot", verb: "set", name: "room#2", scope: "run" },
      ],
      between: [],
      awaited: [0, 1, 2],
    },
  ]),
  "a transaction that waits for a commit of its run lets time pass": {
    ...alone([
      {
        op: "loop",
        times: 10,
        body: [{ op: "group", how: "Promise.all", of: [[step("row", { kind: "tx" })], [step("a"), step("b")]] }],
      },
    ]),
    faults: true,
    worlds: [48, 66, 80, 92, 97],
  },
  "retry() repeats nothing because of a lock that is acquired after it": alone(
    [
      { op: "throw", name: "t", outage: true },
      {
        op: "group",
        how: "Promise.all",
        of: [
          [{ op: "lock", kind: "mutex", verb: "with", name: "m", body: [step("under", { ms: 1_000 })] }],
          [step("beside", { ms: 3_000 })],
          [step("once", { kind: "once", ms: 3_000 })],
        ],
      },
    ],
    { run: { retries: 1 } },
  ),
  "retry() repeats nothing because of a lock that it remembers": alone(
    [
      {
        op: "group",
        how: "Promise.all",
        of: [
          [
            { op: "try", body: [{ op: "throw", name: "t", outage: true }, step("new", { ms: 1_000 })], catch: [] },
            {
              op: "lock",
              kind: "mutex",
              verb: "with",
              name: "m",
              body: [step("under", { fails: "outage", attempts: 1 })],
            },
          ],
          [
            {
              op: "try",
              body: [{ op: "throw", name: "u", outage: true }, step("once", { kind: "once", ms: 5_000 })],
              catch: [],
            },
          ],
        ],
      },
    ],
    { run: { retries: 1 } },
  ),
  "retry() takes a new place in the line that the run had left": {
    ...alone([]),
    workflows: [
      {
        name: "holder",
        style: "async",
        body: [{ op: "lock", kind: "mutex", verb: "with", name: "m", body: [{ op: "sleep", ms: 30_000 }] }],
      },
      {
        name: "waiter",
        style: "async",
        body: [
          {
            op: "later",
            of: [{ op: "lock", kind: "mutex", verb: "with", name: "m", body: [] }],
            between: [step("a", { fails: "outage", attempts: 1 })],
            awaited: [0],
          },
        ],
      },
    ],
    runs: [
      { id: "first", workflow: 0, startMs: 0, retries: 0, restarts: false },
      { id: "second", workflow: 1, startMs: 1_000, retries: 1, restarts: false },
    ],
  },
  "a run is parked when what runs beside the unknown step is over": alone(
    [
      {
        op: "group",
        how: "Promise.all",
        of: [
          [step("once", { kind: "once", fails: "outage" })],
          [step("beside", { fails: "outage", attempts: 1, ms: 3_000 })],
        ],
      },
    ],
    { run: { retries: 2 } },
  ),
  "ctx after an end on another worker throws": alone([
    { op: "sleep", ms: 26_463 },
    {
      op: "later",
      of: [{ op: "lock", kind: "semaphore", verb: "with", name: "s", body: [step("a", { fails: 1, delayMs: 7_000 })] }],
      between: [step("b")],
      awaited: [],
    },
    { op: "afterEnd", ms: 90_000 },
  ]),
  "a transaction beside a lock that is granted is heard of in the order of the history": {
    ...alone([
      {
        op: "group",
        how: "ctx.race",
        of: [
          [step("a", { kind: "tx" })],
          [
            { op: "group", how: "ctx.allSettled", of: [[step("b", { semaphore: "s" })]] },
            { op: "sleep", ms: 26_511 },
          ],
        ],
      },
      { op: "sleep", ms: 16_658 },
    ]),
    worlds: [8, 9, 11, 15],
  },
  "a permit of a branch that lost a race is granted to the run's own next wish, which wakes it": alone([
    {
      op: "group",
      how: "ctx.allSettled",
      of: [
        [
          {
            op: "group",
            how: "ctx.race",
            of: [
              [step("a", { semaphore: "s" }), { op: "slot", verb: "update", name: "first", scope: "global" }],
              [{ op: "slot", verb: "update", name: "second", scope: "global" }],
            ],
          },
        ],
        [step("b", { semaphore: "s" })],
      ],
    },
  ]),
  "a cancellation in shielded code leaves the cleanup after it alone": alone(
    [
      {
        op: "try",
        body: [{ op: "shield", body: [step("a", { ms: 10_000 })] }],
        finally: [step("cleanup")],
      },
    ],
    { run: { cancelMs: 5_000 } },
  ),
  "a place in line that was left at the return is not missed by the next worker": {
    ...alone([
      {
        op: "later",
        of: [
          { op: "lock", kind: "mutex", verb: "with", name: "m", body: [] },
          { op: "lock", kind: "mutex", verb: "with", name: "m", body: [] },
        ],
        between: [
          {
            op: "group",
            how: "ctx.race",
            of: [[{ op: "shield", body: [step("a", { kind: "tx", semaphore: "s" })] }], [step("b", { rate: "r" })]],
          },
        ],
        awaited: [],
      },
    ]),
    faults: true,
    worlds: [53_389],
  },
  "ctx after the end throws, also where the run was started again and its code before that was kept": {
    ...alone(
      [
        {
          op: "group",
          how: "ctx.all",
          of: [
            [
              { op: "later", of: [step("a", { ms: 2_088 })], between: [], awaited: [] },
              step("b", { fails: 1, delayMs: 7_000 }),
            ],
            [step("c", { fails: 1, attempts: 1 })],
          ],
        },
        { op: "afterEnd", ms: 90_000 },
      ],
      { run: { startMs: 700, restarts: true } },
    ),
  },
  "a child that is started by the commit in which it loses a race is canceled": {
    ...alone([]),
    workflows: [
      { name: "child", style: "async", body: [{ op: "sleep", ms: 60_000 }] },
      {
        name: "root",
        style: "async",
        body: [
          {
            op: "group",
            how: "ctx.race",
            of: [
              [{ op: "child", verb: "call", workflow: 0, input: 1 }, step("a")],
              [{ op: "child", verb: "start", workflow: 0, input: 0 }],
            ],
          },
        ],
      },
    ],
    runs: [{ id: "run", workflow: 1, startMs: 0, retries: 0, restarts: false }],
  },
  "a run that is parked at the moment in which it is canceled takes its children with it": {
    ...alone([]),
    workflows: [
      { name: "child", style: "async", body: [{ op: "sleep", ms: 1_000_000 }] },
      {
        name: "root",
        style: "async",
        body: [
          { op: "child", verb: "start", workflow: 0, input: 1, whenParentEnds: "cancel" },
          { op: "foreign", ms: "never" },
        ],
      },
    ],
    runs: [{ id: "run", workflow: 1, startMs: 700, cancelMs: 32_353, retries: 0, restarts: false }],
    faults: true,
    worlds: [23, 44, 304],
  },
  "retry() gives a step all of its totalTimeout again": alone(
    [step("a", { ms: 1_332, fails: "outage", attempts: 2, delayMs: 200, totalTimeoutMs: 3_000 })],
    { run: { retries: 1 } },
  ),
  "what is not awaited is reported, also of code that was mended before a retry": alone(
    [
      { op: "throw", name: "t", outage: true },
      { op: "later", of: [{ op: "wait", signals: ["signal"], timeoutMs: 17_868 }], between: [], awaited: [] },
    ],
    { run: { retries: 1 } },
  ),
  "code that awaits something foreign beside a sleep is replayed when that is over, and may be canceled before": alone(
    [
      { op: "later", of: [{ op: "sleep", ms: 28_912 }], between: [], awaited: [] },
      { op: "foreign", ms: 700 },
    ],
    { run: { cancelMs: 19_988 } },
  ),
  "ctx after the end throws, also in code that had continued by itself while the run rested": alone([
    { op: "sleep", ms: 5_000 },
    { op: "foreign", ms: 700, racedMs: 34_713 },
    { op: "afterEnd", ms: 90_000 },
  ]),
  "retry() goes on under a lock only when it is held again, whatever else wakes the run": {
    ...withChild(
      [
        {
          op: "later",
          of: [{ op: "wait", signals: ["signal"] }, step("a", { fails: "always" })],
          between: [
            { op: "child", verb: "start", workflow: 0, input: 0 },
            step("b", { ms: 5_900, semaphore: "permits" }),
          ],
          awaited: [],
        },
      ],
      [step("c", { ms: 10_000, semaphore: "permits" })],
    ),
    runs: [{ id: "run", workflow: 1, startMs: 0, retries: 1, restarts: false }],
    signals: [{ run: "run", name: "signal", number: 0, atMs: 8_000 }],
  },
  "a run that was canceled by force before it began is not begun": {
    ...alone([], { run: { cancelMs: 5_827, force: true, startMs: 1_400 } }),
    faults: true,
    worlds: [143],
  },
  "a callback uses ctx after its run has ended on another worker": {
    ...alone(
      [
        { op: "later", of: [step("slow", { ms: 3_000 })], between: [step("a")], awaited: [] },
        { op: "afterEnd", ms: 90_000 },
      ],
      { faults: true, run: { restarts: true } },
    ),
    worlds: [47, 279, 300],
  },
  "a store that is busy when a step's turn is reserved costs no attempt": {
    ...alone([step("a", { rate: "r", fails: "always", attempts: 3, delayMs: 100, totalTimeoutMs: 5_000 })], {
      faults: true,
    }),
    worlds: [80, 413, 754, 928, 1231],
  },
  "a race that is canceled waits for the cleanup of its branches": alone(
    [
      {
        op: "group",
        how: "ctx.race",
        of: [
          [{ op: "try", body: [step("a", { ms: 5_000 })], finally: [{ op: "sleep", ms: 4_000 }, step("cleanup-a")] }],
          [{ op: "try", body: [step("b", { ms: 8_000 })], finally: [{ op: "sleep", ms: 4_000 }, step("cleanup-b")] }],
        ],
      },
    ],
    { run: { cancelMs: 2_000 } },
  ),
  "what lost a race in shielded code is not waited for when that has ended": alone([
    {
      op: "shield",
      body: [{ op: "group", how: "Promise.race", of: [[{ op: "wait", signals: ["never"] }], [step("a")]] }],
    },
  ]),
  "a run that waits for itself fails, whatever it has waited for before": alone(
    [
      { op: "remind", signal: "approval", everyMs: 8_620 },
      {
        op: "lock",
        kind: "mutex",
        name: "m",
        verb: "with",
        body: [{ op: "lock", kind: "lock", name: "m", verb: "with", body: [] }],
      },
    ],
    { signals: [{ run: "run", name: "approval", number: 0, atMs: 25_000 }] },
  ),
  "a timer that ends while a step's transaction is open is noticed once": {
    // Its rows are written when the faults are about to end: none of them interrupts the wait for a late reply.
    ...alone(
      [
        {
          op: "later",
          of: [{ op: "sleep", ms: 2_000 }],
          between: [1, 2, 3, 4, 5, 6, 7, 8].flatMap((at): Node[] => [
            step(`row-${at}`, { kind: "tx" }),
            step(`pause-${at}`, { ms: 100 }),
          ]),
          awaited: [0],
        },
      ],
      { faults: true, run: { startMs: 119_000 } },
    ),
    worlds: [66, 131, 403],
  },
  "a permit is held again after a retry that forgets what its history lists": {
    ...withChild([
      { op: "fan", of: "children", count: 128, name: "many", workflow: 0 },
      step("a", { fails: "outage", semaphore: "permits" }),
    ]),
    runs: [{ id: "run", workflow: 1, startMs: 0, retries: 1, restarts: false }],
  },
  "a child that is not awaited may fail while what else is to be done is done": withChild(
    [
      {
        op: "later",
        of: [step("slow", { ms: 7_500 }), { op: "child", verb: "call", workflow: 0, input: 0 }],
        between: [],
        awaited: [],
      },
    ],
    [step("a", { fails: "always" })],
  ),
  "a signal is for the wait that the code asked for after a failure, not for the one beside it": alone(
    [
      {
        op: "try",
        body: [
          {
            op: "group",
            how: "Promise.all",
            of: [[step("a", { fails: "always", attempts: 1 })], [{ op: "wait", signals: ["signal"] }]],
          },
        ],
        catch: [],
      },
      { op: "wait", signals: ["signal"], timeoutMs: 24_000 },
    ],
    {
      signals: [
        { run: "run", name: "signal", number: 0, atMs: 17_000 },
        { run: "run", name: "signal", number: 1, atMs: 36_000 },
      ],
    },
  ),
  "a run that is stuck is parked, although a worker with other code claims it now and then": {
    ...alone([step("a"), { op: "foreign", ms: "never" }], { faults: true, stranger: true }),
    worlds: [21],
  },
  "retried runs that would wait for each other's locks again do not wait forever": {
    ...withChild(
      [
        {
          op: "try",
          body: [
            {
              op: "group",
              how: "Promise.all",
              of: [
                [{ op: "child", verb: "call", workflow: 0, input: 0 }],
                [{ op: "child", verb: "call", workflow: 0, input: 0 }],
              ],
            },
          ],
          catch: [],
        },
        {
          op: "lock",
          kind: "mutex",
          verb: "with",
          name: "m",
          body: [{ op: "child", verb: "call", workflow: 0, input: 0 }],
        },
      ],
      [{ op: "lock", kind: "mutex", verb: "acquire", name: "m", body: [step("a", { mistake: "unstorable" })] }],
    ),
    runs: [{ id: "run", workflow: 1, startMs: 0, retries: 2, restarts: false }],
    faults: true,
  },
  "a step that ends before its run is told of the cancellation lets the run complete": {
    ...alone([step("a", { ms: 2_691 })], { run: { cancelMs: 2_677 } }),
    worlds: [20_228],
  },
  "a child that is stuck ends with its parent, also where it is parked by then": {
    ...withChild(
      [
        { op: "child", verb: "start", workflow: 0, input: 1, whenParentEnds: "cancel" },
        { op: "sleep", ms: 63_233 },
      ],
      [{ op: "foreign", ms: "never" }],
    ),
    worlds: [21_682],
  },
  "code that its run left behind is refused what it asks for, also in its catch": {
    ...alone([
      { op: "group", how: "Promise.race", of: [[step("a")], [{ op: "sleep", ms: 20_654 }]] },
      { op: "foreign", ms: 700 },
      { op: "try", body: [{ op: "rate", name: "rate" }], catch: [step("b")] },
    ]),
    worlds: [31_137],
  },
  "the child that is retried with a run that was restarted is the one of its second life": {
    ...withChild(
      [{ op: "shield", body: [{ op: "child", verb: "call", workflow: 0, input: 0 }] }],
      [{ op: "sleep", ms: 13_256 }, step("a", { fails: "outage" })],
    ),
    runs: [{ id: "run", workflow: 1, startMs: 0, cancelMs: 13_477, retries: 1, restarts: true }],
    worlds: [33_876],
  },
  "a child that is still stopping when its parent is retried does not outlive the parent": {
    ...withChild(
      [
        { op: "later", of: [{ op: "child", verb: "call", workflow: 0, input: 1 }], between: [], awaited: [] },
        { op: "loop", times: 2, body: [{ op: "sleep", ms: 3_594 }] },
        step("a", { fails: "outage" }),
      ],
      [{ op: "sleep", ms: 20_989 }],
    ),
    runs: [{ id: "run", workflow: 1, startMs: 0, retries: 2, restarts: false }],
    worlds: [35_270],
  },
  "a stuck child of a parent that was retried is parked, and ends with the parent": {
    ...withChild(
      [
        { op: "child", verb: "start", workflow: 0, input: 1, whenParentEnds: "cancel" },
        step("a", { fails: "outage" }),
        { op: "sleep", ms: 61_407 },
      ],
      [{ op: "foreign", ms: "never" }],
    ),
    runs: [{ id: "run", workflow: 1, startMs: 0, retries: 2, restarts: false }],
    worlds: [44_922],
  },
  "a signal that comes just after the code asked for it may win a race": {
    ...alone(
      [
        { op: "foreign", ms: 700 },
        { op: "group", how: "ctx.race", of: [[{ op: "rate", name: "rate" }], [{ op: "wait", signals: ["signal"] }]] },
      ],
      { signals: [{ run: "run", name: "signal", number: 0, atMs: 789 }] },
    ),
    worlds: [48_265],
  },
  "an operation on a slot that is new after a retry does not get what another one did": {
    ...alone(
      [
        {
          op: "try",
          body: [{ op: "throw", name: "a", outage: true }],
          catch: [{ op: "slot", verb: "trySet", name: "room", scope: "run" }],
        },
        { op: "throw", name: "b", outage: true },
        {
          op: "later",
          of: [{ op: "slot", verb: "get", name: "room", scope: "run" }],
          between: [],
          awaited: [],
        },
      ],
      { run: { retries: 2 } },
    ),
    worlds: [48_199],
  },
  "a failure that the function has thrown is forgotten by a retry, although a branch left behind goes on after it": {
    workflows: [
      {
        name: "root-0",
        style: "async",
        body: [
          {
            op: "group",
            how: "ctx.all",
            of: [
              [
                {
                  op: "group",
                  how: "Promise.allSettled",
                  of: [[step("s6", { ms: 4_517 }), { op: "rate", name: "rate-0" }]],
                },
              ],
              [step("s8", { fails: "outage" })],
            ],
          },
        ],
      },
    ],
    runs: [{ id: "run-0", workflow: 0, startMs: 0, retries: 1, restarts: false }],
    signals: [],
    faults: false,
    worlds: [600_882],
  },
  "a cancellation that found nothing to interrupt is thrown by shielded code, not by the cleanup after it": {
    workflows: [
      { name: "root-0", style: "async", body: [] },
      {
        name: "root-1",
        style: "async",
        body: [
          { op: "foreign", ms: 700 },
          { op: "try", body: [{ op: "shield", body: [step("s9")] }], finally: [step("cleanup10")] },
        ],
      },
    ],
    runs: [{ id: "run-1", workflow: 1, startMs: 0, cancelMs: 8_355, retries: 0, restarts: false }],
    signals: [],
    faults: true,
    worlds: [603_815],
  },
  "a turn from before a retry is not used after it": {
    workflows: [
      { name: "child-0", style: "async", body: [step("s2", { rate: "step-rate-1" })] },
      {
        name: "root-0",
        style: "async",
        body: [
          { op: "wait", signals: ["signal-2"], timeoutMs: 16_736 },
          { op: "child", verb: "call", workflow: 0, input: 0 },
          { op: "child", verb: "call", workflow: 0, input: 0, id: "shared-2" },
        ],
      },
      {
        name: "root-1",
        style: "async",
        body: [
          { op: "loop", times: 3, body: [{ op: "child", verb: "start", workflow: 0, input: 0 }] },
          { op: "child", verb: "call", workflow: 0, input: 0, id: "shared-2" },
        ],
      },
    ],
    runs: [
      { id: "run-0", workflow: 1, startMs: 0, retries: 2, restarts: false },
      { id: "run-1", workflow: 2, startMs: 0, cancelMs: 11_525, retries: 0, restarts: false },
    ],
    signals: [],
    faults: false,
    worlds: [605_124],
  },
  "a worker that claims a run too late does not count as one that knows of it": {
    workflows: [
      {
        name: "root-0",
        style: "async",
        body: [
          step("s2", { kind: "tx" }),
          step("s3", { kind: "tx", fails: 2 }),
          { op: "throw", name: "t4", outage: true },
          step("s5", { ms: 6_348 }),
        ],
      },
      {
        name: "root-1",
        style: "async",
        body: [
          { op: "rate", name: "rate-1" },
          { op: "remind", signal: "approval6", everyMs: 10_619 },
          { op: "group", how: "ctx.race", of: [[{ op: "rate", name: "rate-0" }], [step("s8", { kind: "tx" })]] },
          step("s15", { ms: 7_195, fails: 2 }),
        ],
      },
    ],
    runs: [
      { id: "run-0", workflow: 0, startMs: 0, retries: 2, restarts: false },
      { id: "run-1", workflow: 1, startMs: 0, retries: 0, restarts: false },
    ],
    signals: [{ run: "run-1", name: "approval6", number: 0, atMs: 26_547.5 }],
    faults: true,
    worlds: [653_425],
  },
  "what a cleanup remembers handles the failure of a child, although it is not in the history again": {
    workflows: [
      { name: "child-0", style: "async", body: [step("s2", { fails: 2, attempts: 2 })] },
      {
        name: "root-0",
        style: "async",
        body: [
          {
            op: "try",
            body: [
              { op: "throw", name: "t7", outage: true },
              { op: "child", verb: "call", workflow: 0, input: 1 },
            ],
            finally: [step("cleanup8")],
          },
        ],
      },
    ],
    runs: [{ id: "run-0", workflow: 1, startMs: 0, retries: 2, restarts: false }],
    signals: [],
    faults: false,
    worlds: [662_821],
  },
  "the intent of a step may wait for a transaction when its turn has come": {
    workflows: [
      {
        name: "child-0",
        style: "async",
        body: [
          {
            op: "group",
            how: "Promise.race",
            of: [
              [step("s1", { kind: "once", rate: "step-rate-0" })],
              [step("s3", { rate: "step-rate-0" })],
              [step("s5")],
            ],
          },
          step("s7", { kind: "tx", ms: 4_000 }),
        ],
      },
      { name: "child-1", style: "async", body: [] },
      { name: "root-0", style: "async", body: [{ op: "child", verb: "start", workflow: 0, input: 1 }] },
    ],
    runs: [{ id: "run-0", workflow: 2, startMs: 0, retries: 0, restarts: false }],
    signals: [],
    faults: false,
    worlds: [712_321],
  },
  "two runs that ask for a permit close together may get it in either order": {
    workflows: [
      { name: "child-0", style: "async", body: [step("s1", { ms: 7_521, semaphore: "permits-1" })] },
      {
        name: "root-0",
        style: "async",
        timeoutMs: 25_645,
        body: [
          { op: "wait", signals: ["signal-0"], timeoutMs: 35_569 },
          { op: "child", verb: "start", workflow: 0, input: 0 },
          step("s5", { semaphore: "permits-1" }),
        ],
      },
    ],
    runs: [{ id: "run-0", workflow: 1, startMs: 0, retries: 0, restarts: false }],
    signals: [{ run: "run-0", name: "signal-0", number: 0, atMs: 23_232 }],
    faults: false,
    worlds: [627_998],
  },
  "what is remembered wins a race against what failed before a retry": {
    workflows: [
      { name: "child-0", style: "async", body: [] },
      {
        name: "root-0",
        style: "async",
        body: [
          { op: "group", how: "Promise.race", of: [[step("s3", { fails: "always" })], [step("s4", { ms: 7_696 })]] },
        ],
      },
    ],
    runs: [{ id: "run-0", workflow: 1, startMs: 0, retries: 2, restarts: false }],
    signals: [],
    faults: false,
    worlds: [628_602],
  },
  "the wait for a turn is dropped when the function has returned": {
    workflows: [
      { name: "child-0", style: "async", body: [] },
      { name: "child-1", style: "async", body: [step("s3", { ms: 4_577 })] },
      {
        name: "root-0",
        style: "async",
        body: [
          { op: "rate", name: "rate-1" },
          {
            op: "group",
            how: "Promise.race",
            of: [
              [{ op: "rate", name: "rate-1" }],
              [{ op: "child", verb: "call", workflow: 1, input: 0 }],
              [step("s7")],
            ],
          },
        ],
      },
    ],
    runs: [{ id: "run-0", workflow: 2, startMs: 0, retries: 0, restarts: false }],
    signals: [],
    faults: false,
    worlds: [664_969],
  },
  "a step that was not awaited may end before or after another of its name is asked for": {
    workflows: [
      { name: "child-0", style: "async", body: [] },
      { name: "child-1", style: "async", body: [] },
      {
        name: "root-0",
        style: "async",
        body: [
          {
            op: "loop",
            times: 2,
            body: [{ op: "later", of: [step("s6", { kind: "tx" }), step("s7")], between: [], awaited: [1] }],
          },
        ],
      },
    ],
    runs: [{ id: "run-0", workflow: 2, startMs: 0, retries: 0, restarts: false }],
    signals: [],
    faults: false,
    worlds: [669_097],
  },
  "the last attempt of a step may end before the sleep that it races with": {
    workflows: [
      { name: "child-0", style: "async", body: [] },
      {
        name: "root-0",
        style: "async",
        body: [
          {
            op: "group",
            how: "ctx.race",
            of: [[{ op: "sleep", ms: 4_000 }], [step("s9", { fails: "always", delayMs: 2_000 })]],
          },
        ],
      },
    ],
    runs: [{ id: "run-0", workflow: 1, startMs: 0, retries: 0, restarts: false }],
    signals: [],
    faults: false,
    worlds: [686_174],
  },
  "what shielded code waits for is waited for when the function has returned": {
    workflows: [
      { name: "child-0", style: "async", body: [] },
      { name: "child-1", style: "async", body: [{ op: "sleep", ms: 12_978 }] },
      {
        name: "root-0",
        style: "async",
        body: [
          {
            op: "group",
            how: "Promise.race",
            of: [
              [step("s4")],
              [step("s5", { ms: 6_000 })],
              [{ op: "shield", body: [{ op: "child", verb: "call", workflow: 1, input: 0 }] }],
            ],
          },
        ],
      },
      { name: "root-1", style: "async", body: [] },
    ],
    runs: [{ id: "run-0", workflow: 2, startMs: 0, retries: 0, restarts: false }],
    signals: [],
    faults: false,
    worlds: [711_970],
  },
  "a retried run does not wait for a lock that its new code has released": {
    workflows: [
      { name: "child-0", style: "async", body: [step("s1", { mistake: "nested step" })] },
      {
        name: "root-0",
        style: "async",
        body: [
          {
            op: "try",
            body: [
              { op: "throw", name: "t3", outage: true },
              { op: "lock", kind: "write", verb: "try", name: "rw-0", body: [] },
            ],
            catch: [],
          },
          { op: "lock", kind: "read", verb: "with", name: "rw-0", body: [] },
          { op: "child", verb: "call", workflow: 0, input: 0 },
        ],
      },
    ],
    runs: [{ id: "run-0", workflow: 1, startMs: 0, retries: 2, restarts: false }],
    signals: [],
    faults: false,
    worlds: [246],
  },
  "two runs that ask for a turn close together may get it in either order": {
    workflows: [
      { name: "child-0", style: "async", body: [{ op: "rate", name: "rate-1" }] },
      {
        name: "root-0",
        style: "async",
        body: [
          { op: "child", verb: "start", workflow: 0, input: 0 },
          {
            op: "group",
            how: "ctx.race",
            of: [[{ op: "rate", name: "rate-1" }], [{ op: "slot", verb: "delete", name: "room-0", scope: "run" }]],
          },
        ],
      },
    ],
    runs: [{ id: "run-0", workflow: 1, startMs: 0, retries: 0, restarts: false }],
    signals: [],
    faults: false,
    worlds: [3_062_226],
  },
  "code that awaits a sleep when its function returns does not go on": alone([
    {
      op: "group",
      how: "Promise.race",
      of: [
        [step("s4", { ms: 7_269 })],
        [
          {
            op: "later",
            of: [step("s5", { fails: "always" })],
            between: [{ op: "sleep", ms: 5_568, until: true }],
            awaited: [0],
          },
        ],
        [{ op: "sleep", ms: 1_590 }],
      ],
    },
  ]),
  "an attempt that times out while another step has the only transaction does not begin": alone(
    [
      {
        op: "group",
        how: "Promise.all",
        of: [
          [step("s8", { kind: "tx", ms: 4_000, delayMs: 7_000, timeoutMs: 2_000 })],
          [step("s9", { kind: "tx", ms: 4_000, timeoutMs: 2_000 })],
        ],
      },
    ],
    { run: { retries: 2 } },
  ),
  "an attempt that is due just after a cancellation may come first": alone(
    [step("s6", { ms: 6_727 }), { op: "loop", times: 2, body: [step("s7", { fails: 1, delayMs: 2_000 })] }],
    { run: { cancelMs: 10_698 } },
  ),
  "a signal close to a timeout after something foreign may come first": {
    worlds: [2, 3],
    ...alone(
      [
        { op: "foreign", ms: 700 },
        { op: "wait", signals: ["signal-0"], timeoutMs: 7_878 },
      ],
      { signals: [{ run: "run", name: "signal-0", number: 0, atMs: 8_877 }] },
    ),
  },
  "a signal close to the timeout of one of two waits, after something foreign, may come first": {
    worlds: [2, 3],
    ...alone(
      [
        step("s7", { ms: 300 }),
        { op: "foreign", ms: 700 },
        {
          op: "later",
          of: [
            { op: "wait", signals: ["signal-0"], timeoutMs: 35_511 },
            { op: "wait", signals: ["signal-0", "signal-1"], timeoutMs: 11_368 },
          ],
          between: [],
          awaited: [1],
        },
      ],
      {
        signals: [
          { run: "run", name: "signal-0", number: 0, atMs: 3_614 },
          { run: "run", name: "signal-1", number: 1, atMs: 12_673 },
          { run: "run", name: "signal-1", number: 2, atMs: 27_814 },
        ],
      },
    ),
  },
  "code that awaits something foreign beside what lost a race may be replayed when that is over": alone(
    [
      {
        op: "group",
        how: "Promise.race",
        of: [
          [{ op: "try", body: [{ op: "wait", signals: ["signal-2"] }], finally: [step("cleanup3")] }],
          [{ op: "slot", verb: "delete", name: "room", scope: "run" }],
        ],
      },
      { op: "foreign", ms: 700 },
    ],
    { signals: [{ run: "run", name: "signal-2", number: 0, atMs: 42_168 }] },
  ),
  "a branch asks for a lock in the turn in which its function returns": alone([
    {
      op: "group",
      how: "Promise.all",
      of: [
        [step("s4", { kind: "once", fails: 1 })],
        [step("s5"), { op: "lock", kind: "lock", verb: "with", name: "mutex-1", body: [step("s6")] }],
      ],
    },
  ]),
  "a transaction that waits for another fails later": {
    worlds: [10_150_454],
    ...alone([
      {
        op: "group",
        how: "Promise.all",
        of: [
          [step("s16", { kind: "tx", ms: 4_000, timeoutMs: 2_000 })],
          [step("s17", { kind: "tx", fails: "always" })],
        ],
      },
    ]),
  },
  "a run that waits for more of its own locks than a search reads is told so": alone([
    { op: "loop", times: 2, body: [{ op: "fan", of: "locks", count: 850, name: "fan" }] },
  ]),
  "a turn and a step that come in one commit may settle a race in either order": alone([
    { op: "group", how: "Promise.race", of: [[{ op: "rate", name: "rate-1" }], [step("s9")]] },
  ]),
  "an attempt of step.tx whose time is over when its transaction opens does not begin": {
    workflows: [
      { name: "child-0", style: "async", body: [] },
      { name: "root-0", style: "async", body: [{ op: "sleep", ms: 7_336 }, step("s8")] },
      {
        name: "root-1",
        style: "async",
        body: [
          {
            op: "later",
            of: [step("s12", { mistake: "nested step" }), step("s13", { kind: "tx", timeoutMs: 2_000 })],
            between: [{ op: "child", verb: "start", workflow: 0, input: 0 }],
            awaited: [],
          },
          { op: "rate", name: "rate-0" },
          step("s16", { ms: 7_533, fails: 1 }),
        ],
      },
    ],
    runs: [
      { id: "run-0", workflow: 1, startMs: 0, retries: 0, restarts: false },
      { id: "run-1", workflow: 2, startMs: 0, retries: 0, restarts: false },
    ],
    signals: [
      { run: "run-1", name: "signal-1", number: 0, atMs: 18_496 },
      { run: "run-1", name: "signal-0", number: 0, atMs: 41_578 },
      { run: "run-1", name: "signal-1", number: 1, atMs: 54_553 },
    ],
    faults: true,
    worlds: [10_173_120],
  },
  "code that has been told that its run is elsewhere asks for slots in vain": {
    ...alone(
      [
        { op: "foreign", ms: 700 },
        {
          op: "try",
          body: [step("s2")],
          catch: [{ op: "slot", verb: "update", name: "room#2", scope: "workflow" }],
        },
        { op: "sleep", ms: 27_621 },
      ],
      { run: { startMs: 1_400 } },
    ),
    worlds: [10_175_738],
  },
  "a replay by code that was mended meanwhile, which is given up, asks for steps in vain": {
    workflows: [
      { name: "child-0", style: "async", body: [step("s3", { fails: "outage" })] },
      {
        name: "root-0",
        style: "async",
        body: [
          {
            op: "group",
            how: "ctx.allSettled",
            of: [
              [{ op: "wait", signals: ["signal-1"] }],
              [
                { op: "try", body: [{ op: "throw", name: "t5", outage: true }, step("s6")], catch: [] },
                { op: "child", verb: "call", workflow: 0, input: 1 },
              ],
              [step("s7", { semaphore: "permits-0" })],
            ],
          },
        ],
      },
      { name: "root-1", style: "async", body: [{ op: "child", verb: "call", workflow: 0, input: 1 }] },
    ],
    runs: [
      { id: "run-0", workflow: 1, startMs: 0, retries: 0, restarts: false },
      { id: "run-1", workflow: 2, startMs: 0, retries: 1, restarts: false },
    ],
    signals: [{ run: "run-0", name: "signal-1", number: 0, atMs: 44_869 }],
    faults: false,
    worlds: [10_104_429],
  },
  "code of a process that stood still uses ctx before it notices that its run has ended elsewhere": {
    workflows: [
      {
        name: "child-0",
        style: "async",
        body: [step("s1", { rate: "step-rate-0" }), step("s2", { fails: "always", rate: "step-rate-1" })],
      },
      { name: "root-0", style: "async", body: [{ op: "child", verb: "call", workflow: 0, input: 0 }] },
      {
        name: "root-1",
        style: "async",
        timeoutMs: 14_154,
        body: [
          { op: "group", how: "Promise.all", of: [[step("s7")], [{ op: "sleep", ms: 1_059, until: true }]] },
          step("s8", { ms: 7_587, semaphore: "permits-1" }),
          {
            op: "later",
            of: [step("s10", { ms: 1_284, heartbeatMs: 2_000, beats: true }), step("s11", { kind: "tx" })],
            between: [],
            awaited: [],
          },
          { op: "afterEnd", ms: 90_000 },
        ],
      },
    ],
    runs: [
      { id: "run-0", workflow: 1, startMs: 0, retries: 0, restarts: false },
      { id: "run-1", workflow: 2, startMs: 1_400, retries: 0, restarts: false },
    ],
    signals: [],
    faults: true,
    worlds: [10_044_240],
  },
  "a step that loses a race while its intent is written did not happen": {
    ...alone(
      [
        {
          op: "group",
          how: "ctx.race",
          of: [
            [step("s4", { kind: "tx", fails: 1, attempts: 1 })],
            [
              { op: "lock", kind: "write", verb: "with", name: "rw-1", body: [step("s5", { kind: "once" })] },
              step("s7"),
            ],
          ],
        },
      ],
      { run: { retries: 2 } },
    ),
    worlds: [10_095_257],
  },
};
