/**
 * The batcher: group commit. All decisions that are waiting go to the store in one transaction, and while it is under way
 * the next ones gather. There is no timer: when the store is idle a decision leaves at once, when it is busy hundreds
 * share one fsync.
 *
 * Two paths, one meaning. *Locked*: the store locks and reads the records, then the decisions run. *Optimistic* (single flight): the
 * holder of a record's lease, or the process that wrote it last, knows its row, so the decision runs before the store is asked, and the
 * store only checks that the row is still the same. `assumptions.ts` has the rules, and why both paths together are serializable.
 *
 * Guarantees: a caller learns the outcome only after the commit; every call ends in success, a definite failure, or `outcome_unknown`
 * (G2); one decision's throw or poison reaches only its own caller; a record is in at most one flight of this process; a call waits no
 * longer than its patience for others (G34).
 */

import { Assumptions } from "./assumptions.ts";
import type { Address, Put, Receipt, Row, Store } from "./contract.ts";
import { type Decision, type Guard, type Late, Tape } from "./decision.ts";
import type { Encoding } from "./encoding.ts";
import { ClosedError, StoreError } from "./errors.ts";
import { type Airspace, BUDGET, Flight, keepChanging, type Submission, submissionOf } from "./flight.ts";
import { foresee } from "./foresight.ts";
import { type Ports, pause } from "./ports.ts";

const MAX_DECISIONS = 512;
/** So many decisions are worth a transaction of their own, where the store has a lane for it. */
const WORTH_A_FLIGHT = 40;
/** For so many turns of the event loop a flight waits for those who are just coming; for none if nobody is. */
const MAX_TURNS = 3;
/** What was heard of the store's clock is good for so long, and so never further off. */
const HEARD_MS = 1000;

/** One writer's sequence of batches. The store tells, lane by lane, which was the last that it has. */
interface Lane {
  readonly index: number;
  isBusy: boolean;
  /** Null until settled: at the start, and after an outcome stayed unknown. */
  epoch: number | null;
  /** The last sequence whose commit was acknowledged; 0 before the first. */
  acknowledged: number;
  sequence: number;
  failures: number;
}

export interface BatcherOptions {
  readonly encoding: Encoding;
  readonly guard: Guard;
  /** How long a call may wait for a store that is busy or away. */
  readonly patienceMs: number;
  /** Told of every commit, in this process's order. */
  readonly committed: (puts: readonly Put[]) => void;
}

export class Batcher {
  readonly #store: Store;
  readonly #ports: Ports;
  readonly #options: BatcherOptions;
  readonly #lanes: Lane[];
  readonly #assumptions: Assumptions;
  readonly #air: Airspace;
  #queue: Submission[] = [];
  /** There may be urgent ones in the queue that do not stand at its head. */
  #hasUrgent = false;
  #isScheduled = false;
  /** Records that flights wait for, and how many flights do. */
  readonly #awaited = new Set<string>();
  #waitingFlights = 0;
  /** A flight takes no more decisions than this: fewer after one that was too large, and then more again. */
  #most = MAX_DECISIONS;
  #closing: (() => void) | undefined;
  /** The store's clock when it was last asked for, and this process's then. */
  #heardMs = 0;
  #heardHereMs = Number.NEGATIVE_INFINITY;

  constructor(store: Store, ports: Ports, options: BatcherOptions) {
    this.#store = store;
    this.#ports = ports;
    this.#options = options;
    // A store with lanes is a round trip away, which is worth saving.
    this.#assumptions = new Assumptions(store.lanes > 1);
    // With one lane there is one flight at a time, and nothing to keep apart.
    this.#air = {
      flying: store.lanes > 1 ? new Set() : null,
      assumptions: this.#assumptions,
      encoding: options.encoding,
      ports,
      guard: options.guard,
      late: () => this.#late(),
    };
    this.#lanes = Array.from({ length: store.lanes }, (_, index) => ({
      index,
      isBusy: false,
      epoch: null,
      acknowledged: 0,
      sequence: 0,
      failures: 0,
    }));
  }

  /** The holder of all these records may be optimistic about them, whatever the store. */
  submit<T>(
    decide: Decision<T>,
    keys: readonly Address[],
    { isHolder = false, isUrgent = false }: { readonly isHolder?: boolean; readonly isUrgent?: boolean } = {},
  ): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#options.guard.isBroken()) return;
      if (this.#closing !== undefined) return reject(new ClosedError());
      this.#queue.push(
        submissionOf({
          decide,
          resolve: resolve as (value: unknown) => void,
          reject,
          tape: new Tape(),
          giveUpAtMs: this.#ports.clock.nowMs() + this.#options.patienceMs,
          keys,
          path: isHolder || this.#lanes.length > 1 ? "optimistic" : "locked",
          isUrgent,
        }),
      );
      this.#hasUrgent ||= isUrgent;
      this.#schedule();
    });
  }

  /** From now on, commits in this process keep this row up to date, and its holder's decisions may use it. */
  know(at: Address, row: Row): void {
    this.#assumptions.hold(at.text, row);
  }

  /** The record is about to be made by a commit of this process, which will hold it. */
  expect(at: Address, isExpected: boolean): void {
    this.#assumptions.expect(at.text, isExpected);
  }

  known(at: Address): Row | undefined {
    return this.#assumptions.held(at.text);
  }

  forget(at: Address): void {
    this.#assumptions.letGo(at.text);
  }

  /** Lets what was submitted finish, and takes nothing more. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#closing = resolve;
      this.#checkClosed();
    });
  }

  #checkClosed(): void {
    if (this.#queue.length === 0 && this.#lanes.every((lane) => !lane.isBusy)) this.#closing?.();
  }

  #schedule(): void {
    if (this.#isScheduled || this.#lanes.every((lane) => lane.isBusy)) return;
    this.#isScheduled = true;
    this.#leaveWhenQuiet(this.#queue.length, MAX_TURNS);
  }

  /** Decisions that are submitted in the same moment fly together: callers that were answered by one flight ask for the next one together. */
  #leaveWhenQuiet(seen: number, turns: number): void {
    this.#ports.clock.soon(() => {
      const { length } = this.#queue;
      if (length > seen && turns > 1) {
        this.#leaveWhenQuiet(length, turns - 1);
        return;
      }
      this.#isScheduled = false;
      const free = this.#lanes.filter((lane) => !lane.isBusy);
      // Where many wait, two flights that overlap are quicker than one that is twice as long.
      const flights = Math.min(free.length, Math.max(1, Math.floor(this.#queue.length / WORTH_A_FLIGHT)));
      const share = Math.min(this.#most, Math.ceil(this.#queue.length / flights));
      for (const lane of free) {
        const submissions = this.#take(share);
        if (submissions.length === 0) break;
        void this.#fly(lane, new Flight(submissions, this.#air, this.#mayWait));
      }
      // All that was left in the queue may have been given up.
      this.#checkClosed();
    });
  }

  /** The next decisions that can share a flight, in the order they came. */
  #take(most: number): Submission[] {
    const taken: Submission[] = [];
    const passed: Submission[] = [];
    // However many wait: a lease that is not renewed in time is lost.
    if (this.#hasUrgent) this.#queue.sort((a, b) => Number(b.isUrgent) - Number(a.isUrgent));
    this.#hasUrgent = false;
    // With lanes to spare, those whose records are all assumed do not wait for the round trip of the locked path.
    const apart = this.#lanes.length > 1;
    const { flying } = this.#air;
    const reserved = new Set<string>();
    const nowMs = this.#ports.clock.nowMs();
    let records = 0;
    let index = 0;
    for (; index < this.#queue.length && taken.length < most; index++) {
      const submission = this.#queue[index] as Submission;
      // It has been put off before, and others that were came first again: it does not wait for its turn to be told.
      if (submission.rounds > 1 && submission.giveUpAtMs <= nowMs) {
        submission.reject(keepChanging());
        continue;
      }
      const first = taken[0];
      if (apart && submission.keys.length === 0 && submission.path === "optimistic") {
        // Running decisions beforehand may take long, too: those behind it are left to the next flight.
        if (first !== undefined && this.#ports.clock.nowMs() - nowMs >= BUDGET.decidingMs) break;
        foresee(submission, this.#air);
      }
      submission.isOptimistic = submission.path === "optimistic" && this.#assumptions.coversAll(submission.keys);
      const fits =
        first === undefined ||
        (!isApart(first) &&
          !isApart(submission) &&
          (!apart || first.isOptimistic === submission.isOptimistic) &&
          records + submission.keys.length <= BUDGET.records);
      // A decision that must wait for its records lets those behind it pass that touch others; its own are kept for it.
      if (fits && !isAnyOf(submission, flying) && !isAnyOf(submission, reserved)) {
        taken.push(submission);
        records += submission.keys.length;
      } else {
        passed.push(submission);
        if (apart) this.#reserve(submission, reserved);
      }
    }
    this.#queue = passed.concat(this.#queue.slice(index));
    return taken;
  }

  /** A decision that wants a record that a flight waits for, perhaps for long, keeps only that one from those behind it. */
  #reserve({ keys }: Submission, reserved: Set<string>): void {
    const awaited = keys.filter(({ text }) => this.#awaited.has(text));
    for (const { text } of awaited.length > 0 ? awaited : keys) reserved.add(text);
  }

  /** Whether a flight may wait for records that another process has: at most half of the lanes may. */
  get #mayWait(): boolean {
    return this.#waitingFlights < Math.floor(this.#lanes.length / 2);
  }

  async #fly(lane: Lane, flight: Flight): Promise<void> {
    lane.isBusy = true;
    const awaited = flight.mayWait ? flight.lock.map(({ text }) => text) : [];
    if (flight.mayWait) this.#waitingFlights += 1;
    for (const text of awaited) this.#awaited.add(text);
    let pauseMs = 0;
    try {
      const obstacle = await this.#settle(lane);
      if (obstacle === undefined) pauseMs = await this.#send(lane, flight);
      else if (obstacle.data.remedy === "fail") flight.fail(obstacle);
      else {
        flight.retry();
        flight.giveUp(this.#ports.clock.nowMs(), obstacle);
        pauseMs = this.#backoff(lane);
      }
      flight.giveUpPutOff(this.#ports.clock.nowMs());
    } catch (error) {
      // A store that breaks its contract: the outcome is not known, and no caller may wait for ever.
      lane.epoch = null;
      flight.fail(error);
    }
    for (const text of awaited) this.#awaited.delete(text);
    if (flight.mayWait) this.#waitingFlights -= 1;
    flight.end();
    if (flight.again.length > 0) {
      this.#hasUrgent ||= this.#queue.some(({ isUrgent }) => isUrgent);
      this.#queue = flight.again.concat(this.#queue);
    }
    if (pauseMs > 0) await pause(this.#ports.clock, pauseMs);
    lane.isBusy = false;
    this.#schedule();
    this.#checkClosed();
  }

  /** Commits the flight, or finds out its outcome; returns how long the lane should rest. */
  async #send(lane: Lane, flight: Flight): Promise<number> {
    lane.sequence += 1;
    // Before the store looks at its clock, however long the answer takes.
    const sentMs = this.#ports.clock.nowMs();
    try {
      const receipt = await this.#store.commit({
        lane: lane.index,
        epoch: lane.epoch ?? 0,
        sequence: lane.sequence,
        lock: flight.lock,
        mayWait: flight.mayWait,
        maxBytes: flight.maxBytes,
        needsClock: flight.needsClock,
        decide: (found) => flight.decide(found),
      });
      if (receipt.committed) {
        if (receipt.ids.length > 0) lane.acknowledged = lane.sequence;
        this.#landed(flight, receipt, sentMs);
      } else flight.moved(receipt.moved, receipt.isHeld);
      // The first time it is decided again immediately, under the locks; after that, in vain, it may be worth a pause.
      if (flight.isStalled || (!receipt.committed && flight.mostRounds > 1)) return this.#backoff(lane);
      lane.failures = 0;
      this.#resize(flight);
      return 0;
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      return this.#failed(lane, flight, error);
    }
  }

  /** The next flights are as large as this one could be, and then larger again. */
  #resize(flight: Flight): void {
    if (flight.isOverBudget) this.#most = Math.max(1, flight.decidedCount);
    else if (this.#most < MAX_DECISIONS) this.#most = Math.min(MAX_DECISIONS, 2 * this.#most);
  }

  /** Counted from what was last heard; null if that is long ago, or if this process's clock was set since. */
  #late(): Late | null {
    const sinceMs = this.#ports.clock.nowMs() - this.#heardHereMs;
    if (sinceMs < 0 || sinceMs >= HEARD_MS) return null;
    return { lateMs: this.#heardMs + HEARD_MS, aboutMs: this.#heardMs + Math.floor(sinceMs) };
  }

  #landed(flight: Flight, receipt: Extract<Receipt, { committed: true }> | undefined, sentMs: number): void {
    if (receipt !== undefined && receipt.nowMs > 0) {
      this.#heardMs = receipt.nowMs;
      this.#heardHereMs = sentMs;
    }
    for (const [text, { row }] of flight.cells) if (row !== null) this.#assumptions.saw(text, row);
    flight.puts.forEach((put, index) => {
      this.#assumptions.wrote(put, receipt?.ids[index]);
    });
    flight.answer();
    this.#options.committed(flight.puts);
  }

  async #failed(lane: Lane, flight: Flight, error: StoreError): Promise<number> {
    switch (error.data.remedy) {
      case "fail":
        flight.fail(error);
        return 0;
      case "split":
        if (flight.size === 1) flight.fail(error);
        else flight.retryAlone();
        return 0;
      case "halve":
        this.#most = Math.max(1, Math.floor(flight.size / 2));
        flight.retry();
        flight.giveUp(this.#ports.clock.nowMs(), error);
        return this.#backoff(lane);
      case "retry":
        flight.retry();
        flight.giveUp(this.#ports.clock.nowMs(), error);
        return this.#backoff(lane);
      case "settle":
        return this.#resolve(lane, flight, error);
    }
  }

  /** The reply was lost. The store is asked until it answers; only then is it known whether the batch is there. */
  async #resolve(lane: Lane, flight: Flight, error: StoreError): Promise<number> {
    const { sequence, acknowledged } = lane;
    const unknown = () => new StoreError("outcome_unknown", "settle", error.message, { cause: error });
    lane.epoch = null;
    while ((await this.#settle(lane)) !== undefined) {
      if (flight.giveUpAtMs <= this.#ports.clock.nowMs()) {
        flight.fail(unknown());
        return 0;
      }
      await pause(this.#ports.clock, this.#backoff(lane));
    }
    // A batch of an older epoch was refused, and so not written, wherever the lane stands now.
    const isRefused = error.code === "store_refused";
    if (flight.isDecided && lane.sequence >= sequence && !isRefused) {
      lane.acknowledged = sequence;
      this.#landed(flight, undefined, 0);
    }
    // The store has been put back, or has lost the mark: it cannot tell.
    else if (flight.isDecided && lane.sequence < acknowledged && !isRefused) flight.fail(unknown());
    else {
      const reason = new StoreError("store_unreachable", "retry", "the commit did not reach the store", {
        cause: error,
      });
      flight.retry();
      flight.giveUp(this.#ports.clock.nowMs(), reason);
    }
    return 0;
  }

  /** Makes sure that the lane knows where it stands; answers what is in the way, if anything is. */
  async #settle(lane: Lane): Promise<StoreError | undefined> {
    if (lane.epoch !== null) return undefined;
    try {
      const { epoch, sequence } = await this.#store.settle(lane.index);
      lane.epoch = epoch;
      lane.sequence = sequence;
      return undefined;
    } catch (error) {
      if (error instanceof StoreError) return error;
      throw error;
    }
  }

  /** Grows from about a millisecond to about fifty, with jitter, so that processes do not knock in step. */
  #backoff(lane: Lane): number {
    lane.failures += 1;
    return Math.min(50, 1.6 ** Math.min(lane.failures, 12)) * (0.25 + this.#ports.chance.random());
  }
}

/** Flies alone. */
const isApart = ({ isAlone, path }: Submission): boolean => isAlone || path === "patient";

function isAnyOf({ keys }: Submission, texts: ReadonlySet<string> | null): boolean {
  return texts !== null && texts.size > 0 && keys.some((at) => texts.has(at.text));
}
