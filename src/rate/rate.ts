/**
 * Rate limits: so many in so much time, for all processes together.
 *
 * A limit is a bucket of tokens that fills up steadily; a bucket is one record. Taking is a decision (`decide.ts`). Whoever must
 * wait reserves its turn in one commit, is told how long that is, and sleeps by its own clock: nobody polls, and first come is first
 * served by commit order. With a `key` there is a bucket for each key.
 *
 * The figures belong to the bucket. A process declares its own with its first use of them; the declaration that was first used last
 * has the say, from its commit on, in old and new processes alike. A change is an entry in the bucket's log.
 *
 * Promises: never more than `burst + elapsed * max / per` have their turn in any time, by the store's clock; one that steps back
 * makes turns later. A strict limit has a burst of one: never more than `max` have their turn in any time of length `per`.
 * Leaves out: what becomes of a turn. Whoever waits and dies has used it; whoever gives up gives it back.
 */

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
  decideGiveBack,
  decideTake,
  fillMs,
  fullBucket,
  isSame,
  remainingIn,
  type Turn,
} from "./decide.ts";
import { RateLimitedError } from "./errors.ts";
import type { Figures } from "./line.ts";

/** The buckets of limits without keys; those with keys have a space for each limit. */
const SPACE = "rate";
/** The queue of buckets that may be at rest. Nobody works on it; it is looked through now and then. */
const KIND = "rate";
/** The entry in the log for other figures. */
const DECLARED = "declared";

const MOST_TOKENS = 1_000_000;
const LONGEST_MS = 100 * 365 * 24 * 3_600_000;
/** A bucket is forgotten, with its figures, when it was full for so long: a clock that steps back by less gives nobody more. */
const REST_MS = 3_600_000;
/** Whoever makes buckets tidies up: one look for so many new ones, at twice as many old ones. */
const TIDY_EVERY = 64;
/** More limits than this are not remembered as declared; those are declared again, which changes nothing. */
const MOST_DECLARED = 10_000;

export interface RateLimitOptions {
  /**
   * How many tokens come in `per`, one by one. **Not the most that can be taken in `per`**: those that were saved up come on top, so
   * `{ max: 10, per: "1s" }` lets 10 through immediately and 9 more within the first second. For at most `max` in any `per`, set
   * `strict`.
   */
  readonly max: number;
  readonly per: Duration;
  /** How many can be saved up, and so be taken at once. Default: `max`. In any time t, at most `burst + t × max / per` are taken. */
  readonly burst?: number | undefined;
  /**
   * At most `max` in any time of length `per`, wherever it begins: nothing is saved up, and the tokens come evenly, one every `per / max`.
   * The same as `burst: 1`, so `count` must be 1. Default: false.
   */
  readonly strict?: boolean | undefined;
}

export interface TakeOptions {
  /** A bucket of its own for each key. */
  readonly key?: string | undefined;
}

export interface AcquireTokensOptions extends TakeOptions {
  /** How many tokens; 1 unless said otherwise. */
  readonly count?: number | undefined;
  /** Refuse at once if the turn would come later than this. Without it, any wait is accepted. */
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
      /** How many more could be taken at once now. */
      readonly remaining: number;
    }
  | { readonly ok: false; readonly code: "rate_limited"; readonly retryAfterMs: number };

export interface RateLimitInfo {
  /** The figures that hold for everybody now. */
  readonly max: number;
  readonly perMs: number;
  readonly burst: number;
  /** How many could be taken at once now. */
  readonly remaining: number;
  /** How long one who asks for one token now would wait. */
  readonly waitMs: number;
}

/** Figures as a process asked for them. */
interface Declaration {
  readonly figures: Figures;
  /** The store's clock at their first use. It only rises above what was declared before, so a clock that stepped back does not matter. */
  atMs: number | undefined;
}

/** The rate limits of one handle: what this process declared, who waits here, and what is to be tidied up. */
export class RateLimits {
  readonly #kernel: Kernel;
  readonly #declared = new Map<string, Declaration>();
  readonly #waiting = new Set<AbortController>();
  readonly #givingBack = new Set<Promise<unknown>>();
  /** The first bucket that is made tidies up, for those who never make many. */
  #made = TIDY_EVERY;
  #isClosed = false;

  /** @internal */
  constructor(kernel: Kernel) {
    this.#kernel = kernel;
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
    if (oldest !== undefined && this.#declared.size > MOST_DECLARED) this.#declared.delete(oldest);
    return new RateLimit(this, this.#kernel, name, declaration);
  }

  /** Whether `close` has something to do. */
  get isWaiting(): boolean {
    return this.#waiting.size + this.#givingBack.size > 0;
  }

  /** Ends all waits, with `closed`, and gives their turns back. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const waiting of this.#waiting) waiting.abort();
    while (this.isWaiting) {
      await Promise.allSettled(this.#givingBack);
      await Promise.resolve();
    }
  }

  /** Sleeps until the turn comes; throws if it was given up. @internal */
  async wait(at: Address, turn: Turn, waitMs: number, abortSignal: AbortSignal | undefined): Promise<void> {
    const stop = new AbortController();
    const aborted = () => stop.abort();
    abortSignal?.addEventListener("abort", aborted);
    if (this.#isClosed || abortSignal?.aborted === true) stop.abort();
    this.#waiting.add(stop);
    try {
      if (waitMs > 0) await pause(this.#kernel.ports.clock, waitMs, stop.signal);
      if (!stop.signal.aborted) return;
      this.#giveBack(at, turn);
    } finally {
      this.#waiting.delete(stop);
      abortSignal?.removeEventListener("abort", aborted);
    }
    abortSignal?.throwIfAborted();
    throw new ClosedError();
  }

  /** Whoever gave up does not wait for this, and a failure only means that the turn passes unused. */
  #giveBack(at: Address, turn: Turn): void {
    const giveBack = (tx: Tx) => {
      const { nowMs } = tx;
      const record = tx.record(at);
      const bucket = record.exists ? decideGiveBack(record.value as Bucket, nowMs, turn) : null;
      if (bucket !== null) record.write({ value: bucket });
    };
    const done = this.#kernel.transact(giveBack, [at]).catch(() => {});
    this.#givingBack.add(done);
    void done.then(() => this.#givingBack.delete(done));
  }

  /** A bucket is being made. Called in decisions, of which it is no part: what it leads to comes after, and on its own. @internal */
  making(): void {
    this.#made += 1;
    if (this.#made < TIDY_EVERY) return;
    this.#made = 0;
    // What was not tidied up is found the next time.
    Promise.resolve()
      .then(() => this.#tidy())
      .catch(() => {});
  }

  async #tidy(): Promise<void> {
    const { keys } = await this.#kernel.due({ kinds: [KIND], limit: 2 * TIDY_EVERY });
    await Promise.all(
      keys.map(({ space, key }) => {
        const at = address(space, key);
        return this.#kernel.transact((tx) => forget(tx, tx.record(at)), [at]);
      }),
    );
  }
}

/** Removes a bucket that was at rest for long. When it is to be looked at is set when it is made, and here, so that taking costs no index. */
function forget(tx: Tx, record: Draft): void {
  if (!record.exists) return;
  const dueMs = restedAtMs(record.value as Bucket);
  if (dueMs > tx.nowMs) record.write({ dueMs });
  else record.remove();
}

const restedAtMs = ({ fullAtMs }: Bucket): number => fullAtMs + 1 + REST_MS;

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
   * Takes tokens, and resolves when their turn comes. Throws `rate_limited`, having taken nothing, if that is later than `timeout`. A wait that
   * is aborted gives its turn back; one whose process dies has used it.
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

  /** Takes tokens if they are there, or says when they will be. */
  async tryAcquire(options: Pick<AcquireTokensOptions, "count" | "key"> = {}): Promise<TryTake> {
    checkOptions(options, TRY_OPTIONS);
    const { count, key } = options;
    const tokens = checkTokens(count);
    const at = this.#at(key);
    return this.#kernel.transact((tx) => this.#tryTake(tx, at, tokens), [at]);
  }

  /** What holds now; takes nothing. */
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

  /** The same limit inside a decision, where nobody can wait. @internal */
  within(tx: Tx): TxRateLimit {
    return new TxRateLimit(this.name, (count, options) => {
      checkOptions(options, KEY_OPTIONS);
      return this.#tryTake(tx, this.#at(options?.key), checkTokens(count));
    });
  }

  /** What is asked for, checked before it becomes part of a decision. @internal */
  checkWish(options: Pick<AcquireTokensOptions, "count" | "key" | "timeout">): void {
    checkOptions(options, WISH);
    checkTokens(options.count);
    this.#at(options.key);
    if (options.timeout !== undefined) checkDuration(options.timeout, "the timeout");
  }

  /** Takes a turn that may be later than now, unless it is later than this; answers how long that is. */
  reserveIn(
    tx: Tx,
    options: Pick<AcquireTokensOptions, "count" | "key" | "timeout">,
  ): { readonly isGranted: boolean; readonly waitMs: number } {
    const { count, key, timeout } = options;
    const longestMs = timeout === undefined ? LONGEST_MS : checkDuration(timeout, "the timeout");
    const { waitMs, turn } = this.#take(tx, this.#at(key), checkTokens(count), longestMs);
    return { isGranted: turn !== null, waitMs };
  }

  /** Whether it is a limit of the handle that this kernel is behind. @internal */
  isOn(kernel: Kernel): boolean {
    return this.#kernel === kernel;
  }

  /** The record that a decision on this limit touches, if it gives no key. @internal */
  get touches(): Address {
    return this.#at(undefined);
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

  /** Takes a turn, unless it comes too late. */
  #take(
    tx: Tx,
    at: Address,
    count: number,
    longestMs: number,
  ): { readonly waitMs: number; readonly turn: Turn | null; readonly remaining: number } {
    // The clock comes first: it makes sure that the bucket is read under its lock, and not believed to be what it was.
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
    if (was === null) this.#limits.making();
    // Other figures hold from now on, also if their own declarer is the first to be refused.
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

/** A rate limit inside a decision: takes tokens that are there, in the same commit. */
export class TxRateLimit {
  readonly #name: string;
  readonly #tryTake: (count: number | undefined, options: TakeOptions | undefined) => TryTake;

  /** @internal */
  constructor(name: string, tryTake: (count: number | undefined, options: TakeOptions | undefined) => TryTake) {
    this.#name = name;
    this.#tryTake = tryTake;
  }

  /** Takes tokens, 1 unless said otherwise; throws `rate_limited` if they are not there. */
  take(count?: number, options?: TakeOptions): { readonly remaining: number } {
    const answer = this.#tryTake(count, options);
    if (!answer.ok) throw new RateLimitedError(this.#name, answer.retryAfterMs);
    return { remaining: answer.remaining };
  }

  /** Takes tokens if they are there, or says when they will be. */
  tryTake(count?: number, options?: TakeOptions): TryTake {
    return this.#tryTake(count, options);
  }
}

const checkTokens = (count: unknown = 1): number => checkCount(count, "the count", MOST_TOKENS);

function checkFigures(options: RateLimitOptions): Figures {
  checkOptions(options ?? null, FIGURES);
  const max = checkCount(options.max, "max", MOST_TOKENS);
  const perMs = checkDuration(options.per, "per");
  if (perMs < 1) throw new InvalidDurationError("per", "must be at least a millisecond");
  const { strict = false } = options;
  if (typeof strict !== "boolean") throw new InvalidArgumentError("strict", "must be true or false");
  if (strict && options.burst !== undefined && options.burst !== 1)
    throw new InvalidArgumentError("the burst", "must be 1, or left out, where the limit is strict");
  const burst = strict ? 1 : checkCount(options.burst ?? max, "the burst", MOST_TOKENS);
  const figures = { max, perMs, burst };
  if (fillMs(figures) > LONGEST_MS)
    throw new InvalidArgumentError("the burst", "must not take longer than a hundred years to fill up");
  return figures;
}
