/**
 * Goal: the result of a step is stored once, under a key that is its own, and what may happen at most once is not repeated on a guess.
 * Method: steps that count how often they ran, or that end with their process. Nothing here depends on how long anything takes.
 */

import { describe, expect, test } from "vitest";
import { type StepHandle, workflow } from "../../src/index.ts";
import { gate } from "../kernel/kit.ts";
import { EVERY, endLease, factsOf, onStores, PATIENCE, resultOf, runsOn, SOON } from "./kit.ts";

onStores(EVERY, (place) => {
  const runOf = runsOn(place);

  describe("results", () => {
    test("are what replay will return, also the first time", async () => {
      const run = await runOf(async (ctx) => {
        const given = { at: new Date(1), list: [1] };
        const got = await ctx.step("get", () => given);
        return [got === given, got.at instanceof Date, got.list];
      });
      expect(await resultOf(run)).toEqual([false, true, [1]]);
    });

    const odd: [string, () => unknown][] = [
      ["a function", () => () => {}],
      [
        "a cycle",
        () => {
          const loop: Record<string, unknown> = {};
          loop["loop"] = loop;
          return loop;
        },
      ],
      ["too much", () => "x".repeat(2 ** 21)],
    ];
    test.each(odd)("that cannot be stored fail the step, once: %s", async (_, give) => {
      let times = 0;
      const run = await runOf(async (ctx) => {
        const error = await ctx
          .step(
            "odd",
            () => {
              times += 1;
              return give();
            },
            { retry: SOON },
          )
          .catch((thrown: unknown) => thrown);
        const { code, message } = error as { code: string; message: string };
        return [code, message];
      });
      const [code, message] = (await resultOf(run)) as [string, string];
      expect(["invalid_value", "value_too_large"]).toContain(code);
      // It says which step, and where in its result; the record around it is internal.
      expect(message).toContain('the result of step "odd"');
      expect(message).not.toContain("$.ok");
      expect(times).toBe(1);
    });

    const revoked = (): object => {
      const { proxy, revoke } = Proxy.revocable({}, {});
      revoke();
      return proxy;
    };
    const traps: [string, () => unknown][] = [
      ["gives a revoked proxy", revoked],
      [
        "gives a thenable that throws",
        () => ({
          // biome-ignore lint/suspicious/noThenProperty: that is the trap.
          then() {
            throw new Error("trap");
          },
        }),
      ],
      [
        "gives an object whose then throws when it is read",
        () => ({
          // biome-ignore lint/suspicious/noThenProperty: that is the trap.
          get then() {
            throw new Error("trap");
          },
        }),
      ],
      [
        "throws a revoked proxy",
        () => {
          throw revoked();
        },
      ],
    ];
    test.each(traps)("a function that %s fails the step, and affects nothing else", async (_, give) => {
      const run = await runOf(async (ctx) =>
        ctx.step("trap", give, { retry: { attempts: 1 } }).then(
          () => "succeeded",
          () => "failed",
        ),
      );
      expect(await resultOf(run)).toBe("failed");
    });

    test("a workflow that throws a revoked proxy fails", async () => {
      const run = await runOf(async () => {
        throw revoked();
      });
      await expect(resultOf(run)).rejects.toMatchObject({ code: "run_failed" });
    });

    test("undefined is a result", async () => {
      const run = await runOf(async (ctx) => (await ctx.step("nothing", () => {})) === undefined);
      expect(await resultOf(run)).toBe(true);
    });

    test("errors are thrown again with name, message and their other properties", async () => {
      const run = await runOf(async (ctx) => {
        const thrown = Object.assign(new RangeError("too far"), { status: 402 });
        const error = await ctx.step("fail", () => Promise.reject(thrown), { retry: { attempts: 1 } }).catch((e) => e);
        const { name, message, status } = error as Error & { status: number };
        return [error === thrown, name, message, status];
      });
      expect(await resultOf(run)).toEqual([false, "RangeError", "too far", 402]);
    });
  });

  describe("keys", () => {
    test("tell steps apart by name, occurrence and id, and runs from each other", async () => {
      const pawl = await place.open();
      const keyed = workflow("keyed", async (ctx) => {
        const keyOf = ({ key }: StepHandle) => key;
        return [
          await ctx.step("a", keyOf),
          await ctx.step("a", keyOf),
          await ctx.step("b", keyOf),
          await ctx.step("a", keyOf, { id: "x" }),
          await ctx.step("a", keyOf, { id: "y" }),
          await ctx.step.atMostOnce("c", keyOf),
        ];
      });
      pawl.work([keyed]);
      const keys = (await Promise.all([1, 2].map(async () => resultOf(await pawl.start(keyed))))).flat();
      expect(new Set(keys).size).toBe(12);
    });

    test("the same name twice concurrently is refused, and the error says what to do", async () => {
      const run = await runOf(async (ctx) => {
        const both = await Promise.allSettled([ctx.step("a", () => 1), ctx.step("a", () => 2)]);
        return both.map((one) => (one.status === "fulfilled" ? one.value : (one.reason as { code: string }).code));
      });
      expect(await resultOf(run)).toEqual([1, "step_in_flight"]);
    });

    test("with ids of their own they may run concurrently", async () => {
      const run = await runOf(async (ctx) =>
        Promise.all(["x", "y", "z"].map((id) => ctx.step("a", async () => id, { id }))),
      );
      expect(await resultOf(run)).toEqual(["x", "y", "z"]);
    });
  });

  describe("at most once", () => {
    test("the intent is durable before the step runs, and shares a commit with the result before it", async () => {
      const pawl = await place.open();
      let seen: string[] = [];
      const it = workflow("it", async (ctx) => {
        await ctx.step("before", () => 1);
        return ctx.step.atMostOnce("charge", async () => {
          seen = await factsOf(pawl.run(it, "one"));
          return "done";
        });
      });
      pawl.work([it]);
      expect(await resultOf(await pawl.start(it, undefined, { id: "one" }))).toBe("done");
      expect(seen).toEqual(["started", "step before", "intent charge"]);
    });

    test("one that fails is not tried again", async () => {
      let times = 0;
      const run = await runOf(async (ctx) =>
        ctx.step.atMostOnce("charge", () => Promise.reject(new Error(`no ${++times}`))),
      );
      await expect(resultOf(run)).rejects.toMatchObject({ cause: { message: "no 1" } });
      expect(times).toBe(1);
    });

    test("one that loses a race while its intent is written did not happen: nobody is asked after a retry", async () => {
      const [{ pawl, hold }, other] = await Promise.all([place.openHandle(), place.open()]);
      const [written, seen, charged] = [gate(), gate(), gate()];
      let isMended = false;
      const it = workflow("it", async (ctx) => {
        const fails = ctx.step(
          "fails",
          async () => {
            await (isMended ? charged : written).opened;
            if (!isMended) throw new Error("no");
          },
          { retry: { attempts: 1 } },
        );
        try {
          await ctx.race([
            fails,
            async (inside) => {
              // The reply of the commit with the intent comes when the code has seen the failure.
              await inside.step("before", () => hold("answer", seen.opened));
              await inside.step.atMostOnce("charge", () => charged.open());
              await inside.sleep("1 day");
            },
          ]);
        } catch (error) {
          seen.open();
          throw error;
        }
      });
      pawl.work([it]);
      const run = await pawl.start(it, undefined, { id: "one" });
      const known = () => factsOf(other.run("it", "one"));
      await expect.poll(known, PATIENCE).toContain("intent charge");
      written.open();
      await expect(resultOf(run)).rejects.toMatchObject({ code: "run_failed" });
      expect((await known()).slice(1)).toEqual([
        "step before",
        "intent charge",
        "step fails",
        "undone charge",
        "failed",
      ]);
      isMended = true;
      await run.retry();
      await resultOf(run);
      await charged.opened;
    });

    const answers: [string, unknown, unknown, number][] = [
      ["it happened: its value is taken, and it does not run", { done: true, value: "charged" }, "charged", 0],
      ["it did not: it runs", { done: false }, "ran", 1],
    ];
    test.each(answers)("after a crash reconcile is called. %s", async (_, answer, result, expected) => {
      const [one, two] = await Promise.all([place.openHandle(), place.open()]);
      let times = 0;
      const keys: string[] = [];
      const charge = (run: (step: StepHandle) => unknown) =>
        workflow("charge", async (ctx) =>
          ctx.step.atMostOnce("charge", run, {
            reconcile: ({ key }) => {
              keys.push(key);
              return answer as { done: false };
            },
          }),
        );
      one.pawl.work([
        charge(({ key, abortSignal }) => {
          keys.push(key);
          return new Promise((_, reject) => abortSignal.addEventListener("abort", () => reject(abortSignal.reason)));
        }),
      ]);
      await one.pawl.start("charge", undefined, { id: "one" });
      const run = two.run("charge", "one");
      await expect.poll(() => keys.length, PATIENCE).toBe(1);
      one.die();
      await endLease(two, "one");
      two.work([
        charge(() => {
          times += 1;
          return "ran";
        }),
      ]);
      expect(await resultOf(run)).toBe(result);
      expect(times).toBe(expected);
      expect(new Set(keys).size).toBe(1);
    });

    const unknowns: [string, (() => unknown) | undefined][] = [
      ["says unknown", () => ({ unknown: true })],
      ["throws", () => Promise.reject(new Error("no answer"))],
      ["is not there", undefined],
      ["returns nothing", () => undefined],
      ["returns a word", () => "done"],
      ["says done without saying it", () => ({ done: "false" })],
      ["does not say whether it was done", () => ({ done: undefined })],
    ];
    test.each(unknowns)(
      "where reconcile %s, the run is parked, and an operator resolves the outcome",
      async (_, reconcile) => {
        const [one, two] = await Promise.all([place.openHandle(), place.open()]);
        let times = 0;
        const charge = workflow("charge", async (ctx) => {
          const charged = await ctx.step.atMostOnce(
            "charge",
            ({ abortSignal }) => {
              times += 1;
              return new Promise((_, reject) =>
                abortSignal.addEventListener("abort", () => reject(abortSignal.reason)),
              );
            },
            { reconcile: reconcile as (() => { unknown: true }) | undefined },
          );
          return ctx.step("after", () => `after ${charged}`);
        });
        one.pawl.work([charge]);
        const run = two.run(charge, (await one.pawl.start(charge, undefined, { id: "one" })).id);
        await expect.poll(() => times, PATIENCE).toBe(1);
        one.die();
        await endLease(two, "one");
        two.work([charge]);
        await expect(resultOf(run)).rejects.toMatchObject({ code: "run_parked" });
        expect((await run.status()).parkedReason).toMatch(
          /^step "charge" may or may not have happened.*: find out, then call run\.resolveStep\("charge", /,
        );
        await run.resolveStep("charge", { done: true, value: "paid" });
        expect(await resultOf(run)).toBe("after paid");
        expect(times).toBe(1);
      },
    );
  });

  test("the worker's listener is notified of what happens, and a listener that throws affects nothing", async () => {
    const told: string[] = [];
    const run = await runOf(
      async (ctx) => {
        ctx.log("hello", { a: 1 });
        await ctx.step("a", ({ attempt }) => (attempt === 1 ? Promise.reject(new Error("no")) : 1), { retry: SOON });
        await ctx.step("b", () => Promise.reject(new Error("no")), { retry: { attempts: 1 } }).catch(() => {});
      },
      ({ type, step, message }) => {
        told.push([type, step ?? message].filter(Boolean).join(" "));
        throw new Error("of the listener");
      },
    );
    await resultOf(run);
    await expect.poll(() => told.at(-1), PATIENCE).toBe("run.ended");
    expect(told).toContain("log hello");
    expect(told).toContain("step.completed a");
    expect(told).toContain("step.failed b");
  });
});
