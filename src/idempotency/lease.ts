/**
 * Keeping a lease while work is under way: it is renewed at each third of its length. When it is lost, or could not be renewed in time,
 * `abortSignal` tells the work to stop. Most work is done before the first renewal, and costs one timer.
 */

import type { Held } from "../kernel/claim/claim.ts";
import { FencedError, LeaseUncertainError } from "../kernel/errors.ts";
import type { Clock } from "../kernel/ports.ts";

export class LeaseKeeper {
  readonly #clock: Clock;
  readonly #held: Held;
  readonly #leaseMs: number;
  /** Until then, by this process's clock, the lease is surely not another's. */
  #safeUntilMs: number;
  #abort: AbortController | undefined;
  #lost: { readonly reason: unknown } | undefined;
  #cancelRenewal: () => void = () => {};
  #cancelAlarm: () => void = () => {};
  #isOver = false;

  /** `safeUntilMs` is counted from before the lease was asked for: the store's began no earlier. */
  constructor(clock: Clock, held: Held, leaseMs: number, safeUntilMs: number) {
    this.#clock = clock;
    this.#held = held;
    this.#leaseMs = leaseMs;
    this.#safeUntilMs = safeUntilMs;
    this.#renewLater();
  }

  get abortSignal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#lost !== undefined) this.#abort.abort(this.#lost.reason);
    }
    return this.#abort.signal;
  }

  /** Renews no more; what is held is held until the lease ends. */
  stop(): void {
    this.#isOver = true;
    this.#cancelRenewal();
    this.#cancelAlarm();
  }

  #renewLater(): void {
    this.#cancelRenewal = this.#clock.after(this.#leaseMs / 3, () => {
      this.#arm();
      void this.#renew();
    });
  }

  /** A lease that is not renewed by its end may be another's, whatever the store would say. */
  #arm(): void {
    this.#cancelAlarm();
    const leftMs = Math.max(0, this.#safeUntilMs - this.#clock.nowMs());
    this.#cancelAlarm = this.#clock.after(leftMs, () => this.#lose(new LeaseUncertainError()));
  }

  async #renew(): Promise<void> {
    const safeUntilMs = this.#clock.nowMs() + this.#leaseMs;
    try {
      await this.#held.renew(this.#leaseMs);
      this.#safeUntilMs = safeUntilMs;
      if (!this.#isOver) this.#arm();
    } catch (error) {
      // A store that is away may be back before the lease ends.
      if (error instanceof FencedError) this.#lose(error);
    }
    if (!this.#isOver) this.#renewLater();
  }

  #lose(reason: unknown): void {
    if (this.#isOver) return;
    this.stop();
    this.#lost = { reason };
    this.#abort?.abort(reason);
  }
}
