/**
 * Goal: concurrency limits on every store: never more than `max`, in order, by key, with each kind of excess, whatever ends a run; in two processes, with
 * and without the code of the workflow, after a crash.
 */

import { describe, expect, test } from "vitest";
import { type Pawl, type Run, signal, type WorkflowOptions, workflow } from "../../src/index.ts";
import { runAt } from "../../src/workflow/stored.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, endLease, onStores, PATIENCE, reaches, resultOf } from "../workflow/kit.ts";
import { wrongPlaces } from "./checker.ts";

const go = signal("go");

interface Order {
  readonly customer: string;
  readonly n: number;
}

/** Runs that wait for a signal; `begun` lists them in the order in which they began. */
function waiting(options: Omit<WorkflowOptions<Order, number>, "name">) {
  const begun: number[] = [];
  const job = workflow<Order, number>({ name: "job", ...options }, async (ctx, { n }) => {
    await ctx.step("begin", () => {
      begun.push(n);
    });
    await ctx.waitForSignal(go);
    return n;
  });
  return { job, begun };
}

const statuses = async (runs: readonly Run[]): Promise<string[]> =>
  Promise.all(runs.map(async (run) => (await run.status()).status));

async function checked(pawl: Pawl): Promise<void> {
  expect(await wrongPlaces(pawl.kernel)).toEqual([]);
}

onStores(EVERY, (place) => {
  describe("a limit", () => {
    test("queues what exceeds it, and admits the next in the commit that ends a run", async () => {
      const pawl = await place.open();
      const { job, begun } = waiting({ concurrency: { max: 2 } });
      pawl.work([job]);
      const runs: Run<number>[] = [];
      for (let n = 0; n < 5; n++) runs.push(await pawl.start(job, { customer: "a", n }, { id: `r${n}` }));
      await expect.poll(() => begun, PATIENCE).toEqual([0, 1]);
      expect((await statuses(runs)).slice(2)).toEqual(["queued", "queued", "queued"]);
      expect((await pawl.whyWaiting({ run: "r4" })).says).toContain(
        'run "r4" is queued: 3 runs of its workflow with its keys wait in this line, and 2 of them are before it in its priority; the concurrency limit of workflow "job" has admitted 2 runs that have not ended: "r0", "r1", and its max is 2 (pawl.runs.list({ workflow: "job" }) shows runs with their status)',
      );
      await checked(pawl);
      for (let n = 0; n < 5; n++) {
        await runs[n]?.signal(go);
        await runs[n]?.result();
        await checked(pawl);
      }
      expect(begun).toEqual([0, 1, 2, 3, 4]);
    });

    test("counts by key, and several limits apply together", async () => {
      const pawl = await place.open();
      const { job, begun } = waiting({
        concurrency: [{ max: 1, key: ({ customer }: Order) => customer }, { max: 2 }],
      });
      pawl.work([job]);
      const runs: Run<number>[] = [];
      for (const [n, customer] of ["a", "a", "b", "c", "c"].entries())
        runs.push(await pawl.start(job, { customer, n }));
      await expect.poll(() => begun, PATIENCE).toEqual([0, 2]);
      expect(await statuses(runs)).toEqual(
        ["waiting", "queued", "waiting", "queued", "queued"].map((s) =>
          expect.stringMatching(s === "waiting" ? /waiting|running/ : s),
        ),
      );
      await checked(pawl);
      await runs[2]?.signal(go);
      await expect.poll(() => begun, PATIENCE).toEqual([0, 2, 3]);
      await runs[0]?.signal(go);
      await expect.poll(() => begun, PATIENCE).toEqual([0, 2, 3, 1]);
      await checked(pawl);
      for (const run of runs) await run.signal(go).catch(() => {});
      await Promise.all(runs.map(resultOf));
      await checked(pawl);
    });

    test("rejects with what a caller needs, drops, or replaces", async () => {
      const pawl = await place.open();
      const rejecting = waiting({
        concurrency: { max: 1, key: ({ customer }: Order) => customer, excess: "reject" },
      }).job;
      const first = await pawl.start(rejecting, { customer: "a", n: 1 });
      const refused = await pawl.start(rejecting, { customer: "a", n: 2 }).catch((error: unknown) => error);
      expect(refused).toMatchObject({ code: "concurrency_limit", data: { workflow: "job", key: "a", limit: 1 } });
      await pawl.start(rejecting, { customer: "b", n: 2 });
      // The same id is the same run, not one more.
      const again = await pawl.start(rejecting, { customer: "c", n: 3 }, { id: "mine" });
      expect((await pawl.start(rejecting, { customer: "c", n: 3 }, { id: "mine" })).id).toBe(again.id);
      await first.cancel();
      await pawl.start(rejecting, { customer: "a", n: 2 });

      const dropping = workflow({ name: "dropping", concurrency: { max: 1, excess: "drop" } }, async (ctx) => {
        await ctx.waitForSignal(go);
      });
      const one = await pawl.start(dropping);
      expect((await pawl.start(dropping)).id).toBe(one.id);
      await one.cancel();
      expect((await pawl.start(dropping)).id).not.toBe(one.id);

      const replacing = workflow({ name: "replacing", concurrency: { max: 1, excess: "replace" } }, async (ctx) => {
        try {
          await ctx.waitForSignal(go);
        } finally {
          await ctx.step("clean up", () => {});
        }
      });
      pawl.work([replacing]);
      const runs: Run[] = [];
      for (let n = 0; n < 4; n++) {
        runs.push(await pawl.start(replacing));
        if (n === 0) await reaches(runs[0] as Run, "waiting");
      }
      await reaches(runs[3] as Run, "waiting");
      expect(await statuses(runs)).toEqual(["canceled", "canceled", "canceled", "waiting"]);
      await checked(pawl);
    });

    test("is kept by runs that were started by name, delayed, retried, or are children", async () => {
      const pawl = await place.open();
      const other = await place.open();
      const { job, begun } = waiting({ concurrency: { max: 1 } });
      const parent = workflow("parent", async (ctx, n: number) => ctx.call(job, { customer: "p", n }));
      const runs = [
        await other.start("job", { customer: "a", n: 1 }),
        await other.start("job", { customer: "a", n: 2 }, { delay: 20 }),
      ];
      pawl.work([job, parent]);
      const family = await pawl.start(parent, 3);
      await expect.poll(() => begun.length, PATIENCE).toBe(1);
      for (let done = 1; done <= 3; done++) {
        await expect.poll(() => begun.length, PATIENCE).toBe(done);
        // Others may still arrive, and what is stored is not read at one moment.
        await expect.poll(() => wrongPlaces(pawl.kernel), PATIENCE).toEqual([]);
        const all = [...runs, ...(await pawl.runs.list({ workflow: "job" })).runs.map(({ id }) => pawl.run(id))];
        for (const run of all) {
          const { status, doing } = await run.status();
          if (status === "waiting" || (status === "running" && doing.length > 0)) await run.signal(go).catch(() => {});
        }
      }
      expect(await resultOf(family)).toBe(3);
      await Promise.all(runs.map((run) => resultOf(run)));
      await checked(pawl);
    });
  });

  describe("a place is freed", () => {
    test.each(["completed", "failed", "canceled", "timed out", "forced", "parked and canceled"])(
      "by a run that is %s",
      async (how) => {
        const pawl = await place.open();
        const job = workflow(
          {
            name: "job",
            concurrency: { max: 1 },
            tries: 1,
            retry: { attempts: 1 },
            ...(how === "timed out" ? { timeout: 30 } : {}),
          },
          async (ctx, isFirst: boolean) => {
            if (!isFirst) return;
            if (how === "failed") throw new Error("no");
            if (how === "parked and canceled")
              await ctx.step.atMostOnce("once", () => Promise.reject(new Error("who knows")));
            if (how !== "completed") await ctx.waitForSignal(go);
          },
        );
        pawl.work([job]);
        const first = await pawl.start(job, true);
        const second = await pawl.start(job, false);
        if (how === "canceled") await first.cancel();
        if (how === "forced") await first.cancel({ force: true });
        if (how === "parked and canceled") {
          await expect
            .poll(async () => ["parked", "failed"].includes((await first.status()).status), PATIENCE)
            .toBe(true);
          await first.cancel();
        }
        await resultOf(second);
        await checked(pawl);
      },
    );

    test("by a run whose worker died, when another has ended it", async () => {
      const dying = await place.openHandle();
      const pawl = await place.open();
      const { job, begun } = waiting({ concurrency: { max: 1 } });
      dying.pawl.work([job]);
      const first = await dying.pawl.start(job, { customer: "a", n: 1 });
      const second = await dying.pawl.start(job, { customer: "a", n: 2 });
      await expect.poll(() => begun, PATIENCE).toEqual([1]);
      dying.die();
      pawl.work([job]);
      await endLease(pawl, first.id).catch(() => {});
      await pawl.run(job, first.id).signal(go);
      await resultOf(pawl.run(job, first.id));
      await pawl.run(job, second.id).signal(go);
      await resultOf(pawl.run(job, second.id));
      await checked(pawl);
    });
  });

  test("a run that is retried needs a place again", async () => {
    const pawl = await place.open();
    let isBroken = true;
    const job = workflow({ name: "job", concurrency: { max: 1 }, retry: { attempts: 1 } }, async (ctx, n: number) => {
      if (n === 1 && isBroken) throw new Error("broken");
      if (n === 2) await ctx.waitForSignal(go);
    });
    pawl.work([job]);
    const first = await pawl.start(job, 1);
    expect(await codeOf(resultOf(first))).toBe("run_failed");
    const second = await pawl.start(job, 2);
    await reaches(second, "waiting");
    isBroken = false;
    await first.retry();
    await reaches(first, "queued");
    await checked(pawl);
    await second.signal(go);
    await resultOf(first);
    await checked(pawl);
  });

  test("a limit that is raised by a deploy admits those that wait; one that is lowered lets runs end", async () => {
    const pawl = await place.open();
    const old = waiting({ concurrency: { max: 1 } });
    const worker = pawl.work([old.job]);
    const runs = await Promise.all(Array.from({ length: 4 }, (_, n) => pawl.start(old.job, { customer: "a", n })));
    await expect.poll(() => old.begun.length, PATIENCE).toBe(1);
    await worker.stop();
    const raised = waiting({ concurrency: { max: 3 } });
    const next = pawl.work([raised.job]);
    await expect.poll(() => raised.begun.length, PATIENCE).toBe(2);
    await checked(pawl);
    await next.stop();
    const lowered = waiting({ concurrency: { max: 1 } });
    pawl.work([lowered.job]);
    const one = await pawl.start(lowered.job, { customer: "a", n: 9 });
    for (const run of [...runs, one]) await run.signal(go);
    await Promise.all([...runs, one].map(resultOf));
    await checked(pawl);
  });

  test("a paused workflow begins no runs and loses none; those that have begun continue", async () => {
    const pawl = await place.open();
    const other = await place.open();
    const { job, begun } = waiting({});
    pawl.work([job]);
    const first = await pawl.start(job, { customer: "a", n: 1 });
    await expect.poll(() => begun, PATIENCE).toEqual([1]);
    await other.workflows.pause(job, { reason: "the vendor is down" });
    expect(await pawl.workflows.paused()).toMatchObject([{ workflow: "job", reason: "the vendor is down" }]);
    await expect
      .poll(async () => (await pawl.start(job, { customer: "a", n: 2 }, { id: "two" })).id, PATIENCE)
      .toBe("two");
    await first.signal(go);
    await resultOf(first);
    // A process that is opened while it is paused knows it from the beginning.
    const third = await place.open();
    third.work([job]);
    const late = await third.start(job, { customer: "a", n: 3 });
    expect((await late.status()).status).toBe("pending");
    expect(await other.workflows.resume(job)).toBe(true);
    expect(await other.workflows.resume(job)).toBe(false);
    await pawl.run(job, "two").signal(go);
    await late.signal(go);
    await resultOf(pawl.run(job, "two"));
    await resultOf(late);
  });

  test("a worker takes as many runs of a workflow as it says, and leaves the others", async () => {
    const pawl = await place.open();
    let now = 0;
    let most = 0;
    const job = workflow("job", async (ctx, n: number) => {
      await ctx.step("a", async () => {
        now += 1;
        most = Math.max(most, now);
        await new Promise((resolve) => setTimeout(resolve, 2));
        now -= 1;
      });
      return n;
    });
    const worker = pawl.work([job], { perWorkflow: { job: 3 } });
    const runs = await Promise.all(Array.from({ length: 20 }, (_, n) => pawl.start(job, n)));
    await Promise.all(runs.map(resultOf));
    expect(most).toBeLessThanOrEqual(3);
    // Nor more of those whose processes died before.
    await worker.stop();
    most = 0;
    const suspects = await Promise.all(Array.from({ length: 6 }, (_, n) => pawl.start(job, n)));
    const at = suspects.map(({ id }) => runAt(id));
    await pawl.kernel.transact((tx) => {
      for (const one of at) tx.record(one).write({ tries: 2 });
    }, at);
    pawl.work([job], { perWorkflow: { job: 1 } });
    await Promise.all(suspects.map(resultOf));
    expect(most).toBe(1);
    expect(await codeOf((async () => pawl.work([job], { perWorkflow: { other: 3 } }))())).toBe("invalid_argument");
  });
});
