/**
 * Rate limits: at most `max` tokens per `per`, for all processes together.
 *
 * A limit is a bucket of tokens that fills up steadily; a bucket is one record. Taking is a decision (`decide.ts`). A caller that must
 * wait reserves its tokens in one commit, gets the time to wait, and sleeps by its own clock: no process polls, and first come is first
 * served by commit order. With a `key` there is a bucket for each key.
 *
 * The figures (`max`, `per`, `burst`) belong to the bucket. A process declares its own with its first use of them; the latest declaration
 * counts, from its commit on, in all processes. A change is an entry in the bucket's log.
 *
 * Guarantees: in any time, at most `burst + elapsed * max / per` tokens are granted, by the store's clock; a clock that steps back
 * makes grants later. A strict limit has a burst of one: at most `max` are granted in any time of length `per`.
 * Out of scope: the use of a grant. A waiter that dies has used its tokens; one that gives up releases them.
 */

import type { Queue } from "../kernel/capability.ts";
import {
  checkAbortSignal,
  checkCount,
  checkDuration,
  checkId,
  checkOptions,
  type Duration,
  optionNames,
} from "../kernel/check.ts";
import { type Address, address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { ClosedError, InvalidArgumentError, InvalidDurationError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { pause } from "../kernel/ports.ts";
import {
  type Bucket,
  decideDeclare,
  decideRelease,
  decideTake,
  fillMs,
  fullBucket,
  isSame,
  type Reservation,
  remainingIn,
} from "./decide.ts";
import { RateLimitedError } from "./errors.ts";
import type { Figures } from "./timeline.ts";

/** The buckets of limits without keys; those with keys have a space for each limit. */
const SPACE = "rate";
/** The queue of buckets that may be full for long. It has no workers; sweeps read it. */
const KIND = "rate";
/** The entry in the log for other figures. */
const DECLARED = "declared";

const MOST_TOKENS = 1_000_000;
const LONGEST_MS = 100 * 365 * 24 * 3_600_000;
/** A bucket that was full for this long is removed, with its figures: a clock that steps back by less grants no additional tokens. */
const UNUSED_MS = 3_600_000;
/** How many declared limits are remembered. Others are declared again, which changes nothing. */
const MAX_DECLARED = 10_000;

export interface RateLimitOptions {
  /**
   * How many tokens are added in `per`, one by one. **Not the most that can be taken in `per`**: saved tokens come on top, so `{ max: 10,
   * per: "1s" }` lets 10 through immediately and 9 more within the first second. For at most `max` in any `per`, set `strict`.
   */
  readonly max: number;
  readonly per: Duration;
  /** How many tokens can be saved, and so be taken together. Default: `max`. In any time t, at most `burst + t × max / per` are taken. */
  readonly burst?: number | undefined;
  /**
   * At most `max` in any time of length `per`, wherever it begins: no tokens are saved, and they are added evenly, one every `per / max`.
   * The same as `burst: 1`, so `count` must be 1. Default: false.
   */
  readonly strict?: boolean | undefined;
}

export interface TakeOptions {
  /** A bucket of its own for each key. */
  readonly key?: string | undefined;
}

export interface AcquireTokensOptions extends TakeOptions {
  /** How many tokens. Default: 1. */
  readonly count?: number | undefined;
  /** The longest wait: if the tokens would come later, it throws `rate_limited` immediately. Default: no limit. */
  readonly timeout?: Duration | undefined;
  readonly abortSignal?: AbortSignal | undefined;
}

const FIGURES = optionNames<RateLimitOptions>({ max: true, per: true, burst: true, strict: true });
const KEY_OPTIONS = optionNames<TakeOptions>({ key: true });
const ACQUIRE_OPTIONS = optionNames<AcquireTokensOptions>({ count: true, key: true, timeout: true, abortSignal: true });
const TRY_OPTIONS = optionNames<Pick<AcquireTokensOptions, "count" | "key">>({ count: true, key: true });
/** In a run: its cancellation takes the place of a signal. */
const WISH = optionNames<Pick<AcquireTokensOptions, "count" | "key" | "timeout">>({
  count: true,
  key: true,
  timeout: true,
});

export type TryTake =
  | {
      readonly ok: true;
      /** How many more could be taken together now. */
      readonly remaining: number;
    }
  | { readonly ok: false; readonly code: "rate_limited"; readonly retryAfterMs: number };

export interface RateLimitInfo {
  /** The figures in force now, in all processes. */
  readonly max: number;
  readonly perMs: number;
  readonly burst: number;
  /** How many could be taken together now. */
  readonly remaining: number;
  /** How long a caller that requests one token now would wait. */
  readonly waitMs: number;
}

/** Figures as a process declared them. */
interface Declaration {
  readonly figures: Figures;
  /** The store's clock at their first use. It is always above the last declaration, so a clock that stepped back does not matter. */
  atMs: number | undefined;
}

/** The rate limits of one handle: its declarations, its waits, and the removal of unused buckets. */
export class RateLimits {
  readonly #kernel: Kernel;
  readonly #declared = new Map<string, Declaration>();
  readonly #waiting = new Set<AbortController>();
  readonly #givingBack = new Set<Promise<unknown>>();
  #isClosed = false;

  /** @internal */
  readonly queues: readonly Queue[];

  /** @internal */
  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.queues = [{ kind: KIND, chore: (at) => kernel.transact((tx) => forget(tx, tx.record(at)), [at]) }];
  }

  /** A handle on a limit. The same figures again are the same declaration. */
  limit(name: string, options: RateLimitOptions): RateLimit {
    checkId(name, "the rate limit's name");
    const figures = checkFigures(options);
    const last = this.#declared.get(name);
    const declaration = last !== undefined && isSame(last.figures, figures) ? last : { figures, atMs: undefined };
    this.#declared.delete(name);
    this.#declared.set(name, declaration);
    const [oldest] = this.#declared.keys();
    if (oldest !== undefined && this.#declared.size > MAX_DECLARED) this.#declared.delete(oldest);
    return new RateLimit(this, this.#kernel, name, declaration);
  }

  /** Whether `close` has something to do. */
  get isBusy(): boolean {
    return this.#waiting.size + this.#givingBack.size > 0;
  }

  /** Ends all waits with `closed`, and releases their tokens. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const waiting of this.#waiting) waiting.abort();
    while (this.isBusy) {
      await Promise.allSettled(this.#givingBack);
      await Promise.resolve();
    }
  }

  /** Sleeps until the reserved tokens come; throws if the wait was aborted. @internal */
  async wait(at: Address, turn: Reservation, waitMs: number, abortSignal: AbortSignal | undefined): Promise<void> {
    const stop = new AbortController();
    const aborted = () => stop.abort();
    abortSignal?.addEventListener("abort", aborted);
    if (this.#isClosed || abortSignal?.aborted === true) stop.abort();
    this.#waiting.add(stop);
    try {
      if (waitMs > 0) await pause(this.#kernel.ports.clock, waitMs, stop.signal);
      if (!stop.signal.aborted) return;
      this.#release(at, turn);
    } finally {
      this.#waiting.delete(stop);
      abortSignal?.removeEventListener("abort", aborted);
    }
    abortSignal?.throwIfAborted();
    throw new ClosedError();
  }

  /** Releases reserved tokens. The caller does not wait for it; if it fails, the tokens pass unused. */
  #release(at: Address, turn: Reservation): void {
    const giveBack = (tx: Tx) => {
      const { nowMs } = tx;
      const record = tx.record(at);
      const bucket = record.exists ? decideRelease(record.value as Bucket, nowMs, turn) : null;
      if (bucket !== null) record.write({ value: bucket });
    };
    const done = this.#kernel.transact(giveBack, [at]).catch(() => {});
    this.#givingBack.add(done);
    void done.then(() => this.#givingBack.delete(done));
  }
}

/**
 * Removes a bucket that was full for long; returns whether it did. The time for this is set when the bucket is created, and here, so that
 * taking tokens costs no index.
 */
function forget(tx: Tx, record: Draft): boolean {
  if (!record.exists) return false;
  const dueMs = restedAtMs(record.value as Bucket);
  if (dueMs > tx.nowMs) {
    record.write({ dueMs });
    return false;
  }
  record.remove();
  return true;
}

const restedAtMs = ({ fullAtMs }: Bucket): number => fullAtMs + 1 + UNUSED_MS;

/** A handle on one limit. */
export class RateLimit {
  readonly name: string;
  readonly #limits: RateLimits;
  readonly #kernel: Kernel;
  readonly #declaration: Declaration;

  /** @internal */
  constructor(limits: RateLimits, kernel: Kernel, name: string, declaration: Declaration) {
    this.name = name;
    this.#limits = limits;
    this.#kernel = kernel;
    this.#declaration = declaration;
  }

  /**
   * Takes tokens, and resolves when they come. Throws `rate_limited`, and takes nothing, if that is later than `timeout`. A wait that is
   * aborted releases its tokens; one whose process dies has used them.
   */
  async acquire(options: AcquireTokensOptions = {}): Promise<{ readonly waitedMs: number }> {
    checkOptions(options, ACQUIRE_OPTIONS);
    const { count, timeout, abortSignal, key } = options;
    checkAbortSignal(abortSignal);
    const tokens = checkTokens(count);
    const longestMs = timeout === undefined ? LONGEST_MS : checkDuration(timeout, "the timeout");
    const at = this.#at(key);
    abortSignal?.throwIfAborted();
    const { waitMs, turn } = await this.#kernel.transact((tx) => this.#take(tx, at, tokens, longestMs), [at]);
    if (turn === null) throw new RateLimitedError(this.name, waitMs);
    if (waitMs > 0 || abortSignal?.aborted === true) await this.#limits.wait(at, turn, waitMs, abortSignal);
    return { waitedMs: waitMs };
  }

  /** Takes tokens if they are available, or returns when they will be. */
  async tryAcquire(options: Pick<AcquireTokensOptions, "count" | "key"> = {}): Promise<TryTake> {
    checkOptions(options, TRY_OPTIONS);
    const { count, key } = options;
    const tokens = checkTokens(count);
    const at = this.#at(key);
    return this.#kernel.transact((tx) => this.#tryTake(tx, at, tokens), [at]);
  }

  /** Returns the current figures and tokens; takes nothing. */
  async inspect(options: TakeOptions = {}): Promise<RateLimitInfo> {
    checkOptions(options, KEY_OPTIONS);
    const at = this.#at(options.key);
    return this.#kernel.transact(
      (tx) => {
        const { nowMs } = tx;
        const record = tx.record(at);
        const bucket = record.exists ? (record.value as Bucket) : fullBucket(this.#declaration.figures, 0, nowMs);
        const { max, perMs, burst } = bucket;
        return {
          max,
          perMs,
          burst,
          remaining: remainingIn(bucket, nowMs),
          waitMs: decideTake(bucket, nowMs, 1).waitMs,
        };
      },
      [at],
    );
  }

  /** This limit inside a decision, which cannot wait. @internal */
  within(tx: Tx): TxRateLimit {
    return new TxRateLimit(this.name, (count, options) => {
      checkOptions(options, KEY_OPTIONS);
      return this.#tryTake(tx, this.#at(options?.key), checkTokens(count));
    });
  }

  /** Checks the options before they become part of a decision. @internal */
  checkWish(options: Pick<AcquireTokensOptions, "count" | "key" | "timeout">): void {
    checkOptions(options, WISH);
    checkTokens(options.count);
    this.#at(options.key);
    if (options.timeout !== undefined) checkDuration(options.timeout, "the timeout");
  }

  /** Reserves tokens in a decision, unless they come later than `timeout`; returns how long the wait is. */
  reserveIn(
    tx: Tx,
    options: Pick<AcquireTokensOptions, "count" | "key" | "timeout">,
  ): { readonly isGranted: boolean; readonly waitMs: number } {
    const { count, key, timeout } = options;
    const longestMs = timeout === undefined ? LONGEST_MS : checkDuration(timeout, "the timeout");
    const { waitMs, turn } = this.#take(tx, this.#at(key), checkTokens(count), longestMs);
    return { isGranted: turn !== null, waitMs };
  }

  /** Whether it belongs to the handle of this kernel. @internal */
  isOn(kernel: Kernel): boolean {
    return this.#kernel === kernel;
  }

  /** The record that a decision on this limit touches, if it gives no key. @internal */
  get touches(): Address {
    return this.#at(undefined);
  }

  /** The record that a decision on this limit touches, for this key. @internal */
  recordOf(key: string | undefined): Address {
    return this.#at(key);
  }

  #at(key: string | undefined): Address {
    return key === undefined
      ? address(SPACE, this.name)
      : address(`${SPACE}/${this.name}`, checkId(key, "the rate limit's key"));
  }

  #tryTake(tx: Tx, at: Address, count: number): TryTake {
    const { waitMs, turn, remaining } = this.#take(tx, at, count, 0);
    return turn === null ? { ok: false, code: "rate_limited", retryAfterMs: waitMs } : { ok: true, remaining };
  }

  /** Reserves tokens, unless they come too late. */
  #take(
    tx: Tx,
    at: Address,
    count: number,
    longestMs: number,
  ): { readonly waitMs: number; readonly turn: Reservation | null; readonly remaining: number } {
    // The clock is read first, so that the bucket is read under its lock and not assumed.
    const { nowMs } = tx;
    const record = tx.record(at);
    const { figures } = this.#declaration;
    const was = record.exists ? (record.value as Bucket) : null;
    this.#declaration.atMs ??= Math.max(nowMs, (was?.declaredMs ?? 0) + 1);
    const { atMs } = this.#declaration;
    const bucket = was === null ? fullBucket(figures, atMs, nowMs) : decideDeclare(was, figures, atMs, nowMs);
    if (count > bucket.burst)
      throw new InvalidArgumentError(
        "the count",
        `must not be above the burst of rate limit "${this.name}", which is ${bucket.burst}`,
      );
    const taken = decideTake(bucket, nowMs, count);
    const isInTime = taken.waitMs <= longestMs;
    // Changed figures count from this commit on, even if this call is refused.
    const isChange = was !== null && !isSame(was, bucket);
    if (isInTime || isChange) {
      const value = isInTime ? taken.bucket : bucket;
      record.write(was === null ? { value, kind: KIND, dueMs: restedAtMs(value) } : { value });
    }
    if (isChange) record.append(DECLARED, figures);
    return {
      waitMs: taken.waitMs,
      turn: isInTime ? taken.turn : null,
      remaining: remainingIn(taken.bucket, nowMs),
    };
  }
}

/** A rate limit inside a decision: takes available tokens in the same commit. */
export class TxRateLimit {
  readonly #name: string;
  readonly #tryTake: (count: number | undefined, options: TakeOptions | undefined) => TryTake;

  /** @internal */
  constructor(name: string, tryTake: (count: number | undefined, options: TakeOptions | undefined) => TryTake) {
    this.#name = name;
    this.#tryTake = tryTake;
  }

  /** Takes tokens. Default: 1. Throws `rate_limited` if they are not available. */
  take(count?: number, options?: TakeOptions): { readonly remaining: number } {
    const answer = this.#tryTake(count, options);
    if (!answer.ok) throw new RateLimitedError(this.#name, answer.retryAfterMs);
    return { remaining: answer.remaining };
  }

  /** Takes tokens if they are available, or returns when they will be. */
  tryTake(count?: number, options?: TakeOptions): TryTake {
    return this.#tryTake(count, options);
  }
}

const checkTokens = (count: unknown = 1): number => checkCount(count, "the count", MOST_TOKENS);

/** Refuses figures that a limit cannot have. @internal */
/** `of` begins the messages: whose figures they are. */
export function checkFigures(options: RateLimitOptions, of = ""): Figures {
  checkOptions(options ?? null, FIGURES);
  const max = checkCount(options.max, `${of}max`, MOST_TOKENS);
  const perMs = checkDuration(options.per, `${of}per`);
  if (perMs < 1) throw new InvalidDurationError(`${of}per`, "must be at least a millisecond");
  const { strict = false } = options;
  if (typeof strict !== "boolean") throw new InvalidArgumentError(`${of}strict`, "must be true or false");
  if (strict && options.burst !== undefined && options.burst !== 1)
    throw new InvalidArgumentError(`${of}the burst`, "must be 1, or left out, if the limit is strict");
  const burst = strict ? 1 : checkCount(options.burst ?? max, `${of}the burst`, MOST_TOKENS);
  const figures = { max, perMs, burst };
  if (fillMs(figures) > LONGEST_MS)
    throw new InvalidArgumentError(`${of}the burst`, "must not take longer than a hundred years to fill up");
  return figures;
}
