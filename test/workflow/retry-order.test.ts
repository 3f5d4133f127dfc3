/**
 * Goal: after a retry, an operation gets what it did itself before, and never what another operation of the same name did, in whatever order
 * the repaired code asks.
 * Method: workflows that fail in plain code, and are retried with code that asks in another order. What each operation returns is compared with
 * what it returned before, and the effects are counted. Each history is replayed to the same end, and the histories of earlier releases, which
 * do not tell what an operation does, are made of today's.
 */

import { beforeEach, describe, expect, test } from "vitest";
import { aggregate, type Context, event, signal, type Workflow, workflow } from "../../src/index.ts";
import { openTest, replayHistory, saveHistory, type TestPawl } from "../../src/testing/index.ts";
import { before, type Code, failed, isMended, mend, repaired, retried, unmend } from "./repaired.ts";

beforeEach(unmend);

/** How often the history has facts of this word. */
async function countOf(pawl: TestPawl, word: string): Promise<number> {
  const history = await pawl.run("it").history();
  return history.filter(({ name }) => name.split(" ")[0] === word).length;
}

/** Every two of them, in both orders. */
function pairsOf(verbs: Readonly<Record<string, Code>>): [string, string][] {
  const names = Object.keys(verbs);
  return names.flatMap((one) => names.flatMap((other): [string, string][] => (one === other ? [] : [[one, other]])));
}

/** Asks for these one after another; returns what each returned, or the code of its error. */
async function each(ctx: Context, verbs: Readonly<Record<string, Code>>, names: readonly string[]): Promise<object> {
  const outcomes: Record<string, unknown> = {};
  for (const name of names)
    outcomes[name] = await verbs[name]?.(ctx).catch((error: { code?: string }) => ({ failed: error.code }));
  return outcomes;
}

describe("a slot", () => {
  const room = (ctx: Context) => ctx.slot<number>("room");
  const VERBS: Readonly<Record<string, Code>> = {
    get: (ctx) => room(ctx).get(),
    set: (ctx) => room(ctx).set(1),
    trySet: (ctx) => room(ctx).trySet(2, { expectedVersion: 1 }),
    update: (ctx) => room(ctx).update((value) => (value ?? 0) + 10),
    delete: (ctx) => room(ctx).delete(),
    "set of the workflow": (ctx) => ctx.slot("room", { scope: "workflow" }).set(3),
    "get of all": (ctx) => ctx.slot("room", { scope: "global" }).get(),
    "delete of the workflow that fails": (ctx) =>
      ctx.slot("room", { scope: "workflow" }).delete({ expectedVersion: 77 }),
  };

  test.each(pairsOf(VERBS))("%s and %s, in the other order", async (...names) => {
    await using pawl = openTest();
    const backwards = names.toReversed();
    const after = await retried(
      pawl,
      async (ctx) => {
        const outcomes = await each(ctx, VERBS, names);
        // A failure before it was handled, and is remembered too.
        await ctx.step("handled", () => 1);
        return outcomes;
      },
      (ctx) => each(ctx, VERBS, backwards),
    );
    expect(after).toEqual(before);
    expect(await countOf(pawl, "slot")).toBe(2);
  });

  test("a read that is new comes to what is stored, and no write is repeated", async () => {
    await using pawl = openTest();
    const after = await retried(
      pawl,
      async (ctx) => room(ctx).set(1),
      async (ctx) => [await room(ctx).get(), await room(ctx).set(1), await room(ctx).get()],
    );
    expect(after).toEqual([{ value: 1, version: 1 }, { version: 1 }, { value: 1, version: 1 }]);
  });

  test("a write that is new is made, and is not taken for the one of before", async () => {
    await using pawl = openTest();
    const after = await retried(
      pawl,
      async (ctx) => room(ctx).get(),
      async (ctx) => [await room(ctx).set(7), await room(ctx).get(), await room(ctx).update((value = 0) => value + 1)],
    );
    expect(after).toEqual([{ version: 1 }, { value: undefined, version: 0 }, { value: 8, version: 2 }]);
  });

  test("the second of a verb stays the second", async () => {
    await using pawl = openTest();
    const after = await retried(
      pawl,
      async (ctx) => [await room(ctx).set(1), await room(ctx).get(), await room(ctx).set(2), await room(ctx).get()],
      async (ctx) => [await room(ctx).get(), await room(ctx).get(), await room(ctx).set(1), await room(ctx).set(2)],
    );
    expect(after).toEqual([{ value: 1, version: 1 }, { value: 2, version: 2 }, { version: 1 }, { version: 2 }]);
  });

  test("the second stays the second, also if the first lost a race and left nothing", async () => {
    await using pawl = openTest();
    const raced = async (ctx: Context): Promise<void> => {
      await ctx.step("first", () => 1);
      await ctx.race([Promise.resolve(), ctx.slot("room").set(1)]);
    };
    const after = await retried(
      pawl,
      async (ctx) => {
        await raced(ctx);
        return room(ctx).set(2);
      },
      async (ctx) => {
        await room(ctx).get();
        await raced(ctx);
        return [await room(ctx).set(2), await room(ctx).get()];
      },
    );
    expect(after).toEqual([{ version: 1 }, { value: 2, version: 1 }]);
  });

  test("a name with a # is told from the number", async () => {
    await using pawl = openTest();
    const names = ["room", "room#2", "room#", "42"];
    const all = (ctx: Context, verbs: readonly ("get" | "set")[]) =>
      Promise.all(
        names.flatMap((name) =>
          verbs.map((verb) => (verb === "get" ? ctx.slot(name).get() : ctx.slot(name).set(name))),
        ),
      );
    const after = await retried(
      pawl,
      (ctx) => all(ctx, ["set"]),
      (ctx) => all(ctx, ["get", "set"]),
    );
    expect(after).toEqual(names.flatMap((value) => [{ value, version: 1 }, { version: 1 }]));
  });

  test("a second retry keeps what was done before and after the first", async () => {
    await using pawl = openTest();
    let round = 0;
    const it = workflow("it", async (ctx) => {
      const outcomes: unknown[] = [];
      if (round > 0) outcomes.push(await room(ctx).get());
      if (round > 1) outcomes.push(await room(ctx).update((value = 0) => value + 1));
      outcomes.push(await room(ctx).set(1));
      if (round < 2) throw new TypeError(`round ${round}`);
      return outcomes;
    });
    const run = await failed(pawl, it);
    round = 1;
    await run.retry();
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
    round = 2;
    await run.retry();
    expect(await run.result()).toEqual([{ value: 1, version: 1 }, { value: 2, version: 2 }, { version: 1 }]);
    expect(await countOf(pawl, "slot")).toBe(3);
  });

  test("a process that replays a retried run comes to the same place", async () => {
    await using pawl = openTest();
    const after = await retried(
      pawl,
      async (ctx) => room(ctx).set(1),
      async (ctx) => {
        const outcomes: unknown[] = [await room(ctx).get()];
        await ctx.sleep("1 minute");
        outcomes.push(await room(ctx).set(1), await room(ctx).update((value = 0) => value + 1));
        await ctx.sleep("1 minute");
        return [...outcomes, await room(ctx).get()];
      },
      0,
    );
    expect(after).toEqual([
      { value: 1, version: 1 },
      { version: 1 },
      { value: 2, version: 2 },
      { value: 2, version: 2 },
    ]);
  });
});

describe("a stream", () => {
  const Noted = event<{ readonly n: number }>("Noted");
  const note = (all: number, n: number, emit: (noted: ReturnType<typeof Noted>) => void): number => {
    emit(Noted({ n }));
    return all + n;
  };
  const sum = aggregate("sum", {
    initial: 0,
    on: [[Noted, (all, { n }) => all + n]],
    commands: {
      add: (all, n: number, { emit }) => note(all, n, emit),
      subtract: (all, n: number, { emit, refuse }) => {
        if (all < n) refuse("too_little", { all });
        return note(all, -n, emit);
      },
    },
  });
  const VERBS: Readonly<Record<string, Code>> = {
    head: (ctx) => ctx.stream("notes").head(),
    append: (ctx) => ctx.stream("notes").append([Noted({ n: 1 })]),
    tryAppend: (ctx) => ctx.stream("notes").tryAppend([Noted({ n: 2 })], { expectedVersion: 0 }),
    add: (ctx) => ctx.aggregate(sum, "notes").execute("add", 3),
    subtract: (ctx) => ctx.aggregate(sum, "notes").execute("subtract", 1),
    tryExecute: (ctx) => ctx.aggregate(sum, "notes").tryExecute("subtract", 5),
    state: (ctx) => ctx.aggregate(sum, "notes").state(),
  };

  test.each(pairsOf(VERBS))("%s and %s, in the other order", async (...names) => {
    await using pawl = openTest();
    const backwards = names.toReversed();
    let head = 0;
    const after = await retried(
      pawl,
      async (ctx) => {
        const outcomes = await each(ctx, VERBS, names);
        head = await ctx.step("look", () => pawl.stream("notes").head());
        return outcomes;
      },
      (ctx) => each(ctx, VERBS, backwards),
    );
    expect(after).toEqual(before);
    expect(await pawl.stream("notes").head()).toBe(head);
    expect(await countOf(pawl, "stream")).toBe(2);
  });

  test("an append that is asked for before a head that is recorded happens", async () => {
    await using pawl = openTest();
    const after = await retried(
      pawl,
      async (ctx) => ctx.stream("notes").head(),
      async (ctx) => [(await ctx.stream("notes").append([Noted({ n: 1 })])).version, await ctx.stream("notes").head()],
    );
    expect(after).toEqual([1, 0]);
    expect(await pawl.stream("notes").head()).toBe(1);
  });
});

describe("a sleep", () => {
  test("of another duration is slept, and the one of before is not slept again", async () => {
    await using pawl = openTest();
    const after = await retried(
      pawl,
      async (ctx) => ctx.sleep("1 minute"),
      async (ctx) => {
        const beganMs = await ctx.step("begin", () => pawl.clock.nowMs);
        await ctx.sleep("1 hour");
        const sleptMs = await ctx.step("middle", () => pawl.clock.nowMs);
        await ctx.sleep("1 minute");
        return [sleptMs - beganMs, (await ctx.step("end", () => pawl.clock.nowMs)) - sleptMs];
      },
    );
    expect(after).toEqual([3_600_000, 0]);
  });

  test("until another time is slept", async () => {
    await using pawl = openTest();
    const untilMs = pawl.clock.nowMs + 1_000_000;
    const after = await retried(
      pawl,
      async (ctx) => ctx.sleepUntil(untilMs),
      async (ctx) => {
        await ctx.sleepUntil(untilMs + 500);
        await ctx.sleepUntil(untilMs);
        return ctx.step("end", () => pawl.clock.nowMs);
      },
    );
    expect(after).toBe(untilMs + 500);
  });

  test("in the order of before, one that left nothing is not taken for the next of its duration", async () => {
    await using pawl = openTest();
    const code: Code = async (ctx) => {
      await ctx.step("first", () => 1);
      const first = await ctx.race([ctx.sleep("1 minute").then(() => "slept"), ctx.step("fast", () => "fast")]);
      await ctx.sleep("1 minute");
      return first;
    };
    expect(await retried(pawl, code, code)).toBe("fast");
    expect(before).toBe("fast");
  });
});

describe("a wait for a signal", () => {
  const go = signal<number>("go");

  test("without a timeout does not get that of another one", async () => {
    await using pawl = openTest();
    const it = repaired(
      async (ctx) => {
        const expired = await ctx.waitForSignal(go, { timeout: "1 minute" });
        return [expired, await ctx.waitForSignal(go)];
      },
      async (ctx) => {
        const { value } = await ctx.waitForSignal(go);
        return [await ctx.waitForSignal(go, { timeout: "1 minute" }), value];
      },
    );
    pawl.work([it]);
    const run = await pawl.start(it, undefined, { id: "it" });
    await pawl.clock.advance("2 minutes");
    await run.signal(go, 7);
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
    mend();
    await run.retry();
    expect(await run.result()).toEqual([{ ok: false, reason: "timeout" }, 7]);
  });

  test("that has a timeout now, or none any more, still gets what came", async () => {
    for (const [first, second] of [
      [undefined, "1 minute"],
      ["1 minute", undefined],
    ] as const) {
      await using pawl = openTest();
      mend(false);
      const it = repaired(
        async (ctx) => ctx.waitForSignal(go, { timeout: first }),
        async (ctx) => ctx.waitForSignal(go, { timeout: second }),
      );
      pawl.work([it]);
      const run = await pawl.start(it, undefined, { id: "it" });
      await run.until("waiting");
      await run.signal(go, 7);
      await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
      mend();
      await run.retry();
      expect(await run.result()).toMatchObject({ ok: true, value: 7 });
    }
  });

  test("in the order of before, one that lost a race stays without a signal", async () => {
    await using pawl = openTest();
    const code: Code = async (ctx) => {
      const first = await ctx.race([ctx.waitForSignal(go).then(({ value }) => value), ctx.sleep("1 minute")]);
      return [first, (await ctx.waitForSignal(go)).value];
    };
    const it = repaired(code, code);
    pawl.work([it]);
    const run = await pawl.start(it, undefined, { id: "it" });
    await pawl.clock.advance("2 minutes");
    await run.signal(go, 7);
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
    mend();
    await run.retry();
    expect(await run.result()).toEqual([undefined, 7]);
  });
});

describe("a child", () => {
  let started: string[] = [];
  const kid = workflow("kid", async (ctx: Context, input: string) => {
    await ctx.step("work", () => void started.push(input));
    return `${input} of ${ctx.runId}`;
  });

  beforeEach(() => {
    started = [];
  });

  const VERBS: Readonly<Record<string, Code>> = {
    call: (ctx) => ctx.call(kid, "called"),
    start: (ctx) => ctx.start(kid, "started"),
    "call by id": (ctx) => ctx.call(kid, "a", { id: "kid-a" }),
    "call by another id": (ctx) => ctx.call(kid, "b", { id: "kid-b" }),
    "start by id": (ctx) => ctx.start(kid, "c", { id: "kid-c" }),
  };

  test.each(pairsOf(VERBS))("%s and %s, in the other order", async (...names) => {
    await using pawl = openTest();
    pawl.work([kid]);
    const backwards = names.toReversed();
    const after = await retried(
      pawl,
      (ctx) => each(ctx, VERBS, names),
      (ctx) => each(ctx, VERBS, backwards),
    );
    expect(after).toEqual(before);
    await pawl.clock.advance("1 second");
    expect(started).toHaveLength(2);
  });

  test("that is new is not taken for one of before", async () => {
    await using pawl = openTest();
    pawl.work([kid]);
    const after = await retried(
      pawl,
      async (ctx) => ctx.start(kid, "started"),
      async (ctx) => [await ctx.call(kid, "called"), await ctx.start(kid, "started"), await ctx.call(kid, "again")],
    );
    expect(after).toEqual(["called of it/kid#2", "it/kid", "again of it/kid#3"]);
    await pawl.clock.advance("1 second");
    expect(started.sort()).toEqual(["again", "called", "started"]);
  });

  test("that failed with its parent is retried, and called in another order", async () => {
    await using pawl = openTest();
    const fragile = workflow("kid", async (ctx: Context, input: string) =>
      ctx.step("work", () => (isMended ? `${input} of ${ctx.runId}` : Promise.reject(new Error("down"))), {
        retry: { attempts: 1 },
      }),
    );
    pawl.work([fragile]);
    const it = repaired(
      async (ctx) => [await ctx.start(fragile, "started"), await ctx.call(fragile, "called")],
      async (ctx) => [await ctx.call(fragile, "called"), await ctx.start(fragile, "started")],
    );
    const run = await failed(pawl, it);
    await run.retry();
    expect(await run.result()).toEqual(["called of it/kid#2", "it/kid"]);
  });
});

test("a turn in a rate limit is that of its key", async () => {
  await using pawl = openTest();
  const limit = { max: 1, per: "1 hour" } as const;
  const acquire = (ctx: Context, key: string) => ctx.rateLimit("r", limit).acquire({ key });
  const after = await retried(
    pawl,
    async (ctx) => {
      await acquire(ctx, "a");
      await acquire(ctx, "b");
      return acquire(ctx, "b");
    },
    async (ctx) => [await acquire(ctx, "b"), await acquire(ctx, "b"), await acquire(ctx, "a"), await acquire(ctx, "c")],
  );
  expect(after).toEqual([{ waitedMs: 0 }, { waitedMs: 3_600_000 }, { waitedMs: 0 }, { waitedMs: 0 }]);
  expect(await countOf(pawl, "rate")).toBe(4);
});

describe("a history of an earlier release, which does not tell what an operation does", () => {
  /** The history of a run that has failed and was retried, as an earlier release would have written it. */
  async function oldHistory(it: Workflow<undefined, unknown>): Promise<string> {
    await using pawl = openTest();
    const run = await failed(pawl, it);
    mend(false);
    await run.retry();
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
    mend();
    const saved = (await saveHistory(pawl, run)).replaceAll(/,"verb":"[^"]*"/g, "");
    const lines = saved.split("\n");
    // Up to the retry: the run has not ended again.
    const last = lines.findIndex((line) => line.startsWith('{"name":"retried"'));
    return [...lines.slice(0, last), lines[last]?.replace(/,$/, ""), "]}", ""].join("\n");
  }

  const Noted = event<object>("Noted");
  const ORDERS: readonly (readonly [string, Code, Code])[] = [
    ["set, and now get", (ctx) => ctx.slot("room").set(1), (ctx) => ctx.slot("room").get()],
    ["get, and now set", (ctx) => ctx.slot("room").get(), (ctx) => ctx.slot("room").set(1)],
    ["delete, and now update", (ctx) => ctx.slot("room").delete(), (ctx) => ctx.slot("room").update(() => 1)],
    ["head, and now append", (ctx) => ctx.stream("s").head(), (ctx) => ctx.stream("s").append([Noted({})])],
    ["append, and now head", (ctx) => ctx.stream("s").append([Noted({})]), (ctx) => ctx.stream("s").head()],
    ["enqueue, and now acquire", placed, (ctx) => ctx.mutex("l").acquire()],
  ];

  async function placed(ctx: Context): Promise<unknown> {
    await ctx.mutex("l").acquire();
    return ctx.mutex("l").enqueue();
  }

  test.each(ORDERS.slice(0, 5))("%s: a contradiction is reported, and no wrong answer", async (_, first, second) => {
    const it = repaired(first, second);
    const replayed = await replayHistory(it, await oldHistory(it));
    expect(replayed).toMatchObject({ ok: false, contradiction: { code: "history_contradiction" } });
  });

  test.each(ORDERS)("%s: in the order of before, everything is remembered", async (_, first) => {
    const it = repaired(first, first);
    expect(await replayHistory(it, await oldHistory(it))).toMatchObject({ ok: true, status: "completed" });
  });
});
