/**
 * A lock in plain code: a mutex, a semaphore, a reader-writer lock, or several mutexes together.
 *
 * A handle is only a name with options; what is held and who waits is in the store. `acquire` waits in line, `tryAcquire` acquires the lock
 * immediately or leaves nothing behind, `enqueue` takes a place in line without waiting, `with` cannot forget to release. All verbs are decisions of
 * `line.ts`.
 *
 * Out of scope: what a holder does after it lost the lock without noticing. No lock can prevent that; the fence can.
 */

import { checkAbortSignal, checkCount, checkFunction, checkId, checkOptions, checkVersion } from "../kernel/check.ts";
import type { Tx } from "../kernel/decision.ts";
import { StoreError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { awaitTurn, timeoutOf } from "./await-turn.ts";
import { LockNestedError } from "./errors.ts";
import type { Hold } from "./hold.ts";
import { inspectLock, type LockInfo } from "./inspect.ts";
import { enter, force, type LockRequest, leave, removeWaiter } from "./line.ts";
import type { Locks } from "./locks.ts";
import {
  ACQUIRE_OPTIONS,
  type AcquireOptions,
  checkIntervention,
  FORCED_RELEASE,
  HISTORY_OPTIONS,
  INSPECT_OPTIONS,
  type Intervention,
  type LockSpec,
  REMOVAL,
  TRY_OPTIONS,
  type TryAcquireOptions,
} from "./options.ts";
import type { LockPlace } from "./place.ts";
import { type LockRef, lockAt, shownLock, shownLocks } from "./stored.ts";
import { TxLock } from "./tx-lock.ts";

export type TryAcquired =
  | { readonly ok: true; readonly hold: Hold }
  | {
      readonly ok: false;
      readonly code: "lock_busy";
      /** The place in line that `acquire` or `enqueue` would have had. */
      readonly place: number;
    };

/** What `enqueue` returns: the lock, or a place in its line. */
export type Enqueued =
  | { readonly granted: true; readonly hold: Hold }
  | { readonly granted: false; readonly place: LockPlace };

/** One entry of a lock's audit trail. */
export interface LockEvent {
  readonly name: string;
  readonly at: Date;
  readonly data: unknown;
}

/** How many holders and waiters `inspect` shows by default. */
const INSPECTED = 100;

/** A handle on a lock, or on several that are acquired together. */
export class Lock {
  readonly #locks: Locks;
  readonly #spec: LockSpec;
  readonly #leaseMs: number;

  /** @internal */
  constructor(locks: Locks, spec: LockSpec, leaseMs: number) {
    this.#locks = locks;
    this.#spec = spec;
    this.#leaseMs = leaseMs;
  }

  /** Waits in line and returns the hold. Default: no timeout. Throws `lock_timeout`, `lock_removed`, or the reason of the signal. */
  async acquire(options: AcquireOptions = {}): Promise<Hold> {
    checkOptions(options, ACQUIRE_OPTIONS);
    const { by, abortSignal } = options;
    const timeoutMs = timeoutOf(options);
    checkAbortSignal(abortSignal);
    if (abortSignal?.aborted === true) throw abortSignal.reason;
    const entered = await this.#enter(true, by);
    if ("hold" in entered) return entered.hold;
    const wait = this.#locks.wait(entered.request, entered.sentMs, entered.head);
    const { clock } = this.#locks.kernel.ports;
    return awaitTurn(clock, shownLocks(this.#spec.refs), wait, { timeout: timeoutMs, abortSignal });
  }

  /** Acquires it if it is free and no other waits for it. Never waits, and leaves nothing behind when it fails. */
  async tryAcquire(options: TryAcquireOptions = {}): Promise<TryAcquired> {
    checkOptions(options, TRY_OPTIONS, "the options of tryAcquire");
    const entered = await this.#enter(false, options.by);
    if ("hold" in entered) return { ok: true, hold: entered.hold };
    return { ok: false, code: "lock_busy", place: entered.place };
  }

  /**
   * Acquires it if it is free, or takes a place in line without waiting. The place ends with the lock's lease unless it is renewed
   * (`place.renew()`) or waited in (`place.acquire()`).
   */
  async enqueue(options: TryAcquireOptions = {}): Promise<Enqueued> {
    checkOptions(options, TRY_OPTIONS, "the options of enqueue");
    const entered = await this.#enter(true, options.by);
    if ("hold" in entered) return { granted: true, hold: entered.hold };
    return { granted: false, place: this.#locks.place(entered.request, entered.sentMs) };
  }

  /** Acquires it, runs the function, and releases it however the function ends. Throws `lock_lost` if it was lost meanwhile. */
  async with<T>(work: (hold: Hold) => T | PromiseLike<T>, options?: AcquireOptions): Promise<Awaited<T>> {
    checkFunction(work, "what to do under the lock");
    const { holding } = this.#locks.kernel.ports;
    const texts = this.#spec.refs.map((ref) => lockAt(ref).text);
    // Code can outlive the function that started it: a timer that fires after the release holds nothing.
    const above = (holding?.current() ?? []).filter(({ isHeld }) => isHeld);
    const nested = this.#spec.refs.find((ref) => above.some(({ text }) => text === lockAt(ref).text));
    // A semaphore may have another permit free; a mutex or a reader-writer lock would certainly wait for itself.
    if (nested !== undefined && (this.#spec.mode === "exclusive" || nested.kind === "rwlock"))
      throw new LockNestedError(shownLock(nested));
    const hold = await this.acquire(options);
    const run = (): T | PromiseLike<T> => work(hold);
    let value: Awaited<T>;
    try {
      value = await (holding === undefined
        ? run()
        : holding.run([...above, ...texts.map((text) => hold.as(text))], run));
    } catch (error) {
      await hold.release().catch(() => {});
      throw error;
    }
    const { released } = await hold.release();
    if (!released) throw hold.lostError();
    return value;
  }

  /** Returns the holders and the first `limit` waiters. Default: 100. Of several locks, the first. */
  async inspect(options: { readonly limit?: number | undefined } = {}): Promise<LockInfo> {
    checkOptions(options, INSPECT_OPTIONS);
    const limit = checkCount(options.limit ?? INSPECTED, "the limit", 1000);
    return inspectLock(this.#locks.kernel, this.#ref, limit);
  }

  /** Removes one waiter from the line; it gets `lock_removed`. */
  async removeWaiter(ticket: string, intervention: Intervention): Promise<{ readonly removed: boolean }> {
    const act = { ticket: checkId(ticket, "the ticket"), ...checkIntervention(intervention, REMOVAL) };
    const { kernel, hooks } = this.#locks;
    const removed = await kernel.transact((tx) => removeWaiter(tx, hooks, this.#ref, act), [lockAt(this.#ref)]);
    return { removed };
  }

  /**
   * Releases it for one holder, or for all; their `abortSignal` aborts. Only the fence stops what they still do.
   */
  async forceRelease(
    intervention: Intervention & { readonly ticket?: string | undefined },
  ): Promise<{ readonly released: number }> {
    const { ticket } = intervention ?? {};
    const act = {
      ...checkIntervention(intervention, FORCED_RELEASE),
      ticket: ticket === undefined ? undefined : checkId(ticket, "the ticket"),
    };
    const { kernel, hooks } = this.#locks;
    const forced = await kernel.transact((tx) => force(tx, hooks, this.#ref, act), [lockAt(this.#ref)]);
    this.#locks.forced(new Set(forced.map((holder) => holder.ticket)));
    return { released: forced.length };
  }

  /** Returns the audit trail: forced releases, removed waiters, changed permits. Default: the first 1,000 entries. */
  async history(options: { readonly after?: number; readonly limit?: number } = {}): Promise<readonly LockEvent[]> {
    const { kernel } = this.#locks;
    const at = lockAt(this.#ref);
    checkOptions(options, HISTORY_OPTIONS);
    const after = checkVersion(options.after ?? 0, "after");
    const entries = await kernel.entries(at, after, checkCount(options.limit ?? 1000, "the limit"));
    return entries.map(({ name, data, atMs }) => ({ name, at: new Date(atMs), data: kernel.decodeFresh(at, data) }));
  }

  /** This lock inside a decision. @internal */
  within(tx: Tx): TxLock {
    return new TxLock(tx, this.#locks, this.#spec, this.#leaseMs);
  }

  /** Whether it belongs to the handle of this kernel. @internal */
  isOn(kernel: Kernel): boolean {
    return this.#locks.kernel === kernel;
  }

  /** The first of them, in the order of their names. */
  get #ref(): LockRef {
    return this.#spec.refs[0] as LockRef;
  }

  async #enter(queue: boolean, by: string | undefined): Promise<{ readonly hold: Hold } | Queued> {
    const locks = this.#locks;
    const { kernel, hooks } = locks;
    const spec = this.#spec;
    const request = {
      ...spec,
      ticket: kernel.ports.chance.uuid(),
      leaseMs: this.#leaseMs,
      by: by === undefined ? undefined : checkId(by, "who asks"),
      declares: locks.declares(spec),
      queue,
    };
    const sentMs = kernel.ports.clock.nowMs();
    const keys = spec.refs.map(lockAt);
    let entered: ReturnType<typeof enter>;
    try {
      entered = await kernel.transact((tx) => enter(tx, hooks, request), keys);
    } catch (error) {
      // It may have been acquired, and no hold would release it.
      if (error instanceof StoreError && error.code === "outcome_unknown")
        kernel.transact((tx) => leave(tx, hooks, spec.refs, request.ticket), keys).catch(() => {});
      throw error;
    }
    if (request.declares) locks.declared(spec);
    const { ticket, leaseMs } = request;
    if (entered.granted)
      return { hold: locks.hold(spec.refs, { ticket, leaseMs, fence: entered.fence, safeUntilMs: sentMs + leaseMs }) };
    return { request, sentMs, place: entered.place, head: entered.head };
  }
}

/** The lock was not acquired; if `queue` was set, a place in line was taken. */
interface Queued {
  readonly request: LockRequest & { readonly leaseMs: number };
  readonly sentMs: number;
  readonly place: number;
  readonly head: number;
}
