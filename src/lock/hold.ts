/**
 * A hold: the right to a lock in plain code, kept alive while the process lives.
 *
 * Its lease is renewed by itself. When it is lost, because the process stood still, the store was away for too long, or somebody forced
 * its release, `abortSignal` aborts. That is a courtesy: code that is paused hears of it late. What cannot be late is the fence, if the
 * protected resource checks it.
 */

import type { Tx } from "../kernel/decision.ts";
import { ClosedError, LeaseUncertainError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { HeldLock } from "../kernel/ports.ts";
import { LockLostError } from "./errors.ts";
import { heldFence, leave, renew } from "./line.ts";
import { isSameLock, type LockRef, lockAt, shownLocks } from "./records.ts";
import type { RunHooks } from "./room.ts";

/** What a holder of locks in this process shares with the others. */
export interface HoldHost {
  readonly kernel: Kernel;
  readonly hooks: RunHooks;
  /** It holds nothing any more. */
  ended(hold: Hold): void;
}

export class Hold {
  /** Strictly above that of everybody who held it before: hand it to what the lock protects. */
  readonly fence: number;
  /** Names this hold, as `inspect` shows it. */
  readonly ticket: string;
  readonly #host: HoldHost;
  readonly #refs: readonly LockRef[];
  readonly #leaseMs: number;
  /** Until then, by this process's clock, it is surely not another's. */
  #safeUntilMs: number;
  #abort: AbortController | undefined;
  #reason: unknown;
  #isOver = false;
  #cancel: () => void = () => {};
  #disarm: () => void = () => {};

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
    this.#leaseMs = held.leaseMs;
    this.#safeUntilMs = held.safeUntilMs;
    this.#renewLater();
  }

  /** Aborts when the lock is lost, or may be; the reason says which. */
  get abortSignal(): AbortSignal {
    // It may have been granted so long ago, and only now be heard of, that nobody was in time to watch it.
    if (this.#host.kernel.ports.clock.nowMs() >= this.#safeUntilMs) this.#lose(new LeaseUncertainError());
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#reason !== undefined) this.#abort.abort(this.#reason);
    }
    return this.#abort.signal;
  }

  /** Holds on for another lease, which happens by itself anyway. Answers whether it is still held. */
  async renew(): Promise<boolean> {
    if (this.#isOver) return false;
    const { kernel, hooks } = this.#host;
    // Counted from before it was asked for: the store's lease began no earlier.
    const safeUntilMs = kernel.ports.clock.nowMs() + this.#leaseMs;
    const isHeld = await kernel.transactUrgently(
      (tx) => renew(tx, hooks, this.#refs, this.ticket, this.#leaseMs),
      this.#refs.map(lockAt),
    );
    if (this.#isOver) return false;
    if (isHeld) {
      this.#safeUntilMs = safeUntilMs;
      this.#disarm();
    } else this.#lose(this.lostError());
    return isHeld;
  }

  /** Gives it back; whoever is first in line has it from the same commit on. Harmless when it is not held any more. */
  async release(): Promise<{ readonly released: boolean }> {
    this.#end();
    const { kernel, hooks } = this.#host;
    return kernel.transact((tx) => leave(tx, hooks, this.#refs, this.ticket), this.#refs.map(lockAt));
  }

  /** The same in a decision. @internal */
  releaseIn(tx: Tx): { readonly released: boolean } {
    return leave(tx, this.#host.hooks, this.#refs, this.ticket);
  }

  /** Throws, in a decision, unless it is held. @internal */
  checkIn(tx: Tx): void {
    if (heldFence(tx, this.#refs, this.ticket) !== this.fence) throw this.lostError();
  }

  /** Whether it is of this handle, and of these locks. @internal */
  isOf(kernel: Kernel, refs: readonly LockRef[]): boolean {
    const isSame = refs.length === this.#refs.length && refs.every((ref, index) => isSameLock(ref, this.#refs[index]));
    return this.#host.kernel === kernel && isSame;
  }

  /** Why it was lost; undefined while it is held. @internal */
  get lostReason(): unknown {
    return this.#reason;
  }

  /** As the code under it sees one of its locks. @internal */
  as(text: string): HeldLock {
    const isOver = (): boolean => this.#isOver;
    return {
      text,
      get isHeld() {
        return !isOver();
      },
    };
  }

  /** @internal */
  lostError(): LockLostError {
    return new LockLostError(shownLocks(this.#refs), this.fence);
  }

  /** It may have been taken away: the store is asked. @internal */
  suspect(): void {
    // Where the store does not serve, the lease decides.
    this.renew().catch(() => {});
  }

  /** Its release was forced. @internal */
  forced(): void {
    this.#lose(this.lostError());
  }

  /** The lock that stands for all of them. @internal */
  get ref(): LockRef {
    return this.#refs[0] as LockRef;
  }

  /** The handle is closed. @internal */
  drop(): void {
    this.#lose(new ClosedError());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #renewLater(): void {
    const { clock } = this.#host.kernel.ports;
    const leftMs = this.#safeUntilMs - clock.nowMs();
    this.#cancel = clock.after(Math.max(0, leftMs - (2 * this.#leaseMs) / 3), () => {
      this.#arm();
      void this.#renewQuietly();
    });
  }

  /** A lease that is not renewed by its end may be another's, whatever the store would say. */
  #arm(): void {
    const { clock } = this.#host.kernel.ports;
    this.#disarm = clock.after(Math.max(0, this.#safeUntilMs - clock.nowMs()), () =>
      this.#lose(new LeaseUncertainError()),
    );
  }

  async #renewQuietly(): Promise<void> {
    try {
      await this.renew();
    } catch (error) {
      if (error instanceof ClosedError) this.#lose(error);
      else await this.#breathe();
    }
    if (!this.#isOver) this.#renewLater();
  }

  /** The store does not serve; it is asked again soon, until the lease is over. */
  #breathe(): Promise<void> {
    return new Promise((resolve) => {
      this.#disarm();
      this.#arm();
      this.#host.kernel.ports.clock.after(Math.min(1000, this.#leaseMs / 10), resolve);
    });
  }

  #lose(reason: unknown): void {
    if (this.#isOver) return;
    this.#reason = reason;
    this.#end();
    this.#abort?.abort(reason);
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancel();
    this.#disarm();
    this.#host.ended(this);
  }
}
