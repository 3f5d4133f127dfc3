/**
 * A hold: the right to a lock in plain code, kept alive while the process lives.
 *
 * Its lease is renewed automatically. When it is lost, because the process was paused, the store was unreachable for too long, or an operator
 * forced its release, `abortSignal` aborts. That may come too late for code that is paused. The fence is never too late, if the protected
 * resource checks it.
 */

import type { Tx } from "../kernel/decision.ts";
import { ClosedError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Lease } from "../kernel/lease.ts";
import type { HeldLock } from "../kernel/ports.ts";
import type { RunHooks } from "./drafts.ts";
import { LockLostError } from "./errors.ts";
import { heldFence, leave, renew } from "./line.ts";
import { isSameLock, type LockRef, lockAt, shownLocks } from "./stored.ts";

/** What all holds of a handle share. */
export interface HoldHost {
  readonly kernel: Kernel;
  readonly hooks: RunHooks;
  /** The hold has ended. */
  ended(hold: Hold): void;
}

export class Hold {
  /** Strictly above the fences of all earlier holders: pass it to the resource that the lock protects. */
  readonly fence: number;
  /** The id of this hold, as `inspect` shows it. */
  readonly ticket: string;
  readonly #host: HoldHost;
  readonly #refs: readonly LockRef[];
  readonly #lease: Lease;

  /** @internal */
  constructor(
    host: HoldHost,
    refs: readonly LockRef[],
    held: {
      readonly ticket: string;
      readonly fence: number;
      readonly leaseMs: number;
      readonly safeUntilMs: number;
    },
  ) {
    this.#host = host;
    this.#refs = refs;
    this.ticket = held.ticket;
    this.fence = held.fence;
    const { leaseMs, safeUntilMs } = held;
    this.#lease = host.kernel.leases.keep({
      leaseMs,
      safeUntilMs,
      renew: () => this.#renew(leaseMs),
      lost: () => host.ended(this),
    });
  }

  /** Aborts when the lock is lost, or may be; the reason says which. */
  get abortSignal(): AbortSignal {
    return this.#lease.abortSignal;
  }

  /** Renews the lease now, which also happens automatically. Returns whether the lock is still held. */
  renew(): Promise<boolean> {
    return this.#lease.renew();
  }

  async #renew(leaseMs: number): Promise<LockLostError | undefined> {
    const { kernel, hooks } = this.#host;
    const isHeld = await kernel.transactUrgently(
      (tx) => renew(tx, hooks, this.#refs, this.ticket, leaseMs),
      this.#refs.map(lockAt),
    );
    return isHeld ? undefined : this.lostError();
  }

  /** Releases the lock; the same commit grants it to the first in line. Does nothing if it is no longer held. */
  async release(): Promise<{ readonly released: boolean }> {
    if (!this.#lease.isOver) {
      this.#lease.stop();
      this.#host.ended(this);
    }
    const { kernel, hooks } = this.#host;
    return kernel.transact((tx) => leave(tx, hooks, this.#refs, this.ticket), this.#refs.map(lockAt));
  }

  /** Releases the lock in a decision. @internal */
  releaseIn(tx: Tx): { readonly released: boolean } {
    return leave(tx, this.#host.hooks, this.#refs, this.ticket);
  }

  /** Throws `lock_lost` in a decision unless the lock is held. @internal */
  checkIn(tx: Tx): void {
    if (heldFence(tx, this.#refs, this.ticket) !== this.fence) throw this.lostError();
  }

  /** Whether it belongs to this handle and these locks. @internal */
  isOf(kernel: Kernel, refs: readonly LockRef[]): boolean {
    const isSame = refs.length === this.#refs.length && refs.every((ref, index) => isSameLock(ref, this.#refs[index]));
    return this.#host.kernel === kernel && isSame;
  }

  /** Why it was lost; undefined while it is held. @internal */
  get lostReason(): unknown {
    return this.#lease.lostReason;
  }

  /** One of its locks, for code that runs under it. @internal */
  as(text: string): HeldLock {
    const lease = this.#lease;
    return {
      text,
      get isHeld() {
        return !lease.isOver;
      },
    };
  }

  /** @internal */
  lostError(): LockLostError {
    return new LockLostError(shownLocks(this.#refs), this.fence);
  }

  /** Its release may have been forced: asks the store. @internal */
  suspect(): void {
    // If the store fails, the lease decides.
    this.renew().catch(() => {});
  }

  /** Its release was forced. @internal */
  forced(): void {
    this.#lease.lose(this.lostError());
  }

  /** The lock that stands for all of them. @internal */
  get ref(): LockRef {
    return this.#refs[0] as LockRef;
  }

  /** The handle is closed. @internal */
  drop(): void {
    this.#lease.lose(new ClosedError());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}
