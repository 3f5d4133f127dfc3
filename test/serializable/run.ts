/**
 * A run: several processes work on the same lists of one store, and every window is checked as soon as all of them have left it.
 *
 * Processes of PostgreSQL and SQLite are real ones; on the memory store, which cannot be shared, they are handles of this process. Each
 * window has keys of its own, so a run of any length is checked in bounded memory: see the checker for why that is enough.
 */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import type { Store } from "../../src/kernel/contract.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { type Pawl, pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import type { Violation } from "../../src/testing/checkers/lists/report.ts";
import type { ListTransaction } from "../../src/testing/checkers/lists/transactions.ts";
import { checkSerializable, type SerializableReport } from "../../src/testing/checkers/serializable.ts";
import { Random } from "../../src/testing/sim/random.ts";
import { Child, spawnNode } from "../node/child.ts";
import type { Edit } from "../simulation/plant.ts";
import type { ClientArguments } from "./children/client.ts";
import { openClient } from "./client.ts";
import { InterleavedDatabase, type Weakness } from "./interleaved.ts";
import { transactionOf } from "./log.ts";
import { lastReads } from "./paths.ts";
import { Workload } from "./workload.ts";

export interface RunOptions {
  /** The address of a server, the path of a file, or "memory:". */
  readonly store: string;
  readonly transactions: number;
  readonly seed: number;
  readonly processes: number;
  /** On the memory store: the most concurrent commits of a handle. */
  readonly lanes?: number;
  readonly callers?: number;
  readonly pairCallers?: number;
  readonly windowMs?: number;
  /** How many keys a window has; see `windowOf`. */
  readonly windowSize?: number;
  /** Ends the test after this long. */
  readonly forMs?: number;
  /** Mistakes to plant into the source of the processes. */
  readonly edits?: readonly Edit[];
  readonly isStrict?: boolean;
  readonly checked?: (totals: Totals) => void;
}

export interface Totals {
  windows: number;
  transactions: number;
  committed: number;
  aborted: number;
  unknown: number;
  keys: number;
  ww: number;
  wr: number;
  rw: number;
  absentReads: number;
  ambiguousReads: number;
  /** By path, how many were committed. */
  readonly paths: Map<string, number>;
  violations: readonly Violation[];
  /** Time spent checking. */
  checkMs: number;
}

const NAMESPACE = "lists";

export async function runLists(options: RunOptions): Promise<Totals> {
  return options.store === "memory:" ? runInside(options) : runChildren(options);
}

function newTotals(): Totals {
  return {
    windows: 0,
    transactions: 0,
    committed: 0,
    aborted: 0,
    unknown: 0,
    keys: 0,
    ww: 0,
    wr: 0,
    rw: 0,
    absentReads: 0,
    ambiguousReads: 0,
    paths: new Map(),
    violations: [],
    checkMs: 0,
  };
}

/** Checks one window, with what its keys hold in the end. */
async function check(
  totals: Totals,
  pawl: Pawl,
  transactions: readonly ListTransaction[],
  options: RunOptions,
): Promise<SerializableReport> {
  const keys = new Set<string>();
  for (const { operations } of transactions) for (const { key } of operations) keys.add(key);
  const last = await lastReads(pawl, [...keys]);
  const startedMs = performance.now();
  const report = checkSerializable(transactions, { realTime: options.isStrict ?? true, last });
  totals.checkMs += performance.now() - startedMs;
  totals.windows += 1;
  totals.transactions += report.transactions;
  totals.committed += report.committed;
  totals.aborted += report.aborted;
  totals.unknown += report.unknown;
  totals.keys += report.keys;
  totals.ww += report.edges.ww;
  totals.wr += report.edges.wr;
  totals.rw += report.edges.rw;
  totals.absentReads += report.absentReads;
  totals.ambiguousReads += report.ambiguousReads;
  totals.violations = [...totals.violations, ...report.violations];
  for (const { about = "", outcome } of transactions)
    if (outcome === "committed") totals.paths.set(about, (totals.paths.get(about) ?? 0) + 1);
  options.checked?.(totals);
  return report;
}

// ------------------------------------------------------------------------------------------------- one process

async function runInside(options: RunOptions): Promise<Totals> {
  const database = new MemoryDatabase(wallMs);
  return runOn(() => database.connect(NAMESPACE, { lanes: options.lanes ?? 1 }), options, realClock);
}

/** The time of the callers of a run, and how they wait. */
interface RunClock {
  nowMs(): number;
  sleep(ms: number): Promise<void>;
  end(): void;
}

const realClock: RunClock = {
  nowMs: () => performance.now(),
  sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  end: () => {},
};

/** About as long as a turn takes where nothing else is busy. */
const TURN_MS = 0.5;

/**
 * A clock that turns of the event loop move, so that as many transactions meet in a window on a busy machine as on an idle one. No two readings are
 * equal, because the checker compares them.
 */
class TurnClock implements RunClock {
  #nowMs = 0;
  #readings = 0;
  #hasEnded = false;
  readonly #sleepers = new Set<{ readonly untilMs: number; readonly wake: () => void }>();

  constructor() {
    void this.#run();
  }

  async #run(): Promise<void> {
    while (!this.#hasEnded || this.#sleepers.size > 0) {
      await turn();
      this.#nowMs += TURN_MS;
      this.#readings = 0;
      for (const sleeper of this.#sleepers)
        if (sleeper.untilMs <= this.#nowMs && this.#sleepers.delete(sleeper)) sleeper.wake();
    }
  }

  nowMs(): number {
    this.#readings += 1;
    return this.#nowMs + this.#readings * 1e-6;
  }

  sleep(ms: number): Promise<void> {
    return new Promise((wake) => this.#sleepers.add({ untilMs: this.#nowMs + ms, wake }));
  }

  end(): void {
    this.#hasEnded = true;
  }
}

/** A short run on the interleaved store, whole or with a weakness: of so many transactions, however long they take. */
export async function runInterleaved(
  weakness: Weakness,
  options: { readonly seed: number; readonly lanes?: number; readonly transactions?: number },
): Promise<Totals> {
  const database = new InterleavedDatabase();
  const { seed, lanes = 3, transactions = 6_000 } = options;
  const random = new Random(seed + 1);
  const store = (isReader: boolean) => database.connect(NAMESPACE, lanes, random, isReader ? {} : weakness);
  return runOn(store, { store: "memory:", transactions, seed, processes: 3, callers: 6 }, new TurnClock());
}

async function runOn(store: (isReader: boolean) => Store, options: RunOptions, clock: RunClock): Promise<Totals> {
  const totals = newTotals();
  const connect = (isReader = false) => pawlOn(store(isReader), nodePorts, { namespace: NAMESPACE, patienceMs: 5_000 });
  const reader = connect(true);
  const windows = new Windows(options.processes);
  const random = new Random(options.seed);
  const startedMs = performance.now();
  const workloads = Array.from(
    { length: options.processes },
    (_, process) =>
      new Workload({
        pawl: connect(),
        process,
        processes: options.processes,
        random,
        hasSql: false,
        callers: options.callers ?? 12,
        pairCallers: options.pairCallers ?? 2,
        nowMs: () => clock.nowMs(),
        windowMs: options.windowMs ?? 100,
        windowSize: options.windowSize ?? 1,
        sleep: (ms) => clock.sleep(ms),
        closed: (window, transactions) => windows.closed(window, transactions),
      }),
  );
  const isEnough = () =>
    workloads.reduce((sum, { count }) => sum + count, 0) >= options.transactions ||
    performance.now() - startedMs > (options.forMs ?? Number.POSITIVE_INFINITY) ||
    totals.violations.length > 0;
  const running = workloads.map((workload) => workload.run());
  while (!isEnough()) {
    await clock.sleep(20);
    for (const all of windows.takeComplete()) await check(totals, reader, all, options);
  }
  for (const workload of workloads) workload.stop();
  await Promise.all(running);
  clock.end();
  for (const all of windows.takeAll()) await check(totals, reader, all, options);
  return totals;
}

/** Transactions by window, until all processes have left it. */
class Windows {
  readonly #processes: number;
  readonly #windows = new Map<string, { transactions: ListTransaction[]; closed: number }>();
  #newest = 0;

  constructor(processes: number) {
    this.#processes = processes;
  }

  closed(name: string, transactions: readonly ListTransaction[]): void {
    this.#newest = Math.max(this.#newest, numberOf(name));
    const window = this.#windows.get(name) ?? { transactions: [], closed: 0 };
    this.#windows.set(name, window);
    window.transactions.push(...transactions);
    window.closed += 1;
  }

  *takeComplete(): Generator<readonly ListTransaction[]> {
    for (const [name, { transactions, closed }] of this.#windows) {
      if (closed < this.#processes) continue;
      this.#windows.delete(name);
      yield transactions;
    }
  }

  *takeAll(): Generator<readonly ListTransaction[]> {
    for (const { transactions } of this.#windows.values()) yield transactions;
    this.#windows.clear();
  }
}

const numberOf = (window: string): number => Number(window.slice(1));

// ------------------------------------------------------------------------------------------------- several processes

const program = join(import.meta.dirname, "children", "client.ts");

async function runChildren(options: RunOptions): Promise<Totals> {
  const totals = newTotals();
  const folder = mkdtempSync(join(tmpdir(), "pawl-lists-"));
  // It makes the tables, so that the others find them.
  const reader = await openClient(options.store, { namespace: NAMESPACE });
  const windows = new Windows(options.processes);
  const startedMs = performance.now();
  let count = 0;
  let isOver = false;
  const children = Array.from({ length: options.processes }, (_, process) => {
    const args: ClientArguments = {
      store: options.store,
      namespace: NAMESPACE,
      process,
      processes: options.processes,
      seed: options.seed,
      callers: options.callers ?? 20,
      pairCallers: options.pairCallers ?? 2,
      windowMs: options.windowMs ?? 500,
      windowSize: options.windowSize ?? 4,
      folder,
      ...(options.edits === undefined ? {} : { edits: options.edits }),
    };
    return new Child(spawnNode(program, [JSON.stringify(args)]), `process ${process}`);
  });
  const hear = async (child: Child, process: number): Promise<void> => {
    for (;;) {
      const line = await child.line().catch((error: unknown) => {
        if (isOver && error instanceof Error && error.message.includes('"code":0')) return null;
        throw error;
      });
      if (line === null) return;
      if (line === "ready") continue;
      const [window = "", some = "0"] = line.split(" ");
      count += Number(some);
      const file = join(folder, `${window}.${process}`);
      windows.closed(window, readFileSync(file, "utf8").split("\n").filter(Boolean).map(transactionOf));
      rmSync(file);
    }
  };
  try {
    let failure: { readonly error: unknown } | undefined;
    const heard = children.map((child, process) =>
      hear(child, process).catch((error: unknown) => {
        failure ??= { error };
      }),
    );
    const isEnough = () =>
      failure !== undefined ||
      count >= options.transactions ||
      performance.now() - startedMs > (options.forMs ?? Number.POSITIVE_INFINITY) ||
      totals.violations.length > 0;
    while (!isEnough()) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      for (const all of windows.takeComplete()) await check(totals, reader.pawl, all, options);
    }
    isOver = true;
    for (const child of children) child.tell("stop");
    await Promise.all(heard);
    if (failure !== undefined) throw failure.error;
    for (const all of windows.takeAll()) await check(totals, reader.pawl, all, options);
    return totals;
  } finally {
    for (const child of children) child.signal("SIGKILL");
    await reader.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Returns a summary of the results. */
export function describeTotals(totals: Totals, seconds: number): string {
  const { transactions, committed, aborted, unknown, windows, keys, ww, wr, rw, absentReads, ambiguousReads } = totals;
  const perSecond = Math.round(transactions / Math.max(0.001, seconds));
  const paths = [...totals.paths].sort(([, a], [, b]) => b - a).map(([name, count]) => `${name} ${count}`);
  return [
    `${transactions} transactions in ${seconds.toFixed(1)} s (${perSecond}/s; ${(totals.checkMs / 1000).toFixed(1)} s of it checking): ` +
      `${committed} committed, ${aborted} aborted, ${unknown} unknown; ${keys} keys in ${windows} windows`,
    `dependencies: ${ww} ww, ${wr} wr, ${rw} rw, of which ${absentReads} from reads of absence; ${ambiguousReads} reads of absence could not be placed`,
    `committed by path: ${paths.join(", ")}`,
    totals.violations.length === 0
      ? "no cycle: committed decisions are serializable"
      : `NOT SERIALIZABLE:\n${smallest(totals.violations).message}`,
  ].join("\n");
}

export function smallest(violations: readonly Violation[]): Violation {
  return violations.reduce((best, one) => (one.transactions.length < best.transactions.length ? one : best));
}
