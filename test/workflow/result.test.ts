/**
 * Goal: a caller that waits for a run gets its outcome, whichever process ran it, and can stop waiting without affecting it.
 * Method: one run for each way to end, on every store, waited for by the handle that works and by one that does not.
 */

import { describe, expect, test } from "vitest";
import { type Pawl, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE, reaches, resultOf } from "./kit.ts";

const go = signal<number>("go");
const waits = workflow("waits", async (ctx) => (await ctx.waitForSignal(go)).value);

class CardError extends Error {
  override readonly name = "CardError";
  readonly reason = "expired";
}

const fails = workflow("fails", async () => {
  throw new CardError("no money");
});
const late = workflow({ name: "late", timeout: 20 }, async (ctx) => {
  await ctx.sleep("1 hour");
});
interface Made {
  readonly name: string;
  readonly id: string;
}

/** How runs end that do not complete, what is thrown for each, and the status it leaves. */
const endings: readonly [string, (pawl: Pawl) => Promise<Made>, object, string][] = [
  [
    "failed",
    async (pawl) => ({ name: "fails", id: (await pawl.start(fails)).id }),
    { code: "run_failed", cause: { name: "CardError", message: "no money", reason: "expired" } },
    "failed",
  ],
  [
    "was canceled",
    async (pawl) => {
      const run = await pawl.start(waits);
      await run.cancel({ reason: "changed my mind" });
      return { name: "waits", id: run.id };
    },
    { code: "run_canceled", data: { reason: "changed my mind" } },
    "canceled",
  ],
  [
    "timed out",
    async (pawl) => ({ name: "late", id: (await pawl.start(late)).id }),
    { code: "run_timed_out" },
    "timed_out",
  ],
];

onStores(EVERY, (place) => {
  describe.each(endings)("of a run that %s", (_, make, thrown, status) => {
    test("the result is the error of that outcome, here and at another handle, early and late", async () => {
      const [here, there] = await Promise.all([place.open(), place.open()]);
      here.work([waits, fails, late]);
      const { name, id } = await make(here);
      const runs = [here.run(name, id), there.run(name, id)];
      const early = await Promise.all(runs.map((run) => resultOf(run).catch((error: unknown) => error)));
      const later = await Promise.all(runs.map((run) => resultOf(run).catch((error: unknown) => error)));
      for (const error of [...early, ...later]) {
        expect(error).toBeInstanceOf(Error);
        expect(error).toMatchObject({ data: { run: id }, ...thrown });
      }
      expect((await there.run(name, id).status()).status).toBe(status);
    });
  });

  test("a run that was canceled before it began reports the reason, too", async () => {
    const pawl = await place.open();
    const run = await pawl.start(waits, undefined, { delay: "1 hour" });
    await run.cancel({ reason: "too late" });
    await expect(resultOf(run)).rejects.toMatchObject({ code: "run_canceled", data: { reason: "too late" } });
  });

  test("of a run that does not exist is run_not_found, for every method", async () => {
    const pawl = await place.open();
    const run = pawl.run(waits, "nobody");
    const asked = [
      run.result(),
      run.status(),
      run.history(),
      run.signal(go, 1),
      run.cancel(),
      run.retry(),
      run.resolveStep("x", { done: false }),
    ];
    expect(await Promise.all(asked.map(codeOf))).toEqual(asked.map(() => "run_not_found"));
  });

  test("is not returned to a handle that names another workflow", async () => {
    const pawl = await place.open();
    pawl.work([waits]);
    const run = await pawl.start(waits);
    await run.signal(go, 1);
    expect(await resultOf(run)).toBe(1);
    expect(await codeOf(resultOf(pawl.run("fails", run.id)))).toBe("run_conflict");
  });

  test("of a run on another handle comes when that one ends it", async () => {
    const [front, back] = await Promise.all([place.open(), place.open()]);
    back.work([waits]);
    const run = await front.start(waits);
    await reaches(run, "waiting");
    const results = [run, back.run(waits, run.id), front.run(waits, run.id)].map(resultOf);
    await front.run(waits, run.id).signal(go, 7);
    expect(await Promise.all(results)).toEqual([7, 7, 7]);
  });

  test("that is requested at the moment of the run's end is returned", async () => {
    const pawl = await place.open();
    const it = workflow("it", async (ctx) => ctx.step("a", () => 7));
    pawl.work([it]);
    const { promise, resolve } = Promise.withResolvers<unknown>();
    const unlisten = pawl.kernel.listen((puts) => {
      // There is no second notification; a caller that does not look now looks after five seconds.
      for (const { row } of puts ?? [])
        if (row.status === "completed") resolve(pawl.run(it, row.key).result({ timeout: "2s" }));
    });
    await pawl.start(it);
    expect(await promise).toBe(7);
    unlisten();
  });

  test("that does not come in time is result_timeout, and the run continues", async () => {
    const pawl = await place.open();
    pawl.work([waits]);
    const run = await pawl.start(waits);
    await expect(run.result({ timeout: 10 })).rejects.toMatchObject({
      code: "result_timeout",
      data: { run: run.id, timeoutMs: 10 },
    });
    await run.signal(go, 1);
    expect(await resultOf(run)).toBe(1);
  });

  test("can be abandoned with an abort signal, before and while it is waited for, and the run continues", async () => {
    const pawl = await place.open();
    pawl.work([waits]);
    const run = await pawl.start(waits);
    const abort = new AbortController();
    const waiting = run.result({ abortSignal: abort.signal });
    const reason = new Error("enough");
    abort.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    await expect(run.result({ abortSignal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await run.signal(go, 1);
    expect(await resultOf(run)).toBe(1);
  });

  test("has passed through the codec: types are kept, and undefined is undefined", async () => {
    const pawl = await place.open();
    const rich = { at: new Date(5), big: 12n, map: new Map([["a", new Set([1])]]), nothing: undefined };
    pawl.work([workflow("rich", async () => rich), workflow("void", async () => {})]);
    expect(await resultOf(await pawl.start("rich"))).toEqual(rich);
    expect(await resultOf(await pawl.start("void"))).toBe(undefined);
  });

  test("that cannot be stored fails the run, and its steps are not repeated", async () => {
    const pawl = await place.open();
    let times = 0;
    const odd = workflow("odd", async (ctx) => {
      await ctx.step("count", () => ++times);
      return () => {};
    });
    pawl.work([odd]);
    const run = await pawl.start(odd);
    await expect(resultOf(run)).rejects.toMatchObject({
      code: "run_failed",
      cause: {
        name: "InvalidValueError",
        message: `cannot store the result of run "${run.id}" at $: it is a function`,
      },
    });
    expect(times).toBe(1);
  });

  test("an error that cannot be stored as a whole keeps its message", async () => {
    const pawl = await place.open();
    const odd = workflow("odd", () => Promise.reject({ message: "not even an error", act: () => {} }));
    const long = workflow("long", async () => {
      throw new Error("x".repeat(2 ** 21));
    });
    pawl.work([odd, long]);
    await expect(resultOf(await pawl.start(odd))).rejects.toMatchObject({ code: "run_failed" });
    await expect(resultOf(await pawl.start(long))).rejects.toMatchObject({ code: "run_failed" });
  });

  test("code that awaits something other than an operation resumes when it comes", async () => {
    const pawl = await place.open();
    const { promise, resolve } = Promise.withResolvers<number>();
    const foreign = workflow("foreign", async (ctx) => {
      const value = await promise;
      return ctx.step("double", () => value * 2);
    });
    pawl.work([foreign]);
    const run = await pawl.start(foreign);
    await expect.poll(async () => (await run.status()).status, PATIENCE).toBe("running");
    resolve(21);
    expect(await resultOf(run)).toBe(42);
  });
});

describe("schemas", () => {
  const number = {
    "~standard": {
      version: 1 as const,
      vendor: "test",
      validate: (value: unknown) =>
        Number.isInteger(Number(value))
          ? { value: Number(value) }
          : { issues: [{ message: "no number", path: ["n"] }] },
    },
  };

  onStores(["memory"], (place) => {
    test("of the input check and change what a run is started with", async () => {
      const pawl = await place.open();
      const half = workflow({ name: "half", input: number }, async (_ctx, n) => n / 2);
      pawl.work([half]);
      // What comes in over the wire is often text.
      expect(await resultOf(await pawl.start("half", 8))).toBe(4);
      const loose: { name: string } = half;
      expect(await codeOf(pawl.start(loose as typeof half, Number.NaN))).toBe("schema_mismatch");
      expect((await pawl.runs.list()).runs.length).toBe(1);
    });

    test("of the output fail a run that returns something else", async () => {
      const pawl = await place.open();
      const wrong = workflow({ name: "wrong", output: number }, async () => Number.NaN);
      pawl.work([wrong]);
      await expect(resultOf(await pawl.start(wrong))).rejects.toMatchObject({
        code: "run_failed",
        cause: { data: { issues: [{ message: "no number", path: "n" }] } },
      });
    });

    const silent = {
      "~standard": { ...number["~standard"], validate: () => new Promise<{ value: number }>(() => {}) },
    };

    test("of the output that never return fail the run", async () => {
      await using pawl = openTest();
      const stuck = workflow({ name: "stuck", output: silent }, async () => 1);
      pawl.work([stuck]);
      const run = await pawl.start(stuck);
      await pawl.clock.advance("2 minutes");
      await expect(run.result()).rejects.toMatchObject({
        cause: { message: expect.stringContaining("did not settle") },
      });
    });

    test("of the output that never return count in the timeout of the run", async () => {
      await using pawl = openTest();
      const stuck = workflow({ name: "stuck", output: silent, timeout: "5s" }, async () => 1);
      pawl.work([stuck]);
      const run = await pawl.start(stuck);
      await expect(run.result()).rejects.toMatchObject({ code: "run_timed_out" });
      const { status, startedAt, endedAt } = await run.status();
      expect([status, Number(endedAt) - Number(startedAt)]).toEqual(["timed_out", 5000]);
    });

    test("of the output that never return count in the grace of a run that was canceled", async () => {
      await using pawl = openTest();
      const stuck = workflow({ name: "stuck", output: silent, grace: "5s" }, async (ctx) => {
        await ctx.sleep("1 day").catch(() => {});
        return 1;
      });
      pawl.work([stuck]);
      const run = await pawl.start(stuck);
      await run.until("waiting");
      await run.cancel();
      await expect(run.result()).rejects.toMatchObject({ code: "run_canceled" });
    });

    test("of an input or a signal that never return are given up after the patience, and nothing is written", async () => {
      await using pawl = openTest();
      const started = workflow({ name: "started", input: silent }, async () => 1);
      const late = (what: string) => ({ code: "callback_timeout", data: { what, timeoutMs: 30_000 } });
      await expect(pawl.clock.during(pawl.start(started, 1, { id: "a" }))).rejects.toMatchObject(
        late("the schema of the run's input"),
      );
      expect(
        await pawl
          .run("a")
          .status()
          .catch((error: unknown) => error),
      ).toMatchObject({ code: "run_not_found" });
      const counts = workflow("counts", async (ctx) => (await ctx.waitForSignal(signal<number>("count"))).value);
      pawl.work([counts]);
      const run = await pawl.start(counts);
      await expect(pawl.clock.during(run.signal(signal("count", silent), 1))).rejects.toMatchObject(
        late('the schema of the signal "count"'),
      );
      expect((await run.status()).status).toBe("waiting");
    });

    test("of a signal refuse what does not fit, and nothing is sent", async () => {
      const pawl = await place.open();
      const count = signal("count", number);
      const counts = workflow("counts", async (ctx) => (await ctx.waitForSignal(count)).value);
      pawl.work([counts]);
      const run = await pawl.start(counts);
      expect(await codeOf(run.signal(count, Number.NaN))).toBe("schema_mismatch");
      expect(await codeOf(pawl.transact((tx) => tx.signal(run.id, count, Number.NaN)))).toBe("schema_mismatch");
      await run.signal(count, 3);
      expect(await resultOf(run)).toBe(3);
    });
  });
});
