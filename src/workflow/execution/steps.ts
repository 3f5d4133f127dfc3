/**
 * Steps: how one is tried, timed, and tried again.
 *
 * An attempt is the user's function with a handle. What it returns passes through the codec immediately, so that the code sees the first time
 * what it will see at replay; what cannot be stored fails the step, and its effect is not done again.
 */

import { StoreError } from "../../kernel/errors.ts";
import { decideRetry } from "../../kernel/retry.ts";
import type { StepHandle, StepPlan } from "../definitions/plans.ts";
import { AttemptOverError, ForeignContextError, NestedOperationError, StepTimeoutError } from "../errors.ts";
import { usable } from "../history/outcome.ts";
import type { PendingOperation } from "./pending.ts";

/** What a step needs of the run it is in. */
export interface StepHost {
  readonly clock: { nowMs(): number; after(ms: number, callback: () => void): () => void };
  /** The store's clock, as well as it is known here. */
  nowMs(): number;
  random(): number;
  /** The number of the claim under which the run is worked on. */
  readonly fence: number;
  keyOf(pending: PendingOperation): string;
  attempted(pending: PendingOperation, attempt: number): void;
  /** Runs the function, with the listener's `around` if there is one. */
  call(pending: PendingOperation, run: (step: StepHandle) => unknown, step: StepHandle): unknown;
  /** The attempt failed, and the next one is waited for in memory. */
  retried(pending: PendingOperation, error: unknown): void;
  /** The step has its outcome. */
  succeeded(pending: PendingOperation, value: unknown): void;
  failed(pending: PendingOperation, error: unknown): void;
  /** It cannot be done in this process. */
  notHere(pending: PendingOperation, error: NotHere): void;
  /** The next attempt is so far off that it is recorded. */
  postponed(pending: PendingOperation, error: unknown, delayMs: number): void;
  progressed(pending: PendingOperation, progress: unknown): void;
  /** Reserves a turn in the step's rate limit; resolves with how long it is until then. */
  reserveTurn(plan: StepPlan): Promise<number>;
  /** The turn is so far off that it is recorded. */
  deferred(pending: PendingOperation, delayMs: number): void;
  /** The turn has come, and the intent is to be written before the step begins. */
  hasTurn(pending: PendingOperation): void;
  /** Whether another process may work on the run: then no attempt begins. */
  readonly isLeaseUncertain: boolean;
  /** The next attempt does not begin here. */
  putOff(pending: PendingOperation): void;
  /** Its `retry.when` threw, or returned a promise: there is no further attempt. */
  policyThrew(pending: PendingOperation, mistake: unknown): void;
  /** Something belonging to an attempt was used after the attempt was over. */
  usedLate(pending: PendingOperation, attempt: number, what: string): void;
}

/** Waits up to this long are waited for in memory; a crash then only brings the next attempt forward. */
const SHORT_MS = 5000;
/** After a failure of the store, the step is tried again after this long. */
const STORE_MS = 1000;

/** The store failed before the function of an attempt was called. */
export class NotBegun extends Error {
  constructor(cause: unknown) {
    super("the step has not begun", { cause });
  }
}

/** This process lacks what the step needs, as a key, and others may have it: that is no attempt. The run is left to them. */
export class NotHere extends Error {
  constructor(cause: Error) {
    super(cause.message, { cause });
  }
}

type StepCode = (step: StepHandle) => unknown;

/** One step under way: its attempts, one after another. */
export class RunningStep {
  readonly #host: StepHost;
  readonly #pending: PendingOperation;
  readonly #plan: StepPlan;
  #run: StepCode = nothing;
  #current: Attempt | undefined;
  #isAborted = false;
  #reason: unknown;
  /** Cancels the wait for the next attempt. */
  #waiting: (() => void) | undefined;

  constructor(host: StepHost, pending: PendingOperation, plan: StepPlan) {
    this.#host = host;
    this.#pending = pending;
    this.#plan = plan;
  }

  /** Runs the function, until there is an outcome. */
  start(run: StepCode): void {
    this.#run = run;
    this.#try();
  }

  /** Runs the function once more, in its turn. */
  #try(): void {
    if (this.#plan.turn === undefined || this.#pending.hasTurn) {
      this.#pending.hasTurn = false;
      this.#begin();
      return;
    }
    let isOver = false;
    this.#waiting = () => {
      isOver = true;
    };
    this.#host.reserveTurn(this.#plan).then(
      (delayMs) => {
        if (isOver) return;
        this.#waiting = undefined;
        const { totalTimeoutMs } = this.#plan;
        if (totalTimeoutMs !== null && delayMs >= this.#leftMs(totalTimeoutMs)) {
          this.#host.failed(
            this.#pending,
            this.#pending.lastError ?? new StepTimeoutError(this.#pending.id, totalTimeoutMs),
          );
          return;
        }
        if (delayMs > SHORT_MS) {
          this.#host.deferred(this.#pending, delayMs);
          return;
        }
        this.#pending.nextAttemptMs = this.#host.nowMs() + delayMs;
        this.#waiting = this.#host.clock.after(delayMs, () => {
          this.#waiting = undefined;
          if (this.#plan.mode.is === "once" && !this.#pending.hasIntent) this.#host.hasTurn(this.#pending);
          else this.#begin();
        });
      },
      (error: unknown) => {
        if (isOver) return;
        this.#waiting = undefined;
        if (error instanceof StoreError) this.#tryLater();
        else this.threw(error);
      },
    );
  }

  /** The store failed, and the step's function was not called: that is no attempt. If that lasts, the lease ends and the run is abandoned. */
  #tryLater(): void {
    if (this.#isAborted) {
      this.#host.failed(this.#pending, this.#pending.lastError ?? this.#reason);
      return;
    }
    this.#waiting = this.#host.clock.after(STORE_MS, () => {
      this.#waiting = undefined;
      this.#try();
    });
  }

  #begin(): void {
    const pending = this.#pending;
    const { timeoutMs, totalTimeoutMs } = this.#plan;
    // What the code has started is done once, also if a cancellation came before it began: it may be the cleanup. Before anything was done,
    // there is nothing to clean up.
    if (this.#isAborted && (pending.attempts > 0 || pending.turn === 0)) {
      this.#host.failed(pending, pending.lastError ?? this.#reason);
      return;
    }
    pending.nextAttemptMs = null;
    if (totalTimeoutMs !== null) pending.firstAttemptMs ??= this.#host.nowMs();
    let leftMs = totalTimeoutMs === null ? Number.POSITIVE_INFINITY : this.#leftMs(totalTimeoutMs);
    if (totalTimeoutMs !== null && leftMs <= 0) {
      if (this.#current !== undefined) {
        this.#host.failed(pending, pending.lastError ?? new StepTimeoutError(pending.id, totalTimeoutMs));
        return;
      }
      // No worker was there in time. What it interrupted, or never began, is tried once more.
      leftMs = totalTimeoutMs;
    }
    // The process stood still while the step waited: another may have recorded it since.
    if (this.#host.isLeaseUncertain) {
      this.#host.putOff(pending);
      return;
    }
    pending.attempts += 1;
    const attempt = new Attempt(this.#host, pending, this.#plan, pending.attempts, this);
    this.#current = attempt;
    if (this.#isAborted) attempt.abort(this.#reason);
    this.#host.attempted(pending, attempt.attempt);
    const limitMs = Math.min(timeoutMs ?? Number.POSITIVE_INFINITY, leftMs);
    if (limitMs < Number.POSITIVE_INFINITY)
      attempt.expireAfter(limitMs, limitMs === timeoutMs ? limitMs : (totalTimeoutMs ?? 0));
    attempt.armHeartbeat();
    let given: unknown;
    try {
      given = this.#host.call(pending, this.#run, attempt);
      // What it returns may throw as well, when it is looked at: a revoked proxy, a `then` of its own.
      if (isThenable(given)) {
        this.#follow(attempt, given);
        return;
      }
    } catch (error) {
      if (attempt.end()) this.threw(error);
      return;
    }
    if (attempt.end()) this.#host.succeeded(pending, given);
  }

  #follow(attempt: Attempt, given: PromiseLike<unknown>): void {
    given.then(
      (value) => {
        if (attempt.end()) this.#host.succeeded(this.#pending, value);
      },
      (error: unknown) => {
        if (attempt.end()) this.threw(error);
      },
    );
  }

  /** What is left of the time for all attempts, which is counted from the first one, wherever that was. */
  #leftMs(totalTimeoutMs: number): number {
    const { firstAttemptMs } = this.#pending;
    return firstAttemptMs === undefined ? totalTimeoutMs : firstAttemptMs + totalTimeoutMs - this.#host.nowMs();
  }

  /** Aborts the attempt that runs; its end is waited for. Without one, the step has failed. */
  abort(reason: unknown): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    this.#reason = reason;
    this.#current?.abort(reason);
    if (this.#waiting === undefined) return;
    this.#waiting();
    this.#waiting = undefined;
    this.#host.failed(this.#pending, this.#pending.lastError ?? reason);
  }

  /** The run is abandoned here, or does not need the step any more: what the attempt still does is ignored. */
  drop(reason: unknown): void {
    this.#waiting?.();
    this.#waiting = undefined;
    this.#isAborted = true;
    this.#reason = reason;
    this.#current?.end();
    this.#current?.abort(reason);
  }

  /** The attempt that runs now. */
  get current(): Attempt | undefined {
    return this.#current;
  }

  /** The attempt that runs has failed, or took too long. */
  threw(thrown: unknown): void {
    const error = usable(thrown);
    const pending = this.#pending;
    if (error instanceof NotBegun) {
      pending.attempts -= 1;
      this.#tryLater();
      return;
    }
    if (error instanceof NotHere && !this.#isAborted) {
      pending.attempts -= 1;
      this.#host.notHere(pending, error);
      return;
    }
    const misused = (mistake: unknown): void => this.#host.policyThrew(pending, mistake);
    const delayMs = this.#isAborted
      ? null
      : retryDelay(this.#plan, pending.attempts, error, this.#host.random(), misused);
    const { totalTimeoutMs } = this.#plan;
    const isTooLate = totalTimeoutMs !== null && (delayMs ?? 0) >= this.#leftMs(totalTimeoutMs);
    if (delayMs === null || isTooLate) {
      this.#host.failed(pending, error);
      return;
    }
    pending.lastError = error;
    if (delayMs > SHORT_MS) {
      this.#host.postponed(pending, error, delayMs);
      return;
    }
    pending.nextAttemptMs = this.#host.nowMs() + delayMs;
    this.#host.retried(pending, error);
    this.#waiting = this.#host.clock.after(delayMs, () => {
      this.#waiting = undefined;
      this.#try();
    });
  }
}

/** One attempt, and the handle of its function. When it is over, nothing that belongs to it has any effect. */
export class Attempt implements StepHandle {
  readonly #host: StepHost;
  readonly #pending: PendingOperation;
  readonly #plan: StepPlan;
  readonly #step: RunningStep;
  readonly attempt: number;
  /** What the last `heartbeat` of an earlier attempt left. */
  readonly progress: unknown;
  #isOver = false;
  #expired: PromiseWithResolvers<never> | undefined;
  #abort: AbortController | undefined;
  #abortReason: { readonly reason: unknown } | undefined;
  #cancelTimer: () => void = nothing;
  #cancelHeartbeat: () => void = nothing;

  constructor(host: StepHost, pending: PendingOperation, plan: StepPlan, attempt: number, step: RunningStep) {
    this.#host = host;
    this.#pending = pending;
    this.#plan = plan;
    this.attempt = attempt;
    this.progress = pending.progress;
    this.#step = step;
  }

  get key(): string {
    return this.#host.keyOf(this.#pending);
  }

  /** The number of the claim: higher whenever another process has taken the run over. */
  get fence(): number {
    return this.#host.fence;
  }

  /** The store's clock, as well as it is known here. */
  nowMs(): number {
    return this.#host.nowMs();
  }

  /** Created on first use: most steps never use it. Aborted once the attempt is over. */
  get abortSignal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#abortReason !== undefined) this.#abort.abort(this.#abortReason.reason);
      else if (this.#isOver) this.#abort.abort(new AttemptOverError(this.#pending.id, this.attempt));
    }
    return this.#abort.signal;
  }

  /** Created on first use. It can be called without its step. */
  get heartbeat(): (progress?: unknown) => void {
    return (progress) => {
      if (this.#isOver) {
        this.#host.usedLate(this.#pending, this.attempt, "heartbeat()");
        return;
      }
      this.armHeartbeat();
      if (progress !== undefined) this.#host.progressed(this.#pending, progress);
    };
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** The attempt is over; returns false if it already was. */
  end(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    this.disarm();
    return true;
  }

  abort(reason: unknown): void {
    this.#abortReason ??= { reason };
    this.#abort?.abort(reason);
  }

  /** Sets its timer; `limitMs` is what the error says of it. */
  expireAfter(ms: number, limitMs: number): void {
    this.#cancelTimer = this.#host.clock.after(ms, () => this.expire(new StepTimeoutError(this.#pending.id, limitMs)));
  }

  /** Rejects when it has taken too long. */
  get expired(): Promise<never> {
    this.#expired ??= Promise.withResolvers();
    // What waits for it may have settled before.
    this.#expired.promise.catch(nothing);
    return this.#expired.promise;
  }

  /** It took too long: it is over, and aborted. */
  expire(error: StepTimeoutError): void {
    if (!this.end()) return;
    this.abort(error);
    this.#expired?.reject(error);
    this.#step.threw(error);
  }

  armHeartbeat(): void {
    const { heartbeatMs } = this.#plan;
    if (heartbeatMs === null) return;
    this.#cancelHeartbeat();
    this.#cancelHeartbeat = this.#host.clock.after(heartbeatMs, () =>
      this.expire(new StepTimeoutError(this.#pending.id, heartbeatMs, "sent no heartbeat for")),
    );
  }

  /** From here on the attempt cannot time out. */
  disarm(): void {
    this.#cancelTimer();
    this.#cancelHeartbeat();
  }
}

/** A retry policy of the user's that throws, or is async, ends the attempts. */
function retryDelay(
  plan: StepPlan,
  attempt: number,
  error: unknown,
  chance: number,
  misused: (mistake: unknown) => void,
): number | null {
  // A step that runs at most once is not tried again where its outcome is uncertain.
  if (plan.mode.is === "once") return null;
  // A mistake in the code, which is there the next time as well.
  if (error instanceof NestedOperationError || error instanceof ForeignContextError) return null;
  try {
    return decideRetry(plan.retry, attempt, error, chance);
  } catch (mistake) {
    misused(mistake);
    return null;
  }
}

const nothing = (): void => {};

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";
}
