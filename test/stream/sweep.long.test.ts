/**
 * The crash sweep of reactions: events that are routed and handled, interrupted before and after every single call to the store.
 *
 * Goal: wherever a process stops, its successor handles each event with one lasting effect, in the order of its target; a process that stood still for
 * longer than its lease, and was taken over, adds nothing when it goes on (G13).
 * Method: five events in three streams and two reactions. "copy" has one target for each stream, and emits; "pay" has one for all, and withdraws from a
 * purse that is too small, in the commit of its progress, or emits that it was refused. Handlers take longer than a lease. For every call k to
 * the store the process is interrupted in four ways: it crashes before the call, or after its effect and before its reply; or it pauses
 * at the same two points, another takes over and finishes, and then it goes on and believes that it still holds what it held. Then pairs of
 * these, chosen by a seed. Time is the test's own: it moves on when nothing else does.
 *
 * A planted mistake, an effect that is a commit of its own, must be found by the same sweep.
 */

import { rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { aggregate, event, type Pawl, reaction } from "../../src/index.ts";
import type { Store } from "../../src/kernel/contract.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { scratchFolder } from "../sqlite/kit.ts";
import { all } from "./kit.ts";

const LEASE_MS = 3_000;
const HANDLER_MS = 1.2 * LEASE_MS;
const LOOK_MS = 500;
const PATIENCE_MS = 30_000;
const NAMESPACE = "default";

// ------------------------------------------------------------------------------------------------- time and processes

interface Interruption {
  /** The call to the store, counted from 1; 0 for none. */
  readonly call: number;
  readonly when: "before" | "after";
  readonly how: "crash" | "pause";
}

const NONE: Interruption = { call: 0, when: "before", how: "crash" };

interface Timer {
  readonly atMs: number;
  readonly life: Life;
  readonly go: () => void;
}

/** What is outside of all processes: the time, and the database. */
class World {
  ms = 0;
  timers: Timer[] = [];
  readonly lives: Life[] = [];
  readonly connect: (ports: Ports) => Promise<Store>;

  constructor(database: (world: World) => (ports: Ports) => Promise<Store>) {
    this.connect = database(this);
  }

  /** Lets everything run until this is over; the time moves on when nothing else does. */
  async until(over: Promise<unknown>): Promise<void> {
    let isOver = false;
    const end = (): void => {
      isOver = true;
    };
    over.then(end, end);
    for (let turns = 0; !isOver; turns++) {
      for (let i = 0; i < 3 && !isOver; i++) await new Promise((resolve) => setImmediate(resolve));
      if (isOver || this.lives.some((life) => life.isBusy)) continue;
      if (turns > 20_000) throw new Error("it does not come to an end");
      const due = this.timers.filter(({ life }) => life.isAwake).toSorted((a, b) => a.atMs - b.atMs)[0];
      if (due === undefined) continue;
      this.timers.splice(this.timers.indexOf(due), 1);
      this.ms = Math.max(this.ms, due.atMs);
      due.go();
    }
  }
}

/** One life of a process. */
class Life {
  readonly ports: Ports;
  readonly #interruption: Interruption;
  readonly stopped = Promise.withResolvers<void>();
  readonly #resumed = Promise.withResolvers<void>();
  #state: "awake" | "paused" | "dead" = "awake";
  #soon: (() => void)[] = [];
  #store: Store | undefined;
  calls = 0;

  constructor(world: World, interruption: Interruption) {
    this.#interruption = interruption;
    world.lives.push(this);
    const number = world.lives.length;
    let drawn = 0;
    this.ports = {
      clock: {
        nowMs: () => world.ms,
        after: (ms, go) => {
          const timer = { atMs: world.ms + ms, life: this, go };
          world.timers.push(timer);
          return () => {
            world.timers = world.timers.filter((one) => one !== timer);
          };
        },
        soon: (go) => {
          this.#soon.push(go);
          setImmediate(() => this.#next());
        },
      },
      chance: { random: () => 0.5, uuid: () => `${number}-${drawn++}` },
    };
  }

  async open(world: World): Promise<Pawl> {
    const store = await world.connect(this.ports);
    this.#store = store;
    return pawlOn(this.#stopping(store), this.ports, { namespace: NAMESPACE, patienceMs: PATIENCE_MS });
  }

  get isAwake(): boolean {
    return this.#state === "awake";
  }

  /** Something is still to have its turn. */
  get isBusy(): boolean {
    return this.isAwake && this.#soon.length > 0;
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.ports.clock.after(ms, resolve));
  }

  /** A paused process goes on. */
  resume(): void {
    this.#state = "awake";
    for (const _ of this.#soon) setImmediate(() => this.#next());
    this.#resumed.resolve();
  }

  /** Nothing of it runs any more. */
  async end(): Promise<void> {
    this.#state = "dead";
    await this.#store?.close();
  }

  #next(): void {
    if (this.isAwake) this.#soon.shift()?.();
  }

  #stopping(store: Store): Store {
    const call =
      <Args extends unknown[], T>(act: (...args: Args) => Promise<T>) =>
      (...args: Args): Promise<T> =>
        this.#call(() => act.apply(store, args));
    const { lanes, isRemote, hasOneWriter } = store;
    return {
      lanes,
      isRemote,
      hasOneWriter,
      settle: call(store.settle),
      commit: call(store.commit),
      read: call(store.read),
      list: call(store.list),
      entries: call(store.entries),
      follow: call(store.follow),
      due: call(store.due),
      prune: call(store.prune),
      sweep: call(store.sweep),
      // Processes that do not hear of each other look by themselves.
      watch: () => () => {},
      close: () => store.close(),
    };
  }

  async #call<T>(act: () => Promise<T>): Promise<T> {
    this.calls += 1;
    const isIt = this.calls === this.#interruption.call;
    if (isIt && this.#interruption.when === "before") this.#stop();
    if (!this.isAwake) await this.#rest();
    const answer = await act();
    if (isIt && this.#interruption.when === "after") this.#stop();
    if (!this.isAwake) await this.#rest();
    return answer;
  }

  #rest(): Promise<unknown> {
    return this.#state === "dead" ? new Promise(() => {}) : this.#resumed.promise;
  }

  #stop(): void {
    this.#state = this.#interruption.how === "crash" ? "dead" : "paused";
    this.stopped.resolve();
  }
}

// ------------------------------------------------------------------------------------------------- the work

const Sent = event<{ readonly n: number }>("Sent");
const Copied = event<{ readonly of: string }>("Copied");
const Paid = event<{ readonly for: string }>("Paid");
const Missed = event<{ readonly for: string }>("Missed");

const FUNDS = 3;
const purse = aggregate("purse", {
  initial: FUNDS,
  on: [[Paid, (left) => left - 1]],
  commands: {
    pay: (left, reason: string, { emit, refuse }) => {
      if (left === 0) refuse("empty");
      emit(Paid({ for: reason }));
    },
  },
});

type Planted = "nothing" | "an effect that is a commit of its own";

const SENT = ["a 1", "b 1", "a 2", "c 1", "a 3"];

function definitions(life: Life, pawl: Pawl, planted: Planted) {
  const copy = reaction("copy", { on: [Sent] }, async (e, { emit }) => {
    await life.sleep(HANDLER_MS);
    const copied = [Copied({ of: `${e.stream} ${e.version}` })];
    if (planted === "nothing") emit("copies", copied);
    else await pawl.stream("copies").append(copied);
  });
  const pay = reaction("pay", { on: [Sent], target: "all" }, async (e, { commit, emit }) => {
    await life.sleep(HANDLER_MS);
    const reason = `${e.stream} ${e.version}`;
    const isPaid = await commit((tx) => tx.aggregate(purse, "purse").execute("pay", reason)).then(
      () => true,
      (error: unknown) => {
        if ((error as { code?: string }).code !== "command_refused") throw error;
        return false;
      },
    );
    if (!isPaid) emit("missed", [Missed({ for: reason })]);
  });
  return [copy, pay];
}

async function live(world: World, life: Life, planted: Planted): Promise<void> {
  const pawl = await life.open(world);
  pawl.work(definitions(life, pawl, planted), { lease: LEASE_MS });
}

async function isDrained(pawl: Pawl): Promise<boolean> {
  const found = await pawl.reactions.list();
  if (found.length < 2 || found.some(({ unrouted }) => unrouted > 0)) return false;
  for (const { name } of found) {
    const { targets } = await pawl.reactions.targets(name);
    if (targets.some(({ pending, worker }) => pending > 0 || worker !== null)) return false;
  }
  return true;
}

// ------------------------------------------------------------------------------------------------- the checks

/** What there is in the end, apart from who did it and when. */
async function judge(pawl: Pawl): Promise<string[]> {
  const faults: string[] = [];
  const copies = (await all(pawl.stream("copies").read({ events: [Copied] }))).map(({ data }) => data.of);
  const paid = (await all(pawl.stream("purse").read({ events: [Paid] }))).map(({ data }) => data.for);
  const missed = (await all(pawl.stream("missed").read({ events: [Missed] }))).map(({ data }) => data.for);
  if (String(copies.toSorted()) !== String(SENT.toSorted())) faults.push(`it was copied as ${copies}`);
  for (const stream of ["a", "b", "c"]) {
    const mine = copies.filter((of) => of.startsWith(stream));
    if (String(mine) !== String(mine.toSorted())) faults.push(`events of ${stream} were copied as ${mine}`);
  }
  if (String([...paid, ...missed]) !== String(SENT)) faults.push(`it was paid for ${paid}, and not for ${missed}`);
  if (paid.length !== FUNDS) faults.push(`${paid.length} payments from a purse of ${FUNDS}`);
  for (const { name, status, failures } of await statusesOf(pawl))
    if (status !== "idle" || failures > 0) faults.push(`${name} is ${status} after ${failures} failures`);
  return faults;
}

async function statusesOf(pawl: Pawl) {
  const found = [];
  for (const reaction of ["copy", "pay"])
    for (const { target, status, failures } of (await pawl.reactions.targets(reaction)).targets)
      found.push({ name: `${reaction} ${target}`, status, failures });
  return found;
}

// ------------------------------------------------------------------------------------------------- the sweep

let files = 0;
const folder = scratchFolder("in memory");
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const START_MS = Date.UTC(2026, 0, 1);

const DATABASES = {
  memory: (world: World) => {
    const database = new MemoryDatabase(() => START_MS + world.ms);
    return async () => database.connect(NAMESPACE);
  },
  SQLite: (world: World) => {
    const path = join(folder, `${files++}.db`);
    const wallMs = () => START_MS + world.ms;
    return (ports: Ports) =>
      openSqlite({ path, namespace: NAMESPACE, ports, wallMs, durability: "process", patienceMs: PATIENCE_MS });
  },
} as const;

type Database = keyof typeof DATABASES;

/** Lets the work go through the interruptions, one life each, and a last life that finishes. Returns how often that one called, and what went wrong. */
async function interrupted(
  database: Database,
  interruptions: readonly Interruption[],
  planted: Planted = "nothing",
): Promise<{ readonly calls: number; readonly faults: readonly string[] }> {
  const world = new World(DATABASES[database]);
  const observer = new Life(world, NONE);
  const pawl = await observer.open(world);
  const untilDrained = async (): Promise<void> => {
    while (!(await isDrained(pawl))) await observer.sleep(LOOK_MS);
  };
  const appending = (async () => {
    for (const [n, name] of SENT.entries())
      await pawl.stream(name.slice(0, 1)).append([Sent({ n })], { expectedVersion: Number(name.slice(2)) - 1 });
  })();
  await world.until(appending);
  await appending;
  const paused: Life[] = [];
  for (const interruption of interruptions) {
    const life = new Life(world, interruption);
    await live(world, life, planted);
    await world.until(Promise.race([life.stopped.promise, untilDrained()]));
    if (interruption.how === "pause") paused.push(life);
    else await life.end();
  }
  const last = new Life(world, NONE);
  await live(world, last, planted);
  const drained = untilDrained();
  await world.until(drained);
  await drained;
  const { calls } = last;
  const faults = [...(await check(world, pawl))];
  for (const life of paused) {
    life.resume();
    // Whatever it believes to hold, it has the time to end it.
    await world.until(observer.sleep(20 * LEASE_MS));
    faults.push(...(await check(world, pawl)));
  }
  for (const life of world.lives) await life.end();
  return { calls, faults };
}

async function check(world: World, pawl: Pawl): Promise<string[]> {
  const judging = judge(pawl);
  await world.until(judging);
  return judging;
}

const WAYS = [
  { when: "before", how: "crash" },
  { when: "after", how: "crash" },
  { when: "before", how: "pause" },
  { when: "after", how: "pause" },
] as const;

/** A file costs some time for each interruption: there, each way begins at another call and takes every sixth. */
const SIZES = [
  { database: "memory", stride: 1, pairs: 100 },
  { database: "SQLite", stride: 6, pairs: 20 },
] as const;

describe.each(SIZES)(
  "reactions whose process stops at any call to the store, on $database",
  ({ database, stride, pairs }) => {
    it("handle each event once when nothing stops them", async () => {
      const { calls, faults } = await interrupted(database, []);
      expect(faults).toEqual([]);
      expect(calls).toBeGreaterThan(40);
    });

    for (const [number, way] of WAYS.entries())
      it(`handle each event once: ${way.how} ${way.when} each call`, async () => {
        const { calls } = await interrupted(database, []);
        const found: string[] = [];
        for (let call = 1 + (number % stride); call <= calls; call += stride)
          for (const fault of (await interrupted(database, [{ call, ...way }])).faults)
            found.push(`${way.how} ${way.when} call ${call}: ${fault}`);
        console.log(
          `sweep of reactions: ${way.how} ${way.when} ${stride === 1 ? "each" : `one in ${stride}`} of ${calls} calls, ${found.length} faults`,
        );
        expect(found).toEqual([]);
      });

    it("handle each event once also when the successor stops as well", async () => {
      const { calls } = await interrupted(database, []);
      const found: string[] = [];
      let seed = 20_260_103;
      const below = (n: number): number => {
        seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fffffff;
        return Math.floor((seed / 0x80000000) * n);
      };
      for (let pair = 0; pair < pairs; pair++) {
        const draw = (): Interruption => ({ call: 1 + below(calls), ...(WAYS[below(4)] ?? WAYS[0]) });
        const pairOf = [draw(), draw()];
        for (const fault of (await interrupted(database, pairOf)).faults)
          found.push(`${JSON.stringify(pairOf)}: ${fault}`);
      }
      console.log(`sweep of reactions: ${pairs} pairs of interruptions, ${found.length} faults`);
      expect(found).toEqual([]);
    });

    it.each(WAYS)("would be caught if an effect were a commit of its own: $how $when", async (way) => {
      const { calls } = await interrupted(database, []);
      let found = 0;
      for (let call = 1; call <= calls && found === 0; call += stride)
        found += (await interrupted(database, [{ call, ...way }], "an effect that is a commit of its own")).faults
          .length;
      expect(found).toBeGreaterThan(0);
    });
  },
);
