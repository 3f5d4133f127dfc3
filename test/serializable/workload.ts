/**
 * The workload: many callers of one process, who follow random plans by every path, on keys that change from window to window.
 *
 * Every window has keys of its own, so that it can be checked by itself as soon as no caller uses it any more. Which window it is now
 * follows from a clock that all processes share, so that they meet on the same keys. Values that are written are unique: each process
 * counts its own.
 */

import type { ListTransaction } from "../../src/testing/checkers/lists/transactions.ts";
import type { Random } from "../../src/testing/sim/random.ts";
import { actOnce, actOnPair, type Desk, type Outcome, type Plain, type Window, windowOf } from "./paths.ts";

export interface WorkloadOptions {
  readonly pawl: Desk["pawl"];
  /** The number of this process, and how many there are. */
  readonly process: number;
  readonly processes: number;
  readonly random: Random;
  readonly hasSql: boolean;
  readonly plains?: readonly Plain[];
  readonly callers: number;
  /** Callers that create one of two keys and look at the other. */
  readonly pairCallers: number;
  /** A clock that all processes share, in milliseconds. */
  readonly nowMs: () => number;
  readonly windowMs: number;
  /** How many keys a window has; see `windowOf`. */
  readonly windowSize: number;
  readonly sleep: (ms: number) => Promise<void>;
  /** Told of each window that is over here: it has no more transactions of this process. */
  readonly closed: (window: string, transactions: readonly ListTransaction[]) => void;
}

/** All callers that use a pair use it within about this time. */
const PAIR_MS = 4;
/** The number of concurrent pairs. */
const PAIRS = 3;

interface Open {
  readonly window: Window;
  readonly transactions: ListTransaction[];
  working: number;
}

export class Workload {
  readonly #options: WorkloadOptions;
  readonly #open = new Map<string, Open>();
  readonly #free: Plain[];
  #values = 0;
  #count = 0;
  #isOver = false;

  constructor(options: WorkloadOptions) {
    this.#options = options;
    this.#free = [...(options.plains ?? [])];
  }

  /** Transactions that were begun so far. */
  get count(): number {
    return this.#count;
  }

  stop(): void {
    this.#isOver = true;
  }

  /** Works until it is stopped; then all windows are closed. */
  async run(): Promise<void> {
    const { callers, pairCallers } = this.#options;
    await Promise.all([
      ...Array.from({ length: callers }, () => this.#call()),
      ...Array.from({ length: pairCallers }, (_, i) => this.#callOnPairs(i)),
    ]);
    for (const name of [...this.#open.keys()]) this.#close(name);
  }

  async #call(): Promise<void> {
    const { random, sleep } = this.#options;
    while (!this.#isOver) {
      await this.#during((desk, window) => actOnce(desk, window));
      if (random.chance(0.1)) await sleep(random.unit() * 4);
    }
  }

  /** Comes to each pair at its time, with callers of the other processes. */
  async #callOnPairs(caller: number): Promise<void> {
    const { process, random, nowMs, sleep } = this.#options;
    while (!this.#isOver) {
      const now = nowMs();
      const next = Math.floor(now / PAIR_MS) + 1;
      await sleep(next * PAIR_MS - now);
      const sides = Array.from({ length: PAIRS }, (_, i) => {
        const pair = (next * PAIRS + i) * 2 + (caller % 2);
        const isOther = random.chance(0.1);
        return { pair, side: ((process + pair + (isOther ? 1 : 0)) % 2) as 0 | 1 };
      });
      await Promise.all(
        sides.map(({ pair, side }) => this.#during((desk, window) => actOnPair(desk, window, pair, side))),
      );
    }
  }

  async #during(act: (desk: Desk, window: Window) => Promise<void>): Promise<void> {
    const open = this.#now();
    open.working += 1;
    try {
      await act(this.#desk(open), open.window);
    } finally {
      open.working -= 1;
      this.#closeOld();
    }
  }

  #now(): Open {
    const { nowMs, windowMs, windowSize } = this.#options;
    const name = `w${Math.floor(nowMs() / windowMs)}`;
    let open = this.#open.get(name);
    if (open === undefined) {
      open = { window: windowOf(name, windowSize), transactions: [], working: 0 };
      this.#open.set(name, open);
    }
    return open;
  }

  #closeOld(): void {
    const { nowMs, windowMs } = this.#options;
    const now = `w${Math.floor(nowMs() / windowMs)}`;
    for (const [name, { working }] of this.#open) if (name !== now && working === 0) this.#close(name);
  }

  #close(name: string): void {
    const open = this.#open.get(name);
    if (open === undefined) return;
    this.#open.delete(name);
    this.#options.closed(name, open.transactions);
  }

  #desk(open: Open): Desk {
    const { pawl, process, processes, random, hasSql, sleep, nowMs } = this.#options;
    return {
      pawl,
      name: `process ${process}`,
      random,
      hasSql,
      sleep,
      nextValue: () => {
        this.#values += 1;
        return this.#values * processes + process;
      },
      borrow: (work) => {
        const plain = this.#free.pop();
        if (plain === undefined) return null;
        return work(plain).finally(() => this.#free.push(plain));
      },
      record: async (about, run): Promise<Outcome> => {
        this.#count += 1;
        const id = `${process}.${this.#count}`;
        const startedAt = nowMs();
        const outcome = await run(() => {});
        open.transactions.push({ id, about, startedAt, endedAt: nowMs(), ...outcome });
        return outcome;
      },
    };
  }
}
