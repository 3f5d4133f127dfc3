/**
 * The scheduler: one event at a time, in an order that depends on the seed, in simulated time.
 *
 * Every call that leaves a simulated process (a store call, a timer, a call of a service) becomes a *stop* and waits here. When no process can
 * run any further, one stop is released. When none is ready, the clock jumps to the next timer, so a simulated week costs nothing.
 *
 * Where a simulated process calls a real server, that takes real time; the simulation waits until it is done.
 */

import type { Faults } from "./faults.ts";
import type { Random } from "./random.ts";

export interface Stop {
  /** For the trace. */
  readonly label: string;
  /** False while its process is paused. */
  readonly isReady: () => boolean;
  readonly go: () => void;
}

interface Timer {
  readonly atMs: number;
  readonly order: number;
  readonly go: () => void;
}

/** The index that stands for the next timer. */
const TIMER = -1;

/** A timer within this time may fire before calls in progress, as if they took that long. */
const OVERTAKING_MS = 60_000;

/** The original, because a simulation replaces the global one. */
const realSetImmediate = setImmediate;

/** Waits until every promise that can settle has settled. */
const drain = (): Promise<void> => new Promise((resolve) => void realSetImmediate(resolve));

export class Scheduler {
  readonly #random: Random;
  readonly #faults: Faults;
  readonly #stops: Stop[] = [];
  readonly #timers: Timer[] = [];
  /** Real work in progress. */
  readonly #outside = new Set<Promise<unknown>>();
  #order = 0;
  #nowMs = 0;
  #hash = 0x811c9dc5;
  /** How many stops and timers were released. */
  steps = 0;
  /** The last events, if a trace is kept. */
  readonly trace: string[] = [];
  readonly keepsTrace: boolean;

  constructor(random: Random, faults: Faults, options: { readonly keepTrace: boolean }) {
    this.#random = random;
    this.#faults = faults;
    this.keepsTrace = options.keepTrace;
  }

  /** The simulated time, in milliseconds since the simulation began. */
  get nowMs(): number {
    return this.#nowMs;
  }

  /** A hash of all events in order: two executions with the same one were identical. */
  get fingerprint(): string {
    return `${this.steps}-${this.#nowMs}-${(this.#hash >>> 0).toString(16)}`;
  }

  stop(stop: Stop): void {
    this.#stops.push(stop);
  }

  /** Calls back after this long; returns a function that cancels it. */
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

  /** Schedules nothing else until this settles. Returns the same promise. */
  outside<T>(work: Promise<T>): Promise<T> {
    this.#outside.add(work);
    const over = () => void this.#outside.delete(work);
    work.then(over, over);
    return work;
  }

  note(what: string): void {
    if (this.keepsTrace) this.trace.push(`${String(Math.round(this.#nowMs)).padStart(9)} ms  ${what}`);
  }

  /** Runs until `done` returns true, a limit is reached or nothing is left; returns whether it was done. */
  async run(done: () => boolean, limits: { readonly steps: number; readonly untilMs: number }): Promise<boolean> {
    for (;;) {
      await this.#quiet();
      if (done()) return true;
      if (this.steps >= limits.steps || this.#nowMs > limits.untilMs) return false;
      const index = this.#choose();
      if (index === undefined) return false;
      this.steps += 1;
      if (index === TIMER) this.#fire();
      else this.#release(index);
    }
  }

  /** Waits until no process can run further, and no real work is in progress. */
  async #quiet(): Promise<void> {
    await drain();
    while (this.#outside.size > 0) {
      await Promise.allSettled(this.#outside);
      await drain();
    }
  }

  #release(index: number): void {
    const [stop] = this.#stops.splice(index, 1) as [Stop];
    this.#mark(stop.label, index);
    stop.go();
  }

  #fire(): void {
    const timer = this.#timers.shift() as Timer;
    this.#nowMs = Math.max(this.#nowMs, timer.atMs);
    this.#mark("timer", timer.order);
    // The timer's effect has its own line.
    if (this.keepsTrace) this.trace.pop();
    timer.go();
  }

  /** Returns the stop that has waited longest, unless calls are reordered; a timer if it is due, or if no stop is ready. */
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

  /** Adds the text to the fingerprint. */
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
