/**
 * Goal: runs that are started all at once, beyond the places of their worker, cost as few commits as those that callers start one after another; and
 * none of them is kept from another process that could begin it.
 * Method: the decisions of a burst are counted, on a worker whose rate is known. Runs that wait for a place are signaled, canceled, paused and left behind.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type Pawl, type Run, signal, workflow } from "../../src/index.ts";
import { EVERY, onStores, PATIENCE, reaches, resultOf } from "./kit.ts";

const PLACES = 4;
const BURST = 40;
const READ_MS = 30;

const quick = workflow("quick", async (ctx, n: number) => ctx.step("double", () => 2 * n));

/** Resolves a step of `slow` when the test says so. */
let open: () => void = () => {};
let opened: Promise<void> = Promise.resolve();
const close = (): void => {
  ({ promise: opened, resolve: open } = Promise.withResolvers<void>());
};

const go = signal<string>("go");
const slow = workflow("slow", async (ctx, _n: number) => {
  await ctx.step("wait", () => opened);
  return "done";
});
const entered: string[] = [];
const asked = workflow("asked", async (ctx) => {
  entered.push(ctx.runId);
  const received = await ctx.waitForSignal(go, { timeout: "1 minute" });
  return received.ok ? received.value : "nothing";
});

/** It has passed what there is to pass when it is started, and holds no place. */
const passed = workflow({ name: "passed", priority: () => 0 }, async (ctx) => void entered.push(ctx.runId));

const isClaimed = (run: { status(): Promise<{ readonly worker: unknown }> }): Promise<void> =>
  expect.poll(async () => (await run.status()).worker, PATIENCE).not.toBeNull();

/** Runs after each other for more than a second, so that the worker knows how many it does. */
async function warmUp(pawl: Pawl): Promise<void> {
  const until = performance.now() + 2500;
  while (performance.now() < until)
    await Promise.all(Array.from({ length: PLACES }, async (_, n) => resultOf(await pawl.start(quick, n))));
}

/**
 * Works on a backlog for a moment, with reads that take a while: so the worker claims ahead of its places. The backlog is found
 * by its first read, and so is what `make` starts then.
 */
async function fallBehind<T>(pawl: Pawl, other: Pawl, make: () => Promise<T>): Promise<T> {
  const { kernel } = pawl;
  const due = kernel.due.bind(kernel);
  let isMade: Promise<unknown> = Promise.resolve();
  kernel.due = async (query) => {
    await sleep(READ_MS);
    await isMade;
    return due(query);
  };
  const together = <M>(making: Promise<M>): Promise<M> => {
    isMade = making;
    return making;
  };
  const backlog = Array.from({ length: 10 * BURST }, (_, n) => other.start(quick, n));
  await Promise.all((await together(Promise.all(backlog))).map(resultOf));
  return together(make());
}

/** What is started afterwards is due after these, also by a clock that was estimated. */
async function takePlaces(pawl: Pawl): Promise<readonly Run<string>[]> {
  const runs = await Promise.all(Array.from({ length: PLACES }, (_, n) => pawl.start(slow, n)));
  await sleep(4 * READ_MS);
  return runs;
}

/** How many decisions the handle submits from now on. */
function count(pawl: Pawl): () => number {
  const { kernel } = pawl;
  let decisions = 0;
  for (const name of ["transact", "transactHeld"] as const) {
    const submit = kernel[name].bind(kernel) as (...given: unknown[]) => Promise<never>;
    kernel[name] = ((...given: unknown[]) => {
      decisions += 1;
      return submit(...given);
    }) as never;
  }
  return () => decisions;
}

onStores(EVERY, (place) => {
  test("a run of a burst costs two commits, as any run of one step does", async () => {
    const pawl = await place.open();
    pawl.work([quick], { concurrency: PLACES });
    await warmUp(pawl);
    const decisions = count(pawl);
    const runs = await Promise.all(Array.from({ length: BURST }, (_, n) => pawl.start(quick, n)));
    expect(await Promise.all(runs.map(resultOf))).toEqual(runs.map((_, n) => 2 * n));
    expect(decisions()).toBe(2 * BURST);
  });

  test("a run that waits for a place is released to a worker that has one", async () => {
    const [one, two] = [await place.open(), await place.open()];
    close();
    // Longer than the test has patience.
    one.work([quick, slow], { concurrency: PLACES, lease: "1 hour" });
    await warmUp(one);
    const runs = await Promise.all(Array.from({ length: 2 * PLACES }, (_, n) => one.start(slow, n)));
    two.work([slow]);
    await expect
      .poll(async () => new Set(await Promise.all(runs.map(async (run) => (await run.status()).worker))).size, PATIENCE)
      .toBe(2);
    open();
    expect(await Promise.all(runs.map(resultOf))).toEqual(runs.map(() => "done"));
  });

  test("what a run receives while it waits for a place is there when it begins", async () => {
    const [one, two] = [await place.open(), await place.open()];
    close();
    one.work([quick, slow, asked], { concurrency: PLACES });
    await warmUp(one);
    const busy = await Promise.all(Array.from({ length: PLACES }, (_, n) => one.start(slow, n)));
    const [told, toldElsewhere, canceled, ended, endedElsewhere] = await Promise.all(
      Array.from({ length: 5 }, () => one.start(asked)),
    );
    if (told === undefined || toldElsewhere === undefined || canceled === undefined) throw new Error("not started");
    if (ended === undefined || endedElsewhere === undefined) throw new Error("not started");
    await told.signal(go, "here");
    await two.run(asked, toldElsewhere.id).signal(go, "there");
    await canceled.cancel();
    await ended.cancel({ force: true });
    await two.run(asked, endedElsewhere.id).cancel({ force: true });
    open();
    expect(await resultOf(told)).toBe("here");
    expect(await resultOf(toldElsewhere)).toBe("there");
    for (const run of [canceled, ended, endedElsewhere]) await expect(resultOf(run)).rejects.toThrow("canceled");
    expect(entered).toEqual(expect.arrayContaining([told.id, toldElsewhere.id]));
    for (const { id } of [ended, endedElsewhere]) expect(entered).not.toContain(id);
    await Promise.all(busy.map(resultOf));
  });

  test("a run that waits for a place when its workflow is paused does not begin before that is resumed", async () => {
    const pawl = await place.open();
    close();
    pawl.work([quick, slow], { concurrency: PLACES });
    await warmUp(pawl);
    const busy = await Promise.all(Array.from({ length: PLACES }, (_, n) => pawl.start(slow, n)));
    const waiting = await Promise.all(Array.from({ length: PLACES }, (_, n) => pawl.start(quick, n)));
    await pawl.workflows.pause("quick");
    open();
    await Promise.all(busy.map(resultOf));
    for (const run of waiting) await reaches(run, "pending");
    await pawl.workflows.resume("quick");
    expect(await Promise.all(waiting.map(resultOf))).toEqual([0, 2, 4, 6]);
  });

  test("a worker that stops releases what waits for a place", async () => {
    const [one, two] = [await place.open(), await place.open()];
    close();
    const worker = one.work([quick, slow], { concurrency: PLACES, lease: "1 hour" });
    await warmUp(one);
    const busy = await Promise.all(Array.from({ length: PLACES }, (_, n) => one.start(slow, n)));
    const waiting = await Promise.all(Array.from({ length: 10 * PLACES }, (_, n) => one.start(quick, n)));
    const stopped = worker.stop();
    open();
    await stopped;
    for (const run of waiting) expect((await run.status()).worker).toBeNull();
    two.work([quick, slow]);
    expect(await Promise.all(waiting.map(resultOf))).toEqual(waiting.map((_, n) => 2 * n));
    await Promise.all(busy.map(resultOf));
  });

  test("a run that is ended here while it waits for a place never begins", async () => {
    const pawl = await place.open();
    close();
    pawl.work([quick, slow, asked], { concurrency: PLACES });
    await warmUp(pawl);
    const busy = await Promise.all(Array.from({ length: PLACES }, (_, n) => pawl.start(slow, n)));
    const ended = await pawl.start(asked);
    await ended.cancel({ force: true });
    open();
    await Promise.all(busy.map(resultOf));
    expect(await resultOf(await pawl.start(quick, 1))).toBe(2);
    expect(entered).not.toContain(ended.id);
  });

  test("runs that were due before are begun before those that are started after them", async () => {
    const order: number[] = [];
    const noted = workflow("noted", async (ctx, n: number) => ctx.step("note", () => void order.push(n)));
    const [one, two] = [await place.open(), await place.open()];
    close();
    one.work([quick, slow, noted], { concurrency: 1 });
    await warmUp(one);
    const busy = await one.start(slow, 0);
    const isKnown = new Promise<void>((resolve) => {
      one.kernel.listen((puts) => {
        if (puts === undefined) resolve();
      });
    });
    const early = await two.start(noted, 1);
    await isKnown;
    const late = await one.start(noted, 2);
    expect((await late.status()).worker).toBeNull();
    open();
    await Promise.all([busy, early, late].map(resultOf));
    const [first = 0, second = 0] = (await Promise.all([early.status(), late.status()])).map(({ startedAt }) =>
      startedAt.getTime(),
    );
    // What is due in the same millisecond has no order, and two processes may be a little apart.
    expect(first < second ? order : order.toSorted()).toEqual([1, 2]);
  });

  test("a run that was claimed ahead of a place never begins if it is ended, here or elsewhere, before there is one", async () => {
    const [one, two] = [await place.open(), await place.open()];
    close();
    one.work([quick, slow, asked], { concurrency: PLACES });
    const { busy, here, elsewhere, told } = await fallBehind(one, two, async () => ({
      busy: await takePlaces(two),
      here: await two.start(asked),
      elsewhere: await two.start(asked),
      told: await two.start(asked),
    }));
    for (const run of [here, elsewhere, told]) await isClaimed(run);
    await one.run(asked, here.id).cancel({ force: true });
    const isKnown = new Promise<void>((resolve) => {
      one.kernel.listen((puts) => {
        if (puts === undefined) resolve();
      });
    });
    await elsewhere.cancel({ force: true });
    await isKnown;
    await told.signal(go, "there");
    open();
    expect(await resultOf(told)).toBe("there");
    await Promise.all(busy.map(resultOf));
    expect(entered).toContain(told.id);
    for (const { id } of [here, elsewhere]) expect(entered).not.toContain(id);
  });

  test("nor, if its workflow is paused, before that is resumed", async () => {
    const [one, two] = [await place.open(), await place.open()];
    close();
    one.work([quick, slow, passed], { concurrency: PLACES });
    const { busy, run } = await fallBehind(one, two, async () => ({
      busy: await takePlaces(two),
      run: await two.start(passed),
    }));
    await isClaimed(run);
    await one.workflows.pause("passed");
    open();
    await Promise.all(busy.map(resultOf));
    await reaches(run, "pending");
    expect(entered).not.toContain(run.id);
    await one.workflows.resume("passed");
    await resultOf(run);
    expect(entered).toContain(run.id);
  });
});
