/**
 * Goal: runs that have ended are deleted when their workflow's retention ends, with everything that belongs to them, and no sooner; what was
 * restarted or retried stays.
 * Method: the symptoms in the simulated time of `openTest`; deletion itself on every store, where the loop's look is called directly, because
 * its real one comes once a minute.
 */

import { describe, expect, test } from "vitest";
import { machine, NonRetryableError, open, type Pawl, signal, workflow } from "../../src/index.ts";
import { SweepLoop } from "../../src/kernel/sweep-loop.ts";
import { openTest } from "../../src/testing/index.ts";
import { retentionQueues } from "../../src/workflow/runs/retire.ts";
import { runAt, waitersAt } from "../../src/workflow/stored.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE, resultOf } from "./kit.ts";

const go = signal<number>("go");
const fine = workflow({ name: "fine", retention: { completed: "7 days", failed: "90 days" } }, async (ctx) => {
  await ctx.step("one", () => 1);
});

/** How many records are there of each space that is given. */
async function counts(pawl: Pawl, ...spaces: string[]): Promise<number[]> {
  const found = await Promise.all(
    spaces.map((space) => pawl.kernel.list({ space, prefix: "", after: null, limit: 10_000 })),
  );
  return found.map((rows) => rows.length);
}

const exists = async (pawl: Pawl, id: string): Promise<boolean> =>
  (await pawl.runs.list({ prefix: id })).runs.some((run) => run.id === id);

describe("the retention of a workflow", () => {
  test("a run is deleted when the retention of its outcome ends, and no sooner", async () => {
    const pawl = openTest();
    let isBroken = true;
    const either = workflow(
      { name: "either", retention: { completed: "7 days", failed: "90 days" } },
      async (_ctx, fails: boolean) => {
        if (fails && isBroken) throw new Error("no");
      },
    );
    pawl.work([either]);
    await (await pawl.start(either, false, { id: "good" })).result();
    await expect((await pawl.start(either, true, { id: "bad" })).result()).rejects.toThrow();
    await pawl.clock.advance("6 days");
    expect(await exists(pawl, "good")).toBe(true);
    await pawl.clock.advance("2 days");
    expect(await exists(pawl, "good")).toBe(false);
    expect(await codeOf(pawl.run("good").status())).toBe("run_not_found");
    await pawl.clock.advance("80 days");
    expect(await exists(pawl, "bad")).toBe(true);
    await pawl.clock.advance("3 days");
    expect(await exists(pawl, "bad")).toBe(false);
    isBroken = false;
    await pawl.close();
  });

  test("an outcome that is left out, and a workflow without retention, are kept", async () => {
    const pawl = openTest();
    const kept = workflow("kept", async () => 1);
    const some = workflow({ name: "some", retention: { failed: "1 day" } }, async () => 1);
    const always = workflow({ name: "always", retention: "forever" }, async () => 1);
    pawl.work([kept, some, always]);
    for (const one of [kept, some, always]) await (await pawl.start(one, undefined, { id: one.name })).result();
    await pawl.clock.advance("365 days");
    for (const id of ["kept", "some", "always"]) expect(await exists(pawl, id)).toBe(true);
    await pawl.close();
  });

  test("a run that is canceled before it has begun is deleted, too", async () => {
    const pawl = openTest();
    const later = workflow({ name: "later", retention: "3 days" }, async () => 1);
    const kept = workflow({ name: "kept", retention: { completed: "3 days" } }, async () => 1);
    pawl.work([later, kept]);
    for (const one of [later, kept]) {
      const run = await pawl.start(one, undefined, { id: one.name, delay: "1 day" });
      await run.cancel();
    }
    expect(await pawl.run("later").status()).toMatchObject({ status: "canceled", dueAt: null });
    await pawl.clock.advance("2 days");
    expect(await exists(pawl, "later")).toBe(true);
    expect(await pawl.run("later").status()).toMatchObject({ status: "canceled", dueAt: null });
    await pawl.clock.advance("2 days");
    expect(await exists(pawl, "later")).toBe(false);
    expect(await exists(pawl, "kept")).toBe(true);
    await pawl.close();
  });

  test("a run that is retried or restarted is kept while it lives, and from its new end on", async () => {
    const pawl = openTest();
    let isBroken = true;
    const flaky = workflow({ name: "flaky", retention: "10 days" }, async (ctx) => {
      await ctx.step("work", () => {
        if (isBroken) throw new NonRetryableError("down");
      });
      await ctx.waitForSignal(go);
    });
    pawl.work([flaky]);
    const run = await pawl.start(flaky, undefined, { id: "r" });
    await expect(run.result()).rejects.toThrow();
    await pawl.clock.advance("9 days");
    isBroken = false;
    await run.retry();
    await run.until("waiting");
    await pawl.clock.advance("30 days");
    expect((await run.status()).status).toBe("waiting");
    await run.signal(go, 1);
    await run.result();
    await pawl.clock.advance("9 days");
    await pawl.start(flaky, undefined, { id: "r", ifExists: "restart" });
    await run.until("waiting");
    await pawl.clock.advance("30 days");
    expect(await run.status()).toMatchObject({ status: "waiting", incarnation: 2 });
    await run.cancel();
    await expect(run.result()).rejects.toThrow();
    await pawl.clock.advance("11 days");
    expect(await exists(pawl, "r")).toBe(false);
    await pawl.close();
  });

  test("ended runs are listed with their workflow while they are kept", async () => {
    const pawl = openTest();
    pawl.work([fine]);
    await (await pawl.start(fine, undefined, { id: "a" })).result();
    const { runs } = await pawl.runs.list({ workflow: fine, status: "completed" });
    expect(runs).toMatchObject([{ id: "a", workflow: "fine", dueAt: null }]);
    expect(await pawl.run(fine, "a").status()).toMatchObject({ workflow: "fine" });
    await pawl.close();
  });

  test("a longer retention in the code applies to runs that have ended before", async () => {
    const pawl = openTest();
    const worker = pawl.work([fine]);
    await (await pawl.start(fine, undefined, { id: "a" })).result();
    await worker.stop();
    pawl.work([workflow({ name: "fine", retention: "30 days" }, async () => {})]);
    await pawl.clock.advance("20 days");
    expect(await exists(pawl, "a")).toBe(true);
    await pawl.clock.advance("11 days");
    expect(await exists(pawl, "a")).toBe(false);
    await pawl.close();
  });

  test.each([
    ["a text that is no duration", "soon"],
    ["nothing", null],
    ["a list", ["7 days"]],
    ["an outcome that there is not", { finished: "7 days" }],
    ["a time that is none", { completed: -1 }],
    ["a function", () => 1],
  ])("%s is refused", async (_name, retention) => {
    const define = async () => workflow({ name: "bad", retention: retention as never }, async () => 1);
    expect(await codeOf(define())).toMatch(/^invalid_(argument|duration)$/);
    const code = await codeOf(open({ store: "memory:", retention: retention as never }));
    expect(code).toMatch(/^invalid_(argument|duration)$/);
  });
});

describe("parents of runs that were deleted", () => {
  const child = workflow({ name: "child", retention: "1 hour" }, async (ctx, value: number) => {
    await ctx.waitForSignal(go);
    return value;
  });

  test("a parent that no worker ran meanwhile gets the outcome", async () => {
    const pawl = openTest();
    const first = workflow("first", async (ctx) => ctx.call(child, 5, { id: "kid" }));
    const second = workflow("second", async (ctx) => ctx.call(child, 5, { id: "kid" }));
    pawl.work([child]);
    const worker = pawl.work([first, second]);
    const runs = [await pawl.start(first), await pawl.start(second)];
    for (const run of runs) await run.until("waiting");
    await worker.stop();
    await pawl.run("kid").signal(go, 1);
    expect(await pawl.run("kid").result()).toBe(5);
    await pawl.clock.advance("1 day");
    expect(await exists(pawl, "kid")).toBe(false);
    pawl.work([first, second]);
    for (const run of runs) expect(await run.result()).toBe(5);
    await pawl.close();
  });

  test.each([
    { name: "is kept", goneAfter: "10 minutes", outcome: 5 },
    { name: "is gone", goneAfter: "1 day", outcome: "run_not_found" },
  ])(
    "a parent that is retried gets the outcome of a child that it does not retry; it $name",
    async ({ goneAfter, outcome }) => {
      const pawl = openTest();
      let isBroken = true;
      const broken = workflow("broken", async (ctx) => {
        const call = ctx.call(child, 5, { id: "kid", whenParentEnds: "leave" });
        const check = ctx.step("check", () => {
          if (isBroken) throw new NonRetryableError("down");
        });
        return (await Promise.all([call.catch((error: unknown) => (error as { code: string }).code), check]))[0];
      });
      pawl.work([broken, child]);
      const run = await pawl.start(broken);
      await expect(run.result()).rejects.toThrow("down");
      await pawl.run("kid").signal(go, 1);
      await pawl.run("kid").result();
      await pawl.clock.advance(goneAfter);
      expect(await exists(pawl, "kid")).toBe(outcome === 5);
      isBroken = false;
      await run.retry();
      expect(await run.result()).toBe(outcome);
      await pawl.close();
    },
  );

  test("a parent that is retried after its failed child was deleted gets run_not_found", async () => {
    const pawl = openTest();
    const failing = workflow({ name: "failing", retention: "1 hour" }, async () => {
      throw new Error("no");
    });
    const parent = workflow("parent", async (ctx) => ctx.call(failing, undefined, { id: "kid" }));
    pawl.work([failing, parent]);
    const run = await pawl.start(parent);
    await expect(run.result()).rejects.toThrow("no");
    await pawl.clock.advance("1 day");
    expect(await exists(pawl, "kid")).toBe(false);
    await run.retry();
    await expect(run.result()).rejects.toThrow(/kid/);
    expect((await run.status()).error).toMatchObject({ code: "run_not_found" });
    await pawl.close();
  });

  test("a deleted run is not found, and its id is free for a new run", async () => {
    const pawl = openTest();
    pawl.work([child]);
    const run = await pawl.start(child, 1, { id: "kid" });
    const waiting = run.result();
    await run.signal(go, 1, { id: "s" });
    expect(await waiting).toBe(1);
    await pawl.clock.advance("1 day");
    expect(await codeOf(run.result())).toBe("run_not_found");
    expect(await codeOf(run.signal(go, 1, { id: "s" }))).toBe("run_not_found");
    expect(await codeOf(run.retry())).toBe("run_not_found");
    expect(await codeOf(pawl.runs.delete("kid"))).toBe("run_not_found");
    // Another input: it is another run. The id of the signal counts again.
    const again = await pawl.start(child, 2, { id: "kid" });
    await again.signal(go, 1, { id: "s" });
    expect(await again.result()).toBe(2);
    await pawl.close();
  });
});

onStores(EVERY, (place) => {
  const echo = workflow("echo", async (ctx, input: unknown) => {
    await ctx.slot("note").set(input);
    return input;
  });

  /** The loop of a worker that keeps nothing, without its waits. */
  const loopOn = (pawl: Pawl, keptMs: number | null = 0) => {
    const errors: unknown[] = [];
    const queues = retentionQueues(pawl.kernel, { workflows: ["echo", "waits", "parent"], keptMs: () => keptMs });
    const loop = new SweepLoop(pawl.kernel, queues, (error) => errors.push(error));
    return { loop, errors };
  };

  test("open sets the default, and the workers of the handle apply it", async () => {
    const pawl = await place.open({ retention: "1 hour" });
    pawl.work([echo]);
    await resultOf(await pawl.start(echo, 1, { id: "a" }));
    const [row] = await pawl.kernel.read([runAt("a")]);
    expect(row).toMatchObject({ status: "completed", kind: "run-ended/echo" });
    const { loop, errors } = loopOn(pawl, 3_600_000);
    await loop.look();
    expect(await exists(pawl, "a")).toBe(true);
    await loop.stop();
    expect(errors).toEqual([]);
  });

  test("everything that belongs to a run is deleted with it: history, inbox, signal ids, slots of its tree", async () => {
    const pawl = await place.open({ retention: 0 });
    const waits = workflow("waits", async (ctx) => {
      await ctx.slot("mine").set(1);
      return (await ctx.waitForSignal(go)).value;
    });
    const parent = workflow("parent", async (ctx) => {
      await ctx.slot("shared").set(1);
      return ctx.call(waits, undefined, { id: "child" });
    });
    pawl.work([waits, parent]);
    const run = await pawl.start(parent, undefined, { id: "root" });
    await expect.poll(() => exists(pawl, "child"), { timeout: 20_000 }).toBe(true);
    for (let i = 0; i < 3; i++) await pawl.run("child").signal(go, i, { id: `s-${i % 2}` });
    await resultOf(run);
    const spaces = ["run", "inbox", "signal-id", "slot/run/root", "run-waiters"];
    const [runs, ...others] = await counts(pawl, ...spaces);
    expect(runs).toBe(2);
    expect(others.slice(0, 3).every((count) => count > 0)).toBe(true);
    const { loop, errors } = loopOn(pawl);
    await expect
      .poll(
        async () => {
          await loop.look();
          return counts(pawl, ...spaces);
        },
        { timeout: 20_000 },
      )
      .toEqual([0, 0, 0, 0, 0]);
    await loop.stop();
    expect(errors).toEqual([]);
  });

  test("a run with more parts than one commit takes is deleted in several; a worker finishes what was cut short", async () => {
    const pawl = await place.open();
    pawl.work([echo]);
    await resultOf(await pawl.start(echo, 1, { id: "big" }));
    for (let from = 0; from < 1200; from += 300)
      await pawl.transact((tx) => {
        for (let i = from; i < from + 300; i++) tx.slot(pawl.slot(`s-${i}`, { run: "big" })).set(i);
      });
    const deleter = await place.openHandle();
    deleter.dieBefore(2);
    void deleter.pawl.runs.delete("big");
    await expect.poll(() => deleter.isDead(), PATIENCE).toBe(true);
    // It is marked: no reader gets half of it.
    expect(await codeOf(pawl.start(echo, 2, { id: "big", ifExists: "restart" }))).toBe("run_conflict");
    expect((await pawl.runs.list({ workflow: echo })).runs).toMatchObject([{ id: "big", status: "completed" }]);
    const { loop, errors } = loopOn(pawl, null);
    const written: number[] = [];
    const stopListening = pawl.kernel.listen((puts) => written.push(puts?.length ?? 0));
    await loop.look();
    stopListening();
    await loop.stop();
    expect(errors).toEqual([]);
    // What others commit meanwhile waits for no more than this.
    expect(Math.max(...written)).toBeLessThan(520);
    expect(await exists(pawl, "big")).toBe(false);
    expect(await counts(pawl, "slot/run/big")).toEqual([0]);
  });

  test("two workers that delete the same runs do not affect each other", async () => {
    const pawl = await place.open({ retention: 0 });
    const other = await place.open();
    pawl.work([echo]);
    const runs = await Promise.all(Array.from({ length: 60 }, (_, i) => pawl.start(echo, i, { id: `r-${i}` })));
    await Promise.all(runs.map(resultOf));
    const loops = [loopOn(pawl), loopOn(other)];
    await expect
      .poll(
        async () => {
          await Promise.all(loops.map(({ loop }) => loop.look()));
          return counts(pawl, "run");
        },
        { timeout: 20_000 },
      )
      .toEqual([0]);
    for (const { loop, errors } of loops) {
      await loop.stop();
      expect(errors).toEqual([]);
    }
  });

  test("runs that wait for the outcome of a run that is deleted get it", async () => {
    const pawl = await place.open();
    pawl.work([echo]);
    await resultOf(await pawl.start(echo, 1, { id: "old" }));
    // As an end leaves it that had more runs to notify than one commit does.
    const parents = Array.from({ length: 250 }, (_, i) => ({ run: `p-${i}`, id: "x", incarnation: 1, waits: true }));
    await pawl.kernel.transact(
      (tx) => tx.record(waitersAt("old")).write({ value: { parents, outcome: { ok: 1 } } }),
      [waitersAt("old")],
    );
    await pawl.runs.delete("old");
    expect(await counts(pawl, "run-waiters")).toEqual([0]);
    expect(await exists(pawl, "old")).toBe(false);
  });
});

onStores(EVERY, (place) => {
  const order = machine("order", {
    initial: "new",
    transitions: { new: ["paid"], paid: ["new"] },
    initialData: 0,
  });

  test("a machine is deleted with its audit log and the ids of its events, and can be created again", async () => {
    const pawl = await place.open();
    const orders = pawl.machine(order);
    await orders.create("o-1");
    await orders.create("o-2");
    for (const id of ["o-1", "o-2"]) await orders.transition(id, "paid", { eventId: "e-1" });
    await orders.delete("o-1");
    expect(await orders.get("o-1")).toBeNull();
    expect(await orders.history("o-1")).toEqual([]);
    expect(await codeOf(orders.delete("o-1"))).toBe("machine_not_found");
    expect(await counts(pawl, "machine/order", "machine-event/order")).toEqual([1, 1]);
    await orders.create("o-1");
    expect((await orders.history("o-1")).map(({ outcome }) => outcome)).toEqual(["created"]);
    // The event of before counts again: it is another instance.
    expect(await orders.transition("o-1", "paid", { eventId: "e-1" })).toMatchObject({ deduplicated: false });
    expect((await orders.history("o-1")).map(({ outcome }) => outcome)).toEqual(["created", "moved"]);
  });

  test("a machine with more events than one commit takes is deleted, too", async () => {
    const pawl = await place.open();
    const orders = pawl.machine(order);
    await orders.create("o");
    await Promise.all(
      Array.from({ length: 1100 }, (_, i) =>
        orders.tryTransition("o", i % 2 === 0 ? "paid" : "new", { eventId: `e-${i}` }),
      ),
    );
    await orders.delete("o");
    expect(await counts(pawl, "machine/order", "machine-event/order")).toEqual([0, 0]);
  });
});
