/**
 * The batcher: group commit. All decisions that are waiting go to the store in one transaction, and while it is under way
 * the next ones gather. There is no timer: when the store is idle a decision leaves at once, when it is busy hundreds
 * share one fsync.
 *
 * Two paths, one meaning. A decision whose rows are all *known* (its caller holds their lease) is decided before the store
 * is asked, and the store only checks that the versions have not moved. Everything else is *locked*: the store locks and
 * reads, then the decisions run. A known row that moved, or a wish to see the clock, sends a decision the locked way.
 *
 * Promises: a caller hears only after the commit; every call ends in yes, a definite no, or `outcome_unknown` (G2); one
 * decision's throw or poison reaches only its own caller; a record is in at most one flight of this process.
 */

import {
  type Found,
  type Key,
  keyText,
  type Put,
  type Receipt,
  type Row,
  type Store,
  type Verdict,
} from "./contract.ts";
import { type Address, Cell, type Decision, type Encoding, type Outcome, runDecision, type Tape } from "./decision.ts";
import { ClosedError, StoreError, TooManyKeysError } from "./errors.ts";
import { type Ports, pause } from "./ports.ts";

const MAX_DECISIONS = 512;
const MAX_BYTES = 8 * 1024 * 1024;
const MAX_KEYS = 1000;

/** One decision on its way, with the promise of its caller. */
interface Submission {
  readonly decide: Decision<unknown>;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
  readonly tape: Tape;
  readonly giveUpAtMs: number;
  keys: readonly Address[];
  /** May use rows that this process knows because it holds them. */
  known: boolean;
  /** Runs in a batch of its own, because a batch with it failed. */
  alone: boolean;
  outcome: Outcome<unknown> | undefined;
}

/** One writer's sequence of batches. The store tells, lane by lane, which was the last that it has. */
interface Lane {
  readonly index: number;
  busy: boolean;
  /** Null until settled: at the start, and after an outcome stayed unknown. */
  epoch: number | null;
  sequence: number;
  failures: number;
}

export interface BatcherOptions {
  readonly encoding: Encoding;
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
  #queue: Submission[] = [];
  /** Records that are in some flight now. */
  readonly #flying = new Set<string>();
  /** Rows of records whose lease this process holds. */
  readonly #known = new Map<string, Row>();
  #scheduled = false;
  #closing: (() => void) | undefined;

  constructor(store: Store, ports: Ports, options: BatcherOptions) {
    this.#store = store;
    this.#ports = ports;
    this.#options = options;
    this.#lanes = Array.from({ length: store.lanes }, (_, index) => ({
      index,
      busy: false,
      epoch: null,
      sequence: 0,
      failures: 0,
    }));
  }

  submit<T>(decide: Decision<T>, keys: readonly Address[], options?: { known?: boolean }): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#closing !== undefined) return reject(new ClosedError());
      this.#queue.push({
        decide,
        resolve: resolve as (value: unknown) => void,
        reject,
        tape: { randoms: [], uuids: [] },
        giveUpAtMs: this.#ports.clock.nowMs() + this.#options.patienceMs,
        keys,
        known: options?.known ?? false,
        alone: false,
        outcome: undefined,
      });
      this.#schedule();
    });
  }

  /** From now on, commits in this process keep this row up to date, and known decisions may use it. */
  know(at: Address, row: Row): void {
    this.#known.set(at.text, row);
  }

  known(at: Address): Row | undefined {
    return this.#known.get(at.text);
  }

  forget(at: Address): void {
    this.#known.delete(at.text);
  }

  /** Lets what was submitted finish, and takes nothing more. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#closing = resolve;
      this.#checkClosed();
    });
  }

  #checkClosed(): void {
    if (this.#queue.length === 0 && this.#lanes.every((lane) => !lane.busy)) this.#closing?.();
  }

  #schedule(): void {
    if (this.#scheduled || !this.#lanes.some((lane) => !lane.busy)) return;
    this.#scheduled = true;
    this.#ports.clock.soon(() => {
      this.#scheduled = false;
      for (const lane of this.#lanes) {
        if (lane.busy) continue;
        const flight = this.#take();
        if (flight.length === 0) break;
        void this.#fly(lane, flight);
      }
    });
  }

  /** The next decisions that can share a flight, in the order they came. */
  #take(): Submission[] {
    const flight: Submission[] = [];
    const passed: Submission[] = [];
    // With lanes to spare, known decisions do not wait for the round trip of the locked ones.
    const apart = this.#lanes.length > 1;
    let index = 0;
    for (; index < this.#queue.length && flight.length < MAX_DECISIONS; index++) {
      const submission = this.#queue[index] as Submission;
      const first = flight[0];
      const fits =
        first === undefined || (!first.alone && !submission.alone && (!apart || first.known === submission.known));
      // A decision that must wait for its records lets those behind it pass: they touch others, or wait as well.
      if (fits && !this.#isFlying(submission.keys)) flight.push(submission);
      else passed.push(submission);
    }
    this.#queue = passed.concat(this.#queue.slice(index));
    return flight;
  }

  #isFlying(keys: readonly Address[]): boolean {
    if (this.#flying.size === 0) return false;
    return keys.some((at) => this.#flying.has(at.text));
  }

  async #fly(lane: Lane, submissions: Submission[]): Promise<void> {
    lane.busy = true;
    const flight = new Flight(submissions, this.#known, this.#flying, this.#options.encoding, this.#ports);
    let pauseMs = 0;
    try {
      if (lane.epoch === null) await this.#settle(lane);
      lane.sequence += 1;
      const receipt = await this.#store.commit({
        lane: lane.index,
        epoch: lane.epoch ?? 0,
        sequence: lane.sequence,
        lock: flight.lock,
        decide: (found) => flight.decide(found),
      });
      lane.failures = 0;
      if (receipt.committed) this.#landed(flight, receipt);
      else flight.moved(receipt.moved);
      if (flight.stalled) pauseMs = this.#backoff(lane);
    } catch (error) {
      pauseMs = await this.#crashed(lane, flight, error);
    }
    flight.end();
    if (flight.again.length > 0) this.#queue = flight.again.concat(this.#queue);
    if (pauseMs > 0) await pause(this.#ports.clock, pauseMs);
    lane.busy = false;
    this.#schedule();
    this.#checkClosed();
  }

  #landed(flight: Flight, receipt: Extract<Receipt, { committed: true }> | undefined): void {
    flight.puts.forEach((put, index) => {
      const text = keyText(put.row);
      if (!this.#known.has(text)) return;
      const id = receipt?.ids[index];
      // Without the receipt a new row's id is not known, and neither is the row.
      if (id === undefined && put.row.id === 0) this.#known.delete(text);
      else this.#known.set(text, id === undefined || id === put.row.id ? put.row : { ...put.row, id });
    });
    this.#options.committed(flight.puts);
    flight.answer();
  }

  /** What becomes of a flight whose commit failed; answers how long the lane should rest. */
  async #crashed(lane: Lane, flight: Flight, error: unknown): Promise<number> {
    if (!(error instanceof StoreError)) {
      flight.fail(error);
      return 0;
    }
    switch (error.data.remedy) {
      case "fail":
        flight.fail(error);
        return 0;
      case "split":
        if (flight.size === 1) flight.fail(error);
        else flight.retryAlone();
        return 0;
      case "retry":
        flight.retry(this.#ports.clock.nowMs(), error);
        return this.#backoff(lane);
      case "settle":
        return this.#resolve(lane, flight, error);
    }
  }

  /** The reply was lost. The store is asked until it answers; only then is it known whether the batch is there. */
  async #resolve(lane: Lane, flight: Flight, error: StoreError): Promise<number> {
    const { sequence } = lane;
    lane.epoch = null;
    while (lane.epoch === null) {
      try {
        await this.#settle(lane);
      } catch (cause) {
        if (!(cause instanceof StoreError) || flight.giveUpAtMs < this.#ports.clock.nowMs()) {
          flight.fail(new StoreError("outcome_unknown", "settle", error.message, { cause: error }));
          return 0;
        }
        await pause(this.#ports.clock, this.#backoff(lane));
      }
    }
    if (lane.sequence >= sequence) this.#landed(flight, undefined);
    else flight.retry(this.#ports.clock.nowMs(), error);
    return 0;
  }

  async #settle(lane: Lane): Promise<void> {
    const { epoch, sequence } = await this.#store.settle(lane.index);
    lane.epoch = epoch;
    lane.sequence = sequence;
  }

  /** Grows from about a millisecond to about fifty, with jitter, so that processes do not knock in step. */
  #backoff(lane: Lane): number {
    lane.failures += 1;
    return Math.min(50, 1.6 ** Math.min(lane.failures, 12)) * (0.25 + this.#ports.chance.random());
  }
}

/** One batch: its cells, its decisions and what became of them. */
class Flight {
  readonly #submissions: readonly Submission[];
  readonly #flying: Set<string>;
  readonly #encoding: Encoding;
  readonly #ports: Ports;
  readonly #cells = new Map<string, Cell>();
  /** Records this flight has or asked for; nobody else in this process may have them until it ends. */
  readonly #taken = new Set<string>();
  /** Records that another process has locked now. */
  readonly #busy = new Set<string>();
  #asked: readonly Address[];
  #pending: Submission[];
  #fenceFloor = 0;
  puts: Put[] = [];
  /** Decisions to submit once more. */
  again: Submission[] = [];
  /** Nothing could be decided, because others have the rows. */
  stalled = false;

  constructor(
    submissions: readonly Submission[],
    known: ReadonlyMap<string, Row>,
    flying: Set<string>,
    encoding: Encoding,
    ports: Ports,
  ) {
    this.#submissions = submissions;
    this.#pending = [...submissions];
    this.#flying = flying;
    this.#encoding = encoding;
    this.#ports = ports;
    const asked = new Map<string, Address>();
    for (const submission of submissions)
      if (!submission.known) for (const at of submission.keys) asked.set(at.text, at);
    for (const submission of submissions) {
      if (!submission.known) continue;
      for (const at of submission.keys) {
        const row = known.get(at.text);
        if (row === undefined) asked.set(at.text, at);
        else if (!asked.has(at.text)) this.#cells.set(at.text, new Cell(at, row));
      }
    }
    for (const text of asked.keys()) this.#cells.delete(text);
    this.#asked = [...asked.values()];
    for (const text of asked.keys()) this.#taken.add(text);
    for (const text of this.#cells.keys()) this.#taken.add(text);
    for (const text of this.#taken) flying.add(text);
  }

  get size(): number {
    return this.#submissions.length;
  }

  get lock(): readonly Address[] {
    return this.#asked;
  }

  get giveUpAtMs(): number {
    return Math.max(...this.#submissions.map((submission) => submission.giveUpAtMs));
  }

  /** Called by the store with the rows it was asked for, until nothing more is wanted. */
  decide(found: Found): Verdict {
    this.#asked.forEach((at, index) => {
      const row = found.rows[index];
      if (row === undefined) this.#busy.add(at.text);
      else this.#cells.set(at.text, new Cell(at, row));
    });
    this.#fenceFloor = Math.max(this.#fenceFloor, found.fenceFloor);
    const scene = {
      cells: this.#cells,
      nowMs: found.nowMs,
      fenceFloor: this.#fenceFloor,
      encoding: this.#encoding,
      chance: this.#ports.chance,
    };
    const waiting: Submission[] = [];
    const wanted = new Map<string, Address>();
    let bytes = 0;
    for (const submission of this.#pending) {
      if (bytes > MAX_BYTES || submission.keys.some((at) => this.#busy.has(at.text))) {
        this.again.push(submission);
        continue;
      }
      const outcome = runDecision(submission.decide, scene, submission.tape, this.#ports.trap);
      submission.outcome = outcome;
      if (outcome.is === "done") bytes += outcome.bytes;
      if (outcome.is !== "void") continue;
      if (outcome.wanted === "clock") {
        submission.known = false;
        this.again.push(submission);
      } else if (submission.keys.length >= MAX_KEYS) {
        submission.outcome = { is: "threw", error: new TooManyKeysError(MAX_KEYS) };
      } else {
        const at = outcome.wanted;
        submission.keys = [...submission.keys, at];
        // A record that another flight of this process has cannot be waited for inside this one.
        if (!this.#taken.has(at.text) && this.#flying.has(at.text)) this.again.push(submission);
        else {
          if (!this.#cells.has(at.text) && !this.#busy.has(at.text)) wanted.set(at.text, at);
          waiting.push(submission);
        }
      }
    }
    this.#pending = waiting;
    if (waiting.length > 0) {
      this.#asked = [...wanted.values()];
      for (const at of this.#asked) {
        this.#taken.add(at.text);
        this.#flying.add(at.text);
      }
      return { lock: this.#asked };
    }
    this.puts = [];
    for (const cell of this.#cells.values()) {
      const put = cell.put();
      if (put !== undefined) this.puts.push(put);
    }
    this.stalled = this.#busy.size > 0 && this.again.length === this.#submissions.length;
    return { puts: this.puts };
  }

  /** The batch is committed: everybody who was decided hears. */
  answer(): void {
    for (const submission of this.#submissions) {
      const { outcome } = submission;
      if (outcome?.is === "done") submission.resolve(outcome.value);
      else if (outcome?.is === "threw") submission.reject(outcome.error);
    }
  }

  /** Rows that were believed known are not what they were: those who used them go the locked way, the others once more. */
  moved(keys: readonly Key[]): void {
    const texts = new Set(keys.map(keyText));
    for (const submission of this.#submissions)
      if (submission.keys.some((at) => texts.has(at.text))) submission.known = false;
    this.#all();
  }

  retryAlone(): void {
    for (const submission of this.#submissions) submission.alone = true;
    this.#all();
  }

  retry(nowMs: number, error: StoreError): void {
    this.#all();
    for (const submission of this.again) if (submission.giveUpAtMs <= nowMs) submission.reject(error);
    this.again = this.again.filter((submission) => submission.giveUpAtMs > nowMs);
  }

  fail(error: unknown): void {
    this.again = [];
    for (const submission of this.#submissions) submission.reject(error);
  }

  end(): void {
    for (const text of this.#taken) this.#flying.delete(text);
  }

  #all(): void {
    this.again = [...this.#submissions];
    for (const submission of this.#submissions) submission.outcome = undefined;
  }
}
