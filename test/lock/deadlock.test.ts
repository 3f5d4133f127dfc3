/**
 * Goal: runs that wait for each other are found when the circle closes, one of them is told, with the circle, and the others go on; and
 * nobody is told who could still have gone on.
 * Method: circles of every sort, closed by hand, one signal at a time; what looks like one and is none; and a few schedules drawn at random
 * (`schedules.ts`). The other schedules are in the long suite.
 */

import { describe, expect, test } from "vitest";
import { type Context, DeadlockError, type DeadlockLink, signal, workflow } from "../../src/index.ts";
import { openTest, type TestPawl, type TestRun } from "../../src/testing/index.ts";
import { Witness, whoOf } from "./kit.ts";
import { playSchedules } from "./schedules.ts";

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

/** Runs that take the first, wait for a signal, and take the second. */
async function stage(pawl: TestPawl, cast: Readonly<Record<string, readonly [Get, Get]>>) {
  const circles = new Map<string, readonly DeadlockLink[]>();
  const messages: string[] = [];
  const actor = workflow("actor", async (ctx) => {
    const [first, second] = cast[ctx.runId] ?? [];
    if (first === undefined || second === undefined) throw new Error(`${ctx.runId} has no part`);
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
  pawl.work([actor]);
  const runs = new Map<string, TestRun<string>>();
  for (const id of Object.keys(cast)) {
    const run = await pawl.start(actor, undefined, { id });
    await run.until("waiting");
    runs.set(id, run);
  }
  return {
    circles,
    messages,
    /** This one asks for its second. */
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
  readonly cast: Readonly<Record<string, readonly [Get, Get]>>;
  readonly order: readonly string[];
  readonly circle: readonly DeadlockLink[];
}[] = [
  {
    what: "two runs and two mutexes",
    cast: { r1: [mutex("a"), mutex("b")], r2: [mutex("b"), mutex("a")] },
    order: ["r1", "r2"],
    circle: [link("r2", 'mutex "a"', "r1"), link("r1", 'mutex "b"', "r2")],
  },
  {
    what: "three runs and three mutexes",
    cast: { r1: [mutex("a"), mutex("b")], r2: [mutex("b"), mutex("c")], r3: [mutex("c"), mutex("a")] },
    order: ["r3", "r1", "r2"],
    circle: [link("r2", 'mutex "c"', "r3"), link("r3", 'mutex "a"', "r1"), link("r1", 'mutex "b"', "r2")],
  },
  {
    what: "a run that wants what it has",
    cast: { r1: [mutex("a"), mutex("a")] },
    order: ["r1"],
    circle: [link("r1", 'mutex "a"', "r1")],
  },
  {
    what: "a run that wants the second of one permit",
    cast: { r1: [semaphore("s", 1), semaphore("s", 1)] },
    order: ["r1"],
    circle: [link("r1", 'semaphore "s"', "r1")],
  },
  {
    what: "two runs that hold a permit of two each, and want another",
    cast: { r1: [semaphore("s", 2), semaphore("s", 2)], r2: [semaphore("s", 2), semaphore("s", 2)] },
    order: ["r1", "r2"],
    circle: [link("r2", 'semaphore "s"', "r1"), link("r1", 'semaphore "s"', "r2")],
  },
  {
    what: "two holders of a semaphore that wait for one who waits for it",
    cast: {
      r1: [semaphore("s", 2), mutex("m")],
      r2: [semaphore("s", 2), mutex("m")],
      r3: [mutex("m"), semaphore("s", 2)],
    },
    order: ["r1", "r2", "r3"],
    circle: [link("r3", 'semaphore "s"', "r1"), link("r1", 'mutex "m"', "r3")],
  },
  {
    what: "a reader that wants to write",
    cast: { r1: [read("rw"), write("rw")] },
    order: ["r1"],
    circle: [link("r1", 'rwlock "rw"', "r1")],
  },
  {
    what: "a writer and a mutex",
    cast: { r1: [write("rw"), mutex("m")], r2: [mutex("m"), read("rw")] },
    order: ["r1", "r2"],
    circle: [link("r2", 'rwlock "rw"', "r1"), link("r1", 'mutex "m"', "r2")],
  },
  {
    what: "several at once, one of which is the other's",
    cast: { r1: [mutex("a"), mutex(["b", "x"])], r2: [mutex("b"), mutex(["a", "y"])] },
    order: ["r1", "r2"],
    circle: [link("r2", 'mutex "a" and mutex "y"', "r1"), link("r1", 'mutex "b" and mutex "x"', "r2")],
  },
];

describe("a circle is found when it closes:", () => {
  test.each(circles)("$what", async ({ cast, order, circle }) => {
    await using pawl = openTest();
    const witness = new Witness().watch(pawl);
    const play = await stage(pawl, cast);
    const [last = "", ...before] = order.toReversed();
    await play.next(...before.toReversed());
    expect([...play.circles.keys()]).toEqual([]);
    const beforeMs = pawl.clock.nowMs;
    await play.next(last);
    // At once: no time had to pass.
    expect(pawl.clock.nowMs).toBe(beforeMs + 1);
    expect([...play.circles.keys()]).toEqual([last]);
    const [told = []] = play.circles.values();
    expect(told.map(({ waitsFor }) => waitsFor)).toEqual(circle.map(({ waitsFor }) => waitsFor));
    expect(told).toEqual(circle);
    // Each link goes on where the one before it leads, and the last leads back.
    for (const [index, { heldBy }] of told.entries()) expect(told[(index + 1) % told.length]?.run).toBe(heldBy);
    const others = Object.keys(cast).filter((id) => id !== last);
    expect(await play.ends()).toEqual({ ...Object.fromEntries(others.map((id) => [id, "done"])), [last]: "deadlock" });
    witness.check();
  });

  test("the error says it in words", async () => {
    await using pawl = openTest();
    const play = await stage(pawl, { r1: [mutex("a"), mutex("b")], r2: [mutex("b"), mutex("a")] });
    await play.next("r1", "r2");
    expect(play.messages).toEqual([
      'waiting for mutex "a" would never end: run "r2" waits for mutex "a", held by run "r1"; run "r1" waits for mutex "b", held by run "r2"',
    ]);
  });

  test("one that does not catch it fails with it, and gives everything back", async () => {
    await using pawl = openTest();
    const self = workflow("self", async (ctx) => ctx.lock("a", () => ctx.lock("a", () => "never")));
    pawl.work([self]);
    const run = await pawl.start(self, undefined, { id: "self" });
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed", cause: { code: "deadlock" } });
    expect(await pawl.mutex("a").tryAcquire()).toMatchObject({ ok: true });
  });

  test("one that catches it has left the line, still holds what it held, and can try again", async () => {
    await using pawl = openTest();
    const polite = workflow("polite", async (ctx) => {
      for (let tries = 1; ; tries++) {
        const had = await ctx.lock("a", async () => {
          await ctx.waitForSignal(go);
          try {
            return await ctx.lock("b", () => "had");
          } catch (error) {
            if (!(error instanceof DeadlockError)) throw error;
            await ctx.step("look", async () => {
              expect(whoOf((await pawl.mutex("a").inspect()).holders)).toEqual(["polite"]);
              expect((await pawl.mutex("b").inspect()).waiting).toBe(0);
            });
            return undefined;
          }
        });
        if (had !== undefined) return [had, tries];
        await ctx.sleep("1s");
      }
    });
    const rude = workflow("rude", async (ctx) =>
      ctx.lock("b", async () => {
        await ctx.waitForSignal(go);
        return ctx.lock("a", () => "had");
      }),
    );
    pawl.work([polite, rude], { warm: 0 });
    const [p, r] = [await pawl.start(polite, undefined, { id: "polite" }), await pawl.start(rude)];
    await pawl.clock.advance(1);
    await r.signal(go, "1");
    await pawl.clock.advance(1);
    await p.signal(go, "1");
    expect(await r.result()).toBe("had");
    await p.signal(go, "2");
    expect(await p.result()).toEqual(["had", 2]);
  });

  test.each(["the child is the last to wait", "the parent is the last to wait"])(
    "a parent that holds what its child wants (%s)",
    async (how) => {
      await using pawl = openTest();
      const child = workflow("child", async (ctx) => {
        if (how.startsWith("the child")) await ctx.sleep("1s");
        try {
          return await ctx.lock("family", () => "had");
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
        .lock("family", () => "had")
        .then(
          (had) => had,
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

  test("one that closes when somebody else's turn comes", async () => {
    await using pawl = openTest();
    // r2 waits for b behind plain code; when that lets go, r2 holds b, and then wants a.
    const play = await stage(pawl, { r1: [mutex("a"), mutex("b")] });
    const hold = await pawl.mutex("b").acquire();
    const second = workflow("second", async (ctx) =>
      ctx
        .lock("b", () => ctx.lock("a", () => "had"))
        .then(
          (had) => had,
          (error: unknown) => (error instanceof DeadlockError ? "deadlock" : "other"),
        ),
    );
    pawl.work([second]);
    const run = await pawl.start(second, undefined, { id: "r2" });
    await run.until("waiting");
    await play.next("r1");
    expect([...play.circles.keys()]).toEqual([]);
    await hold.release();
    expect([await run.result(), await play.ends()]).toEqual(["deadlock", { r1: "done" }]);
  });

  test("through the line of a lock that is free: whoever is first there wants another lock as well", async () => {
    await using pawl = openTest();
    // r2 stands first in the line of b, which is free, and waits for a, which r1 has; r1 does not pass it there.
    const play = await stage(pawl, { r1: [mutex("a"), mutex("b")] });
    const together = workflow("together", async (ctx) =>
      ctx
        .lock(["a", "b"], () => "had")
        .then(
          (had) => had,
          (error: unknown) => (error instanceof DeadlockError ? "deadlock" : "other"),
        ),
    );
    pawl.work([together]);
    const run = await pawl.start(together, undefined, { id: "r2" });
    await run.until("waiting");
    await play.next("r1");
    expect([(await play.run("r1").status()).status, (await run.status()).status]).toEqual(["completed", "completed"]);
    expect([(await play.ends())["r1"], await run.result()]).toEqual(["deadlock", "had"]);
  });

  test.each([
    ["who held it lets go", []],
    ["those before it have had it", ["r4"]],
  ])("through the line of a lock that becomes free only when %s", async (_, before) => {
    await using pawl = openTest();
    const wish = (names: string | readonly string[]) => async (ctx: Context) => {
      try {
        return await ctx.lock(names, () => "had");
      } catch (error) {
        return error instanceof DeadlockError ? "deadlock" : "other";
      }
    };
    const together = workflow("together", wish(["a", "b"]));
    const single = workflow("single", wish("b"));
    pawl.work([together, single]);
    const play = await stage(pawl, { r1: [mutex("a"), mutex("b")], r3: [mutex("b"), mutex("z")] });
    const runs = [];
    for (const id of before) runs.push(await pawl.start(single, undefined, { id }));
    await pawl.clock.advance(1);
    runs.push(await pawl.start(together, undefined, { id: "r2" }));
    await pawl.clock.advance(1);
    // r3 has b, and can go on; behind it stands r2, which waits for a as well; and then r1, which has a.
    await play.next("r1");
    await play.next("r3");
    await pawl.clock.advance(1);
    const all = [play.run("r1"), play.run("r3"), ...runs];
    const statuses = await Promise.all(all.map(async (run) => (await run.status()).status));
    expect(statuses).toEqual(all.map(() => "completed"));
    // One of the two that wait for each other, and nobody else.
    const ends = await Promise.all(all.map((run) => run.result()));
    expect(ends.filter((end) => end === "deadlock").length).toBe(1);
    expect([ends[0], ends.at(-1)]).toContain("deadlock");
  });

  test("through a reader that comes a second time and stands behind a writer, which waits for it", async () => {
    await using pawl = openTest();
    const play = await stage(pawl, { r1: [read("rw"), read("rw")], w: [mutex("other"), write("rw")] });
    await play.next("w", "r1");
    expect([...play.circles.keys()]).toEqual(["r1"]);
    expect(await play.ends()).toEqual({ r1: "deadlock", w: "done" });
  });

  test("through a reader that stands behind a writer, which waits for another reader, which waits for the first", async () => {
    await using pawl = openTest();
    const play = await stage(pawl, {
      r1: [read("rw"), mutex("m")],
      w: [mutex("other"), write("rw")],
      r2: [mutex("m"), read("rw")],
    });
    await play.next("w", "r1", "r2");
    expect([...play.circles.keys()]).toEqual(["r2"]);
    expect(await play.ends()).toEqual({ r1: "done", w: "done", r2: "deadlock" });
  });
});

describe("what is no circle is not taken for one:", () => {
  const innocent: readonly {
    readonly what: string;
    readonly cast: Readonly<Record<string, readonly [Get, Get]>>;
    readonly order: readonly string[];
  }[] = [
    {
      what: "runs in one line",
      cast: { r1: [mutex("a"), mutex("z")], r2: [mutex("b"), mutex("a")], r3: [mutex("c"), mutex("a")] },
      order: ["r2", "r3", "r1"],
    },
    {
      what: "a chain that ends with one who can go on",
      cast: { r1: [mutex("a"), mutex("z")], r2: [mutex("b"), mutex("a")], r3: [mutex("c"), mutex("b")] },
      order: ["r3", "r2", "r1"],
    },
    {
      what: "a holder of a semaphore that waits, beside one that can go on",
      cast: {
        r1: [semaphore("s", 2), mutex("m")],
        r2: [semaphore("s", 2), mutex("z")],
        r3: [mutex("m"), semaphore("s", 2)],
      },
      order: ["r1", "r3", "r2"],
    },
    {
      what: "readers that come together",
      cast: { r1: [read("rw"), mutex("m")], r2: [mutex("m"), read("rw")] },
      order: ["r1", "r2"],
    },
    {
      what: "the same permits twice, where there are enough",
      cast: { r1: [semaphore("s", 3), semaphore("s", 3)], r2: [semaphore("s", 3), semaphore("s", 3)] },
      order: ["r1", "r2"],
    },
    {
      what: "a lock of the same name and another kind",
      cast: { r1: [mutex("a"), semaphore("a", 1)], r2: [read("a"), mutex("b")] },
      order: ["r1", "r2"],
    },
  ];
  test.each(innocent)("$what", async ({ cast, order }) => {
    await using pawl = openTest();
    const play = await stage(pawl, cast);
    await play.next(...order);
    expect(Object.values(await play.ends())).toEqual(order.map(() => "done"));
    expect([...play.circles.keys()]).toEqual([]);
  });

  /** Two that wait for each other, one of which can still go on by something else. */
  const ways: readonly [string, (ctx: Context) => PromiseLike<unknown>, (run: TestRun) => Promise<unknown>][] = [
    ["a limit to its wait", (ctx) => ctx.lock("b", () => {}, { timeout: "1 hour" }), async () => {}],
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
        return ctx.lock("a", () => "had");
      }),
    );
    pawl.work([one, two]);
    const runs = [
      await pawl.start(one, undefined, { id: "one" }),
      await pawl.start(two, undefined, { id: "two" }),
    ] as const;
    await pawl.clock.advance("1 minute");
    // They do wait for each other, and one who asks is told so.
    expect((await pawl.whyWaiting({ run: "two" })).says).toMatch(/run "two" waits for mutex "a".*run "one" /);
    await meanwhile(runs[0]);
    expect(["went on", "lock_timeout"]).toContain(await runs[0].result());
    expect(await runs[1].result()).toBe("had");
  });

  test("plain code is in it, whose lease may end", async () => {
    await using pawl = openTest();
    const play = await stage(pawl, { r1: [mutex("a"), mutex("b")] });
    const hold = await pawl.mutex("b").acquire();
    const waiting = pawl.mutex("a").acquire({ timeout: "1 minute" });
    await play.next("r1");
    await pawl.clock.advance("30s");
    await hold.release();
    expect(await play.ends()).toEqual({ r1: "done" });
    await (await pawl.clock.during(waiting)).release();
  });

  test("plain code holds one of the permits, and may let go of it", async () => {
    await using pawl = openTest();
    const plain = await pawl.semaphore("s", { permits: 2 }).acquire();
    const play = await stage(pawl, { r1: [semaphore("s", 2), mutex("m")], r2: [mutex("m"), semaphore("s", 2)] });
    await play.next("r1", "r2");
    await pawl.clock.advance("1 minute");
    expect([...play.circles.keys()]).toEqual([]);
    await plain.release();
    expect(await play.ends()).toEqual({ r1: "done", r2: "done" });
  });

  test("one of them is at work in another branch, and lets go after that", async () => {
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
    const play = await stage(pawl, { r1: [mutex("r1"), mutex("a")] });
    const run = await pawl.start(two, undefined, { id: "r2" });
    await run.until("waiting");
    // It rests, and waits for nothing but locks; then it is at work again.
    await d.release();
    await pawl.clock.advance("1s");
    expect((await run.status()).status).toBe("running");
    await play.next("r1");
    expect([...play.circles.keys()]).toEqual([]);
    expect([await run.result(), await play.ends()]).toEqual(["done", { r1: "done" }]);
  });

  test("one of them was canceled, and only has not heard of it yet", async () => {
    await using pawl = openTest();
    const two = workflow("two", async (ctx) => ctx.lock("b", () => ctx.lock("a", () => "had")));
    const worker = pawl.work([two]);
    const play = await stage(pawl, { r1: [mutex("a"), mutex("b")] });
    const run = await pawl.start(two, undefined, { id: "r2" });
    await run.until("waiting");
    // Nobody works on it for a while.
    await worker.stop();
    await run.cancel();
    await play.next("r1");
    expect([...play.circles.keys()]).toEqual([]);
    pawl.work([two]);
    await expect(run.result()).rejects.toMatchObject({ code: "run_canceled" });
    expect(await play.ends()).toEqual({ r1: "done" });
  });

  test("a run that is parked is in it, which a person lets go on", async () => {
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
    const play = await stage(pawl, { r1: [mutex("a"), mutex("b")] });
    await play.next("r1");
    await pawl.clock.advance("1 minute");
    isStuck = false;
    await parked.retry();
    expect([await parked.result(), await play.ends()]).toEqual(["done", { r1: "done" }]);
  });

  test("a reader stands behind a writer that may give up, and then comes in beside the reader that waits for it", async () => {
    await using pawl = openTest();
    const play = await stage(pawl, { r1: [read("rw"), mutex("m")], r2: [mutex("m"), read("rw")] });
    const writer = pawl
      .rwlock("rw")
      .write.acquire({ timeout: "1 minute" })
      .then((hold) => hold.release());
    writer.catch(() => {});
    await pawl.clock.advance(1);
    await play.next("r1", "r2");
    await pawl.clock.advance("2 minutes");
    expect([...play.circles.keys()]).toEqual([]);
    await expect(writer).rejects.toMatchObject({ code: "lock_timeout" });
    expect(await play.ends()).toEqual({ r1: "done", r2: "done" });
  });
});

describe("random schedules", () => {
  test("100 without a circle: nobody is told of one, and everybody ends", async () => {
    const { runs, told } = await playSchedules({ isInOrder: true, first: 1, last: 100 });
    expect(told).toEqual([]);
    expect(runs).toBeGreaterThan(200);
  });

  test("50 with circles: each is found, nobody waits for ever, and most go on", async () => {
    const { runs, told } = await playSchedules({ isInOrder: false, first: 1, last: 50 });
    expect(told.filter((end) => !end.includes(": deadlock: waiting for"))).toEqual([]);
    expect(told.length).toBeGreaterThan(5);
    expect(told.length).toBeLessThan(runs / 2);
  });
});
