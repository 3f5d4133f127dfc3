/**
 * Idempotency: work that is asked for again under the same key is done once, and everybody hears what it came to.
 *
 * A key is one record. The first caller takes it, as an attempt with a lease; what its function returns is stored there, and whoever asks
 * again gets it. Whoever asks meanwhile is told so, and whoever asks for something else under the same key is refused. An attempt that
 * dies with its process is taken over when its lease ends; if it was only asleep, the fence refuses what it brings.
 *
 * Promises: another request is never answered with the old result (G3); an attempt that was taken over stores nothing (G6); with
 * `commit`, or inside a decision, the effect and the answer are there together, exactly once (G2, G29).
 * Leaves out: effects elsewhere. A function that does them may be interrupted after them and run again: it passes `attempt.key` on.
 */

import { checkFunction, checkId, checkLease, checkOptions, type Duration, optionNames } from "../kernel/check.ts";
import { address } from "../kernel/contract.ts";
import { refusePromise, type Sync, type Tx } from "../kernel/decision.ts";
import { fingerprintOf } from "../kernel/fingerprint.ts";
import type { Prepare } from "../kernel/in-sql.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { pause } from "../kernel/ports.ts";
import { type Answered, type Attempt, type StoreErrors, Trial } from "./attempt.ts";
import { type Dedupe, type DedupeOptions, dedupeOn, markIn } from "./dedupe.ts";
import { checkScope, checkTtl } from "./input.ts";
import { answerAtOnce, type Begun, begin, type Call, sweepOne } from "./records.ts";
import { KEYS, type KeyValue, keyAt, MARKS } from "./words.ts";

/** What says that two calls are the same one, and for how long that is remembered. */
export interface KeyOptions {
  /** Keeps the keys of callers apart: usually who is calling. It is stored as a hash. */
  readonly scope?: string | undefined;
  /** The request, or what matters of it: any value that can be stored. The same key with another one is refused. */
  readonly fingerprint?: unknown;
  /** How long the answer is kept, from when the work began; 24 hours unless said otherwise. */
  readonly ttl?: Duration | undefined;
}

export interface IdempotentOptions extends KeyOptions {
  /** How long a caller that died keeps the others waiting; 30 s unless said otherwise. */
  readonly lease?: Duration | undefined;
  /** Which errors are stored, and thrown again at whoever asks again. The others free the key; none is stored unless said. */
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
/** Whoever makes records sweeps up: a small sweep for so many, and one at the start. */
const SWEEP_EVERY = 256;
/** And not again for so long, unless there was as much to sweep up as could be. */
const SWEEP_PAUSE_MS = 1_000;
/** So long a handle that is being closed waits for the work of keys. */
const LAST_CALL_MS = 5_000;
const ENDED = "ended";

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
  #made = SWEEP_EVERY - 1;
  #sweepAtMs = 0;
  /** A process that lives no longer than its one key sweeps too: closing waits for it. */
  #sweeping: Promise<void> | undefined;

  constructor(kernel: Kernel, prepare: Prepare<Face, Touch>) {
    this.#kernel = kernel;
    this.#prepare = prepare;
    this.dedupe = dedupeOn(kernel, prepare, () => this.#count());
  }

  /** Does the work of the key, once; or answers what it came to. */
  async idempotent<T>(
    key: string,
    options: IdempotentOptions | undefined,
    fn: (attempt: Attempt<Face, Touch>) => T | Promise<T>,
  ): Promise<Answered<T>> {
    checkOptions(options, IDEMPOTENT_OPTIONS);
    const call = checkCall(key, options);
    const leaseMs = checkLease(options?.lease ?? LEASE, "the lease");
    const storeErrors = options?.storeErrors;
    if (storeErrors !== undefined) checkFunction(storeErrors, "storeErrors");
    checkFunction(fn, "the function");
    const startedMs = this.#kernel.ports.clock.nowMs();
    // Whoever comes while the key is worked on here leaves what is known of it alone.
    const isFirst = !this.#live.has(call.at.text);
    this.#live.add(call.at.text);
    try {
      const begun = await this.#begin(call, leaseMs, isFirst);
      if (begun.is === "answered") return this.#replay(call, begun.text);
      this.#count();
      const row = this.#kernel.held(call.at);
      const known = row?.fence === begun.row.fence ? row : begun.row;
      const trial = new Trial(this.#kernel, this.#prepare, call, known, startedMs, leaseMs);
      return await this.#during(trial.run(fn, storeErrors));
    } finally {
      if (isFirst) this.#live.delete(call.at.text);
    }
  }

  /** The same inside a decision. Once that is committed, `tidy` does what a decision cannot. */
  within(tx: Tx): TxIdempotency {
    this.#made += 1;
    return new TxIdempotency(this.#kernel, tx);
  }

  /** Removes up to so many keys and marks that have expired; answers how many. It happens by itself, now and then. */
  async sweep(limit = SWEEP_EVERY): Promise<number> {
    const { keys } = await this.#kernel.due({ kinds: [KEYS, MARKS], limit });
    const swept = await Promise.allSettled(
      keys.map(({ space, key }) => {
        const at = address(space, key);
        return this.#kernel.transact((tx) => sweepOne(tx, at), [at]);
      }),
    );
    return swept.filter((one) => one.status === "fulfilled" && one.value).length;
  }

  /** Sweeps, if so many records were made since the last time. */
  tidy(): void {
    const { clock } = this.#kernel.ports;
    if (this.#made < SWEEP_EVERY || clock.nowMs() < this.#sweepAtMs) return;
    this.#made = 0;
    this.#sweepAtMs = clock.nowMs() + SWEEP_PAUSE_MS;
    const sweeping = this.sweep().then(
      (swept) => {
        if (swept === SWEEP_EVERY) this.#sweepAtMs = 0;
      },
      // What is missed now is found by the next one.
      () => {},
    );
    this.#sweeping = sweeping;
    void sweeping.then(() => {
      if (this.#sweeping === sweeping) this.#sweeping = undefined;
    });
  }

  get isBusy(): boolean {
    return this.#trials.size > 0 || this.#sweeping !== undefined;
  }

  /** Before the handle is closed: waits for the work and the sweep that are under way, but not for long. */
  async close(): Promise<void> {
    const ended = new AbortController();
    const all = Promise.allSettled(this.#trials)
      .then(() => this.#sweeping)
      .then(() => ended.abort(ENDED));
    await Promise.race([all, pause(this.#kernel.ports.clock, LAST_CALL_MS, ended.signal)]);
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

  #count(): void {
    this.#made += 1;
    this.tidy();
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
   * Answers what is stored under the key, or runs the function, at once, and stores what it returns: all in this commit. A key that
   * somebody works on, or that was used for another request, is refused, and so is then the whole decision, unless it is caught.
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

  /** Marks the message as handled by this consumer, if this commit happens; answers whether it is new. */
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
