/**
 * Faults: what can go wrong in a simulated world, the probability of each under a seed, and how often each occurred.
 *
 * Each seed draws its own probabilities, some of them zero: in a world in which everything fails all the time, the programs make too little
 * progress to find errors.
 */

import type { Random } from "./random.ts";

/**
 * Every fault with the highest probability that a seed can draw, for each time it could occur. A fault at zero occurs only where a simulation
 * names it.
 */
const FAULTS = {
  /** A commit or read never reaches the store. */
  lostRequest: 0.05,
  /** The store did it, and the reply is lost. */
  lostReply: 0.08,
  /** The caller has given up on a commit that is still on its way. */
  lateRequest: 0.05,
  /** A reply takes longer than a lease. */
  delay: 0.03,
  /** Calls happen in another order than that in which they were ready. */
  reorder: 0.9,
  /** A timer fires while calls are in progress, as if they took that long. */
  overtake: 0.3,
  /** The process ends, as by kill -9: none of its code runs any more, not even `finally`. */
  crash: 0.02,
  /** The process is suspended, often for longer than its leases, and then resumes without noticing. */
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
  /** The store requires the transaction to be retried. */
  serialization: 0.05,
  /** The store refuses a batch because of one of its rows. */
  poison: 0.05,
  /** A wake-up from another process is lost. */
  lostWake: 0.3,
  /** An external service returns 5xx and does nothing. */
  httpError: 0.15,
  /** An external service does it, and the reply is lost. */
  httpTimeout: 0.1,
  /** An external service does it after its caller has given up. */
  httpLate: 0.1,
  /** A process starts with the previous release. */
  mixedVersions: 0.5,
  /** The store loses its last commits, as by a promotion or a restore, while processes have them in memory. */
  rewind: 0,
} as const;

export type Fault = keyof typeof FAULTS;

export const FAULT_NAMES = Object.keys(FAULTS) as readonly Fault[];

/** The faults that seeds draw: all but those that break a guarantee which most scenarios rely on. */
export const DRAWN_FAULTS = FAULT_NAMES.filter((name) => FAULTS[name] > 0);

export type FaultCounts = Record<Fault, number>;

export const noFaults = (): FaultCounts => Object.fromEntries(FAULT_NAMES.map((name) => [name, 0])) as FaultCounts;

export class Faults {
  readonly #random: Random;
  readonly mix: FaultCounts;
  readonly struck: FaultCounts = noFaults();
  #healed = false;
  /** Called for every fault that occurs, if a trace is kept. */
  onStrike: ((fault: Fault) => void) | undefined;

  constructor(random: Random, fixed: Partial<FaultCounts>) {
    this.#random = random;
    this.mix = noFaults();
    for (const name of DRAWN_FAULTS) {
      const drawn = random.chance(0.4) ? 0 : FAULTS[name] * random.unit();
      this.mix[name] = fixed[name] ?? drawn;
    }
    this.mix.rewind = fixed.rewind ?? 0;
  }

  /** Draws whether the fault occurs here, and counts it. */
  strikes(name: Fault): boolean {
    if (this.#healed || !this.#random.chance(this.mix[name])) return false;
    this.struck[name] += 1;
    this.onStrike?.(name);
    return true;
  }

  /** Ends all faults. */
  heal(): void {
    this.#healed = true;
  }

  get healed(): boolean {
    return this.#healed;
  }
}
