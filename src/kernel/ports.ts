/**
 * Ports: everything the kernel takes from the world that is not deterministic, except the store itself.
 *
 * `src/node/` has the real ones; the simulator has its own. Local time is for waiting only. Whether a lease has ended is
 * always asked of the store's clock.
 */

export interface Clock {
  /** This process's clock, in milliseconds. */
  nowMs(): number;
  /** Calls back once after this long; answers how to cancel. Never early, and right for any length. */
  after(ms: number, callback: () => void): () => void;
  /** Calls back as soon as everything that is already under way in this process has had its turn. */
  soon(callback: () => void): void;
}

export interface Chance {
  /** At least 0, below 1. */
  random(): number;
  /** An unguessable id. */
  uuid(): string;
  /** The same, but in about the order in which they are made: a store keeps such names side by side. */
  orderedId?(): string;
  /** A whole number below 2^53 that is hardly ever drawn twice, by any process. Default: made of `random`. */
  stamp?(): number;
}

export interface Ports {
  readonly clock: Clock;
  readonly chance: Chance;
  /** Runs a decision so that reaching for ambient time, chance or I/O throws. Where it is given, each decision runs twice. */
  readonly trap?: (<T>(decision: () => T) => T) | undefined;
  /** Knows which code is part of the function of a workflow, or of one of its steps, also after it has awaited something. */
  readonly bodies?: Scope<RunPlace> | undefined;
  /** Knows which locks were taken around the calling code, also after it has awaited something. */
  readonly holding?: Scope<readonly HeldLock[]> | undefined;
  /** Watches over code that blocks the process for longer than this. */
  readonly watchdog?: ((limitMs: number) => Watchdog) | undefined;
}

/** Where code is that belongs to a run: in the function of its workflow, or in that of a step. */
export interface RunPlace {
  readonly run: string;
  readonly step?: string | undefined;
}

/** A lock that was taken around code. What the code has set going may outlive it. */
export interface HeldLock {
  /** The lock's address. */
  readonly text: string;
  readonly isHeld: boolean;
}

/** Something that is known to code wherever it goes on from here, and to nobody else. */
export interface Scope<Known> {
  run<T>(known: Known, code: () => T): T;
  current(): Known | undefined;
}

export interface Watchdog {
  /** Says whose code runs from now on, for the report. */
  running(label: string | undefined): void;
  stop(): void;
}

/** Resolves after this long, or as soon as the signal aborts. */
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
