/**
 * Failures of event stores and subscriptions that other systems have had, each forced: what came at the wrong moment there comes at that moment here.
 *
 * Each is played with handles of separate processes on one database. A handle can hold back its next commit until something else has happened, and
 * can die: then nothing passes between it and its store any more, but its leases stand. No failure depends on how fast the machine is; only
 * what is awaited has a patience, after which it counts as never.
 *
 * Results are asserted with node's own assertions, because the failures know no test runner: `failures.test.ts` plays them on every store, and
 * `run-guards.ts` on sources without one of their guards, where they must be seen.
 */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import {
  aggregate,
  event,
  open,
  type Pawl,
  type ReactionContext,
  reaction,
  type StreamEvent,
} from "../../src/index.ts";
import type { Store } from "../../src/kernel/contract.ts";
import { targetAt } from "../../src/stream/reactions/stored.ts";

export interface Failure {
  /** What must not happen, as a law and the name of a test. */
  readonly name: string;
  /** Whether it takes transactions that overlap, which only a server has. */
  readonly needsServer?: boolean;
  readonly play: (arena: Arena) => Promise<void>;
}

export interface Process {
  readonly pawl: Pawl;
  /** The next commit waits at the store until this has happened. Resolves when it has got there. */
  hold(until: Promise<unknown>): Promise<void>;
  die(): void;
}

/** One database, with as many processes on it as a failure takes. */
export class Arena {
  readonly #connect: () => Promise<Store>;
  readonly #namespace: string;
  readonly #patienceMs: number;
  readonly #gates: (() => void)[] = [];
  readonly #endings: (() => Promise<unknown>)[] = [];

  constructor(connect: (namespace: string) => Promise<Store>, namespace: string, patienceMs: number) {
    this.#connect = () => connect(namespace);
    this.#namespace = namespace;
    this.#patienceMs = patienceMs;
  }

  async process(): Promise<Process> {
    const store = await this.#connect();
    const close = store.close.bind(store);
    const commit = store.commit.bind(store);
    let isDead = false;
    let held: { readonly until: Promise<unknown>; arrive(): void } | undefined;
    store.commit = async (batch) => {
      const waits = held;
      held = undefined;
      waits?.arrive();
      await waits?.until;
      return commit(batch);
    };
    const pawl = await open({ store, namespace: this.#namespace, checkPurity: false, logger: false });
    this.#endings.push(() => (isDead ? close() : pawl.close()));
    return {
      pawl,
      hold(until) {
        const { promise, resolve } = Promise.withResolvers<void>();
        held = { until, arrive: resolve };
        return promise;
      },
      die() {
        isDead = true;
        const never = (): Promise<never> => new Promise(() => {});
        Object.assign(store, { commit: never, read: never, entries: never, follow: never, due: never, list: never });
      },
    };
  }

  async eventually(what: string, is: () => boolean | Promise<boolean>): Promise<void> {
    const untilMs = performance.now() + this.#patienceMs;
    while (!(await is())) {
      assert.ok(performance.now() < untilMs, `it never happens that ${what}`);
      await sleep(5);
    }
  }

  /** What is awaited with patience; what never comes is a failure. */
  async soon<T>(what: string, promise: Promise<T>): Promise<T> {
    const late = Symbol();
    const timer = new AbortController();
    const came = await Promise.race([promise, sleep(this.#patienceMs, late, { signal: timer.signal })]);
    timer.abort();
    assert.ok(came !== late, `it never happens that ${what}`);
    return came as T;
  }

  /** Something that is waited for; it comes when all is over, if it has not come before. */
  gate(): { readonly promise: Promise<void>; resolve(): void } {
    const gate = Promise.withResolvers<void>();
    this.#gates.push(gate.resolve);
    return gate;
  }

  async leave(): Promise<void> {
    for (const open of this.#gates) open();
    for (const end of this.#endings.reverse()) await end();
  }
}

const Ordered = event<{ readonly order: number }>("Ordered");
const Taken = event<{ readonly by: string }>("Taken");
const Missed = event<{ readonly order: number }>("Missed");
const Charged = event<{ readonly order: number }>("Charged");

/** The default lease of workers here: long enough that none ends by itself. */
const LEASE = "1 hour";
const SOON = { delay: 1, maxDelay: 1, jitter: 0 } as const;

async function namesOf(pawl: Pawl, stream: string): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of pawl.stream(stream).read()) names.push(name);
  return names;
}

async function isIdle(pawl: Pawl, name: string, handled: number): Promise<boolean> {
  const { targets } = await pawl.reactions.targets(name);
  return (
    targets.every(({ pending }) => pending === 0) && targets.reduce((sum, one) => sum + one.handled, 0) === handled
  );
}

// ------------------------------------------------------------------------------------------------- appends

const twoCreators: Failure = {
  name: 'of two creators that both pass "must not exist", one creates the stream',
  async play(arena) {
    const processes = [await arena.process(), await arena.process()];
    const go = arena.gate();
    const here = processes.map((one) => one.hold(go.promise));
    const tried = processes.map(({ pawl }, order) =>
      pawl.stream("user-ann").tryAppend([Ordered({ order })], { expectedVersion: 0 }),
    );
    // Each is at its commit, and has seen nothing of the other.
    await arena.soon("both are about to commit", Promise.all(here));
    go.resolve();
    const results = await Promise.all(tried);
    assert.equal(results.filter(({ ok }) => ok).length, 1);
    assert.deepEqual(await namesOf((processes[0] as Process).pawl, "user-ann"), ["Ordered"]);
  },
};

const lastUnit: Failure = {
  name: "of a reaction and a request that both want the last unit, one takes it",
  async play(arena) {
    const stock = aggregate("stock", {
      initial: { left: 1 },
      on: [[Taken, ({ left }) => ({ left: left - 1 })]],
      commands: {
        take: ({ left }, by: string, { emit, refuse }) => {
          if (left === 0) refuse("sold_out");
          emit(Taken({ by }));
        },
      },
    });
    const [shop, worker] = [await arena.process(), await arena.process()];
    const begun = arena.gate();
    const isTaken = arena.gate();
    const reserve = reaction("reserve", { on: [Ordered] }, async (e, { commit, emit }) => {
      if (e.data.order === 2) {
        begun.resolve();
        await isTaken.promise;
      }
      const taken = await commit(
        (tx) => tx.aggregate(stock, `book-${e.data.order}`).tryExecute("take", "reaction").ok,
      ).catch(() => false);
      assert.ok(taken || e.data.order === 2);
      if (!taken) emit("missed", [Missed(e.data)]);
    });
    // The request has asked, and is about to commit, when the reaction takes the unit.
    const go = arena.gate();
    const here = shop.hold(go.promise);
    const request = shop.pawl.aggregate(stock, "book-1").tryExecute("take", "request");
    await arena.soon("the request is about to commit", here);
    worker.pawl.work([reserve], { lease: LEASE });
    await worker.pawl.stream("orders").append([Ordered({ order: 1 })]);
    await arena.eventually("the reaction has taken it", async () => (await worker.pawl.stream("book-1").head()) === 1);
    go.resolve();
    assert.equal((await request).ok, false);
    assert.deepEqual(await namesOf(shop.pawl, "book-1"), ["Taken"]);
    // And the other way: the request takes it while the handler is at work.
    await worker.pawl.stream("orders").append([Ordered({ order: 2 })]);
    await arena.soon("the handler begins", begun.promise);
    assert.equal((await shop.pawl.aggregate(stock, "book-2").tryExecute("take", "request")).ok, true);
    isTaken.resolve();
    await arena.eventually("the order is handled", () => isIdle(shop.pawl, "reserve", 2));
    assert.deepEqual(await namesOf(shop.pawl, "book-2"), ["Taken"]);
  },
};

// ------------------------------------------------------------------------------------------------- reactions

/** Ends the lease of a target again and again, until another worker has it. */
async function loseTarget(arena: Arena, { pawl }: Process, name: string, target: string): Promise<void> {
  const at = targetAt(name, target);
  const old = await pawl.kernel.transact((tx) => tx.record(at).fence, [at]);
  const isTaken = () =>
    pawl.kernel.transact(
      (tx) => {
        const record = tx.record(at);
        if (record.fence === old && (record.dueMs ?? 0) > tx.nowMs) record.write({ dueMs: tx.nowMs });
        return record.fence !== old;
      },
      [at],
    );
  await arena.eventually("another worker takes over", isTaken);
}

const chargedTwice: Failure = {
  name: "a handler that overran its lease charges under the same key, and what it emits is left out",
  async play(arena) {
    const [slow, quick, operator] = [await arena.process(), await arena.process(), await arena.process()];
    const charges: string[] = [];
    const begun = arena.gate();
    const wakes = arena.gate();
    const charge = (isSlow: boolean) => async (e: StreamEvent<{ order: number }>, context: ReactionContext) => {
      if (isSlow) {
        begun.resolve();
        await wakes.promise;
      }
      charges.push(context.key);
      context.emit("charges", [Charged(e.data)]);
    };
    // With one place, so that the slow worker does not take its own target over.
    const definition = (isSlow: boolean) => reaction("charge", { on: [Ordered], concurrency: 1 }, charge(isSlow));
    const slowWorker = slow.pawl.work([definition(true)], { lease: LEASE });
    await slow.pawl.stream("order-1").append([Ordered({ order: 1 })]);
    await arena.soon("the handler begins", begun.promise);
    quick.pawl.work([definition(false)], { lease: LEASE });
    await loseTarget(arena, operator, "charge", "order-1");
    await arena.eventually(
      "the other worker has handled it",
      async () => (await quick.pawl.stream("charges").head()) > 0,
    );
    wakes.resolve();
    // When it has stopped, its commit was refused or is there.
    await arena.soon("the slow handler ends", slowWorker.stop());
    await quick.pawl.stream("order-1").append([Ordered({ order: 2 })]);
    await arena.eventually("the next event is handled", () => isIdle(quick.pawl, "charge", 2));
    assert.equal(new Set(charges.slice(0, 2)).size, 1, "the two attempts had different keys");
    const charged: number[] = [];
    for await (const { data } of quick.pawl.stream("charges").read({ events: [Charged] })) charged.push(data.order);
    assert.deepEqual(charged, [1, 2]);
  },
};

const waitsForAppend: Failure = {
  name: "a reaction that failed is tried again by itself, also where no one appends any more",
  async play(arena) {
    const { pawl } = await arena.process();
    let calls = 0;
    const mail = reaction("mail", { on: [Ordered], retry: { attempts: 9, ...SOON } }, () => {
      calls += 1;
      if (calls < 3) throw new Error("the server is down");
    });
    pawl.work([mail], { lease: LEASE });
    await pawl.stream("order-1").append([Ordered({ order: 1 })]);
    await arena.eventually("it is handled", () => isIdle(pawl, "mail", 1));
    assert.equal(calls, 3);
  },
};

const visibleLate: Failure = {
  name: "an event that becomes visible late is skipped by no reader and no reaction",
  needsServer: true,
  async play(arena) {
    const [first, second, reader] = [await arena.process(), await arena.process(), await arena.process()];
    const seen: string[] = [];
    let looks = 0;
    const { kernel } = reader.pawl;
    const follow = kernel.follow.bind(kernel);
    kernel.follow = async (query) => {
      const page = await follow(query);
      looks += 1;
      return page;
    };
    const copy = reaction("copy", { on: [Ordered], target: "all" }, (e) => void seen.push(e.stream));
    reader.pawl.work([copy], { lease: LEASE });
    const begin = async ({ pawl }: Process, stream: string) => {
      const appended = arena.gate();
      const commits = arena.gate();
      const done = pawl.transact.sql(async (_, tx) => {
        await tx((inner) => inner.stream(stream).append([Ordered({ order: 1 })]));
        appended.resolve();
        await commits.promise;
      });
      await Promise.race([appended.promise, done]);
      return async () => {
        commits.resolve();
        await done;
      };
    };
    const commitEarly = await begin(first, "early");
    const commitLate = await begin(second, "late");
    // In the opposite order of their appends, with a look in between.
    await commitLate();
    const reading = reader.pawl.events.read();
    const read: string[] = [];
    for await (const { stream } of reading) read.push(stream);
    const before = looks;
    await arena.eventually("the reaction has looked", () => looks >= before + 2);
    await commitEarly();
    for await (const { stream } of reader.pawl.events.read({ after: reading.cursor })) read.push(stream);
    assert.deepEqual(read, ["early", "late"]);
    await arena.eventually("both are handled", () => isIdle(reader.pawl, "copy", 2));
    assert.deepEqual(seen, ["early", "late"]);
  },
};

const slowHandler: Failure = {
  name: "a slow handler delays neither the acknowledgement of an append nor other reactions",
  async play(arena) {
    const { pawl } = await arena.process();
    const begun = arena.gate();
    const ends = arena.gate();
    const slow = reaction("slow", { on: [Ordered], concurrency: 1 }, async () => {
      begun.resolve();
      await ends.promise;
    });
    const fast = reaction("fast", { on: [Ordered], concurrency: 1 }, () => {});
    pawl.work([slow, fast], { lease: LEASE });
    await pawl.stream("order-0").append([Ordered({ order: 0 })]);
    await arena.soon("the slow handler begins", begun.promise);
    for (let order = 1; order <= 3; order++)
      await arena.soon("an append is acknowledged", pawl.stream(`order-${order}`).append([Ordered({ order })]));
    await arena.eventually("the other reaction has handled all", () => isIdle(pawl, "fast", 4));
    assert.equal((await pawl.reactions.target("slow", "order-0")).status, "running");
    ends.resolve();
    await arena.eventually("the slow one has handled all", () => isIdle(pawl, "slow", 4));
  },
};

const noWorker: Failure = {
  name: "a subscription that no worker runs any more is listed without a worker, and holds nothing",
  async play(arena) {
    const [old, other] = [await arena.process(), await arena.process()];
    const begun = arena.gate();
    const dying = reaction("dying", { on: [Ordered] }, () => {
      begun.resolve();
      return new Promise(() => {});
    });
    const stopped = reaction("stopped", { on: [Ordered] }, () => {});
    const kept = reaction("kept", { on: [Ordered] }, () => {});
    const worker = old.pawl.work([stopped], { lease: LEASE });
    await old.pawl.stream("order-1").append([Ordered({ order: 1 })]);
    await arena.eventually("it is handled", () => isIdle(old.pawl, "stopped", 1));
    assert.notEqual((await old.pawl.reactions.get("stopped")).worker, null);
    // One that stops in good order releases what it has.
    await worker.stop();
    assert.equal((await other.pawl.reactions.get("stopped")).worker, null);
    // One whose process dies has it until its lease ends.
    old.pawl.work([dying], { lease: "300ms" });
    await arena.soon("the handler begins", begun.promise);
    old.die();
    other.pawl.work([kept], { lease: LEASE });
    await other.pawl.stream("order-1").append([Ordered({ order: 2 })]);
    await arena.eventually("others go on", () => isIdle(other.pawl, "kept", 2));
    await arena.eventually("no worker has it", async () => (await other.pawl.reactions.get("dying")).worker === null);
    await arena.eventually("its target has no worker", async () => {
      const { worker, status } = await other.pawl.reactions.target("dying", "order-1");
      return worker === null && status === "due";
    });
    const workers = (await other.pawl.reactions.list()).map(({ name, worker }) => [name, worker !== null]);
    assert.deepEqual(workers, [
      ["dying", false],
      ["kept", true],
      ["stopped", false],
    ]);
    assert.equal((await other.pawl.reactions.get("stopped")).unrouted, 1);
    // Whoever knows them next continues.
    const again = await arena.process();
    again.pawl.work([reaction("dying", { on: [Ordered] }, () => {}), stopped], { lease: LEASE });
    await arena.eventually(
      "both go on",
      async () => (await isIdle(other.pawl, "dying", 2)) && isIdle(other.pawl, "stopped", 2),
    );
  },
};

export const failures: readonly Failure[] = [
  twoCreators,
  lastUnit,
  chargedTwice,
  waitsForAppend,
  visibleLate,
  slowHandler,
  noWorker,
];
