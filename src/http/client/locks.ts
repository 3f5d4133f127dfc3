/**
 * Locks over HTTP: a mutex or a semaphore, held for the length of a lease that the client renews.
 *
 * The server grants, and the client keeps the grant alive: a third of the lease after each renewal it renews again. When it cannot, because the server is
 * unreachable or the lock was lost, `abortSignal` aborts before another holder can have the lock, by the clock of this process. A process that is paused
 * notices too late; the fence is never too late, if what the lock protects checks it.
 */

import type { LockInfo, LockParty } from "../../lock/inspect.ts";
import type { LockEvent } from "../../lock/lock.ts";
import type { AcquireOptions, LockOptions, SemaphoreOptions, TryAcquireOptions } from "../../lock/options.ts";
import { msOf } from "./duration.ts";
import { invalidArgument, isPawlError, PawlHttpError } from "./errors.ts";
import { abortSignal, own, plain, type Sendings, sent } from "./options.ts";
import { entriesOf } from "./pages.ts";
import { longPoll } from "./runs.ts";
import { shown } from "./shapes.ts";
import { path, type Transport } from "./transport.ts";

export type ClientTryAcquired =
  | { readonly ok: true; readonly hold: ClientHold }
  | { readonly ok: false; readonly code: "lock_busy" };

/** Of a lock: `ticket` only for a key that may operate. */
export interface ClientLockInfo extends Omit<LockInfo, "holders" | "waiters"> {
  readonly holders: readonly (ClientLockParty & { readonly fence: number })[];
  readonly waiters: readonly ClientLockParty[];
}

export type ClientLockParty = Omit<LockParty, "ticket"> & { readonly ticket?: string };

interface Grant {
  readonly grant: string;
  readonly fence: number;
}

const LEASE = "30s";

export const LOCK: Sendings<LockOptions> = { lease: own };
const SEMAPHORE: Sendings<SemaphoreOptions> = { ...LOCK, permits: own };
const TRY: Sendings<TryAcquireOptions> = { by: plain };
export const ACQUIRE: Sendings<AcquireOptions> = { ...TRY, timeout: own, abortSignal };
const INSPECT = { limit: plain };
const FORCED = { reason: plain, ticket: plain };

/** A handle on a lock. */
export class ClientLock {
  readonly #transport: Transport;
  readonly #at: readonly [kind: "locks" | "semaphores", name: string];
  readonly #options: SemaphoreOptions;

  /** @internal */
  constructor(
    transport: Transport,
    at: readonly [kind: "locks" | "semaphores", name: string],
    options: SemaphoreOptions,
  ) {
    sent(options, at[0] === "locks" ? LOCK : SEMAPHORE);
    this.#transport = transport;
    this.#at = at;
    this.#options = options;
  }

  /** Waits in line and returns the hold. A long wait is several requests, each with a new place in line. Default: no timeout. Throws `lock_timeout`. */
  async acquire(options: AcquireOptions = {}): Promise<ClientHold> {
    sent(options, ACQUIRE);
    const { by, timeout, abortSignal } = options;
    const timeoutMs = timeout === undefined ? Number.POSITIVE_INFINITY : msOf(timeout, "the timeout");
    const hold = await longPoll(this.#transport, timeoutMs, abortSignal, (waitMs) =>
      this.#ask({ by, waitMs, abortSignal }),
    );
    if (hold !== undefined) return hold;
    throw new PawlHttpError({
      status: 0,
      code: "lock_timeout",
      message: `lock "${this.#at[1]}" was not granted within ${timeoutMs} ms: try again, or wait longer`,
      data: { name: this.#at[1], timeoutMs },
    });
  }

  /** Acquires it if it is free and no other waits for it. Never waits. */
  async tryAcquire(options: TryAcquireOptions = {}): Promise<ClientTryAcquired> {
    sent(options, TRY);
    const hold = await this.#ask({ by: options.by, waitMs: 0 });
    return hold === undefined ? { ok: false, code: "lock_busy" } : { ok: true, hold };
  }

  /** Acquires it, runs the function, and releases it however the function ends. Throws `lock_lost` if it was lost meanwhile. */
  async with<T>(work: (hold: ClientHold) => T | PromiseLike<T>, options?: AcquireOptions): Promise<Awaited<T>> {
    if (typeof work !== "function") throw invalidArgument("the work", "must be a function");
    const hold = await this.acquire(options);
    let value: Awaited<T>;
    try {
      value = await work(hold);
    } catch (error) {
      await hold.release().catch(() => {});
      throw error;
    }
    const { released } = await hold.release();
    if (!released) throw hold.abortSignal.reason ?? lost(this.#at[1], hold.fence);
    return value;
  }

  /** Returns the holders and the first `limit` waiters. Default: 100. */
  async inspect(options: { readonly limit?: number | undefined } = {}): Promise<ClientLockInfo> {
    return shown(await this.#transport.get(path(...this.#at), sent(options, INSPECT)));
  }

  /** Releases it for one holder, or for all; their `abortSignal` aborts with their next renewal. */
  async forceRelease(given: {
    readonly reason: string;
    readonly ticket?: string | undefined;
  }): Promise<{ readonly released: number }> {
    const request = {
      method: "POST",
      path: path(...this.#at, "force-release"),
      body: sent(given, FORCED, "what is given"),
    } as const;
    return (await this.#transport.call(request)) as { readonly released: number };
  }

  /** Returns the audit trail, from the first entry on. */
  async history(options: { readonly after?: number; readonly limit?: number } = {}): Promise<readonly LockEvent[]> {
    return entriesOf(this.#transport, path(...this.#at, "history"), options);
  }

  async #ask(options: {
    readonly by: string | undefined;
    readonly waitMs: number;
    readonly abortSignal?: AbortSignal | undefined;
  }): Promise<ClientHold | undefined> {
    const { by, waitMs, abortSignal } = options;
    const { lease = LEASE, permits } = this.#options;
    const leaseMs = msOf(lease, "the lease");
    const body = { by, permits, lease: leaseMs, ...(waitMs === 0 ? {} : { wait: waitMs }) };
    const { platform } = this.#transport;
    // A grant cannot be older than the request for it.
    let sentMs = platform.runningMs();
    try {
      const request = { method: "POST", path: path(...this.#at, "acquire"), body, waitMs, abortSignal } as const;
      const granted = (await this.#transport.call(request)) as Grant;
      if (waitMs > 0) {
        // After a wait, that is long ago, so it is not known to be held before it is renewed.
        sentMs = platform.runningMs();
        await renew(this.#transport.with({ patience: leaseMs }), this.#at, granted.grant, leaseMs);
      }
      return new ClientHold(this.#transport, this.#at, granted, leaseMs, sentMs);
    } catch (error) {
      if (isPawlError(error, "lock_busy") || (waitMs > 0 && isPawlError(error, "lock_lost"))) return undefined;
      throw error;
    }
  }
}

async function renew(transport: Transport, at: readonly string[], grant: string, leaseMs: number): Promise<void> {
  const body = { grant, lease: leaseMs };
  await transport.call({ method: "POST", path: path(...at, "renew"), body, isRepeatable: true });
}

/** The right to a lock, kept alive while this process lives. */
export class ClientHold {
  /** Strictly above the fences of all earlier holders: pass it to the resource that the lock protects. */
  readonly fence: number;
  /** The id of this hold. */
  readonly ticket: string;
  readonly #transport: Transport;
  readonly #at: readonly [string, string];
  readonly #leaseMs: number;
  readonly #lost = new AbortController();
  #safeUntilMs: number;
  #cancel: () => void = () => {};
  #isOver = false;

  /** @internal */
  constructor(
    transport: Transport,
    at: readonly [string, string],
    { grant, fence }: Grant,
    leaseMs: number,
    sentMs: number,
  ) {
    this.#transport = transport;
    this.#at = at;
    this.ticket = grant;
    this.fence = fence;
    this.#leaseMs = leaseMs;
    this.#safeUntilMs = sentMs + leaseMs;
    this.#schedule();
  }

  /** Aborts when the lock is lost, or may be. */
  get abortSignal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Renews the lease now, which also happens automatically. Returns whether the lock is still held. */
  async renew(): Promise<boolean> {
    if (this.#isOver) return false;
    const { platform } = this.#transport;
    const sentMs = platform.runningMs();
    // What comes after the end of the lease is of no use.
    const patience = Math.max(0, this.#safeUntilMs - sentMs);
    try {
      await renew(this.#transport.with({ patience }), this.#at, this.ticket, this.#leaseMs);
    } catch (error) {
      this.#end(error);
      return false;
    }
    this.#safeUntilMs = sentMs + this.#leaseMs;
    this.#schedule();
    return !this.#isOver;
  }

  /** Releases the lock; the same commit grants it to the first in line. Does nothing if it is no longer held. */
  async release(): Promise<{ readonly released: boolean }> {
    this.#isOver = true;
    this.#cancel();
    const body = { grant: this.ticket };
    const request = { method: "POST", path: path(...this.#at, "release"), body } as const;
    if (this.#lost.signal.aborted) {
      // A renewal whose reply was lost may have extended the lease. That is over soon in any case, so nothing waits for the server.
      this.#transport
        .with({ patience: 0 })
        .call(request)
        .catch(() => {});
      return { released: false };
    }
    return (await this.#transport.call(request)) as { readonly released: boolean };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** Renews a third of the lease from now, and gives up at its end. */
  #schedule(): void {
    this.#cancel();
    if (this.#isOver) return;
    const { platform } = this.#transport;
    const cancelRenewal = platform.after(this.#leaseMs / 3, () => void this.renew());
    const cancelEnd = platform.after(Math.max(0, this.#safeUntilMs - platform.runningMs()), () => this.#end(undefined));
    this.#cancel = () => {
      cancelRenewal();
      cancelEnd();
    };
  }

  #end(cause: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancel();
    this.#lost.abort(isPawlError(cause, "lock_lost") ? cause : lost(this.#at[1], this.fence, cause));
  }
}

const lost = (name: string, fence: number, cause?: unknown): PawlHttpError =>
  new PawlHttpError({
    status: 0,
    code: "lock_lost",
    message: `lock "${name}" is no longer held under fence ${fence}, or its lease could not be renewed in time: stop, because another may hold it now`,
    data: { name, fence },
    cause,
  });
