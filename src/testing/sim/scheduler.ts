/**
 * The scheduler: one thing at a time, in an order that the seed decides, in a time of its own.
 *
 * Whatever leaves a simulated process (a store call, a timer, an outside call) becomes a stop and waits here. When nothing
 * in the process can run any more, one stop is let go. When none is ready, the clock jumps to the next timer, so a simulated
 * week costs nothing.
 *
 * Where a simulated process talks to something real, that takes real time. The world stands still until it is over.
 */

import type { Faults } from "./faults.ts";
import type { Random } from "./random.ts";

export interface Stop {
  /** What waits, for the trace. */
  readonly label: string;
  /** Whether it may go: false while its process is paused. */
  readonly isReady: () => boolean;
  readonly go: () => void;
}

interface Timer {
  readonly atMs: number;
  readonly order: number;
  readonly go: () => void;
}

/** The place of the next timer among the things to choose from. */
const TIMER = -1;

/** A timer may go before calls that are under way, as if they took this long. */
const OVERTAKING_MS = 60_000;

/** Taken when the module loads, because a simulation replaces the global one. */
const realSetImmediate = setImmediate;

/** Lets every promise that can settle do so. */
const drain = (): Promise<void> => new Promise((resolve) => void realSetImmediate(resolve));

export class Scheduler {
  readonly #random: Random;
  readonly #faults: Faults;
  readonly #stops: Stop[] = [];
  readonly #timers: Timer[] = [];
  /** What is real and not over yet. */
  readonly #outside = new Set<Promise<unknown>>();
  #order = 0;
  #nowMs = 0;
  #hash = 0x811c9dc5;
  /** How many stops were let go. */
  steps = 0;
  /** The last of what happened, kept if asked for. */
  readonly trace: string[] = [];
  readonly keepsTrace: boolean;

  constructor(random: Random, faults: Faults, options: { readonly keepTrace: boolean }) {
    this.#random = random;
    this.#faults = faults;
    this.keepsTrace = options.keepTrace;
  }

  /** The world's own time, in milliseconds since the simulation began. */
  get nowMs(): number {
    return this.#nowMs;
  }

  /** Stands for everything that happened, in order: two runs with the same one went the same way. */
  get fingerprint(): string {
    return `${this.steps}-${this.#nowMs}-${(this.#hash >>> 0).toString(16)}`;
  }

  stop(stop: Stop): void {
    this.#stops.push(stop);
  }

  /** Calls back at a later time; answers how to cancel. */
  after(ms: number, go: () => void): () => void {
    const timer: Timer = { atMs: this.#nowMs + Math.max(0, ms), order: this.#order++, go };
    let at = this.#timers.length;
    while (at > 0 && (this.#timers[at - 1] as Timer).atMs > timer.atMs) at -= 1;
    this.#timers.splice(at, 0, timer);
    return () => {
      const index = this.#timers.indexOf(timer);
      if (index >= 0) this.#timers.splice(index, 1);
    };
  }

  /** Lets nothing else happen until this is over. Answers the same promise. */
  outside<T>(work: Promise<T>): Promise<T> {
    this.#outside.add(work);
    const over = () => void this.#outside.delete(work);
    work.then(over, over);
    return work;
  }

  note(what: string): void {
    if (this.keepsTrace) this.trace.push(`${String(Math.round(this.#nowMs)).padStart(9)} ms  ${what}`);
  }

  /** Runs until `done`, or until nothing is left to happen; answers whether it was done. */
  async run(done: () => boolean, limits: { readonly steps: number; readonly untilMs: number }): Promise<boolean> {
    for (;;) {
      await this.#quiet();
      if (done()) return true;
      if (this.steps >= limits.steps || this.#nowMs > limits.untilMs) return false;
      const index = this.#choose();
      if (index === undefined) return false;
      this.steps += 1;
      if (index === TIMER) this.#fire();
      else this.#letGo(index);
    }
  }

  /** Nothing in any process can go on, and nothing outside is under way. */
  async #quiet(): Promise<void> {
    await drain();
    while (this.#outside.size > 0) {
      await Promise.allSettled(this.#outside);
      await drain();
    }
  }

  #letGo(index: number): void {
    const [stop] = this.#stops.splice(index, 1) as [Stop];
    this.#mark(stop.label, index);
    stop.go();
  }

  #fire(): void {
    const timer = this.#timers.shift() as Timer;
    this.#nowMs = Math.max(this.#nowMs, timer.atMs);
    this.#mark("timer", timer.order);
    // What the timer lets happen has a line of its own.
    if (this.keepsTrace) this.trace.pop();
    timer.go();
  }

  /** What has waited longest, unless things are reordered; a timer when its time has come, or when nothing else is left. */
  #choose(): number | undefined {
    const stops = this.#stops;
    const timer = this.#timers[0];
    let first = 0;
    while (first < stops.length && !(stops[first] as Stop).isReady()) first += 1;
    if (first === stops.length) return timer === undefined ? undefined : TIMER;
    if (timer !== undefined && timer.atMs <= this.#nowMs) return TIMER;
    if (timer !== undefined && timer.atMs <= this.#nowMs + OVERTAKING_MS && this.#faults.strikes("overtake"))
      return TIMER;
    if (!this.#random.chance(this.#faults.mix.reorder)) return first;
    const ready: number[] = [];
    for (let i = first; i < stops.length; i++) if ((stops[i] as Stop).isReady()) ready.push(i);
    const chosen = this.#random.pick(ready);
    if (chosen !== first && !this.#faults.healed) this.#faults.struck.reorder += 1;
    return chosen;
  }

  /** Makes the text part of the fingerprint. */
  mix(text: string): void {
    let hash = this.#hash;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    this.#hash = hash;
  }

  #mark(label: string, choice: number): void {
    this.#hash ^= choice;
    this.mix(label);
    if (this.keepsTrace) this.note(label);
  }
}
