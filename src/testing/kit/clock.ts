/**
 * A clock for tests: time is stopped until a test moves it, and then jumps from one event to the next.
 *
 * `advance` moves it explicitly. `during` moves it automatically while the test waits for a promise: whenever nothing else can happen, it jumps
 * to the next timer, so that a year of sleep costs nothing. Both fire all timers that are due meanwhile in order, one at a time, and wait for
 * the effects of each before the next.
 *
 * Steps may do real work, which takes real time: the clock is stopped meanwhile. After a second of real time it no longer waits for the
 * step, so that the step's timeouts apply.
 *
 * Guarantees: a timer never fires early; two executions of the same test see the same times.
 * Out of scope: the machine's clock. `Date` returns the real time.
 */

import { checkDuration, type Duration } from "../../kernel/check.ts";
import type { Clock } from "../../kernel/ports.ts";
import { SWEEP_POLL_MS } from "../../kernel/sweep-loop.ts";
import { nodePorts } from "../../node/ports.ts";

/** The promise that the test waits for cannot settle: no timer and no run is left. The message lists the runs. */
export class NothingLeftError extends Error {
  override readonly name = "NothingLeftError";
}

/** What the clock needs to know about the runs, and about the events that reactions and projections have to handle. @internal */
export interface RunsView {
  /** Whether a process executes a run or a handler, when the next one that rests is due, and the next tick of a schedule. */
  pending(): Promise<{
    readonly isHeld: boolean;
    readonly nextDueMs: number | null;
    readonly nextTickMs: number | null;
  }>;
  /** The status of the runs, for messages. */
  describe(): Promise<string>;
}

interface Timer {
  readonly atMs: number;
  /** The order of timers of one moment: what the test waits for comes last. */
  readonly rank: 0 | 1;
  readonly order: number;
  /** A poll for lost wake-ups, or the renewal of a lease that does not end. No wake-up is lost here, so the clock need not stop for it. */
  readonly isPoll: boolean;
  readonly go: () => void;
}

/** A step's function, or the handler of a reaction, in progress. */
interface StepInProgress {
  /** As in 'step "charge"'. */
  readonly name: string;
  /** The clock no longer waits for it. */
  isIgnored: boolean;
}

/** The lease of records that are held all the time: no process of a test dies, and nothing has to be renewed. @internal */
export const STANDING_LEASE_MS = 1000 * 365 * 86_400_000;
/** A timer of a process that is as long as this belongs to such a lease. */
const UPKEEP_MS = STANDING_LEASE_MS / 10;
/** The polling intervals of workers and of callers that wait for results. */
const POLLS_MS: readonly number[] = [5_000, SWEEP_POLL_MS];
/** How long the clock waits for real work, in real time. */
const PATIENCE_MS = 1_000;
/** A wait that takes more jumps than this is assumed to have no end. */
const MAX_JUMPS = 100_000;
/** So is one that takes more ticks of schedules than this while nothing else is left: a schedule never ends by itself. */
const MAX_TICKS = 500;

/** The original, because test runners and simulations replace the global one. */
const realSetImmediate = setImmediate;

export class TestClock {
  readonly #runs: RunsView;
  readonly #timers: Timer[] = [];
  readonly #waiters = new Set<(error: unknown) => void>();
  readonly #attempts = new Set<StepInProgress>();
  #nowMs: number;
  #order = 0;
  #sleeping = 0;
  #isDriving = false;
  /** Ticks to which it went while nothing else was left. */
  #ticks = 0;
  /** A mistake of a workflow's code that was not thrown to the test yet. */
  #mistake: Error | undefined;
  /** Increases with every event, to detect when nothing happens. */
  #activity = 0;
  #soons = 0;
  #onActivity: () => void = () => {};

  /** @internal */
  constructor(startMs: number, runs: RunsView) {
    this.#nowMs = startMs;
    this.#runs = runs;
  }

  /** The time in milliseconds since 1970, for the store, for every process, and for `ctx.now()`. */
  get nowMs(): number {
    return this.#nowMs;
  }

  now(): Date {
    return new Date(this.#nowMs);
  }

  /** Advances the clock by this duration. When it returns, everything that was due has happened. */
  async advance(duration: Duration): Promise<void> {
    const ms = checkDuration(duration, "how far to advance");
    await this.during(new Promise<void>((resolve) => this.#add(ms, { rank: 1, isPoll: false, go: resolve })));
  }

  /** Waits on this clock without moving it: for stubs of slow steps. */
  async sleep(duration: Duration): Promise<void> {
    const ms = checkDuration(duration, "how long to sleep");
    this.#sleeping += 1;
    await new Promise<void>((resolve) => this.#add(ms, { rank: 0, isPoll: false, go: resolve }));
    this.#sleeping -= 1;
  }

  /** Waits for a promise, and advances the clock as needed meanwhile. Throws `NothingLeftError` if the promise cannot settle. */
  async during<T>(something: PromiseLike<T>): Promise<T> {
    this.#throwMistake();
    const { promise: failed, reject } = Promise.withResolvers<never>();
    this.#waiters.add(reject);
    if (!this.#isDriving) void this.#drive();
    try {
      const value = await Promise.race([something, failed]);
      this.#throwMistake();
      return value;
    } finally {
      this.#waiters.delete(reject);
      this.noteActivity();
    }
  }

  /** Makes the test's current wait, or its next one, throw this mistake of a workflow's code. @internal */
  fail(mistake: Error): void {
    if (this.#waiters.size === 0) this.#mistake ??= mistake;
    for (const reject of this.#waiters) reject(mistake);
  }

  #throwMistake(): void {
    const mistake = this.#mistake;
    this.#mistake = undefined;
    if (mistake !== undefined) throw mistake;
  }

  /** Makes the clock stop after this long, so that what is due then happens on time. Returns a function that cancels it. @internal */
  mark(ms: number): () => void {
    return this.#add(ms, { rank: 0, isPoll: false, go: () => {} });
  }

  /** Waits until nothing more happens without advancing the clock. @internal */
  async quiet(): Promise<void> {
    for (let seen = -1; seen !== this.#activity || this.#soons > 0; ) {
      seen = this.#activity;
      await new Promise<void>((resolve) => void realSetImmediate(resolve));
    }
  }

  /** @internal */
  noteActivity(): void {
    this.#activity += 1;
    this.#onActivity();
  }

  /** Tracks the promise of a step's function, or of a handler, until it settles. Returns what was given. @internal */
  track<T>(name: string, given: T): T {
    if (!isThenable(given)) return given;
    const attempt: StepInProgress = { name, isIgnored: false };
    this.#attempts.add(attempt);
    const over = (): void => {
      this.#attempts.delete(attempt);
      this.noteActivity();
    };
    given.then(over, over);
    return given;
  }

  /** Returns the clock of one process, for as long as it is alive. @internal */
  portFor(isAlive: () => boolean): Clock {
    const guarded = (callback: () => void) => () => {
      if (isAlive()) callback();
    };
    return {
      nowMs: () => this.#nowMs,
      after: (ms, callback) =>
        this.#add(ms, { rank: 0, isPoll: POLLS_MS.includes(ms) || ms >= UPKEEP_MS, go: guarded(callback) }),
      soon: (callback) => {
        this.#soons += 1;
        realSetImmediate(() => {
          this.#soons -= 1;
          this.noteActivity();
          if (isAlive()) callback();
        });
      },
    };
  }

  #add(ms: number, timer: Pick<Timer, "rank" | "isPoll" | "go">): () => void {
    const added: Timer = { ...timer, atMs: this.#nowMs + Math.max(0, Math.ceil(ms)), order: this.#order };
    this.#order += 1;
    let at = this.#timers.length;
    while (at > 0 && isAfter(this.#timers[at - 1], added)) at -= 1;
    this.#timers.splice(at, 0, added);
    this.noteActivity();
    return () => {
      const index = this.#timers.indexOf(added);
      if (index >= 0) this.#timers.splice(index, 1);
    };
  }

  /** One loop advances the clock for all waiters. */
  async #drive(): Promise<void> {
    this.#isDriving = true;
    this.#ticks = 0;
    try {
      for (let jumps = 0; ; ) {
        await this.quiet();
        if (this.#waiters.size === 0) break;
        if (this.#hasRealWork()) {
          await this.#isIdle();
          continue;
        }
        const nextMs = await this.#nextMs();
        if (nextMs !== undefined) {
          jumps += 1;
          if (this.#ticks > MAX_TICKS)
            throw new NothingLeftError(
              `it did not happen within ${MAX_TICKS} ticks of schedules, and nothing else is left to wait for (if it takes longer, advance the clock): ${await this.#describe()}`,
            );
          if (jumps > MAX_JUMPS)
            throw new NothingLeftError(`it did not happen within ${MAX_JUMPS} timers: ${await this.#describe()}`);
          this.#fire(nextMs);
        } else if (await this.#isIdle())
          throw new NothingLeftError(`it did not happen, and nothing is left to wait for: ${await this.#describe()}`);
      }
    } catch (error) {
      for (const reject of this.#waiters) reject(error);
      this.#waiters.clear();
    } finally {
      this.#isDriving = false;
    }
  }

  #hasRealWork(): boolean {
    let count = -this.#sleeping;
    for (const { isIgnored } of this.#attempts) if (!isIgnored) count += 1;
    return count > 0;
  }

  /** Waits in real time for activity; returns true if there was none, and then no longer waits for the steps in progress. */
  #isIdle(): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (isIdle: boolean): void => {
        cancel();
        this.#onActivity = () => {};
        resolve(isIdle);
      };
      const cancel = nodePorts.clock.after(PATIENCE_MS, () => {
        for (const attempt of this.#attempts) attempt.isIgnored = true;
        end(true);
      });
      this.#onActivity = () => end(false);
    });
  }

  /** The time of the next event. */
  async #nextMs(): Promise<number | undefined> {
    const [first] = this.#timers;
    if (first !== undefined && first.atMs <= this.#nowMs) return this.#nowMs;
    const { isHeld, nextDueMs, nextTickMs } = await this.#runs.pending();
    if (isHeld) return first?.atMs;
    const timers = this.#timers.filter(({ isPoll }) => !isPoll).map(({ atMs }) => atMs);
    // A worker that waits for the tick has a timer of the same moment.
    const isTickAlone = nextTickMs !== null && nextDueMs === null && timers.every((atMs) => atMs === nextTickMs);
    if (isTickAlone) this.#ticks += 1;
    const times = [timers[0] ?? null, nextDueMs, nextTickMs].filter((atMs) => atMs !== null);
    return times.length === 0 ? undefined : Math.min(...times);
  }

  /** Advances the clock and fires the first timer. Polls that were skipped fire next, before the clock advances again. */
  #fire(atMs: number): void {
    this.#nowMs = Math.max(this.#nowMs, atMs);
    const [first] = this.#timers;
    if (first === undefined || first.atMs > this.#nowMs) return;
    this.#timers.shift();
    this.noteActivity();
    first.go();
  }

  async #describe(): Promise<string> {
    const steps = [...this.#attempts].map(({ name }) => `${name} has not ended`);
    return [await this.#runs.describe(), ...steps].join("; ");
  }
}

const isAfter = (a: Timer | undefined, b: Timer): boolean =>
  a !== undefined && (a.atMs - b.atMs || a.rank - b.rank || a.order - b.order) > 0;

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";
}
