/**
 * Ports: all nondeterministic inputs of the kernel, except the store itself.
 *
 * `src/node/` has the real ones; the simulator has its own. Local time is for waiting only. Whether a lease has ended is
 * always decided by the store's clock.
 */

import type { HttpClient } from "./http.ts";

export interface Clock {
  /** This process's clock, in milliseconds. */
  nowMs(): number;
  /** Calls back once after `ms`, never early, for any length. Returns a function that cancels it. */
  after(ms: number, callback: () => void): () => void;
  /** Calls back after everything that is already queued in this process's event loop has run. */
  soon(callback: () => void): void;
}

export interface Chance {
  /** At least 0, below 1. */
  random(): number;
  /** An unguessable id. */
  uuid(): string;
  /** An unguessable id that sorts roughly by creation time, so that a store keeps new names close together. */
  orderedId?(): string;
  /** A whole number below 2^53 that is almost never drawn twice, by any process. Default: derived from `random`. */
  stamp?(): number;
}

export interface Ports {
  readonly clock: Clock;
  readonly chance: Chance;
  /** Runs a decision so that using ambient time, randomness or I/O throws. If it is given, each decision runs twice. */
  readonly trap?: (<T>(decision: () => T) => T) | undefined;
  /** Knows which code belongs to the body of a workflow, or to one of its steps, also after an await. */
  readonly bodies?: Scope<RunLocation> | undefined;
  /** Knows which locks were acquired around the calling code, also after an await. */
  readonly holding?: Scope<readonly HeldLock[]> | undefined;
  /**
   * The lease of records that a worker holds all the time, as to follow events. For a process that cannot die, so that nothing needs to be renewed.
   * Default: that of the worker.
   */
  readonly standingLeaseMs?: number | undefined;
  /** Reports code that blocks the process for longer than `limitMs`. */
  readonly watchdog?: ((limitMs: number) => Watchdog) | undefined;
  /** Opens a client for outgoing HTTP. */
  readonly http?: (() => HttpClient) | undefined;
}

/** The part of a run that code belongs to: the workflow's body, or a step. */
export interface RunLocation {
  readonly run: string;
  readonly step?: string | undefined;
}

/** A lock that was acquired around code. Timers and promises that the code started may outlive the hold. */
export interface HeldLock {
  /** The lock's address. */
  readonly text: string;
  readonly isHeld: boolean;
}

/** A value that follows the code through its awaits, as `AsyncLocalStorage` does. */
export interface Scope<Known> {
  run<T>(known: Known, code: () => T): T;
  current(): Known | undefined;
}

export interface Watchdog {
  /** Names the code that runs from now on, for the report. */
  running(label: string | undefined): void;
  stop(): void;
}

/** Resolves after `ms`, or as soon as the signal aborts. */
export function pause(clock: Clock, ms: number, abortSignal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (abortSignal?.aborted) return resolve();
    const done = () => {
      cancel();
      abortSignal?.removeEventListener("abort", done);
      resolve();
    };
    const cancel = clock.after(ms, done);
    abortSignal?.addEventListener("abort", done);
  });
}
