/**
 * Faults: what can go wrong in a simulated world, how likely each is under a seed, and how often each struck.
 *
 * Each seed draws its own mix, with some faults at zero: a world in which everything fails all the time never gets far
 * enough to break.
 */

import type { Random } from "./random.ts";

/**
 * Every fault with the highest probability that a seed may draw for it, at each chance it has to strike. One at zero strikes only where a
 * simulation names it.
 */
const FAULTS = {
  /** A commit or read never reaches the store. */
  lostRequest: 0.05,
  /** The store did it, and the answer never comes: the cruellest one. */
  lostReply: 0.08,
  /** The caller has given up on a commit that is still on its way. */
  lateRequest: 0.05,
  /** An answer takes longer than a lease. */
  delay: 0.03,
  /** Something else goes first than what was ready first. */
  reorder: 0.9,
  /** A timer fires while calls are under way, as if they took that long. */
  overtake: 0.3,
  /** The process is gone, as by kill -9: nothing of it runs any more, no `finally` either. */
  crash: 0.02,
  /** The process stands still, often longer than its leases, and then goes on as if nothing had been. */
  pause: 0.02,
  /** A process's clock is off by up to an hour. */
  clockSkew: 0.5,
  /** A process's clock jumps, forward or back. */
  clockJump: 0.02,
  /** The store's clock jumps, forward or back. */
  storeClockJump: 0.01,
  /** The store is busy, or another holds the lock of a row. */
  busy: 0.08,
  /** The disk is full for a while. */
  diskFull: 0.01,
  /** The store asks for the transaction to be run again. */
  serialization: 0.05,
  /** The store refuses a batch because of one of its rows. */
  poison: 0.05,
  /** A wake-up from another process is lost. */
  lostWake: 0.3,
  /** An outside service answers 5xx, with nothing done. */
  httpError: 0.15,
  /** An outside service never answers, whether it did it or not. */
  httpTimeout: 0.1,
  /** An outside service does it after its caller has given up. */
  httpLate: 0.1,
  /** A process starts as the release before this one. */
  mixedVersions: 0.5,
  /** The store loses its last commits, as by a promotion or a restore, while processes remember them. */
  rewind: 0,
} as const;

export type Fault = keyof typeof FAULTS;

export const FAULT_NAMES = Object.keys(FAULTS) as readonly Fault[];

/** Faults that seeds draw by themselves: all but those that break a promise which most scenarios rely on. */
export const DRAWN_FAULTS = FAULT_NAMES.filter((name) => FAULTS[name] > 0);

export type FaultCounts = Record<Fault, number>;

export const noFaults = (): FaultCounts => Object.fromEntries(FAULT_NAMES.map((name) => [name, 0])) as FaultCounts;

export class Faults {
  readonly #random: Random;
  readonly mix: FaultCounts;
  readonly struck: FaultCounts = noFaults();
  #healed = false;
  /** Told of every fault that strikes, where a trace is kept. */
  told: ((fault: Fault) => void) | undefined;

  constructor(random: Random, fixed: Partial<FaultCounts>) {
    this.#random = random;
    this.mix = noFaults();
    for (const name of DRAWN_FAULTS) {
      const drawn = random.chance(0.4) ? 0 : FAULTS[name] * random.unit();
      this.mix[name] = fixed[name] ?? drawn;
    }
    this.mix.rewind = fixed.rewind ?? 0;
  }

  /** Whether the fault strikes here; counted if it does. */
  strikes(name: Fault): boolean {
    if (this.#healed || !this.#random.chance(this.mix[name])) return false;
    this.struck[name] += 1;
    this.told?.(name);
    return true;
  }

  /** From now on nothing goes wrong. */
  heal(): void {
    this.#healed = true;
  }

  get healed(): boolean {
    return this.#healed;
  }
}
