/**
 * Goal: a run is started once for its id, at the requested time, and is found again by any process.
 * Method: runs that do next to nothing, on every store, through the public API.
 */

import { describe, expect, test } from "vitest";
import { type RunInfo, type RunListOptions, signal, workflow } from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, endLease, factsOf, onStores, PATIENCE, reaches, resultOf } from "./kit.ts";

const go = signal<number>("go");
const echo = workflow("echo", async (_ctx, input: unknown) => input);
const waits = workflow("waits", async (ctx, _input: unknown) => (await ctx.waitForSignal(go)).value);
/** Returns its id, and the key of its only step. */
const who = workflow("who", async (ctx, _input: string) => ({
  incarnation: ctx.incarnation,
  key: await ctx.step("once", ({ key }) => key),
}));

onStores(EVERY, (place) => {
  describe("the same id", () => {
    test("is the same run: it runs once, and every caller gets its result", async () => {
      const pawl = await place.open();
      let times = 0;
      const counted = workflow("counted", async (ctx, _input: string) => ctx.step("count", () => ++times));
      pawl.work([counted]);
      const runs = await Promise.all([1, 2, 3].map(() => pawl.start(counted, "a", { id: "one" })));
      expect(await Promise.all(runs.map(resultOf))).toEqual([1, 1, 1]);
      expect(await resultOf(await pawl.start(counted, "a", { id: "one" }))).toBe(1);
      expect(times).toBe(1);
      expect(await factsOf(pawl.run(counted, "one"))).toEqual(["started", "step count", "completed"]);
    });

    test("with its input's keys in another order is still the same run", async () => {
      const pawl = await place.open();
      await pawl.start(echo, { a: 1, b: { c: 2, d: 3 } }, { id: "one" });
      await pawl.start(echo, { b: { d: 3, c: 2 }, a: 1 }, { id: "one" });
      expect((await pawl.runs.list()).runs.length).toBe(1);
    });

    const others: [string, unknown][] = [
      ["another value", { a: 2 }],
      ["less", {}],
      ["more", { a: 1, b: 1 }],
      ["another type", { a: "1" }],
      ["nothing", undefined],
    ];
    test.each(others)("with another input is refused: %s", async (_, input) => {
      const pawl = await place.open();
      await pawl.start(echo, { a: 1 }, { id: "one" });
      const refused = pawl.start(echo, input, { id: "one" });
      await expect(refused).rejects.toMatchObject({ code: "run_conflict", data: { run: "one" } });
      expect(await factsOf(pawl.run(echo, "one"))).toEqual(["started"]);
    });

    test("for another workflow is refused", async () => {
      const pawl = await place.open();
      await pawl.start(echo, 1, { id: "one" });
      await expect(pawl.start(waits, 1, { id: "one" })).rejects.toMatchObject({ code: "run_conflict" });
    });

    test("is refused also while this process runs it, and after it has ended", async () => {
      const pawl = await place.open();
      pawl.work([waits]);
      const run = await pawl.start(waits, 1, { id: "one" });
      expect(await codeOf(pawl.start(waits, 2, { id: "one" }))).toBe("run_conflict");
      await run.signal(go, 7);
      expect(await resultOf(run)).toBe(7);
      expect(await codeOf(pawl.start(waits, 2, { id: "one" }))).toBe("run_conflict");
    });

    test("is refused as such with ifExists: reject, whatever the input", async () => {
      const pawl = await place.open();
      await pawl.start(echo, 1, { id: "one", ifExists: "reject" });
      const refused = pawl.start(echo, 1, { id: "one", ifExists: "reject" });
      await expect(refused).rejects.toMatchObject({ code: "run_exists", data: { run: "one", status: "pending" } });
    });

    test("starts a run that has ended again with ifExists: restart, as another incarnation with other keys", async () => {
      const [front, back] = await Promise.all([place.open(), place.open()]);
      back.work([who]);
      const first = await resultOf(await front.start(who, "a", { id: "one", ifExists: "restart" }));
      const second = await resultOf(await front.start(who, "b", { id: "one", ifExists: "restart" }));
      expect([first.incarnation, second.incarnation]).toEqual([1, 2]);
      expect(second.key).not.toBe(first.key);
      expect(await front.run(who, "one").status()).toMatchObject({ status: "completed", incarnation: 2 });
    });

    test("starts it again also in the process that has just run it", async () => {
      const pawl = await place.open();
      pawl.work([who]);
      await resultOf(await pawl.start(who, "a", { id: "one" }));
      const again = await pawl.start(who, "b", { id: "one", ifExists: "restart" });
      expect((await again.result({ timeout: "1s" })).incarnation).toBe(2);
    });

    test("finds a run that has not ended with ifExists: restart, and refuses another input for it", async () => {
      const pawl = await place.open();
      pawl.work([waits]);
      const run = await pawl.start(waits, 1, { id: "one" });
      await reaches(run, "waiting");
      await pawl.start(waits, 1, { id: "one", ifExists: "restart" });
      expect((await run.status()).incarnation).toBe(1);
      expect(await codeOf(pawl.start(waits, 2, { id: "one", ifExists: "restart" }))).toBe("run_conflict");
    });

    test("keeps nothing of the previous incarnation: its signals are not received again", async () => {
      const [front, back] = await Promise.all([place.open(), place.open()]);
      back.work([waits]);
      const run = await front.start(waits, 1, { id: "one" });
      await run.signal(go, 1, { id: "s" });
      expect(await resultOf(run)).toBe(1);
      await front.start(waits, 1, { id: "one", ifExists: "restart" });
      expect(await run.signal(go, 3, { id: "s" })).toEqual({ isNew: true });
      expect(await resultOf(run)).toBe(3);
    });
  });

  test("a run without an id gets one of its own", async () => {
    const pawl = await place.open();
    const [a, b] = await Promise.all([pawl.start(echo, 1), pawl.start(echo, 1)]);
    expect(a.id).not.toBe(b.id);
  });

  describe("later", () => {
    test("a delayed run is pending until then, and says when", async () => {
      const pawl = await place.open();
      pawl.work([echo]);
      const run = await pawl.start(echo, 1, { delay: "1 hour" });
      const { status, scheduledAt, startedAt, dueAt } = await run.status();
      expect(status).toBe("pending");
      expect(scheduledAt).toEqual(new Date(startedAt.getTime() + 3_600_000));
      expect(dueAt).toEqual(scheduledAt);
      expect(await factsOf(run)).toEqual(["started"]);
    });

    test("it begins automatically, and knows its scheduled time", async () => {
      const pawl = await place.open();
      const when = workflow("when", async (ctx) => ctx.scheduledAt);
      pawl.work([when]);
      const run = await pawl.start(when, undefined, { delay: 30 });
      const { scheduledAt } = await run.status();
      expect(await resultOf(run)).toEqual(scheduledAt);
    });

    test("a time that has passed is now", async () => {
      const pawl = await place.open();
      pawl.work([echo]);
      const run = await pawl.start(echo, 1, { at: new Date("2020-01-01T00:00:00Z") });
      expect(await resultOf(run)).toBe(1);
    });

    test("a time in the future is kept to the millisecond", async () => {
      const pawl = await place.open();
      const at = new Date("2100-01-01T00:00:00.123Z");
      const run = await pawl.start(echo, 1, { at });
      expect(await run.status()).toMatchObject({ status: "pending", scheduledAt: at, dueAt: at });
    });
  });

  describe("by name", () => {
    test("a handle without the code starts, signals and reads what another runs", async () => {
      const front = await place.open();
      const back = await place.open();
      const run = await front.start("waits", { any: "thing" }, { id: "one" });
      await run.signal(go, 5);
      back.work([waits]);
      expect(await resultOf(run)).toBe(5);
      expect(await back.run(waits, "one").result()).toBe(5);
      expect((await run.status()).workflow).toBe("waits");
    });

    test("a run of a workflow unknown here is left for a worker that knows it, and starves no other run", async () => {
      const pawl = await place.open();
      pawl.work([echo], { concurrency: 1 });
      const foreign = await Promise.all(Array.from({ length: 20 }, () => pawl.start("foreign")));
      expect(await resultOf(await pawl.start(echo, 1))).toBe(1);
      const peer = await place.open();
      peer.work([workflow("foreign", async () => "done")]);
      expect(new Set(await Promise.all(foreign.map(resultOf)))).toEqual(new Set(["done"]));
    });
  });

  describe("lists", () => {
    const idsOf = (runs: readonly RunInfo[]): string[] => runs.map(({ id }) => id);

    async function five() {
      const pawl = await place.open();
      pawl.work([echo]);
      await pawl.start(waits, 1, { id: "c", tags: ["red"] });
      await pawl.start(echo, 1, { id: "a/1", tags: ["red", "big"] });
      await pawl.start(echo, 1, { id: "a/2", tags: ["big"] });
      await pawl.start(echo, 1, { id: "b", delay: "1 hour" });
      await pawl.start(waits, 1, { id: "d" });
      await Promise.all(["a/1", "a/2"].map((id) => resultOf(pawl.run(echo, id))));
      return pawl;
    }

    test("have exactly what the filters select, in the requested order", async () => {
      const pawl = await five();
      const rules: [RunListOptions, string[]][] = [
        [{}, ["d", "b", "a/2", "a/1", "c"]],
        [{ order: "oldest" }, ["c", "a/1", "a/2", "b", "d"]],
        [{ order: "id" }, ["a/1", "a/2", "b", "c", "d"]],
        [{ order: "id", workflow: waits }, ["c", "d"]],
        [{ order: "id", workflow: "echo" }, ["a/1", "a/2", "b"]],
        [{ order: "id", workflow: "nobody's" }, []],
        [{ order: "id", status: "completed" }, ["a/1", "a/2"]],
        [{ order: "id", status: ["pending", "failed"] }, ["b", "c", "d"]],
        [{ order: "id", status: [] }, []],
        [{ order: "id", tag: "red" }, ["a/1", "c"]],
        [{ order: "id", tag: "re" }, []],
        [{ order: "id", prefix: "a/" }, ["a/1", "a/2"]],
        [{ order: "newest", prefix: "a/" }, ["a/2", "a/1"]],
        [{ order: "oldest", workflow: echo, status: "completed", tag: "big", prefix: "a/2" }, ["a/2"]],
      ];
      for (const [options, ids] of rules)
        expect([options, idsOf((await pawl.runs.list(options)).runs)]).toEqual([options, ids]);
    });

    test.each(["newest", "oldest", "id"] as const)("page by page are the same as all together: %s", async (order) => {
      const pawl = await five();
      for (const filter of [{}, { tag: "big" }, { tag: "red" }, { workflow: echo }, { status: "pending" as const }])
        for (const limit of [1, 2, 3, 5]) {
          const paged: string[] = [];
          for (let after: string | null | undefined; after !== null; ) {
            const page = await pawl.runs.list({ ...filter, order, limit, after });
            expect(page.runs.length).toBeLessThanOrEqual(limit);
            paged.push(...idsOf(page.runs));
            after = page.next;
          }
          expect(paged).toEqual(idsOf((await pawl.runs.list({ ...filter, order })).runs));
        }
    });

    test("show what a run is", async () => {
      const pawl = await place.open();
      await pawl.start(echo, 1, { id: "one", tags: ["red"] });
      const [info] = (await pawl.runs.list()).runs;
      expect(info).toEqual(await pawl.run(echo, "one").status());
      expect(info).toMatchObject({ id: "one", workflow: "echo", status: "pending", incarnation: 1, tags: ["red"] });
      expect(info).toMatchObject({ parent: null, isCancelRequested: false, parkedReason: null, scheduledAt: null });
    });

    const bad: [string, object][] = [
      ["a status that is none", { status: "done" }],
      ["an order that is none", { order: "due" }],
      ["a cursor of another order", { order: "newest", after: "a/1" }],
      ["no limit", { limit: 0 }],
    ];
    test.each(bad)("with %s are refused", async (_, options) => {
      const pawl = await place.open();
      expect(await codeOf(pawl.runs.list(options))).toBe("invalid_argument");
    });
  });

  describe("in a decision", () => {
    test("starts and signals happen with everything else in it", async () => {
      const pawl = await place.open();
      pawl.work([waits]);
      const paid = pawl.slot("paid", { initial: 0 });
      const id = await pawl.transact((tx) => {
        tx.slot(paid).set(1);
        const started = tx.start(waits, { order: 1 }, { id: "one" });
        tx.signal(started, go, 4);
        return started;
      });
      expect(await resultOf(pawl.run(waits, id))).toBe(4);
      expect((await paid.get()).value).toBe(1);
    });

    test("nothing of it is written if it throws", async () => {
      const pawl = await place.open();
      pawl.work([waits]);
      const paid = pawl.slot("paid", { initial: 0 });
      const other = await pawl.start(waits, 0, { id: "other" });
      const thrown = pawl.transact((tx) => {
        tx.slot(paid).set(1);
        tx.start(waits, 1, { id: "one" });
        tx.signal("other", go, 1);
        throw new RangeError("not today");
      });
      await expect(thrown).rejects.toThrow(RangeError);
      expect(await codeOf(pawl.run(waits, "one").status())).toBe("run_not_found");
      expect((await paid.get()).value).toBe(0);
      await other.signal(go, 2);
      expect(await resultOf(other)).toBe(2);
    });

    test("a start that is refused discards the whole decision", async () => {
      const pawl = await place.open();
      await pawl.start(echo, 1, { id: "one" });
      const paid = pawl.slot("paid", { initial: 0 });
      const refused = pawl.transact((tx) => {
        tx.slot(paid).set(1);
        return tx.start(echo, 2, { id: "one" });
      });
      expect(await codeOf(refused)).toBe("run_conflict");
      expect((await paid.get()).value).toBe(0);
    });

    test("a signal to a run that does not exist discards the whole decision", async () => {
      const pawl = await place.open();
      const paid = pawl.slot("paid", { initial: 0 });
      const refused = pawl.transact((tx) => {
        tx.slot(paid).set(1);
        return tx.signal("nobody", go, 2);
      });
      expect(await codeOf(refused)).toBe("run_not_found");
      expect((await paid.get()).value).toBe(0);
    });
  });

  test("the input of a run that begins immediately has passed through the codec, as at replay", async () => {
    const pawl = await place.open();
    const types = workflow("types", async (_ctx, input: { at: Date; list: number[] }) => {
      input.list.push(2);
      return [input.at instanceof Date, input.list];
    });
    pawl.work([types]);
    const input = { at: new Date(0), list: [1] };
    const run = await pawl.start(types, input);
    expect(await resultOf(run)).toEqual([true, [1, 2]]);
    expect(input.list).toEqual([1]);
  });

  const inputs = [undefined, null, "short", { when: new Date(5), all: new Set([1n]) }, "long ".repeat(1000)];
  test.each(inputs.map((input) => ({ input, what: String(input).slice(0, 20) })))(
    "a worker that begins a run that another started has its input, and so has the next one after a crash: $what",
    async ({ input }) => {
      const [starter, first, second] = await Promise.all([place.open(), place.openHandle(), place.open()]);
      const seen: unknown[] = [];
      const takes = (then: () => Promise<unknown>) =>
        workflow("takes", async (ctx, given: unknown) => {
          seen.push(structuredClone(given));
          // The code may change its own copy.
          if (typeof given === "object" && given !== null) Object.assign(given, { spoilt: true });
          return ctx.step("then", then);
        });
      const run = await starter.start("takes", input, { id: "one" });
      first.pawl.work([takes(() => new Promise(() => {}))]);
      await expect.poll(() => seen.length, PATIENCE).toBe(1);
      first.die();
      await endLease(second, "one");
      second.work([takes(async () => "done")]);
      expect(await resultOf(run)).toBe("done");
      expect(seen).toEqual([input, input]);
    },
  );

  test("a run that is too late when a worker claims it does not begin its steps", async () => {
    const [starter, worker] = await Promise.all([place.open(), place.open()]);
    let times = 0;
    const slow = workflow({ name: "slow", timeout: 30 }, async (ctx) => {
      await ctx.step("a", () => ++times);
      await ctx.sleep("1 hour");
    });
    const late = await starter.start(slow);
    await expect.poll(async () => (await late.status()).startedAt.getTime() + 60 < Date.now(), PATIENCE).toBe(true);
    worker.work([slow]);
    await expect(resultOf(late)).rejects.toMatchObject({ code: "run_timed_out" });
    expect(times).toBe(0);
  });

  test("a worker with all its places in use leaves the next run to others", async () => {
    const [one, two] = await Promise.all([place.open(), place.open()]);
    const { promise: opened, resolve: letGo } = Promise.withResolvers<void>();
    const busy = workflow("busy", async (ctx, by: string) => ctx.step("hold", async () => opened.then(() => by)));
    one.work([busy], { concurrency: 1 });
    const first = await one.start(busy, "first");
    await expect.poll(async () => (await first.status()).status, PATIENCE).toBe("running");
    const second = await one.start(busy, "second");
    expect((await second.status()).status).toBe("pending");
    two.work([busy], { concurrency: 1 });
    await expect.poll(async () => (await second.status()).status, PATIENCE).toBe("running");
    letGo();
    expect(await Promise.all([first, second].map(resultOf))).toEqual(["first", "second"]);
  });
});
