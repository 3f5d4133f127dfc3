/**
 * A wait: a place in line in plain code, kept alive while the process lives.
 *
 * The waiter hears of its turn from the commit that freed the lock, here or elsewhere. It says now and then that it is alive; a process
 * that stood still for longer than its lease has lost its place, and gets in line again. A place that no code waits in is not kept
 * alive here (`place.ts`).
 */

import { ClosedError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { LockBusyError, LockRemovedError } from "./errors.ts";
import type { Hold } from "./hold.ts";
import { type Entered, enter, heldFence, leave, type Request, standOn } from "./line.ts";
import { type LockRef, lockAt, shownLocks } from "./records.ts";
import type { RunHooks } from "./room.ts";
import type { Turns } from "./turns.ts";

export interface WaitHost {
  readonly kernel: Kernel;
  readonly hooks: RunHooks;
  readonly turns: Turns;
  /** Keeps alive what was had. */
  hold(refs: readonly LockRef[], granted: Granted): Hold;
}

export interface Granted {
  readonly ticket: string;
  readonly fence: number;
  readonly leaseMs: number;
  readonly safeUntilMs: number;
}

export class Wait {
  readonly #host: WaitHost;
  #request: Request & { readonly leaseMs: number };
  /** How long the lock's audit trail was when it got in line. */
  #head: number;
  /** When, by this process's clock, it was last known to be in line and alive. */
  #aliveMs: number;
  readonly #held = Promise.withResolvers<Hold>();
  /** Its turn has come, and nobody has taken what it is worth. */
  #untaken: Hold | undefined;
  #isOver = false;
  #isAsking = false;
  /** Something happened since it was last asked. */
  #isNews = false;
  #stopWatching: () => void = () => {};
  #cancel: () => void = () => {};

  constructor(host: WaitHost, request: Request & { readonly leaseMs: number }, sentMs: number, head: number) {
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

  /** Somebody has what was waited for, and gives it back. */
  take(): void {
    this.#untaken = undefined;
  }

  /**
   * Leaves the line. If its turn has come, which may be this very moment, the caller has what it is worth. Where the store does not
   * serve, the place ends with its lease.
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
    // It may have heard of its turn meanwhile.
    if (this.#isOver) return this.leave();
    this.drop(busy);
    return fence === undefined ? undefined : this.#had(fence);
  }

  /** The handle is closed, or nobody waits any more. */
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

  /** Says that it is alive, and learns how it stands. */
  async #stand(): Promise<void> {
    if (this.#isAsking) this.#isNews = true;
    if (this.#isOver || this.#isAsking) return;
    this.#isAsking = true;
    do {
      this.#isNews = false;
      await this.#ask();
    } while (this.#isNews && !this.#isOver);
    this.#isAsking = false;
  }

  async #ask(): Promise<void> {
    this.#cancel();
    const { kernel, hooks } = this.#host;
    const { refs, ticket, leaseMs } = this.#request;
    const sentMs = kernel.ports.clock.nowMs();
    try {
      const standing = await kernel.transactUrgently((tx) => standOn(tx, hooks, refs, ticket, leaseMs), this.#keys());
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
    this.#untaken = this.#had(fence);
    this.#held.resolve(this.#untaken);
  }

  /** Its lease as a holder began when its turn came, which was after it last stood in line. */
  #had(fence: number): Hold {
    const { refs, ticket, leaseMs } = this.#request;
    return this.#host.hold(refs, { ticket, fence, leaseMs, safeUntilMs: this.#aliveMs + leaseMs });
  }

  /** The place is gone. Whoever was late gets in line again; whoever was not has been removed by somebody. */
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
