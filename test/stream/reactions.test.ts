/**
 * Goal: each event is handled once in the order of its target, what a handler writes commits with its progress, and a failure stops its own target
 * only; on every store (G12, G13).
 * Method: handles as processes have them, which can die before any of their commits; what was handled is counted in streams and slots.
 */

import { describe, expect, expectTypeOf, test } from "vitest";
import {
  event,
  NonRetryableError,
  type Pawl,
  projection,
  reaction,
  signal,
  streamPolicy,
  workflow,
} from "../../src/index.ts";
import { deadSpaceOf, targetAt } from "../../src/stream/reactions/stored.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE, resultOf } from "../workflow/kit.ts";
import { account, all, brief, Deposited, deposits, Opened, Withdrawn } from "./kit.ts";

const Mailed = event<{ readonly amount: number }>("Mailed");

const soon = { delay: 1, maxDelay: 1, jitter: 0 } as const;

const idle = async (pawl: Pawl, name: string): Promise<boolean> => {
  const { unrouted } = await pawl.reactions.get(name).catch(() => ({ unrouted: 1 }));
  const { targets } = await pawl.reactions.targets(name);
  return unrouted === 0 && targets.every(({ pending }) => pending === 0);
};

const drained = (pawl: Pawl, name: string) => expect.poll(() => idle(pawl, name), PATIENCE).toBe(true);

onStores(EVERY, (place) => {
  test("events of a stream are handled in order, once each; those of others are left out", async () => {
    const pawl = await place.open();
    const seen: string[] = [];
    const mail = reaction("mail", { on: [Deposited, Withdrawn] }, async (e) => {
      expectTypeOf(e.data.amount).toEqualTypeOf<number>();
      await Promise.resolve();
      seen.push(`${brief(e)} ${e.data.amount}`);
    });
    await pawl.stream("ann").append([Opened(), ...deposits(2)]);
    pawl.work([mail]);
    await pawl.stream("bob").append([...deposits(1), Opened(), Withdrawn({ amount: 1 })]);
    await drained(pawl, "mail");
    await expect.poll(() => seen.length, PATIENCE).toBe(4);
    expect(seen.filter((one) => one.startsWith("ann"))).toEqual(["ann 2 Deposited 1", "ann 3 Deposited 2"]);
    expect(seen.filter((one) => one.startsWith("bob"))).toEqual(["bob 1 Deposited 1", "bob 3 Withdrawn 1"]);
    await expect.poll(async () => (await pawl.reactions.target("mail", "ann")).status, PATIENCE).toBe("idle");
  });

  test("what it emits says where it comes from", async () => {
    const pawl = await place.open();
    const mail = reaction("mail", { on: [Deposited] }, (e, { emit }) => {
      emit(`mail-${e.stream}`, [Mailed(e.data)]);
    });
    pawl.work([mail]);
    const { ids } = await pawl
      .stream("ann")
      .append([Deposited({ amount: 7 })], { actor: "teller", correlationId: "request-1" });
    await drained(pawl, "mail");
    const [mailed] = await all(pawl.stream("mail-ann").read({ events: [Mailed] }));
    expect(mailed).toMatchObject({
      data: { amount: 7 },
      actor: "teller",
      correlationId: "request-1",
      causationId: ids[0],
    });
  });

  test("a reaction may follow from another, and a chain of them ends", async () => {
    const pawl = await place.open();
    const down = reaction("down", { on: [Deposited], target: "all" }, (e, { emit }) => {
      if (e.data.amount > 0) emit(`s-${e.data.amount % 3}`, [Deposited({ amount: e.data.amount - 1 })]);
    });
    pawl.work([down]);
    await pawl.stream("start").append([Deposited({ amount: 30 })]);
    await expect
      .poll(async () => (await pawl.reactions.target("down", "all").catch(() => null))?.handled, PATIENCE)
      .toBe(31);
  });

  test("a worker that dies anywhere loses nothing and repeats nothing that was committed", async () => {
    const reference = await place.open();
    const total = 6;
    const copy = (seen: string[]) =>
      reaction(
        "copy",
        { on: [Deposited], target: (e) => `t-${e.data.amount % 2}`, lease: "1s" },
        (e, { emit, key }) => {
          seen.push(key);
          emit("copies", [Mailed(e.data)]);
        },
      );
    for (let round = 1; round <= 12; round++) {
      const seen: string[] = [];
      const handle = await place.openHandle();
      handle.dieBefore(round);
      handle.pawl.work([copy(seen)], { lease: "1s" });
      // A handle that lives longer than its work needs is done.
      const isOver = async () => handle.isDead() || ((await reference.stream("copies").head()) >= total && round > 3);
      if (round === 1)
        for (let i = 1; i <= total; i++) await reference.stream(`s-${i % 3}`).append([Deposited({ amount: i })]);
      await expect.poll(isOver, PATIENCE).toBe(true);
      const isDone = !handle.isDead();
      // Not while it is closed: that would never end.
      handle.die();
      if (isDone) break;
      // A target whose processes keep ending is blocked, as poison would be.
      await reference.reactions.unblock("copy", {}).catch(() => {});
    }
    reference.work([copy([])], { lease: "1s" });
    await expect
      .poll(async () => {
        await reference.reactions.unblock("copy", {}).catch(() => {});
        return idle(reference, "copy");
      }, PATIENCE)
      .toBe(true);
    const copies = await all(reference.stream("copies").read({ events: [Mailed] }));
    expect(copies.map(({ data }) => data.amount).toSorted()).toEqual([1, 2, 3, 4, 5, 6]);
    // In the order in which they were appended, at each target.
    const byTarget = (rest: number) => copies.map(({ data }) => data.amount).filter((amount) => amount % 2 === rest);
    expect([byTarget(0), byTarget(1)]).toEqual([
      [2, 4, 6],
      [1, 3, 5],
    ]);
  });

  test("an event whose shape the code does not know yet waits for code that does, and is no dead letter", async () => {
    const [older, newer] = [await place.open({ logger: false }), await place.open({ logger: false })];
    const First = event<{ readonly n: number }>("Grown");
    const Second = event<{ readonly n: number; readonly m: number }>("Grown", {
      shape: 2,
      upcast: { 1: ({ n }: { readonly n: number }) => ({ n, m: 0 }) },
    });
    const seen: string[] = [];
    const old = older.work([reaction("grow", { on: [First] }, (e) => void seen.push(`old ${e.data.n}`))], {
      lease: "1s",
    });
    await older.stream("s").append([First({ n: 1 })]);
    await expect.poll(() => seen, PATIENCE).toEqual(["old 1"]);
    await newer.stream("s").append([Second({ n: 2, m: 3 })]);
    await expect.poll(async () => (await newer.reactions.get("grow")).unrouted, PATIENCE).toBe(1);
    await old.stop();
    newer.work([reaction("grow", { on: [Second] }, (e) => void seen.push(`new ${e.data.n} ${e.data.m}`))], {
      lease: "1s",
    });
    await expect.poll(() => seen, PATIENCE).toEqual(["old 1", "new 2 3"]);
    expect((await newer.reactions.deadLetters("grow")).letters).toEqual([]);
  });

  test("functions that must be synchronous may reject without ending the process", async () => {
    const pawl = await place.open({ logger: false });
    const rejects = async (): Promise<never> => {
      throw new Error("async");
    };
    const late: unknown[] = [];
    const routed = reaction("routed", { on: [Deposited], target: rejects as never }, () => {});
    const handled = reaction("handled", { on: [Deposited] }, (_e, { commit }) => {
      setTimeout(() => commit(() => 1).catch((error: { code: string }) => late.push(error.code)), 50);
    });
    pawl.work([routed, handled]);
    expect(() => event("Personal", { personal: { subject: rejects as never, fields: ["a"] } })({ a: 1 })).toThrow();
    await pawl.stream("ann").append(deposits(1));
    await expect.poll(async () => (await pawl.reactions.deadLetters("routed")).letters.length, PATIENCE).toBe(1);
    await expect.poll(() => late, PATIENCE).toEqual(["reaction_over"]);
  });

  test("dead letters of streams with the longest ids are listed in order, found and sent again", async () => {
    const pawl = await place.open();
    const seen: string[] = [];
    const nowhere = (): string => {
      throw new Error("no target");
    };
    const picky = reaction("picky", { on: [Deposited], target: nowhere }, ({ stream }) => {
      seen.push(stream);
    });
    // The second differs only where it is cut off in a key, and the third in bytes that are no characters.
    const streams = ["s".repeat(256), `${"s".repeat(255)}t`, "ß".repeat(128), "s".repeat(239)];
    for (const stream of streams) await pawl.stream(stream).append(deposits(2));
    pawl.work([picky]);
    await expect.poll(async () => (await pawl.reactions.deadLetters("picky")).letters.length, PATIENCE).toBe(8);
    for (const { key } of await pawl.kernel.list({ space: deadSpaceOf("picky"), prefix: "", after: null, limit: 10 }))
      expect(Buffer.byteLength(key)).toBeLessThanOrEqual(256);
    const { letters } = await pawl.reactions.deadLetters("picky");
    expect(letters.map(({ version }) => version)).toEqual([1, 1, 1, 1, 2, 2, 2, 2]);
    expect(letters.map(({ stream }) => stream).toSorted()).toEqual([...streams, ...streams].toSorted());
    for (const letter of letters) await pawl.reactions.redrive("picky", { ...letter, target: "here" });
    await drained(pawl, "picky");
    expect(seen.toSorted()).toEqual([...streams, ...streams].toSorted());
    expect((await pawl.reactions.deadLetters("picky")).letters).toEqual([]);
  });

  describe("a failure", () => {
    test("is retried without another append, then blocks its own target; unblocked, it continues with the same event", async () => {
      const pawl = await place.open({ logger: false });
      let isDown = true;
      const seen: string[] = [];
      const mail = reaction("mail", { on: [Deposited], retry: { attempts: 3, ...soon } }, (e, { attempt }) => {
        seen.push(`${e.stream} ${e.version} ${attempt}`);
        if (isDown && e.stream === "ann" && e.version === 2) throw new Error("no paper");
      });
      pawl.work([mail]);
      await pawl.stream("ann").append(deposits(3));
      await expect
        .poll(async () => (await pawl.reactions.targets("mail", { status: "blocked" })).targets.length, PATIENCE)
        .toBe(1);
      await pawl.stream("bob").append(deposits(1));
      await expect.poll(() => seen.at(-1), PATIENCE).toBe("bob 1 1");
      expect(seen).toEqual(["ann 1 1", "ann 2 1", "ann 2 2", "ann 2 3", "bob 1 1"]);
      expect(await pawl.reactions.target("mail", "ann")).toMatchObject({
        status: "blocked",
        handled: 1,
        pending: 2,
        failures: 3,
        lastError: { name: "Error", message: "no paper" },
        blockedSince: expect.any(Date),
        lostLeases: 0,
      });
      // News does not wake it.
      await pawl.stream("ann").append(deposits(1));
      await expect.poll(async () => (await pawl.reactions.target("mail", "ann")).pending, PATIENCE).toBe(3);
      expect((await pawl.reactions.target("mail", "ann")).status).toBe("blocked");
      isDown = false;
      expect(await pawl.reactions.unblock("mail", { status: "blocked", dryRun: true })).toBe(1);
      expect(await pawl.reactions.unblock("mail", { status: "blocked" })).toBe(1);
      await drained(pawl, "mail");
      expect(seen.slice(5)).toEqual(["ann 2 1", "ann 3 1", "ann 4 1"]);
    });

    test("that is final blocks immediately", async () => {
      const pawl = await place.open({ logger: false });
      let calls = 0;
      const mail = reaction("mail", { on: [Deposited] }, () => {
        calls += 1;
        throw new NonRetryableError("never");
      });
      pawl.work([mail]);
      await pawl.stream("ann").append(deposits(1));
      await expect
        .poll(async () => (await pawl.reactions.target("mail", "ann").catch(() => null))?.status, PATIENCE)
        .toBe("blocked");
      expect(calls).toBe(1);
    });

    test("after emit and before the commit leaves nothing of it", async () => {
      const pawl = await place.open();
      let failures = 2;
      const mail = reaction("mail", { on: [Deposited], retry: { attempts: 9, ...soon } }, (e, { emit }) => {
        emit("mails", [Mailed(e.data)]);
        if (failures-- > 0) throw new Error("not yet");
      });
      pawl.work([mail]);
      await pawl.stream("ann").append(deposits(1));
      await drained(pawl, "mail");
      expect(await pawl.stream("mails").head()).toBe(1);
    });

    test("of an attempt that takes too long is one of its attempts, and what it does later has no effect", async () => {
      const pawl = await place.open();
      const late = Promise.withResolvers<string>();
      let attempts = 0;
      const mail = reaction(
        "mail",
        { on: [Deposited], timeout: "100ms", retry: soon },
        async (e, { emit, abortSignal }) => {
          attempts += 1;
          if (attempts === 1) {
            await new Promise((resolve) => abortSignal.addEventListener("abort", resolve));
            late.resolve(String(await codeOf((async () => emit("mails", [Mailed(e.data)]))())));
            return;
          }
          emit("mails", [Mailed(e.data)]);
        },
      );
      pawl.work([mail]);
      await pawl.stream("ann").append(deposits(1));
      await drained(pawl, "mail");
      expect(await late.promise).toBe("reaction_over");
      expect([attempts, await pawl.stream("mails").head()]).toEqual([2, 1]);
    });
  });

  test("a deferred event is handled later, in its place, and is no failure", async () => {
    const pawl = await place.open();
    const seen: string[] = [];
    let isEarly = true;
    const mail = reaction("mail", { on: [Deposited] }, (e, { defer, attempt }) => {
      seen.push(`${e.version} ${attempt}`);
      if (e.version === 1 && isEarly) {
        isEarly = false;
        defer("20ms");
      }
    });
    pawl.work([mail]);
    await pawl.stream("ann").append(deposits(2));
    await drained(pawl, "mail");
    expect(seen).toEqual(["1 1", "1 1", "2 1"]);
  });

  describe("commit", () => {
    test("makes commands, runs and signals one commit with the progress", async () => {
      const pawl = await place.open();
      const go = signal<number>("go");
      const ship = workflow("ship", async (ctx) => (await ctx.waitForSignal(go)).value);
      // Each deposit above ten is shared with the house; events that the aggregate did not write must be folded first.
      const share = reaction("share", { on: [Deposited] }, async (e, { commit }) => {
        if (e.stream !== "ann") return;
        const { output } = await commit((tx) => {
          tx.start(ship, undefined, { id: `ship-${e.version}` });
          tx.signal(`ship-${e.version}`, go, e.data.amount, { id: "go" });
          return tx.aggregate(account, "house").execute("deposit", { amount: e.data.amount });
        });
        expect(output).toBeGreaterThan(0);
      });
      pawl.work([ship, share]);
      await pawl.stream("house").append(deposits(150));
      await pawl.stream("ann").append(deposits(3));
      await drained(pawl, "share");
      const before = (150 * 151) / 2;
      expect((await pawl.aggregate(account, "house").state()).state.balance).toBe(before + 6);
      expect(await resultOf(pawl.run(ship, "ship-3"))).toBe(3);
    });

    test("that is refused writes nothing, and is a failure unless the handler has another idea", async () => {
      const pawl = await place.open();
      const outcomes: string[] = [];
      const pay = reaction("pay", { on: [Withdrawn] }, async (e, { commit, emit }) => {
        const paid = commit((tx) => {
          tx.stream("paid").append([Mailed({ amount: 1 })]);
          return tx.aggregate(account, "house").execute("withdraw", e.data);
        });
        const code = String(await codeOf(paid));
        outcomes.push(code);
        if (code === "command_refused") emit("refused", [Mailed(e.data)]);
      });
      pawl.work([pay]);
      await pawl.stream("ann").append([Withdrawn({ amount: 5 })]);
      await drained(pawl, "pay");
      expect(outcomes).toEqual(["command_refused"]);
      expect([await pawl.stream("paid").head(), await pawl.stream("refused").head()]).toEqual([0, 1]);
    });

    test("is possible once, and is waited for where the handler forgot to", async () => {
      const pawl = await place.open();
      const codes: string[] = [];
      const mail = reaction("mail", { on: [Deposited] }, (e, { commit }) => {
        void commit((tx) => void tx.stream("mails").append([Mailed(e.data)]));
        commit(() => {}).catch((error: { code: string }) => codes.push(error.code));
      });
      pawl.work([mail]);
      await pawl.stream("ann").append(deposits(2));
      await drained(pawl, "mail");
      expect(codes).toEqual(["reaction_over", "reaction_over"]);
      expect(await pawl.stream("mails").head()).toBe(2);
    });
  });

  test("a handler whose target was taken from it writes nothing, and the one who has it does", async () => {
    const pawl = await place.open({ logger: false });
    const { promise: isHandled, resolve: go } = Promise.withResolvers<void>();
    let calls = 0;
    const fences: number[] = [];
    const mail = reaction("mail", { on: [Deposited] }, async (_, { emit, fence }) => {
      calls += 1;
      fences.push(fence);
      if (calls === 1) await isHandled;
      emit("mails", [Mailed({ amount: calls })]);
    });
    pawl.work([mail]);
    await pawl.stream("ann").append(deposits(1));
    await expect.poll(() => calls, PATIENCE).toBe(1);
    const at = targetAt("mail", "ann");
    // As if the lease had ended: its process was paused for longer.
    await pawl.kernel.transact((tx) => tx.record(at).write({ dueMs: tx.nowMs }), [at]);
    const other = await place.open({ logger: false });
    other.work([mail]);
    await expect.poll(() => calls, PATIENCE).toBe(2);
    go();
    await drained(pawl, "mail");
    const mails = await all(pawl.stream("mails").read({ events: [Mailed] }));
    expect(mails.length).toBe(1);
    expect(fences[1]).toBeGreaterThan(fences[0] ?? 0);
    expect((await pawl.reactions.target("mail", "ann")).lostLeases).toBe(1);
  });

  test("targets by a function order the events of several streams; undefined leaves one out; a throw is a dead letter", async () => {
    const pawl = await place.open();
    const seen = new Map<string, number[]>();
    const target = ({ data }: { data: { amount: number } }): string | undefined => {
      if (data.amount === 13) throw new Error("unlucky");
      return data.amount > 100 ? undefined : `mod-${data.amount % 2}`;
    };
    const count = reaction("count", { on: [Deposited], target }, (e, context) => {
      seen.set(context.target, [...(seen.get(context.target) ?? []), e.data.amount]);
    });
    for (let i = 1; i <= 9; i++) await pawl.stream(`s-${i % 4}`).append([Deposited({ amount: i })]);
    await pawl.stream("x").append([Deposited({ amount: 500 }), Deposited({ amount: 13 })]);
    pawl.work([count]);
    await drained(pawl, "count");
    expect(seen).toEqual(
      new Map([
        ["mod-1", [1, 3, 5, 7, 9]],
        ["mod-0", [2, 4, 6, 8]],
      ]),
    );
    const { letters } = await pawl.reactions.deadLetters("count");
    expect(letters).toEqual([
      {
        stream: "x",
        version: 2,
        target: null,
        message: 'the target of event 2 of stream "x" ("Deposited") could not be computed: unlucky',
        stack: expect.stringContaining("reactions.test.ts"),
        actor: null,
        reason: null,
        at: expect.any(Date),
      },
    ]);
    await pawl.reactions.redrive("count", { stream: "x", version: 2, target: "mod-1" });
    await drained(pawl, "count");
    expect(seen.get("mod-1")).toEqual([1, 3, 5, 7, 9, 13]);
    expect((await pawl.reactions.deadLetters("count")).letters).toEqual([]);
  });

  test("once a worker is ready, the store knows its definitions: no event is missed", async () => {
    const pawl = await place.open();
    const seen: number[] = [];
    const late = reaction("late", { on: [Deposited], from: "now" }, (e) => void seen.push(e.data.amount));
    const sums = projection("sums", { on: [Deposited] }, (row: number | undefined, e) => (row ?? 0) + e.data.amount);
    const tidy = streamPolicy("tidy", { prefix: "old-", close: { idleFor: "1 day" }, discard: true });
    const nothing = workflow("nothing", async () => {});
    await pawl.stream("ann").append([Deposited({ amount: 1 })]);
    const worker = pawl.work([late, sums, tidy, nothing]);
    expectTypeOf(worker.ready).toEqualTypeOf<Promise<void>>();
    await worker.ready;
    expect((await pawl.reactions.get("late")).on).toEqual(["Deposited"]);
    expect((await pawl.projection(sums).status()).building).not.toBe(undefined);
    expect((await pawl.streams.policies()).map(({ name }) => name)).toEqual(["tidy"]);
    await pawl.stream("ann").append([Deposited({ amount: 2 })]);
    await expect.poll(() => seen, PATIENCE).toEqual([2]);
    await worker.stop();
    await worker.ready;
  });

  test("a new reaction begins at the beginning, or from now on", async () => {
    const pawl = await place.open();
    const seen: string[] = [];
    const handle = (name: string) => (e: { version: number }) => void seen.push(`${name} ${e.version}`);
    await pawl.stream("ann").append(deposits(2));
    const worker = pawl.work([reaction("late", { on: [Deposited], from: "now" }, handle("late"))]);
    await expect.poll(async () => (await pawl.reactions.list()).length, PATIENCE).toBe(1);
    await pawl.stream("ann").append(deposits(1));
    await drained(pawl, "late");
    await worker.stop();
    // What was appended while no worker knew it is not lost.
    await pawl.stream("ann").append(deposits(1));
    const first = reaction("first", { on: [Deposited], from: "beginning" }, handle("first"));
    pawl.work([reaction("late", { on: [Deposited], from: "now" }, handle("late")), first]);
    await drained(pawl, "late");
    await drained(pawl, "first");
    expect(seen.filter((one) => one.startsWith("late"))).toEqual(["late 3", "late 4"]);
    expect(seen.filter((one) => one.startsWith("first"))).toEqual(["first 1", "first 2", "first 3", "first 4"]);
  });

  describe("an operator", () => {
    test("resets a target: its events are handled again, with the same keys", async () => {
      const pawl = await place.open();
      const keys: string[] = [];
      pawl.work([reaction("mail", { on: [Deposited] }, (_, { key }) => void keys.push(key))]);
      await pawl.stream("ann").append(deposits(2));
      await drained(pawl, "mail");
      expect(await pawl.reactions.reset("mail", { target: "ann" })).toBe(1);
      await expect.poll(() => keys.length, PATIENCE).toBe(4);
      expect(keys.slice(2)).toEqual(keys.slice(0, 2));
      expect(new Set(keys).size).toBe(2);
    });

    test("skips the event that blocks a target, and can send it again", async () => {
      const pawl = await place.open({ logger: false });
      const seen: number[] = [];
      let isBad = true;
      const mail = reaction("mail", { on: [Deposited], retry: { attempts: 1 } }, (e) => {
        if (e.version === 2 && isBad) throw new Error("bad data");
        seen.push(e.version);
      });
      pawl.work([mail]);
      await pawl.stream("ann").append(deposits(3));
      await expect
        .poll(async () => (await pawl.reactions.target("mail", "ann").catch(() => null))?.status, PATIENCE)
        .toBe("blocked");
      const skipped = await pawl.reactions.skip("mail", "ann", { actor: "ops", reason: "ticket 7" });
      expect(skipped).toMatchObject({
        stream: "ann",
        version: 2,
        message: "bad data",
        actor: "ops",
        reason: "ticket 7",
      });
      await drained(pawl, "mail");
      expect(seen).toEqual([1, 3]);
      expect(await codeOf(pawl.reactions.skip("mail", "ann", { actor: "ops", reason: "again" }))).toBe(
        "invalid_argument",
      );
      isBad = false;
      await pawl.reactions.redrive("mail", skipped);
      await drained(pawl, "mail");
      expect(seen).toEqual([1, 3, 2]);
      expect(await codeOf(pawl.reactions.redrive("mail", skipped))).toBe("dead_letter_not_found");
    });

    test("resets a target in which a dead letter was sent again: each event is handled once, in its place", async () => {
      const pawl = await place.open({ logger: false });
      const seen: string[] = [];
      let bad = 2;
      const mail = reaction("mail", { on: [Deposited], retry: { attempts: 1 } }, (e, { target }) => {
        if (e.version === bad) throw new Error("bad data");
        seen.push(`${target} ${e.version}`);
      });
      const statusOf = async (target: string) =>
        (await pawl.reactions.target("mail", target).catch(() => null))?.status ?? null;
      const skip = async (target: string) => {
        await expect.poll(() => statusOf(target), PATIENCE).toBe("blocked");
        return pawl.reactions.skip("mail", target, { actor: "ops", reason: "ticket 7" });
      };
      pawl.work([mail]);
      await pawl.stream("ann").append(deposits(3));
      // It fails again where it is sent to, and is sent back.
      for (const [from, target] of [
        ["ann", "bob"],
        ["bob", "ann"],
      ] as const)
        await pawl.reactions.redrive("mail", { ...(await skip(from)), target });
      await skip("ann");
      bad = 0;
      await pawl.reactions.redrive("mail", { stream: "ann", version: 2 });
      await drained(pawl, "mail");
      expect(seen.splice(0)).toEqual(["ann 1", "ann 3", "ann 2"]);
      expect(await pawl.reactions.reset("mail", { target: "ann" })).toBe(1);
      await drained(pawl, "mail");
      expect(seen.splice(0)).toEqual(["ann 1", "ann 2", "ann 3"]);
      // What is sent again after the reset is handled again; one that fails in that pass is put aside once.
      bad = 2;
      await pawl.reactions.reset("mail", { target: "ann" });
      await skip("ann");
      await drained(pawl, "mail");
      bad = 0;
      expect(seen.splice(0)).toEqual(["ann 1", "ann 3"]);
      expect((await pawl.reactions.deadLetters("mail")).letters).toHaveLength(1);
      await pawl.reactions.redrive("mail", { stream: "ann", version: 2 });
      await drained(pawl, "mail");
      expect(seen.splice(0)).toEqual(["ann 2"]);
    });

    test("skips the next event of a paused target, and not one that a reset passes by", async () => {
      const pawl = await place.open({ logger: false });
      const seen: number[] = [];
      let bad = 1;
      const mail = reaction("mail", { on: [Deposited], retry: { attempts: 1 } }, (e) => {
        if (e.version === bad) throw new Error("bad data");
        seen.push(e.version);
      });
      pawl.work([mail]);
      await pawl.stream("ann").append(deposits(1));
      const statusOf = async () => (await pawl.reactions.target("mail", "ann").catch(() => null))?.status;
      await expect.poll(statusOf, PATIENCE).toBe("blocked");
      await pawl.reactions.redrive("mail", await pawl.reactions.skip("mail", "ann", { actor: "ops", reason: "1" }));
      bad = 0;
      await drained(pawl, "mail");
      await pawl.reactions.pauseTargets("mail", { target: "ann" });
      await pawl.stream("ann").append(deposits(2));
      await expect.poll(async () => (await pawl.reactions.target("mail", "ann")).pending, PATIENCE).toBe(2);
      await pawl.reactions.reset("mail", { target: "ann" });
      // The log has 1, 1 again, 2 and 3.
      for (const version of [1, 2])
        expect(await pawl.reactions.skip("mail", "ann", { actor: "ops", reason: "2" })).toMatchObject({ version });
      await pawl.reactions.resumeTargets("mail", { target: "ann" });
      await drained(pawl, "mail");
      expect(seen).toEqual([1, 3]);
    });

    test("pauses and resumes targets, and a whole reaction", async () => {
      const pawl = await place.open();
      const seen: string[] = [];
      pawl.work([reaction("mail", { on: [Deposited] }, (e) => void seen.push(brief(e)))]);
      await pawl.stream("ann").append(deposits(1));
      await drained(pawl, "mail");
      expect(await pawl.reactions.pauseTargets("mail", { prefix: "a" })).toBe(1);
      await pawl.stream("ann").append(deposits(1));
      await pawl.stream("bob").append(deposits(1));
      await expect.poll(() => seen.length, PATIENCE).toBe(2);
      expect((await pawl.reactions.targets("mail", { status: "paused" })).targets).toMatchObject([
        { target: "ann", status: "paused", pending: 1 },
      ]);
      expect(await pawl.reactions.resumeTargets("mail", {})).toBe(1);
      await drained(pawl, "mail");
      await pawl.reactions.pause("mail");
      await pawl.stream("cyd").append(deposits(1));
      expect(await pawl.reactions.get("mail")).toMatchObject({ pausedAt: expect.any(Date), unrouted: 1 });
      await pawl.reactions.resume("mail");
      await drained(pawl, "mail");
      expect(seen).toEqual(["ann 1 Deposited", "bob 1 Deposited", "ann 2 Deposited", "cyd 1 Deposited"]);
    });

    test("gets a clear error for what is not there", async () => {
      const pawl = await place.open();
      expect(await codeOf(pawl.reactions.get("none"))).toBe("reaction_not_found");
      expect(await codeOf(pawl.reactions.unblock("none", {}))).toBe("reaction_not_found");
      expect(await codeOf(pawl.reactions.pause("none"))).toBe("reaction_not_found");
      expect(await codeOf(pawl.reactions.target("none", "ann"))).toBe("target_not_found");
      expect(await pawl.reactions.list()).toEqual([]);
    });
  });

  test("old and new code side by side: events that only the new code knows are not passed by", async () => {
    const old = await place.open({ logger: false });
    const next = await place.open({ logger: false });
    const seen: string[] = [];
    const oldMail = reaction("mail", { on: [Deposited] }, (e) => void seen.push(`old ${e.name} ${e.version}`));
    const newMail = reaction(
      "mail",
      { on: [Deposited, Withdrawn] },
      (e) => void seen.push(`new ${e.name} ${e.version}`),
    );
    old.work([oldMail]);
    await old.stream("ann").append(deposits(1));
    await drained(old, "mail");
    const worker = next.work([newMail]);
    await expect.poll(async () => (await old.reactions.get("mail")).on, PATIENCE).toEqual(["Deposited", "Withdrawn"]);
    for (let i = 0; i < 5; i++) await old.stream("ann").append([Withdrawn({ amount: i }), Deposited({ amount: i })]);
    await drained(old, "mail");
    const names = (name: string) => seen.filter((one) => one.includes(name)).map((one) => Number(one.split(" ")[2]));
    expect(names("Withdrawn")).toEqual([2, 4, 6, 8, 10]);
    expect(names("Deposited")).toEqual([1, 3, 5, 7, 9, 11]);
    expect(seen.some((one) => one.startsWith("old Withdrawn"))).toBe(false);
    // The new code is gone: nothing is routed until an operator says that the event was removed for good.
    await worker.stop();
    await old.stream("ann").append([Withdrawn({ amount: 9 }), Deposited({ amount: 9 })]);
    await expect.poll(async () => (await old.reactions.get("mail")).unrouted, PATIENCE).toBe(2);
    await old.reactions.removeEvent("mail", "Withdrawn");
    await expect.poll(() => names("Deposited"), PATIENCE).toEqual([1, 3, 5, 7, 9, 11, 13]);
    expect(names("Withdrawn")).toEqual([2, 4, 6, 8, 10]);
  });

  test("workers that know different reactions do their own, and a reaction that no worker knows holds nothing", async () => {
    const pawl = await place.open();
    const other = await place.open();
    const seen: string[] = [];
    const handle = (name: string) => () => void seen.push(name);
    pawl.work([reaction("one", { on: [Deposited] }, handle("one"))]);
    const worker = other.work([reaction("two", { on: [Deposited] }, handle("two"))]);
    await pawl.stream("ann").append(deposits(2));
    await drained(pawl, "one");
    await drained(pawl, "two");
    expect(seen.toSorted()).toEqual(["one", "one", "two", "two"]);
    await worker.stop();
    await pawl.stream("ann").append(deposits(1));
    await drained(pawl, "one");
    expect(await pawl.reactions.get("two")).toMatchObject({ worker: null, unrouted: 1 });
  });

  test("a worker whose process died is listed until its lease ends, though no other takes over", async () => {
    const handle = await place.openHandle();
    const pawl = await place.open();
    const begun = Promise.withResolvers<void>();
    const hang = reaction("hang", { on: [Deposited] }, () => {
      begun.resolve();
      return new Promise(() => {});
    });
    await pawl.stream("ann").append(deposits(1));
    handle.pawl.work([hang], { lease: "300ms" });
    await begun.promise;
    handle.die();
    await expect.poll(async () => (await pawl.reactions.list())[0]?.worker, PATIENCE).toBe(null);
    await expect.poll(async () => (await pawl.reactions.target("hang", "ann")).worker, PATIENCE).toBe(null);
    expect(await pawl.reactions.target("hang", "ann")).toMatchObject({
      status: "due",
      nextAttemptAt: expect.any(Date),
    });
    expect((await pawl.reactions.targets("hang")).targets).toMatchObject([{ status: "due", worker: null }]);
  });
});
