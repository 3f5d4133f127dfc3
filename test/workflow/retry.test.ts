/**
 * Goal: a retry repeats what ended the run, and nothing else: a recorded success is kept in whatever order the code requests it next, a
 * failure that the code handled stays, a failed child is retried with its parent.
 * Method: workflows that fail in an outage and are retried when it is over, with a count of each effect.
 */

import { beforeEach, describe, expect, test } from "vitest";
import { type Context, type Workflow, workflow } from "../../src/index.ts";
import { openTest, type TestPawl } from "../../src/testing/index.ts";

const once = { retry: { attempts: 1 } };
let effects: string[] = [];
let broken = new Set<string>();

beforeEach(() => {
  effects = [];
  broken = new Set();
});

/** An effect that fails while it is broken. */
function act(name: string): string {
  effects.push(name);
  if (broken.has(name)) throw new Error(`${name} is broken`);
  return name;
}

async function failing<T>(
  pawl: TestPawl,
  it: Workflow<undefined, T>,
  others: readonly Workflow<undefined, unknown>[] = [],
) {
  pawl.work([it, ...others]);
  const run = await pawl.start(it, undefined, { id: "it" });
  await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
  return run;
}

test("an error in plain code: nothing that succeeded is repeated", async () => {
  await using pawl = openTest();
  let isWrong = true;
  const it = workflow("it", async (ctx) => {
    await ctx.step("charge", () => act("charge"));
    await ctx.step.atMostOnce("send", () => act("send"));
    if (isWrong) throw new TypeError("undefined is not a function");
    return ctx.step("end", () => act("end"));
  });
  const run = await failing(pawl, it);
  await run.retry();
  await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
  isWrong = false;
  await run.retry();
  await expect(run.result()).resolves.toBe("end");
  expect(effects).toEqual(["charge", "send", "end"]);
});

test("two parallel steps that failed in one outage are both repeated, and the one that succeeded is not", async () => {
  await using pawl = openTest();
  broken = new Set(["a", "b"]);
  const it = workflow("it", async (ctx) => {
    const steps = ["a", "b", "c"].map((name) => ctx.step(name, () => act(name), once));
    return Promise.all(steps);
  });
  const run = await failing(pawl, it);
  broken.clear();
  await run.retry();
  await expect(run.result()).resolves.toEqual(["a", "b", "c"]);
  expect(effects.sort()).toEqual(["a", "a", "b", "b", "c"]);
});

test("what the function has thrown is repeated, although a branch that it left behind has begun more since", async () => {
  await using pawl = openTest({ strict: false });
  broken.add("a");
  const failed = Promise.withResolvers<void>();
  const it = workflow("it", (ctx) => {
    const branch = async (): Promise<unknown> => {
      await ctx.step("slow", () => failed.promise);
      return ctx.step("more", () => act("more"));
    };
    return Promise.all([branch(), ctx.step("a", () => act("a"), once)]);
  });
  pawl.work([it], { on: ({ type }) => type === "step.failed" && failed.resolve() });
  const run = await pawl.start(it, undefined, { id: "it" });
  await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
  broken.clear();
  await run.retry();
  await expect(run.result()).resolves.toEqual(["more", "a"]);
  expect(effects).toEqual(["a", "more", "a"]);
});

test("a failure that the code handled stays", async () => {
  await using pawl = openTest();
  broken = new Set(["card", "ship"]);
  const it = workflow("it", async (ctx) => {
    const paid = await ctx.step("card", () => act("card"), once).catch(() => ctx.step("invoice", () => act("invoice")));
    await ctx.step("ship", () => act("ship"), once);
    return paid;
  });
  const run = await failing(pawl, it);
  broken.clear();
  await run.retry();
  await expect(run.result()).resolves.toBe("invoice");
  expect(effects).toEqual(["card", "invoice", "ship", "ship"]);
});

test("retry({ steps }) repeats other steps, too", async () => {
  await using pawl = openTest();
  broken = new Set(["card", "ship"]);
  const it = workflow("it", async (ctx) => {
    const paid = await ctx.step("card", () => act("card"), once).catch(() => ctx.step("invoice", () => act("invoice")));
    await ctx.step("ship", () => act("ship"), once);
    return paid;
  });
  const run = await failing(pawl, it);
  broken.clear();
  await expect(run.retry({ steps: ["nothing"] })).rejects.toMatchObject({ code: "run_conflict" });
  await run.retry({ steps: ["card"] });
  await expect(run.result()).resolves.toBe("card");
  expect(effects).toEqual(["card", "invoice", "ship", "card", "ship"]);
});

test("the code may request what succeeded in another order, and more in between", async () => {
  await using pawl = openTest();
  let version = 1;
  const first = async (ctx: Context) => {
    await ctx.step("a", () => act("a"));
    await ctx.sleep("1 hour");
    await ctx.step("b", () => act("b"));
    return ctx.step("c", () => act("c"), once);
  };
  const second = async (ctx: Context) => {
    await ctx.step("b", () => act("b"));
    await ctx.step("new", () => act("new"));
    await ctx.sleep("1 hour");
    await ctx.step("a", () => act("a"));
    return ctx.step("c", () => act("c"), once);
  };
  const it = workflow("it", (ctx) => (version === 1 ? first(ctx) : second(ctx)));
  broken.add("c");
  pawl.work([it], { warm: 0 });
  const run = await pawl.start(it, undefined, { id: "it" });
  await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
  version = 2;
  broken.clear();
  await run.retry();
  await expect(run.result()).resolves.toBe("c");
  expect(effects).toEqual(["a", "b", "c", "new", "c"]);
});

describe("a run that fails again", () => {
  test("remembers what succeeded before and after the first retry, also when it is replayed", async () => {
    await using pawl = openTest();
    const it = workflow("it", async (ctx) => {
      for (const name of ["a", "b", "c", "d"]) {
        await ctx.step(name, () => act(name), once);
        await ctx.sleep("1 minute");
      }
      return "end";
    });
    broken = new Set(["b", "d"]);
    pawl.work([it], { warm: 0 });
    const run = await pawl.start(it, undefined, { id: "it" });
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
    broken.delete("b");
    await run.retry();
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
    broken.clear();
    await run.retry();
    await expect(run.result()).resolves.toBe("end");
    expect(effects).toEqual(["a", "b", "b", "c", "d", "d"]);
  });
});

describe("a parent that failed through its child", () => {
  const kid = workflow("kid", async (ctx) => {
    await ctx.step("before", () => act("before"));
    return ctx.step("kid", () => act("kid"), once);
  });
  const it = workflow("it", async (ctx) => ctx.call(kid));

  test("is retried with the child", async () => {
    await using pawl = openTest();
    broken.add("kid");
    const run = await failing(pawl, it, [kid]);
    broken.clear();
    await run.retry();
    await expect(run.result()).resolves.toBe("kid");
    expect(effects).toEqual(["before", "kid", "kid"]);
  });

  test("gets its result if the child has succeeded meanwhile", async () => {
    await using pawl = openTest();
    broken.add("kid");
    const run = await failing(pawl, it, [kid]);
    broken.clear();
    const child = pawl.run(kid, "it/kid");
    await child.retry();
    await child.result();
    await run.retry();
    await expect(run.result()).resolves.toBe("kid");
    expect(effects).toEqual(["before", "kid", "kid"]);
  });

  test("three levels down", async () => {
    await using pawl = openTest();
    const middle = workflow("middle", async (ctx) => ctx.call(kid));
    const top = workflow("top", async (ctx) => ctx.call(middle));
    broken.add("kid");
    const run = await failing(pawl, top, [middle, kid]);
    broken.clear();
    await run.retry();
    await expect(run.result()).resolves.toBe("kid");
  });
});

describe("under a lock", () => {
  test("a step that failed is repeated while the lock is held again, and the lock is released after it", async () => {
    await using pawl = openTest();
    broken.add("in");
    const it = workflow("it", async (ctx) => {
      await ctx.lock("l", async () => {
        await ctx.step("first", () => act("first"));
        await ctx.step(
          "in",
          async () => {
            if (!broken.has("in")) expect((await pawl.mutex("l").inspect()).holders).toHaveLength(1);
            return act("in");
          },
          once,
        );
      });
      await ctx.step("after", async () => void expect((await pawl.mutex("l").inspect()).holders).toHaveLength(0));
      return "end";
    });
    const run = await failing(pawl, it);
    broken.clear();
    await run.retry();
    await expect(run.result()).resolves.toBe("end");
    expect(effects).toEqual(["first", "in", "in"]);
  });

  test("code that was fixed does more under a lock that is in its history", async () => {
    await using pawl = openTest();
    let isWrong = true;
    const it = workflow("it", async (ctx) => {
      await ctx.lock("l", async () => {
        await ctx.step("a", () => act("a"));
        if (!isWrong)
          await ctx.step("b", async () => {
            expect((await pawl.mutex("l").inspect()).holders).toHaveLength(1);
            act("b");
          });
      });
      await ctx.step("free", async () => void expect((await pawl.mutex("l").inspect()).holders).toHaveLength(0));
      if (isWrong) throw new TypeError("wrong");
      return "end";
    });
    const run = await failing(pawl, it);
    isWrong = false;
    await run.retry();
    await expect(run.result()).resolves.toBe("end");
    expect(effects).toEqual(["a", "b"]);
  });

  test("a lock request that timed out is made again", async () => {
    await using pawl = openTest();
    const holder = workflow("holder", async (ctx) => ctx.lock("m", () => ctx.sleep("1 hour")));
    const it = workflow("it", async (ctx) => ctx.mutex("m").with(async () => "had", { timeout: "2s" }));
    pawl.work([holder]);
    await (await pawl.start(holder)).until("waiting");
    const run = await failing(pawl, it);
    await run.retry();
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
    await pawl.clock.advance("1 hour");
    await run.retry();
    await expect(run.result()).resolves.toBe("had");
  });

  test("a place in the queue that the failed run had left is requested again", async () => {
    await using pawl = openTest();
    broken.add("a");
    const holder = workflow("holder", async (ctx) => ctx.lock("m", () => ctx.sleep("1 hour")));
    const it = workflow("it", async (ctx) => {
      const enqueued = await ctx.mutex("m").enqueue();
      const [had] = await Promise.all([
        ctx.mutex("m").with(async () => "had"),
        ctx
          .step("a", () => act("a"), once)
          .then(async () => (enqueued.granted ? undefined : (await enqueued.place.acquire()).release())),
      ]);
      return had;
    });
    pawl.work([holder]);
    await (await pawl.start(holder)).until("waiting");
    const run = await failing(pawl, it);
    broken.clear();
    await run.retry();
    await pawl.clock.advance("1 hour");
    await expect(run.result()).resolves.toBe("had");
    expect(effects).toEqual(["a", "a"]);
  });

  test("code that waits for its lock again does not enter it when something else wakes the run", async () => {
    await using pawl = openTest();
    broken.add("in").add("kid");
    let isTaken = false;
    const kidFailed = Promise.withResolvers<void>();
    const kid = workflow("kid", async (ctx) =>
      ctx.step(
        "kid",
        async () => {
          setTimeout(kidFailed.resolve, 50);
          // By then the parent waits for its lock.
          if (broken.size === 0) await new Promise((resolve) => setTimeout(resolve, 200));
          return act("kid");
        },
        once,
      ),
    );
    const it = workflow("it", async (ctx) =>
      Promise.all([
        ctx.call(kid),
        ctx.lock("l", () =>
          ctx.step(
            "in",
            async () => {
              // The child fails while it runs, so that neither failure is handled.
              if (broken.size > 0) await kidFailed.promise;
              return act(isTaken ? "in, without the lock" : "in");
            },
            once,
          ),
        ),
      ]),
    );
    const other = workflow("other", async (ctx) =>
      ctx.lock("l", async () => {
        await ctx.sleep("1 hour");
        await ctx.step("out", () => {
          isTaken = false;
        });
      }),
    );
    pawl.work([it, kid, other]);
    const run = await pawl.start(it, undefined, { id: "it" });
    await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
    await (await pawl.start(other)).until("waiting");
    isTaken = true;
    broken.clear();
    await run.retry();
    await expect(run.result()).resolves.toEqual(["kid", "in"]);
    expect(effects).toEqual(["kid", "in", "kid", "in"]);
  });

  test("a step concurrent with a lock that is acquired after the retry runs once", async () => {
    await using pawl = openTest();
    let isWrong = true;
    const it = workflow("it", async (ctx) => {
      if (isWrong) throw new TypeError("wrong");
      const beside = ctx.step("beside", async () => {
        act("beside");
        await new Promise((resolve) => setTimeout(resolve, 50));
      });
      await ctx.lock("l", () => ctx.step("under", () => act("under")));
      await beside;
      return "end";
    });
    const run = await failing(pawl, it);
    isWrong = false;
    await run.retry();
    await expect(run.result()).resolves.toBe("end");
    expect(effects.sort()).toEqual(["beside", "under"]);
  });
});

describe("a child that was canceled with its parent", () => {
  const parentOf = (kid: Workflow<undefined, unknown>, how: "call" | "start" = "call") =>
    workflow("it", async (ctx) => {
      const beside = async (): Promise<void> => {
        await ctx.sleep("1 minute");
        await ctx.step("a", () => act("a"), once);
      };
      const child = how === "call" ? ctx.call(kid) : ctx.start(kid, undefined, { whenParentEnds: "cancel" });
      const [ended] = await Promise.all([child, beside()]);
      return ended;
    });

  test("continues where it was, with the same keys: completed steps are not repeated", async () => {
    await using pawl = openTest();
    broken.add("a");
    const keys: string[] = [];
    const inner = workflow("inner", async (ctx) => {
      await ctx.step("inner", () => act("inner"));
      await ctx.sleep("1 hour");
      return "inner";
    });
    const kid = workflow("kid", async (ctx) => {
      await ctx.step("charge", ({ key }) => {
        keys.push(key);
        return act("charge");
      });
      return ctx.call(inner);
    });
    const run = await failing(pawl, parentOf(kid), [kid, inner]);
    await expect(pawl.run(kid, "it/kid").result()).rejects.toMatchObject({ code: "run_canceled" });
    broken.clear();
    await run.retry();
    await expect(run.result()).resolves.toBe("inner");
    expect(effects).toEqual(["charge", "inner", "a", "a"]);
    expect(keys).toHaveLength(1);
    expect((await pawl.run(kid, "it/kid").status()).incarnation).toBe(1);
  });

  test("continues also if no run waits for it", async () => {
    await using pawl = openTest();
    broken.add("a");
    const kid = workflow("kid", async (ctx) => {
      await ctx.sleep("1 hour");
      return ctx.step("end", () => act("end"));
    });
    const run = await failing(pawl, parentOf(kid, "start"), [kid]);
    broken.clear();
    await run.retry();
    await expect(run.result()).resolves.toBe("it/kid");
    // It ends with its parent again.
    await expect(pawl.run(kid, "it/kid").result()).rejects.toMatchObject({ code: "run_canceled" });
  });

  test("continues also if it had not begun", async () => {
    await using pawl = openTest();
    broken.add("a");
    const kid = workflow("kid", async (ctx) => ctx.step("end", () => act("end")));
    const run = await failing(pawl, parentOf(kid));
    expect((await pawl.run(kid, "it/kid").status()).status).toBe("canceled");
    broken.clear();
    pawl.work([kid]);
    await run.retry();
    await expect(run.result()).resolves.toBe("end");
  });

  test("continues when it has stopped, if that takes longer than the retry", async () => {
    await using pawl = openTest();
    broken.add("a");
    const begun = Promise.withResolvers<void>();
    const stops = Promise.withResolvers<void>();
    const kid = workflow("kid", async (ctx) => {
      await ctx.step("slow", async () => {
        begun.resolve();
        await stops.promise;
        return act("slow");
      });
      return ctx.step("end", () => act("end"));
    });
    const it = workflow("it", async (ctx) =>
      Promise.all([
        ctx.call(kid),
        ctx.step(
          "a",
          async () => {
            await begun.promise;
            return act("a");
          },
          once,
        ),
      ]),
    );
    const run = await failing(pawl, it, [kid]);
    broken.clear();
    await run.retry();
    stops.resolve();
    await expect(run.result()).resolves.toEqual(["end", "a"]);
    expect(effects.filter((effect) => effect === "slow")).toHaveLength(1);
  });

  describe("and is to continue when it has stopped, but meanwhile", () => {
    /** The kid is canceled in a slow step. The parent fails, is retried, and then does what it is told, while that step is still under way. */
    async function stopping(pawl: TestPawl, then: (ctx: Context) => Promise<unknown>) {
      broken.add("a");
      const begun = Promise.withResolvers<void>();
      const stops = Promise.withResolvers<void>();
      const kid = workflow("kid", async (ctx) => {
        await ctx.step("slow", () => {
          begun.resolve();
          return stops.promise;
        });
        return ctx.step("end", () => act("end"));
      });
      const it = workflow("it", async (ctx) => {
        await ctx.start(kid, undefined, { whenParentEnds: "cancel" });
        await ctx.step("begun", () => begun.promise);
        await ctx.step("a", () => act("a"), once);
        return then(ctx);
      });
      const run = await failing(pawl, it, [kid]);
      broken.clear();
      await run.retry();
      return { run, kid: pawl.run(kid, "it/kid"), stops };
    }

    test("its parent completes: it is canceled", async () => {
      await using pawl = openTest();
      const { run, kid, stops } = await stopping(pawl, async () => "over");
      await expect(run.result()).resolves.toBe("over");
      stops.resolve();
      await expect(kid.result()).rejects.toMatchObject({ code: "run_canceled" });
      expect(effects).toEqual(["a", "a"]);
    });

    test("its parent is canceled: it is canceled", async () => {
      await using pawl = openTest();
      const { run, kid, stops } = await stopping(pawl, (ctx) => ctx.sleep("1 hour"));
      await run.until("waiting");
      await run.cancel();
      await expect(run.result()).rejects.toMatchObject({ code: "run_canceled" });
      stops.resolve();
      await expect(kid.result()).rejects.toMatchObject({ code: "run_canceled" });
      expect(effects).toEqual(["a", "a"]);
    });

    test("an operator cancels it: it is canceled", async () => {
      await using pawl = openTest();
      const { run, kid, stops } = await stopping(pawl, (ctx) => ctx.sleep("1 hour"));
      await run.until("waiting");
      await kid.cancel({ reason: "not needed" });
      stops.resolve();
      await expect(kid.result()).rejects.toMatchObject({ code: "run_canceled" });
      expect(effects).toEqual(["a", "a"]);
    });

    test("its parent fails and is retried again: it continues", async () => {
      await using pawl = openTest();
      let isWrong = true;
      const { run, kid, stops } = await stopping(pawl, async (ctx) => {
        if (isWrong) throw new TypeError("undefined is not a function");
        await ctx.sleep("1 hour");
      });
      await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
      isWrong = false;
      await run.retry();
      stops.resolve();
      await expect(kid.result()).resolves.toBe("end");
      await run.cancel();
    });
  });

  test("stays canceled if it has cleaned up: its parent gets that", async () => {
    await using pawl = openTest();
    broken.add("a");
    const kid = workflow("kid", async (ctx) => {
      await ctx.step("charge", () => act("charge"));
      try {
        await ctx.sleep("1 hour");
      } finally {
        await ctx.step("refund", () => act("refund"));
      }
    });
    const run = await failing(pawl, parentOf(kid), [kid]);
    await expect(pawl.run(kid, "it/kid").result()).rejects.toMatchObject({ code: "run_canceled" });
    broken.clear();
    await run.retry();
    await expect(run.result()).rejects.toMatchObject({ cause: { code: "run_canceled" } });
    expect(effects).toEqual(["charge", "a", "refund", "a"]);
  });

  describe("and whose parent, retried, does not start it again", () => {
    /** The child sleeps for a day; the parent starts or calls it, and fails. Fixed code does something else first. */
    async function retried(pawl: TestPawl, how: "call" | "start", first: (ctx: Context) => Promise<unknown>) {
      broken.add("a");
      let isMended = false;
      const kid = workflow("kid", async (ctx) => {
        await ctx.sleep("1 day");
        return "kid";
      });
      const it = workflow("it", async (ctx) => {
        if (isMended && (await first(ctx)) === "over") return "over";
        const child = how === "call" ? ctx.call(kid) : ctx.start(kid, undefined, { whenParentEnds: "cancel" });
        const [ended] = await Promise.all([child, ctx.step("a", () => act("a"), once)]);
        return ended;
      });
      const run = await failing(pawl, it, [kid]);
      broken.clear();
      isMended = true;
      await run.retry();
      return { run, kid: pawl.run(kid, "it/kid") };
    }

    test.each(["call", "start"] as const)("is canceled when the parent is (%s)", async (how) => {
      await using pawl = openTest();
      const { run, kid } = await retried(pawl, how, (ctx) => ctx.sleep("1 hour"));
      await run.until("waiting");
      await run.cancel();
      await expect(run.result()).rejects.toMatchObject({ code: "run_canceled" });
      await expect(kid.result({ timeout: "1 hour" })).rejects.toMatchObject({ code: "run_canceled" });
    });

    test.each(["call", "start"] as const)("is canceled when the parent completes without it (%s)", async (how) => {
      await using pawl = openTest();
      const { run, kid } = await retried(pawl, how, async (ctx) => {
        await ctx.sleep("1 hour");
        return "over";
      });
      await expect(run.result()).resolves.toBe("over");
      await expect(kid.result({ timeout: "1 hour" })).rejects.toMatchObject({ code: "run_canceled" });
    });

    test.each(["call", "start"] as const)(
      "continues with a second retry, and the parent gets its outcome (%s)",
      async (how) => {
        await using pawl = openTest();
        let isWrong = true;
        const { run, kid } = await retried(pawl, how, async (ctx) => {
          await ctx.sleep("1 hour");
          if (isWrong) throw new TypeError("undefined is not a function");
        });
        await expect(run.result()).rejects.toMatchObject({ code: "run_failed" });
        await expect(kid.result({ timeout: "1 hour" })).rejects.toMatchObject({ code: "run_canceled" });
        isWrong = false;
        await run.retry();
        await expect(run.result()).resolves.toBe(how === "call" ? "kid" : "it/kid");
      },
    );
  });

  test("a run that is canceled itself is still not retried", async () => {
    await using pawl = openTest();
    const it = workflow("it", async (ctx) => ctx.sleep("1 hour"));
    pawl.work([it]);
    const run = await pawl.start(it);
    await run.until("waiting");
    await run.cancel();
    await expect(run.result()).rejects.toMatchObject({ code: "run_canceled" });
    await expect(run.retry()).rejects.toMatchObject({ code: "run_conflict" });
  });
});

test("the history keeps with what error a run failed, also after it was retried", async () => {
  await using pawl = openTest();
  let isBroken = true;
  const body = workflow("body", async (ctx) => {
    await ctx.step("one", () => 1);
    if (isBroken) throw new TypeError("not a function");
  });
  pawl.work([body]);
  const run = await pawl.start(body, undefined, { id: "r" });
  await run.result().catch(() => {});
  isBroken = false;
  await run.retry();
  await run.result();
  const failed = (await run.history()).find(({ name }) => name === "failed");
  expect(failed?.data).toMatchObject({ status: "failed", error: { name: "TypeError", message: "not a function" } });
});
