/**
 * Goal: cleanup and shielded code run to their end wherever they are: in a branch of a race, nested, concurrent with others; when the run is canceled, when
 * it times out, and when the branch loses (G33).
 * Method: one piece of code that rents and deletes, and one that withdraws and deposits, in every place that a program has for them, warm and
 * replayed at each wait. Each line of a table says where it is.
 */

import { describe, expect, test } from "vitest";
import { type Context, type RaceLostError, type RunCanceledError, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";

const stop = signal("stop");
const sleeper = workflow("sleeper", async (ctx) => ctx.sleep("1 minute"));

type Code = (ctx: Context, did: string[]) => Promise<unknown>;

const rent: Code = async (ctx, did) => {
  await ctx.step("rent", () => void did.push("rented"));
  try {
    await ctx.sleep("1 day");
  } finally {
    await ctx.step("delete", () => void did.push("deleted"));
  }
};

const transfer: Code = async (ctx, did) => {
  await ctx.step("withdraw", () => void did.push("withdrawn"));
  // Longer than the workflow's timeout, and within its grace.
  await ctx.sleep("90 minutes");
  await ctx.step("deposit", () => void did.push("deposited"));
};

const stopped = (ctx: Context): Promise<unknown> => ctx.waitForSignal(stop);

/** Where code can run concurrently with something else. */
const places: Record<string, (code: Code, ctx: Context, did: string[]) => Promise<unknown>> = {
  alone: (code, ctx, did) => code(ctx, did),
  "first in ctx.race": (code, ctx, did) => ctx.race([(c) => code(c, did), stopped]),
  "last in ctx.race": (code, ctx, did) => ctx.race([stopped, (c) => code(c, did)]),
  "in ctx.race with an operation": (code, ctx, did) =>
    ctx.race<unknown>([ctx.waitForSignal(stop), (c) => code(c, did)]),
  "in ctx.race beside code that catches everything": (code, ctx, did) =>
    ctx.race([(c) => stopped(c).catch(() => "caught"), (c) => code(c, did)]),
  "in a race of a race": (code, ctx, did) => ctx.race([stopped, (c) => c.race([stopped, (d) => code(d, did)])]),
  "in a race that is an operation of a race": (code, ctx, did) =>
    ctx.race<unknown>([ctx.waitForSignal(stop), ctx.race([(c) => code(c, did), stopped])]),
  "in Promise.race": (code, ctx, did) => Promise.race([stopped(ctx), code(ctx, did)]),
  "in Promise.all": (code, ctx, did) => Promise.all([stopped(ctx), code(ctx, did)]),
  "in Promise.all of a branch": (code, ctx, did) => ctx.race([stopped, (c) => Promise.all([stopped(c), code(c, did)])]),
  "under a lock in a branch": (code, ctx, did) => ctx.race([stopped, async (c) => c.lock("L", () => code(c, did))]),
};

async function live(
  warm: number,
  body: (ctx: Context) => Promise<unknown>,
  how: "cancel" | "timeout" | "none",
  strict = true,
): Promise<string> {
  await using pawl = openTest({ strict });
  const it = workflow({ name: "it", grace: "1 day", ...(how === "timeout" ? { timeout: "1 hour" } : {}) }, body);
  pawl.work([it, sleeper], { warm });
  const run = await pawl.start(it, undefined, { id: "it" });
  await run.until("waiting");
  if (how === "cancel") await run.cancel();
  await run.result().catch(() => {});
  return (await run.status()).status;
}

describe.each([1000, 0])("with %d warm runs", (warm) => {
  describe.each([
    ["cancel", "canceled"],
    ["timeout", "timed_out"],
  ] as const)("after a %s", (how, status) => {
    test.each(Object.entries(places))("finally runs: %s", async (name, place) => {
      const did: string[] = [];
      const ended = await live(warm, (ctx) => place(rent, ctx, did), how);
      expect(did).toEqual(["rented", "deleted"]);
      expect(ended).toBe(name.includes("catches everything") ? "completed" : status);
    });

    test.each(Object.entries(places))("shielded code runs to its end: %s", async (_, place) => {
      const did: string[] = [];
      const shielded: Code = (ctx, did) => ctx.shield((c) => transfer(c, did));
      await live(warm, (ctx) => place(shielded, ctx, did), how);
      expect(did).toEqual(["withdrawn", "deposited"]);
    });
  });

  /** The code loses against a sleep of an hour. */
  const losing = (code: Code, name: string) => (did: string[]) => (ctx: Context) =>
    ctx.race<unknown>([ctx.sleep("1 hour"), (c: Context) => places[name]?.(code, c, did) as Promise<unknown>]);
  const lost = Object.keys(places).filter((name) => !name.includes("Promise.race"));

  test.each(lost)("finally runs in a branch that loses: %s", async (name) => {
    const did: string[] = [];
    expect(await live(warm, losing(rent, name)(did), "none")).toBe("completed");
    expect(did).toEqual(["rented", "deleted"]);
  });

  test.each(lost)("shielded code in a branch that loses runs to its end: %s", async (name) => {
    const did: string[] = [];
    const shielded: Code = (ctx, did) => ctx.shield((c) => transfer(c, did));
    expect(await live(warm, losing(shielded, name)(did), "none")).toBe("completed");
    expect(did).toEqual(["withdrawn", "deposited"]);
  });

  /** Pays after a transfer that is not to be interrupted, and cleans up. */
  const pay: Code = async (ctx, did) => {
    try {
      await ctx.shield((c) => transfer(c, did));
      await ctx.step("pay", () => void did.push("paid"));
    } catch (error) {
      const { code, data } = error as RaceLostError;
      await ctx.step("clean up", () => void did.push(`${code} ${data.outcome?.operation}`));
      throw error;
    }
  };
  test.each(lost)("a branch that loses while its shielded code runs receives that after it: %s", async (name) => {
    const did: string[] = [];
    expect(await live(warm, losing(pay, name)(did), "none")).toBe("completed");
    expect(did).toEqual(["withdrawn", "deposited", "race_lost shield"]);
  });

  test("a race that is lost inside shielded code reaches shielded code inside that", async () => {
    const did: string[] = [];
    const body = (ctx: Context) =>
      ctx.shield((outer) =>
        outer.race<unknown>([outer.sleep("1 hour"), (c: Context) => pay(c, did)]).then(() => outer.sleep("1 hour")),
      );
    expect(await live(warm, body, "none")).toBe("completed");
    expect(did).toEqual(["withdrawn", "deposited", "race_lost shield"]);
  });

  test("shielded code that begins after its branch has lost throws nothing", async () => {
    const did: string[] = [];
    const cleaning: Code = async (ctx, did) => {
      try {
        await ctx.sleep("1 day");
      } finally {
        await ctx.shield((c) => transfer(c, did));
        await ctx.step("report", () => void did.push("reported"));
      }
    };
    expect(await live(warm, losing(cleaning, "alone")(did), "none")).toBe("completed");
    expect(did).toEqual(["withdrawn", "deposited", "reported"]);
  });

  test("shielded code that is itself a loser is not interrupted", async () => {
    const did: string[] = [];
    const body = (ctx: Context) => ctx.race<unknown>([ctx.sleep("1 hour"), ctx.shield((c) => transfer(c, did))]);
    expect(await live(warm, body, "none")).toBe("completed");
    expect(did).toEqual(["withdrawn", "deposited"]);
  });

  test("a step that runs in a branch when the run is canceled is waited for, and the error has its outcome", async () => {
    await using pawl = openTest();
    const did: unknown[] = [];
    const begun = Promise.withResolvers<void>();
    const build = async (ctx: Context): Promise<void> => {
      try {
        await ctx.step("make", async ({ abortSignal }) => {
          begun.resolve();
          await new Promise((resolve) => abortSignal.addEventListener("abort", resolve));
          return "vm-1";
        });
      } catch (error) {
        const { outcome } = (error as RunCanceledError).data;
        await ctx.step("delete", () => void did.push(outcome));
        throw error;
      }
    };
    const it = workflow("it", async (ctx) => ctx.race([build, stopped]));
    pawl.work([it], { warm });
    const run = await pawl.start(it, undefined, { id: "it" });
    await begun.promise;
    await run.cancel();
    await run.result().catch(() => {});
    expect(did).toEqual([{ operation: "make", ok: "vm-1" }]);
    expect((await run.history()).map(({ name }) => name)).toContain("step make");
  });

  const cuts: Record<string, (ctx: Context) => PromiseLike<unknown>> = {
    sleep: (ctx) => ctx.sleep("1s"),
    child: (ctx) => ctx.call(sleeper),
    signal: (ctx) => ctx.waitForSignal(stop, { timeout: "1s" }),
  };
  test.each(Object.entries(cuts))(
    "cleanup of a loser that waits when the function returns is cut off, and reported: %s",
    async (_, wait) => {
      await using pawl = openTest({ strict: false });
      const warnings: string[] = [];
      const it = workflow("it", async (ctx) =>
        ctx.race<unknown>([
          ctx.sleep("1 hour"),
          async (c: Context) => {
            try {
              await c.sleep("1 day");
            } finally {
              await wait(c);
            }
          },
        ]),
      );
      pawl.work([it, sleeper], {
        warm,
        on: (event) => void (event.type === "run.warning" && warnings.push(event.message)),
      });
      await (await pawl.start(it, undefined, { id: "it" })).result();
      expect(warnings).toEqual([expect.stringContaining("do it in ctx.shield")]);
    },
  );
});
