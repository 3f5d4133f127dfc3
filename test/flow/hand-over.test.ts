/**
 * Goal: the commit that ends a run takes the next one for the process that ends it, and nothing else changes: limits, pauses, the room of a worker and the
 * share of others hold.
 *
 * Method: commits are counted, which no load changes; every other rule is observed from the code of the runs.
 */

import { describe, expect, test } from "vitest";
import { type Pawl, workflow } from "../../src/index.ts";
import { runAt } from "../../src/workflow/stored.ts";
import { EVERY, onStores, PATIENCE, reaches } from "../workflow/kit.ts";
import { wrongPlaces } from "./checker.ts";

/** Runs of one step, which say when they begin and end. `most` is how many were in work together. */
function counted(options: { readonly max: number; readonly name?: string }) {
  const begun: number[] = [];
  let working = 0;
  const seen = { begun, most: 0 };
  const job = workflow({ name: options.name ?? "job", concurrency: { max: options.max } }, (ctx, n: number) =>
    ctx.step("work", async () => {
      begun.push(n);
      working += 1;
      seen.most = Math.max(seen.most, working);
      await new Promise((resolve) => setImmediate(resolve));
      working -= 1;
    }),
  );
  return { job, seen };
}

const numbers = (count: number): readonly number[] => Array.from({ length: count }, (_, n) => n);

async function checked(pawl: Pawl): Promise<void> {
  expect(await wrongPlaces(pawl.kernel)).toEqual([]);
}

onStores(EVERY, (place) => {
  describe("a place is handed on", () => {
    test("by one commit, which ends the one run and takes the next", async () => {
      const starting = await place.open();
      const { job, seen } = counted({ max: 1 });
      for (const n of numbers(60)) await starting.start(job, n);
      const { pawl, commits } = await place.openHandle();
      pawl.work([job]);
      await expect.poll(() => seen.begun.length, PATIENCE).toBeGreaterThanOrEqual(10);
      const [from, before] = [seen.begun.length, commits()];
      await expect.poll(() => seen.begun.length, PATIENCE).toBe(60);
      // A claim for each sixteenth, and chores of the worker now and then.
      expect((commits() - before) / (60 - from)).toBeLessThan(1.3);
      expect(seen.begun).toEqual(numbers(60));
      expect(seen.most).toBe(1);
      await expect.poll(() => wrongPlaces(pawl.kernel), PATIENCE).toEqual([]);
    });

    test("and each sixteenth is left to whichever process claims it first", async () => {
      const starting = await place.open();
      const { job, seen } = counted({ max: 1 });
      for (const n of numbers(100)) await starting.start(job, n);
      const pawl = await place.open();
      const admitted: (string | null)[] = [];
      pawl.kernel.listen((puts) => {
        for (const { was, row } of puts ?? []) if (was?.status === "queued") admitted.push(row.holder);
      });
      const worker = pawl.work([job]);
      await expect.poll(() => seen.begun.length, PATIENCE).toBe(100);
      await expect.poll(() => admitted.length, PATIENCE).toBe(99);
      const left = admitted.flatMap((holder, index) => (holder === null ? [index] : []));
      expect(left).toEqual([15, 31, 47, 63, 79, 95]);
      expect(new Set(admitted)).toEqual(new Set([worker.id, null]));
    });

    test("within the room that the worker has, in all and for a workflow", async () => {
      const starting = await place.open();
      const few = counted({ max: 5 });
      const one = counted({ max: 5, name: "one" });
      for (const n of numbers(20)) {
        await starting.start(few.job, n);
        await starting.start(one.job, n);
      }
      const pawl = await place.open();
      pawl.work([few.job, one.job], { concurrency: 3, perWorkflow: { one: 1 } });
      await expect.poll(() => few.seen.begun.length + one.seen.begun.length, PATIENCE).toBe(40);
      expect(few.seen.most).toBeLessThanOrEqual(3);
      expect(one.seen.most).toBe(1);
    });

    test("to what has waited longer for a place in the worker, where that is full", async () => {
      const pawl = await place.open();
      const starting = await place.open();
      const { job, seen } = counted({ max: 1 });
      let behind = 0;
      const other = workflow("other", (ctx) =>
        ctx.step("work", () => {
          behind = seen.begun.length;
        }),
      );
      await starting.start(job, 0);
      // It is due before all of those that wait in line.
      const waiting = await starting.start(other);
      for (const n of numbers(60).slice(1)) await starting.start(job, n);
      pawl.work([job, other], { concurrency: 1 });
      await waiting.result();
      expect(behind).toBeLessThan(10);
    });

    test("to no process while the workflow of the next run is paused", async () => {
      const pawl = await place.open();
      const gate = Promise.withResolvers<void>();
      const shared = { name: "vendor", max: 1 };
      const one = workflow({ name: "one", concurrency: shared }, (ctx) => ctx.step("work", () => gate.promise));
      const two = workflow({ name: "two", concurrency: shared }, (ctx) => ctx.step("work", () => {}));
      pawl.work([one, two]);
      const first = await pawl.start(one);
      const second = await pawl.start(two);
      await pawl.workflows.pause(two);
      gate.resolve();
      await first.result();
      await reaches(second, "pending");
      await checked(pawl);
      await pawl.workflows.resume(two);
      await second.result();
    });

    test("to a process that works on the workflow of the next run", async () => {
      const pawl = await place.open();
      const elsewhere = await place.open();
      const shared = { name: "vendor", max: 1 };
      const gate = Promise.withResolvers<void>();
      const one = workflow({ name: "one", concurrency: shared }, (ctx) => ctx.step("work", () => gate.promise));
      const two = workflow({ name: "two", concurrency: shared }, (ctx) => ctx.step("work", () => {}));
      pawl.work([one]);
      elsewhere.work([two]);
      const first = await pawl.start(one);
      const second = await pawl.start(two);
      gate.resolve();
      await Promise.all([first.result(), second.result()]);
    });

    test("with a claim that counts: a fence, a try and a lease", async () => {
      const pawl = await place.open();
      const gate = Promise.withResolvers<void>();
      const later = Promise.withResolvers<void>();
      const job = workflow({ name: "job", concurrency: { max: 1 } }, (ctx, n: number) =>
        ctx.step("work", () => (n === 0 ? gate.promise : later.promise)),
      );
      const worker = pawl.work([job]);
      const runs = [await pawl.start(job, 0), await pawl.start(job, 1)];
      gate.resolve();
      await reaches(runs[1] as (typeof runs)[0], "running");
      const [row] = await pawl.kernel.read([runAt(runs[1]?.id ?? "")]);
      expect(row).toMatchObject({ holder: worker.id, tries: 1, kind: "run/job" });
      expect(row?.fence).toBeGreaterThan(0);
      expect(row?.dueMs).toBeGreaterThan(0);
      later.resolve();
      await runs[1]?.result();
    });
  });
});
