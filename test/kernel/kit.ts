/**
 * What the tests of the kernel stand on: a clock that is moved by hand, chance that counts, and a store that does as it
 * is told.
 *
 * `ManualClock` keeps its own time; only `soon` takes a real turn of the event loop. `ScriptedStore` is a memory store to
 * which a test can say, call by call, what goes wrong: an error before the commit, a reply lost after it, a row that
 * another has locked, a clock that was not read. Every batch that reaches it is noted down.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import type {
  Batch,
  DuePage,
  DueQuery,
  FollowPage,
  FollowQuery,
  Found,
  Key,
  ListQuery,
  Receipt,
  Row,
  Store,
  StoredEntry,
} from "../../src/kernel/contract.ts";
import { keyText } from "../../src/kernel/contract.ts";
import { PawlError, type Remedy, type StoreCode, StoreError } from "../../src/kernel/errors.ts";
import { Kernel, type KernelOptions } from "../../src/kernel/kernel.ts";
import type { Chance, Clock, Ports } from "../../src/kernel/ports.ts";
import { MemoryDatabase, type MemoryStore } from "../../src/stores/memory/memory.ts";

/** Lets everything that is under way, and does not wait for time, have its turn. */
export async function drained(): Promise<void> {
  for (let i = 0; i < 10; i++) await turn();
}

export class ManualClock implements Clock {
  #nowMs: number;
  readonly #timers = new Set<{ readonly atMs: number; readonly callback: () => void }>();

  constructor(startMs = 1_000_000) {
    this.#nowMs = startMs;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  /** The same as a wall clock has it: whole milliseconds. */
  readonly wallMs = (): number => Math.floor(this.#nowMs);

  after(ms: number, callback: () => void): () => void {
    const timer = { atMs: this.#nowMs + ms, callback };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  soon(callback: () => void): void {
    setImmediate(callback);
  }

  /** Time passes while code runs, and no timer has its turn. */
  spend(ms: number): void {
    this.#nowMs += ms;
  }

  get timerCount(): number {
    return this.#timers.size;
  }

  /** Time passes, timer by timer, and whatever each sets going has its turn. */
  async advance(ms: number): Promise<void> {
    const endMs = this.#nowMs + ms;
    await drained();
    while (this.#fire(endMs)) await drained();
    this.#nowMs = endMs;
    await drained();
  }

  /** Lets as much time pass as the promise needs. */
  async finish<T>(promise: Promise<T>): Promise<T> {
    let ended = false;
    const note = () => {
      ended = true;
    };
    promise.then(note, note);
    let idle = 0;
    for (let rounds = 0; rounds < 20_000; rounds++) {
      await drained();
      if (ended) return promise;
      if (this.#fire(Number.POSITIVE_INFINITY)) idle = 0;
      else if (++idle > 50) throw new Error("no timer is left, and what is waited for has not ended");
    }
    throw new Error("what is waited for does not end");
  }

  #fire(untilMs: number): boolean {
    let next: { readonly atMs: number; readonly callback: () => void } | undefined;
    for (const timer of this.#timers) if (next === undefined || timer.atMs < next.atMs) next = timer;
    if (next === undefined || next.atMs > untilMs) return false;
    this.#timers.delete(next);
    this.#nowMs = Math.max(this.#nowMs, next.atMs);
    next.callback();
    return true;
  }
}

/** Chance that can be foretold: 0.1, 0.2, … and "uuid-1", "uuid-2", … */
export function countingChance(): Chance {
  let randoms = 0;
  let uuids = 0;
  return {
    random() {
      randoms += 1;
      return (randoms % 10) / 10;
    },
    uuid() {
      uuids += 1;
      return `uuid-${uuids}`;
    },
  };
}

export function storeError(code: StoreCode, remedy: Remedy): StoreError {
  return new StoreError(code, remedy, `a planted ${code}`);
}

type Commit = (batch: Batch) => Promise<Receipt>;
type Settle = () => Promise<{ readonly epoch: number; readonly sequence: number }>;

export class ScriptedStore implements Store {
  readonly inner: MemoryStore;
  readonly lanes: number;
  readonly isRemote: boolean;
  readonly hasOneWriter: boolean;
  readonly #wallMs: () => number;
  /** Every batch that was handed in, in order, also those that failed. */
  readonly batches: Batch[] = [];
  /** What becomes of the next commits, one for each; those after go through. */
  readonly commits: ((batch: Batch, pass: Commit) => Promise<Receipt>)[] = [];
  readonly settles: ((pass: Settle) => ReturnType<Settle>)[] = [];
  readonly reads: (() => Error | undefined)[] = [];
  /** What a batch finds, in place of what is there. */
  found: (found: Found, keys: readonly Key[], batch: Batch) => Found = (found) => found;
  /** Rows are locked one round trip after another, as a server does it. */
  slowRounds = false;
  settleCount = 0;
  sweeps: number[] = [];
  watchers = 0;

  constructor(inner: MemoryStore, wallMs: () => number) {
    this.inner = inner;
    this.#wallMs = wallMs;
    this.lanes = inner.lanes;
    this.isRemote = inner.isRemote;
    this.hasOneWriter = inner.hasOneWriter;
  }

  commit(batch: Batch): Promise<Receipt> {
    this.batches.push(batch);
    const act = this.commits.shift();
    const pass: Commit = (one) => this.pass(one);
    return act === undefined ? pass(batch) : act(batch, pass);
  }

  async pass(batch: Batch): Promise<Receipt> {
    let asked = batch.lock;
    const decide = (found: Found) => {
      const verdict = batch.decide(this.found(found, asked, batch));
      if ("lock" in verdict) asked = verdict.lock;
      return verdict;
    };
    if (!this.slowRounds) return this.inner.commit({ ...batch, decide });
    const found = async (keys: readonly Key[]): Promise<Found> => {
      await turn();
      return { nowMs: this.#wallMs(), fenceFloor: 0, rows: await this.inner.read(keys) };
    };
    let verdict = decide(await found(asked));
    while ("lock" in verdict) verdict = decide(await found(asked));
    const { puts } = verdict;
    await turn();
    return this.inner.commit({ ...batch, lock: [], decide: () => ({ puts }) });
  }

  settle(lane: number): ReturnType<Settle> {
    this.settleCount += 1;
    const act = this.settles.shift();
    const pass: Settle = () => this.inner.settle(lane);
    return act === undefined ? pass() : act(pass);
  }

  async read(keys: readonly Key[]): Promise<readonly (Row | null)[]> {
    const error = this.reads.shift()?.();
    if (error !== undefined) throw error;
    return this.inner.read(keys);
  }

  list(query: ListQuery): Promise<readonly Row[]> {
    return this.inner.list(query);
  }

  entries(key: Key, after: number, limit: number, maxBytes?: number): Promise<readonly StoredEntry[]> {
    return this.inner.entries(key, after, limit, maxBytes);
  }

  async follow(query: FollowQuery): Promise<FollowPage> {
    const error = this.reads.shift()?.();
    if (error !== undefined) throw error;
    return this.inner.follow(query);
  }

  due(query: DueQuery): Promise<DuePage> {
    return this.inner.due(query);
  }

  prune(key: Key, upTo: number, limit: number): Promise<number> {
    return this.inner.prune(key, upTo, limit);
  }

  sweep(limit: number): Promise<number> {
    this.sweeps.push(limit);
    return this.inner.sweep(limit);
  }

  watch(changed: () => void): () => void {
    this.watchers += 1;
    const stop = this.inner.watch(changed);
    return () => {
      this.watchers -= 1;
      stop();
    };
  }

  close(): Promise<void> {
    return this.inner.close();
  }
}

export interface Bench {
  readonly clock: ManualClock;
  readonly database: MemoryDatabase;
  readonly store: ScriptedStore;
  readonly kernel: Kernel;
  readonly ports: Ports;
  /** Another process on the same database. */
  peer(): Kernel;
}

/** A kernel on a scripted store, with time standing still. */
export function bench(
  options: Partial<KernelOptions> & { lanes?: number; trap?: NonNullable<Ports["trap"]> } = {},
): Bench {
  const { lanes = 1, trap, ...more } = options;
  const clock = new ManualClock();
  const database = new MemoryDatabase(clock.wallMs);
  const store = new ScriptedStore(database.connect("test", { lanes }), clock.wallMs);
  const ports: Ports = { clock, chance: countingChance(), trap };
  const kernelOptions = { namespace: "test", patienceMs: 1_000, ...more };
  const peer = () => new Kernel(database.connect("test"), ports, kernelOptions);
  return { clock, database, store, kernel: new Kernel(store, ports, kernelOptions), ports, peer };
}

export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

export function gate(): Gate {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** The code that a promise was refused with; anything but a refusal of Pawl's own is shown as it is. */
export async function codeOf(promise: Promise<unknown>): Promise<unknown> {
  try {
    return { notRefused: await promise };
  } catch (error) {
    return error instanceof PawlError ? error.code : error;
  }
}

/** What nobody handled while this ran; the process would have ended of it. */
export async function unhandledDuring(act: () => Promise<unknown>): Promise<unknown[]> {
  const usual = process.listeners("unhandledRejection");
  const seen: unknown[] = [];
  process.removeAllListeners("unhandledRejection");
  process.on("unhandledRejection", (error) => seen.push(error));
  try {
    await act();
    await drained();
  } finally {
    process.removeAllListeners("unhandledRejection");
    for (const listener of usual) process.on("unhandledRejection", listener);
  }
  return seen;
}

/** A folder of its own for one test file, and how to remove it. */
export function temporaryFolder(): { file(name: string): string; remove(): void } {
  const folder = mkdtempSync(join(tmpdir(), "pawl-test-"));
  return {
    file: (name) => join(folder, name),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

export const textsOf = (keys: readonly Key[]): string[] => keys.map(keyText);
