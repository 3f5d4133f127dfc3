/**
 * Goal: what controls the flow of starts keeps to its definition: debounce, batch, rate limits, throttle, ttl, priority and fairness.
 * Method: the virtual clock of `openTest`; each run notes when it began. For debounce, batch and throttle, random times against a model of the definition
 * (`models.ts`).
 */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { signal, type WorkflowOptions, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { batched, debounced, type Start, turnsOf } from "./models.ts";

const go = signal("go");

type Item = { readonly key: string; readonly n: number };
type Options = Omit<WorkflowOptions<Item, unknown>, "name">;

/** A handle with a worker whose runs note when they began and with what. */
function noting(options: Options) {
  const pawl = openTest();
  const startMs = pawl.clock.now().getTime();
  const begun: { readonly atMs: number; readonly n: number; readonly key: string }[] = [];
  const job = workflow<Item>({ name: "job", ...options }, async (ctx, { key, n }) => {
    await ctx.step("begin", () => {
      begun.push({ atMs: pawl.clock.now().getTime() - startMs, n, key });
    });
  });
  pawl.work([job]);
  return { pawl, job, begun };
}

describe("debounce", () => {
  test("starts that follow each other are one run with the last input, and each caller has it", async () => {
    const { pawl, job, begun } = noting({ debounce: { period: "10s", key: ({ key }) => key } });
    const first = await pawl.start(job, { key: "a", n: 1 });
    await pawl.clock.advance("9s");
    const second = await pawl.start(job, { key: "a", n: 2 });
    const other = await pawl.start(job, { key: "b", n: 3 });
    expect(second.id).toBe(first.id);
    expect(other.id).not.toBe(first.id);
    await pawl.clock.advance("1 minute");
    expect(begun.map(({ n }) => n).sort()).toEqual([2, 3]);
    expect(begun.map(({ atMs }) => atMs)).toEqual([19_000, 19_000]);
    expect((await pawl.start(job, { key: "a", n: 4 })).id).not.toBe(first.id);
    await pawl.close();
  });

  test("a start with an id counts once, and another input under it is refused", async () => {
    const { pawl, job, begun } = noting({ debounce: { period: "10s" } });
    const first = await pawl.start(job, { key: "a", n: 1 }, { id: "one" });
    await pawl.clock.advance("9s");
    expect((await pawl.start(job, { key: "a", n: 1 }, { id: "one" })).id).toBe(first.id);
    expect(await codeOf(pawl.start(job, { key: "a", n: 2 }, { id: "one" }))).toBe("run_conflict");
    await pawl.clock.advance("1s");
    expect(begun).toMatchObject([{ atMs: 10_000, n: 1 }]);
    expect((await pawl.start(job, { key: "a", n: 1 }, { id: "one" })).id).toBe(first.id);
    await pawl.clock.advance("1 minute");
    expect(begun).toHaveLength(1);
    await pawl.close();
  });

  test("a repeated start with an id takes no turn in a rate limit that refuses", async () => {
    const rateLimit = { max: 1, per: "1 hour", excess: "reject" } as const;
    const { pawl, job, begun } = noting({ debounce: { period: "10s" }, rateLimit });
    const first = await pawl.start(job, { key: "a", n: 1 }, { id: "one" });
    expect((await pawl.start(job, { key: "a", n: 1 }, { id: "one" })).id).toBe(first.id);
    expect(await codeOf(pawl.start(job, { key: "a", n: 2 }, { id: "two" }))).toBe("rate_limited");
    await pawl.clock.advance("1 minute");
    expect(begun).toMatchObject([{ n: 1 }]);
    await pawl.close();
  });

  test("a ttl counts from the end of collecting, however long that takes", async () => {
    const { pawl, job, begun } = noting({ debounce: { period: "10s" }, ttl: "5s" });
    const run = await pawl.start(job, { key: "a", n: 1 });
    for (const n of [2, 3, 4]) {
      await pawl.clock.advance("9s");
      await pawl.start(job, { key: "a", n });
    }
    await pawl.clock.advance("1 minute");
    expect(begun).toMatchObject([{ atMs: 37_000, n: 4 }]);
    const { scheduledAt, startedAt } = await run.status();
    expect((scheduledAt?.getTime() ?? 0) - startedAt.getTime()).toBe(37_000);
    await pawl.close();
  });

  test("a run that was canceled collects no more", async () => {
    const { pawl, job, begun } = noting({ debounce: { period: "10s" } });
    const first = await pawl.start(job, { key: "a", n: 1 });
    await first.cancel();
    const second = await pawl.start(job, { key: "a", n: 2 });
    expect(second.id).not.toBe(first.id);
    await pawl.clock.advance("1 minute");
    expect(begun).toMatchObject([{ n: 2 }]);
    await pawl.close();
  });

  test("against its definition, at random times", async () => {
    const gaps = fc.array(fc.integer({ min: 0, max: 15 }), { minLength: 1, maxLength: 20 });
    await fc.assert(
      fc.asyncProperty(gaps, fc.option(fc.integer({ min: 10, max: 30 })), async (all, maxWait) => {
        const { pawl, job, begun } = noting({
          debounce: {
            period: 10,
            ...(maxWait === null ? {} : { maxWait }),
            merge: (a, b) => ({ key: a.key, n: a.n + b.n }),
          },
        });
        const starts: Start[] = [];
        let nowMs = 0;
        for (const gap of all) {
          nowMs += gap;
          await pawl.clock.advance(gap);
          starts.push({ atMs: nowMs, key: "a", n: 1 });
          await pawl.start(job, { key: "a", n: 1 });
        }
        await pawl.clock.advance(100);
        expect(begun.map(({ atMs, n }) => ({ atMs, n }))).toEqual(
          debounced(starts, 10, maxWait).map(({ dueMs, items }) => ({ atMs: dueMs, n: items.length })),
        );
        await pawl.close();
      }),
      { numRuns: 20 },
    );
  });
});

describe("batch", () => {
  test("a run gets the list of inputs, when it is full or its time is over, and each caller learns which run took its input", async () => {
    const pawl = openTest();
    const begun: (readonly number[])[] = [];
    const insert = workflow(
      { name: "insert", batch: { size: 3, maxWait: "10s" } },
      async (ctx, rows: readonly number[]) => {
        await ctx.step("insert", () => {
          begun.push(rows);
        });
        return rows.length;
      },
    );
    pawl.work([insert]);
    const runs = [];
    for (let n = 1; n <= 4; n++) runs.push(await pawl.start(insert, n));
    expect(new Set(runs.slice(0, 3).map(({ id }) => id)).size).toBe(1);
    expect(runs[3]?.id).not.toBe(runs[0]?.id);
    expect(await runs[0]?.result()).toBe(3);
    await pawl.clock.advance("9s");
    expect(begun).toEqual([[1, 2, 3]]);
    await pawl.clock.advance("1s");
    expect(begun).toEqual([[1, 2, 3], [4]]);
    // A repeated start with an id adds no second input.
    const one = await pawl.start(insert, 7, { id: "seven" });
    await pawl.start(insert, 8, { id: "eight" });
    expect((await pawl.start(insert, 7, { id: "seven" })).id).toBe(one.id);
    await pawl.clock.advance("10s");
    expect(begun.at(-1)).toEqual([7, 8]);
    await pawl.close();
  });

  test("large inputs are not collected beyond what a run can have", async () => {
    const pawl = openTest();
    const sizes: number[] = [];
    const insert = workflow(
      { name: "insert", batch: { size: 10, maxWait: "10s" } },
      async (ctx, rows: readonly string[]) => {
        await ctx.step("insert", () => {
          sizes.push(rows.length);
        });
      },
    );
    pawl.work([insert]);
    for (let n = 0; n < 5; n++) await pawl.start(insert, "x".repeat(200_000));
    await pawl.clock.advance("20s");
    expect(sizes).toEqual([2, 2, 1]);
    await pawl.close();
  });

  test("against its definition, at random times, by key", async () => {
    const starts = fc.array(fc.record({ gap: fc.integer({ min: 0, max: 6 }), key: fc.constantFrom("a", "b") }), {
      minLength: 1,
      maxLength: 25,
    });
    await fc.assert(
      fc.asyncProperty(starts, fc.integer({ min: 1, max: 4 }), async (all, size) => {
        const pawl = openTest();
        const begun: string[] = [];
        const collect = workflow(
          { name: "collect", batch: { size, maxWait: 10, key: ({ key }: Item) => key } },
          async (ctx, items: readonly Item[]) => {
            await ctx.step("insert", () => {
              begun.push(items.map(({ n }) => n).join(" "));
            });
          },
        );
        pawl.work([collect]);
        const starts: Start[] = [];
        let nowMs = 0;
        for (const [n, { gap, key }] of all.entries()) {
          nowMs += gap;
          await pawl.clock.advance(gap);
          starts.push({ atMs: nowMs, key, n });
          await pawl.start(collect, { key, n });
        }
        await pawl.clock.advance(100);
        const expected = batched(starts, size, 10).map(({ items }) => items.join(" "));
        expect(begun.toSorted()).toEqual(expected.toSorted());
        await pawl.close();
      }),
      { numRuns: 20 },
    );
  });
});

describe("rates of starts", () => {
  test("a throttle spaces runs evenly, by key", async () => {
    const { pawl, job, begun } = noting({ throttle: { max: 2, per: "10s", key: ({ key }) => key } });
    for (let n = 0; n < 4; n++) await pawl.start(job, { key: "a", n });
    await pawl.start(job, { key: "b", n: 9 });
    await pawl.clock.advance("1 minute");
    expect(begun.filter(({ key }) => key === "a").map(({ atMs }) => atMs)).toEqual([0, 5000, 10_000, 15_000]);
    expect(begun.find(({ key }) => key === "b")?.atMs).toBe(0);
    await pawl.close();
  });

  test("a rate limit lets them wait, or refuses them", async () => {
    const { pawl, job, begun } = noting({ rateLimit: { max: 2, per: "10s" } });
    for (let n = 0; n < 3; n++) await pawl.start(job, { key: "a", n });
    await pawl.clock.advance("1 minute");
    expect(begun.map(({ atMs }) => atMs)).toEqual([0, 0, 5000]);
    await pawl.close();

    const strict = noting({ rateLimit: { max: 1, per: "10s", excess: "reject", key: ({ key }) => key } });
    await strict.pawl.start(strict.job, { key: "a", n: 1 });
    const refused = await strict.pawl.start(strict.job, { key: "a", n: 2 }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: "rate_limited", data: { retryAfterMs: 10_000 } });
    await strict.pawl.start(strict.job, { key: "b", n: 3 });
    // One that begins later is refused by its start, too.
    expect(await codeOf(strict.pawl.start(strict.job, { key: "a", n: 4 }, { delay: "1 hour" }))).toBe("rate_limited");
    await strict.pawl.close();
  });

  test.each([
    {
      rule: "each start takes a turn in both, and begins at the later one",
      max: 2,
      per: "20s",
      begins: [0, 10, 20, 30],
    },
    { rule: "the slower of the two counts", max: 2, per: "1 minute", begins: [0, 10, 30, 60] },
    { rule: "the throttle alone counts where it is slower", max: 100, per: "1 minute", begins: [0, 10, 20, 30] },
  ])("a throttle and a rate limit: $rule", async ({ max, per, begins }) => {
    const { pawl, job, begun } = noting({ throttle: { per: "10s" }, rateLimit: { max, per } });
    for (let n = 0; n < 4; n++) await pawl.start(job, { key: "a", n });
    await pawl.clock.advance("5 minutes");
    expect(begun.map(({ atMs }) => atMs / 1000)).toEqual(begins);
    await pawl.close();
  });

  test("a start that the rate limit refuses takes no turn of the throttle", async () => {
    const rateLimit = { max: 1, per: "10s", excess: "reject", key: ({ key }: Item) => key } as const;
    const { pawl, job, begun } = noting({ throttle: { per: "1s" }, rateLimit });
    await pawl.start(job, { key: "a", n: 1 });
    for (let n = 2; n < 5; n++) expect(await codeOf(pawl.start(job, { key: "a", n }))).toBe("rate_limited");
    await pawl.start(job, { key: "b", n: 5 });
    await pawl.clock.advance("1 minute");
    expect(begun.map(({ atMs }) => atMs)).toEqual([0, 1000]);
    await pawl.close();
  });

  test("where the keys of a throttle and a rate limit differ, runs whose turns in the rate limit are later may begin beside others", async () => {
    const rateLimit = { max: 3, per: "1 minute", strict: true, key: ({ key }: Item) => key } as const;
    const { pawl, job, begun } = noting({ throttle: { per: "10s" }, rateLimit });
    for (const [n, key] of [..."aaaabbbb"].entries()) await pawl.start(job, { key, n });
    await pawl.clock.advance("5 minutes");
    expect(begun.map(({ key, atMs }) => `${key}${atMs / 1000}`).sort()).toEqual(
      ["a0", "a20", "a40", "a60", "b40", "b50", "b60", "b70"].sort(),
    );
    await pawl.close();
  });

  test("runs of a throttle are never closer than its spacing, at random times", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 0, max: 12 }), { minLength: 1, maxLength: 20 }), async (gaps) => {
        const { pawl, job, begun } = noting({ throttle: { per: 10 } });
        const starts: number[] = [];
        let nowMs = 0;
        for (const [n, gap] of gaps.entries()) {
          nowMs += gap;
          await pawl.clock.advance(gap);
          await pawl.start(job, { key: "a", n });
          starts.push(nowMs);
        }
        await pawl.clock.advance(1000);
        expect(begun.map(({ atMs }) => atMs)).toEqual(turnsOf(starts, 10, 1));
        await pawl.close();
      }),
      { numRuns: 20 },
    );
  });
});

describe("a run that has not begun in time", () => {
  const holding: Options & { readonly concurrency: { readonly max: 1 } } = { concurrency: { max: 1 } };

  test("expires in line, and the line goes on without it", async () => {
    const pawl = openTest();
    const job = workflow<Item>({ name: "job", ...holding }, async (ctx) => {
      await ctx.waitForSignal(go);
    });
    pawl.work([job]);
    const first = await pawl.start(job, { key: "a", n: 1 });
    const second = await pawl.start(job, { key: "a", n: 2 }, { ttl: "1 minute" });
    const third = await pawl.start(job, { key: "a", n: 3 });
    await pawl.clock.advance("59s");
    expect((await second.status()).status).toBe("queued");
    await pawl.clock.advance("1s");
    expect((await second.status()).status).toBe("expired");
    expect(await codeOf(second.result())).toBe("run_expired");
    await first.signal(go);
    await first.result();
    await third.signal(go);
    await third.result();
    // An operator can let it begin after all.
    await second.retry();
    await second.signal(go);
    await second.result();
    await pawl.close();
  });

  test("expires when a worker takes it too late, and its time counts from when it should begin", async () => {
    const pawl = openTest();
    const job = workflow("job", async () => "done");
    const late = await pawl.start(job, undefined, { ttl: "1 minute" });
    const delayed = await pawl.start(job, undefined, { ttl: "1 minute", delay: "1 hour" });
    await pawl.clock.advance("2 minutes");
    pawl.work([job]);
    expect(await codeOf(late.result())).toBe("run_expired");
    expect(await delayed.result()).toBe("done");
    await pawl.close();
  });
});

test("a run that waits for its turn does not begin while its workflow is paused", async () => {
  const { pawl, job, begun } = noting({ throttle: { per: "1 minute" } });
  // Runs with a time pass the gate when they are claimed.
  for (const n of [1, 2]) await pawl.start(job, { key: "a", n }, { delay: "1s" });
  await pawl.clock.advance("10s");
  expect(begun.map(({ n }) => n)).toHaveLength(1);
  await pawl.workflows.pause(job);
  await pawl.clock.advance("10 minutes");
  expect(begun).toHaveLength(1);
  await pawl.workflows.resume(job);
  await pawl.clock.advance("1s");
  expect(begun).toHaveLength(2);
  await pawl.close();
});

test("the time of a run begins when it is admitted, and stays so when it is retried", async () => {
  const pawl = openTest();
  const startMs = pawl.clock.now().getTime();
  const seen: (readonly [number, number])[] = [];
  let isBroken = true;
  const job = workflow<Item>(
    { name: "job", concurrency: { max: 1 }, retry: { attempts: 1 } },
    async (ctx, { n }): Promise<void> => {
      const atMs = ctx.now().getTime() - startMs;
      seen.push([n, atMs]);
      if (n === 1) await ctx.waitForSignal(go);
      await ctx.step("work", () => {
        if (n === 2 && isBroken) throw new Error("broken");
      });
    },
  );
  pawl.work([job]);
  const first = await pawl.start(job, { key: "a", n: 1 });
  const second = await pawl.start(job, { key: "a", n: 2 });
  const byName = await pawl.start("job", { key: "a", n: 3 }, { delay: "30 minutes" });
  await pawl.clock.advance("1 hour");
  await first.signal(go);
  expect(await codeOf(second.result())).toBe("run_failed");
  await byName.result();
  await pawl.clock.advance("1 hour");
  isBroken = false;
  await second.retry();
  await second.result();
  const hour = 3_600_000;
  expect(seen.filter(([n]) => n > 1)).toEqual([
    [2, hour],
    [3, hour],
    [2, hour],
  ]);
  await pawl.close();
});

describe("the order of those that wait", () => {
  /** Starts all while one run holds the only place, and returns the order in which they begin. */
  async function order(
    options: Options,
    starts: readonly (Item & { readonly priority?: number; readonly afterMs?: number })[],
  ): Promise<number[]> {
    const pawl = openTest();
    const begun: number[] = [];
    const job = workflow<Item>({ name: "job", concurrency: { max: 1 }, ...options }, async (ctx, { n }) => {
      await ctx.step("begin", () => {
        begun.push(n);
      });
      if (n === 0) await ctx.waitForSignal(go);
    });
    pawl.work([job]);
    const first = await pawl.start(job, { key: "-", n: 0 });
    const runs = [];
    for (const { priority, afterMs = 0, ...item } of starts) {
      await pawl.clock.advance(afterMs);
      runs.push(await pawl.start(job, item, priority === undefined ? {} : { priority }));
    }
    await first.signal(go);
    for (const run of runs) await run.result();
    await pawl.close();
    return begun.slice(1);
  }

  test("is that of their starts", async () => {
    expect(
      await order(
        {},
        [1, 2, 3].map((n) => ({ key: "a", n })),
      ),
    ).toEqual([1, 2, 3]);
  });

  test("is by priority, but no run is overtaken forever", async () => {
    const starts = [
      { key: "a", n: 1 },
      { key: "a", n: 2, priority: 5 },
      { key: "a", n: 3, priority: 5, afterMs: 6 * 60_000 },
      { key: "a", n: 4, priority: -1 },
    ];
    expect(await order({}, starts)).toEqual([2, 1, 3, 4]);
  });

  test("takes turns where each key has a limit of its own, and all have one together", async () => {
    for (const isReversed of [false, true]) {
      const pawl = openTest();
      const begun: number[] = [];
      const limits = [{ max: 1, key: ({ key }: Item) => key, name: "key" }, { max: 2 }];
      const job = workflow<Item>(
        { name: "job", concurrency: isReversed ? limits.toReversed() : limits },
        async (ctx, { n }) => {
          await ctx.step("begin", () => {
            begun.push(n);
          });
          await ctx.sleep("1 minute");
        },
      );
      pawl.work([job]);
      const runs = [];
      for (let n = 0; n < 20; n++) runs.push(await pawl.start(job, { key: n % 2 === 0 ? "a" : "b", n }));
      runs.push(await pawl.start(job, { key: "c", n: 99 }));
      for (const run of runs) await run.result();
      // Two have begun before it is started, and each of the other lines has at most a turn or two before it.
      expect(begun.indexOf(99)).toBeLessThanOrEqual(6);
      await pawl.close();
    }
  });

  test("takes turns by key, by weight", async () => {
    const many = Array.from({ length: 6 }, (_, i) => ({ key: "big", n: 10 + i }));
    const starts = [...many, { key: "one", n: 1 }, { key: "two", n: 2 }];
    const fair = { fairness: { key: ({ key }: Item) => key } };
    expect(await order(fair, starts)).toEqual([10, 1, 2, 11, 12, 13, 14, 15]);
    const weighted = { fairness: { key: ({ key }: Item) => key, weight: ({ key }: Item) => (key === "big" ? 3 : 1) } };
    expect(await order(weighted, starts)).toEqual([10, 11, 12, 1, 2, 13, 14, 15]);
  });
});
