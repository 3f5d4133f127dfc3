/**
 * Idempotency: work that is requested again under the same key is done once, and every caller gets its answer.
 *
 * A key is one record. The first call begins an attempt with a lease; what its function returns is stored as the answer, and later calls
 * return it. A call during the attempt throws `idempotency_in_progress`, and a different request under the same key `idempotency_mismatch`.
 * An attempt whose process dies is taken over when its lease ends; if the process was only paused, the fence refuses what it writes.
 *
 * Guarantees: a different request never gets the old answer (G3); an attempt that was taken over stores nothing (G6); with
 * `commit`, or inside a decision, the effect and the answer are stored together, exactly once (G2, G29).
 * Out of scope: effects elsewhere. A function may be interrupted after such an effect and run again: pass `attempt.key` on to it.
 */

import type { Queue } from "../kernel/capability.ts";
import { checkFunction, checkId, checkLease, checkOptions, type Duration, optionNames } from "../kernel/check.ts";
import { CLOSING_MS, settledWithin } from "../kernel/closing.ts";
import type { Address } from "../kernel/contract.ts";
import { refusePromise, type Sync, type Tx } from "../kernel/decision.ts";
import { fingerprintOf } from "../kernel/fingerprint.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Prepare } from "../kernel/sql/in-sql.ts";
import { type Answered, type Attempt, KeyAttempt, type StoreErrors } from "./attempt.ts";
import { type Dedupe, type DedupeOptions, dedupeOn, markIn } from "./dedupe.ts";
import { checkScope, checkTtl } from "./input.ts";
import { answerAtOnce, type Begun, begin, type Call, sweepOne } from "./records.ts";
import { KEYS, type KeyValue, keyAt, MARKS } from "./stored.ts";

/** What identifies a request, and how long its answer is kept. */
export interface KeyOptions {
  /** Keeps the keys of callers apart: usually who is calling. It is stored as a hash. */
  readonly scope?: string | undefined;
  /** The request, or what matters of it: any value that can be stored. The same key with another one is refused. */
  readonly fingerprint?: unknown;
  /** How long the answer is kept, from when the work began. Default: 24 hours. */
  readonly ttl?: Duration | undefined;
}

export interface IdempotentOptions extends KeyOptions {
  /** How long after its process died an attempt can be taken over. Default: 30 s. */
  readonly lease?: Duration | undefined;
  /** Which errors are stored, and thrown again by later calls. Other errors free the key. Default: none is stored. */
  readonly storeErrors?: StoreErrors | undefined;
}

const TTL = 24 * 3_600_000;
const LEASE = "30s";
const KEY_OPTIONS = optionNames<KeyOptions>({ scope: true, fingerprint: true, ttl: true });
const IDEMPOTENT_OPTIONS = optionNames<IdempotentOptions>({
  scope: true,
  fingerprint: true,
  ttl: true,
  lease: true,
  storeErrors: true,
});

/** Everything about keys and marks, for one handle. `Face` is the `tx` of its decisions. @internal */
export class Idempotency<Face, Touch> {
  readonly #kernel: Kernel;
  readonly #prepare: Prepare<Face, Touch>;
  /** Runs a decision once for each message of a consumer. */
  readonly dedupe: Dedupe<Face, Touch>;
  #by: string | undefined;
  /** Keys that this process is beginning or working on. */
  readonly #live = new Set<string>();
  readonly #trials = new Set<Promise<unknown>>();
  readonly queues: readonly Queue[];

  constructor(kernel: Kernel, prepare: Prepare<Face, Touch>) {
    this.#kernel = kernel;
    this.#prepare = prepare;
    this.dedupe = dedupeOn(kernel, prepare);
    const chore = (at: Address): Promise<boolean> => kernel.transact((tx) => sweepOne(tx, at), [at]);
    this.queues = [KEYS, MARKS].map((kind) => ({ kind, chore }));
  }

  /** Does the work of the key once, or returns its stored answer. Throws `idempotency_in_progress`, `idempotency_mismatch`. */
  async idempotent<T>(
    key: string,
    options: IdempotentOptions | undefined,
    fn: (attempt: Attempt<Face, Touch>) => T | Promise<T>,
    prepare: Prepare<Face, Touch> = this.#prepare,
  ): Promise<Answered<T>> {
    checkOptions(options, IDEMPOTENT_OPTIONS);
    const call = checkCall(key, options);
    const leaseMs = checkLease(options?.lease ?? LEASE, "the lease");
    const storeErrors = options?.storeErrors;
    if (storeErrors !== undefined) checkFunction(storeErrors, "storeErrors");
    checkFunction(fn, "the function");
    const startedMs = this.#kernel.ports.clock.nowMs();
    // A call during an attempt of this process must not change the row that the attempt keeps.
    const isFirst = !this.#live.has(call.at.text);
    this.#live.add(call.at.text);
    try {
      const begun = await this.#begin(call, leaseMs, isFirst);
      if (begun.is === "answered") return this.#replay(call, begun.text);
      const row = this.#kernel.held(call.at);
      const known = row?.fence === begun.row.fence ? row : begun.row;
      const trial = new KeyAttempt(this.#kernel, prepare, call, known, startedMs, leaseMs);
      return await this.#during(trial.run(fn, storeErrors));
    } finally {
      if (isFirst) this.#live.delete(call.at.text);
    }
  }

  /** The same inside a decision. */
  within(tx: Tx): TxIdempotency {
    return new TxIdempotency(this.#kernel, tx);
  }

  get isBusy(): boolean {
    return this.#trials.size > 0;
  }

  /** Waits for attempts in progress, at most for 5 s. */
  async close(): Promise<void> {
    await settledWithin(this.#kernel.ports.clock, CLOSING_MS, Promise.allSettled(this.#trials));
  }

  async #during<T>(trial: Promise<T>): Promise<T> {
    this.#trials.add(trial);
    try {
      return await trial;
    } finally {
      this.#trials.delete(trial);
    }
  }

  /** The commit that takes the key also says what its row is, so that the answer is stored without reading it again. */
  async #begin(call: Call, leaseMs: number, isFirst: boolean): Promise<Begun> {
    const kernel = this.#kernel;
    const { at } = call;
    this.#by ??= kernel.ports.chance.uuid();
    const by = this.#by;
    let isMine = false;
    if (isFirst) kernel.expect(at, true);
    try {
      const begun = await kernel.transact((tx) => begin(tx, call, { by, leaseMs }), [at]);
      isMine = begun.is === "begun";
      return begun;
    } finally {
      if (isFirst) {
        kernel.expect(at, false);
        if (!isMine) kernel.letGo(at);
      }
    }
  }

  #replay<T>({ at }: Call, text: string): Answered<T> {
    return { value: unpack(this.#kernel.decodeFresh(at, text) as KeyValue) as T, replayed: true };
  }
}

/** Keys and marks inside a decision. */
export class TxIdempotency {
  readonly #kernel: Kernel;
  readonly #tx: Tx;

  /** @internal */
  constructor(kernel: Kernel, tx: Tx) {
    this.#kernel = kernel;
    this.#tx = tx;
  }

  /**
   * Returns the answer that is stored under the key, or runs the function, synchronously, and stores what it returns in this commit. Throws
   * `idempotency_in_progress` and `idempotency_mismatch`, which refuse the whole decision unless they are caught.
   */
  idempotent<T>(key: string, options: KeyOptions | undefined, decide: () => Sync<T>): Answered<T> {
    checkOptions(options, KEY_OPTIONS);
    const call = checkCall(key, options);
    checkFunction(decide, "the decision");
    const { text, isReplay } = answerAtOnce(this.#tx, call, () => {
      const value = decide();
      refusePromise(value);
      return value;
    });
    const stored = this.#kernel.decode(call.at, text) as KeyValue;
    return { value: unpack(stored) as T, replayed: isReplay };
  }

  /** Marks the message as handled by this consumer in this commit. Returns whether it is new. */
  dedupe(consumer: string, messageId: string, options?: DedupeOptions): boolean {
    return markIn(this.#tx, consumer, messageId, options);
  }
}

/** What was stored: a value, or an error to throw again, marked as such. */
function unpack(stored: KeyValue): unknown {
  if (!("error" in stored)) return stored.ok;
  const { error } = stored;
  throw error instanceof Error ? Object.assign(error, { replayed: true }) : error;
}

function checkCall(key: string, options: KeyOptions | undefined): Call {
  const { scope, fingerprint, ttl = TTL } = options ?? {};
  return {
    at: keyAt(scope === undefined ? undefined : checkScope(scope), checkId(key, "the idempotency key")),
    fingerprint: fingerprint === undefined ? null : fingerprintOf(fingerprint),
    ttlMs: checkTtl(ttl),
  };
}
