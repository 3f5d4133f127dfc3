/**
 * Goal: a step is tried as its policy says and no more, and an attempt that takes too long or is silent has failed.
 * Method: steps that count how often they ran, with waits of a few milliseconds. Nothing here depends on how long anything takes.
 */

import { describe, expect, test } from "vitest";
import { NonRetryableError, type StepHandle, workflow } from "../../src/index.ts";
import { gate } from "../kernel/kit.ts";
import { EVERY, endLease, factsOf, onStores, PATIENCE, reaches, resultOf, runsOn, SOON } from "./kit.ts";

onStores(EVERY, (place) => {
  const runOf = runsOn(place);

  describe("retry", () => {
    test("tries again until it succeeds, and passes the number of the attempt", async () => {
      const attempts: number[] = [];
      const keys = new Set<string>();
      const run = await runOf((ctx) =>
        ctx.step(
          "flaky",
          ({ attempt, key }) => {
            attempts.push(attempt);
            keys.add(key);
            if (attempt < 3) throw new Error("not yet");
            return "at last";
          },
          { retry: SOON },
        ),
      );
      expect(await resultOf(run)).toBe("at last");
      expect(attempts).toEqual([1, 2, 3]);
      expect(keys.size).toBe(1);
      expect(await factsOf(run)).toEqual(["started", "step flaky", "completed"]);
    });

    test.each([1, 2, 4])("makes %i attempts and no more, and the code gets the last error", async (attempts) => {
      let times = 0;
      const run = await runOf(async (ctx) => {
        const error = await ctx
          .step(
            "broken",
            () => {
              throw new Error(`no ${++times}`);
            },
            { retry: { ...SOON, attempts } },
          )
          .catch((thrown: unknown) => thrown);
        return (error as Error).message;
      });
      expect(await resultOf(run)).toBe(`no ${attempts}`);
      expect(times).toBe(attempts);
    });

    test("of the workflow applies to its steps, unless they have their own", async () => {
      const pawl = await place.open();
      const times = { one: 0, two: 0 };
      const it = workflow({ name: "it", retry: { ...SOON, attempts: 3 } }, async (ctx) => {
        const broken = (name: "one" | "two") => () => {
          times[name] += 1;
          throw new Error("no");
        };
        await ctx.step("one", broken("one")).catch(() => {});
        await ctx.step("two", broken("two"), { retry: { attempts: 2 } }).catch(() => {});
      });
      pawl.work([it]);
      await resultOf(await pawl.start(it));
      expect(times).toEqual({ one: 3, two: 2 });
    });

    test("stops at an error that `when` refuses", async () => {
      const seen: unknown[] = [];
      const run = await runOf(async (ctx) =>
        ctx.step(
          "picky",
          ({ attempt }) => Promise.reject(attempt === 1 ? new RangeError("again") : new TypeError("no")),
          {
            retry: {
              ...SOON,
              when: (error) => {
                seen.push(error);
                return error instanceof RangeError;
              },
            },
          },
        ),
      );
      await expect(resultOf(run)).rejects.toMatchObject({ cause: { name: "TypeError" } });
      expect(seen.length).toBe(2);
    });

    test("stops when `when` itself throws, with the step's own error", async () => {
      let times = 0;
      const run = await runOf(async (ctx) =>
        ctx.step("picky", () => Promise.reject(new Error(`own ${++times}`)), {
          retry: {
            ...SOON,
            when: () => {
              throw new Error("of the policy");
            },
          },
        }),
      );
      await expect(resultOf(run)).rejects.toMatchObject({ cause: { message: "own 1" } });
      expect(times).toBe(1);
    });

    test("stops at a NonRetryableError", async () => {
      let times = 0;
      const run = await runOf(async (ctx) =>
        ctx.step(
          "final",
          () => {
            times += 1;
            throw new NonRetryableError("the card is stolen");
          },
          { retry: SOON },
        ),
      );
      await expect(resultOf(run)).rejects.toMatchObject({ cause: { name: "NonRetryableError" } });
      expect(times).toBe(1);
    });

    test("that is far off is recorded, and no process is needed meanwhile", async () => {
      const times: number[] = [];
      const run = await runOf(async (ctx) =>
        ctx.step(
          "flaky",
          ({ attempt }) => {
            times.push(attempt);
            throw new Error("down");
          },
          { retry: { attempts: 3, delay: "1 hour", jitter: 0 } },
        ),
      );
      await reaches(run, "waiting");
      const [, attempt] = await run.history();
      expect(attempt).toMatchObject({ name: "attempt flaky", data: { attempts: 1, error: { message: "down" } } });
      const { dueAt } = await run.status();
      expect(attempt?.data).toMatchObject({ dueMs: dueAt?.getTime() });
      expect(times).toEqual([1]);
    });

    test("that was recorded is made by any worker, and the count continues", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const made: [string, number][] = [];
      const flaky = (by: string) =>
        workflow("flaky", async (ctx) =>
          ctx.step(
            "flaky",
            ({ attempt }) => {
              made.push([by, attempt]);
              if (attempt < 3) throw new Error("down");
              return attempt;
            },
            { retry: { attempts: 3, delay: "1 hour", jitter: 0 } },
          ),
        );
      const first = one.work([flaky("one")]);
      const run = await one.start("flaky", undefined, { id: "one" });
      await reaches(run, "waiting");
      await first.stop();
      two.work([flaky("two")]);
      // The clock is not moved here, so the run is canceled instead of waited for: it must not have been tried early.
      await run.cancel();
      await expect(resultOf(run)).rejects.toMatchObject({ code: "run_canceled" });
      expect(made).toEqual([["one", 1]]);
    });
  });

  describe("timeouts", () => {
    test("an attempt that takes too long is aborted, fails, and is tried again with a signal of its own", async () => {
      const reasons: unknown[] = [];
      const signals = new Set<AbortSignal>();
      const run = await runOf(async (ctx) =>
        ctx.step(
          "slow",
          ({ attempt, abortSignal }) => {
            signals.add(abortSignal);
            if (attempt === 3) return abortSignal.aborted;
            return new Promise((_, reject) => {
              abortSignal.addEventListener("abort", () => {
                reasons.push(abortSignal.reason);
                reject(new Error("stopped"));
              });
            });
          },
          { timeout: 10, retry: SOON },
        ),
      );
      expect(await resultOf(run)).toBe(false);
      expect(signals.size).toBe(3);
      expect(reasons).toMatchObject([{ code: "step_timeout" }, { code: "step_timeout" }]);
    });

    test("an attempt that ignores its signal is abandoned: its later result is discarded", async () => {
      const { opened, open } = gate();
      const run = await runOf(async (ctx) => {
        const value = await ctx.step("deaf", ({ attempt }) => (attempt === 1 ? opened.then(() => "late") : "on time"), {
          timeout: 10,
          retry: SOON,
        });
        await ctx.step("let go", () => {
          open();
          return new Promise((resolve) => setImmediate(resolve));
        });
        return value;
      });
      expect(await resultOf(run)).toBe("on time");
    });

    test("the error of an attempt that took too long names the step and the time", async () => {
      const run = await runOf(async (ctx) =>
        ctx.step("slow", () => new Promise(() => {}), { timeout: 10, retry: { attempts: 1 } }),
      );
      await expect(resultOf(run)).rejects.toMatchObject({
        cause: { name: "StepTimeoutError", code: "step_timeout", data: { step: "slow", timeoutMs: 10 } },
      });
    });

    test("all attempts together end with the total timeout", async () => {
      let times = 0;
      const run = await runOf(async (ctx) =>
        ctx.step("broken", () => Promise.reject(new Error(`no ${++times}`)), {
          totalTimeout: "1 minute",
          retry: { attempts: 1000, delay: "2 minutes", maxDelay: "1 hour", jitter: 0 },
        }),
      );
      // The wait before the second attempt would end after the total time, so there is none.
      await expect(resultOf(run)).rejects.toMatchObject({ cause: { message: "no 1" } });
      expect(times).toBe(1);
    });

    test("the total timeout also applies to an attempt that never ends", async () => {
      const run = await runOf(async (ctx) =>
        ctx.step(
          "slow",
          ({ abortSignal }) =>
            new Promise((_, reject) => {
              abortSignal.addEventListener("abort", () => reject(abortSignal.reason));
            }),
          { totalTimeout: 20 },
        ),
      );
      const error = await resultOf(run).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ cause: { code: "step_timeout" } });
    });
  });

  describe("heartbeats", () => {
    test("that do not come fail the attempt", async () => {
      const run = await runOf(async (ctx) =>
        ctx.step("silent", ({ attempt }) => (attempt === 1 ? new Promise(() => {}) : "spoke"), {
          heartbeat: 10,
          retry: SOON,
        }),
      );
      expect(await resultOf(run)).toBe("spoke");
    });

    test("keep the progress of the step for its next attempt", async () => {
      const run = await runOf(async (ctx) =>
        ctx.step(
          "long",
          ({ attempt, progress, heartbeat }: StepHandle) => {
            if (attempt === 1) {
              heartbeat({ rows: 10 });
              heartbeat({ rows: 20 });
              throw new Error("broke off");
            }
            return progress;
          },
          { retry: SOON },
        ),
      );
      expect(await resultOf(run)).toEqual({ rows: 20 });
    });

    test("keep it also when another worker takes over", async () => {
      const [one, two] = await Promise.all([place.openHandle(), place.open()]);
      const long = (body: (step: StepHandle) => unknown) =>
        workflow("long", async (ctx) => ctx.step("long", (step) => body(step)));
      one.pawl.work([
        long(({ heartbeat, abortSignal }) => {
          heartbeat({ rows: 10 });
          heartbeat();
          return new Promise((_, reject) => abortSignal.addEventListener("abort", () => reject(abortSignal.reason)));
        }),
      ]);
      await one.pawl.start("long", undefined, { id: "one" });
      const run = two.run("long", "one");
      await expect.poll(() => factsOf(run), PATIENCE).toEqual(["started", "progress long"]);
      one.die();
      await endLease(two, run.id);
      two.work([long(({ progress, attempt }) => [progress, attempt])]);
      expect(await resultOf(run)).toEqual([{ rows: 10 }, 1]);
    });
  });
});
