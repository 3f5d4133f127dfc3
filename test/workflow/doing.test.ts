/**
 * Goal: a run's status says what the run is doing, `whyWaiting` says it in words, and lists can be limited to a time.
 * Method: runs that work, rest, are held by another process, contradict their history or have ended, looked at from the handle that works
 * on them and from one that does not.
 */

import { describe, expect, test } from "vitest";
import { type RunActivity, type RunEvent, type RunInfo, RunStuckError, signal, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { EVERY, onStores, PATIENCE, reaches, resultOf } from "./kit.ts";

const go = signal("go");
const stop = signal("stop");

const gate = (): { readonly open: () => void; readonly opened: Promise<void> } => {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { open: resolve, opened: promise };
};

const NONE = { attempt: null, lastError: null, nextAttemptAt: null, until: null, waitsFor: [], isRunning: false };

onStores(EVERY, (place) => {
  describe("a run that this handle runs", () => {
    test("its status has the running step, with attempt, last error, start and process", async () => {
      const pawl = await place.open();
      const { open, opened } = gate();
      const it = workflow("it", async (ctx) => {
        await ctx.step("first", () => 1);
        return ctx.step(
          "charge",
          async ({ attempt }) => {
            if (attempt === 1) throw new Error("no luck");
            await opened;
            return attempt;
          },
          { retry: { delay: 1 } },
        );
      });
      const worker = pawl.work([it]);
      const run = await pawl.start(it, undefined, { id: "r" });
      await expect.poll(async () => (await run.status()).doing[0]?.attempt, PATIENCE).toBe(2);
      const info = await run.status();
      expect(info).toMatchObject({ status: "running", doingCount: 1, doingAsOf: null, endedAt: null });
      expect(info.doing).toEqual([
        {
          ...NONE,
          kind: "step",
          name: "charge",
          isRunning: true,
          attempt: 2,
          lastError: "no luck",
          since: expect.any(Date),
        } satisfies RunActivity,
      ]);
      expect(info.worker).toBe(worker.id);
      expect(info.leaseUntil?.getTime()).toBeGreaterThan(info.startedAt.getTime());
      expect(info.doing[0]?.since.getTime()).toBeGreaterThanOrEqual(info.startedAt.getTime());
      const { isWaiting, says } = await pawl.whyWaiting({ run: "r" });
      expect(isWaiting).toBe(false);
      expect(says).toMatch(
        /^run "r" is running attempt 2 of step "charge" since \S+Z \(the last error: no luck\), and worker ".+" holds it until \S+Z/,
      );
      open();
      expect(await resultOf(run)).toBe(2);
    });

    test("its status has the time of the next attempt, also if that is waited for in memory", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) =>
        ctx.step("charge", () => Promise.reject(new Error("no luck")), { retry: { delay: "4s", jitter: 0 } }),
      );
      pawl.work([it]);
      const run = await pawl.start(it, undefined, { id: "r" });
      await expect.poll(async () => (await run.status()).doing[0]?.lastError, PATIENCE).toBe("no luck");
      const { doing } = await run.status();
      expect(doing[0]).toMatchObject({ name: "charge", attempt: 1, isRunning: false, nextAttemptAt: expect.any(Date) });
      const { isWaiting, says } = await pawl.whyWaiting({ run: "r" });
      expect(isWaiting).toBe(true);
      expect(says).toMatch(
        /^run "r" waits for attempt 2 of step "charge" at \S+Z since \S+Z \(the last error: no luck\)/,
      );
      await run.cancel({ force: true });
    });
  });

  describe("a run that rests", () => {
    test("its status has what it waits for, at every handle", async () => {
      const pawl = await place.open();
      const other = await place.open();
      const child = workflow("child", async (ctx) => ctx.waitForSignal(go));
      const it = workflow("it", async (ctx) => {
        const all: PromiseLike<unknown>[] = [
          ctx.sleep("1 hour"),
          ctx.waitForAny([go, stop], { timeout: "2 hours" }),
          ctx.call(child, undefined, { id: "kid" }),
          ctx.step("charge", () => Promise.reject(new Error("no luck")), {
            retry: { delay: "1 hour", maxDelay: "1 hour", jitter: 0 },
          }),
        ];
        await Promise.all(all);
      });
      pawl.work([it, child]);
      const run = await pawl.start(it, undefined, { id: "r" });
      await reaches(run, "waiting");
      for (const handle of [pawl, other]) {
        const info = await handle.run("r").status();
        expect(info).toMatchObject({ doingCount: 4, doingAsOf: null, worker: null, leaseUntil: null });
        const since = expect.any(Date);
        expect(info.doing).toEqual([
          { ...NONE, kind: "sleep", name: "1", since, until: expect.any(Date) },
          { ...NONE, kind: "signal", name: "go | stop", since, until: expect.any(Date), waitsFor: ["go", "stop"] },
          { ...NONE, kind: "child", name: "child", since, waitsFor: ["kid"] },
          {
            ...NONE,
            kind: "step",
            name: "charge",
            since,
            attempt: 1,
            lastError: "no luck",
            nextAttemptAt: expect.any(Date),
          },
        ]);
        expect((info.doing[0]?.until?.getTime() ?? 0) - info.startedAt.getTime()).toBeGreaterThanOrEqual(3_600_000);
        expect((await handle.runs.list()).runs.find(({ id }) => id === "r")).toEqual(info);
        expect((await handle.whyWaiting({ run: "r" })).says).toMatch(
          /^run "r" sleeps until \S+Z since \S+Z, waits for signal "go" or "stop" until \S+Z since \S+Z, waits for its child "kid" since \S+Z and waits for attempt 2 of step "charge" at \S+Z since \S+Z \(the last error: no luck\), and then needs/,
        );
      }
      await run.cancel({ force: true });
      expect(await run.status()).toMatchObject({
        status: "canceled",
        doing: [],
        doingCount: 0,
        endedAt: expect.any(Date),
      });
    });

    test("of very many waits the first are named, and all are counted", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) => {
        await Promise.all(Array.from({ length: 25 }, (_, n) => ctx.sleep(3_600_000 + n)));
      });
      pawl.work([it]);
      const run = await pawl.start(it);
      await reaches(run, "waiting");
      const { doing, doingCount } = await run.status();
      expect([doing.length, doingCount]).toEqual([10, 25]);
      expect((await pawl.whyWaiting({ run: run.id })).says).toMatch(/ and 20 more, and then needs/);
    });

    test("its status is the same after another worker has replayed it, since the same time", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) => {
        await ctx.step("a", () => 1);
        await ctx.waitForSignal(stop);
      });
      const worker = pawl.work([it]);
      const run = await pawl.start(it);
      await reaches(run, "waiting");
      const before = await run.status();
      await worker.stop();
      pawl.work([it], { warm: 0 });
      await run.signal(go);
      await expect.poll(async () => (await run.status()).dueAt, PATIENCE).toBe(null);
      await reaches(run, "waiting");
      const after = await run.status();
      expect(after.doing).toHaveLength(1);
      expect(after.doing[0]).toMatchObject({ kind: "signal", name: "stop" });
      const drift = (after.doing[0]?.since.getTime() ?? 0) - (before.doing[0]?.since.getTime() ?? 0);
      expect(Math.abs(drift)).toBeLessThan(1000);
    });
  });

  test("the status of a run that another process holds is what that recorded with its lease, and when", async () => {
    const pawl = await place.open();
    const other = await place.open();
    const { open, opened } = gate();
    const it = workflow("it", async (ctx) => ctx.step("long", () => opened));
    const { id } = pawl.work([it], { lease: "2s" });
    const run = await pawl.start(it, undefined, { id: "r" });
    const info = (): Promise<RunInfo> => other.run("r").status();
    expect((await info()).worker).toBe(id);
    await expect.poll(async () => (await info()).doing.length, PATIENCE).toBe(1);
    const { doing, doingAsOf, startedAt } = await info();
    expect(doing[0]).toMatchObject({ kind: "step", name: "long", attempt: 1, isRunning: true });
    expect(doingAsOf?.getTime()).toBeGreaterThan(startedAt.getTime());
    expect((await other.whyWaiting({ run: "r" })).says).toMatch(
      /^run "r" is running attempt 1 of step "long" since \S+Z \(as recorded at \S+Z\), and worker ".+" holds it/,
    );
    open();
    await resultOf(run);
    expect(await info()).toMatchObject({ doing: [], doingAsOf: null, worker: null });
  });

  test("the status of a run that the workers' code contradicts says so", async () => {
    const pawl = await place.open({ logger: false });
    const before = pawl.work([workflow("it", async (ctx) => ctx.waitForSignal(go, { timeout: "1 hour" }))]);
    const run = await pawl.start("it", undefined, { id: "r" });
    await reaches(run, "waiting");
    await before.stop();
    pawl.work([workflow("it", async (ctx) => ctx.step("else", () => 1))]);
    await run.signal(stop, undefined);
    await expect.poll(async () => (await run.status()).contradicted, PATIENCE).not.toBe(null);
    expect((await run.status()).contradicted).toEqual({
      since: expect.any(Date),
      reason: expect.stringContaining('"wait go"'),
    });
    expect((await pawl.whyWaiting({ run: "r" })).says).toMatch(/workers whose code contradicts its history/);
  });

  describe("a run that has ended", () => {
    test("its status says when, however it ended, and until it is retried", async () => {
      const pawl = await place.open({ logger: false });
      let isFixed = false;
      const it = workflow("it", async (ctx) => {
        await ctx.step("a", () => (isFixed ? 1 : Promise.reject(new Error("no"))), { retry: { attempts: 1 } });
        await ctx.waitForSignal(go);
      });
      pawl.work([it]);
      const run = await pawl.start(it);
      await reaches(run, "failed");
      const { startedAt, endedAt } = await run.status();
      expect(endedAt?.getTime()).toBeGreaterThanOrEqual(startedAt.getTime());
      expect(Math.abs((endedAt?.getTime() ?? 0) - Date.now())).toBeLessThan(60_000);
      isFixed = true;
      await run.retry();
      await reaches(run, "waiting");
      expect((await run.status()).endedAt).toBe(null);
      await run.signal(go);
      await resultOf(run);
      expect((await run.status()).endedAt?.getTime()).toBeGreaterThanOrEqual(endedAt?.getTime() ?? 0);
      const pending = await pawl.start(it, undefined, { delay: "1 hour" });
      await pending.cancel();
      expect((await pending.status()).endedAt).toEqual(expect.any(Date));
    });
  });

  describe("a list", () => {
    test("is limited to when runs were started and ended", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx, waits: boolean) => (waits ? ctx.sleep("1 hour") : undefined));
      pawl.work([it]);
      const runs = [];
      for (const [id, waits] of [
        ["a", false],
        ["b", true],
        ["c", false],
      ] as const) {
        const run = await pawl.start(it, waits, { id });
        await (waits ? reaches(run, "waiting") : resultOf(run));
        runs.push(await run.status());
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      const [a, b, c] = runs as [RunInfo, RunInfo, RunInfo];
      const ids = async (options: object): Promise<string[]> =>
        (await pawl.runs.list({ order: "oldest", ...options })).runs.map(({ id }) => id);
      expect(await ids({ startedAfter: a.startedAt })).toEqual(["b", "c"]);
      expect(await ids({ startedBefore: c.startedAt.getTime() })).toEqual(["a", "b"]);
      expect(await ids({ startedAfter: a.startedAt, startedBefore: c.startedAt })).toEqual(["b"]);
      expect(await ids({ endedAfter: 0 })).toEqual(["a", "c"]);
      expect(await ids({ endedBefore: c.endedAt })).toEqual(["a"]);
      expect(await ids({ endedAfter: a.endedAt, startedAfter: b.startedAt })).toEqual(["c"]);
      const page = await pawl.runs.list({ order: "oldest", endedAfter: 0, limit: 1 });
      expect(page.runs.map(({ id }) => id)).toEqual(["a"]);
      expect(await ids({ endedAfter: 0, limit: 1, after: page.next })).toEqual(["c"]);
    });

    test.each(["startedAfter", "startedBefore", "endedAfter", "endedBefore"])("refuses a bad %s", async (name) => {
      const pawl = await place.open();
      for (const bad of [Date.now() * 1e6, new Date("31.12.2026"), "2026-12-31", -1, Number.NaN, null])
        await expect(pawl.runs.list({ [name]: bad })).rejects.toMatchObject({ code: "invalid_argument" });
    });
  });

  describe("code that awaits something other than its operations", () => {
    const warned = (events: readonly RunEvent[]): (string | undefined)[] =>
      events.filter(({ type }) => type === "run.warning").map(({ message }) => message);

    test("while the run rests is reported when it continues: the race of a long sleep with a promise that is not an operation", async () => {
      const pawl = await place.open();
      const events: RunEvent[] = [];
      const { open, opened } = gate();
      const it = workflow("it", async (ctx) => {
        await Promise.race([ctx.sleep("1 hour"), opened]);
        await ctx.step("next", () => 1);
      });
      pawl.work([it], { on: (event) => void events.push(event) });
      const run = await pawl.start(it);
      await reaches(run, "waiting");
      expect(warned(events)).toEqual([]);
      open();
      await expect
        .poll(() => warned(events), PATIENCE)
        .toEqual([
          'it started step "next" while the run was waiting: its code awaits something that is not an operation of ctx, such as fetch or a timer: do it in ctx.step',
        ]);
    });

    test("is reported when the run rests, if the code awaits none of its operations", async () => {
      const pawl = await place.open();
      const events: RunEvent[] = [];
      const it = workflow("it", async (ctx) => {
        const slept = ctx.sleep("1 hour");
        await new Promise(() => {});
        await slept;
      });
      pawl.work([it], { on: (event) => void events.push(event) });
      await reaches(await pawl.start(it), "waiting");
      await expect
        .poll(() => warned(events), PATIENCE)
        .toEqual([
          "the workflow's function awaits something that is not an operation of ctx, such as fetch or a timer: do it in ctx.step",
        ]);
    });
  });
});

test("a run that is stuck reports what its code awaits, and its status says so while it is tried again", async () => {
  expect(new RunStuckError("r").message).toBe(
    'run "r" awaits something that is not an operation of ctx, such as fetch or a timer: do it in ctx.step',
  );
  await using pawl = openTest();
  const it = workflow("it", async () => new Promise(() => {}));
  pawl.work([it]);
  const run = await pawl.start(it, undefined, { id: "r" });
  await pawl.clock.advance("10.05s");
  await run.until("waiting");
  const { trouble } = await run.status();
  expect(trouble).toEqual({ at: expect.any(Date), reason: new RunStuckError("r").message });
  expect((await pawl.whyWaiting({ run: "r" })).says).toMatch(
    /^run "r" is waiting, .*, and had trouble at \S+Z: run "r" awaits/,
  );
});
