/**
 * Joint transactions: decisions that commit together with other SQL.
 *
 * `within` runs a decision in a transaction that somebody else opened: its rows are locked, decided on and written there, and hold
 * when that transaction commits. `share` opens a transaction itself; it has a lane and a mark, as a batch does, so a lost reply is
 * resolved in the same way.
 *
 * Promises: all or nothing with the other SQL (G29); `share` ends in yes, a definite no, or `outcome_unknown` (G2). A decision that
 * throws has written nothing, and leaves the transaction usable.
 */

import { Admission } from "./admission.ts";
import { Assumptions } from "./assumptions.ts";
import type { Address, Executor, Sql, SqlStore, Store, SyncDatabase } from "./contract.ts";
import { type Decision, Tape } from "./decision.ts";
import { ClosedError, InvalidArgumentError, StoreError } from "./errors.ts";
import { type Airspace, Flight, type Submission, submissionOf } from "./flight.ts";
import { pause } from "./ports.ts";

/** Runs a decision in the transaction at hand. */
export type Join = <T>(decide: Decision<T>, keys: readonly Address[]) => Promise<T>;

/** The user's SQL, and decisions after it. `db` is there where the store answers at once. */
export type JointWork<T> = (sql: Sql, join: Join, db?: SyncDatabase) => Promise<T>;

interface Lane {
  readonly index: number;
  epoch: number | null;
  /** The last sequence whose commit was acknowledged; 0 before the first. */
  acknowledged: number;
  sequence: number;
}

export interface JointOptions extends Omit<Airspace, "flying" | "assumptions" | "late"> {
  readonly patienceMs: number;
  readonly committed: () => void;
}

export class Joint {
  readonly #store: Store;
  readonly #options: JointOptions;
  readonly #air: Airspace;
  readonly #free: Lane[] = [];
  #lanes = 0;
  readonly #shared = new Set<Promise<unknown>>();
  #admission: Admission | undefined;
  #isClosing = false;
  /** By executor, the last decision that was asked for. */
  readonly #turns = new WeakMap<Executor, Promise<unknown>>();

  constructor(store: Store, options: JointOptions) {
    this.#store = store;
    this.#options = options;
    this.#air = { ...options, flying: null, assumptions: new Assumptions(false), late: () => null };
  }

  /** Decisions in one transaction take turns: each must see what the one before it wrote. */
  within<T>(executor: Executor, decide: Decision<T>, keys: readonly Address[]): Promise<T> {
    const before = this.#turns.get(executor) ?? Promise.resolve();
    const mine = before.then(() => this.#within(executor, decide, keys));
    this.#turns.set(
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
      const flight = new Flight([submission], this.#air, false);
      const joined = await store.join(executor, { lock: flight.lock, decide: (found) => flight.decide(found) });
      if (joined.written && flight.again.length === 0) {
        flight.answer();
        joined.committed.then(
          (isCommitted) => isCommitted && this.#options.committed(),
          () => {},
        );
        return promise;
      }
      if (clock.nowMs() >= giveUpAtMs)
        throw new StoreError("store_busy", "retry", "the records changed again and again under the decision");
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

  /** Lets what is under way finish; what still waits for its turn is refused. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#admission?.close();
    await Promise.allSettled(this.#shared);
  }

  /** Waits for one of the transactions that may be open at a time, so that the kernel's own work always finds a connection. */
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
        `transact.sql waited ${patienceMs} ms for its turn: ${store.maxShared} such transactions may be open at a time, and all were in use`,
      );
    try {
      return await this.#shareNow(store, work, giveUpAtMs);
    } finally {
      this.#admission.leave();
    }
  }

  async #shareNow<T>(store: SqlStore, work: JointWork<T>, giveUpAtMs: number): Promise<T> {
    const lane = this.#free.pop() ?? { index: store.lanes + this.#lanes++, epoch: null, acknowledged: 0, sequence: 0 };
    const { clock, chance } = this.#options.ports;
    let result: { readonly value: T } | undefined;
    let hasBegun = false;
    const begin = async (): Promise<void> => {
      await this.#settle(lane, giveUpAtMs);
      lane.sequence += 1;
      await store.share(
        { lane: lane.index, epoch: lane.epoch ?? 0, sequence: lane.sequence },
        async (sql, executor, db) => {
          hasBegun = true;
          const value = await work(sql, (decide, keys) => this.within(executor, decide, keys), db);
          result = { value };
        },
      );
    };
    /** A store that is away or busy before the work has begun may be back soon. */
    const mayBeginLater = (error: unknown): boolean =>
      !hasBegun && error instanceof StoreError && error.data.remedy === "retry" && clock.nowMs() < giveUpAtMs;
    try {
      for (let isDone = false; !isDone; )
        try {
          await begin();
          isDone = true;
        } catch (error) {
          if (!mayBeginLater(error)) throw error;
          await pause(clock, 50 * (0.25 + chance.random()));
        }
    } catch (error) {
      if (!(error instanceof StoreError) || error.data.remedy !== "settle") throw error;
      await this.#resolve(lane, giveUpAtMs, error);
    } finally {
      this.#free.push(lane);
    }
    lane.acknowledged = lane.sequence;
    // Everything the work returned was there before the commit was asked for.
    if (result === undefined) throw new Error("a shared transaction was committed before its work was done");
    this.#options.committed();
    return result.value;
  }

  /** The reply was lost: returns if the transaction is there, throws a definite no if it is not. */
  async #resolve(lane: Lane, giveUpAtMs: number, error: StoreError): Promise<void> {
    const { sequence, acknowledged } = lane;
    const unknown = new StoreError("outcome_unknown", "settle", error.message, { cause: error });
    lane.epoch = null;
    try {
      await this.#settle(lane, giveUpAtMs);
    } catch {
      throw unknown;
    }
    // The store has been put back, or has lost the mark: it cannot tell. What was refused was not written.
    if (lane.sequence < acknowledged && error.code !== "store_refused") throw unknown;
    if (lane.sequence < sequence)
      throw new StoreError("store_unreachable", "retry", "the commit did not reach the store", { cause: error });
  }

  async #settle(lane: Lane, giveUpAtMs: number): Promise<void> {
    const { clock, chance } = this.#options.ports;
    while (lane.epoch === null)
      try {
        const { epoch, sequence } = await this.#store.settle(lane.index);
        lane.epoch = epoch;
        lane.sequence = sequence;
      } catch (error) {
        if (!(error instanceof StoreError) || error.data.remedy === "fail" || clock.nowMs() >= giveUpAtMs) throw error;
        await pause(clock, 50 * (0.25 + chance.random()));
      }
  }

  #sqlStore(): SqlStore {
    if (!isSqlStore(this.#store))
      throw new InvalidArgumentError("the store", "must be SQLite or PostgreSQL to share a transaction with SQL");
    return this.#store;
  }
}

function isSqlStore(store: Store): store is SqlStore {
  return "join" in store && "share" in store;
}
