/**
 * Leases that this process keeps: of claimed records, of locks in plain code, of idempotency keys.
 *
 * A lease is renewed when a third of it has passed. When the store does not serve, it is asked again soon, until the lease has ended. Then
 * the lease may belong to another process, whatever the store would say: it is lost. Code that works under a lease learns that it is lost
 * from `abortSignal`, which also looks at the clock when it is read, or from `lost`.
 *
 * Most work is done long before its lease must be renewed, so a lease gets timers of its own only if it lasts. Until then, all leases
 * of one length share a timer.
 *
 * Guarantee: `safeUntilMs` is counted from before the store was asked, and the store's lease began no earlier, so by this process's clock no
 * other process holds the lease before that time (G6, G8). A paused process notices late: the fence is what refuses its writes.
 */

import { ClosedError, FencedError, LeaseUncertainError } from "./errors.ts";
import type { Clock } from "./ports.ts";

export interface LeaseTerms {
  readonly leaseMs: number;
  /** Until then, by this process's clock, no other process holds it. */
  readonly safeUntilMs: number;
  /** Asks the store for another lease. Returns undefined, or why the lease is lost; rejects where the store could not say. */
  renew(): Promise<unknown>;
  /** Called once, when the lease is lost. */
  readonly lost?: ((reason: unknown) => void) | undefined;
  /** Receives the errors of renewals that are tried again. */
  readonly failed?: ((error: unknown) => void) | undefined;
}

/** Where a store that did not serve is asked again, at the latest. */
const RETRY_MS = 1000;

/** For how much of its length a lease is young. With the usual lengths this is the length of no poll, which clocks of tests pass over. */
const YOUNG = 0.17;

/** The leases of one handle. */
export class Leases {
  readonly clock: Clock;
  /** Leases that began a moment ago, by their length. */
  readonly #young = new Map<number, { readonly leases: Set<Lease>; readonly cancel: () => void }>();

  constructor(clock: Clock) {
    this.clock = clock;
  }

  /** Keeps a lease until `stop`. */
  keep(terms: LeaseTerms): Lease {
    const lease = new Lease(this, terms);
    if (terms.safeUntilMs - this.clock.nowMs() < terms.leaseMs / 2) lease.grow();
    else this.#add(lease, terms.leaseMs);
    return lease;
  }

  #add(lease: Lease, leaseMs: number): void {
    const young = this.#young.get(leaseMs);
    if (young !== undefined) {
      young.leases.add(lease);
      return;
    }
    const leases = new Set([lease]);
    const cancel = this.clock.after(YOUNG * leaseMs, () => {
      this.#young.delete(leaseMs);
      for (const one of leases) one.grow();
    });
    this.#young.set(leaseMs, { leases, cancel });
  }

  /** The lease has ended while it was young. */
  remove(lease: Lease, leaseMs: number): void {
    const young = this.#young.get(leaseMs);
    if (young?.leases.delete(lease) !== true || young.leases.size > 0) return;
    young.cancel();
    this.#young.delete(leaseMs);
  }
}

/** One lease, from the commit that granted it until `stop`, or until it is lost. */
export class Lease {
  readonly #leases: Leases;
  readonly #terms: LeaseTerms;
  #safeUntilMs: number;
  #isYoung = true;
  #isOver = false;
  #reason: unknown;
  #abort: AbortController | undefined;
  #cancelRenewal: () => void = nothing;
  #cancelAlarm: () => void = nothing;

  constructor(leases: Leases, terms: LeaseTerms) {
    this.#leases = leases;
    this.#terms = terms;
    this.#safeUntilMs = terms.safeUntilMs;
  }

  /** Until then, by this process's clock, no other process holds it. */
  get safeUntilMs(): number {
    return this.#safeUntilMs;
  }

  /** It is lost, or no longer kept. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Why it was lost; undefined if it was not. */
  get lostReason(): unknown {
    return this.#reason;
  }

  /** Aborts when the lease is lost, or may be; the reason says which. */
  get abortSignal(): AbortSignal {
    // The process may have been paused, so that no timer was in time.
    if (this.#leases.clock.nowMs() >= this.#safeUntilMs) this.lose(new LeaseUncertainError());
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#reason !== undefined) this.#abort.abort(this.#reason);
    }
    return this.#abort.signal;
  }

  /** Renews it now. Returns whether it is still held; rejects where the store could not say. */
  async renew(): Promise<boolean> {
    if (this.#isOver) return false;
    // From before the store is asked: its lease begins no earlier.
    const safeUntilMs = this.#leases.clock.nowMs() + this.#terms.leaseMs;
    const reason = await this.#terms.renew();
    if (this.#isOver) return false;
    if (reason !== undefined) {
      this.lose(reason);
      return false;
    }
    this.#safeUntilMs = safeUntilMs;
    if (!this.#isYoung) this.#setAlarm();
    return true;
  }

  lose(reason: unknown): void {
    if (this.#isOver) return;
    this.#reason = reason;
    this.stop();
    this.#abort?.abort(reason);
    this.#terms.lost?.(reason);
  }

  /** Renews it no more: it ends by itself, unless it is released. */
  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#isYoung) this.#leases.remove(this, this.#terms.leaseMs);
    this.#cancelRenewal();
    this.#cancelAlarm();
  }

  /** It has lasted: from now on it has timers of its own. @internal */
  grow(): void {
    this.#isYoung = false;
    if (this.#isOver) return;
    this.#setAlarm();
    this.#renewInTime();
  }

  #setAlarm(): void {
    const { leaseMs } = this.#terms;
    this.#cancelAlarm();
    this.#cancelAlarm = this.#leases.clock.after(this.#leftMs(leaseMs), () => this.lose(new LeaseUncertainError()));
  }

  #renewInTime(): void {
    this.#renewAfter(this.#leftMs(this.#terms.leaseMs / 3));
  }

  /** How long it is until `partMs` of the lease have passed. Never longer than that, also if the clock of this process was set back. */
  #leftMs(partMs: number): number {
    const untilMs = this.#safeUntilMs - this.#terms.leaseMs + partMs;
    return Math.min(partMs, Math.max(0, untilMs - this.#leases.clock.nowMs()));
  }

  #renewAfter(ms: number): void {
    if (this.#isOver) return;
    this.#cancelRenewal = this.#leases.clock.after(ms, () => void this.#renewByItself());
  }

  async #renewByItself(): Promise<void> {
    try {
      await this.renew();
      this.#renewInTime();
    } catch (error) {
      if (error instanceof ClosedError) return this.lose(error);
      this.#terms.failed?.(error);
      this.#renewAfter(Math.min(RETRY_MS, this.#terms.leaseMs / 10));
    }
  }
}

const nothing = (): void => {};

/** For `LeaseTerms.renew`: being fenced is why a lease is lost, and no failure of the store. */
export async function fencedOrRenewed(renewal: Promise<void>): Promise<FencedError | undefined> {
  try {
    await renewal;
    return undefined;
  } catch (error) {
    if (error instanceof FencedError) return error;
    throw error;
  }
}
