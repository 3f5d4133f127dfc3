/**
 * Goal: the same facts in the same order make the same code path, and a fact that the code did not ask for is refused with both sides.
 * Method: code and facts by hand, without a store; between two facts the code runs as far as it can.
 */

import { describe, expect, test } from "vitest";
import { drained } from "../../../test/kernel/kit.ts";
import { address } from "../../kernel/contract.ts";
import { definitionOf, signal, workflow } from "../definitions/definition.ts";
import { HistoryContradictionError, type RunCanceledError } from "../errors.ts";
import { Context } from "./context.ts";
import { Coroutine } from "./coroutine.ts";

const go = signal<number>("go");
const other = workflow("other", async () => {});

type Fact = readonly [name: string, data?: unknown];

/** Code that has begun, with nothing applied yet. */
async function begun(body: (ctx: Context) => Promise<unknown>): Promise<Coroutine> {
  const coroutine = new Coroutine("one", 1000);
  const definition = definitionOf(workflow("it", body));
  if (definition === undefined) throw new Error("it is a workflow");
  const value = { workflow: "it", incarnation: 1, seed: "seed", startedAtMs: 1000, from: 1 };
  coroutine.begin(
    definition,
    new Context(
      coroutine,
      definition,
      value,
      {
        declares: () => false,
        limit: (name) => ({ recordOf: () => address("rate", name), reserveIn: () => ({ isGranted: true, waitMs: 0 }) }),
      },
      () => {},
    ),
    undefined,
  );
  await drained();
  return coroutine;
}

/** The code after these facts, one at a time. */
async function following(body: (ctx: Context) => Promise<unknown>, facts: readonly Fact[]): Promise<Coroutine> {
  const coroutine = await begun(body);
  for (const [index, [name, data = {}]] of facts.entries()) {
    coroutine.replay(name, data, 1000 + index);
    await drained();
  }
  return coroutine;
}

const waitingOf = ({ waiting }: Coroutine): string[] => [...waiting.keys()];

describe("facts", () => {
  test("the code asks, and goes on with what the fact says", async () => {
    const body = async (ctx: Context) => [await ctx.step("a", () => 0), await ctx.step("b", () => 0)];
    expect(waitingOf(await following(body, []))).toEqual(["step a"]);
    expect(waitingOf(await following(body, [["step a", { ok: 1 }]]))).toEqual(["step b"]);
    const done = await following(body, [
      ["step a", { ok: 1 }],
      ["step b", { ok: 2 }],
    ]);
    expect(done.outcome).toEqual({ ok: [1, 2] });
  });

  const answers: readonly [string, (ctx: Context) => PromiseLike<unknown>, readonly Fact[], unknown][] = [
    ["a step's result", (ctx) => ctx.step("a", () => 0), [["step a", { ok: 7 }]], { ok: 7 }],
    ["a step's error", (ctx) => ctx.step("a", () => 0), [["step a", { error: "no" }]], { error: "no" }],
    [
      "a sleep's end",
      (ctx) => ctx.sleep(5),
      [
        ["sleep 1", { dueMs: 1005 }],
        ["woke 1", null],
      ],
      { ok: undefined },
    ],
    [
      "a signal",
      (ctx) => ctx.waitForSignal(go),
      [["received go", { at: 1, signal: "go", value: 3 }]],
      { ok: { ok: true, signal: "go", value: 3 } },
    ],
    [
      "a wait that is over",
      (ctx) => ctx.waitForSignal(go, { timeout: 5 }),
      [
        ["wait go", { dueMs: 1005 }],
        ["expired go", null],
      ],
      { ok: { ok: false, reason: "timeout" } },
    ],
    ["a child that was started", (ctx) => ctx.start(other), [["child other", { run: "kid" }]], { ok: "kid" }],
    [
      "a child's result",
      (ctx) => ctx.call(other),
      [
        ["child other", { run: "kid" }],
        ["ended other", { at: 1, outcome: { ok: 9 } }],
      ],
      { ok: 9 },
    ],
    ["a slot's answer", (ctx) => ctx.slot("s").get(), [["slot s", { ok: { value: 1 } }]], { ok: { value: 1 } }],
  ];
  test.each(answers)("settle what was asked for: %s", async (_, ask, facts, outcome) => {
    const coroutine = await following(async (ctx) => ask(ctx), facts);
    expect(coroutine.outcome).toEqual(outcome);
  });

  test("the second of a name is told from the first", async () => {
    const body = async (ctx: Context) => {
      await ctx.step("a", () => 0);
      await ctx.step("a", () => 0);
      await ctx.sleep(1);
      await ctx.sleep(1);
    };
    const facts: Fact[] = [["step a", { ok: 1 }], ["step a#2", { ok: 1 }], ["woke 1"]];
    expect(waitingOf(await following(body, facts))).toEqual(["sleep 2"]);
  });

  test("what is known of an operation is kept: intent, attempts, progress, its end", async () => {
    const coroutine = await following(
      async (ctx) => Promise.all([ctx.step.atMostOnce("a", () => 0), ctx.step("b", () => 0), ctx.sleep(5)]),
      [
        ["intent a"],
        ["progress b", { rows: 3 }],
        ["attempt b", { attempts: 2, error: "down", dueMs: 5000 }],
        ["sleep 1", { dueMs: 1005 }],
      ],
    );
    expect(coroutine.waiting.get("step a")).toMatchObject({ hasIntent: true });
    expect(coroutine.waiting.get("step b")).toMatchObject({ attempts: 2, progress: { rows: 3 }, dueMs: 5000 });
    expect(coroutine.waiting.get("sleep 1")).toMatchObject({ dueMs: 1005 });
  });

  test("a person's word takes an intent back", async () => {
    const coroutine = await following(async (ctx) => ctx.step.atMostOnce("a", () => 0), [["intent a"], ["undone a"]]);
    expect(coroutine.waiting.get("step a")).toMatchObject({ hasIntent: false });
  });

  test("the intent of a step that lost a race is taken back like any other", async () => {
    const coroutine = await following(
      async (ctx) => ctx.race([ctx.step("a", () => 0), ctx.step.atMostOnce("b", () => 0)]),
      [["intent b"], ["step a", { ok: 1 }], ["undone b"]],
    );
    expect(coroutine.outcome).toEqual({ ok: 1 });
  });

  const branches = async (ctx: Context) => {
    const seen: string[] = [];
    const note = (name: string) => ctx.step(name, () => 0).then(() => seen.push(name));
    const all = ["a", "b", "c"].map(note);
    await Promise.race(all);
    const first = seen.join("");
    await Promise.all(all);
    return [first, seen.join("")];
  };
  test.each(["abc", "acb", "bac", "bca", "cab", "cba"])("branches see the order of the history: %s", async (order) => {
    const facts = [...order].map((name): Fact => [`step ${name}`, { ok: 0 }]);
    const coroutine = await following(branches, facts);
    expect(coroutine.outcome).toEqual({ ok: [order[0], order] });
  });
});

describe("a contradiction", () => {
  const step = async (ctx: Context) => ctx.step("a", () => 0);
  const rules: readonly [string, (ctx: Context) => Promise<unknown>, readonly Fact[], string, string][] = [
    ["another step", step, [["step b", { ok: 1 }]], '"step b"', 'waits for "step a"'],
    ["another kind", step, [["woke 1"]], '"woke 1"', 'waits for "step a"'],
    [
      "one too many",
      step,
      [
        ["step a", { ok: 1 }],
        ["step a#2", { ok: 1 }],
      ],
      '"step a#2"',
      "has ended by then",
    ],
    [
      "the same again",
      step,
      [
        ["step a", { ok: 1 }],
        ["step a", { ok: 1 }],
      ],
      '"step a"',
      "has ended by then",
    ],
    ["a word that nobody knows", step, [["stepped a"]], '"stepped a"', "knows nothing of the kind"],
    ["a word of the language itself", step, [["constructor a"]], '"constructor a"', "knows nothing of the kind"],
    ["nothing asked for", () => new Promise(() => {}), [["step a", { ok: 1 }]], '"step a"', "waits for nothing"],
  ];
  test.each(rules)("is refused with both sides: %s", async (_, body, facts, history, code) => {
    const last = facts.at(-1);
    const coroutine = await following(body, facts.slice(0, -1));
    const act = () => coroutine.replay(last?.[0] ?? "", last?.[1] ?? {}, 0);
    expect(act).toThrow(HistoryContradictionError);
    expect(act).toThrow(expect.objectContaining({ data: { run: "one", history, code } }));
  });
});

describe("cancellation", () => {
  const codeOf = (error: unknown) => (error as { code?: string }).code ?? error;

  test("is thrown into everything that waits, once", async () => {
    const body = async (ctx: Context) => {
      const all = [ctx.sleep(1), ctx.waitForSignal(go), ctx.call(other)];
      const seen = await Promise.all(all.map((one) => (one as PromiseLike<unknown>).then(() => "?", codeOf)));
      return [...seen, await ctx.step("cleanup", () => 0)];
    };
    const coroutine = await following(body, [
      ["canceled", { reason: "enough" }],
      ["step cleanup", { ok: "clean" }],
    ]);
    expect(coroutine.outcome).toEqual({ ok: ["run_canceled", "run_canceled", "run_canceled", "clean"] });
  });

  test("waits for a step that runs, and comes out where it fails", async () => {
    const body = async (ctx: Context) => ctx.step("a", () => 0).catch(codeOf);
    const running = await following(body, [["canceled"]]);
    expect(waitingOf(running)).toEqual(["step a"]);
    const failed = await following(body, [["canceled"], ["step a", { error: "aborted" }]]);
    expect(failed.outcome).toEqual({ ok: "run_canceled" });
  });

  test("that arrives while a lock is released, or in shielded code, leaves the cleanup after it alone", async () => {
    const cleaning = (work: (ctx: Context) => PromiseLike<unknown>) => async (ctx: Context) => {
      try {
        await work(ctx);
      } finally {
        await ctx.step("cleanup", () => 0);
      }
    };
    const locked = await following(
      cleaning((ctx) => ctx.mutex("m").with(async () => 1)),
      [['granted mutex "m"', { fence: 1 }], ["canceled"], ['unlock mutex "m"', { released: true }]],
    );
    expect(waitingOf(locked)).toEqual(["step cleanup"]);
    const shielded = await following(
      cleaning((ctx) => ctx.shield((inner) => inner.sleep(1))),
      [["canceled"], ["woke 1"]],
    );
    expect(waitingOf(shielded)).toEqual(["step cleanup"]);
  });

  test("comes out at a step that succeeded all the same, with its outcome, and nowhere else", async () => {
    const body = async (ctx: Context) => [
      await ctx.step("a", () => 0).catch((error) => (error as RunCanceledError).data.outcome),
      await ctx.step("b", () => 0),
    ];
    const coroutine = await following(body, [["canceled"], ["step a", { ok: 1 }], ["step b", { ok: 3 }]]);
    expect(coroutine.outcome).toEqual({ ok: [{ operation: "a", ok: 1 }, 3] });
  });

  test("that finds nothing pending comes out at what is asked for next", async () => {
    const foreign = Promise.withResolvers<void>();
    const coroutine = await begun(async (ctx) => {
      await foreign.promise;
      return [await ctx.step("a", () => 0).catch(codeOf), await ctx.step("b", () => 0)];
    });
    coroutine.replay("canceled", {}, 1000);
    foreign.resolve();
    await drained();
    coroutine.replay("step b", { ok: 2 }, 1000);
    await drained();
    expect(coroutine.outcome).toEqual({ ok: ["run_canceled", 2] });
  });

  test("leaves the time to the code: it is noted when the code looks at it, so that replay sees the same", async () => {
    const noted: unknown[] = [];
    const coroutine = await begun((ctx) => ctx.sleep(1).then(undefined, () => ctx.now().getTime()));
    coroutine.driver = { nowMs: () => 5000, note: (word, data) => void noted.push([word, data]) };
    coroutine.apply({ word: "canceled", id: "", data: {} }, undefined);
    await drained();
    expect(coroutine.outcome).toEqual({ ok: 5000 });
    expect(noted).toEqual([["now", 5000]]);
    expect(coroutine.canceledAtMs).toBe(5000);
  });

  test("by the run's own time limit is another error", async () => {
    const coroutine = await following(async (ctx) => ctx.sleep(1), [["canceled", { timedOut: true }]]);
    expect(coroutine.outcome).toMatchObject({ error: { code: "run_timed_out" } });
    expect(coroutine.canceled).toMatchObject({ code: "run_timed_out" });
  });
});

describe("steps of one name", () => {
  const outcomeOf = async (body: (ctx: Context) => unknown[]) => {
    const coroutine = await begun(async (ctx) => {
      const all = body(ctx) as PromiseLike<unknown>[];
      return Promise.race(all);
    });
    return [waitingOf(coroutine), coroutine.outcome] as const;
  };

  test("cannot be under way at once", async () => {
    const [waiting, outcome] = await outcomeOf((ctx) => [ctx.step("a", () => 0), ctx.step("a", () => 0)]);
    expect(waiting).toEqual(["step a"]);
    expect(outcome).toMatchObject({ error: { code: "step_in_flight", data: { step: "a" } } });
  });

  test("can, with ids that tell them apart", async () => {
    const [waiting, outcome] = await outcomeOf((ctx) => [
      ctx.step("a", () => 0, { id: "x" }),
      ctx.step("a", () => 0, { id: "y" }),
    ]);
    expect(waiting).toEqual(["step a#=x", "step a#=y"]);
    expect(outcome).toBe(undefined);
  });

  test("cannot, with the same id", async () => {
    const [, outcome] = await outcomeOf((ctx) => [
      ctx.step("a", () => 0, { id: "x" }),
      ctx.step("a", () => 0, { id: "x" }),
    ]);
    expect(outcome).toMatchObject({ error: { code: "step_in_flight" } });
  });
});

test("an operation that nobody looks at harms nobody when it fails", async () => {
  const body = async (ctx: Context) => {
    void ctx.step("a", () => 0);
    await ctx.step("b", () => 0);
    return "done";
  };
  const coroutine = await following(body, [
    ["step a", { error: "no" }],
    ["step b", { ok: 1 }],
  ]);
  expect(coroutine.outcome).toEqual({ ok: "done" });
});
