/**
 * The crash sweep of workflows: one run with all three kinds of step, interrupted before and after every single call to the store.
 *
 * Goal: wherever a process stops, its successor finishes the run with the same outcome; a step that was recorded never runs again, `step`
 * runs again only where its record was lost, `step.tx` and `step.atMostOnce` never (G1, G6, G14).
 * Method: a run on a SQLite file, with an external record of what was done and by whom. For every call k to the store, statements
 * inside a shared transaction included, the process is interrupted in four ways:
 * - a crash before the call, or after its effect and before its reply. Nothing of that process runs any more, and the next one opens
 *   a copy of the files as they are on the disk;
 * - a pause at the same two points. The next process takes over on the same file and finishes, and then the paused one resumes
 *   and acts as if it still held its lease.
 * Then pairs of crashes, chosen by a seed. The test moves the time, when nothing else happens.
 *
 * Planted mistakes, each in the workflow or in the external system, must be found by the same sweep.
 */

import { copyFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import { type Context, type Pawl, type Run, RunParkedError, type Sql, workflow } from "../../src/index.ts";
import type {
  Batch,
  DueQuery,
  Executor,
  FollowQuery,
  Joining,
  Key,
  ListQuery,
  SharedWork,
  SqlStore,
} from "../../src/kernel/contract.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { allOf, integrityOf, scratchFolder } from "../sqlite/kit.ts";

// The processes stop, not the machine; so there is no disk to wait for.
const folder = scratchFolder("in memory");
const LEASE_MS = 10_000;
const PATIENCE_MS = 30_000;

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

/** What all processes share: the time, and a record of what was done. */
class World {
  ms = 0;
  timers: Timer[] = [];
  readonly lives: Life[] = [];
  readonly faults: string[] = [];
  /** How often each step's function was called, and by which processes. */
  readonly begun = new Map<string, number[]>();
  /** How often the external system says that it was done. */
  readonly done = new Map<string, number>();
  readonly noes = new Map<string, number>();

  begin(step: string, life: Life): void {
    this.begun.set(step, [...(this.begun.get(step) ?? []), life.number]);
    if (life.recorded.has(step)) this.faults.push(`${step} was recorded, and was begun again by life ${life.number}`);
  }

  do(step: string): string {
    this.done.set(step, (this.done.get(step) ?? 0) + 1);
    return `${step} done`;
  }

  answer(step: string): { readonly done: true; readonly value: string } | { readonly done: false } {
    if (this.done.has(step)) return { done: true, value: `${step} done` };
    this.noes.set(step, (this.noes.get(step) ?? 0) + 1);
    return { done: false };
  }

  /** Lets everything run until one of these is over; the time moves when nothing else happens. */
  async until(over: Promise<unknown>): Promise<void> {
    let isOver = false;
    const end = (): void => {
      isOver = true;
    };
    over.then(end, end);
    for (let turns = 0; !isOver; turns++) {
      // Several turns, because a module that is imported takes more than one.
      for (let i = 0; i < 3 && !isOver; i++) await new Promise((resolve) => setImmediate(resolve));
      if (isOver || this.lives.some((life) => life.isBusy)) continue;
      if (turns > 20_000) throw new Error("it does not end");
      const due = this.timers.filter(({ life }) => life.isAwake).toSorted((a, b) => a.atMs - b.atMs)[0];
      if (due === undefined) continue;
      this.timers.splice(this.timers.indexOf(due), 1);
      this.ms = Math.max(this.ms, due.atMs);
      due.go();
    }
  }
}

/** One process that does the work. */
class Life {
  readonly world: World;
  readonly number: number;
  readonly ports: Ports;
  /** Steps that were recorded when it began. */
  readonly recorded: ReadonlySet<string>;
  readonly stopped = Promise.withResolvers<void>();
  readonly #resumed = Promise.withResolvers<void>();
  readonly #interruption: Interruption;
  store: SqlStore | undefined;
  #state: "awake" | "paused" | "dead" = "awake";
  #soon: (() => void)[] = [];
  calls = 0;

  constructor(world: World, interruption: Interruption, recorded: ReadonlySet<string>) {
    this.world = world;
    this.recorded = recorded;
    this.#interruption = interruption;
    world.lives.push(this);
    this.number = world.lives.length;
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
      chance: { random: () => 0.5, uuid: () => `${this.number}-${drawn++}` },
    };
  }

  get isAwake(): boolean {
    return this.#state === "awake";
  }

  /** Something has not run yet. */
  get isBusy(): boolean {
    return this.isAwake && this.#soon.length > 0;
  }

  #next(): void {
    if (this.isAwake) this.#soon.shift()?.();
  }

  /** A paused process resumes. */
  resume(): void {
    this.#state = "awake";
    for (const _ of this.#soon) setImmediate(() => this.#next());
    this.#resumed.resolve();
  }

  async call<T>(act: () => Promise<T>): Promise<T> {
    this.calls += 1;
    const isIt = this.calls === this.#interruption.call;
    if (isIt && this.#interruption.when === "before") this.#stop();
    if (!this.isAwake) await this.#rest();
    const answer = await act();
    if (isIt && this.#interruption.when === "after") this.#stop();
    if (this.#isLate && !this.#isInTransaction) this.#stop();
    if (!this.isAwake) await this.#rest();
    return answer;
  }

  /** A process that is paused in a transaction holds the file's one write lock, and no other can take over: it pauses when that has ended. */
  async transaction<T>(act: () => Promise<T>): Promise<T> {
    this.#isInTransaction = true;
    try {
      return await act();
    } finally {
      this.#isInTransaction = false;
    }
  }

  #isInTransaction = false;
  #isLate = false;

  /** A step's function continues only if its process does. */
  async alive(): Promise<void> {
    if (!this.isAwake) await this.#rest();
  }

  #rest(): Promise<unknown> {
    return this.#state === "dead" ? new Promise(() => {}) : this.#resumed.promise;
  }

  #stop(): void {
    this.#isLate = this.#isInTransaction && this.#interruption.how === "pause";
    if (this.#isLate) return;
    this.#state = this.#interruption.how === "crash" ? "dead" : "paused";
    this.stopped.resolve();
  }
}

/** A store whose caller is stopped at one of its calls: for good, or until it is resumed. */
class StoppingStore implements SqlStore {
  readonly lanes: number;
  readonly isRemote: boolean;
  readonly hasOneWriter: boolean;
  readonly maxShared: number;
  readonly #store: SqlStore;
  readonly #life: Life;

  constructor(store: SqlStore, life: Life) {
    this.#store = store;
    this.#life = life;
    this.lanes = store.lanes;
    this.isRemote = store.isRemote;
    this.hasOneWriter = store.hasOneWriter;
    this.maxShared = store.maxShared;
  }

  settle(lane: number): ReturnType<SqlStore["settle"]> {
    return this.#life.call(() => this.#store.settle(lane));
  }
  commit(batch: Batch): ReturnType<SqlStore["commit"]> {
    return this.#life.call(() => this.#store.commit(batch));
  }
  read(keys: readonly Key[]): ReturnType<SqlStore["read"]> {
    return this.#life.call(() => this.#store.read(keys));
  }
  list(query: ListQuery): ReturnType<SqlStore["list"]> {
    return this.#life.call(() => this.#store.list(query));
  }
  entries(key: Key, after: number, limit: number): ReturnType<SqlStore["entries"]> {
    return this.#life.call(() => this.#store.entries(key, after, limit));
  }
  follow(query: FollowQuery): ReturnType<SqlStore["follow"]> {
    return this.#life.call(() => this.#store.follow(query));
  }
  due(query: DueQuery): ReturnType<SqlStore["due"]> {
    return this.#life.call(() => this.#store.due(query));
  }
  prune(key: Key, upTo: number, limit: number): Promise<number> {
    return this.#life.call(() => this.#store.prune(key, upTo, limit));
  }

  sweep(limit: number): Promise<number> {
    return this.#life.call(() => this.#store.sweep(limit));
  }
  join(executor: Executor, batch: Joining): ReturnType<SqlStore["join"]> {
    return this.#store.join(executor, batch);
  }
  share<T>(mark: Pick<Batch, "lane" | "epoch" | "sequence">, work: SharedWork<T>): Promise<T> {
    const life = this.#life;
    return life.call(() =>
      life.transaction(() =>
        this.#store.share(mark, (sql, executor, db) => {
          const mine: Sql = { query: (text, values) => life.call(() => sql.query(text, values)) };
          return work(mine, (text, value) => life.call(() => executor(text, value)), db);
        }),
      ),
    );
  }
  /** Processes that do not notify each other poll. */
  watch(): () => void {
    return () => {};
  }
  close(): Promise<void> {
    return this.#store.close();
  }
}

const opened: SqlStore[] = [];

// ------------------------------------------------------------------------------------------------- the run

type Planted = "nothing" | "a plain step for one that runs at most once" | "a plain step for a transaction";

const PLAIN = ["reserve", "pack", "label", "notify"];
const ONCE = ["charge", "ship", "last"];
const TX = ["order", "receipt"];

function fulfil(life: Life, pawl: Pawl, planted: Planted) {
  const { world } = life;
  const act = async (step: string): Promise<string> => {
    world.begin(step, life);
    const done = world.do(step);
    await life.alive();
    return done;
  };
  return workflow("fulfil", async (ctx: Context) => {
    const insert = (step: string) => {
      const add = async (sql: Sql): Promise<string> => {
        await sql.query("insert into effects (step) values (?)", [step]);
        return `${step} inserted`;
      };
      if (planted === "a plain step for a transaction") return ctx.step(step, () => pawl.transact.sql(add));
      return ctx.step.tx(step, add);
    };
    const insertAtOnce = (step: string) => {
      if (planted === "a plain step for a transaction") return insert(step);
      return ctx.step.tx.sync(step, (db) => {
        db.prepare("insert into effects (step) values (?)").run(step);
        return `${step} inserted`;
      });
    };
    const once = (step: string, asks: boolean) => {
      if (planted === "a plain step for one that runs at most once") return ctx.step(step, () => act(step));
      return ctx.step.atMostOnce(step, () => act(step), asks ? { reconcile: () => world.answer(step) } : {});
    };
    const said: unknown[] = [];
    said.push(await ctx.step("reserve", () => act("reserve")));
    said.push(await insert("order"));
    said.push(await once("charge", true));
    said.push(...(await Promise.all([ctx.step("pack", () => act("pack")), ctx.step("label", () => act("label"))])));
    await ctx.sleep("1 minute");
    said.push(await once("ship", false));
    said.push((await ctx.slot<number>("orders", { scope: "global", initial: 0 }).update((n) => n + 1)).value);
    said.push(await insertAtOnce("receipt"));
    said.push(await ctx.step("notify", () => act("notify")));
    said.push(await once("last", true));
    return said;
  });
}

/** What a process does: it works, starts the run unless it exists, and acts as the operator where one is needed. */
async function live(life: Life, path: string, planted: Planted): Promise<unknown> {
  const store = await openSqlite({
    path,
    namespace: "default",
    ports: life.ports,
    wallMs: () => Date.UTC(2026, 0, 1) + life.world.ms,
    durability: "process",
    patienceMs: PATIENCE_MS,
  });
  opened.push(store);
  life.store = store;
  const pawl = pawlOn(new StoppingStore(store, life), life.ports, { namespace: "default", patienceMs: PATIENCE_MS });
  const work = fulfil(life, pawl, planted);
  pawl.work([work], { lease: LEASE_MS });
  const run = await pawl.start(work, undefined, { id: "one" });
  for (;;) {
    try {
      return await run.result();
    } catch (error) {
      if (!(error instanceof RunParkedError)) throw error;
      await help(life, run, error.data.reason);
    }
  }
}

async function help({ world }: Life, run: Run, reason: string): Promise<void> {
  const [, step] = /^step "(.*)" may or may not have happened/.exec(reason) ?? [];
  if (step === undefined) world.faults.push(`it was parked: ${reason}`);
  else await run.resolveStep(step, world.answer(step));
}

// ------------------------------------------------------------------------------------------------- the checks

const stepsIn = (path: string): Set<string> => {
  const db = new DatabaseSync(path);
  const rows = allOf(db, "select name from pawl_past where space = 'run' and key = 'one' and name like 'step %'");
  db.close();
  return new Set(rows.map(({ name }) => String(name).slice("step ".length)));
};

/** The final state, apart from who did it and when. */
function finalState(path: string): string {
  const db = new DatabaseSync(path);
  const effects = allOf(db, "select step from effects order by step").map(({ step }) => step);
  const [slot] = allOf(db, "select value from pawl_now where space = 'slot' and key = 'orders'");
  const [run] = allOf(db, "select status, holder, due_utc, value from pawl_now where space = 'run' and key = 'one'");
  const names = allOf(db, "select name, version from pawl_past where space = 'run' and key = 'one' order by version");
  db.close();
  const { outcome } = JSON.parse(String(run?.["value"])) as { outcome: unknown };
  const steps = names.map(({ name }) => String(name)).filter((name) => name.startsWith("step "));
  const isGapless = names.every(({ version }, index) => version === index + 1);
  return JSON.stringify({
    effects,
    slot: slot?.["value"],
    status: run?.["status"],
    holder: run?.["holder"],
    due: run?.["due_utc"],
    outcome,
    steps: steps.toSorted(),
    isGapless,
  });
}

function checkEnd(path: string, world: World, expected: string, lost: number): void {
  const state = finalState(path);
  if (state !== expected) world.faults.push(`it ended as ${state} instead of ${expected}`);
  const integrity = integrityOf(path);
  if (integrity !== "ok") world.faults.push(`the file is damaged: ${integrity}`);
  for (const step of ONCE) {
    const times = world.begun.get(step)?.length ?? 0;
    const noes = world.noes.get(step) ?? 0;
    if (times > Math.max(1, noes + 1) || (world.done.get(step) ?? 0) !== times)
      world.faults.push(`${step} was begun ${times} times, after ${noes} noes`);
    // Where no process is paused, the external system is right about what happened.
    if (lost >= 0 && times !== 1) world.faults.push(`${step} was begun ${times} times`);
  }
  // Each interruption can lose what was under way, which is two steps at most.
  const again = PLAIN.reduce((sum, step) => sum + (world.begun.get(step)?.length ?? 0) - 1, 0);
  if (lost >= 0 && again > 2 * lost) world.faults.push(`${again} steps ran again after ${lost} interruptions`);
}

// ------------------------------------------------------------------------------------------------- the sweep

let files = 0;
function newFile(copyOf?: string): string {
  const path = join(folder, `${files++}.db`);
  if (copyOf === undefined) {
    const db = new DatabaseSync(path);
    db.exec("create table effects (step text)");
    db.close();
  } else
    for (const end of ["", "-wal"]) if (existsSync(`${copyOf}${end}`)) copyFileSync(`${copyOf}${end}`, `${path}${end}`);
  return path;
}

/** Runs it through the interruptions, one process each, and a last process that finishes. Returns what went wrong. */
async function interrupted(
  interruptions: readonly Interruption[],
  planted: Planted,
  expected: string,
): Promise<string[]> {
  const world = new World();
  let path = newFile();
  let recorded = new Set<string>();
  const paused: { life: Life; work: Promise<unknown> }[] = [];
  for (const interruption of interruptions) {
    const life = new Life(world, interruption, recorded);
    const work = live(life, path, planted);
    work.catch(() => {});
    await world.until(Promise.race([work, life.stopped.promise]));
    if (interruption.how === "pause") paused.push({ life, work });
    // Beside a paused process the file stays where it is: the shared memory outlives a process that crashed.
    else if (paused.length === 0) path = newFile(path);
    // The system closes what a dead process had open.
    if (interruption.how === "crash") await life.store?.close().catch(() => {});
    recorded = stepsIn(path);
  }
  const last = live(new Life(world, NONE, recorded), path, planted);
  last.catch((error: unknown) => world.faults.push(`the last life ended with ${error}`));
  await world.until(last);
  const lost = paused.length > 0 ? -1 : interruptions.length;
  checkEnd(path, world, expected, lost);
  for (const { life, work } of paused) {
    life.resume();
    await world.until(work);
    checkEnd(path, world, expected, lost);
  }
  while (opened.length > 0) await opened.pop()?.close();
  return world.faults;
}

async function undisturbed(): Promise<{ calls: number; state: string }> {
  const world = new World();
  const path = newFile();
  const life = new Life(world, NONE, new Set());
  const work = live(life, path, "nothing");
  await world.until(work);
  await work;
  const { calls } = life;
  while (opened.length > 0) await opened.pop()?.close();
  return { calls, state: finalState(path) };
}

const WAYS = [
  { when: "before", how: "crash" },
  { when: "after", how: "crash" },
  { when: "before", how: "pause" },
  { when: "after", how: "pause" },
] as const;

describe("a run whose process stops at any call to the store", () => {
  it("does each step once when nothing stops it", async () => {
    const { state } = await undisturbed();
    const steps = [...PLAIN, ...ONCE, ...TX].map((step) => `step ${step}`).toSorted();
    expect(JSON.parse(state)).toMatchObject({
      effects: TX.toSorted(),
      slot: "1",
      status: "completed",
      steps,
      isGapless: true,
    });
  });

  for (const way of WAYS)
    it(`comes to the same end: ${way.how} ${way.when} each call`, async () => {
      const { calls, state } = await undisturbed();
      const faults: string[] = [];
      for (let call = 1; call <= calls; call++)
        for (const fault of await interrupted([{ call, ...way }], "nothing", state))
          faults.push(`${way.how} ${way.when} call ${call}: ${fault}`);
      console.log(`sweep of a run: ${way.how} ${way.when} each of ${calls} calls, ${faults.length} faults`);
      expect(faults).toEqual([]);
      expect(calls).toBeGreaterThan(30);
    });

  it("comes to the same end also when the successor stops as well", async () => {
    const { calls, state } = await undisturbed();
    const faults: string[] = [];
    const PAIRS = 150;
    let seed = 20_260_102;
    const below = (n: number): number => {
      seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fffffff;
      return Math.floor((seed / 0x80000000) * n);
    };
    for (let pair = 0; pair < PAIRS; pair++) {
      const draw = (): Interruption => ({ call: 1 + below(calls), ...(WAYS[below(4)] ?? WAYS[0]) });
      const pairOf = [draw(), draw()];
      for (const fault of await interrupted(pairOf, "nothing", state))
        faults.push(`${JSON.stringify(pairOf)}: ${fault}`);
    }
    console.log(`sweep of a run: ${PAIRS} pairs of interruptions, ${faults.length} faults`);
    expect(faults).toEqual([]);
  });

  for (const planted of ["a plain step for one that runs at most once", "a plain step for a transaction"] as const)
    it(`would be caught if it had ${planted}`, async () => {
      const { calls, state } = await undisturbed();
      let found = 0;
      for (let call = 1; call <= calls && found === 0; call++)
        for (const way of WAYS.slice(0, 2)) found += (await interrupted([{ call, ...way }], planted, state)).length;
      expect(found).toBeGreaterThan(0);
    });
});
