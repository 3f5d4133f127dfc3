/**
 * A flight: one batch on its way, with its decisions, the records they see, and what becomes of them.
 *
 * It gathers the records that its decisions named, runs the decisions when the store has read them, asks for those that turn up
 * late, and sorts the decisions afterwards: answered, or to be submitted again.
 */

import { type Address, type Found, type Key, keyText, type Put, type Verdict } from "./contract.ts";
import { type Decision, type Guard, type Late, type Outcome, runDecision, type Scene, type Tape } from "./decision.ts";
import { Cell } from "./draft.ts";
import type { Encoding } from "./encoding.ts";
import { StoreError, TooManyKeysError } from "./errors.ts";
import type { Known } from "./known.ts";
import type { Ports } from "./ports.ts";

/** A batch stops taking decisions in when what they wrote gets so long. */
const MAX_BYTES = 8 * 1024 * 1024;
const MAX_KEYS = 1000;

/** One decision on its way, with the promise of its caller. */
export interface Submission {
  readonly decide: Decision<unknown>;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
  readonly tape: Tape;
  readonly giveUpAtMs: number;
  keys: readonly Address[];
  /** What is known of its records may be used; otherwise it goes the locked way. */
  mayBelieve: boolean;
  /** It is about to be decided on what is known of its records: of all of them. */
  believes: boolean;
  /** Runs in a batch of its own, because a batch with it failed. */
  alone: boolean;
  outcome: Outcome<unknown> | undefined;
}

/** What a flight shares with the others of its process. */
export interface Airspace {
  /** Records that are in some flight now; null where there is one flight at a time. */
  readonly flying: Set<string> | null;
  readonly known: Known;
  readonly encoding: Encoding;
  readonly ports: Ports;
  readonly guard: Guard;
  /** What is known of the store's clock, if it was heard a moment ago. */
  readonly late: () => Late | null;
}

export class Flight {
  readonly #submissions: readonly Submission[];
  readonly #air: Airspace;
  /** The only record that its decisions want, which the store waits for if another process has it. */
  readonly waitFor: Address | undefined;
  readonly cells = new Map<string, Cell>();
  /** Records this flight has or asked for; nobody else in this process may have them until it ends. */
  readonly #taken = new Set<string>();
  /** Records that another process has locked now. */
  readonly #busy = new Set<string>();
  #asked: readonly Address[] = [];
  #pending: readonly Submission[];
  #fenceFloor = 0;
  /** Records that were taken for absent. */
  #guesses = 0;
  puts: readonly Put[] = [];
  /** What is to be written is known; before that, nothing can have been. */
  isDecided = false;
  /** Decisions to submit once more. */
  again: Submission[] = [];

  constructor(submissions: readonly Submission[], air: Airspace, mayWait: boolean) {
    this.#submissions = submissions;
    this.#air = air;
    this.#pending = submissions;
    const asked = new Map<string, Address>();
    for (const { keys, believes } of submissions) if (!believes) for (const at of keys) asked.set(at.text, at);
    for (const { keys, believes } of submissions)
      if (believes) for (const at of keys) if (!asked.has(at.text)) this.#believe(at);
    this.#take(this.cells.keys());
    this.#ask(asked);
    // Where there is one record only, nobody else is kept waiting.
    if (mayWait && asked.size === 1) this.waitFor = this.#asked[0];
  }

  get size(): number {
    return this.#submissions.length;
  }

  get lock(): readonly Address[] {
    return this.#asked;
  }

  /** Only those who know their records can do without the clock, until they ask for it. */
  get needsClock(): boolean {
    return this.#submissions.some(({ believes }) => !believes);
  }

  get giveUpAtMs(): number {
    return this.#submissions.reduce((latest, { giveUpAtMs }) => Math.max(latest, giveUpAtMs), 0);
  }

  /** Nothing could be decided, because others have the rows. */
  get isStalled(): boolean {
    return this.#busy.size > 0 && this.again.length === this.#submissions.length;
  }

  /** Called by the store with the rows it was asked for, until nothing more is wanted. */
  decide(found: Found): Verdict {
    this.#asked.forEach((at, index) => {
      const row = found.rows[index];
      if (row === undefined) this.#busy.add(at.text);
      else this.cells.set(at.text, new Cell(at, row));
    });
    this.#fenceFloor = Math.max(this.#fenceFloor, found.fenceFloor);
    const scene = sceneOf(this.#air, this.cells, found.nowMs, this.#fenceFloor);
    const waiting: Submission[] = [];
    const wanted = new Map<string, Address>();
    let bytes = 0;
    for (const submission of this.#pending) {
      if (bytes > MAX_BYTES || this.#isBlocked(submission)) {
        this.again.push(submission);
        continue;
      }
      const outcome =
        tooMany(submission) ?? runDecision(submission.decide, scene, submission.tape, submission.believes);
      submission.outcome = outcome;
      if (outcome.is === "done") bytes += outcome.bytes;
      if (outcome.is === "void" && this.#wantsMore(submission, outcome.wanted, wanted)) waiting.push(submission);
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
      this.#disappoint(submission, submission.keys);
      this.again.push(submission);
      return false;
    }
    submission.keys = submission.keys.concat(wants);
    // A record that another flight of this process has, or that is only believed, cannot be waited for in this one.
    if (wants.some((at) => this.#isElsewhere(at) || this.cells.get(at.text)?.isKnown === true)) {
      this.again.push(submission);
      return false;
    }
    for (const at of wants) if (!this.cells.has(at.text) && !this.#busy.has(at.text)) wanted.set(at.text, at);
    return true;
  }

  #isElsewhere({ text }: Address): boolean {
    return this.#air.flying?.has(text) === true && !this.#taken.has(text);
  }

  /** The batch is committed: everybody who was decided hears. */
  answer(): void {
    if (this.#guesses > 0) this.#air.known.guessed(true);
    for (const { outcome, resolve, reject } of this.#submissions)
      if (outcome?.is === "done") resolve(outcome.value);
      else if (outcome?.is === "threw") reject(outcome.error);
  }

  /** Rows that were believed known are not what they were: their holders go the locked way, the others once more. */
  moved(keys: readonly Key[]): void {
    const texts = new Set(keys.map(keyText));
    for (const submission of this.#submissions) {
      const stale = submission.keys.filter((at) => texts.has(at.text));
      if (submission.believes && stale.length > 0) this.#disappoint(submission, stale);
    }
    if (this.#guesses > 0) this.#air.known.guessed(false);
    this.retry();
  }

  retryAlone(): void {
    for (const submission of this.#submissions) submission.alone = true;
    this.retry();
  }

  /** Nothing was written: everybody once more. */
  retry(): void {
    this.again = [...this.#submissions];
    for (const submission of this.#submissions) submission.outcome = undefined;
  }

  /** Of those that are to go again, some have waited long enough: they are told no, with the reason. It is a definite one. */
  giveUp(nowMs: number, reason: StoreError, isMeant: (submission: Submission) => boolean = () => true): void {
    const isLate = (submission: Submission) => submission.giveUpAtMs <= nowMs && isMeant(submission);
    for (const submission of this.again) if (isLate(submission)) submission.reject(reason);
    this.again = this.again.filter((submission) => !isLate(submission));
  }

  /** The same for those whose records others keep locked. */
  giveUpBlocked(nowMs: number): void {
    if (this.#busy.size === 0) return;
    const reason = new StoreError("store_busy", "retry", "another process keeps the records locked");
    this.giveUp(nowMs, reason, (submission) => this.#isBlocked(submission));
  }

  #isBlocked({ keys }: Submission): boolean {
    return this.#busy.size > 0 && keys.some((at) => this.#busy.has(at.text));
  }

  fail(error: unknown): void {
    this.again = [];
    for (const submission of this.#submissions) submission.reject(error);
  }

  end(): void {
    for (const text of this.#taken) this.#air.flying?.delete(text);
  }

  #believe(at: Address): void {
    if (this.cells.has(at.text)) return;
    const row = this.#air.known.get(at.text);
    if (row === undefined && at.isNew !== true) return;
    if (row === undefined) this.#guesses += 1;
    this.cells.set(at.text, new Cell(at, row ?? null, true));
  }

  /** It goes the locked way, and what was known of these records is not used for a while. */
  #disappoint(submission: Submission, keys: readonly Address[]): void {
    submission.mayBelieve = false;
    for (const at of keys) this.#air.known.disappointed(at.text);
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

/** What decisions of a flight see. */
export function sceneOf(
  { encoding, ports, guard, late }: Airspace,
  cells: ReadonlyMap<string, Cell>,
  nowMs: number | null,
  fenceFloor: number,
): Scene {
  return { cells, nowMs, late, fenceFloor, encoding, ports, guard };
}

function tooMany({ keys }: Submission): Outcome<never> | undefined {
  return keys.length > MAX_KEYS ? { is: "threw", error: new TooManyKeysError(MAX_KEYS) } : undefined;
}
