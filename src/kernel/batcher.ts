/**
 * The batcher: group commit. All waiting decisions go to the store in one transaction, and while that is in progress
 * the next ones collect in the queue. There is no timer: when the store is idle, a decision is sent immediately; when it is busy,
 * hundreds share one fsync.
 *
 * One metaphor is used here: a batch on its way to the store is a *flight*, and it flies in a *lane*, a sequence of commits of which one
 * is in progress at a time (`lane.ts`). A store has one lane or several.
 *
 * Several paths, one meaning. *Locked*: the store locks and reads the records, then the decisions run. *Optimistic*: the holder of a record's
 * lease, or on a remote store the process that wrote it last, knows its row, so the decision runs before the store is asked, and the store
 * only checks that the row is still the same. `assumptions.ts` has the rules, and why all paths together are serializable.
 *
 * Guarantees: a caller learns the outcome only after the commit; every call ends in success, a definite failure, or `outcome_unknown`
 * (G2); a decision that throws, or that makes its batch fail, affects only its own caller; a record is in at most one flight of this
 * process; a call waits for others at most for its patience (G34).
 */

import { Assumptions } from "./assumptions.ts";
import type { Address, Put, Receipt, Row, Store } from "./contract.ts";
import { type ClockEstimate, type Decision, type DecisionGuard, Tape } from "./decision.ts";
import type { Encoding } from "./encoding.ts";
import { ClosedError, StoreError } from "./errors.ts";
import { findFirstKeys } from "./first-keys.ts";
import {
  BUDGET,
  Flight,
  type FlightContext,
  type FlightResult,
  keepChanging,
  type Submission,
  submissionOf,
} from "./flight.ts";
import { Lane, notCommitted, outcomeUnknown } from "./lane.ts";
import { type Ports, pause } from "./ports.ts";

const MAX_DECISIONS = 512;
/** From this many decisions on, another flight is worth it, if the store has a free lane. */
const WORTH_A_FLIGHT = 40;
/** For how many turns of the event loop a flight waits for decisions that are just being submitted; it waits for none if there are no new ones. */
const MAX_TURNS = 3;
/** How long a reading of the store's clock is used for estimates, which bounds how far off they are. */
const ESTIMATE_VALID_MS = 1000;

export interface BatcherOptions {
  readonly encoding: Encoding;
  readonly guard: DecisionGuard;
  /** How long a call may wait for a store that is busy or unreachable. */
  readonly patienceMs: number;
  /** Called after every commit, in the order of this process's commits. */
  readonly committed: (puts: readonly Put[]) => void;
}

export class Batcher {
  readonly #store: Store;
  readonly #ports: Ports;
  readonly #options: BatcherOptions;
  readonly #lanes: Lane[];
  readonly #flyingLanes = new Set<Lane>();
  readonly #assumptions: Assumptions;
  readonly #context: FlightContext;
  #queue: Submission[] = [];
  /** The queue may have urgent decisions that are not at its head. */
  #hasUrgent = false;
  #isScheduled = false;
  /** Records that flights wait for, and how many flights do. */
  readonly #awaited = new Set<string>();
  #waitingFlights = 0;
  /** How many decisions a flight takes at most: fewer after one that was too large, then more again. */
  #most = MAX_DECISIONS;
  #closing: (() => void) | undefined;
  /** The last reading of the store's clock, and this process's clock just before it. */
  #storeClockMs = 0;
  #storeClockReadAtMs = Number.NEGATIVE_INFINITY;

  constructor(store: Store, ports: Ports, options: BatcherOptions) {
    this.#store = store;
    this.#ports = ports;
    this.#options = options;
    this.#assumptions = new Assumptions(store.isRemote);
    // With one lane there is one flight at a time, so no two flights can have the same record.
    this.#context = {
      flying: store.lanes > 1 ? new Set() : null,
      assumptions: this.#assumptions,
      encoding: options.encoding,
      ports,
      guard: options.guard,
      clockEstimate: () => this.#clockEstimate(),
    };
    this.#lanes = Array.from({ length: store.lanes }, (_, index) => new Lane(store, ports, index));
  }

  /** Queues a decision and resolves with its result after the commit. If the caller holds all records, it can be optimistic on any store. */
  submit<T>(
    decide: Decision<T>,
    keys: readonly Address[],
    {
      isHolder = false,
      isUrgent = false,
      isLocked = false,
    }: { readonly isHolder?: boolean; readonly isUrgent?: boolean; readonly isLocked?: boolean } = {},
  ): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#options.guard.isInsideDecision()) return;
      if (this.#closing !== undefined) return reject(new ClosedError());
      this.#queue.push(
        submissionOf({
          decide,
          resolve: resolve as (value: unknown) => void,
          reject,
          tape: new Tape(),
          giveUpAtMs: this.#ports.clock.nowMs() + this.#options.patienceMs,
          keys,
          path: !isLocked && (isHolder || this.#store.isRemote) ? "optimistic" : "locked",
          isUrgent,
        }),
      );
      this.#hasUrgent ||= isUrgent;
      this.#schedule();
    });
  }

  /** Keeps this row for its holder's decisions; commits of this process keep it up to date. */
  know(at: Address, row: Row): void {
    this.#assumptions.hold(at.text, row);
  }

  /** Declares that a commit of this process is about to create the record and will hold it. */
  expect(at: Address, isExpected: boolean): void {
    this.#assumptions.expect(at.text, isExpected);
  }

  known(at: Address): Row | undefined {
    return this.#assumptions.held(at.text);
  }

  forget(at: Address): void {
    this.#assumptions.letGo(at.text);
  }

  /** Stops holding the row of a record that this process has just released. It wrote it last, and may assume that. */
  released(at: Address): void {
    this.#assumptions.released(at.text);
  }

  /** Takes a reading of the store's clock that came with something else; `sentMs` is this process's clock before the store was asked. */
  sawClock(nowMs: number, sentMs: number): void {
    this.#storeClockMs = nowMs;
    this.#storeClockReadAtMs = sentMs;
  }

  /** Waits for what was submitted, and refuses new decisions. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#closing = resolve;
      this.#checkClosed();
    });
  }

  #checkClosed(): void {
    if (this.#queue.length === 0 && this.#flyingLanes.size === 0) this.#closing?.();
  }

  #schedule(): void {
    if (this.#isScheduled || this.#flyingLanes.size === this.#lanes.length) return;
    this.#isScheduled = true;
    this.#leaveWhenQuiet(this.#queue.length, MAX_TURNS);
  }

  /** Decisions that are submitted together fly together: callers whose promises one flight resolved often submit their next decisions together. */
  #leaveWhenQuiet(seen: number, turns: number): void {
    this.#ports.clock.soon(() => {
      const { length } = this.#queue;
      if (length > seen && turns > 1) {
        this.#leaveWhenQuiet(length, turns - 1);
        return;
      }
      this.#isScheduled = false;
      const free = this.#lanes.filter((lane) => !this.#flyingLanes.has(lane));
      // If many decisions wait, two overlapping flights are faster than one that is twice as large.
      const flights = Math.min(free.length, Math.max(1, Math.floor(this.#queue.length / WORTH_A_FLIGHT)));
      const share = Math.min(this.#most, Math.ceil(this.#queue.length / flights));
      for (const lane of free) {
        const submissions = this.#dequeue(share);
        if (submissions.length === 0) break;
        void this.#fly(lane, new Flight(submissions, this.#context, this.#mayWait));
      }
      // The rest of the queue may have been rejected.
      this.#checkClosed();
    });
  }

  /** Takes the next decisions that can share a flight out of the queue, in the order they were submitted. */
  #dequeue(share: number): Submission[] {
    const dequeued: Submission[] = [];
    const passed: Submission[] = [];
    // Renewals come first, however many decisions wait: a lease that is not renewed in time is lost.
    if (this.#hasUrgent) this.#queue.sort((a, b) => Number(b.isUrgent) - Number(a.isUrgent));
    this.#hasUrgent = false;
    // With several lanes, optimistic decisions fly apart from the others, so that they do not wait for the round trip of the locked path.
    const apart = this.#lanes.length > 1;
    const { flying } = this.#context;
    const reserved = new Set<string>();
    // What needs a record of this flight could not leave in another one before it ends, so it comes along.
    const own = share < Math.min(this.#most, this.#queue.length) ? new Set<string>() : undefined;
    const nowMs = this.#ports.clock.nowMs();
    let records = 0;
    let index = 0;
    for (; index < this.#queue.length && dequeued.length < (own === undefined ? share : this.#most); index++) {
      const submission = this.#queue[index] as Submission;
      if (dequeued.length >= share && !isAnyOf(submission, own ?? null)) {
        passed.push(submission);
        this.#reserve(submission, reserved);
        continue;
      }
      // It was postponed before and its patience has ended: it is rejected without waiting for another flight.
      if (submission.rounds > 1 && submission.giveUpAtMs <= nowMs) {
        submission.reject(keepChanging());
        continue;
      }
      const first = dequeued[0];
      if (this.#store.isRemote && submission.keys.length === 0 && submission.path === "optimistic") {
        // Running decisions beforehand takes time, too: the rest of the queue waits for the next flight.
        if (first !== undefined && this.#ports.clock.nowMs() - nowMs >= BUDGET.decidingMs) break;
        findFirstKeys(submission, this.#context);
      }
      submission.isOptimistic = submission.path === "optimistic" && this.#assumptions.coversAll(submission.keys);
      const fits =
        first === undefined ||
        (!isApart(first) &&
          !isApart(submission) &&
          (!apart || first.isOptimistic === submission.isOptimistic) &&
          records + submission.keys.length <= BUDGET.records);
      // While a decision waits for its records, later decisions on other records overtake it; its own records are reserved for it.
      if (fits && !isAnyOf(submission, flying) && !isAnyOf(submission, reserved)) {
        dequeued.push(submission);
        records += submission.keys.length;
        if (own !== undefined) for (const { text } of submission.keys) own.add(text);
      } else {
        passed.push(submission);
        if (apart) this.#reserve(submission, reserved);
      }
    }
    this.#queue = passed.concat(this.#queue.slice(index));
    return dequeued;
  }

  /** Reserves the records of a decision that waits; if a flight waits for some of them, perhaps for long, only those. */
  #reserve({ keys }: Submission, reserved: Set<string>): void {
    const awaited = keys.filter(({ text }) => this.#awaited.has(text));
    for (const { text } of awaited.length > 0 ? awaited : keys) reserved.add(text);
  }

  /** Whether one more flight may wait for records that another process has locked: at most half of the lanes may. */
  get #mayWait(): boolean {
    return this.#waitingFlights < Math.floor(this.#lanes.length / 2);
  }

  async #fly(lane: Lane, flight: Flight): Promise<void> {
    this.#flyingLanes.add(lane);
    const awaited = flight.mayWait ? flight.lock.map(({ text }) => text) : [];
    if (flight.mayWait) this.#waitingFlights += 1;
    for (const text of awaited) this.#awaited.add(text);
    const { again, pauseMs } = await this.#send(lane, flight);
    for (const text of awaited) this.#awaited.delete(text);
    if (flight.mayWait) this.#waitingFlights -= 1;
    if (again.length > 0) {
      this.#hasUrgent ||= this.#queue.some(({ isUrgent }) => isUrgent);
      this.#queue = [...again, ...this.#queue];
    }
    if (pauseMs > 0) await pause(this.#ports.clock, pauseMs);
    this.#flyingLanes.delete(lane);
    this.#schedule();
    this.#checkClosed();
  }

  /** Commits the flight, or finds out its outcome. Returns what is to be submitted again, and how long the lane pauses. */
  async #send(lane: Lane, flight: Flight): Promise<Sent> {
    try {
      const obstacle = await lane.settle();
      if (obstacle === undefined) return await this.#commit(lane, flight);
      if (obstacle.data.remedy === "fail") return sent(flight.fail(obstacle));
      return sent(flight.retry(obstacle), lane.backoffMs());
    } catch (error) {
      // The store broke its contract, so the outcome is unknown; no caller may wait forever.
      lane.unsettle();
      return sent(flight.fail(error));
    }
  }

  async #commit(lane: Lane, flight: Flight): Promise<Sent> {
    // Before the store reads its clock, however long its reply takes.
    const sentMs = this.#ports.clock.nowMs();
    try {
      const receipt = await this.#store.commit({
        ...lane.nextMark(),
        lock: flight.lock,
        mayWait: flight.mayWait,
        maxBytes: flight.maxBytes,
        needsClock: flight.needsClock,
        decide: (found) => flight.decide(found),
      });
      if (receipt.committed && receipt.ids.length > 0) lane.acknowledge();
      const result = receipt.committed
        ? this.#committed(flight, receipt, sentMs)
        : flight.moved(receipt.moved, receipt.isHeld);
      if (result.isInVain) return sent(result, lane.backoffMs());
      lane.succeeded();
      this.#resize(result);
      return sent(result);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      return this.#failed(lane, flight, error);
    }
  }

  /** Limits the next flights to what fitted into this one, and then raises the limit again. */
  #resize({ fits }: FlightResult): void {
    if (fits !== null) this.#most = Math.max(1, fits);
    else if (this.#most < MAX_DECISIONS) this.#most = Math.min(MAX_DECISIONS, 2 * this.#most);
  }

  /** Estimated from the last reading; null if that is too old, or if this process's clock was set back since. */
  #clockEstimate(): ClockEstimate | null {
    const sinceMs = this.#ports.clock.nowMs() - this.#storeClockReadAtMs;
    if (sinceMs < 0 || sinceMs >= ESTIMATE_VALID_MS) return null;
    return {
      nowUpperBoundMs: this.#storeClockMs + ESTIMATE_VALID_MS,
      approxNowMs: this.#storeClockMs + Math.floor(sinceMs),
    };
  }

  #committed(flight: Flight, receipt: Extract<Receipt, { committed: true }> | undefined, sentMs: number): FlightResult {
    if (receipt !== undefined && receipt.nowMs > 0) this.sawClock(receipt.nowMs, sentMs);
    let written = 0;
    for (const { at, row, stored } of flight.cells.values()) {
      if (row === null) continue;
      if (row === stored) this.#assumptions.saw(at.text, row);
      else this.#assumptions.wrote(at.text, row, receipt?.ids[written++]);
    }
    const result = flight.committed();
    this.#options.committed(flight.puts);
    return result;
  }

  async #failed(lane: Lane, flight: Flight, error: StoreError): Promise<Sent> {
    switch (error.data.remedy) {
      case "fail":
        return sent(flight.fail(error));
      case "split":
        return sent(flight.size === 1 ? flight.fail(error) : flight.retryAlone());
      case "halve":
        this.#most = Math.max(1, Math.floor(flight.size / 2));
        return sent(flight.retry(error), lane.backoffMs());
      case "retry":
        return sent(flight.retry(error), lane.backoffMs());
      case "settle":
        return sent(await this.#resolve(lane, flight, error));
    }
  }

  /** The reply was lost: asks the store whether the batch was committed before any caller learns an outcome. */
  async #resolve(lane: Lane, flight: Flight, lost: StoreError): Promise<FlightResult> {
    const resolved = await lane.resolve(lost, flight.giveUpAtMs);
    // Before the flight has decided, nothing can have been written.
    if (!flight.isDecided || resolved === "not-committed") return flight.retry(notCommitted(lost));
    if (resolved === "unknown") return flight.fail(outcomeUnknown(lost));
    return this.#committed(flight, undefined, 0);
  }
}

/** What is left to do after a flight. */
interface Sent {
  readonly again: readonly Submission[];
  readonly pauseMs: number;
}

const sent = ({ again }: FlightResult, pauseMs = 0): Sent => ({ again, pauseMs });

/** Whether it needs a flight of its own. */
const isApart = ({ isAlone, path }: Submission): boolean => isAlone || path === "waiting";

function isAnyOf({ keys }: Submission, texts: ReadonlySet<string> | null): boolean {
  return texts !== null && texts.size > 0 && keys.some((at) => texts.has(at.text));
}
