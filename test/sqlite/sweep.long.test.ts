/**
 * The crash sweep: one workload, interrupted before and after every single call to the store.
 *
 * Goal: wherever a process stops, its successor finishes the work and each effect is there exactly once; what was
 * acknowledged is never missing; fences strictly increase, through takeover, deletion and sweeping (G1, G6, G7, G14).
 * Method: the workload is written as users should write theirs: effects carry ids and are repeated with the same id, steps are
 * committed by the holder of a claim. For every call k to the store it is interrupted in four ways:
 * - a crash before the call, or after its effect and before its reply. The promise never settles, and the next life opens a
 *   copy of the two files, as they are on the disk;
 * - a pause at the same two points. The next life takes over on the same file and finishes, and then the paused one resumes
 *   and assumes that it still holds its claim.
 * Then pairs of crashes, chosen by a seed. The store's clock is an argument, so the test does not wait for leases.
 *
 * Two planted mistakes, effects without ids and a holder without a fence, must be found by the same sweep.
 */

import { copyFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import { claimDue, type Held, wake } from "../../src/kernel/claim/claim.ts";
import type { Store } from "../../src/kernel/contract.ts";
import { address } from "../../src/kernel/contract.ts";
import type { Tx } from "../../src/kernel/decision.ts";
import type { Draft } from "../../src/kernel/draft.ts";
import { FencedError } from "../../src/kernel/errors.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { type Pawl, pawlOn } from "../../src/pawl.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { WrappedStore } from "../../src/testing/wrapped-store.ts";
import { allOf, integrityOf, scratchFolder, slotsIn } from "./kit.ts";

// The processes stop, not the machine; so there is no disk to wait for.
const folder = scratchFolder("in memory");
const LEASE_MS = 1000;
const PATIENCE_MS = 30_000;
const DAY_MS = 86_400_000;

// ------------------------------------------------------------------------------------------------- stopping a process

interface Interruption {
  /** The call to the store, counted from 1; 0 for none. */
  readonly call: number;
  readonly when: "before" | "after";
  readonly how: "crash" | "pause";
}

const NONE: Interruption = { call: 0, when: "before", how: "crash" };

/** A store whose caller is stopped at one of its calls: for good, or until `resume`. */
class StoppingStore extends WrappedStore {
  #interruption: Interruption;
  readonly stopped: Promise<void>;
  resume: () => void = () => {};
  calls = 0;
  #stop: () => void = () => {};
  readonly #resumed: Promise<void>;
  #isStopped = false;

  constructor(store: Store, interruption: Interruption) {
    super(store);
    this.#interruption = interruption;
    this.stopped = new Promise((resolve) => {
      this.#stop = resolve;
    });
    this.#resumed = new Promise((resolve) => {
      this.resume = () => {
        this.#isStopped = false;
        resolve();
      };
    });
  }

  /** Stops at the next call, whichever it is. */
  stopNext(when: Interruption["when"]): void {
    this.#interruption = { call: this.calls + 1, when, how: "pause" };
  }

  protected override async call<T>(_name: string, act: () => Promise<T>): Promise<T> {
    this.calls += 1;
    const isIt = this.calls === this.#interruption.call;
    if (isIt && this.#interruption.when === "before") this.#halt();
    if (this.#isStopped) await this.#resumed;
    const answer = await act();
    if (isIt && this.#interruption.when === "after") this.#halt();
    if (this.#isStopped) await this.#resumed;
    return answer;
  }

  #halt(): void {
    this.#isStopped = true;
    this.#stop();
  }

  override watch(changed: () => void): () => void {
    return super.watch(() => {
      if (!this.#isStopped) changed();
    });
  }
  override close(): Promise<void> {
    return this.call("close", () => super.close());
  }
}

// ------------------------------------------------------------------------------------------------- the outside world

/** What is known outside of all lives: the time, what was acknowledged, and the fences that were given out. */
class World {
  wallMs = Date.UTC(2026, 0, 1);
  lives = 0;
  readonly acknowledged = new Map<string, string>();
  readonly fences = new Map<string, { life: number; fence: number }[]>();
  readonly faults: string[] = [];

  acknowledge(id: string, result: unknown): void {
    const text = JSON.stringify(result);
    const before = this.acknowledged.get(id);
    if (before !== undefined && before !== text) this.faults.push(`${id} was answered ${before}, and then ${text}`);
    this.acknowledged.set(id, text);
  }

  granted(life: number, job: string, fence: number): void {
    const fences = this.fences.get(job) ?? [];
    this.fences.set(job, fences);
    fences.push({ life, fence });
  }

  /** Each fence was given out once, and to each life in rising order. Without pauses, all of them rise. */
  checkFences(how: Interruption["how"]): void {
    for (const [job, grants] of this.fences) {
      if (new Set(grants.map(({ fence }) => fence)).size !== grants.length)
        this.faults.push(`${job}: a fence was given twice`);
      for (const [index, grant] of grants.entries()) {
        const before = grants.slice(0, index).filter(({ life }) => how === "crash" || life === grant.life);
        if (before.some(({ fence }) => fence >= grant.fence))
          this.faults.push(`${job}: the fence ${grant.fence} does not rise`);
      }
    }
  }
}

type Planted = "nothing" | "effects without ids" | "a holder without a fence";

/** One life of the process that does the work. */
interface Life {
  readonly world: World;
  readonly number: number;
  readonly store: StoppingStore;
  readonly pawl: Pawl;
  readonly planted: Planted;
}

async function beginLife(
  world: World,
  path: string,
  interruption: Interruption = NONE,
  planted: Planted = "nothing",
  // Who is stopped in the sweep does not lose patience over it: that has a test of its own.
  localMs = (): number => 0,
): Promise<Life> {
  let drawn = 0;
  const ports: Ports = {
    clock: {
      nowMs: localMs,
      after: (_ms, callback) => {
        const timer = setTimeout(callback, 1);
        return () => clearTimeout(timer);
      },
      soon: (callback) => void setImmediate(callback),
    },
    chance: { random: () => 0.5, uuid: () => `uuid-${drawn++}` },
  };
  const inner = await openSqlite({
    path,
    namespace: "default",
    ports,
    wallMs: () => world.wallMs,
    durability: "process",
    patienceMs: PATIENCE_MS,
  });
  opened.push(inner);
  const store = new StoppingStore(inner, interruption);
  world.lives += 1;
  return {
    world,
    number: world.lives,
    store,
    pawl: pawlOn(store, ports, { namespace: "default", patienceMs: PATIENCE_MS }),
    planted,
  };
}

const opened: Store[] = [];

// ------------------------------------------------------------------------------------------------- the workload

/** An effect under an id: the mark and the effect are one commit, and a repetition answers what the first one did. */
async function once<T>({ world, pawl, planted }: Life, id: string, effect: (tx: Tx) => T): Promise<void> {
  const mark = address("mark", id);
  const result = await pawl.kernel.transact(
    (tx) => {
      const record = tx.record(mark);
      if (record.exists && planted !== "effects without ids") return record.value;
      const made = effect(tx);
      record.write({ value: made });
      return made;
    },
    [mark],
  );
  world.acknowledge(id, result);
}

const STEPS = 3;

async function workload(life: Life): Promise<void> {
  const { pawl, world, store } = life;
  const greeting = pawl.slot<string>("greeting");
  const balance = pawl.slot<number>("balance", { initial: 0 });
  const savings = pawl.slot<number>("savings", { initial: 0 });
  await Promise.all([
    once(life, "greet", (tx) => greeting.within(tx).set("hello").version),
    once(life, "deposit", (tx) => balance.within(tx).update((n) => n + 100).value),
  ]);
  await once(life, "save", (tx) => [
    balance.within(tx).update((n) => n - 30).value,
    savings.within(tx).update((n) => n + 30).value,
  ]);
  await once(life, "ungreet", (tx) => greeting.within(tx).delete().deleted);
  await once(life, "greet again", (tx) => greeting.within(tx).set("again", { expectedVersion: 0 }).version);
  await once(life, "note", (tx) => {
    const record = tx.record(address("trail", "notes"));
    if (!record.exists) record.write({ value: null });
    return record.append("noted", "once");
  });
  await pawl.slots.list({ limit: 10 });
  await pawl.kernel.entries(address("trail", "notes"), 0, 10);

  await once(life, "make jobs", (tx) => {
    for (const name of ["a", "b"]) makeJob(tx, name, "first");
    return null;
  });
  await workOff(life, ["a", "b"]);

  // A name that is deleted, swept up and made again still gets a higher fence.
  await once(life, "remove b", (tx) => {
    tx.record(job("b")).remove();
    return null;
  });
  world.wallMs += 8 * DAY_MS;
  await store.sweep(10);
  await once(life, "make b again", (tx) => {
    makeJob(tx, "b", "second");
    return null;
  });
  await workOff(life, ["b"]);
  await pawl.close();
}

const job = (name: string) => address("job", name);

function makeJob(tx: Tx, name: string, turn: string): void {
  const value: Progress = { turn, step: 0, rested: false };
  tx.record(job(name)).write({ value, kind: "work", status: "pending", dueMs: tx.nowMs });
}

interface Progress {
  /** Tells the jobs apart that had the same name. */
  readonly turn: string;
  readonly step: number;
  readonly rested: boolean;
}

function progressOf(record: Draft): Progress {
  const { value } = record;
  if (typeof value !== "object" || value === null || !("turn" in value && "step" in value && "rested" in value))
    throw new Error("a job without progress");
  return { turn: String(value.turn), step: Number(value.step), rested: value.rested === true };
}

/** Claims and works until the jobs are completed; the clock moves on when nothing is due. */
async function workOff(life: Life, names: readonly string[]): Promise<void> {
  const { pawl, world } = life;
  for (;;) {
    const rows = await pawl.kernel.read(names.map(job));
    // Whoever was paused may find that its successor has already made and completed what comes later.
    if (rows.every((row) => row === null || row.value === null || row.status === "completed")) return;
    const by = `life ${life.number}`;
    const { held, nextInMs } = await claimDue(pawl.kernel, { kinds: ["work"], by, leaseMs: LEASE_MS, limit: 10 });
    if (held.length === 0) world.wallMs += nextInMs ?? LEASE_MS;
    for (const one of held) {
      world.granted(life.number, one.at.key, one.fence);
      try {
        await workOn(life, one);
      } catch (error) {
        if (!(error instanceof FencedError)) throw error;
        one.abandon();
      }
    }
  }
}

/** Three steps, a rest before the second, a wake-up while it is held, and the end. */
async function workOn(life: Life, held: Held): Promise<void> {
  const { pawl, world } = life;
  const name = held.at.key;
  const { turn, step: first, rested } = await held.look(progressOf);
  const effect = (tx: Tx, what: string) =>
    pawl
      .slot<number>(`effect ${name} ${turn} ${what}`, { initial: 0 })
      .within(tx)
      .update((n) => n + 1);
  for (let step = first; step < STEPS; step++) {
    if (step === 1 && !rested) {
      const answer = await held.rest(
        (tx) => tx.nowMs + 500,
        (record) => record.write({ value: { turn, step, rested: true } }),
      );
      if (answer === "rested") return;
      throw new Error("nobody woke it yet");
    }
    if (step === 2) await held.renew(LEASE_MS);
    // The step is written blindly, as only the holder may: that it happens once is the fence's doing.
    const commit = (record: Draft, tx: Tx): void => {
      record.append("step", { step, fence: held.fence });
      record.write({ value: { turn, step: step + 1, rested: true } });
      effect(tx, `step ${step}`);
    };
    if (life.planted === "a holder without a fence")
      await pawl.kernel.transact((tx) => commit(tx.record(held.at), tx), [held.at]);
    else await held.commit(commit);
    world.acknowledge(`${name} ${turn} step ${step}`, null);
  }
  await once(life, `wake ${name} ${turn}`, (tx) => wake(tx, held.at));
  for (;;) {
    const answer = await held.rest(
      () => null,
      (record, tx) => {
        record.append("completed", { fence: held.fence });
        record.write({ status: "completed" });
        effect(tx, "completed");
      },
    );
    if (answer === "rested") break;
    await held.look(() => {});
  }
  world.acknowledge(`${name} ${turn} completed`, null);
}

// ------------------------------------------------------------------------------------------------- the checks

/** What was acknowledged stands in the file, though nothing was finished yet. */
function checkAcknowledged(path: string, world: World): void {
  const db = new DatabaseSync(path);
  const slots = slotsIn(db);
  const marks = new Map(
    allOf(db, "select key, value from pawl_now where space = 'mark'").map((row) => [String(row["key"]), row["value"]]),
  );
  for (const [id, result] of world.acknowledged) {
    const isStep = /^[ab] (first|second) /.test(id);
    const has = isStep ? slots.get(`effect ${id}`) === 1 : marks.get(id) === result;
    if (!has) world.faults.push(`after a crash: ${id} was acknowledged and is missing`);
  }
  db.close();
}

/** Everything there is at the end, except what depends on who did it and when. */
function finalState(path: string): { slots: unknown; marks: unknown; logs: unknown; jobs: unknown } {
  const db = new DatabaseSync(path);
  const slots = allOf(db, "select key, value, version from pawl_now where space = 'slot' order by key");
  const marks = allOf(db, "select key, value from pawl_now where space = 'mark' order by key");
  const logs = allOf(
    db,
    "select space, key, version, name, data ->> '$.step' as step from pawl_past order by space, key, version",
  );
  const jobs = allOf(
    db,
    "select key, value, status, holder, due_utc, tries from pawl_now where space = 'job' order by key",
  );
  db.close();
  return { slots, marks, logs, jobs };
}

function checkFinal(path: string, world: World, expected: unknown): void {
  const [is, should] = [finalState(path), expected].map((state) => JSON.stringify(state));
  if (is !== should) world.faults.push(`it ended as ${is} instead of ${should}`);
  const integrity = integrityOf(path);
  if (integrity !== "ok") world.faults.push(`the file is damaged: ${integrity}`);
  const db = new DatabaseSync(path);
  const fences = allOf(
    db,
    "select key, data ->> '$.fence' as fence from pawl_past where space = 'job' order by position",
  );
  db.close();
  const highest = new Map<unknown, number>();
  for (const { key, fence } of fences) {
    if (Number(fence) < (highest.get(key) ?? 0)) world.faults.push(`${key}: fence ${fence} wrote after a higher one`);
    highest.set(key, Number(fence));
  }
}

// ------------------------------------------------------------------------------------------------- the sweep

let files = 0;
function newFile(copyOf?: string): string {
  const path = join(folder, `${files++}.db`);
  if (copyOf !== undefined)
    for (const end of ["", "-wal"]) if (existsSync(`${copyOf}${end}`)) copyFileSync(`${copyOf}${end}`, `${path}${end}`);
  return path;
}

/** Runs the workload through the interruptions, one life each, and a last life that finishes. Answers what went wrong. */
async function interrupted(
  interruptions: readonly Interruption[],
  planted: Planted,
  expected: unknown,
): Promise<string[]> {
  const world = new World();
  let path = newFile();
  const paused: { life: Life; work: Promise<void> }[] = [];
  for (const interruption of interruptions) {
    const life = await beginLife(world, path, interruption, planted);
    const work = workload(life);
    await Promise.race([work, life.store.stopped]);
    if (interruption.how === "pause") paused.push({ life, work });
    // Beside a paused process the file stays where it is: the shared memory outlives whoever crashed.
    else if (paused.length === 0) path = newFile(path);
    if (planted === "nothing") checkAcknowledged(path, world);
  }
  await workload(await beginLife(world, path, NONE, planted));
  checkFinal(path, world, expected);
  for (const { life, work } of paused) {
    life.store.resume();
    await work;
    checkFinal(path, world, expected);
  }
  world.checkFences(paused.length > 0 ? "pause" : "crash");
  while (opened.length > 0) await opened.pop()?.close();
  return world.faults;
}

async function undisturbed(): Promise<{ calls: number; state: ReturnType<typeof finalState> }> {
  const path = newFile();
  const life = await beginLife(new World(), path);
  await workload(life);
  expect(life.world.faults).toEqual([]);
  return { calls: life.store.calls, state: finalState(path) };
}

const WAYS = [
  { when: "before", how: "crash" },
  { when: "after", how: "crash" },
  { when: "before", how: "pause" },
  { when: "after", how: "pause" },
] as const;

describe("a process that stops at any call to the store", () => {
  it("does what the workload says when nothing stops it", async () => {
    const { state } = await undisturbed();
    const effects = ["completed", ...Array.from({ length: STEPS }, (_, step) => `step ${step}`)];
    expect(state.slots).toEqual([
      { key: "balance", value: "70", version: 2 },
      ...["a first", "b first", "b second"].flatMap((turn) =>
        effects.map((what) => ({ key: `effect ${turn} ${what}`, value: "1", version: 1 })),
      ),
      { key: "greeting", value: '"again"', version: 3 },
      { key: "savings", value: "30", version: 1 },
    ]);
    expect(state.jobs).toMatchObject(["a", "b"].map((key) => ({ key, status: "completed", holder: null, tries: 0 })));
  });

  it("leaves work that its successor finishes, each effect exactly once", async () => {
    const { calls, state } = await undisturbed();
    const faults: string[] = [];
    let points = 0;
    for (const way of WAYS)
      for (let call = 1; call <= calls; call++) {
        for (const fault of await interrupted([{ call, ...way }], "nothing", state))
          faults.push(`${way.how} ${way.when} call ${call}: ${fault}`);
        points += 1;
      }
    console.log(
      `sweep: ${points} points (before and after each of ${calls} calls, crash and pause), ${faults.length} faults`,
    );
    expect(faults).toEqual([]);
    expect(calls).toBeGreaterThan(50);
  });

  it("leaves work that is finished also when the successor stops as well", async () => {
    const { calls, state } = await undisturbed();
    const faults: string[] = [];
    const PAIRS = 100;
    let seed = 20_260_101;
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
    console.log(`sweep: ${PAIRS} pairs of interruptions, ${faults.length} faults`);
    expect(faults).toEqual([]);
  });

  for (const when of ["before", "after"] as const)
    it(`and resumes after its lease and its patience, stopped ${when} the call, gets a fenced error`, async () => {
      const world = new World();
      const path = newFile();
      const first = await beginLife(world, path, NONE, "nothing", () => world.wallMs);
      const second = await beginLife(world, path);
      const claim = { kinds: ["work"], leaseMs: LEASE_MS, limit: 1 };
      await once(first, "make a job", (tx) => makeJob(tx, "a", "only") ?? null);
      const [stale] = (await claimDue(first.pawl.kernel, { ...claim, by: "first" })).held;
      await stale?.commit((record) => record.append("step", "before the pause"));
      // Its reply being lost in the pause, the commit is there; the next one is what must be refused.
      first.store.stopNext(when);
      const committing = stale?.commit((record) => record.append("step", when));
      await first.store.stopped;
      world.wallMs += LEASE_MS + PATIENCE_MS;
      const [fresh] = (await claimDue(second.pawl.kernel, { ...claim, by: "second" })).held;
      await fresh?.commit((record) => record.append("step", "by the successor"));
      first.store.resume();
      if (when === "before") await expect(committing).rejects.toMatchObject({ code: "fenced" });
      else await committing;
      await expect(stale?.commit((record) => record.append("step", "stale"))).rejects.toMatchObject({ code: "fenced" });
      const entries = await second.pawl.kernel.entries(job("a"), 0, 10);
      expect(entries.map(({ data }) => JSON.parse(data))).toEqual([
        "before the pause",
        ...(when === "after" ? ["after"] : []),
        "by the successor",
      ]);
      while (opened.length > 0) await opened.pop()?.close();
    });

  for (const planted of ["effects without ids", "a holder without a fence"] as const)
    it(`would be caught if it worked with ${planted}`, async () => {
      const { calls, state } = await undisturbed();
      let found = 0;
      for (let call = 1; call <= calls && found === 0; call++)
        for (const way of WAYS) found += (await interrupted([{ call, ...way }], planted, state)).length;
      expect(found).toBeGreaterThan(0);
    });
});
