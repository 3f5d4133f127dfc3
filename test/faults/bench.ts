/**
 * What the code of each kind of work uses inside a worker process.
 *
 * Every attempt is reported before it is made and after its result, by a synchronous write: the line has left the process before anything
 * else happens in it.
 */

import { writeSync } from "node:fs";
import { PawlError, StoreError } from "../../src/index.ts";
import type { Pawl } from "../../src/pawl.ts";
import { Random } from "../../src/testing/sim/random.ts";
import { type LedgerLine, monotonicNs } from "./ledger.ts";

export type Answered<T> =
  | { readonly is: "yes"; readonly output: T }
  | { readonly is: "no" | "unknown"; readonly code: string };

/** What the parent says to a worker. */
export type Order =
  | { readonly order: "task"; readonly work: string; readonly task: unknown }
  /** Faults are over: begin nothing new, end what there is. */
  | { readonly order: "heal" }
  | { readonly order: "stop" }
  /** What the ledger has to say to a question. */
  | { readonly order: "answer"; readonly ask: number; readonly answer: unknown }
  /** Set the clock of this process so far off; for machines without libfaketime. */
  | { readonly order: "skew"; readonly ms: number };

const STDOUT = 1;

/** Says a line to the parent. The pipe blocks, so it has left this process when this returns. */
export function say(line: LedgerLine): void {
  writeSync(STDOUT, `${JSON.stringify(line)}\n`);
}

/** A time in which nothing ran in this process. */
export interface Stall {
  readonly from: number;
  readonly to: number;
}

const TICK_MS = 20;
const STALL_NS = 150e6;

export class Bench {
  readonly pawl: Pawl;
  /** Names this process among all that ever worked. */
  readonly life: string;
  readonly random: Random;
  #ops = 0;
  #marks = 0;
  #isHealing = false;
  #isOver = false;
  readonly #tasks = new Map<string, unknown[]>();
  readonly #answers = new Map<number, (answer: unknown) => void>();
  #asks = 0;
  #tickedAt = monotonicNs();
  #stall: Stall | null = null;

  constructor(pawl: Pawl, life: string, seed: number) {
    this.pawl = pawl;
    this.life = life;
    this.random = new Random(seed);
    setInterval(() => {
      this.#stall = this.lastStall;
      this.#tickedAt = monotonicNs();
    }, TICK_MS).unref();
  }

  /** When this process was last suspended, if it ever was; it may have resumed a moment ago. */
  get lastStall(): Stall | null {
    const now = monotonicNs();
    return now - this.#tickedAt > STALL_NS ? { from: this.#tickedAt, to: now } : this.#stall;
  }

  get isHealing(): boolean {
    return this.#isHealing;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** A name that no other attempt has. */
  mark(): string {
    this.#marks += 1;
    return `${this.life}.${this.#marks}`;
  }

  /** Does it, with a word before and a word after. A mistake that is no answer of Pawl's is said as an accident. */
  async attempt<T>(work: string, input: unknown, act: () => Promise<T>): Promise<Answered<T>> {
    this.#ops += 1;
    const op = this.#ops;
    say({ is: "try", op, work, input, at: monotonicNs() });
    try {
      const output = await act();
      say({ is: "yes", op, output, at: monotonicNs() });
      return { is: "yes", output };
    } catch (error) {
      const { is, code } = classify(error);
      say({ is, op, code, at: monotonicNs() });
      if (code === "accident") this.accident(work, error);
      // Nothing that faults bring about: what it was shows in the ledger.
      else if (error instanceof StoreError && error.data.remedy !== "retry" && error.data.remedy !== "settle")
        this.note(work, "refused", { code, message: error.message, cause: { ...(error.cause as object) } });
      return { is, code };
    }
  }

  note(work: string, what: string, data: unknown): void {
    say({ is: "note", work, what, data, at: monotonicNs() });
  }

  accident(work: string, error: unknown): void {
    this.note(work, "accident", error instanceof Error ? (error.stack ?? error.message) : String(error));
  }

  /** What the ledger knows, by the work's own `answer`. */
  ask(work: string, question: unknown): Promise<unknown> {
    this.#asks += 1;
    const ask = this.#asks;
    const answer = new Promise<unknown>((resolve) => this.#answers.set(ask, resolve));
    say({ is: "ask", ask, work, question });
    return answer;
  }

  /** A piece of work that the parent handed over, if there is one. */
  take(work: string): unknown {
    return this.#tasks.get(work)?.shift();
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }

  obey(order: Order): void {
    if (order.order === "heal") this.#isHealing = true;
    else if (order.order === "stop") this.#isOver = true;
    else if (order.order === "skew") skewDate(order.ms);
    else if (order.order === "answer") {
      this.#answers.get(order.ask)?.(order.answer);
      this.#answers.delete(order.ask);
    } else {
      const tasks = this.#tasks.get(order.work) ?? [];
      tasks.push(order.task);
      this.#tasks.set(order.work, tasks);
    }
  }
}

function classify(error: unknown): { is: "no" | "unknown"; code: string } {
  if (!(error instanceof PawlError)) return { is: "unknown", code: "accident" };
  return { is: error.code === "outcome_unknown" ? "unknown" : "no", code: error.code };
}

const RealDate = Date;

/** Sets the clock that JavaScript sees off by so much; 0 is the real one again. */
export function skewDate(ms: number): void {
  if (ms === 0) {
    globalThis.Date = RealDate;
    return;
  }
  globalThis.Date = new Proxy(RealDate, {
    construct: (target, args, newTarget) =>
      Reflect.construct(target, args.length === 0 ? [RealDate.now() + ms] : args, newTarget) as object,
    apply: () => String(new RealDate(RealDate.now() + ms)),
    get: (target, name, receiver) =>
      name === "now" ? () => RealDate.now() + ms : (Reflect.get(target, name, receiver) as unknown),
  });
}
