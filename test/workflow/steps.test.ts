/**
 * Goal: a step is tried as its policy says and no more, and its result is stored once, for each of the three kinds.
 * Method: steps that count how often they ran, with waits of a few milliseconds. Nothing here depends on how long anything takes.
 */

import { describe, expect, test } from "vitest";
import {
  type Context,
  NonRetryableError,
  type RunEvent,
  type Sql,
  type StepHandle,
  workflow,
} from "../../src/index.ts";
import { gate } from "../kernel/kit.ts";
import { EVERY, endLease, factsOf, loseLease, onStores, PATIENCE, reaches, resultOf, SQL } from "./kit.ts";

const SOON = { delay: 1, jitter: 0 } as const;

onStores(EVERY, (place) => {
  /** Runs this as a workflow of its own. */
  async function runOf<T>(body: (ctx: Context) => PromiseLike<T>, on?: (event: RunEvent) => void) {
    const pawl = await place.open();
    const it = workflow("it", body);
    pawl.work([it], { on });
    return pawl.start(it, undefined, { id: "one" });
  }

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

onStores(SQL, (place) => {
  async function shop() {
    const plain = await place.connect();
    await plain.query("create table if not exists orders (id text primary key, by_run text)");
    await plain.query("delete from orders");
    return { plain, rows: async () => (await plain.query("select id from orders order by id")).map(({ id }) => id) };
  }

  describe("step.tx", () => {
    test("commits the user's SQL and the step's record together", async () => {
      const { rows } = await shop();
      const pawl = await place.open();
      const order = workflow("order", async (ctx, id: string) =>
        ctx.step.tx("insert", async (sql, { key }) => {
          await sql.query(place.says("insert into orders values (?, ?)"), [id, key]);
          const { rows: found } = await sql.query<{ n: number }>("select count(*) as n from orders");
          return Number(found[0]?.n);
        }),
      );
      pawl.work([order]);
      const run = await pawl.start(order, "o1");
      expect(await resultOf(run)).toBe(1);
      expect(await rows()).toEqual(["o1"]);
      expect(await factsOf(run)).toEqual(["started", "step insert", "completed"]);
    });

    test("leaves nothing of an attempt that threw, and tries again", async () => {
      const { rows } = await shop();
      const pawl = await place.open();
      const order = workflow("order", async (ctx) =>
        ctx.step.tx(
          "insert",
          async (sql, { attempt }) => {
            await sql.query(place.says("insert into orders values (?, ?)"), [`o${attempt}`, ""]);
            if (attempt < 3) throw new Error("no");
            return attempt;
          },
          { retry: SOON },
        ),
      );
      pawl.work([order]);
      expect(await resultOf(await pawl.start(order))).toBe(3);
      expect(await rows()).toEqual(["o3"]);
    });

    test("an attempt that ends its transaction itself has failed", async () => {
      const pawl = await place.open();
      let calls = 0;
      const order = workflow("order", async (ctx) =>
        ctx.step.tx(
          "insert",
          async (sql) => {
            calls += 1;
            await sql.query("rollback");
          },
          { retry: { ...SOON, attempts: 2 } },
        ),
      );
      pawl.work([order]);
      const run = await pawl.start(order);
      await expect(resultOf(run)).rejects.toMatchObject({
        cause: { message: "a statement ended the transaction, which Pawl shares: do not run commit or rollback in it" },
      });
      expect(calls).toBe(2);
    });

    test("a transaction that was kept cannot be used afterwards", async () => {
      const { rows } = await shop();
      const pawl = await place.open();
      let kept: Sql | undefined;
      const order = workflow("order", async (ctx) =>
        ctx.step.tx("insert", async (sql) => {
          kept = sql;
        }),
      );
      pawl.work([order]);
      await resultOf(await pawl.start(order));
      await expect(kept?.query("insert into orders values ('late', '')")).rejects.toMatchObject({ code: "sql_over" });
      expect(await rows()).toEqual([]);
    });

    test("of a worker that lost the run writes nothing, and its successor's is committed once", async () => {
      const { rows } = await shop();
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const begun = gate();
      const { opened, open } = gate();
      const order = (id: string, before: () => Promise<void>) =>
        workflow("order", async (ctx) => {
          // SQLite has one transaction that writes at a time, so there the old worker stops before it opens its own.
          if (place.store === "SQLite") await ctx.step("before", before);
          return ctx.step.tx("insert", async (sql) => {
            if (place.store !== "SQLite") await before();
            await sql.query(place.says("insert into orders values (?, ?)"), [id, ""]);
            return id;
          });
        });
      const lost: string[] = [];
      const stops = order("old", async () => {
        begun.open();
        await opened;
      });
      // With its one place in use, it does not claim the run again itself.
      one.work([stops], { concurrency: 1, lease: 1_000, on: ({ type }) => lost.push(type) });
      const run = await one.start("order", undefined, { id: "one" });
      await begun.opened;
      two.work([order("new", async () => {})]);
      await loseLease(one, "one");
      expect(await resultOf(two.run("order", "one"))).toBe("new");
      open();
      await expect.poll(() => lost, PATIENCE).toContain("run.lost");
      expect(await resultOf(run)).toBe("new");
      expect(await rows()).toEqual(["new"]);
    });
  });

  describe("step.tx.within", () => {
    test("records the step in the transaction of the user's own library", async () => {
      const { plain, rows } = await shop();
      const pawl = await place.open();
      const order = workflow("order", async (ctx, id: string) =>
        ctx.step.tx.within<string>("insert", async (record) => {
          await plain.query("begin");
          await plain.query("insert into orders values (?, ?)", id, "");
          await record(plain.executor, `inserted ${id}`);
          await plain.query("commit");
        }),
      );
      pawl.work([order]);
      const run = await pawl.start(order, "o1");
      expect(await resultOf(run)).toBe("inserted o1");
      expect(await rows()).toEqual(["o1"]);
      expect(await factsOf(run)).toEqual(["started", "step insert", "completed"]);
    });

    test("a function that never records fails the step", async () => {
      const pawl = await place.open();
      const order = workflow("order", async (ctx) =>
        ctx.step.tx.within<string>("insert", async () => "done", { retry: { attempts: 1 } }),
      );
      pawl.work([order]);
      await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
        cause: { message: expect.stringMatching(/record/) },
      });
    });

    test("continues with other steps after it, and concurrent ones", async () => {
      const { plain, rows } = await shop();
      const pawl = await place.open();
      const order = workflow("order", async (ctx) => {
        const seen: unknown[] = [];
        for (const id of ["a", "b", "c"]) {
          const both = await Promise.all([
            ctx.step.tx.within<string>("insert", async (record) => {
              await plain.query("begin");
              await plain.query("insert into orders values (?, ?)", id, "");
              await record(plain.executor, id);
              await plain.query("commit");
            }),
            ctx.step("beside", () => `beside ${id}`),
          ]);
          seen.push(...both);
        }
        return seen;
      });
      pawl.work([order]);
      const run = await pawl.start(order);
      expect(await resultOf(run)).toEqual(["a", "beside a", "b", "beside b", "c", "beside c"]);
      expect(await rows()).toEqual(["a", "b", "c"]);
      const facts = await factsOf(run);
      expect(facts.filter((name) => name.startsWith("step ")).length).toBe(6);
    });
  });
});

onStores(["memory"], (place) => {
  test("step.tx.sync says that this store has no SQL", async () => {
    const pawl = await place.open();
    const order = workflow("order", async (ctx) => ctx.step.tx.sync("insert", () => 1, { retry: { attempts: 1 } }));
    pawl.work([order]);
    await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
      cause: { message: expect.stringMatching(/SQL/) },
    });
  });

  test("step.tx says that this store has no SQL", async () => {
    const pawl = await place.open();
    const order = workflow("order", async (ctx) =>
      ctx.step.tx("insert", async (sql) => sql.query("select 1"), { retry: { attempts: 1 } }),
    );
    pawl.work([order]);
    await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
      code: "run_failed",
      cause: { message: expect.stringMatching(/SQL/) },
    });
  });
});

onStores(["SQLite"], (place) => {
  describe("step.tx.sync", () => {
    async function orders() {
      const plain = await place.connect();
      await plain.query("create table if not exists orders (id text primary key, by_run text)");
      await plain.query("delete from orders");
      return async () => (await plain.query("select id from orders order by id")).map(({ id }) => id);
    }

    test("commits the user's SQL and the step's record together", async () => {
      const rows = await orders();
      const pawl = await place.open();
      const order = workflow("order", async (ctx, id: string) =>
        ctx.step.tx.sync("insert", (db, { key }) => {
          const { changes } = db.prepare("insert into orders values (?, :key)").run({ key }, id);
          const [first] = db.prepare("select by_run from orders where id = ?").all<{ by_run: string }>(id);
          const count = db.prepare("select count(*) as n from orders").get<{ n: number }>();
          return { changes, isMine: first?.by_run === key, count: count?.n };
        }),
      );
      pawl.work([order]);
      const run = await pawl.start(order, "o1");
      expect(await resultOf(run)).toEqual({ changes: 1, isMine: true, count: 1 });
      expect(await rows()).toEqual(["o1"]);
      expect(await factsOf(run)).toEqual(["started", "step insert", "completed"]);
    });

    test("leaves nothing of an attempt that threw, and tries again", async () => {
      const rows = await orders();
      const pawl = await place.open();
      const order = workflow("order", async (ctx) =>
        ctx.step.tx.sync(
          "insert",
          (db, { attempt }) => {
            db.prepare("insert into orders values (?, '')").run(`o${attempt}`);
            if (attempt < 3) throw new Error("no");
            return attempt;
          },
          { retry: SOON },
        ),
      );
      pawl.work([order]);
      expect(await resultOf(await pawl.start(order))).toBe(3);
      expect(await rows()).toEqual(["o3"]);
    });

    test("a function that returns a promise is refused, and what it did is rolled back", async () => {
      const rows = await orders();
      const pawl = await place.open();
      let calls = 0;
      const order = workflow("order", async (ctx) =>
        // @ts-expect-error The type says so as well.
        ctx.step.tx.sync("insert", async (db) => {
          calls += 1;
          db.prepare("insert into orders values ('o1', '')").run();
          throw new Error("nobody hears of this");
        }),
      );
      pawl.work([order]);
      await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
        cause: { message: expect.stringMatching(/must be synchronous.*use ctx\.step\.tx/) },
      });
      expect(calls).toBe(1);
      expect(await rows()).toEqual([]);
    });

    test("a database or a statement that was kept cannot be used afterwards", async () => {
      const rows = await orders();
      const pawl = await place.open();
      const kept: (() => unknown)[] = [];
      const order = workflow("order", async (ctx) =>
        ctx.step.tx.sync("insert", (db) => {
          const statement = db.prepare("insert into orders values ('late', '')");
          kept.push(
            () => statement.run(),
            () => db.prepare("delete from orders"),
          );
        }),
      );
      pawl.work([order]);
      await resultOf(await pawl.start(order));
      for (const use of kept) expect(use).toThrow(expect.objectContaining({ code: "sql_over" }));
      expect(await rows()).toEqual([]);
    });

    test("an attempt that ends its transaction itself has failed", async () => {
      const pawl = await place.open();
      const order = workflow("order", async (ctx) =>
        ctx.step.tx.sync("insert", (db) => void db.prepare("rollback").run(), { retry: { attempts: 1 } }),
      );
      pawl.work([order]);
      await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
        cause: { message: "a statement ended the transaction, which Pawl shares: do not run commit or rollback in it" },
      });
    });
  });
});

onStores(["SQLite"], (place) => {
  test.each(["tx", "sync"] as const)(
    "step.%s: what comes after a statement that ended the transaction by failing does not happen",
    async (kind) => {
      const plain = await place.connect();
      await plain.query("create table if not exists seats (id text primary key)");
      await plain.query("delete from seats");
      const pawl = await place.open();
      const ENDS = "insert or rollback into seats values ('a')";
      const NEXT = "insert into seats values ('b')";
      const take = workflow("take", async (ctx) => {
        const options = { retry: { attempts: 1 } };
        if (kind === "tx")
          return ctx.step.tx(
            "insert",
            async (sql) => {
              await sql.query(ENDS);
              await sql.query(ENDS).catch(() => {});
              await sql.query(NEXT).catch(() => {});
            },
            options,
          );
        return ctx.step.tx.sync(
          "insert",
          (db) => {
            for (const text of [ENDS, ENDS, NEXT])
              try {
                db.prepare(text).run();
              } catch {
                // The code ignores the error.
              }
          },
          options,
        );
      });
      pawl.work([take]);
      await expect(resultOf(await pawl.start(take))).rejects.toMatchObject({
        cause: { message: "a statement ended the transaction, which Pawl shares: do not run commit or rollback in it" },
      });
      expect(await plain.query("select id from seats")).toEqual([]);
    },
  );
});

onStores(["PostgreSQL"], (place) => {
  test("step.tx.sync says what to use instead", async () => {
    const pawl = await place.open();
    const order = workflow("order", async (ctx) => ctx.step.tx.sync("insert", () => 1));
    pawl.work([order]);
    await expect(resultOf(await pawl.start(order))).rejects.toMatchObject({
      cause: { message: "ctx.step.tx.sync needs SQLite: elsewhere, use ctx.step.tx" },
    });
  });
});
