/**
 * A place in line in plain code, taken without waiting.
 *
 * It has a lease that only the caller renews: a place whose owner forgot it, or died, ends with its lease. When the lock is granted, the
 * hold has the same lease, and ends in the same way unless the caller renews it or calls `acquire`. After `acquire`, the wait, and then the
 * hold, are renewed automatically while the process lives.
 */

import { checkAbortSignal, checkOptions } from "../kernel/check.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { awaitTurn, timeoutOf, WAIT_OPTIONS, type WaitOptions } from "./await-turn.ts";
import { LockRemovedError, PlaceLostError } from "./errors.ts";
import type { Hold } from "./hold.ts";
import { type LockRequest, leave, renewPlace, type Standing } from "./line.ts";
import { lockAt, shownLocks, ticketAt } from "./stored.ts";
import type { Wait, WaitHost } from "./wait.ts";

/** What places need from the locks of their handle. */
export interface PlaceHost extends WaitHost {
  /** Keeps a place alive while code waits in it. */
  wait(request: LockRequest & { readonly leaseMs: number }, sentMs: number, head: number): Wait;
  /** The place has another lease, or is over. */
  moved(place: LockPlace): void;
}

/** How many tickets are read at a time. */
const PAGE = 1000;

/** A place in line. It ends with its lease unless it is renewed. */
export class LockPlace {
  readonly #host: PlaceHost;
  readonly #request: LockRequest & { readonly leaseMs: number };
  /** When, by this process's clock, it was last known to be in line. */
  #aliveMs: number;
  /** Set by `acquire`: the wait, or the hold. */
  #taking: Promise<Wait | Hold> | undefined;
  #wait: Wait | undefined;
  #hold: Hold | undefined;
  #isLeft = false;

  /** @internal */
  constructor(host: PlaceHost, request: LockRequest & { readonly leaseMs: number }, sentMs: number) {
    this.#host = host;
    this.#request = request;
    this.#aliveMs = sentMs;
  }

  /** The id of this place, as `inspect` shows it. */
  get ticket(): string {
    return this.#wait?.ticket ?? this.#request.ticket;
  }

  /**
   * Waits for its turn, and returns the hold. Throws `place_lost` if the place was left or its lease has ended, `lock_removed` if it was
   * removed, and `lock_timeout` when the time is over: the place is then given up.
   */
  async acquire(options: WaitOptions = {}): Promise<Hold> {
    checkOptions(options, WAIT_OPTIONS);
    timeoutOf(options);
    checkAbortSignal(options.abortSignal);
    if (options.abortSignal?.aborted === true) throw options.abortSignal.reason;
    this.#taking ??= this.#take().catch((error: unknown) => {
      // The next call may succeed.
      this.#taking = undefined;
      throw error;
    });
    const taken = await this.#taking;
    if (taken === this.#hold) return taken;
    try {
      this.#hold = await awaitTurn(this.#kernel.ports.clock, this.#name, taken as Wait, options);
      return this.#hold;
    } catch (error) {
      this.#isLeft = true;
      this.#taking = undefined;
      throw error;
    }
  }

  /** Keeps the place, or the lock if its turn has come, for another lease. Returns whether it is still there. */
  async renew(): Promise<boolean> {
    if (this.#isLeft) return false;
    if (this.#hold !== undefined) return this.#hold.renew();
    return (await this.#stand()).is !== "gone";
  }

  /** The position in line, 1 for the first; 0 if the lock was granted or the place is gone. */
  async position(): Promise<number> {
    const [ref] = this.#request.refs;
    if (ref === undefined) return 0;
    for (let after: string | null = null, before = 0; ; ) {
      const { space } = ticketAt(ref, "");
      const rows = await this.#kernel.list({ space, prefix: "", order: "oldest", after, limit: PAGE });
      const index = rows.findIndex((row) => row.key === this.ticket);
      if (index >= 0) return before + index + 1;
      const last = rows.at(-1);
      if (last === undefined || rows.length < PAGE) return 0;
      before += rows.length;
      after = String(last.id);
    }
  }

  /** Leaves the line, or releases the lock if it was granted and `acquire` has not returned it. Does nothing if the place is gone. */
  async leave(): Promise<void> {
    this.#isLeft = true;
    this.#host.moved(this);
    // What `acquire` returned is released by its caller.
    if (this.#hold !== undefined) return;
    if (this.#wait !== undefined) {
      const hold = await this.#wait.leave(new PlaceLostError(this.#name));
      await hold?.release();
      return;
    }
    const { refs, ticket } = this.#request;
    await this.#kernel.transact((tx) => leave(tx, this.#host.hooks, refs, ticket), refs.map(lockAt));
  }

  /** Whether it has ended by this process's clock, or is looked after by others. @internal */
  get isOver(): boolean {
    return this.#isLeft || this.#taking !== undefined || this.#kernel.ports.clock.nowMs() >= this.#endMs;
  }

  get #endMs(): number {
    return this.#aliveMs + this.#request.leaseMs;
  }

  get #kernel(): Kernel {
    return this.#host.kernel;
  }

  get #name(): string {
    return shownLocks(this.#request.refs);
  }

  /** From now on, the place is renewed automatically. */
  async #take(): Promise<Wait | Hold> {
    const { refs, ticket, leaseMs } = this.#request;
    const endMs = this.#endMs;
    const sentMs = this.#kernel.ports.clock.nowMs();
    const standing: Standing = this.#isLeft ? { is: "gone" } : await this.#stand();
    if (standing.is === "gone")
      throw this.#isLeft || sentMs >= endMs ? new PlaceLostError(this.#name) : new LockRemovedError(this.#name);
    if (standing.is === "waiting") {
      this.#wait = this.#host.wait(this.#request, sentMs, standing.head);
      return this.#wait;
    }
    this.#hold = this.#host.hold(refs, { ticket, fence: standing.fence, leaseMs, safeUntilMs: sentMs + leaseMs });
    return this.#hold;
  }

  async #stand(): Promise<Standing> {
    const { kernel, hooks } = this.#host;
    const { refs, leaseMs } = this.#request;
    const { ticket } = this;
    const sentMs = kernel.ports.clock.nowMs();
    const standing = await kernel.transactUrgently(
      (tx) => renewPlace(tx, hooks, refs, ticket, leaseMs),
      refs.map(lockAt),
    );
    if (standing.is !== "gone") this.#aliveMs = sentMs;
    this.#host.moved(this);
    return standing;
  }
}
