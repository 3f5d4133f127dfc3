/**
 * Joint transactions: decisions that commit together with other SQL.
 *
 * `within` runs a decision in a transaction that the application opened: its rows are locked, decided on and written there, and take effect
 * when that transaction commits. `share` opens a transaction itself; it has a lane and a mark, as a batch does, so a lost reply is
 * resolved in the same way.
 *
 * Guarantees: all or nothing with the other SQL (G29); `share` ends in success, a definite failure, or `outcome_unknown` (G2). A decision
 * that throws has written nothing, and leaves the transaction usable.
 */

import { Admission } from "../admission.ts";
import { Assumptions } from "../assumptions.ts";
import { settledWithin } from "../closing.ts";
import type { Address, Executor, Put, Sql, SqlStore, Store, SyncDatabase } from "../contract.ts";
import { type Decision, Tape } from "../decision.ts";
import { ClosedError, InvalidArgumentError, StoreError } from "../errors.ts";
import { Flight, type FlightContext, type Submission, submissionOf } from "../flight.ts";
import { Lane, notCommitted, outcomeUnknown } from "../lane.ts";
import { pause } from "../ports.ts";

/** Runs a decision in the open transaction. */
export type Join = <T>(decide: Decision<T>, keys: readonly Address[]) => Promise<T>;

/** The user's SQL, and decisions after it. `db` is given if the store is synchronous. */
export type JointWork<T> = (sql: Sql, join: Join, db?: SyncDatabase) => Promise<T>;

export interface JointOptions extends Omit<FlightContext, "flying" | "assumptions" | "clockEstimate"> {
  readonly patienceMs: number;
  /** Called after each commit, with what its decisions wrote, as far as it is known here. */
  readonly committed: (puts: readonly Put[]) => void;
}

export class Joint {
  readonly #store: Store;
  readonly #options: JointOptions;
  readonly #context: FlightContext;
  readonly #free: Lane[] = [];
  #lanes = 0;
  /** Transactions that `share` has not ended, and what rolls all of them back. */
  readonly #shared = new Set<Promise<unknown>>();
  readonly #dropped = new AbortController();
  #admission: Admission | undefined;
  #isClosing = false;
  /** By executor, the last decision that was submitted. */
  readonly #last = new WeakMap<Executor, Promise<unknown>>();

  constructor(store: Store, options: JointOptions) {
    this.#store = store;
    this.#options = options;
    this.#context = { ...options, flying: null, assumptions: new Assumptions(false), clockEstimate: () => null };
  }

  /** Decisions in one transaction run one after another: each must see what the one before it wrote. */
  within<T>(executor: Executor, decide: Decision<T>, keys: readonly Address[]): Promise<T> {
    const before = this.#last.get(executor) ?? Promise.resolve();
    const mine = before.then(() => this.#within(executor, decide, keys));
    this.#last.set(
      executor,
      mine.catch(() => {}),
    );
    return mine;
  }

  async #within<T>(executor: Executor, decide: Decision<T>, keys: readonly Address[]): Promise<T> {
    const store = this.#sqlStore();
    const { clock } = this.#options.ports;
    const giveUpAtMs = clock.nowMs() + this.#options.patienceMs;
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const submission: Submission = submissionOf({
      decide,
      resolve: resolve as (value: unknown) => void,
      reject,
      tape: new Tape(),
      giveUpAtMs,
      keys,
      path: "locked",
    });
    for (;;) {
      const flight = new Flight([submission], this.#context, false);
      const joined = await store.join(executor, { lock: flight.lock, decide: (found) => flight.decide(found) });
      if (joined.written && flight.isComplete) {
        flight.committed();
        joined.committed.then(
          (isCommitted) => isCommitted && this.#options.committed(flight.puts),
          () => {},
        );
        return promise;
      }
      if (clock.nowMs() >= giveUpAtMs)
        throw new StoreError("store_busy", "retry", "other processes keep changing the records: try again later");
      await pause(clock, 1);
    }
  }

  share<T>(work: JointWork<T>): Promise<T> {
    const store = this.#sqlStore();
    const shared = this.#share(store, work);
    this.#shared.add(shared);
    const done = () => this.#shared.delete(shared);
    shared.then(done, done);
    return shared;
  }

  /** Throws `invalid_argument` if the store has no SQL. */
  checkSql(): void {
    this.#sqlStore();
  }

  /**
   * Waits for transactions in progress; those that still wait for admission are refused. Those whose COMMIT was not sent after `ms` are rolled back.
   */
  async close(ms: number): Promise<void> {
    this.#isClosing = true;
    this.#admission?.close();
    const all = Promise.allSettled(this.#shared);
    if (this.#shared.size > 0) await settledWithin(this.#options.ports.clock, ms, all);
    this.#dropped.abort(new ClosedError(DROPPED));
    await all;
  }

  /** Limits how many shared transactions are open at a time, so that the kernel's own work always finds a connection. */
  async #share<T>(store: SqlStore, work: JointWork<T>): Promise<T> {
    const { ports, patienceMs } = this.#options;
    const giveUpAtMs = ports.clock.nowMs() + patienceMs;
    this.#admission ??= new Admission(ports.clock, store.maxShared);
    const isAdmitted = await this.#admission.enter(patienceMs);
    if (this.#isClosing) {
      if (isAdmitted) this.#admission.leave();
      throw new ClosedError();
    }
    if (!isAdmitted)
      throw new StoreError(
        "store_busy",
        "retry",
        `transact.sql waited ${patienceMs} ms to open its transaction: at most ${store.maxShared} may be open at a time; make them shorter, or the pool larger`,
      );
    try {
      return await this.#shareNow(store, work, giveUpAtMs);
    } finally {
      this.#admission.leave();
    }
  }

  async #shareNow<T>(store: SqlStore, work: JointWork<T>, giveUpAtMs: number): Promise<T> {
    const { ports } = this.#options;
    const { clock } = ports;
    const dropped = this.#dropped.signal;
    const lane = this.#free.pop() ?? new Lane(store, ports, store.lanes + this.#lanes++);
    let result: { readonly value: T } | undefined;
    let hasBegun = false;
    const begin = async (): Promise<void> => {
      const obstacle = await lane.settle();
      if (obstacle !== undefined) throw obstacle;
      await store.share(
        lane.nextMark(),
        async (sql, executor, db) => {
          hasBegun = true;
          const value = await work(sql, (decide, keys) => this.within(executor, decide, keys), db);
          result = { value };
        },
        dropped,
      );
    };
    /** A store that is unreachable or busy before the work has begun may recover soon. */
    const mayBeginLater = (error: unknown): boolean =>
      !hasBegun && error instanceof StoreError && error.data.remedy !== "fail" && clock.nowMs() < giveUpAtMs;
    try {
      for (let isDone = false; !isDone; )
        try {
          await begin();
          isDone = true;
        } catch (error) {
          if (!mayBeginLater(error)) throw error;
          lane.unsettle();
          await pause(clock, lane.backoffMs(), dropped);
          dropped.throwIfAborted();
        }
      lane.acknowledge();
      lane.succeeded();
    } catch (error) {
      if (!(error instanceof StoreError) || error.data.remedy !== "settle") throw error;
      const resolved = await lane.resolve(error, giveUpAtMs, dropped);
      if (resolved === "unknown") throw outcomeUnknown(error);
      if (resolved === "not-committed") throw notCommitted(error);
    } finally {
      this.#free.push(lane);
    }
    // The work returned before the commit was sent.
    if (result === undefined) throw new Error("a shared transaction was committed before its work was done");
    this.#options.committed([]);
    return result.value;
  }

  #sqlStore(): SqlStore {
    if (!isSqlStore(this.#store))
      throw new InvalidArgumentError("the store", "must be SQLite or PostgreSQL to share a transaction with SQL");
    return this.#store;
  }
}

const DROPPED =
  "the handle was closed while a transaction with your SQL was open: it was rolled back, and nothing of it was committed";

function isSqlStore(store: Store): store is SqlStore {
  return "join" in store && "share" in store;
}
