/**
 * Goal: who caused an event, and what it belongs to, is passed on: from a request to its events and runs, through reactions, and through runs and their
 * children to the events of those; and what a run does to streams takes effect once.
 * Method: handles of `pawl.with`, then every way to an event, on every store; runs whose worker dies after each commit.
 */

import { describe, expect, expectTypeOf, test } from "vitest";
import { aggregate, event, machine, reaction, type ScopedPawl, workflow } from "../../src/index.ts";
import { EVERY, onStores } from "../workflow/kit.ts";
import { KEYS } from "./forget-kit.ts";
import { account, all, Deposited, deposits } from "./kit.ts";

const Asked = event<{ readonly n: number }>("Asked");
const Answered = event<{ readonly n: number }>("Answered");
const REQUEST = { actor: "ann", correlationId: "request-1", causationId: "message-7" };

onStores(EVERY, (place) => {
  describe("pawl.with", () => {
    test("gives its origin to every event, unless the call says another", async () => {
      const pawl = await place.open();
      const request = pawl.with(REQUEST);
      expectTypeOf(request).toEqualTypeOf<ScopedPawl>();
      await request.stream("a").append([Asked({ n: 1 })]);
      await request.stream("a").tryAppend([Asked({ n: 2 })], { actor: "bob" });
      await request.aggregate(account, "b").execute("deposit", { amount: 1 });
      await request.aggregate(account, "b").tryExecute("deposit", { amount: 1 }, { causationId: "other" });
      await request.transact((tx) => {
        tx.stream("c").append([Asked({ n: 1 })]);
        tx.aggregate(account, "d").execute("deposit", { amount: 1 });
      });
      await request.dedupe("consumer", "1", (tx) => tx.stream("e").append([Asked({ n: 1 })]).version);
      await request.idempotent("key", {}, ({ commit }) =>
        commit((tx) => tx.stream("f").append([Asked({ n: 1 })]).version),
      );
      await request
        .with({ actor: "eve" })
        .stream("g")
        .append([Asked({ n: 1 })]);
      const found = (await all(pawl.events.read())).map(({ stream, version, actor, correlationId, causationId }) =>
        [stream, version, actor, correlationId, causationId].join(" "),
      );
      expect(found.sort()).toEqual([
        "a 1 ann request-1 message-7",
        "a 2 bob request-1 message-7",
        "b 1 ann request-1 message-7",
        "b 2 ann request-1 other",
        "c 1 ann request-1 message-7",
        "d 1 ann request-1 message-7",
        "e 1 ann request-1 message-7",
        "f 1 ann request-1 message-7",
        "g 1 eve request-1 message-7",
      ]);
    });

    test("is kept by closings, by those who were forgotten and by machines, unless the call says another", async () => {
      const pawl = await place.open({ ...KEYS });
      const request = pawl.with(REQUEST);
      const options = { discard: true, restart: Asked({ n: 2 }) };
      await request.stream("a").append([Asked({ n: 1 })]);
      await request.streams.close("a", options);
      await request.streams.close("a", { ...options, restart: Asked({ n: 3 }), actor: "auditor" });
      const found = (await all(pawl.events.read({ from: "kept" }))).map(({ name, actor, correlationId, causationId }) =>
        [name, actor, correlationId, causationId].join(" "),
      );
      expect(found).toEqual(["$closed auditor request-1 message-7", "Asked auditor request-1 message-7"]);
      await pawl.stream("b").append([Asked({ n: 1 })]);
      await request.streams.close("b", options);
      const last = await all(pawl.stream("b").read({ from: 2 }));
      expect(last.map(({ actor, correlationId }) => [actor, correlationId])).toEqual([
        ["ann", "request-1"],
        ["ann", "request-1"],
      ]);
      await request.forget("p-1");
      await request.forget("p-2", { actor: "support" });
      await pawl.forget("p-3");
      expect((await pawl.forgotten.list()).subjects.map(({ actor }) => actor)).toEqual(["ann", "support", null]);
      const door = machine("door", { initial: "shut", transitions: { shut: ["open"], open: ["shut"] } });
      await request.machine(door).create("x");
      await request.machine(door).transition("x", "open");
      await request.machine(door).tryTransition("x", "open");
      await request.machine(door).transition("x", "shut", { actor: "bob" });
      await request.transact((tx) => tx.machine(door).transition("x", "open"));
      await pawl.machine(door).transition("x", "shut");
      expect((await pawl.machine(door).history("x")).map(({ actor }) => actor)).toEqual([
        "ann",
        "ann",
        "ann",
        "bob",
        "ann",
        undefined,
      ]);
    });

    test("changes nothing for the handle that it was made from, and has its other verbs", async () => {
      const pawl = await place.open();
      const request = pawl.with(REQUEST);
      await pawl.stream("a").append([Asked({ n: 1 })]);
      await pawl.transact((tx) => tx.stream("a").append([Asked({ n: 2 })]));
      expect(await all(pawl.events.read({ correlationId: "request-1" }))).toEqual([]);
      await request.slot<number>("n", { initial: 0 }).update((n) => n + 1);
      expect((await pawl.slot<number>("n").get()).value).toBe(1);
    });
  });

  test("a reaction, the run that it starts, and the run's child pass it on", async () => {
    const pawl = await place.open();
    const child = workflow("child", async (ctx, n: number) => {
      await ctx.stream("answers").append([Answered({ n })]);
    });
    const answer = workflow("answer", async (ctx, n: number) => {
      await ctx.stream("answers").append([Answered({ n })]);
      await ctx.step("elsewhere", async () => {
        await pawl
          .with(ctx.origin)
          .stream("answers")
          .append([Answered({ n: n + 1 })]);
      });
      await ctx.call(child, n + 2);
    });
    const ask = reaction("ask", { on: [Asked] }, async ({ data: { n } }, { commit }) => {
      await commit((tx) => tx.start(answer, n, { id: `answer-${n}` }));
    });
    pawl.work([ask, answer, child]);
    const { ids } = await pawl
      .with({ actor: "ann", correlationId: "request-1" })
      .stream("a")
      .append([Asked({ n: 1 })]);
    await expect.poll(() => pawl.stream("answers").head()).toBe(3);
    const answers = await all(pawl.stream("answers").read({ events: [Answered] }));
    expect(
      answers.map(({ data, actor, correlationId, causationId }) => [data.n, actor, correlationId, causationId]),
    ).toEqual([
      [1, "ann", "request-1", "answer-1"],
      [2, "ann", "request-1", "answer-1"],
      [3, "ann", "request-1", "answer-1/child"],
    ]);
    expect((await pawl.run(answer, "answer-1").status()).origin).toEqual({
      actor: "ann",
      correlationId: "request-1",
      causationId: ids[0],
    });
  });

  test("a run that nothing was said of is its own correlation, with its children", async () => {
    const pawl = await place.open();
    const child = workflow("child", async (ctx) => {
      await ctx.stream("s").append([Asked({ n: 2 })]);
    });
    const parent = workflow("parent", async (ctx) => {
      await ctx.stream("s").append([Asked({ n: 1 })]);
      await ctx.call(child);
      return ctx.origin;
    });
    pawl.work([parent, child]);
    const run = await pawl.start(parent, undefined, { id: "p" });
    expect(await run.result()).toEqual({ correlationId: "p", causationId: "p" });
    const events = await all(pawl.stream("s").read());
    expect(events.map(({ correlationId, causationId }) => [correlationId, causationId])).toEqual([
      ["p", "p"],
      ["p", "p/child"],
    ]);
    const scoped = await pawl.with(REQUEST).start(parent, undefined, { id: "q" });
    expect(await scoped.result()).toEqual({ actor: "ann", correlationId: "request-1", causationId: "q" });
  });

  describe("in a run", () => {
    test("appends and commands have their results, with their types, and their errors can be caught", async () => {
      const pawl = await place.open();
      const flow = workflow("flow", async (ctx) => {
        const stream = ctx.stream("ann");
        const before = await stream.head();
        const appended = await stream.append([Deposited({ amount: 10 })], { expectedVersion: 0 });
        const conflict = await stream.tryAppend([Deposited({ amount: 10 })], { expectedVersion: 0 });
        const thrown = await stream
          .append([Deposited({ amount: 10 })], { expectedVersion: 0 })
          .catch((error: { code: string }) => error.code);
        const ann = ctx.aggregate(account, "ann");
        const { output } = await ann.execute("withdraw", { amount: 4 });
        expectTypeOf(output).toEqualTypeOf<number>();
        const refused = await ann.tryExecute("withdraw", { amount: 100 });
        return { before, version: appended.version, conflict, thrown, output, refused, state: await ann.state() };
      });
      pawl.work([flow]);
      expect(await (await pawl.start(flow)).result()).toEqual({
        before: 0,
        version: 1,
        conflict: { ok: false, code: "concurrency_conflict", version: 1 },
        thrown: "concurrency_conflict",
        output: 6,
        refused: { ok: false, code: "command_refused", reason: "insufficient_funds", details: { balance: 6 } },
        state: { state: { balance: 6, count: 2 }, version: 2 },
      });
    });

    test("a command on a state that lacks events folds them first", async () => {
      const pawl = await place.open();
      await pawl.stream("ann").append(deposits(4));
      const flow = workflow(
        "flow",
        async (ctx) => (await ctx.aggregate(account, "ann").execute("withdraw", { amount: 3 })).output,
      );
      pawl.work([flow]);
      expect(await (await pawl.start(flow)).result()).toBe(7);
    });

    test("each takes effect once, whatever is replayed", async () => {
      const pawl = await place.open();
      let crashes = 0;
      const flow = workflow("flow", async (ctx) => {
        await ctx.stream("s").append([Asked({ n: 1 })]);
        await ctx.aggregate(account, "ann").execute("deposit", { amount: 1 });
        await ctx.sleep(1);
        await ctx.step("once", () => {
          crashes += 1;
          if (crashes < 3) throw new Error("not yet");
        });
        await ctx.stream("s").append([Asked({ n: 2 })]);
      });
      const first = pawl.work([flow]);
      const run = await pawl.start(flow, undefined, { id: "f" });
      await first.stop();
      pawl.work([flow]);
      await run.result();
      expect(await pawl.stream("s").head()).toBe(2);
      expect((await pawl.aggregate(account, "ann").state()).state.balance).toBe(1);
    });
  });

  describe("a command or an append that throws half-way", () => {
    const fragile = aggregate("fragile", {
      initial: 0,
      on: [
        [Deposited, (n: number, { amount }: { readonly amount: number }) => n + amount],
        [
          Asked,
          () => {
            throw new Error("this reducer is broken");
          },
        ],
      ],
      commands: {
        both: (_n, _: undefined, { emit }) => emit(Deposited({ amount: 1 }), Asked({ n: 1 })),
      },
    });

    test("has written nothing, also if the decision catches that", async () => {
      const pawl = await place.open();
      const Odd = event<unknown>("Odd");
      await pawl.transact((tx) => {
        expect(() => tx.aggregate(fragile, "s").execute("both")).toThrow("this reducer is broken");
        expect(() => tx.stream("t").append([Odd(1), Odd(() => {})])).toThrow();
        tx.stream("u").append([Asked({ n: 1 })]);
      });
      expect(await Promise.all(["s", "t", "u"].map((id) => pawl.stream(id).head()))).toEqual([0, 0, 1]);
    });

    test("has written nothing in a run either", async () => {
      const pawl = await place.open();
      const flow = workflow("flow", async (ctx) =>
        ctx
          .aggregate(fragile, "s")
          .execute("both")
          .catch((error: Error) => error.message),
      );
      pawl.work([flow]);
      expect(await (await pawl.start(flow)).result()).toBe(
        'the reducer of "Asked" in fragile "s", at event 2, threw: this reducer is broken',
      );
      expect(await pawl.stream("s").head()).toBe(0);
    });
  });

  test("a decision of dedupe, or of idempotent, on a state that lacks events folds them first", async () => {
    const pawl = await place.open();
    await pawl.stream("ann").append(deposits(3));
    await pawl.stream("bob").append(deposits(3));
    const deduped = await pawl.dedupe("c", "1", (tx) => tx.aggregate(account, "ann").execute("look").output);
    expect(deduped).toEqual({ deduplicated: false, value: 6 });
    const answered = await pawl.idempotent("k", {}, ({ commit }) =>
      commit((tx) => tx.aggregate(account, "bob").execute("look").output),
    );
    expect(answered).toMatchObject({ value: 6 });
  });
});
