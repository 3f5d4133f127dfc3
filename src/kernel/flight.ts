/**
 * A flight: one batch on its way to the store, with its decisions, the records they see, and their outcomes.
 *
 * It collects the records that its decisions named, runs the decisions when the store has read them, asks for records that decisions
 * request while they run, and divides the decisions afterwards: those that have their outcome, and those to submit again.
 *
 * A flight has a budget: of records, of bytes read and written, and of time for its decisions, during which its rows are locked and the
 * process does nothing else. What does not fit goes into the next flight. One decision always fits.
 */

import { type Assumptions, nextPath, type Path, type Setback } from "./assumptions.ts";
import { compareUtf8 } from "./check.ts";
import { type Address, type Found, type Key, keyText, type Put, type Verdict } from "./contract.ts";
import {
  type BatchView,
  type ClockEstimate,
  type Decision,
  type DecisionGuard,
  type Outcome,
  runDecision,
  type Tape,
  type Wanted,
} from "./decision.ts";
import { Cell } from "./draft.ts";
import type { Encoding } from "./encoding.ts";
import { StoreError, TooManyKeysError } from "./errors.ts";
import type { Ports } from "./ports.ts";

/** The budget of a flight with several decisions. */
export const BUDGET = {
  records: 2000,
  bytesRead: 8 * 1024 * 1024,
  bytesWritten: 8 * 1024 * 1024,
  decidingMs: 50,
} as const;
/** The clock is read once for this many decisions, because reading it costs as much as a small decision. */
const DECISIONS_PER_LOOK = 4;
/** How many stamps there are: enough that two writes of one version do not get the same stamp by chance; a stamp is six bytes in SQLite. */
const STAMPS = 2 ** 47;
/** How many records one decision may touch. */
const MAX_KEYS = 1000;

/** A submitted decision, with the promise of its caller. */
export interface Submission {
  readonly decide: Decision<unknown>;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
  readonly tape: Tape;
  readonly giveUpAtMs: number;
  keys: readonly Address[];
  path: Path;
  /** In this flight it runs on assumed rows: all of its records could be assumed when the flight was formed. */
  isOptimistic: boolean;
  /** Runs in a batch of its own, because a batch with it failed. */
  isAlone: boolean;
  /** It renews a lease, and comes before all others. */
  readonly isUrgent: boolean;
  /** How often it was postponed, because its flight met records that other processes had locked or changed: its own, or those of another decision. */
  rounds: number;
  outcome: Outcome<unknown> | undefined;
}

/** Makes a new submission. */
export function submissionOf(
  given: Pick<Submission, "decide" | "resolve" | "reject" | "tape" | "giveUpAtMs" | "keys" | "path"> & {
    readonly isUrgent?: boolean;
  },
): Submission {
  // Field by field: this runs for each decision, and a spread is slow.
  return {
    decide: given.decide,
    resolve: given.resolve,
    reject: given.reject,
    tape: given.tape,
    giveUpAtMs: given.giveUpAtMs,
    keys: given.keys,
    path: given.path,
    isOptimistic: false,
    isAlone: false,
    isUrgent: given.isUrgent ?? false,
    rounds: 0,
    outcome: undefined,
  };
}

/** What a flight shares with the other flights of its process. */
export interface FlightContext {
  /** Records that are in a flight now; null if there is one flight at a time. */
  readonly flying: Set<string> | null;
  readonly assumptions: Assumptions;
  readonly encoding: Encoding;
  readonly ports: Ports;
  readonly guard: DecisionGuard;
  /** Returns null if the store's clock was not read recently. */
  readonly clockEstimate: () => ClockEstimate | null;
}

/** What a flight returns to its batcher when it has ended. */
export interface FlightResult {
  /** Decisions to submit again: they were postponed, did not fit, or nothing of the flight was committed. */
  readonly again: readonly Submission[];
  /** Nothing was decided, because other processes keep the rows locked or keep changing them: pause before the next try. */
  readonly isInVain: boolean;
  /** How many of its decisions fitted into its budget; null if all did. */
  readonly fits: number | null;
}

export class Flight {
  readonly #submissions: readonly Submission[];
  readonly #context: FlightContext;
  readonly #stamp: number;
  /** Whether the store waits for records that another process has locked, instead of skipping them. */
  readonly mayWait: boolean;
  readonly cells = new Map<string, Cell>();
  /** Records that this flight has or asked for; no other flight of this process may have them until it ends. */
  readonly #owned = new Set<string>();
  /** Records that were not read because another process has them locked. */
  readonly #lockedElsewhere = new Set<string>();
  /** Records whose assumed rows were wrong, or saved nothing. */
  readonly #refuted = new Set<string>();
  /** Records that were not read because the budget was used up. */
  readonly #unread = new Set<string>();
  #asked: readonly Address[] = [];
  #pending: readonly Submission[];
  #fenceFloor = 0;
  #hasAssumedAbsence = false;
  puts: readonly Put[] = [];
  /** All decisions have run, so `puts` is known; before that, nothing can have been written. */
  isDecided = false;
  /** Some decisions were moved to the next flight, because the budget was used up. */
  #isOverBudget = false;
  /** Decisions to submit again. */
  #again: Submission[] = [];

  constructor(submissions: readonly Submission[], context: FlightContext, mayWait: boolean) {
    this.#submissions = submissions;
    this.#context = context;
    const { chance } = context.ports;
    this.#stamp = chance.stamp?.() ?? Math.floor(chance.random() * STAMPS);
    this.#pending = submissions;
    const asked = new Map<string, Address>();
    for (const { keys, isOptimistic } of submissions) if (!isOptimistic) for (const at of keys) asked.set(at.text, at);
    for (const { keys, isOptimistic } of submissions)
      if (isOptimistic) for (const at of keys) if (!asked.has(at.text)) this.#assume(at);
    this.#own(this.cells.keys());
    const isWaiting = submissions[0]?.path === "waiting";
    // Sorted, so that two processes that wait for each other's records cannot deadlock.
    this.#ask(isWaiting ? new Map([...asked].sort(([a], [b]) => compareUtf8(a, b))) : asked);
    // With a single record, waiting keeps no other record locked.
    this.mayWait = mayWait && asked.size > 0 && (isWaiting || asked.size === 1);
  }

  get size(): number {
    return this.#submissions.length;
  }

  /** No decision is to be submitted again. */
  get isComplete(): boolean {
    return this.#again.length === 0;
  }

  get lock(): readonly Address[] {
    return this.#asked;
  }

  get maxBytes(): number | undefined {
    return this.size === 1 ? undefined : BUDGET.bytesRead;
  }

  /** Only a flight whose records are all assumed needs no clock, until a decision asks for it. */
  get needsClock(): boolean {
    return this.#submissions.some(({ isOptimistic }) => !isOptimistic);
  }

  get giveUpAtMs(): number {
    return this.#submissions.reduce((latest, { giveUpAtMs }) => Math.max(latest, giveUpAtMs), 0);
  }

  /** Called by the store with the rows of `lock`, and again with the rows of each verdict that asks for more. */
  decide(found: Found): Verdict {
    this.#asked.forEach((at, index) => {
      const row = found.rows[index];
      if (row !== undefined) this.cells.set(at.text, new Cell(at, row));
      else if (found.isFull === true) this.#unread.add(at.text);
      else this.#lockedElsewhere.add(at.text);
    });
    this.#fenceFloor = Math.max(this.#fenceFloor, found.fenceFloor);
    const view = batchViewOf(this.#context, this.cells, found.nowMs, this.#fenceFloor, this.#stamp);
    const waiting: Submission[] = [];
    const wanted = new Map<string, Address>();
    const { clock } = this.#context.ports;
    const untilMs = clock.nowMs() + BUDGET.decidingMs;
    let bytes = 0;
    let decided = 0;
    let isFull = false;
    for (const submission of this.#pending) {
      if (this.#isAnyIn(this.#lockedElsewhere, submission)) {
        this.#putOff(submission);
        continue;
      }
      if (isFull || this.#isAnyIn(this.#unread, submission)) {
        this.#deferOverBudget(submission);
        continue;
      }
      const outcome =
        tooMany(submission) ?? runDecision(submission.decide, view, submission.tape, submission.isOptimistic);
      submission.outcome = outcome;
      if (outcome.is === "done") bytes += outcome.bytes;
      if (outcome.is === "void" && this.#wantsMore(submission, outcome.wanted, wanted)) waiting.push(submission);
      decided += 1;
      const isTimeToLook = decided % DECISIONS_PER_LOOK === 0;
      isFull = bytes > BUDGET.bytesWritten || (isTimeToLook && clock.nowMs() >= untilMs);
    }
    this.#pending = waiting;
    this.#ask(wanted);
    if (waiting.length > 0) return { lock: this.#asked };
    const puts: Put[] = [];
    for (const cell of this.cells.values()) {
      const put = cell.put();
      if (put !== undefined) puts.push(put);
    }
    this.puts = puts;
    this.isDecided = true;
    return { puts };
  }

  /** Whether a void attempt can get its records in this flight; otherwise the decision is submitted again. */
  #wantsMore(submission: Submission, wants: Wanted, wanted: Map<string, Address>): boolean {
    if (wants === "lock" || wants === "clock") {
      this.#setBack(submission, "wants-lock");
      // That the clock was not read recently says nothing about the records: the next decision about them may know it.
      if (wants === "lock") for (const at of submission.keys) this.#refute(at);
      this.#again.push(submission);
      return false;
    }
    submission.keys = submission.keys.concat(wants);
    // A record that another flight of this process has, or that is only assumed, cannot be locked in this one.
    if (wants.some((at) => this.#isElsewhere(at) || this.cells.get(at.text)?.isAssumed === true)) {
      this.#again.push(submission);
      return false;
    }
    if (wanted.size > 0 && this.cells.size + wanted.size + wants.length > BUDGET.records) {
      this.#deferOverBudget(submission);
      return false;
    }
    for (const at of wants)
      if (!this.cells.has(at.text) && !this.#lockedElsewhere.has(at.text)) wanted.set(at.text, at);
    return true;
  }

  /** Once for all decisions of the flight: the longer the cooldown, the more often an assumption was wrong in different flights. */
  #refute({ text }: Address): void {
    if (this.#refuted.has(text)) return;
    this.#refuted.add(text);
    this.#context.assumptions.refuted(text);
  }

  #isElsewhere({ text }: Address): boolean {
    return this.#context.flying?.has(text) === true && !this.#owned.has(text);
  }

  /** The batch is committed: resolves or rejects the promises of all decisions that have an outcome. */
  committed(): FlightResult {
    const { assumptions } = this.#context;
    if (this.#hasAssumedAbsence) assumptions.absenceConfirmed();
    for (const { outcome, resolve, reject } of this.#submissions)
      if (outcome?.is === "done") resolve(outcome.value);
      else if (outcome?.is === "threw") reject(outcome.error);
    const isStalled = this.#lockedElsewhere.size > 0 && this.#again.length === this.#submissions.length;
    const fits = this.#isOverBudget ? this.#submissions.length - this.#again.length : null;
    return this.#end(this.#again, isStalled, fits);
  }

  /** Rows were not what the batch expected, so nothing was written: all of its decisions are submitted again. */
  moved(keys: readonly Key[], isHeld = false): FlightResult {
    const texts = new Set(keys.map(keyText));
    const { assumptions } = this.#context;
    for (const submission of this.#submissions) {
      const stale = submission.keys.filter((at) => texts.has(at.text));
      for (const at of stale) if (this.cells.get(at.text)?.isAssumed === true) this.#refute(at);
      if (isHeld && stale.length > 0) submission.isAlone = true;
      this.#setBack(submission, submission.isOptimistic && stale.length > 0 ? "not-as-assumed" : "put-off");
    }
    if (this.#hasAssumedAbsence) assumptions.absenceRefuted();
    // The first time, the decisions run again immediately, under locks; after that they may fail again, so a pause comes first.
    return this.#retry(this.#lockedElsewhere.size > 0 || this.#submissions.some(({ rounds }) => rounds > 1));
  }

  retryAlone(): FlightResult {
    for (const submission of this.#submissions) submission.isAlone = true;
    return this.#retry(false);
  }

  /** Nothing was written, for `reason`: all decisions are submitted again; those whose patience has ended are rejected with it. */
  retry(reason: StoreError): FlightResult {
    const nowMs = this.#context.ports.clock.nowMs();
    return this.#retry(
      false,
      giveUp(this.#submissions, reason, ({ giveUpAtMs }) => giveUpAtMs <= nowMs),
    );
  }

  #retry(isInVain: boolean, submissions: readonly Submission[] = this.#submissions): FlightResult {
    for (const submission of submissions) submission.outcome = undefined;
    return this.#end(submissions, isInVain, null);
  }

  fail(error: unknown): FlightResult {
    for (const submission of this.#submissions) submission.reject(error);
    return this.#end([], false, null);
  }

  /** Releases its records to other flights, and rejects decisions that other processes kept waiting past their patience. */
  #end(submissions: readonly Submission[], isInVain: boolean, fits: number | null): FlightResult {
    for (const text of this.#owned) this.#context.flying?.delete(text);
    if (submissions.length === 0) return { again: submissions, isInVain, fits };
    const nowMs = this.#context.ports.clock.nowMs();
    const locked = new StoreError("store_busy", "retry", "another process keeps the records locked: try again later");
    const isLate = ({ giveUpAtMs }: Submission): boolean => giveUpAtMs <= nowMs;
    const unlocked = giveUp(submissions, locked, (one) => isLate(one) && this.#isAnyIn(this.#lockedElsewhere, one));
    // Not after the first round: the records may have changed just once.
    const again = giveUp(unlocked, keepChanging(), (one) => isLate(one) && one.rounds > 1);
    return { again, isInVain, fits };
  }

  #isAnyIn(texts: ReadonlySet<string>, { keys }: Submission): boolean {
    return texts.size > 0 && keys.some((at) => texts.has(at.text));
  }

  /** Another process has its records locked. */
  #putOff(submission: Submission): void {
    this.#setBack(submission, "put-off");
    this.#again.push(submission);
  }

  #setBack(submission: Submission, setback: Setback): void {
    if (setback === "put-off") submission.rounds += 1;
    submission.path = nextPath(submission.path, setback, submission.rounds);
  }

  /** It does not fit into the budget: it is submitted again. */
  #deferOverBudget(submission: Submission): void {
    this.#isOverBudget = true;
    this.#again.push(submission);
  }

  #assume(at: Address): void {
    if (this.cells.has(at.text)) return;
    const row = this.#context.assumptions.of(at);
    if (row === undefined) return;
    if (row === null) this.#hasAssumedAbsence = true;
    this.cells.set(at.text, new Cell(at, row, true));
  }

  #ask(keys: ReadonlyMap<string, Address>): void {
    this.#asked = [...keys.values()];
    this.#own(keys.keys());
  }

  #own(texts: Iterable<string>): void {
    const { flying } = this.#context;
    if (flying === null) return;
    for (const text of texts) {
      this.#owned.add(text);
      flying.add(text);
    }
  }
}

/** Rejects the submissions for which `isOver` holds, and returns the others. */
function giveUp(
  submissions: readonly Submission[],
  reason: StoreError,
  isOver: (submission: Submission) => boolean,
): readonly Submission[] {
  const isAnyOver = submissions.some(isOver);
  if (!isAnyOver) return submissions;
  for (const submission of submissions) if (isOver(submission)) submission.reject(reason);
  return submissions.filter((submission) => !isOver(submission));
}

/** For a decision that was postponed until its patience ended. */
export const keepChanging = (): StoreError =>
  new StoreError(
    "store_busy",
    "retry",
    "other processes keep the records locked, or keep changing them: try again later",
  );

/** The batch as the decisions of a flight see it. */
export function batchViewOf(
  { encoding, ports, guard, clockEstimate }: FlightContext,
  cells: ReadonlyMap<string, Cell>,
  nowMs: number | null,
  fenceFloor: number,
  stamp: number,
): BatchView {
  // Estimated here, because decisions must not read this process's clock, not even indirectly.
  return { cells, nowMs, clockEstimate: clockEstimate(), fenceFloor, stamp, encoding, ports, guard };
}

function tooMany({ keys }: Submission): Outcome<never> | undefined {
  return keys.length > MAX_KEYS ? { is: "threw", error: new TooManyKeysError(MAX_KEYS) } : undefined;
}
