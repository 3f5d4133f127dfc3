/**
 * A wait: a place in line in plain code, kept alive while the process lives.
 *
 * The waiter is notified by the commit that grants it the lock, in this process or another. It renews its place; a process that was paused
 * for longer than its lease has lost its place, and enters the line again. A place that no code waits in is not renewed here (`place.ts`).
 */

import { ClosedError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { RunHooks } from "./drafts.ts";
import { LockBusyError, LockRemovedError } from "./errors.ts";
import type { Hold } from "./hold.ts";
import { type Entered, enter, heldFence, type LockRequest, leave, renewPlace } from "./line.ts";
import { type LockRef, lockAt, shownLocks } from "./stored.ts";
import type { Turns } from "./turns.ts";

export interface WaitHost {
  readonly kernel: Kernel;
  readonly hooks: RunHooks;
  readonly turns: Turns;
  /** Makes the hold, which is renewed from then on. */
  hold(refs: readonly LockRef[], granted: HoldGrant): Hold;
}

export interface HoldGrant {
  readonly ticket: string;
  readonly fence: number;
  readonly leaseMs: number;
  readonly safeUntilMs: number;
}

export class Wait {
  readonly #host: WaitHost;
  #request: LockRequest & { readonly leaseMs: number };
  /** The length of the lock's audit trail when it entered the line. */
  #head: number;
  /** When, by this process's clock, it was last known to be in line and alive. */
  #aliveMs: number;
  readonly #held = Promise.withResolvers<Hold>();
  /** The hold, if the lock was granted and no caller has taken the hold yet. */
  #untaken: Hold | undefined;
  #isOver = false;
  #isAsking = false;
  /** It was notified of something while a renewal was in progress. */
  #mustAskAgain = false;
  #stopWatching: () => void = () => {};
  #cancel: () => void = () => {};

  constructor(host: WaitHost, request: LockRequest & { readonly leaseMs: number }, sentMs: number, head: number) {
    this.#host = host;
    this.#head = head;
    this.#request = request;
    this.#aliveMs = sentMs;
    this.#held.promise.catch(() => {});
    this.#watch();
    this.#standLater();
  }

  get ticket(): string {
    return this.#request.ticket;
  }

  get held(): Promise<Hold> {
    return this.#held.promise;
  }

  /** A caller has taken the hold, and releases it. */
  take(): void {
    this.#untaken = undefined;
  }

  /**
   * Leaves the line. If the lock was granted, perhaps at this moment, the caller gets the hold. If the store fails, the place ends with
   * its lease.
   */
  async leave(reason?: unknown): Promise<Hold | undefined> {
    if (this.#isOver) {
      const untaken = this.#untaken;
      this.take();
      return untaken;
    }
    const { kernel, hooks } = this.#host;
    const { refs, ticket } = this.#request;
    const busy = reason ?? new LockBusyError(shownLocks(refs));
    let fence: number | undefined;
    try {
      fence = await kernel.transact((tx) => {
        const held = heldFence(tx, refs, ticket);
        if (held === undefined) leave(tx, hooks, refs, ticket);
        return held;
      }, this.#keys());
    } catch (error) {
      if (this.#isOver) return this.leave();
      this.drop(busy);
      throw error;
    }
    // It may have been notified of its grant meanwhile.
    if (this.#isOver) return this.leave();
    this.drop(busy);
    return fence === undefined ? undefined : this.#holdUnder(fence);
  }

  /** Ends the wait with this reason: the handle is closed, or the caller gave up. */
  drop(reason: unknown): void {
    if (this.#isOver) return;
    this.#end();
    this.#held.reject(reason);
  }

  #keys(): ReturnType<typeof lockAt>[] {
    return this.#request.refs.map(lockAt);
  }

  #watch(): void {
    const [first] = this.#request.refs;
    if (first === undefined) return;
    this.#stopWatching = this.#host.turns.watch(first, this.ticket, {
      granted: (fence) => this.#win(fence),
      removed: () => void this.#stand(),
      failed: (error) => this.drop(error),
      head: this.#head,
    });
  }

  #standLater(): void {
    const { clock } = this.#host.kernel.ports;
    this.#cancel = clock.after(this.#request.leaseMs / 3, () => void this.#stand());
  }

  /** Renews the place, and finds out whether the lock was granted. */
  async #stand(): Promise<void> {
    if (this.#isAsking) this.#mustAskAgain = true;
    if (this.#isOver || this.#isAsking) return;
    this.#isAsking = true;
    do {
      this.#mustAskAgain = false;
      await this.#ask();
    } while (this.#mustAskAgain && !this.#isOver);
    this.#isAsking = false;
  }

  async #ask(): Promise<void> {
    this.#cancel();
    const { kernel, hooks } = this.#host;
    const { refs, ticket, leaseMs } = this.#request;
    const sentMs = kernel.ports.clock.nowMs();
    try {
      const standing = await kernel.transactUrgently(
        (tx) => renewPlace(tx, hooks, refs, ticket, leaseMs),
        this.#keys(),
      );
      if (this.#isOver) return;
      if (standing.is === "held") return this.#win(standing.fence);
      if (standing.is === "gone") return await this.#lapsed(sentMs);
      this.#aliveMs = sentMs;
    } catch (error) {
      if (error instanceof ClosedError) return this.drop(error);
    }
    if (!this.#isOver) this.#standLater();
  }

  #win(fence: number): void {
    if (this.#isOver) return;
    this.#end();
    this.#untaken = this.#holdUnder(fence);
    this.#held.resolve(this.#untaken);
  }

  /** Its lease as a holder began with the grant, which was after its last renewal in line. */
  #holdUnder(fence: number): Hold {
    const { refs, ticket, leaseMs } = this.#request;
    return this.#host.hold(refs, { ticket, fence, leaseMs, safeUntilMs: this.#aliveMs + leaseMs });
  }

  /** The place is gone. If its lease had ended, it enters the line again; otherwise an operator removed it. */
  async #lapsed(nowMs: number): Promise<void> {
    const { refs, leaseMs } = this.#request;
    if (nowMs < this.#aliveMs + leaseMs) return this.drop(new LockRemovedError(shownLocks(refs)));
    const { kernel, hooks } = this.#host;
    this.#stopWatching();
    this.#request = { ...this.#request, ticket: kernel.ports.chance.uuid() };
    const sentMs = kernel.ports.clock.nowMs();
    const entered: Entered = await kernel.transact((tx) => enter(tx, hooks, this.#request), this.#keys());
    this.#aliveMs = sentMs;
    if (entered.granted) return this.#win(entered.fence);
    this.#head = entered.head;
    this.#watch();
    this.#standLater();
  }

  #end(): void {
    this.#isOver = true;
    this.#cancel();
    this.#stopWatching();
  }
}
