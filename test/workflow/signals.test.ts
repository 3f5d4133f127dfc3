/**
 * Goal: what is sent to a run is kept until it is received, in order and once, and each wait has one outcome.
 * Method: signals that come early, late, twice and together with a timeout, to runs that are warm, cold and not begun.
 */

import { describe, expect, test } from "vitest";
import { signal, workflow } from "../../src/index.ts";
import { codeOf, gate } from "../kernel/kit.ts";
import { EVERY, endLease, factsOf, onStores, PATIENCE, reaches, resultOf } from "./kit.ts";

const go = signal<number>("go");
const stop = signal<number>("stop");

/** Receives `count` signals, one after the other. */
const receives = workflow("receives", async (ctx, count: number) => {
  const got: number[] = [];
  while (got.length < count) got.push((await ctx.waitForSignal(go)).value);
  return got;
});

onStores(EVERY, (place) => {
  describe.each([1000, 0])("with %i warm runs", (warm) => {
    test("signals that come before they are waited for are kept, and received in the order they came", async () => {
      const pawl = await place.open();
      const run = await pawl.start(receives, 3);
      for (const n of [1, 2, 3]) await run.signal(go, n);
      pawl.work([receives], { warm });
      expect(await resultOf(run)).toEqual([1, 2, 3]);
    });

    test("signals that come while it waits are received in the order they came", async () => {
      const pawl = await place.open();
      pawl.work([receives], { warm });
      const run = await pawl.start(receives, 3);
      for (const n of [1, 2, 3]) {
        await reaches(run, "waiting");
        await run.signal(go, n);
      }
      expect(await resultOf(run)).toEqual([1, 2, 3]);
    });

    test("signals from another handle wake it too", async () => {
      const [front, back] = await Promise.all([place.open(), place.open()]);
      back.work([receives], { warm });
      const run = await front.start(receives, 2);
      await reaches(run, "waiting");
      await run.signal(go, 1);
      await run.signal(go, 2);
      expect(await resultOf(run)).toEqual([1, 2]);
    });

    test("the same id counts once, from any sender and at any time", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      one.work([receives], { warm });
      const run = await one.start(receives, 2, { id: "one" });
      const sent = [
        await run.signal(go, 1, { id: "a" }),
        await run.signal(go, 1, { id: "a" }),
        await two.run(receives, "one").signal(go, 99, { id: "a" }),
      ];
      expect(sent).toEqual([{ isNew: true }, { isNew: false }, { isNew: false }]);
      await run.signal(go, 2, { id: "b" });
      expect(await resultOf(run)).toEqual([1, 2]);
      // A known id is accepted again by a run that has ended, too.
      expect(await run.signal(go, 1, { id: "a" })).toEqual({ isNew: false });
    });

    test("of many concurrent sends of the same id, one is the first", async () => {
      const pawl = await place.open();
      const run = await pawl.start(receives, 1);
      const sent = await Promise.all(Array.from({ length: 10 }, (_, n) => run.signal(go, n, { id: "a" })));
      expect(sent.filter(({ isNew }) => isNew).length).toBe(1);
    });

    test("each waits for its own name, and the others are kept", async () => {
      const pawl = await place.open();
      const both = workflow("both", async (ctx) => [
        (await ctx.waitForSignal(stop)).value,
        (await ctx.waitForSignal(go)).value,
      ]);
      pawl.work([both], { warm });
      const run = await pawl.start(both);
      await run.signal(go, 1);
      await run.signal(stop, 2);
      expect(await resultOf(run)).toEqual([2, 1]);
    });

    test("two concurrent waits for the same name get one each, in the order of the waits", async () => {
      const pawl = await place.open();
      const pair = workflow("pair", async (ctx) => {
        const [a, b] = await Promise.all([ctx.waitForSignal(go), ctx.waitForSignal(go)]);
        return [a.value, b.value];
      });
      pawl.work([pair], { warm });
      const run = await pawl.start(pair);
      await reaches(run, "waiting");
      await run.signal(go, 1);
      await run.signal(go, 2);
      expect(await resultOf(run)).toEqual([1, 2]);
    });

    // It is lost where the store takes a while between the look at the record and the look at the inbox.
    test("one that comes while a step runs is received after it", async () => {
      const pawl = await place.open();
      const begun = gate();
      const { opened, open } = gate();
      const it = workflow("it", async (ctx) => {
        const first = await ctx.step("hold", async () => {
          begun.open();
          await opened;
          return "step";
        });
        return [first, (await ctx.waitForSignal(go)).value];
      });
      pawl.work([it], { warm });
      const run = await pawl.start(it);
      await begun.opened;
      await run.signal(go, 1);
      open();
      expect(await run.result({ timeout: "2s" })).toEqual(["step", 1]);
    });
  });

  test("a run that has ended refuses signals, with its status", async () => {
    const pawl = await place.open();
    const ended = {
      completed: workflow("completed", async () => 1),
      failed: workflow("failed", async () => Promise.reject(new Error("no"))),
      canceled: receives,
    };
    pawl.work(Object.values(ended));
    const runs = {
      completed: await pawl.start(ended.completed),
      failed: await pawl.start(ended.failed),
      canceled: await pawl.start(ended.canceled, 1),
    };
    await runs.canceled.cancel();
    for (const [status, run] of Object.entries(runs)) {
      await resultOf<unknown>(run).catch(() => {});
      await expect(run.signal(go, 1)).rejects.toMatchObject({ code: "run_ended", data: { run: run.id, status } });
      await expect(run.signal(go, 1, { id: "a" })).rejects.toMatchObject({ code: "run_ended", data: { status } });
    }
  });

  describe("a wait with a timeout", () => {
    const limited = workflow("limited", async (ctx, timeout: number | string) => {
      const first = await ctx.waitForSignal(go, { timeout });
      return first.ok ? first.value : first.reason;
    });

    test.each([1000, 0])("reports its timeout, with %i warm runs", async (warm) => {
      const pawl = await place.open();
      pawl.work([limited], { warm });
      const run = await pawl.start(limited, 20);
      expect(await resultOf(run)).toBe("timeout");
      expect(await factsOf(run)).toEqual(["started", "wait go", "expired go", "completed"]);
    });

    test.each([1000, 0])("returns what came before the timeout, with %i warm runs", async (warm) => {
      const pawl = await place.open();
      pawl.work([limited], { warm });
      const run = await pawl.start(limited, "1 hour");
      await reaches(run, "waiting");
      const { dueAt, startedAt } = await run.status();
      expect((dueAt?.getTime() ?? 0) - startedAt.getTime()).toBeGreaterThanOrEqual(3_600_000);
      await run.signal(go, 5);
      expect(await resultOf(run)).toBe(5);
    });

    test("that timed out received none: a signal that comes later is for the next wait", async () => {
      const pawl = await place.open();
      const twice = workflow("twice", async (ctx) => [
        await ctx.waitForSignal(go, { timeout: 10 }),
        await ctx.waitForSignal(go),
      ]);
      pawl.work([twice]);
      const run = await pawl.start(twice);
      await expect.poll(() => factsOf(run), PATIENCE).toContain("expired go");
      await run.signal(go, 1);
      expect(await resultOf(run)).toEqual([
        { ok: false, reason: "timeout" },
        { ok: true, signal: "go", value: 1 },
      ]);
    });

    test("a signal that came first is received, also if the timeout has passed when a worker looks", async () => {
      const [front, back] = await Promise.all([place.open(), place.open()]);
      const worker = back.work([limited]);
      const run = await front.start(limited, 500);
      await reaches(run, "waiting");
      await worker.stop();
      const { dueAt } = await run.status();
      await run.signal(go, 5);
      await expect.poll(() => Date.now(), PATIENCE).toBeGreaterThan(dueAt?.getTime() ?? 0);
      back.work([limited]);
      expect([5, "timeout"]).toContain(await resultOf(run));
      const facts = await factsOf(run);
      expect(facts.filter((name) => name === "received go" || name === "expired go").length).toBe(1);
    });
  });

  describe("waiting for any of several", () => {
    const any = workflow("any", async (ctx) => {
      const got: unknown[] = [];
      for (let i = 0; i < 2; i++) got.push(await ctx.waitForAny([go, stop], { timeout: "1 hour" }));
      return got;
    });

    test.each([1000, 0])("returns the one that came, by name, in order, with %i warm runs", async (warm) => {
      const pawl = await place.open();
      pawl.work([any], { warm });
      const run = await pawl.start(any);
      await run.signal(stop, 1);
      await run.signal(go, 2);
      expect(await resultOf(run)).toEqual([
        { ok: true, signal: "stop", value: 1 },
        { ok: true, signal: "go", value: 2 },
      ]);
    });

    test("reports its timeout", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) => ctx.waitForAny([go, stop], { timeout: 10 }));
      pawl.work([it]);
      expect(await resultOf(await pawl.start(it))).toEqual({ ok: false, reason: "timeout" });
    });

    test("of nothing is refused", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) => ctx.waitForAny([]));
      pawl.work([it]);
      await expect(resultOf(await pawl.start(it))).rejects.toMatchObject({ cause: { code: "invalid_argument" } });
    });
  });

  test("in a decision, a signal's id counts once too", async () => {
    const pawl = await place.open();
    const run = await pawl.start(receives, 1);
    const send = () => pawl.transact((tx) => tx.signal(run.id, go, 1, { id: "a" }));
    expect([await send(), await send()]).toEqual([true, false]);
    expect(await codeOf(pawl.transact((tx) => tx.signal("nobody", go, 1, { id: "a" })))).toBe("run_not_found");
  });

  test("a signal that comes between two steps of a warm run is seen in the same place at replay", async () => {
    const [one, two] = await Promise.all([place.openHandle(), place.open()]);
    const begun = gate();
    const { opened, open } = gate();
    const order = (last: () => unknown) =>
      workflow("order", async (ctx) => {
        const seen: unknown[] = [];
        const note = (what: string) => (value: unknown) => void seen.push([what, value]);
        await Promise.all([
          ctx.waitForSignal(go).then(({ value }) => note("go")(value)),
          (async () => {
            for (const name of ["a", "b", "c"]) {
              await ctx.step(name, async () => {
                if (name !== "b") return;
                begun.open();
                await opened;
              });
              note(name)(null);
            }
          })(),
        ]);
        await ctx.step("last", last);
        return seen;
      });
    let isAtEnd = false;
    one.pawl.work([
      order(() => {
        isAtEnd = true;
        return new Promise(() => {});
      }),
    ]);
    const run = await one.pawl.start("order", undefined, { id: "one" });
    await begun.opened;
    await run.signal(go, 1);
    await expect.poll(() => factsOf(run), PATIENCE).toContain("received go");
    open();
    await expect.poll(() => isAtEnd, PATIENCE).toBe(true);
    one.die();
    const at = two.run("order", "one");
    const before = await factsOf(at);
    await endLease(two, "one");
    two.work([order(() => {})]);
    expect(await resultOf(at)).toEqual([
      ["a", null],
      ["go", 1],
      ["b", null],
      ["c", null],
    ]);
    expect((await factsOf(at)).slice(0, before.length)).toEqual(before);
  });
});
