/**
 * A worker: a loop that claims due records of some kinds and hands each to a function, so many at a time.
 *
 * It sleeps until it is woken by a commit that makes something due (its own process's at once, another's through the store's
 * watch), until the next timer, or until a slow poll that makes up for lost wake-ups. While the function works, the lease is
 * renewed; when it is lost, or cannot be renewed in time, `abortSignal` tells the function to stop.
 *
 * A function that throws leaves its record due again later, with a growing delay; one that dies with its process leaves it to
 * the end of the lease. Both are counted in `tries`.
 */

import { FencedError, LeaseUncertainError } from "../errors.ts";
import type { Kernel } from "../kernel.ts";
import { pause } from "../ports.ts";
import { claimDue, type Held } from "./claim.ts";

export interface WorkerOptions {
  readonly kinds: readonly string[];
  /** Names this worker among its peers. */
  readonly by: string;
  readonly leaseMs?: number;
  readonly concurrency?: number;
  /** The slow poll for wake-ups that were lost. */
  readonly pollMs?: number;
  /** Must end with `held.rest`, or by removing the record; what it leaves held comes due when the lease ends. */
  readonly work: (held: Held, abortSignal: AbortSignal) => Promise<void>;
  /** Told of what `work` threw and what the worker could not do. */
  readonly failed?: (error: unknown) => void;
}

/** Renewals go in groups, so that a worker with thousands of records does not fill a whole batch with them. */
const RENEW_AT_ONCE = 200;

const RETRY_MS = { first: 100, longest: 60_000 };

export class Worker {
  readonly #kernel: Kernel;
  readonly #options: Required<Omit<WorkerOptions, "failed">> & Pick<WorkerOptions, "failed">;
  readonly #working = new Map<Held, { abort: AbortController; safeUntilMs: number }>();
  readonly #stopping = new AbortController();
  #nudge: AbortController = new AbortController();
  readonly #ended: Promise<unknown>;

  constructor(kernel: Kernel, options: WorkerOptions) {
    this.#kernel = kernel;
    this.#options = { leaseMs: 30_000, concurrency: 10, pollMs: 5_000, ...options };
    this.#ended = Promise.all([this.#claimLoop(), this.#renewLoop()]);
  }

  /** Takes no more, and waits for what is being worked on. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wakeUp();
    await this.#ended;
  }

  get #stopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  #wakeUp(): void {
    this.#nudge.abort();
  }

  async #claimLoop(): Promise<void> {
    const { kinds, by, leaseMs, concurrency, pollMs } = this.#options;
    const { clock } = this.#kernel.ports;
    const unlisten = this.#kernel.listen((puts) => {
      if (puts === undefined) this.#wakeUp();
      else if (puts.some(({ row }) => row.holder === null && row.kind !== null && kinds.includes(row.kind)))
        this.#wakeUp();
    });
    while (!this.#stopped) {
      // Made before looking, so that what comes due while looking is not slept over.
      this.#nudge = new AbortController();
      const free = concurrency - this.#working.size;
      let waitMs = pollMs;
      if (free > 0) {
        try {
          const startedMs = clock.nowMs();
          const { held, nextInMs } = await claimDue(this.#kernel, { kinds, by, leaseMs, limit: free });
          for (const one of held) void this.#work(one, startedMs + leaseMs);
          if (held.length > 0) continue;
          if (nextInMs !== null) waitMs = Math.min(waitMs, Math.max(1, nextInMs));
        } catch (error) {
          this.#failed(error);
        }
      }
      await pause(clock, waitMs, this.#nudge.signal);
    }
    unlisten();
    while (this.#working.size > 0) {
      this.#nudge = new AbortController();
      await pause(clock, pollMs, this.#nudge.signal);
    }
  }

  async #work(held: Held, safeUntilMs: number): Promise<void> {
    const abort = new AbortController();
    this.#working.set(held, { abort, safeUntilMs });
    try {
      await this.#options.work(held, abort.signal);
    } catch (error) {
      this.#failed(error);
      if (!(error instanceof FencedError)) await this.#putBack(held);
    }
    held.abandon();
    this.#working.delete(held);
    this.#wakeUp();
  }

  /** After a failure: due again later, unless somebody else has it by now. */
  async #putBack(held: Held): Promise<void> {
    const delayMs = Math.min(RETRY_MS.longest, RETRY_MS.first * 2 ** Math.min(held.tries - 1, 20));
    try {
      await held.commit((record, tx) => record.write({ holder: null, dueMs: tx.nowMs + delayMs }));
    } catch (error) {
      this.#failed(error);
    }
  }

  async #renewLoop(): Promise<void> {
    const { leaseMs } = this.#options;
    const { clock } = this.#kernel.ports;
    while (!this.#stopped || this.#working.size > 0) {
      await pause(clock, leaseMs / 3, this.#stopped ? this.#nudge.signal : this.#stopping.signal);
      const working = [...this.#working];
      for (let from = 0; from < working.length; from += RENEW_AT_ONCE)
        await Promise.all(working.slice(from, from + RENEW_AT_ONCE).map(([held]) => this.#renew(held)));
    }
  }

  async #renew(held: Held): Promise<void> {
    const state = this.#working.get(held);
    if (state === undefined) return;
    const { leaseMs } = this.#options;
    const { clock } = this.#kernel.ports;
    const startedMs = clock.nowMs();
    // The lease is good until its end, counted from before it was asked for; a store that does not answer by then ends the work.
    const cancel = clock.after(Math.max(0, state.safeUntilMs - startedMs), () =>
      state.abort.abort(new LeaseUncertainError()),
    );
    try {
      await held.renew(leaseMs);
      state.safeUntilMs = startedMs + leaseMs;
    } catch (error) {
      if (error instanceof FencedError) state.abort.abort(error);
      else this.#failed(error);
    }
    cancel();
  }

  #failed(error: unknown): void {
    this.#options.failed?.(error);
  }
}
