/**
 * Goal: runs that wait for each other are detected when the circle closes, one of them gets an error with the circle, and the others continue; and
 * no run gets it that could still have continued.
 * Method: circles of every sort, closed by hand, one signal at a time; situations that only look like one; and a few schedules drawn at random
 * (`schedules.ts`). The other schedules are in the long suite.
 */

import { describe, expect, test } from "vitest";
import { type Context, DeadlockError, type DeadlockLink, signal, workflow } from "../../src/index.ts";
import { openTest, type TestPawl, type TestRun } from "../../src/testing/index.ts";
import { CommitChecker, whoOf } from "./kit.ts";
import { runSchedules } from "./schedules.ts";

const go = signal<string>("go");

type Get = (ctx: Context, code: () => Promise<string>) => PromiseLike<string>;

const mutex =
  (names: string | readonly string[]): Get =>
  (ctx, code) =>
    ctx.lock(names, code);
const semaphore =
  (name: string, permits: number): Get =>
  (ctx, code) =>
    ctx.semaphore(name, { permits }).with(code);
const read =
  (name: string): Get =>
  (ctx, code) =>
    ctx.rwlock(name).read.with(code);
const write =
  (name: string): Get =>
  (ctx, code) =>
    ctx.rwlock(name).write.with(code);

/** Starts runs that acquire their first lock, wait for a signal, and acquire their second. */
async function startRuns(pawl: TestPawl, plans: Readonly<Record<string, readonly [Get, Get]>>) {
  const circles = new Map<string, readonly DeadlockLink[]>();
  const messages: string[] = [];
  const planned = workflow("planned", async (ctx) => {
    const [first, second] = plans[ctx.runId] ?? [];
    if (first === undefined || second === undefined) throw new Error(`${ctx.runId} has no plan`);
    try {
      return await first(ctx, async () => {
        await ctx.waitForSignal(go);
        return second(ctx, async () => "done");
      });
    } catch (error) {
      if (!(error instanceof DeadlockError)) throw error;
      circles.set(ctx.runId, error.data.circle);
      messages.push(error.message);
      return "deadlock";
    }
  });
  pawl.work([planned]);
  const runs = new Map<string, TestRun<string>>();
  for (const id of Object.keys(plans)) {
    const run = await pawl.start(planned, undefined, { id });
    await run.until("waiting");
    runs.set(id, run);
  }
  return {
    circles,
    messages,
    /** These runs ask for their second lock. */
    async next(...ids: readonly string[]): Promise<void> {
      for (const id of ids) {
        await runs.get(id)?.signal(go, "go");
        await pawl.clock.advance(1);
      }
    },
    async ends(): Promise<Record<string, string>> {
      const ends: Record<string, string> = {};
      for (const [id, run] of runs) ends[id] = await run.result();
      return ends;
    },
    run: (id: string) => runs.get(id) as TestRun<string>,
  };
}

const link = (run: string, waitsFor: string | null, heldBy: string): DeadlockLink => ({ run, waitsFor, heldBy });

const circles: readonly {
  readonly what: string;
  readonly plans: Readonly<Record<string, readonly [Get, Get]>>;
  readonly order: readonly string[];
  readonly circle: readonly DeadlockLink[];
}[] = [
  {
    what: "two runs and two mutexes",
    plans: { r1: [mutex("a"), mutex("b")], r2: [mutex("b"), mutex("a")] },
    order: ["r1", "r2"],
    circle: [link("r2", 'mutex "a"', "r1"), link("r1", 'mutex "b"', "r2")],
  },
  {
    what: "three runs and three mutexes",
    plans: { r1: [mutex("a"), mutex("b")], r2: [mutex("b"), mutex("c")], r3: [mutex("c"), mutex("a")] },
    order: ["r3", "r1", "r2"],
    circle: [link("r2", 'mutex "c"', "r3"), link("r3", 'mutex "a"', "r1"), link("r1", 'mutex "b"', "r2")],
  },
  {
    what: "a run that requests what it holds",
    plans: { r1: [mutex("a"), mutex("a")] },
    order: ["r1"],
    circle: [link("r1", 'mutex "a"', "r1")],
  },
  {
    what: "a run that requests the second of one permit",
    plans: { r1: [semaphore("s", 1), semaphore("s", 1)] },
    order: ["r1"],
    circle: [link("r1", 'semaphore "s"', "r1")],
  },
  {
    what: "two runs that hold a permit of two each, and request another",
    plans: { r1: [semaphore("s", 2), semaphore("s", 2)], r2: [semaphore("s", 2), semaphore("s", 2)] },
    order: ["r1", "r2"],
    circle: [link("r2", 'semaphore "s"', "r1"), link("r1", 'semaphore "s"', "r2")],
  },
  {
    what: "two holders of a semaphore that wait for a run that waits for it",
    plans: {
      r1: [semaphore("s", 2), mutex("m")],
      r2: [semaphore("s", 2), mutex("m")],
      r3: [mutex("m"), semaphore("s", 2)],
    },
    order: ["r1", "r2", "r3"],
    circle: [link("r3", 'semaphore "s"', "r1"), link("r1", 'mutex "m"', "r3")],
  },
  {
    what: "a reader that requests to write",
    plans: { r1: [read("rw"), write("rw")] },
    order: ["r1"],
    circle: [link("r1", 'rwlock "rw"', "r1")],
  },
  {
    what: "a writer and a mutex",
    plans: { r1: [write("rw"), mutex("m")], r2: [mutex("m"), read("rw")] },
    order: ["r1", "r2"],
    circle: [link("r2", 'rwlock "rw"', "r1"), link("r1", 'mutex "m"', "r2")],
  },
  {
    what: "several together, one of which the other holds",
    plans: { r1: [mutex("a"), mutex(["b", "x"])], r2: [mutex("b"), mutex(["a", "y"])] },
    order: ["r1", "r2"],
    circle: [link("r2", 'mutex "a" and mutex "y"', "r1"), link("r1", 'mutex "b" and mutex "x"', "r2")],
  },
];

describe("a circle is detected when it closes:", () => {
  test.each(circles)("$what", async ({ plans, order, circle }) => {
    await using pawl = openTest();
    const checker = new CommitChecker().watch(pawl);
    const started = await startRuns(pawl, plans);
    const [last = "", ...before] = order.toReversed();
    await started.next(...before.toReversed());
    expect([...started.circles.keys()]).toEqual([]);
    const beforeMs = pawl.clock.nowMs;
    await started.next(last);
    // Immediately: no time had to pass.
    expect(pawl.clock.nowMs).toBe(beforeMs + 1);
    expect([...started.circles.keys()]).toEqual([last]);
    const [found = []] = started.circles.values();
    expect(found.map(({ waitsFor }) => waitsFor)).toEqual(circle.map(({ waitsFor }) => waitsFor));
    expect(found).toEqual(circle);
    // Each link starts where the one before it ends, and the last leads back.
    for (const [index, { heldBy }] of found.entries()) expect(found[(index + 1) % found.length]?.run).toBe(heldBy);
    const others = Object.keys(plans).filter((id) => id !== last);
    expect(await started.ends()).toEqual({
      ...Object.fromEntries(others.map((id) => [id, "done"])),
      [last]: "deadlock",
    });
    checker.check();
  });

  test("the error message describes it", async () => {
    await using pawl = openTest();
    const started = await startRuns(pawl, { r1: [mutex("a"), mutex("b")], r2: [mutex("b"), mutex("a")] });
    await started.next("r1", "r2");
    expect(started.messages).toEqual([
      'waiting for mutex "a" would never end: run "r2" waits for mutex "a", held by run "r1"; run "r1" waits for mutex "b", held by run "r2"',
    ]);
  });

  test("a run that does not catch it fails with it, and releases everything", async () => {
    await using pawl = openTest();
    const self = workflow("self", async (ctx) => ctx.lock("a", () => ctx.lock("a", () => "never")));
    pawl.work([self]);
    const run = await pawl.start(self, undefined, { id: "self" });
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed", cause: { code: "deadlock" } });
    expect(await pawl.mutex("a").tryAcquire()).toMatchObject({ ok: true });
  });

  test("a run that requests hundreds of locks that it holds gets it, however many they are", async () => {
    await using pawl = openTest();
    const self = workflow("self", async (ctx) => {
      for (let i = 0; i < 2; i++)
        await Promise.all(Array.from({ length: 850 }, (_, at) => ctx.mutex(`m${at}`).acquire()));
    });
    pawl.work([self]);
    const run = await pawl.start(self, undefined, { id: "self" });
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed", cause: { code: "deadlock" } });
  });

  test("a run that catches it has left the queue, still holds its locks, and can try again", async () => {
    await using pawl = openTest();
    const polite = workflow("polite", async (ctx) => {
      for (let tries = 1; ; tries++) {
        const value = await ctx.lock("a", async () => {
          await ctx.waitForSignal(go);
          try {
            return await ctx.lock("b", () => "acquired");
          } catch (error) {
            if (!(error instanceof DeadlockError)) throw error;
            await ctx.step("look", async () => {
              expect(whoOf((await pawl.mutex("a").inspect()).holders)).toEqual(["polite"]);
              expect((await pawl.mutex("b").inspect()).waiting).toBe(0);
            });
            return undefined;
          }
        });
        if (value !== undefined) return [value, tries];
        await ctx.sleep("1s");
      }
    });
    const rude = workflow("rude", async (ctx) =>
      ctx.lock("b", async () => {
        await ctx.waitForSignal(go);
        return ctx.lock("a", () => "acquired");
      }),
    );
    pawl.work([polite, rude], { warm: 0 });
    const [p, r] = [await pawl.start(polite, undefined, { id: "polite" }), await pawl.start(rude)];
    await pawl.clock.advance(1);
    await r.signal(go, "1");
    await pawl.clock.advance(1);
    await p.signal(go, "1");
    expect(await r.result()).toBe("acquired");
    await p.signal(go, "2");
    expect(await p.result()).toEqual(["acquired", 2]);
  });

  test.each(["the child is the last to wait", "the parent is the last to wait"])(
    "a parent that holds what its child wants (%s)",
    async (how) => {
      await using pawl = openTest();
      const child = workflow("child", async (ctx) => {
        if (how.startsWith("the child")) await ctx.sleep("1s");
        try {
          return await ctx.lock("family", () => "acquired");
        } catch (error) {
          if (!(error instanceof DeadlockError)) throw error;
          return error.data.circle;
        }
      });
      const parent = workflow("parent", async (ctx) =>
        ctx.lock("family", async () => {
          await ctx.step("think", () => {});
          const id = await ctx.start(child, undefined, { id: "child" });
          // By then the child waits, and the parent does not wait for it yet.
          if (how.startsWith("the parent")) await ctx.sleep("2s");
          return ctx.call(child, undefined, { id });
        }),
      );
      pawl.work([parent, child]);
      const run = await pawl.start(parent, undefined, { id: "parent" });
      expect(await run.result()).toEqual([link("child", 'mutex "family"', "parent"), link("parent", null, "child")]);
    },
  );

  test("a grandparent, too, and the message names the children", async () => {
    await using pawl = openTest();
    const third = workflow("third", async (ctx) =>
      ctx
        .lock("family", () => "acquired")
        .then(
          (value) => value,
          (error: unknown) => (error instanceof DeadlockError ? error.message : "other"),
        ),
    );
    const second = workflow("second", async (ctx) => ctx.call(third, undefined, { id: "third" }));
    const first = workflow("first", async (ctx) =>
      ctx.lock("family", () => ctx.call(second, undefined, { id: "second" })),
    );
    pawl.work([first, second, third]);
    const run = await pawl.start(first, undefined, { id: "first" });
    expect(await run.result()).toBe(
      'waiting for mutex "family" would never end: run "third" waits for mutex "family", held by run "first"; run "first" waits for its child "second"; run "second" waits for its child "third"',
    );
  });

  test("a circle that closes when another run is granted a lock", async () => {
    await using pawl = openTest();
    // r2 waits for b behind plain code; when that releases it, r2 holds b, and then requests a.
    const started = await startRuns(pawl, { r1: [mutex("a"), mutex("b")] });
    const hold = await pawl.mutex("b").acquire();
    const second = workflow("second", async (ctx) =>
      ctx
        .lock("b", () => ctx.lock("a", () => "acquired"))
        .then(
          (value) => value,
          (error: unknown) => (error instanceof DeadlockError ? "deadlock" : "other"),
        ),
    );
    pawl.work([second]);
    const run = await pawl.start(second, undefined, { id: "r2" });
    await run.until("waiting");
    await started.next("r1");
    expect([...started.circles.keys()]).toEqual([]);
    await hold.release();
    expect([await run.result(), await started.ends()]).toEqual(["deadlock", { r1: "done" }]);
  });

  test("through the queue of a lock that is free: the first in it waits for another lock as well", async () => {
    await using pawl = openTest();
    // r2 is first in the queue of b, which is free, and waits for a, which r1 holds; r1 does not overtake it there.
    const started = await startRuns(pawl, { r1: [mutex("a"), mutex("b")] });
    const together = workflow("together", async (ctx) =>
      ctx
        .lock(["a", "b"], () => "acquired")
        .then(
          (value) => value,
          (error: unknown) => (error instanceof DeadlockError ? "deadlock" : "other"),
        ),
    );
    pawl.work([together]);
    const run = await pawl.start(together, undefined, { id: "r2" });
    await run.until("waiting");
    await started.next("r1");
    expect([(await started.run("r1").status()).status, (await run.status()).status]).toEqual([
      "completed",
      "completed",
    ]);
    expect([(await started.ends())["r1"], await run.result()]).toEqual(["deadlock", "acquired"]);
  });

  test.each([
    ["its holder releases it", []],
    ["the waiters before it have held it", ["r4"]],
  ])("through the queue of a lock that becomes free only when %s", async (_, before) => {
    await using pawl = openTest();
    const acquires = (names: string | readonly string[]) => async (ctx: Context) => {
      try {
        return await ctx.lock(names, () => "acquired");
      } catch (error) {
        return error instanceof DeadlockError ? "deadlock" : "other";
      }
    };
    const together = workflow("together", acquires(["a", "b"]));
    const single = workflow("single", acquires("b"));
    pawl.work([together, single]);
    const started = await startRuns(pawl, { r1: [mutex("a"), mutex("b")], r3: [mutex("b"), mutex("z")] });
    const runs = [];
    for (const id of before) runs.push(await pawl.start(single, undefined, { id }));
    await pawl.clock.advance(1);
    runs.push(await pawl.start(together, undefined, { id: "r2" }));
    await pawl.clock.advance(1);
    // r3 holds b, and can continue; behind it is r2, which waits for a as well; and then r1, which holds a.
    await started.next("r1");
    await started.next("r3");
    await pawl.clock.advance(1);
    const all = [started.run("r1"), started.run("r3"), ...runs];
    const statuses = await Promise.all(all.map(async (run) => (await run.status()).status));
    expect(statuses).toEqual(all.map(() => "completed"));
    // One of the two that wait for each other, and no other.
    const ends = await Promise.all(all.map((run) => run.result()));
    expect(ends.filter((end) => end === "deadlock").length).toBe(1);
    expect([ends[0], ends.at(-1)]).toContain("deadlock");
  });

  test("through a reader that acquires it a second time, queued behind a writer that waits for it", async () => {
    await using pawl = openTest();
    const started = await startRuns(pawl, { r1: [read("rw"), read("rw")], w: [mutex("other"), write("rw")] });
    await started.next("w", "r1");
    expect([...started.circles.keys()]).toEqual(["r1"]);
    expect(await started.ends()).toEqual({ r1: "deadlock", w: "done" });
  });

  test("through a reader that is queued behind a writer, which waits for another reader, which waits for the first", async () => {
    await using pawl = openTest();
    const started = await startRuns(pawl, {
      r1: [read("rw"), mutex("m")],
      w: [mutex("other"), write("rw")],
      r2: [mutex("m"), read("rw")],
    });
    await started.next("w", "r1", "r2");
    expect([...started.circles.keys()]).toEqual(["r2"]);
    expect(await started.ends()).toEqual({ r1: "done", w: "done", r2: "deadlock" });
  });
});

describe("what is not a circle is not reported as one:", () => {
  const harmless: readonly {
    readonly what: string;
    readonly plans: Readonly<Record<string, readonly [Get, Get]>>;
    readonly order: readonly string[];
  }[] = [
    {
      what: "runs in one queue",
      plans: { r1: [mutex("a"), mutex("z")], r2: [mutex("b"), mutex("a")], r3: [mutex("c"), mutex("a")] },
      order: ["r2", "r3", "r1"],
    },
    {
      what: "a chain that ends with a run that can continue",
      plans: { r1: [mutex("a"), mutex("z")], r2: [mutex("b"), mutex("a")], r3: [mutex("c"), mutex("b")] },
      order: ["r3", "r2", "r1"],
    },
    {
      what: "a holder of a semaphore that waits, beside one that can continue",
      plans: {
        r1: [semaphore("s", 2), mutex("m")],
        r2: [semaphore("s", 2), mutex("z")],
        r3: [mutex("m"), semaphore("s", 2)],
      },
      order: ["r1", "r3", "r2"],
    },
    {
      what: "readers that hold it together",
      plans: { r1: [read("rw"), mutex("m")], r2: [mutex("m"), read("rw")] },
      order: ["r1", "r2"],
    },
    {
      what: "the same permits twice, where there are enough",
      plans: { r1: [semaphore("s", 3), semaphore("s", 3)], r2: [semaphore("s", 3), semaphore("s", 3)] },
      order: ["r1", "r2"],
    },
    {
      what: "a lock of the same name and another kind",
      plans: { r1: [mutex("a"), semaphore("a", 1)], r2: [read("a"), mutex("b")] },
      order: ["r1", "r2"],
    },
  ];
  test.each(harmless)("$what", async ({ plans, order }) => {
    await using pawl = openTest();
    const started = await startRuns(pawl, plans);
    await started.next(...order);
    expect(Object.values(await started.ends())).toEqual(order.map(() => "done"));
    expect([...started.circles.keys()]).toEqual([]);
  });

  /** Two that wait for each other, one of which can still continue in another way. */
  const ways: readonly [string, (ctx: Context) => PromiseLike<unknown>, (run: TestRun) => Promise<unknown>][] = [
    ["a timeout", (ctx) => ctx.lock("b", () => {}, { timeout: "1 hour" }), async () => {}],
    ["a timer beside it", (ctx) => Promise.race([ctx.lock("b", () => {}), ctx.sleep("1 hour")]), async () => {}],
    [
      "a signal beside it",
      (ctx) => Promise.race([ctx.lock("b", () => {}), ctx.waitForSignal(go)]),
      (run) => run.signal(go, "on"),
    ],
  ];
  test.each(ways)("one of them has %s", async (_, waits, meanwhile) => {
    await using pawl = openTest();
    const one = workflow("one", async (ctx) => {
      const hold = await ctx.mutex("a").acquire();
      await ctx.sleep("1s");
      const end = await Promise.resolve(waits(ctx)).then(
        () => "went on",
        (error: { code: string }) => error.code,
      );
      await hold.release();
      return end;
    });
    const two = workflow("two", async (ctx) =>
      ctx.lock("b", async () => {
        await ctx.sleep("2s");
        return ctx.lock("a", () => "acquired");
      }),
    );
    pawl.work([one, two]);
    const runs = [
      await pawl.start(one, undefined, { id: "one" }),
      await pawl.start(two, undefined, { id: "two" }),
    ] as const;
    await pawl.clock.advance("1 minute");
    // They do wait for each other, and whyWaiting reports that.
    expect((await pawl.whyWaiting({ run: "two" })).says).toMatch(/run "two" waits for mutex "a".*run "one" /);
    await meanwhile(runs[0]);
    expect(["went on", "lock_timeout"]).toContain(await runs[0].result());
    expect(await runs[1].result()).toBe("acquired");
  });

  test("plain code is part of it, whose lease may end", async () => {
    await using pawl = openTest();
    const started = await startRuns(pawl, { r1: [mutex("a"), mutex("b")] });
    const hold = await pawl.mutex("b").acquire();
    const waiting = pawl.mutex("a").acquire({ timeout: "1 minute" });
    await started.next("r1");
    await pawl.clock.advance("30s");
    await hold.release();
    expect(await started.ends()).toEqual({ r1: "done" });
    await (await pawl.clock.during(waiting)).release();
  });

  test("plain code holds one of the permits, and may release it", async () => {
    await using pawl = openTest();
    const plain = await pawl.semaphore("s", { permits: 2 }).acquire();
    const started = await startRuns(pawl, { r1: [semaphore("s", 2), mutex("m")], r2: [mutex("m"), semaphore("s", 2)] });
    await started.next("r1", "r2");
    await pawl.clock.advance("1 minute");
    expect([...started.circles.keys()]).toEqual([]);
    await plain.release();
    expect(await started.ends()).toEqual({ r1: "done", r2: "done" });
  });

  test("one of them works in another branch, and releases its lock after that", async () => {
    await using pawl = openTest();
    const two = workflow("two", async (ctx) => {
      const a = await ctx.mutex("a").acquire();
      const branch = async () => {
        await ctx.lock("d", () => ctx.step("long", () => pawl.clock.sleep("10s")));
        await a.release();
      };
      await Promise.all([ctx.lock("r1", () => {}), branch()]);
      return "done";
    });
    pawl.work([two]);
    const d = await pawl.mutex("d").acquire();
    const started = await startRuns(pawl, { r1: [mutex("r1"), mutex("a")] });
    const run = await pawl.start(two, undefined, { id: "r2" });
    await run.until("waiting");
    // It rests, and waits for nothing but locks; then it runs again.
    await d.release();
    await pawl.clock.advance("1s");
    expect((await run.status()).status).toBe("running");
    await started.next("r1");
    expect([...started.circles.keys()]).toEqual([]);
    expect([await run.result(), await started.ends()]).toEqual(["done", { r1: "done" }]);
  });

  test("one of them was canceled, and has not received that yet", async () => {
    await using pawl = openTest();
    const two = workflow("two", async (ctx) => ctx.lock("b", () => ctx.lock("a", () => "acquired")));
    const worker = pawl.work([two]);
    const started = await startRuns(pawl, { r1: [mutex("a"), mutex("b")] });
    const run = await pawl.start(two, undefined, { id: "r2" });
    await run.until("waiting");
    // No worker runs it for a while.
    await worker.stop();
    await run.cancel();
    await started.next("r1");
    expect([...started.circles.keys()]).toEqual([]);
    pawl.work([two]);
    await expect(run.result()).rejects.toMatchObject({ code: "run_canceled" });
    expect(await started.ends()).toEqual({ r1: "done" });
  });

  test("a run that is parked is part of it, which an operator can resume", async () => {
    await using pawl = openTest();
    let isStuck = true;
    const stuck = workflow({ name: "stuck", tries: 1 }, async (ctx) =>
      ctx.lock("b", async () => {
        await (isStuck ? new Promise(() => {}) : undefined);
        return ctx.lock("c", () => "done");
      }),
    );
    pawl.work([stuck]);
    const parked = await pawl.start(stuck, undefined, { id: "parked" });
    await parked.until("parked");
    const started = await startRuns(pawl, { r1: [mutex("a"), mutex("b")] });
    await started.next("r1");
    await pawl.clock.advance("1 minute");
    isStuck = false;
    await parked.retry();
    expect([await parked.result(), await started.ends()]).toEqual(["done", { r1: "done" }]);
  });

  test("a reader is queued behind a writer that may time out, and is then granted beside the reader that waits for it", async () => {
    await using pawl = openTest();
    const started = await startRuns(pawl, { r1: [read("rw"), mutex("m")], r2: [mutex("m"), read("rw")] });
    const writer = pawl
      .rwlock("rw")
      .write.acquire({ timeout: "1 minute" })
      .then((hold) => hold.release());
    writer.catch(() => {});
    await pawl.clock.advance(1);
    await started.next("r1", "r2");
    await pawl.clock.advance("2 minutes");
    expect([...started.circles.keys()]).toEqual([]);
    await expect(writer).rejects.toMatchObject({ code: "lock_timeout" });
    expect(await started.ends()).toEqual({ r1: "done", r2: "done" });
  });
});

describe("random schedules", () => {
  test("40 without a circle: none is reported, and every run ends", async () => {
    const { runs, failed } = await runSchedules({ isInOrder: true, first: 1, last: 40 });
    expect(failed).toEqual([]);
    expect(runs).toBeGreaterThan(80);
  });

  test("50 with circles: each is detected, no run waits for ever, and most continue", async () => {
    const { runs, failed } = await runSchedules({ isInOrder: false, first: 1, last: 50 });
    expect(failed.filter((end) => !end.includes(": deadlock: waiting for"))).toEqual([]);
    expect(failed.length).toBeGreaterThan(5);
    expect(failed.length).toBeLessThan(runs / 2);
  });
});
