/**
 * Goal: races between operations: the obvious programs work, and the losers of `ctx.race` are canceled and not waited for.
 * Method: small workflows in the test kit, warm and replayed at each wait.
 */

import { describe, expect, test } from "vitest";
import { type Context, type Run, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";

const approved = signal<string>("approved");
const sleeper = workflow("sleeper", async (ctx) => ctx.sleep("300 days"));

async function live(
  warm: number,
  body: (ctx: Context) => Promise<unknown>,
  meanwhile: (run: Run<unknown>, advance: (duration: string) => Promise<void>) => Promise<void> = async () => {},
): Promise<{ readonly ok: unknown; readonly facts: readonly string[]; readonly ms: number; readonly child: string }> {
  await using pawl = openTest();
  const it = workflow("it", body);
  pawl.work([it, sleeper], { warm });
  const begunMs = pawl.clock.nowMs;
  const run = await pawl.start(it, undefined, { id: "it" });
  await meanwhile(run, async (duration) => void (await pawl.clock.advance(duration)));
  const ok = await run.result();
  const ms = pawl.clock.nowMs - begunMs;
  const facts = (await run.history()).map(({ name }) => name);
  const child = await pawl
    .run(sleeper, "it/sleeper")
    .status()
    .then(
      ({ status }) => status,
      () => "none",
    );
  return { ok, facts, ms, child };
}

describe.each([1000, 0])("with %d warm runs", (warm) => {
  test.each(["Promise.race", "ctx.race"])("a reminder every hour until it is approved, with %s", async (way) => {
    const { ok } = await live(
      warm,
      async (ctx) => {
        for (let reminders = 0; ; reminders++) {
          const both = [ctx.waitForSignal(approved), ctx.sleep("1 hour")] as const;
          const first = await (way === "ctx.race" ? ctx.race<unknown>(both) : Promise.race<unknown>(both));
          if (first !== undefined) return [reminders, (first as { value: string }).value];
          await ctx.step("remind", () => {});
        }
      },
      async (run, advance) => {
        await advance("200 minutes");
        await run.signal(approved, "ann");
      },
    );
    expect(ok).toEqual([3, "ann"]);
  });

  describe("a signal that comes while a step runs", () => {
    /** Sends it, and leaves time for the worker to receive it. */
    const send = async (run: Run<unknown> | undefined): Promise<void> => {
      await run?.signal(approved, "ann");
      for (let i = 0; i < 50; i++) await new Promise((resolve) => setImmediate(resolve));
    };

    test.each([
      { what: "a new wait for each round", isNew: true, timeout: undefined },
      { what: "one wait for all rounds", isNew: false, timeout: undefined },
      { what: "waits with a time limit", isNew: true, timeout: "61 minutes" },
    ])("is for the next round of Promise.race, with $what", async ({ isNew, timeout }) => {
      let run: Run<unknown> | undefined;
      const { ok } = await live(
        warm,
        async (ctx) => {
          let wait = ctx.waitForSignal(approved, { timeout });
          for (let round = 0; round < 5; round++) {
            const first = await Promise.race<unknown>([wait, ctx.sleep("1 hour")]);
            if (first !== undefined) return [round, (first as { value: string }).value];
            await ctx.step("remind", () => (round === 1 ? send(run) : undefined));
            await ctx.sleep("10 minutes");
            if (isNew) wait = ctx.waitForSignal(approved, { timeout });
          }
          return "never approved";
        },
        async (started) => {
          run = started;
        },
      );
      expect(ok).toEqual([2, "ann"]);
    });

    test("is for a wait whose race is not over", async () => {
      let run: Run<unknown> | undefined;
      const { ok } = await live(
        warm,
        async (ctx) => {
          const work = async () => {
            await ctx.step("one", () => {});
            await ctx.sleep("1 minute");
            await ctx.step("two", () => send(run));
            await ctx.sleep("1 hour");
            return "done";
          };
          return Promise.race([ctx.waitForSignal(approved).then(() => "stopped"), work()]);
        },
        async (started) => {
          run = started;
        },
      );
      expect(ok).toBe("stopped");
    });

    test.each(["all", "any", "allSettled", "then", "finally"] as const)("is for a wait with %s", async (way) => {
      let run: Run<unknown> | undefined;
      const { ok } = await live(
        warm,
        async (ctx) => {
          const wait = ctx.waitForSignal(approved);
          const nap = ctx.sleep("1 minute");
          const observed: Record<typeof way, () => Promise<unknown>> = {
            all: () => Promise.all([wait, nap]),
            any: () => Promise.any([wait, Promise.all([nap, new Promise(() => {})])]),
            allSettled: () => Promise.allSettled([wait, nap]),
            // biome-ignore lint/suspicious/noThenProperty: it is the name of a way.
            then: () => Promise.all([wait.then(() => {}), nap.then(() => {})]),
            finally: () => Promise.all([wait.finally(() => {}), nap.finally(() => {})]),
          };
          const both = observed[way]();
          await nap;
          await ctx.step("send", () => send(run));
          await both;
          return "heard";
        },
        async (started) => {
          run = started;
        },
      );
      expect(ok).toBe("heard");
    });
  });

  test("two waits of one turn get signals in the order of the waits", async () => {
    const { ok } = await live(
      warm,
      async (ctx) => {
        const [first, second] = await Promise.all([ctx.waitForSignal(approved), ctx.waitForSignal(approved)]);
        return [first.value, second.value];
      },
      async (run) => {
        await run.signal(approved, "one");
        await run.signal(approved, "two");
      },
    );
    expect(ok).toEqual(["one", "two"]);
  });

  test("the losers of ctx.race are aborted, canceled, and not waited for", async () => {
    let reason: unknown;
    const { ok, child, ms } = await live(warm, async (ctx) => {
      const first = await ctx.race<unknown>([
        ctx.step("quick", () => "quick"),
        ctx.step("slow", ({ abortSignal }) => {
          abortSignal.addEventListener("abort", () => {
            reason = abortSignal.reason;
          });
          return new Promise(() => {});
        }),
        ctx.sleep("300 days"),
        ctx.call(sleeper),
        ctx.waitForSignal(approved),
      ]);
      await ctx.sleep("1 hour");
      return first;
    });
    expect(ok).toBe("quick");
    expect(reason).toMatchObject({ code: "race_lost" });
    expect(child).toBe("canceled");
    expect(ms).toBeLessThan(2 * 3_600_000);
  });

  test("plain values count as resolved promises, as with Promise.race, and what loses to them is canceled", async () => {
    const { ok, facts, ms } = await live(warm, async (ctx) => [
      await ctx.race([ctx.sleep("1 hour"), 1]),
      await ctx.race<unknown>([null, async (branch) => branch.sleep("1 hour")]),
      await ctx.race([undefined]),
      await ctx.all([ctx.step("one", () => 1), "two"]),
      (await ctx.allSettled<unknown>([ctx.step("three", () => 3), { four: 4 }])).map(({ status }) => status),
    ]);
    expect(ok).toEqual([1, null, undefined, [1, "two"], ["fulfilled", "fulfilled"]]);
    expect(facts).toContain("completed");
    expect(ms).toBeLessThan(60_000);
  });

  test("a branch that is a function is canceled where it waits, and cleans up", async () => {
    const { ok, facts } = await live(warm, async (ctx) => {
      const first = await ctx.race<unknown>([
        async (branch) => {
          try {
            await branch.sleep("300 days");
          } finally {
            await branch.step("cleanup", () => {});
          }
        },
        ctx.sleep("1 minute").then(() => "timeout"),
      ]);
      return first;
    });
    expect(ok).toBe("timeout");
    expect(facts).toContain("step cleanup");
  });

  test("a place in the queue of a lock is left", async () => {
    await using pawl = openTest();
    const holder = workflow("holder", async (ctx) => ctx.lock("l", () => ctx.sleep("1 day")));
    const racer = workflow("racer", async (ctx) => {
      const won = await ctx.race<unknown>([
        ctx.lock("l", async () => "lock"),
        ctx.sleep("1 minute").then(() => "late"),
      ]);
      await ctx.sleep("1 hour");
      return won;
    });
    pawl.work([holder, racer], { warm });
    const held = await pawl.start(holder);
    await held.until("waiting");
    const run = await pawl.start(racer);
    await pawl.clock.advance("5 minutes");
    expect((await pawl.mutex("l").inspect()).waiting).toBe(0);
    await expect(run.result()).resolves.toBe("late");
  });
});
