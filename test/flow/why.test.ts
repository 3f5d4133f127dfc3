/**
 * Goal: a run that has not begun says why: its workflow is paused, its starts are collected, its turn or its time comes later, or a limit has no room.
 * Method: situations that are built by hand under the clock of `openTest`, each asked about with `whyWaiting`.
 */

import { describe, expect, test } from "vitest";
import { open, signal, type WorkflowOptions, workflow } from "../../src/index.ts";
import { openTest, type TestPawl } from "../../src/testing/index.ts";
import { NothingLeftError } from "../../src/testing/kit/clock.ts";

const go = signal("go");
const now = new Date("2031-05-01T00:00:00Z");

type Options = Omit<WorkflowOptions<string, unknown>, "name">;

const waiting = (name: string, options: Options = {}) =>
  workflow<string>({ name, ...options }, async (ctx) => {
    await ctx.waitForSignal(go);
  });

const why = async (pawl: TestPawl, run: string): Promise<string> => (await pawl.whyWaiting({ run })).says;

describe("a workflow that is paused", () => {
  test("is what its runs wait for, with the reason, and not a worker", async () => {
    await using pawl = openTest({ now });
    const job = waiting("job");
    pawl.work([job]);
    await pawl.workflows.pause(job, { reason: "the vendor is down" });
    await pawl.start(job, "a", { id: "r" });
    expect(await why(pawl, "r")).toBe(
      'run "r" is pending, has been due since 2031-05-01T00:00:00.000Z, and workflow "job" is paused since 2031-05-01T00:00:00.000Z (the vendor is down): no runs of it begin until pawl.workflows.resume',
    );
    await pawl.workflows.resume(job);
    await pawl.run(job, "r").until("waiting");
    expect(await why(pawl, "r")).not.toContain("paused");
  });

  test("is named by a test that cannot end", async () => {
    await using pawl = openTest();
    const [job, other] = [waiting("job"), waiting("other")];
    pawl.work([job, other]);
    await pawl.workflows.pause(job);
    const run = await pawl.start(job, "a", { id: "r" });
    await pawl.start(other, "a", { id: "s" });
    await expect(run.result()).rejects.toThrow(NothingLeftError);
    await expect(run.result()).rejects.toThrow(
      /run "r" is pending.*, and its workflow "job" is paused; run "s" is waiting: waits for signal "go" since .*$/,
    );
  });

  test("is said of runs in line as well, and not of those that have begun", async () => {
    await using pawl = openTest({ now });
    const job = waiting("job", { concurrency: { max: 1 } });
    pawl.work([job]);
    const begun = await pawl.start(job, "a", { id: "r" });
    await begun.until("waiting");
    await pawl.start(job, "b", { id: "s" });
    await pawl.workflows.pause(job);
    expect(await why(pawl, "s")).toMatch(/^run "s" is queued: .* workflow "job" is paused since /);
    expect(await why(pawl, "r")).not.toContain("paused");
  });
});

describe("a run whose time comes later", () => {
  const rows: { rule: string; options: Options; start?: object; count?: number; says: string }[] = [
    {
      rule: "is debounced",
      options: { debounce: { period: "10s" } },
      count: 2,
      says: 'is pending: debounce collects its starts (2 starts so far), and it is due at 2031-05-01T00:00:10.000Z if no other start comes before, and it then needs a worker that works on "job"',
    },
    {
      rule: "has its turn later",
      options: { throttle: { per: "1 minute" } },
      count: 3,
      says: 'is pending: its turn under the rate of its workflow is at 2031-05-01T00:02:00.000Z, and it then needs a worker that works on "job"',
    },
    {
      rule: "was started with a delay, and expires",
      options: { ttl: "5s" },
      start: { delay: "1 hour" },
      says: 'is pending: its start has a delay or a time (at), and it is due at 2031-05-01T01:00:00.000Z, and it then needs a worker that works on "job", and expires if it has not begun by 2031-05-01T01:00:05.000Z',
    },
  ];
  test.each(rows)("$rule", async ({ options, start, count = 1, says }) => {
    await using pawl = openTest({ now });
    const job = waiting("job", options);
    let last = await pawl.start(job, "a", start);
    for (let n = 1; n < count; n++) last = await pawl.start(job, "a", start);
    expect(await why(pawl, last.id)).toBe(`run "${last.id}" ${says}`);
  });

  test("is part of a batch", async () => {
    await using pawl = openTest({ now });
    const insert = workflow(
      { name: "insert", batch: { size: 9, maxWait: "1s" } },
      async (_, of: readonly string[]) => of,
    );
    const { id } = await pawl.start(insert, "a");
    expect(await why(pawl, id)).toContain(
      "batch collects its starts (1 start so far), and it is due when the batch is full, or else at 2031-05-01T00:00:01.000Z",
    );
  });

  test("is overdue: it needs a worker", async () => {
    await using pawl = openTest({ now });
    await pawl.start("job", "a", { id: "r" });
    expect(await why(pawl, "r")).toBe(
      'run "r" is pending, has been due since 2031-05-01T00:00:00.000Z, and needs a worker that works on "job"',
    );
  });
});

describe("a run in line", () => {
  test("names the limit as the user does: its own name and key, or the workflow", async () => {
    await using pawl = openTest();
    const own = waiting("own", { concurrency: { max: 1, key: (key) => key } });
    const shared = waiting("shared", { concurrency: { name: "vendor", max: 1 } });
    const other = waiting("other", { concurrency: { name: "vendor", max: 1 } });
    for (const [job, id] of [
      [own, "o"],
      [shared, "s"],
      [other, "t"],
    ] as const)
      for (const n of [1, 2]) await pawl.start(job, "ann", { id: `${id}${n}` });
    const { chain } = await pawl.whyWaiting({ run: "o2" });
    expect(chain.map(({ is, name }) => [is, name])).toEqual([
      ["run", "o2"],
      ["limit", "own"],
      ["run", "o1"],
    ]);
    expect(chain.map(({ says }) => says)).toEqual([
      'run "o2" is queued: 1 run of its workflow with its keys waits in this line, and 0 of them are before it in its priority',
      'the concurrency limit of workflow "own" for the key "ann" has admitted 1 run that has not ended: "o1", and its max is 1 (pawl.runs.list({ workflow: "own" }) shows runs with their status)',
      expect.stringMatching(/^run "o1" is pending, .* needs a worker that works on "own"$/),
    ]);
    const [, link] = (await pawl.whyWaiting({ run: "t2" })).chain;
    expect(link?.name).toBe("vendor");
    expect(link?.says).toBe(
      'the concurrency limit "vendor" has admitted 1 run that has not ended: "s1", and its max is 1, and lines with other keys or of other workflows take turns with this one (pawl.runs.list, for the workflows that share it, shows runs with their status)',
    );
  });

  test("says that a max below the number of admitted runs was declared last", async () => {
    await using pawl = openTest();
    const two = waiting("two", { concurrency: { name: "vendor", max: 2 } });
    const one = waiting("one", { concurrency: { name: "vendor", max: 1 } });
    for (const id of ["a", "b"]) await pawl.start(two, "x", { id });
    await pawl.start(one, "x", { id: "c" });
    expect(await why(pawl, "c")).toContain(
      'has admitted 2 runs that have not ended: "a", "b", and its max is 1 as it was declared last',
    );
  });
});

describe("what a run in line waits for", () => {
  test("is followed to what the first run that the limit has admitted waits for, and three are named", async () => {
    await using pawl = openTest({ now });
    const line = waiting("line", { concurrency: { max: 4, key: (key) => key } });
    pawl.work([line]);
    for (let n = 1; n <= 4; n++) await (await pawl.start(line, "ann", { id: `r${n}` })).until("waiting");
    await pawl.start(line, "bob", { id: "other" });
    await pawl.start(line, "ann", { id: "last" });
    const { says, chain } = await pawl.whyWaiting({ run: "last" });
    expect(says).toContain('has admitted 4 runs that have not ended: "r1", "r2", "r3" and 1 more, and its max is 4');
    expect(chain.at(-1)).toMatchObject({
      is: "run",
      name: "r1",
      says: expect.stringMatching(/^run "r1" waits for signal "go"/),
    });
  });
});

describe("a run that no worker takes", () => {
  test("names a worker that is full", async () => {
    await using pawl = await open("memory:", { logger: false });
    const full = workflow("full", (ctx) =>
      ctx.step(
        "s",
        ({ abortSignal }) => new Promise<void>((resolve) => abortSignal.addEventListener("abort", () => resolve())),
      ),
    );
    const worker = pawl.work([full], { perWorkflow: { full: 1 } });
    await worker.ready;
    await pawl.start(full, undefined, { id: "r1" });
    await expect.poll(async () => (await pawl.run("r1").status()).worker).not.toBeNull();
    await pawl.start(full, undefined, { id: "r2" });
    const { worker: by } = await pawl.run("r1").status();
    await expect
      .poll(async () => (await pawl.whyWaiting({ run: "r2" })).says)
      .toContain(
        `needs a worker that works on "full" and has a free place: worker "${by}" has a run of it under way (concurrency and perWorkflow`,
      );
    await worker.stop({ timeout: 0 });
  });

  test("names its pool", async () => {
    await using pawl = openTest({ now });
    const pooled = workflow<string>(
      { name: "pooled", pools: { key: (at) => at, names: ["eu", "us"] } },
      async () => {},
    );
    pawl.work([pooled], { pools: { pooled: ["eu"] } });
    await pawl.start(pooled, "us", { id: "r" });
    expect(await why(pawl, "r")).toBe(
      'run "r" is pending, has been due since 2031-05-01T00:00:00.000Z, and needs a worker that works on pool "us" of "pooled"',
    );
  });
});

test("a step that waits for its turn names the rate limit", async () => {
  await using pawl = openTest({ now });
  const calls = workflow("calls", (ctx) =>
    ctx.step("call", () => 1, { rateLimit: { name: "vendor", max: 1, per: "1 minute", strict: true } }),
  );
  pawl.work([calls]);
  await (await pawl.start(calls)).result();
  const run = await pawl.start(calls, undefined, { id: "r" });
  await run.until("waiting");
  expect((await run.status()).doing).toMatchObject([{ name: "call", waitsFor: ["vendor"] }]);
  const says = await why(pawl, "r");
  expect(says).toMatch(
    /^run "r" waits for attempt 1 of step "call" under rate limit "vendor" at 2031-05-01T00:01:\S+Z since \S+Z, and then needs a worker that knows it$/,
  );
});

test("a run that was asked to stop says so, and which step keeps it", async () => {
  await using pawl = await open("memory:", { logger: false });
  let free = () => {};
  const hang = workflow("hang", (ctx) =>
    ctx.step(
      "never",
      () =>
        new Promise<void>((resolve) => {
          free = resolve;
        }),
    ),
  );
  const worker = pawl.work([hang]);
  const run = await pawl.start(hang, undefined, { id: "r" });
  await expect.poll(async () => (await run.status()).doing[0]?.isRunning).toBe(true);
  await run.cancel({ reason: "op" });
  const { says } = await pawl.whyWaiting({ run: "r" });
  expect(says).toMatch(/^run "r" is running attempt 1 of step "never"/);
  expect(says).toContain(
    ', and was asked to stop (op), but step "never" is still running: its function has to end when its abortSignal aborts; to end the run without waiting for it, call run.cancel({ force: true })',
  );
  free();
  await worker.stop();
});

test("a run that workers contradict says that first, and what to do", async () => {
  await using pawl = await open("memory:", { logger: false });
  const before = workflow("ship", async (ctx) => {
    await ctx.step("charge", () => 1);
    await ctx.waitForSignal(go);
  });
  const after = workflow("ship", async (ctx) => {
    await ctx.step("check", () => 1);
    await ctx.step("charge", () => 1);
  });
  const old = pawl.work([before]);
  const run = await pawl.start(before, undefined, { id: "r" });
  await expect.poll(async () => (await run.status()).status).toBe("waiting");
  await old.stop();
  const worker = pawl.work([after]);
  await run.signal(go);
  await expect
    .poll(async () => (await pawl.whyWaiting({ run: "r" })).says)
    .toMatch(
      /^run "r" cannot continue: workers whose code contradicts its history have released it since \S+Z: .*; work on it with the code that it began with, or call run\.cancel\(\{ force: true \}\)$/,
    );
  await worker.stop();
});
