/**
 * A flight: one batch on its way, with its decisions, the records they see, and their outcomes.
 *
 * It gathers the records that its decisions named, runs the decisions when the store has read them, asks for those that turn up
 * late, and sorts the decisions afterwards: settled, or to be submitted again.
 *
 * A flight has a budget: of records, of bytes read and written, and of time for its decisions, during which its rows are locked and the
 * process does nothing else. What does not fit flies next. One decision fits in any case.
 */

import { type Assumptions, nextPath, type Path, type Setback } from "./assumptions.ts";
import { compareUtf8 } from "./check.ts";
import { type Address, type Found, type Key, keyText, type Put, type Verdict } from "./contract.ts";
import { type Decision, type Guard, type Late, type Outcome, runDecision, type Scene, type Tape } from "./decision.ts";
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
/** The clock is read after this many decisions, because reading it costs as much as a small decision. */
const DECISIONS_PER_LOOK = 4;
/** Enough that two writes of one version never have the same stamp by chance, and six bytes in SQLite. */
const STAMPS = 2 ** 47;
/** One decision may touch so many records. */
const MAX_KEYS = 1000;

/** One decision on its way, with the promise of its caller. */
export interface Submission {
  readonly decide: Decision<unknown>;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
  readonly tape: Tape;
  readonly giveUpAtMs: number;
  keys: readonly Address[];
  path: Path;
  /** In this flight it is decided on assumed rows: all of its records could be assumed when the flight was put together. */
  isOptimistic: boolean;
  /** Runs in a batch of its own, because a batch with it failed. */
  isAlone: boolean;
  /** It keeps a lease, and goes before all others. */
  readonly isUrgent: boolean;
  /** How often it was put off: others had its records, or changed them. */
  rounds: number;
  outcome: Outcome<unknown> | undefined;
}

/** A decision that has just been submitted. */
export function submissionOf(
  given: Pick<Submission, "decide" | "resolve" | "reject" | "tape" | "giveUpAtMs" | "keys" | "path"> & {
    readonly isUrgent?: boolean;
  },
): Submission {
  // Field by field: this is made for each decision, and a spread copies slowly.
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

/** What a flight shares with the others of its process. */
export interface Airspace {
  /** Records that are in some flight now; null where there is one flight at a time. */
  readonly flying: Set<string> | null;
  readonly assumptions: Assumptions;
  readonly encoding: Encoding;
  readonly ports: Ports;
  readonly guard: Guard;
  /** What is known of the store's clock, if it was read a moment ago. */
  readonly late: () => Late | null;
}

export class Flight {
  readonly #submissions: readonly Submission[];
  readonly #air: Airspace;
  readonly #stamp: number;
  /** The store waits for records that another process has locked, instead of skipping them. */
  readonly mayWait: boolean;
  readonly cells = new Map<string, Cell>();
  /** Records this flight has or asked for; no other flight of this process may have them until it ends. */
  readonly #taken = new Set<string>();
  /** Records that were not read because another process has them locked. */
  readonly #busy = new Set<string>();
  /** Records that were not read because the budget was used up. */
  readonly #unread = new Set<string>();
  #asked: readonly Address[] = [];
  #pending: readonly Submission[];
  #fenceFloor = 0;
  #hasAssumedAbsence = false;
  puts: readonly Put[] = [];
  /** What is to be written is known; before that, nothing can have been. */
  isDecided = false;
  /** Decisions were left to the next flight, because the budget was used up. */
  isOverBudget = false;
  /** Decisions to submit again. */
  again: Submission[] = [];

  constructor(submissions: readonly Submission[], air: Airspace, mayWait: boolean) {
    this.#submissions = submissions;
    this.#air = air;
    const { chance } = air.ports;
    this.#stamp = chance.stamp?.() ?? Math.floor(chance.random() * STAMPS);
    this.#pending = submissions;
    const asked = new Map<string, Address>();
    for (const { keys, isOptimistic } of submissions) if (!isOptimistic) for (const at of keys) asked.set(at.text, at);
    for (const { keys, isOptimistic } of submissions)
      if (isOptimistic) for (const at of keys) if (!asked.has(at.text)) this.#assume(at);
    this.#take(this.cells.keys());
    const isPatient = submissions[0]?.path === "patient";
    // Sorted, so that two processes that wait for each other's records cannot wait in a circle.
    this.#ask(isPatient ? new Map([...asked].sort(([a], [b]) => compareUtf8(a, b))) : asked);
    // Where there is one record only, nothing else is kept waiting.
    this.mayWait = mayWait && asked.size > 0 && (isPatient || asked.size === 1);
  }

  get size(): number {
    return this.#submissions.length;
  }

  get lock(): readonly Address[] {
    return this.#asked;
  }

  get maxBytes(): number | undefined {
    return this.size === 1 ? undefined : BUDGET.bytesRead;
  }

  /** Only a flight whose records are all assumed can do without the clock, until a decision asks for it. */
  get needsClock(): boolean {
    return this.#submissions.some(({ isOptimistic }) => !isOptimistic);
  }

  get giveUpAtMs(): number {
    return this.#submissions.reduce((latest, { giveUpAtMs }) => Math.max(latest, giveUpAtMs), 0);
  }

  /** Nothing could be decided, because others have the rows. */
  get isStalled(): boolean {
    return this.#busy.size > 0 && this.again.length === this.#submissions.length;
  }

  /** How many of its decisions have an outcome. */
  get decidedCount(): number {
    return this.#submissions.length - this.again.length;
  }

  /** Called by the store with the rows it was asked for, until nothing more is wanted. */
  decide(found: Found): Verdict {
    this.#asked.forEach((at, index) => {
      const row = found.rows[index];
      if (row !== undefined) this.cells.set(at.text, new Cell(at, row));
      else if (found.isFull === true) this.#unread.add(at.text);
      else this.#busy.add(at.text);
    });
    this.#fenceFloor = Math.max(this.#fenceFloor, found.fenceFloor);
    const scene = sceneOf(this.#air, this.cells, found.nowMs, this.#fenceFloor, this.#stamp);
    const waiting: Submission[] = [];
    const wanted = new Map<string, Address>();
    const { clock } = this.#air.ports;
    const untilMs = clock.nowMs() + BUDGET.decidingMs;
    let bytes = 0;
    let decided = 0;
    let isFull = false;
    for (const submission of this.#pending) {
      if (this.#isAnyIn(this.#busy, submission)) {
        this.#putOff(submission);
        continue;
      }
      if (isFull || this.#isAnyIn(this.#unread, submission)) {
        this.#leave(submission);
        continue;
      }
      const outcome =
        tooMany(submission) ?? runDecision(submission.decide, scene, submission.tape, submission.isOptimistic);
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

  /** Whether a void run can have what it wants in this flight; otherwise it is submitted again. */
  #wantsMore(submission: Submission, wants: readonly Address[] | "lock", wanted: Map<string, Address>): boolean {
    if (wants === "lock") {
      this.#setBack(submission, "wants-lock");
      for (const at of submission.keys) this.#air.assumptions.refuted(at.text);
      this.again.push(submission);
      return false;
    }
    submission.keys = submission.keys.concat(wants);
    // A record that another flight of this process has, or that is only assumed, cannot be waited for in this one.
    if (wants.some((at) => this.#isElsewhere(at) || this.cells.get(at.text)?.isAssumed === true)) {
      this.again.push(submission);
      return false;
    }
    if (wanted.size > 0 && this.cells.size + wanted.size + wants.length > BUDGET.records) {
      this.#leave(submission);
      return false;
    }
    for (const at of wants) if (!this.cells.has(at.text) && !this.#busy.has(at.text)) wanted.set(at.text, at);
    return true;
  }

  #isElsewhere({ text }: Address): boolean {
    return this.#air.flying?.has(text) === true && !this.#taken.has(text);
  }

  /** The batch is committed: the callers of everything that was decided learn the outcome. */
  answer(): void {
    if (this.#hasAssumedAbsence) this.#air.assumptions.absenceConfirmed();
    for (const { outcome, resolve, reject } of this.#submissions)
      if (outcome?.is === "done") resolve(outcome.value);
      else if (outcome?.is === "threw") reject(outcome.error);
  }

  /** Rows are not what the batch took them for, so nothing was written: all of its decisions are made again. */
  moved(keys: readonly Key[], isHeld = false): void {
    const texts = new Set(keys.map(keyText));
    const { assumptions } = this.#air;
    for (const submission of this.#submissions) {
      const stale = submission.keys.filter((at) => texts.has(at.text));
      for (const at of stale) if (this.cells.get(at.text)?.isAssumed === true) assumptions.refuted(at.text);
      if (isHeld && stale.length > 0) submission.isAlone = true;
      this.#setBack(submission, submission.isOptimistic && stale.length > 0 ? "not-as-assumed" : "put-off");
    }
    if (this.#hasAssumedAbsence) assumptions.absenceRefuted();
    this.retry();
  }

  retryAlone(): void {
    for (const submission of this.#submissions) submission.isAlone = true;
    this.retry();
  }

  /** Nothing was written: all of its decisions are submitted again. */
  retry(): void {
    this.again = [...this.#submissions];
    for (const submission of this.#submissions) submission.outcome = undefined;
  }

  /** Rejects those decisions of `again` whose patience has ended, with the reason. Nothing of them was written. */
  giveUp(nowMs: number, reason: StoreError, isMeant: (submission: Submission) => boolean = () => true): void {
    const isLate = (submission: Submission) => submission.giveUpAtMs <= nowMs && isMeant(submission);
    for (const submission of this.again) if (isLate(submission)) submission.reject(reason);
    this.again = this.again.filter((submission) => !isLate(submission));
  }

  /** The same for those whose records others keep locked, or keep changing. */
  giveUpPutOff(nowMs: number): void {
    if (this.again.length === 0) return;
    const locked = new StoreError("store_busy", "retry", "another process keeps the records locked");
    this.giveUp(nowMs, locked, (submission) => this.#isAnyIn(this.#busy, submission));
    // Once is no reason: the first look may have been just too early.
    this.giveUp(nowMs, keepChanging(), ({ rounds }) => rounds > 1);
  }

  /** How often the decision that was put off most often has been. */
  get mostRounds(): number {
    return this.again.reduce((most, { rounds }) => Math.max(most, rounds), 0);
  }

  #isAnyIn(texts: ReadonlySet<string>, { keys }: Submission): boolean {
    return texts.size > 0 && keys.some((at) => texts.has(at.text));
  }

  /** Others have its records. */
  #putOff(submission: Submission): void {
    this.#setBack(submission, "put-off");
    this.again.push(submission);
  }

  #setBack(submission: Submission, setback: Setback): void {
    if (setback === "put-off") submission.rounds += 1;
    submission.path = nextPath(submission.path, setback, submission.rounds);
  }

  /** It does not fit any more. */
  #leave(submission: Submission): void {
    this.isOverBudget = true;
    this.again.push(submission);
  }

  fail(error: unknown): void {
    this.again = [];
    for (const submission of this.#submissions) submission.reject(error);
  }

  end(): void {
    for (const text of this.#taken) this.#air.flying?.delete(text);
  }

  #assume(at: Address): void {
    if (this.cells.has(at.text)) return;
    const row = this.#air.assumptions.of(at);
    if (row === undefined) return;
    if (row === null) this.#hasAssumedAbsence = true;
    this.cells.set(at.text, new Cell(at, row, true));
  }

  #ask(keys: ReadonlyMap<string, Address>): void {
    this.#asked = [...keys.values()];
    this.#take(keys.keys());
  }

  #take(texts: Iterable<string>): void {
    const { flying } = this.#air;
    if (flying === null) return;
    for (const text of texts) {
      this.#taken.add(text);
      flying.add(text);
    }
  }
}

/** For a decision that was put off until its patience ended. */
export const keepChanging = (): StoreError =>
  new StoreError("store_busy", "retry", "other processes keep the records locked, or keep changing them");

/** What decisions of a flight see. */
export function sceneOf(
  { encoding, ports, guard, late }: Airspace,
  cells: ReadonlyMap<string, Cell>,
  nowMs: number | null,
  fenceFloor: number,
  stamp: number,
): Scene {
  // Read here, because decisions may not look at this process's clock, not even in this way.
  return { cells, nowMs, late: late(), fenceFloor, stamp, encoding, ports, guard };
}

function tooMany({ keys }: Submission): Outcome<never> | undefined {
  return keys.length > MAX_KEYS ? { is: "threw", error: new TooManyKeysError(MAX_KEYS) } : undefined;
}
