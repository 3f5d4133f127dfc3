/**
 * One attempt to do the work of a key: it holds the key under a lease while the user's function runs, and then stores its answer.
 *
 * The answer is stored by the attempt itself, after the function has returned; or by the function, together with its effect, with
 * `commit` and `commitSql`. In every case the attempt must still hold the key: one that was taken over is refused as `fenced`.
 */

import { checkFunction } from "../kernel/check.ts";
import { Held } from "../kernel/claim/claim.ts";
import { isHolder } from "../kernel/claim/decide.ts";
import type { Row } from "../kernel/contract.ts";
import { refusePromise, type Sync, type Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { FencedError, InvalidArgumentError, StoreError } from "../kernel/errors.ts";
import { hash } from "../kernel/fingerprint.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { fencedOrRenewed, type Lease } from "../kernel/lease.ts";
import { type Prepare, runInSql, type SqlWork } from "../kernel/sql/in-sql.ts";
import { callNow } from "../kernel/sync.ts";
import { IdempotencyAnsweredError } from "./errors.ts";
import { answer, type Call, free, isAnsweredBy, isUnstorable, report, type StoredOutcome } from "./records.ts";
import type { KeyValue } from "./stored.ts";

/** What the function of `idempotent` receives. */
export interface Attempt<Face, Touch> {
  /** The same for every attempt under this key and scope: pass it on to whatever is called. */
  readonly key: string;
  /** 1, and one more each time that an attempt was interrupted: then some of the work may have been done. */
  readonly attempt: number;
  /** Rises with every attempt: a resource that keeps the highest it has seen can refuse one that was taken over. */
  readonly fence: number;
  /** Aborts when the attempt has been taken over, or may have been. Stop working then. */
  readonly abortSignal: AbortSignal;
  /**
   * Runs a decision and stores what it returns as the answer, in one commit: the effect happens exactly once, whatever crashes. Once only;
   * a decision that throws has stored nothing, and another may be tried. The function should then return what `commit` returned.
   */
  commit<T>(decide: (tx: Face) => Sync<T>, options?: Touch): Promise<T>;
  /** The same with SQL of your own, on PostgreSQL and SQLite: what the work returns is stored in its transaction. */
  commitSql<T>(work: SqlWork<T, Face, Touch>): Promise<T>;
  /** Renews the lease no more: if the work does not end before the lease does, the next caller takes over. */
  lapse(): void;
}

export type StoreErrors = (error: unknown) => boolean;

/** An answer, and whether it was stored before. */
export interface Answered<T> {
  readonly value: T;
  readonly replayed: boolean;
}

/** An attempt that was granted. @internal */
export class KeyAttempt<Face, Touch> {
  readonly #kernel: Kernel;
  readonly #prepare: Prepare<Face, Touch>;
  readonly #call: Call;
  readonly #held: Held;
  readonly #lease: Lease;
  readonly #startedMs: number;
  /** What `commit` stored. */
  #answer: { readonly value: unknown } | undefined;
  #committing: Promise<unknown> | undefined;
  #isOver = false;

  constructor(kernel: Kernel, prepare: Prepare<Face, Touch>, call: Call, row: Row, startedMs: number, leaseMs: number) {
    this.#kernel = kernel;
    this.#prepare = prepare;
    this.#call = call;
    this.#held = new Held(kernel, row);
    this.#startedMs = startedMs;
    this.#lease = kernel.leases.keep({
      leaseMs,
      safeUntilMs: startedMs + leaseMs,
      renew: () => fencedOrRenewed(this.#held.renew(leaseMs)),
    });
  }

  /** Runs the function and stores its answer. */
  async run<T>(
    fn: (attempt: Attempt<Face, Touch>) => T | Promise<T>,
    storeErrors: StoreErrors | undefined,
  ): Promise<Answered<T>> {
    try {
      const value = await this.#work(fn, storeErrors);
      // It is what the function returned, or what it committed in place of that.
      return { value: value as T, replayed: false };
    } finally {
      this.#isOver = true;
      this.#lease.stop();
      this.#held.abandon();
    }
  }

  async #work(fn: (attempt: Attempt<Face, Touch>) => unknown, storeErrors: StoreErrors | undefined): Promise<unknown> {
    let returned: unknown;
    try {
      returned = await fn(this.#handle());
      // A commit that the function did not await is part of the work.
      await this.#committing;
    } catch (error) {
      await this.#committing?.catch(() => {});
      return this.#failed(error, storeErrors);
    }
    if (this.#answer === undefined) return this.#succeeded(returned);
    const { value } = this.#answer;
    if (returned === undefined || Object.is(returned, value)) return value;
    throw new InvalidArgumentError(
      "what the function returns after commit",
      "must be what commit returned, or undefined: that is the stored answer",
    );
  }

  #handle(): Attempt<Face, Touch> {
    const { at } = this.#call;
    const kernel = this.#kernel;
    const lease = this.#lease;
    return {
      get key() {
        return hash(kernel.namespace, at.space, at.key);
      },
      attempt: this.#held.tries,
      fence: this.#held.fence,
      get abortSignal() {
        return lease.abortSignal;
      },
      commit: (decide, options) => this.#committed(() => this.#commit(decide, options)),
      commitSql: (work) => this.#committed(() => this.#commitSql(work)),
      lapse: () => lease.stop(),
    };
  }

  /** One answer can be stored, so commits come one after another. */
  #committed<T>(commit: () => Promise<string>): Promise<T> {
    const before = this.#committing;
    const committing = (async () => {
      await before?.catch(() => {});
      if (this.#answer !== undefined || this.#isOver) throw new IdempotencyAnsweredError(this.#call.at.key);
      const text = await commit();
      this.#answer = { value: this.#valueIn(text).ok };
      return this.#answer.value as T;
    })();
    this.#committing = committing;
    const settled = (): void => {
      if (this.#committing === committing) this.#committing = undefined;
    };
    // If the function does not await it, its failure is reported when the function has returned.
    committing.then(settled, settled);
    return committing;
  }

  async #commit<T>(decide: (tx: Face) => Sync<T>, options: Touch | undefined): Promise<string> {
    checkFunction(decide, "the decision");
    const [effect, touches] = this.#prepare(decide, options);
    const keepMs = this.#keepMs;
    const answer = (tx: Tx): string => {
      const record = this.#mine(tx);
      const ok = effect(tx);
      refusePromise(ok);
      return store(tx, record, { ok }, keepMs);
    };
    return this.#kernel.mending(() => this.#kernel.transact(answer, [this.#call.at, ...touches]));
  }

  async #commitSql<T>(work: SqlWork<T, Face, Touch>): Promise<string> {
    checkFunction(work, "the work");
    return this.#kernel.share(async (sql, join) => {
      const ok = await runInSql(sql, join, this.#prepare, work);
      const keepMs = this.#keepMs;
      return join((tx) => store(tx, this.#mine(tx), { ok }, keepMs), [this.#call.at]);
    });
  }

  async #succeeded(ok: unknown): Promise<unknown> {
    const keepMs = this.#keepMs;
    const end = (outcome: StoredOutcome): Promise<string> =>
      this.#held.commit((record, tx) => store(tx, record, outcome, keepMs));
    try {
      return this.#valueIn(await end({ ok })).ok;
    } catch (error) {
      // The work is done, so it must not be done again for the sake of an answer that cannot be stored.
      if (isUnstorable(error)) await end({ error: report(error) });
      throw error;
    }
  }

  /** Stores the error, or frees the key; and throws it on. */
  async #failed(error: unknown, storeErrors: StoreErrors | undefined): Promise<unknown> {
    // What was committed stays the answer; this caller gets the error that came after it.
    if (this.#answer !== undefined) throw error;
    let thrown = error;
    let isStored = false;
    try {
      isStored = storeErrors !== undefined && callNow("storeErrors", storeErrors, error) === true;
    } catch (mistake) {
      thrown = mistake;
    }
    // An error that is to be stored is the answer: the caller gets it only after it is stored.
    const text = isStored ? await this.#storeError(report(error)) : await this.#free();
    // A commit whose outcome was unknown turned out to be there.
    if (text !== null && isDoubtful(error)) return this.#valueIn(text).ok;
    throw thrown;
  }

  async #storeError(error: unknown): Promise<string | null> {
    const keepMs = this.#keepMs;
    try {
      return await this.#end((record, tx) => void store(tx, record, { error }, keepMs));
    } catch (failure) {
      if (!isUnstorable(failure) || error instanceof UnstorableError) throw failure;
      return this.#storeError(new UnstorableError(error));
    }
  }

  async #free(): Promise<string | null> {
    try {
      return await this.#end(free);
    } catch {
      // The lease ends by itself, or another holds the key: the caller gets what the work threw.
      return null;
    }
  }

  /** Ends the attempt without an answer; returns the record's text if this attempt turns out to have stored one. */
  #end(decide: (record: Draft, tx: Tx) => void): Promise<string | null> {
    const { at } = this.#call;
    return this.#kernel.transact(
      (tx) => {
        if (isAnsweredBy(tx.record(at), this.#held.fence)) return tx.record(at).row?.value ?? null;
        decide(this.#mine(tx), tx);
        return null;
      },
      [at],
    );
  }

  /** The time that an answer is kept is counted from the beginning; and from now, as this says, where the work took long. */
  get #keepMs(): number | null {
    const { ttlMs } = this.#call;
    return this.#kernel.ports.clock.nowMs() - this.#startedMs > ttlMs / 2 ? ttlMs : null;
  }

  #mine(tx: Tx): Draft {
    const { at } = this.#call;
    const record = tx.record(at);
    if (!isHolder(record, this.#held)) throw new FencedError(`${at.space} ${at.key}`, this.#held.fence, record.fence);
    return record;
  }

  #valueIn(text: string): KeyValue {
    return this.#kernel.decodeFresh(this.#call.at, text) as KeyValue;
  }
}

const store = (tx: Tx, record: Draft, outcome: StoredOutcome, keepMs: number | null): string =>
  answer(record, outcome, keepMs === null ? undefined : tx.nowMs + keepMs);

/** Stands for an error that is too large to be stored. */
class UnstorableError extends Error {
  constructor(error: unknown) {
    super(error instanceof Error ? error.message.slice(0, 1000) : "something that cannot be stored was thrown");
    this.name = error instanceof Error ? error.name.slice(0, 100) : "Error";
    this.stack = this.name;
  }
}

const isDoubtful = (error: unknown): boolean => error instanceof StoreError && error.code === "outcome_unknown";
