/**
 * Goal: the code of a run sees what happens in the order that the history has it, live and at replay, whatever the order was (G15, G23).
 * Method: enumerated, not sampled. Three branches end in every order, one by one and together, in every kind of operation, with every set
 * of failures; then the process dies, and a peer that has never seen the run finishes it. The test moves the time, and
 * single calls to the store can be held up, so that two things meet exactly where they should.
 */

import { afterEach, describe, expect, test } from "vitest";
import { type AnyWorkflow, type Context, type Pawl, type Run, signal, workflow } from "../../src/index.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase, type MemoryStore } from "../../src/stores/memory/memory.ts";

const LEASE_MS = 10_000;

// ------------------------------------------------------------------------------------------------- a world of its own

type Call = "commit" | "entries" | "read" | "due";

/** A database, its time, and the processes on it. */
class World {
  nowMs = 1_800_000_000_000;
  readonly database = new MemoryDatabase(() => this.nowMs);
  #timers: { readonly atMs: number; readonly go: () => void }[] = [];
  #drawn = 0;

  process(): Peer {
    const store = this.database.connect("orders");
    const peer = new Peer(
      store,
      (ms, go) => this.#after(ms, go, peer),
      () => this.nowMs,
      () => `${this.#drawn++}`,
    );
    return peer;
  }

  #after(ms: number, go: () => void, peer: Peer): () => void {
    const timer = { atMs: this.nowMs + ms, go: () => (peer.isDead ? undefined : go()) };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((one) => one !== timer);
    };
  }

  /** Moves the time, timer after timer. */
  async pass(ms: number): Promise<void> {
    const endMs = this.nowMs + ms;
    for (;;) {
      await quiet();
      const next = this.#timers.filter(({ atMs }) => atMs <= endMs).toSorted((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined) break;
      this.#timers.splice(this.#timers.indexOf(next), 1);
      this.nowMs = Math.max(this.nowMs, next.atMs);
      next.go();
    }
    this.nowMs = endMs;
    await quiet();
  }
}

/** One process: it can die, and its calls to the store can be held up. */
class Peer {
  readonly pawl: Pawl;
  readonly troubles: string[] = [];
  isDead = false;
  readonly #held = new Map<Call, PromiseWithResolvers<void>>();

  constructor(store: MemoryStore, after: Ports["clock"]["after"], nowMs: () => number, uuid: () => string) {
    for (const name of ["commit", "entries", "read", "due"] as const) {
      const call = store[name].bind(store) as (...args: unknown[]) => Promise<unknown>;
      const replaced = async (...args: unknown[]): Promise<unknown> => {
        const gate = this.#held.get(name);
        this.#held.delete(name);
        await gate?.promise;
        if (this.isDead) return new Promise(() => {});
        const answer = await call(...args);
        return this.isDead ? new Promise(() => {}) : answer;
      };
      Object.assign(store, { [name]: replaced });
    }
    const soon = (go: () => void): void => void setImmediate(() => (this.isDead ? undefined : go()));
    const ports = { clock: { nowMs, after, soon }, chance: { random: () => 0.5, uuid } };
    this.pawl = pawlOn(store, ports, { namespace: "orders" });
    peers.push(this);
  }

  work(workflows: readonly AnyWorkflow[], warm = 100): void {
    this.pawl.work(workflows, {
      lease: LEASE_MS,
      warm,
      on: ({ type, error }) => {
        if (type === "run.trouble") this.troubles.push(String(error));
      },
    });
  }

  die(): void {
    this.isDead = true;
  }

  /** Holds up the next call of this name; returns a function that releases it. */
  hold(name: Call): () => void {
    const gate = Promise.withResolvers<void>();
    this.#held.set(name, gate);
    return gate.resolve;
  }
}

const peers: Peer[] = [];
afterEach(() => {
  for (const peer of peers.splice(0)) {
    peer.die();
    expect(peer.troubles).toEqual([]);
  }
});

/** Everything that can continue by itself has done so. */
async function quiet(): Promise<void> {
  for (let i = 0; i < 30; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** The state of the run, once nothing more happens by itself. */
async function endOf(world: World, run: Run): Promise<unknown> {
  for (let i = 0; i < 5; i++) {
    await world.pass(2 * LEASE_MS);
    const { status } = await run.status();
    if (status === "completed") return run.result();
  }
  return (await run.status()).status;
}

const facts = async (run: Run): Promise<string[]> => (await run.history()).map(({ name }) => name);

// ------------------------------------------------------------------------------------------------- three branches

const ORDERS = [
  [0, 1, 2],
  [0, 2, 1],
  [1, 0, 2],
  [1, 2, 0],
  [2, 0, 1],
  [2, 1, 0],
] as const;
const COMBINATIONS = ["all", "race", "any", "allSettled"] as const;
const KINDS = {
  steps: ["step", "step", "step"],
  signals: ["signal", "signal", "signal"],
  children: ["child", "child", "child"],
  "a step, a signal and a child": ["step", "signal", "child"],
  "a step, an attempt at most once and a signal": ["step", "once", "signal"],
} as const;

type Kind = "step" | "once" | "signal" | "child";

const finish = signal("finish");
const end = [0, 1, 2].map((i) => signal<string>(`end ${i}`));
const at = <T>(list: readonly T[], index: number): T => {
  const item = list[index];
  if (item === undefined) throw new Error(`there is no ${index}`);
  return item;
};

interface Case {
  readonly kinds: readonly Kind[];
  readonly how: (typeof COMBINATIONS)[number];
  readonly failing: ReadonlySet<number>;
}

const combine: Record<Case["how"], (all: readonly Promise<string>[]) => Promise<unknown>> = {
  all: (all) => Promise.all(all),
  race: (all) => Promise.race(all),
  any: (all) => Promise.any(all),
  allSettled: (all) => Promise.allSettled(all),
};

/** The branches in one process: what its code saw, and which steps it ran. */
function branches({ kinds, how, failing }: Case) {
  const gates = [0, 1, 2].map(() => Promise.withResolvers<string>());
  const saw: string[] = [];
  const begun: string[] = [];
  const child = workflow("branch", async (ctx: Context, i: number) => {
    const answer = (await ctx.waitForSignal(at(end, i))).value;
    if (answer === "fails") throw new Error(`branch ${i} fails`);
    return answer;
  });
  const parent = workflow("branches", async (ctx: Context) => {
    const seen: string[] = [];
    const see = (what: string): void => {
      seen.push(what);
      saw.push(what);
    };
    const operation = (i: number): PromiseLike<string> => {
      const step = (): Promise<string> => {
        begun.push(`branch ${i}`);
        return at(gates, i).promise;
      };
      const kind = at(kinds, i);
      if (kind === "step") return ctx.step(`branch ${i}`, step, { retry: { attempts: 1 } });
      if (kind === "once") return ctx.step.atMostOnce(`branch ${i}`, step);
      if (kind === "child") return ctx.call(child, i);
      return ctx.waitForSignal(at(end, i)).then(({ value }) => {
        if (value === "fails") throw new Error(`branch ${i} fails`);
        return value;
      });
    };
    const branch = async (i: number): Promise<string> => {
      try {
        const value = await operation(i);
        see(`${i} ended`);
        await ctx.step(`after ${i}`, () => void begun.push(`after ${i}`));
        see(`${i} went on`);
        return value;
      } catch (error) {
        see(`${i} failed`);
        throw error;
      }
    };
    const all = [0, 1, 2].map(branch);
    let outcome: unknown;
    try {
      outcome = await combine[how](all);
      see("combined");
    } catch (error) {
      outcome = error instanceof AggregateError ? "all failed" : error instanceof Error ? error.message : error;
      see("combined with an error");
    }
    for (const one of all) one.catch(() => {});
    await ctx.waitForSignal(finish);
    return { outcome: describeOutcome(outcome), seen };
  });
  const release = async (pawl: Pawl, i: number): Promise<void> => {
    const answer = failing.has(i) ? "fails" : `value ${i}`;
    const kind = at(kinds, i);
    if (kind === "signal") await pawl.run(parent, "one").signal(at(end, i), answer);
    else if (kind === "child") {
      const { runs } = await pawl.runs.list({ workflow: child, order: "id" });
      const [, ...rest] = [null, ...runs];
      const index = kinds.slice(0, i).filter((other) => other === "child").length;
      await pawl.run(child, at(rest, index)?.id ?? "").signal(at(end, i), answer);
    } else if (failing.has(i)) at(gates, i).reject(new Error(`branch ${i} fails`));
    else at(gates, i).resolve(answer);
  };
  return { parent, child, saw, begun, release };
}

const describeOutcome = (outcome: unknown): unknown =>
  Array.isArray(outcome)
    ? outcome.map((one: unknown) =>
        typeof one === "object" && one !== null && "status" in one ? (one.status as string) : one,
      )
    : outcome;

const SUBSETS = [[], [0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]];

describe.each(Object.entries(KINDS))("three branches of %s", (_name, kinds) => {
  for (const how of COMBINATIONS)
    test(`Promise.${how} has the same outcome at replay, in every order and with every failure`, async () => {
      const seenOrders = new Set<string>();
      for (const order of ORDERS)
        for (const failing of SUBSETS)
          for (const pace of ["one by one", "at once"] as const) {
            const about = `${order} ${pace}, failing ${failing}`;
            const world = new World();
            const given: Case = { kinds, how, failing: new Set(failing) };
            const live = branches(given);
            const first = world.process();
            first.work([live.parent, live.child]);
            const run = await first.pawl.start(live.parent, undefined, { id: "one" });
            await quiet();
            const released = [];
            for (const i of order) {
              released.push(live.release(first.pawl, i));
              if (pace === "one by one") {
                await released.at(-1);
                await quiet();
              }
            }
            await Promise.all(released);
            await quiet();
            const history = await facts(run);
            first.die();
            // The peer's own gates never open: whatever it knows, it knows from the history.
            const replayed = branches(given);
            const second = world.process();
            second.work([replayed.parent, replayed.child], 0);
            await second.pawl.run(replayed.parent, "one").signal(finish);
            const result = (await endOf(world, second.pawl.run(replayed.parent, "one"))) as { seen: string[] };
            expect(result, about).toMatchObject({ seen: live.saw });
            expect(replayed.saw, about).toEqual(live.saw);
            expect(replayed.begun, about).toEqual([]);
            expect((await facts(second.pawl.run(replayed.parent, "one"))).slice(0, history.length), about).toEqual(
              history,
            );
            if (pace === "one by one" && failing.length === 0)
              expect(
                live.saw.filter((what) => what.endsWith("ended")),
                about,
              ).toEqual(order.map((i) => `${i} ended`));
            seenOrders.add(live.saw.join());
            second.die();
          }
      // The orders were really different ones.
      expect(seenOrders.size).toBeGreaterThanOrEqual(ORDERS.length);
    });
});

// ------------------------------------------------------------------------------------------------- what meets

const go = signal<string>("go");

describe("what comes at the same moment", () => {
  test("a signal that is sent while the run is being started here is received", async () => {
    const world = new World();
    const waits = workflow("waits", async (ctx: Context) => (await ctx.waitForSignal(go)).value);
    const peer = world.process();
    peer.work([waits]);
    const starting = peer.pawl.start(waits, undefined, { id: "one" });
    const signaling = peer.pawl.run(waits, "one").signal(go, "hello");
    await signaling;
    expect(await endOf(world, await starting)).toBe("hello");
  });

  test("a sleep that ends while the run is released to rest is not lost", async () => {
    for (const warm of [0, 100]) {
      const world = new World();
      const gate = Promise.withResolvers<void>();
      const naps = workflow("naps", async (ctx: Context) => {
        await Promise.all([ctx.step("first", () => gate.promise), ctx.sleep(1_000)]);
        await ctx.step("second", () => {});
        await ctx.waitForSignal(go);
        return "done";
      });
      const peer = world.process();
      peer.work([naps], warm);
      const run = await peer.pawl.start(naps, undefined, { id: "one" });
      await world.pass(999);
      const letGo = peer.hold("commit");
      gate.resolve();
      await quiet();
      await world.pass(1);
      letGo();
      await world.pass(100);
      expect(await facts(run)).toEqual(["started", "sleep 1", "step first", "woke 1", "step second"]);
      peer.die();
      const heir = world.process();
      heir.work([naps], 0);
      await heir.pawl.run(naps, "one").signal(go, "");
      expect(await endOf(world, heir.pawl.run(naps, "one"))).toBe("done");
    }
  });

  test("a signal that comes while the run is replayed is received after it", async () => {
    const world = new World();
    const done: string[] = [];
    const reads = workflow("reads", async (ctx: Context) => {
      const read: string[] = [];
      for (let i = 0; i < 3; i++) {
        read.push((await ctx.waitForSignal(go)).value);
        await ctx.step("reply", () => void done.push(read.join()));
      }
      return read;
    });
    const first = world.process();
    first.work([reads]);
    const run = await first.pawl.start(reads, undefined, { id: "one" });
    await run.signal(go, "a");
    await run.signal(go, "b");
    await quiet();
    first.die();
    const client = world.process();
    await client.pawl.run(reads, "one").signal(go, "c");
    const second = world.process();
    const letGo = second.hold("entries");
    second.work([reads], 0);
    await quiet();
    await client.pawl.run(reads, "one").signal(go, "d");
    await world.pass(100);
    letGo();
    expect(await endOf(world, client.pawl.run(reads, "one"))).toEqual(["a", "b", "c"]);
    expect(done).toEqual(["a", "a,b", "a,b,c"]);
  });

  test("a cancellation that meets a timeout and a signal does not lose the signal", async () => {
    const world = new World();
    const waits = workflow("waits", async (ctx: Context) => {
      const heard: string[] = [];
      for (;;)
        try {
          const answer = await ctx.waitForSignal(go, heard.length === 0 ? { timeout: 3_000 } : {});
          if (answer.ok) return [...heard, answer.value];
          heard.push("too late");
        } catch {
          heard.push("canceled");
        }
    });
    const first = world.process();
    first.work([waits]);
    await first.pawl.start(waits, undefined, { id: "one" });
    await quiet();
    first.die();
    const client = world.process();
    await world.pass(5_000);
    const run = client.pawl.run(waits, "one");
    await run.signal(go, "hello");
    await run.cancel();
    const second = world.process();
    second.work([waits]);
    expect(await endOf(world, run)).toEqual(["canceled", "hello"]);
  });

  test("a cancellation while a step is tried again has the same outcome at replay", async () => {
    const world = new World();
    const gate = Promise.withResolvers<string>();
    let attempts = 0;
    let sawLive: string[] = [];
    const tries = workflow("tries", async (ctx: Context) => {
      const saw: string[] = [];
      const again = async (): Promise<string> => {
        attempts += 1;
        if (attempts === 1) throw new Error("not yet");
        return gate.promise;
      };
      try {
        saw.push(await ctx.step("again", again, { retry: { delay: 8_000, maxDelay: 8_000, jitter: 0 } }));
        await ctx.step("next", () => {});
      } catch {
        saw.push("canceled");
      }
      if (sawLive.length === 0) sawLive = saw;
      await ctx.waitForSignal(go);
      return saw;
    });
    const first = world.process();
    first.work([tries]);
    const run = await first.pawl.start(tries, undefined, { id: "one" });
    await world.pass(9_000);
    await run.cancel();
    await quiet();
    gate.resolve("it worked");
    await quiet();
    first.die();
    const second = world.process();
    second.work([tries], 0);
    await second.pawl.run(tries, "one").signal(go, "");
    expect(await endOf(world, second.pawl.run(tries, "one"))).toEqual(sawLive);
    expect(sawLive).toContain("canceled");
  });

  test("a signal between two steps of a warm run, and a crash after any commit, replay in the order it was seen", async () => {
    const counts: number[] = [];
    for (let dieAfter = 1; dieAfter <= 12; dieAfter++) {
      const world = new World();
      const saws: string[][] = [[], []];
      const make = (saw: string[]) =>
        workflow("warm", async (ctx: Context) => {
          // A replay sees everything from the start.
          saw.length = 0;
          const listening = ctx.waitForSignal(go).then(({ value }) => saw.push(value));
          for (const step of ["a", "b", "c"]) {
            await ctx.step(step, () => {});
            saw.push(step);
            if (step === "a") await ctx.sleep(1_000);
          }
          await listening;
          await ctx.waitForSignal(finish);
          return [...saw];
        });
      const [live = [], replayed = []] = saws;
      const first = world.process();
      let commits = 0;
      const warm = make(live);
      first.pawl.kernel.listen((puts) => {
        if (puts === undefined || first.isDead) return;
        commits += 1;
        if (commits === dieAfter) first.die();
      });
      first.work([warm]);
      void first.pawl.start(warm, undefined, { id: "one" });
      await world.pass(500);
      if (!first.isDead) void first.pawl.run(warm, "one").signal(go, "signal");
      await world.pass(1_000);
      counts.push(commits);
      first.die();
      const second = world.process();
      const history = await facts(second.pawl.run(warm, "one"));
      const written = history.flatMap(
        (name) => /^step (.)$/.exec(name)?.[1] ?? (name === "received go" ? "signal" : []),
      );
      second.work([make(replayed)], 0);
      // Where the first one was lost with its sender, it is sent again.
      await second.pawl.run(warm, "one").signal(go, "signal");
      await second.pawl.run(warm, "one").signal(finish);
      const end = await endOf(world, second.pawl.run(warm, "one"));
      expect(end, `after ${dieAfter} commits`).toEqual(replayed);
      expect(replayed.toSorted(), `after ${dieAfter} commits`).toEqual(["a", "b", "c", "signal"]);
      expect(live.slice(0, written.length), `after ${dieAfter} commits`).toEqual(written);
      expect(replayed.slice(0, written.length), `after ${dieAfter} commits`).toEqual(written);
    }
    // The last of them was not stopped at all.
    expect(Math.max(...counts)).toBeLessThan(12);
  });
});
