/** A lock inside a decision. */

import type { Tx } from "../kernel/decision.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { LockBusyError } from "./errors.ts";
import { Hold } from "./hold.ts";
import { enter } from "./line.ts";
import type { Locks } from "./locks.ts";
import type { LockSpec } from "./options.ts";
import { lockAt, lockOf, shownLocks } from "./stored.ts";

/** A lock inside a decision: acquired, released or checked in the commit. */
export class TxLock {
  readonly #tx: Tx;
  readonly #locks: Locks;
  readonly #spec: LockSpec;
  readonly #leaseMs: number;

  /** @internal */
  constructor(tx: Tx, locks: Locks, spec: LockSpec, leaseMs: number) {
    this.#tx = tx;
    this.#locks = locks;
    this.#spec = spec;
    this.#leaseMs = leaseMs;
  }

  /** Throws `lock_lost`, which refuses the decision, unless the lock is held under this hold at this commit. */
  check(hold: Hold): void {
    this.#own(hold).checkIn(this.#tx);
  }

  /** Releases it with this commit. */
  release(hold: Hold): { readonly released: boolean } {
    return this.#own(hold).releaseIn(this.#tx);
  }

  /** Whether it is free at this commit, and how many wait. */
  get(): { readonly isFree: boolean; readonly waiting: number } {
    const [ref] = this.#spec.refs;
    const stored = ref === undefined ? undefined : this.#tx.record(lockAt(ref)).value;
    const value = stored === undefined ? undefined : lockOf(stored);
    const held = value?.holders.filter(({ untilMs }) => untilMs === null || this.#tx.nowMs < untilMs) ?? [];
    return { isFree: held.length === 0 && (value?.waiting ?? 0) === 0, waiting: value?.waiting ?? 0 };
  }

  /** Acquires it with this commit and returns ticket and fence. The lease is not renewed. Throws `lock_busy`. */
  take(): { readonly ticket: string; readonly fence: number } {
    const ticket = this.#tx.uuid();
    const request = { ...this.#spec, ticket, leaseMs: this.#leaseMs, declares: false, queue: false };
    const entered = enter(this.#tx, this.#locks.hooks, request);
    if (!entered.granted) throw new LockBusyError(shownLocks(this.#spec.refs));
    return { ticket, fence: entered.fence };
  }

  #own(hold: Hold): Hold {
    if (!(hold instanceof Hold) || !hold.isOf(this.#locks.kernel, this.#spec.refs))
      throw new InvalidArgumentError("the hold", "must be a hold of this handle and this lock, as acquire returns it");
    return hold;
  }
}
