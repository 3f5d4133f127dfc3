/**
 * What the tests of locks share: processes on one store with one clock, which is moved by hand, and a checker of what every commit wrote.
 *
 * A process can be paused, as by the operating system: none of its timers fires and it receives nothing, until it is resumed
 * and gets everything together. And it can die: then no call passes between it and its store any more, but its leases last.
 */

import { expect } from "vitest";
import { type Hold, type Lock, type LockParty, type LockPlace, type Pawl, PawlError } from "../../src/index.ts";
import type { Batch, Put, Row, Store } from "../../src/kernel/contract.ts";
import type { Clock } from "../../src/kernel/ports.ts";
import type { LockKind, LockValue } from "../../src/lock/stored.ts";
import { lockAt, lockOf } from "../../src/lock/stored.ts";
import { nodePorts } from "../../src/node/ports.ts";
import { trapAmbient } from "../../src/node/trap.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { ENDED } from "../../src/workflow/stored.ts";
import { drained, ManualClock } from "../kernel/kit.ts";

export const OPERATOR = { by: "ann", reason: "it was stuck" } as const;

export interface Peer {
  readonly pawl: Pawl;
  /** What it reads and writes through: a test can hold up calls here. */
  readonly store: Store;
  /** From now on it does nothing by itself, and receives nothing; calls of the test on its handle are performed. */
  pause(): void;
  /** It resumes, and gets everything that it missed. */
  resume(): Promise<void>;
  /** From now on no call passes between it and its store. */
  die(): void;
  /** Nothing that it commits reaches the store until then. */
  cutOff(until: Promise<unknown>): void;
}

/** Processes on one database in memory, with a clock that stands still until it is moved. */
export class Processes {
  readonly clock = new ManualClock();
  readonly database = new MemoryDatabase(this.clock.wallMs);
  readonly #checksPurity: boolean;

  /** Decisions on thousands of records are not run twice each. */
  constructor(options: { readonly checksPurity?: boolean } = {}) {
    this.#checksPurity = options.checksPurity ?? true;
  }

  process(): Peer {
    let isPaused = false;
    let missed: (() => void)[] = [];
    const whenAwake = (callback: () => void) => (): void => {
      if (isPaused) missed.push(callback);
      else callback();
    };
    const clock: Clock = {
      nowMs: () => this.clock.nowMs(),
      after: (ms, callback) => this.clock.after(ms, whenAwake(callback)),
      soon: (callback) => this.clock.soon(callback),
    };
    const store: Store = this.database.connect("test");
    const watch = store.watch.bind(store);
    store.watch = (changed) => watch(whenAwake(changed));
    const { chance, bodies, holding } = nodePorts;
    const trap = this.#checksPurity ? trapAmbient : undefined;
    const ports = { clock, chance, bodies, holding, trap };
    return {
      pawl: pawlOn(store, ports, { namespace: "test", patienceMs: 1_000 }),
      store,
      pause() {
        isPaused = true;
      },
      async resume() {
        isPaused = false;
        const all = missed;
        missed = [];
        for (const callback of all) callback();
        await drained();
      },
      die() {
        isPaused = true;
        Object.assign(store, DEAD);
      },
      cutOff(until) {
        const commit = store.commit.bind(store);
        store.commit = async (batch) => {
          await until;
          return commit(batch);
        };
      },
    };
  }

  /** Lets time pass, and everything that is due on the way happen. */
  advance(ms: number): Promise<void> {
    return this.clock.advance(ms);
  }
}

const never = (): Promise<never> => new Promise(() => {});

const DEAD = {
  settle: never,
  commit: never,
  read: never,
  list: never,
  entries: never,
  due: never,
  sweep: never,
  prune: never,
};

/** The state of a promise, without waiting for it. */
export function outcomeOf<T>(promise: Promise<T>): {
  state: "pending" | "acquired" | "refused";
  value?: T;
  error?: unknown;
} {
  const outcome: { state: "pending" | "acquired" | "refused"; value?: T; error?: unknown } = { state: "pending" };
  promise.then(
    (value) => Object.assign(outcome, { state: "acquired", value }),
    (error: unknown) => Object.assign(outcome, { state: "refused", error }),
  );
  return outcome;
}

/** The names of the holders or waiters, in their order. */
export const whoOf = (parties: readonly LockParty[]): (string | null)[] => parties.map(({ by, run }) => by ?? run);

/** What one commit wrote, and how many rows it looked at under locks for that. */
export interface Noted {
  readonly puts: readonly Put[];
  readonly looked: number;
}

/** Notes every commit that reaches this store, those that write nothing too. */
export function noteCommits(store: Store, noted: (commit: Noted) => void): void {
  const commit = store.commit.bind(store);
  store.commit = async (batch: Batch) => {
    let puts: readonly Put[] = [];
    let looked = batch.lock.length;
    const receipt = await commit({
      ...batch,
      decide: (found) => {
        const verdict = batch.decide(found);
        if ("lock" in verdict) looked += verdict.lock.length;
        else ({ puts } = verdict);
        return verdict;
      },
    });
    if (receipt.committed) noted({ puts, looked });
    return receipt;
  };
}

/** The lock's record as the commit left it, without asking the lock itself. */
export async function recordOf(pawl: Pawl, name: string, kind: LockKind = "mutex"): Promise<LockValue | undefined> {
  const [row] = await pawl.kernel.read([lockAt({ kind, name })]);
  return row?.value == null ? undefined : lockOf(pawl.kernel.decode(row, row.value));
}

/**
 * Sees every commit, and keeps the state after it: the locks, their waiters and the runs. After each commit, a run that ended holds nothing
 * and waits for nothing (G30), and no mutex has two holders (G8).
 */
export class CommitChecker {
  readonly #locks = new Map<string, LockValue>();
  readonly #tickets = new Map<string, string>();
  readonly #statuses = new Map<string, string>();
  readonly faults: string[] = [];
  /** The tickets of each lock, in the order of their grants. */
  readonly grants = new Map<string, string[]>();
  commits = 0;

  /** From every handle that writes. */
  watch(...pawls: readonly Pawl[]): this {
    for (const { kernel } of pawls) kernel.listen((puts) => puts !== undefined && this.saw(puts));
    return this;
  }

  saw(puts: readonly Put[]): void {
    this.commits += 1;
    for (const { row } of puts) this.#note(row);
    for (const [lock, { holders }] of this.#locks)
      for (const { owner } of holders) if (owner !== undefined) this.#checkOwner(owner.run, `holds ${lock}`);
    for (const [ticket, run] of this.#tickets) this.#checkOwner(run, `waits as ${ticket}`);
  }

  #note(row: Row): void {
    const { space, key, value, status } = row;
    if (space === "run" && status !== null) this.#statuses.set(key, status);
    if (space.startsWith("lock/")) {
      const name = `${space.slice("lock/".length)} ${key}`;
      const before = this.#locks.get(name)?.holders ?? [];
      const now = value === null ? undefined : lockOf(JSON.parse(value));
      if (now === undefined) this.#locks.delete(name);
      else this.#locks.set(name, now);
      const grants = this.grants.get(name) ?? [];
      this.grants.set(name, grants);
      for (const { ticket } of now?.holders ?? [])
        if (!before.some((one) => one.ticket === ticket)) grants.push(ticket);
      if (space === "lock/mutex" && (now?.holders.length ?? 0) > 1) this.faults.push(`${name} has two holders`);
    }
    if (space.startsWith("ticket/")) {
      const run = value === null ? undefined : (JSON.parse(value) as { owner?: { run: string } }).owner?.run;
      if (run === undefined) this.#tickets.delete(`${space} ${key}`);
      else this.#tickets.set(`${space} ${key}`, run);
    }
  }

  #checkOwner(run: string, what: string): void {
    const status = this.#statuses.get(run) ?? "";
    if (ENDED.has(status)) this.faults.push(`run "${run}" is ${status} and ${what}`);
  }

  check(): void {
    expect(this.faults).toEqual([]);
    expect(this.commits).toBeGreaterThan(0);
  }
}

/** Acquires it immediately, or the test is wrong. */
export async function acquireNow(lock: Lock, by?: string): Promise<Hold> {
  const tried = await lock.tryAcquire({ by });
  if (!tried.ok) throw new Error(`it is held by others, and the place would be ${tried.place}`);
  return tried.hold;
}

/** Enters the queue, or the test is wrong. */
export async function queueUp(lock: Lock, by?: string): Promise<LockPlace> {
  const entered = await lock.enqueue({ by });
  if (entered.granted) throw new Error("it was free");
  return entered.place;
}

/** What an operation was refused with, as the code of a run sees it. */
export async function refusal(operation: PromiseLike<unknown>): Promise<string> {
  try {
    await operation;
    return "acquired";
  } catch (error) {
    if (error instanceof PawlError) return error.code;
    throw error;
  }
}
