/**
 * A clock for tests: time stands still until a test moves it, and then goes from one moment at which something happens to the next.
 *
 * `advance` moves it by hand. `during` moves it by itself for as long as something is waited for: whenever nothing else can happen, it
 * jumps to the next timer, so that a year of sleep costs nothing. Both let everything that is due on the way happen in order, one timer
 * at a time, each to its end before the next.
 *
 * Steps may do real work, which takes real time: the clock stands still meanwhile, but not for ever. One that has not ended after a
 * second of real time is left to its timeouts.
 *
 * Promises: a timer never fires early; two runs of the same test see the same times.
 * Leaves out: the machine's clock. Code that asks `Date` is told the real time.
 */

import { checkDuration, type Duration } from "../../kernel/check.ts";
import type { Clock } from "../../kernel/ports.ts";
import { nodePorts } from "../../node/ports.ts";
import { RETENTION_POLL_MS } from "../../workflow/retention.ts";

/** What was waited for does not come: nothing is left that could happen. The message says where the runs are. */
export class NothingLeftError extends Error {
  override readonly name = "NothingLeftError";
}

/** What the clock has to know of the runs. @internal */
export interface Scene {
  /** Whether a process works on one, and when the next of those at rest goes on. */
  look(): Promise<{ readonly isHeld: boolean; readonly nextDueMs: number | null }>;
  /** Where they are, for the message. */
  tell(): Promise<string>;
}

interface Timer {
  readonly atMs: number;
  /** Those of one moment go in this order: what tests wait for comes after all that happens then. */
  readonly rank: 0 | 1;
  readonly order: number;
  /** A look for wake-ups that were lost. None are lost here, so time need not stop for it. */
  readonly isPoll: boolean;
  readonly go: () => void;
}

/** A step's function under way. */
interface Attempt {
  readonly name: string;
  /** It was waited for long enough. */
  isLeft: boolean;
}

/** How often workers, and those who wait for results, look without a reason. */
const POLLS_MS: readonly number[] = [5_000, RETENTION_POLL_MS];
/** How long real work is waited for, in real time. */
const PATIENCE_MS = 1_000;
/** A wait that takes more jumps than this has no end. */
const MAX_JUMPS = 100_000;

/** Taken when the module loads, because test runners and simulations replace the global one. */
const realSetImmediate = setImmediate;

export class TestClock {
  readonly #scene: Scene;
  readonly #timers: Timer[] = [];
  readonly #waiters = new Set<(error: unknown) => void>();
  readonly #attempts = new Set<Attempt>();
  #nowMs: number;
  #order = 0;
  #sleepers = 0;
  #isDriving = false;
  /** A mistake of a run's code that the test has not been told. */
  #mistake: Error | undefined;
  /** Grows with everything that happens, so that stillness can be told. */
  #activity = 0;
  #soons = 0;
  #stirred: () => void = () => {};

  /** @internal */
  constructor(startMs: number, scene: Scene) {
    this.#nowMs = startMs;
    this.#scene = scene;
  }

  /** In milliseconds since 1970: for the store, for every process, and for `ctx.now()`. */
  get nowMs(): number {
    return this.#nowMs;
  }

  now(): Date {
    return new Date(this.#nowMs);
  }

  /** Moves the clock on by this much. Everything that is due on the way has happened when it answers. */
  async advance(duration: Duration): Promise<void> {
    const ms = checkDuration(duration, "how far to advance");
    await this.during(new Promise<void>((resolve) => this.#add(ms, { rank: 1, isPoll: false, go: resolve })));
  }

  /** Waits on this clock, without moving it: for stubs of steps that take their time. */
  async sleep(duration: Duration): Promise<void> {
    const ms = checkDuration(duration, "how long to sleep");
    this.#sleepers += 1;
    await new Promise<void>((resolve) => this.#add(ms, { rank: 0, isPoll: false, go: resolve }));
    this.#sleepers -= 1;
  }

  /** Waits for something, and lets time pass by itself meanwhile. Throws `NothingLeftError` when it cannot come any more. */
  async during<T>(something: PromiseLike<T>): Promise<T> {
    this.#throwMistake();
    const { promise: inVain, reject } = Promise.withResolvers<never>();
    this.#waiters.add(reject);
    if (!this.#isDriving) void this.#drive();
    try {
      const value = await Promise.race([something, inVain]);
      this.#throwMistake();
      return value;
    } finally {
      this.#waiters.delete(reject);
      this.stir();
    }
  }

  /** The code of a run makes a mistake: what the test waits for now, or next, throws this. @internal */
  fail(mistake: Error): void {
    if (this.#waiters.size === 0) this.#mistake ??= mistake;
    for (const reject of this.#waiters) reject(mistake);
  }

  #throwMistake(): void {
    const mistake = this.#mistake;
    this.#mistake = undefined;
    if (mistake !== undefined) throw mistake;
  }

  /** Time stops at this moment on its way, so that what ends then ends in time. Answers how to take it back. @internal */
  mark(ms: number): () => void {
    return this.#add(ms, { rank: 0, isPoll: false, go: () => {} });
  }

  /** Lets everything happen that needs no time. @internal */
  async quiet(): Promise<void> {
    for (let seen = -1; seen !== this.#activity || this.#soons > 0; ) {
      seen = this.#activity;
      await new Promise<void>((resolve) => void realSetImmediate(resolve));
    }
  }

  /** Something happens. @internal */
  stir(): void {
    this.#activity += 1;
    this.#stirred();
  }

  /** Takes note of a step's function that may be at work for a while. Answers what it gave. @internal */
  track<T>(name: string, given: T): T {
    if (!isThenable(given)) return given;
    const attempt: Attempt = { name, isLeft: false };
    this.#attempts.add(attempt);
    const over = (): void => {
      this.#attempts.delete(attempt);
      this.stir();
    };
    given.then(over, over);
    return given;
  }

  /** The clock as one process has it, for as long as it lives. @internal */
  portFor(isAlive: () => boolean): Clock {
    const guarded = (callback: () => void) => () => {
      if (isAlive()) callback();
    };
    return {
      nowMs: () => this.#nowMs,
      after: (ms, callback) => this.#add(ms, { rank: 0, isPoll: POLLS_MS.includes(ms), go: guarded(callback) }),
      soon: (callback) => {
        this.#soons += 1;
        realSetImmediate(() => {
          this.#soons -= 1;
          this.stir();
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
    this.stir();
    return () => {
      const index = this.#timers.indexOf(added);
      if (index >= 0) this.#timers.splice(index, 1);
    };
  }

  /** One loop moves the time for all who wait. */
  async #drive(): Promise<void> {
    this.#isDriving = true;
    try {
      for (let jumps = 0; ; ) {
        await this.quiet();
        if (this.#waiters.size === 0) break;
        if (this.#hasRealWork()) {
          await this.#stillness();
          continue;
        }
        const nextMs = await this.#nextMs();
        if (nextMs !== undefined) {
          jumps += 1;
          if (jumps > MAX_JUMPS)
            throw new NothingLeftError(`time went on and on, and it did not come: ${await this.#told()}`);
          this.#fire(nextMs);
        } else if (await this.#stillness())
          throw new NothingLeftError(`nothing is left to happen, and it did not come: ${await this.#told()}`);
      }
    } catch (error) {
      for (const reject of this.#waiters) reject(error);
      this.#waiters.clear();
    } finally {
      this.#isDriving = false;
    }
  }

  #hasRealWork(): boolean {
    let count = -this.#sleepers;
    for (const { isLeft } of this.#attempts) if (!isLeft) count += 1;
    return count > 0;
  }

  /** Waits in real time until something stirs; answers true when nothing did, and then waits for the same work no more. */
  #stillness(): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (isStill: boolean): void => {
        cancel();
        this.#stirred = () => {};
        resolve(isStill);
      };
      const cancel = nodePorts.clock.after(PATIENCE_MS, () => {
        for (const attempt of this.#attempts) attempt.isLeft = true;
        end(true);
      });
      this.#stirred = () => end(false);
    });
  }

  /** The next moment at which something happens. */
  async #nextMs(): Promise<number | undefined> {
    const [first] = this.#timers;
    if (first !== undefined && first.atMs <= this.#nowMs) return this.#nowMs;
    const { isHeld, nextDueMs } = await this.#scene.look();
    if (isHeld) return first?.atMs;
    const timerMs = this.#timers.find(({ isPoll }) => !isPoll)?.atMs;
    if (timerMs === undefined || nextDueMs === null) return timerMs ?? nextDueMs ?? undefined;
    return Math.min(timerMs, nextDueMs);
  }

  /** Moves the time, and lets the first timer go. Those that were passed over go next, before it moves again. */
  #fire(atMs: number): void {
    this.#nowMs = Math.max(this.#nowMs, atMs);
    const [first] = this.#timers;
    if (first === undefined || first.atMs > this.#nowMs) return;
    this.#timers.shift();
    this.stir();
    first.go();
  }

  async #told(): Promise<string> {
    const steps = [...this.#attempts].map(({ name }) => `step "${name}" has not ended`);
    return [await this.#scene.tell(), ...steps].join("; ");
  }
}

const isAfter = (a: Timer | undefined, b: Timer): boolean =>
  a !== undefined && (a.atMs - b.atMs || a.rank - b.rank || a.order - b.order) > 0;

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";
}
