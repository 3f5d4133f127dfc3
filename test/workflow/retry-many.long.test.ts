/**
 * Goal: a retry of a parent with any number of failed children has the same effect as with one: each that failed is retried once, what succeeded
 * is not repeated, and a crash in the middle leaves nothing half done.
 * Method: more children than one commit can retry, with a count of each child's calls that failed and that succeeded. A process that dies
 * before each of the commits of a retry in turn, and another that takes over.
 */

import { beforeEach, describe, expect, test } from "vitest";
import { type Pawl, type Run, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { runAt } from "../../src/workflow/stored.ts";
import type { Handle, Place } from "./kit.ts";
import { EVERY, endLease, factsOf, onStores, PATIENCE } from "./kit.ts";

/** Only ends a test that hangs. */
const LONG_MS = 600_000;
/** More than one commit could touch, with an inbox for each. */
const MANY = 1500;

let isDown = true;
/** How often the step of each child failed, and succeeded. */
let failed = new Map<number, number>();
let succeeded = new Map<number, number>();

beforeEach(() => {
  isDown = true;
  failed = new Map();
  succeeded = new Map();
});

const count = (counts: Map<number, number>, n: number): unknown => counts.set(n, (counts.get(n) ?? 0) + 1);
const numbers = (length: number): readonly number[] => Array.from({ length }, (_, n) => n);

/** Those that are a multiple of ten succeed in the outage too. */
const child = workflow("child", async (ctx, n: number) =>
  ctx.step(
    "call",
    () => {
      count(isDown && n % 10 !== 0 ? failed : succeeded, n);
      if (isDown && n % 10 !== 0) throw new Error("down");
      return n;
    },
    { retry: { attempts: 1 } },
  ),
);

const settled = workflow("settled", async (ctx, children: number) => {
  const outcomes = await Promise.allSettled(numbers(children).map((n) => ctx.call(child, n)));
  for (const outcome of outcomes) if (outcome.status === "rejected") throw new Error("some failed");
  return outcomes.length;
});

const all = workflow("all", async (ctx, children: number) => {
  const values = await Promise.all(numbers(children).map((n) => ctx.call(child, n)));
  return values.length;
});

const isFailed = async (run: Run): Promise<void> => {
  await expect(run.result({ timeout: LONG_MS })).rejects.toMatchObject({ code: "run_failed" });
};

/** No child is being canceled any more. */
async function areAtRest(pawl: Pawl): Promise<void> {
  const living = { workflow: child, status: ["pending", "running", "waiting"], limit: 1 } as const;
  await expect.poll(async () => (await pawl.runs.list(living)).runs, { ...PATIENCE, timeout: LONG_MS }).toEqual([]);
}

const allOnce = (children: number): Map<number, number> => new Map(numbers(children).map((n) => [n, 1]));
const inOrder = (counts: Map<number, number>): Map<number, number> => new Map([...counts].sort(([a], [b]) => a - b));

onStores(EVERY, (place) => {
  test(
    `${MANY} children that failed, all of which were waited for`,
    async () => {
      const pawl = await place.open({ logger: false });
      pawl.work([settled, child]);
      const run = await pawl.start(settled, MANY, { id: "it" });
      await isFailed(run);
      isDown = false;
      // One was retried by itself meanwhile: the parent has its result.
      const kid = pawl.run(child, "it/child#2");
      await kid.retry();
      await expect(kid.result({ timeout: LONG_MS })).resolves.toBe(1);
      await run.retry();
      await expect(run.result({ timeout: LONG_MS })).resolves.toBe(MANY);
      expect(inOrder(succeeded)).toEqual(allOnce(MANY));
      expect((await factsOf(kid)).filter((fact) => fact === "retried")).toHaveLength(1);
      expect(failed.size).toBe(MANY - MANY / 10);
      expect(Math.max(...failed.values())).toBe(1);
    },
    LONG_MS,
  );

  test(
    `${MANY} children, the first failure of which ended the run`,
    async () => {
      const pawl = await place.open({ logger: false });
      pawl.work([all, child]);
      const run = await pawl.start(all, MANY, { id: "it" });
      await isFailed(run);
      await areAtRest(pawl);
      isDown = false;
      await run.retry();
      await expect(run.result({ timeout: LONG_MS })).resolves.toBe(MANY);
      expect(inOrder(succeeded)).toEqual(allOnce(MANY));
    },
    LONG_MS,
  );

  test(
    "children that failed through theirs",
    async () => {
      const pawl = await place.open({ logger: false });
      const middle = workflow("middle", async (ctx, from: number) => {
        const kids = numbers(120).map((n) => ctx.call(child, from + n));
        for (const outcome of await Promise.allSettled(kids)) if (outcome.status === "rejected") throw outcome.reason;
        return from;
      });
      const top = workflow("top", async (ctx) => {
        const outcomes = await Promise.allSettled(numbers(8).map((n) => ctx.call(middle, n * 120)));
        for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
        return outcomes.length;
      });
      pawl.work([top, middle, child]);
      const run = await pawl.start(top, undefined, { id: "it" });
      await isFailed(run);
      isDown = false;
      await run.retry();
      await expect(run.result({ timeout: LONG_MS })).resolves.toBe(8);
      expect(inOrder(succeeded)).toEqual(allOnce(8 * 120));
      expect(Math.max(...failed.values())).toBe(1);
    },
    LONG_MS,
  );

  test(
    "many steps that failed, in several outages: what was forgotten stays forgotten, and what succeeded is kept",
    async () => {
      const pawl = await place.open({ logger: false });
      const width = 600;
      let mended = 0;
      // A third of them succeeds after each retry, each third spread over all of them.
      const it = workflow("it", async (ctx) => {
        const steps = numbers(width).map((n) =>
          ctx.step(
            `s${n}`,
            () => {
              if (n % 3 >= mended) throw new Error("down");
              count(succeeded, n);
              return n;
            },
            { retry: { attempts: 1 } },
          ),
        );
        const outcomes = await Promise.allSettled(steps);
        for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
        return outcomes.length;
      });
      let worker = pawl.work([it]);
      const run = await pawl.start(it, undefined, { id: "it" });
      for (mended = 1; mended < 3; mended++) {
        await isFailed(run);
        expect((await recordOf(pawl, "it")).length).toBeLessThan(4000);
        await run.retry();
        await worker.stop();
        worker = pawl.work([it]);
      }
      await expect(run.result({ timeout: LONG_MS })).resolves.toBe(width);
      expect(inOrder(succeeded)).toEqual(allOnce(width));
      expect((await recordOf(pawl, "it")).length).toBeLessThan(4000);
    },
    LONG_MS,
  );

  test(
    "children that were retried are canceled with a parent that is ended by force",
    async () => {
      const pawl = await place.open({ logger: false });
      const sleeper = workflow("sleeper", async (ctx, n: number) => {
        await ctx.call(child, n);
        await ctx.sleep("1 day");
      });
      const it = workflow("it", async (ctx) => {
        const outcomes = await Promise.allSettled(numbers(150).map((n) => ctx.call(sleeper, 10 * n + 1)));
        for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
      });
      pawl.work([it, sleeper, child]);
      const run = await pawl.start(it, undefined, { id: "it" });
      await isFailed(run);
      isDown = false;
      await run.retry();
      const waiting = { workflow: sleeper, status: "waiting", limit: 1000 } as const;
      const sleeping = async (): Promise<number> =>
        (await pawl.runs.list(waiting)).runs.filter(({ doing }) => doing[0]?.kind === "sleep").length;
      await expect.poll(sleeping, { ...PATIENCE, timeout: LONG_MS }).toBe(150);
      await run.cancel({ force: true });
      const canceled = { workflow: sleeper, status: "canceled", limit: 1000 } as const;
      await expect
        .poll(async () => (await pawl.runs.list(canceled)).runs.length, { ...PATIENCE, timeout: LONG_MS })
        .toBe(150);
    },
    LONG_MS,
  );

  describe("a process that dies in the middle of a retry", () => {
    /** Three commits retry the children. */
    const width = 250;

    /** The run has failed, and the process that is to die has no worker for its children. */
    async function failing(handle: Handle, next: Pawl, id: string): Promise<Run> {
      isDown = true;
      failed = new Map();
      succeeded = new Map();
      const kids = next.work([settled, child]);
      const run = await next.start(settled, width, { id });
      await isFailed(run);
      await kids.stop();
      isDown = false;
      handle.pawl.work([settled]);
      return run;
    }

    /** Another process finishes the run, and each child was repeated once. */
    async function ends(next: Pawl, run: Run): Promise<void> {
      const worker = next.work([settled, child]);
      await expect(run.result({ timeout: LONG_MS })).resolves.toBe(width);
      await worker.stop();
      expect(inOrder(succeeded)).toEqual(allOnce(width));
      expect(Math.max(...failed.values())).toBe(1);
    }

    /** The number of commits that the retry takes until the parent waits for its children. */
    async function commitsOf(place: Place): Promise<number> {
      const handle = await place.openHandle({ logger: false });
      const next = await place.open({ logger: false });
      const run = await failing(handle, next, "counted");
      const before = handle.commits();
      await handle.pawl.run("counted").retry();
      await expect.poll(async () => (await run.status()).status, PATIENCE).toBe("waiting");
      const commits = handle.commits() - before;
      await handle.pawl.close();
      await ends(next, run);
      return commits;
    }

    test(
      "leaves a run that another retries, or resumes",
      async () => {
        const commits = await commitsOf(place);
        // The retry itself, the claim, the children in three, the rest.
        expect(commits).toBeGreaterThanOrEqual(5);
        const found = new Set<string>();
        for (let dies = 1; dies <= commits; dies++) {
          const id = `it-${dies}`;
          const handle = await place.openHandle({ logger: false });
          const next = await place.open({ logger: false });
          const run = await failing(handle, next, id);
          handle.dieBefore(dies);
          void handle.pawl.run(id).retry();
          await expect.poll(() => handle.isDead(), PATIENCE).toBe(true);
          const { status } = await run.status();
          found.add(status);
          if (status === "failed") await next.run(id).retry();
          else if (status === "running") await endLease(next, id);
          await ends(next, run);
        }
        expect(found).toEqual(new Set(["failed", "pending", "running"]));
      },
      LONG_MS,
    );
  });
});

const recordOf = async (pawl: Pawl, id: string): Promise<string> =>
  (await pawl.kernel.read([runAt(id)]))[0]?.value ?? "";

test("a parent of fifteen hundred children that failed is retried with all of them", async () => {
  await using pawl = openTest();
  let begun = 0;
  const kid = workflow("kid", async (ctx, n: number) => {
    if (n % 3 === 0)
      return ctx.step("fine", () => {
        begun += 1;
      });
    return ctx.step(
      "fails",
      () => {
        if (isDown) throw new Error("down");
        begun += 1;
      },
      { retry: { attempts: 1 } },
    );
  });
  const it = workflow("it", async (ctx) => {
    const settled = await Promise.allSettled(
      Array.from({ length: 1_500 }, (_, n) => ctx.call(kid, n, { id: `kid-${n}` })),
    );
    const failed = settled.filter(({ status }) => status === "rejected").length;
    if (failed > 0) throw new Error(`${failed} failed`);
    return "end";
  });
  pawl.work([it, kid], { concurrency: 200 });
  const run = await pawl.start(it, undefined, { id: "it" });
  await expect(run.result()).rejects.toMatchObject({ cause: { message: "1000 failed" } });
  isDown = false;
  await run.retry();
  await expect(run.result()).resolves.toBe("end");
  expect(begun).toBe(1_500);
});
