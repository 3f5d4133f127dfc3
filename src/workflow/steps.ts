/**
 * Steps: how one is tried, timed, and tried again.
 *
 * An attempt is the user's function with a handle. What it gives passes through the codec at once, so that the code sees the first time
 * what it will see at replay; what cannot be stored fails the step, and its effect is not done again.
 */

import type { Asked } from "./coroutine.ts";
import { StepTimeoutError } from "./errors.ts";
import type { StepHandle, StepPlan } from "./plans.ts";
import { decideRetry } from "./retry.ts";

/** What a step needs of the run it is in. */
export interface StepHost {
  readonly clock: { nowMs(): number; after(ms: number, callback: () => void): () => void };
  random(): number;
  keyOf(asked: Asked): string;
  attempted(asked: Asked, attempt: number): void;
  /** Runs the function, with whoever listens around it. */
  call(asked: Asked, run: (step: StepHandle) => unknown, step: StepHandle): unknown;
  /** The attempt failed, and the next one is waited for in memory. */
  retried(asked: Asked, error: unknown): void;
  /** The outcome is there, as text for the history. */
  succeeded(asked: Asked, value: unknown): void;
  failed(asked: Asked, error: unknown): void;
  /** The next attempt is so far off that it is written down. */
  postponed(asked: Asked, error: unknown, delayMs: number): void;
  progressed(asked: Asked, progress: unknown): void;
}

/** Waits up to this long are waited for in memory; a crash then only brings the next attempt forward. */
const SHORT_MS = 5000;

/** One step under way. */
export class StepRun implements StepHandle {
  readonly #host: StepHost;
  readonly #asked: Asked;
  readonly #plan: StepPlan;
  readonly #startedMs: number;
  #abort: AbortController | undefined;
  #reason: unknown;
  #isAborted = false;
  #cancelTimer: () => void = nothing;
  #cancelHeartbeat: () => void = nothing;
  #waiting: (() => void) | undefined;
  /** Rises with each attempt: what an abandoned one still says is not heard. */
  #turn = 0;
  attempt: number;

  constructor(host: StepHost, asked: Asked, plan: StepPlan) {
    this.#host = host;
    this.#asked = asked;
    this.#plan = plan;
    this.attempt = asked.attempts;
    this.#startedMs = plan.totalTimeoutMs === null ? 0 : host.clock.nowMs();
  }

  get key(): string {
    return this.#host.keyOf(this.#asked);
  }

  get progress(): unknown {
    return this.#asked.progress;
  }

  /** Made when it is asked for: most steps never do. */
  get abortSignal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.#isAborted) this.#abort.abort(this.#reason);
    return this.#abort.signal;
  }

  /** Made when it is asked for, and to be called without its step. */
  get heartbeat(): (progress?: unknown) => void {
    return (progress) => {
      this.#armHeartbeat();
      if (progress !== undefined) this.#host.progressed(this.#asked, progress);
    };
  }

  /** Runs the function once more. */
  try(run: (step: StepHandle) => unknown): void {
    this.attempt += 1;
    this.#turn += 1;
    const turn = this.#turn;
    if (this.#isAborted && this.attempt === 1) {
      this.#host.failed(this.#asked, this.#reason);
      return;
    }
    this.#host.attempted(this.#asked, this.attempt);
    const { timeoutMs, totalTimeoutMs, heartbeatMs } = this.#plan;
    const leftMs =
      totalTimeoutMs === null ? Number.POSITIVE_INFINITY : this.#startedMs + totalTimeoutMs - this.#host.clock.nowMs();
    const limitMs = Math.min(timeoutMs ?? Number.POSITIVE_INFINITY, Math.max(0, leftMs));
    if (limitMs < Number.POSITIVE_INFINITY)
      this.#cancelTimer = this.#host.clock.after(limitMs, () =>
        this.#late(
          run,
          turn,
          new StepTimeoutError(this.#asked.id, limitMs === timeoutMs ? limitMs : (totalTimeoutMs ?? 0)),
        ),
      );
    if (heartbeatMs !== null) this.#armHeartbeat(run);
    let given: unknown;
    try {
      given = this.#host.call(this.#asked, run, this);
    } catch (error) {
      this.#threw(run, turn, error);
      return;
    }
    if (!isThenable(given)) {
      this.#gave(turn, given);
      return;
    }
    given.then(
      (value) => this.#gave(turn, value),
      (error: unknown) => this.#threw(run, turn, error),
    );
  }

  /** Tells the function to stop. One that waits for its next attempt is over. */
  abort(reason: unknown): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    this.#reason = reason;
    this.#abort?.abort(reason);
    if (this.#waiting === undefined) return;
    this.#waiting();
    this.#waiting = undefined;
    this.#host.failed(this.#asked, this.#asked.lastError ?? reason);
  }

  /** The run is given up here; nothing more is heard of it. */
  drop(reason: unknown): void {
    this.#turn += 1;
    this.disarm();
    this.#waiting?.();
    this.#waiting = undefined;
    this.#isAborted = true;
    this.#reason = reason;
    this.#abort?.abort(reason);
  }

  #run: ((step: StepHandle) => unknown) | undefined;

  #armHeartbeat(run?: (step: StepHandle) => unknown): void {
    const { heartbeatMs } = this.#plan;
    if (heartbeatMs === null) return;
    this.#run = run ?? this.#run;
    this.#cancelHeartbeat();
    const turn = this.#turn;
    this.#cancelHeartbeat = this.#host.clock.after(heartbeatMs, () => {
      if (this.#run !== undefined)
        this.#late(this.#run, turn, new StepTimeoutError(this.#asked.id, heartbeatMs, "gave no heartbeat for"));
    });
  }

  /** From here on the attempt cannot time out. */
  disarm(): void {
    this.#cancelTimer();
    this.#cancelHeartbeat();
  }

  get turn(): number {
    return this.#turn;
  }

  #late(run: (step: StepHandle) => unknown, turn: number, error: StepTimeoutError): void {
    if (turn !== this.#turn) return;
    // This attempt is told to stop; the next one gets a signal of its own.
    this.#abort?.abort(error);
    if (!this.#isAborted) this.#abort = undefined;
    this.#threw(run, turn, error);
  }

  #gave(turn: number, value: unknown): void {
    if (turn !== this.#turn) return;
    this.#turn += 1;
    this.disarm();
    this.#host.succeeded(this.#asked, value);
  }

  #threw(run: (step: StepHandle) => unknown, turn: number, error: unknown): void {
    if (turn !== this.#turn) return;
    this.#turn += 1;
    this.disarm();
    const { clock } = this.#host;
    const delayMs = this.#isAborted ? null : retryDelay(this.#plan, this.attempt, error, this.#host.random());
    const { totalTimeoutMs } = this.#plan;
    const isOver = totalTimeoutMs !== null && clock.nowMs() + (delayMs ?? 0) - this.#startedMs >= totalTimeoutMs;
    if (delayMs === null || isOver) {
      this.#host.failed(this.#asked, error);
      return;
    }
    this.#asked.attempts = this.attempt;
    this.#asked.lastError = error;
    if (delayMs > SHORT_MS) {
      this.#host.postponed(this.#asked, error, delayMs);
      return;
    }
    this.#host.retried(this.#asked, error);
    this.#waiting = clock.after(delayMs, () => {
      this.#waiting = undefined;
      this.try(run);
    });
  }
}

/** A retry policy of the user's that throws ends the attempts. */
function retryDelay(plan: StepPlan, attempt: number, error: unknown, chance: number): number | null {
  // What runs at most once is not tried again on a guess.
  if (plan.mode.is === "once") return null;
  try {
    return decideRetry(plan.retry, attempt, error, chance);
  } catch {
    return null;
  }
}

const nothing = (): void => {};

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";
}
