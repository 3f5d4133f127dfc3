/**
 * Decisions: how a pure function is run on the records of a batch.
 *
 * The decisions of a batch run one after another on shared cells. Each works on drafts of its own, which are merged into the
 * cells only when it returns: one that throws leaves nothing behind. Reading a record that was not loaded makes the run void,
 * whatever the decision does about it, and asks for the record; `tx.uuid()` and `tx.random()` come from a tape, so they are the
 * same in the next run.
 */

import type { Address } from "./contract.ts";
import { type Cell, checkNumbers, Draft, type Pen } from "./draft.ts";
import type { Encoding } from "./encoding.ts";
import { DecisionAsyncError, DecisionImpureError, DecisionOverError } from "./errors.ts";
import type { Ports } from "./ports.ts";

/** What a decision sees besides its records. */
export interface Tx {
  /** The store's clock, the same for all decisions of a commit. */
  readonly nowMs: number;
  /** The same, or up to a second later where that saves asking: for the beginning of a lease. */
  readonly lateMs: number;
  /** The same, as nearly as can be told without asking: for what people read. */
  readonly aboutMs: number;
  /** No fence below this may be given out. */
  readonly fenceFloor: number;
  random(): number;
  uuid(): string;
  record(at: Address): Draft;
  /** Asks for several records at once, which saves asking for one after the other. */
  load(all: readonly Address[]): void;
}

export type Decision<T> = (tx: Tx) => T;

/** A type that no promise fits. */
export type Sync<T> = T extends PromiseLike<unknown> ? never : T;

/** What a submission drew, so that it draws the same again. Most draw nothing. */
export class Tape {
  #randoms: number[] | undefined;
  #uuids: string[] | undefined;

  random(index: number, draw: () => number): number {
    this.#randoms ??= [];
    this.#randoms[index] ??= draw();
    return this.#randoms[index];
  }

  uuid(index: number, draw: () => string): string {
    this.#uuids ??= [];
    this.#uuids[index] ??= draw();
    return this.#uuids[index];
  }
}

/** What is known of the store's clock without asking. */
export interface Late {
  readonly lateMs: number;
  readonly aboutMs: number;
}

/** The batch as its decisions see it. */
export interface Scene {
  readonly cells: ReadonlyMap<string, Cell>;
  readonly nowMs: number | null;
  /** What is known of it, if it was read a moment ago. */
  readonly late: Late | null;
  readonly fenceFloor: number;
  /** Of everything that the batch writes. */
  readonly stamp: number;
  readonly encoding: Encoding;
  readonly ports: Ports;
  readonly guard: Guard;
}

/**
 * Notices the handle being used inside a decision, which would happen on its own, and again whenever the decision runs again. What was
 * asked never comes about, because the decision is refused.
 */
export class Guard {
  #isDeciding = false;
  #offence: DecisionImpureError | undefined;

  /** Called by whatever must not be called inside a decision; answers whether it was. */
  isBroken(): boolean {
    if (this.#isDeciding)
      this.#offence ??= new DecisionImpureError("the handle works outside; inside, use tx, as in tx.slot(slot)");
    return this.#isDeciding;
  }

  begin(): void {
    this.#isDeciding = true;
  }

  /** Throws if it was broken meanwhile. */
  end(): void {
    const offence = this.#offence;
    this.#isDeciding = false;
    this.#offence = undefined;
    if (offence !== undefined) throw offence;
  }
}

/** Thrown through a decision whose run is void. */
const VOID = new Error("this run of the decision is void: it runs again with what it asked for");

/** One run of one decision. */
class DecisionAttempt implements Tx, Pen {
  readonly #scene: Scene;
  readonly #tape: Tape;
  #randomCount = 0;
  #uuidCount = 0;
  readonly #isOptimistic: boolean;
  #isOver = false;
  readonly drafts: Draft[] = [];
  /** Records that were not loaded, or everything under lock, for the clock's sake. */
  wanted: readonly Address[] | "lock" | undefined;
  bytes = 0;

  constructor(scene: Scene, tape: Tape, isOptimistic: boolean) {
    this.#scene = scene;
    this.#tape = tape;
    this.#isOptimistic = isOptimistic;
  }

  /** What outlives its decision must neither read nor write. */
  check(): void {
    if (this.#isOver) throw new DecisionOverError();
  }

  end(): void {
    this.#isOver = true;
    for (const { cell } of this.drafts) cell.draft = undefined;
  }

  /** Whether it used an assumed row without writing it: then nothing would notice if the row is not as assumed. */
  isUnchecked(outcome: Outcome<unknown>): boolean {
    if (!this.#isOptimistic) return false;
    return this.drafts.some(({ cell, row }) => cell.isAssumed && (row === cell.row || outcome.is !== "done"));
  }

  get stamp(): number {
    return this.#scene.stamp;
  }

  get nowMs(): number {
    this.check();
    if (this.#scene.nowMs !== null) return this.#scene.nowMs;
    this.wanted ??= "lock";
    throw VOID;
  }

  get lateMs(): number {
    this.check();
    return this.#scene.nowMs ?? this.#scene.late?.lateMs ?? this.nowMs;
  }

  get aboutMs(): number {
    this.check();
    return this.#scene.nowMs ?? this.#scene.late?.aboutMs ?? this.nowMs;
  }

  get fenceFloor(): number {
    return Math.max(this.nowMs, this.#scene.fenceFloor);
  }

  random(): number {
    this.check();
    return this.#tape.random(this.#randomCount++, this.#scene.ports.chance.random);
  }

  uuid(): string {
    this.check();
    return this.#tape.uuid(this.#uuidCount++, this.#scene.ports.chance.uuid);
  }

  record(at: Address): Draft {
    this.check();
    const cell = this.#cell(at);
    if (cell === undefined) {
      this.wanted = [at];
      throw VOID;
    }
    if (cell.draft !== undefined) return cell.draft;
    const draft = new Draft(this, cell);
    cell.draft = draft;
    this.drafts.push(draft);
    return draft;
  }

  load(all: readonly Address[]): void {
    this.check();
    const missing = all.filter((at) => this.#cell(at) === undefined);
    if (missing.length === 0) return;
    this.wanted = missing;
    throw VOID;
  }

  #cell(at: Address): Cell | undefined {
    const cell = this.#scene.cells.get(at.text);
    return cell?.isAssumed === true && !this.#isOptimistic ? undefined : cell;
  }

  encode(at: Address, value: unknown): string {
    const text = this.#scene.encoding.encode(at, value);
    this.bytes += text.length;
    return text;
  }

  decode(at: Address, text: string): unknown {
    return this.#scene.encoding.decode(at, text);
  }
}

export type Outcome<T> =
  | { readonly is: "done"; readonly value: T; readonly bytes: number }
  | { readonly is: "threw"; readonly error: unknown }
  | { readonly is: "void"; readonly wanted: readonly Address[] | "lock" };

/**
 * Runs a decision on the cells, and merges what it wrote if it returned. An optimistic one may use rows that are assumed and were not
 * read under a lock.
 */
export function runDecision<T>(decide: Decision<T>, scene: Scene, tape: Tape, isOptimistic: boolean): Outcome<T> {
  const { trap } = scene.ports;
  const run = new DecisionAttempt(scene, tape, isOptimistic);
  if (trap === undefined) {
    const outcome = attempt(run, scene.guard, decide);
    if (outcome.is === "done") merge(run);
    return outcome;
  }
  const rehearsal = new DecisionAttempt(scene, tape, isOptimistic);
  const rehearsed = attempt(rehearsal, scene.guard, (tx) => trap(() => decide(tx)));
  if (rehearsed.is !== "done") return rehearsed;
  const outcome = attempt(run, scene.guard, (tx) => trap(() => decide(tx)));
  if (outcome.is !== "done" || written(run) !== written(rehearsal))
    return { is: "threw", error: new DecisionImpureError("it wrote something else when it ran again") };
  merge(run);
  return outcome;
}

function attempt<T>(run: DecisionAttempt, guard: Guard, decide: Decision<T>): Outcome<T> {
  let outcome: Outcome<T>;
  guard.begin();
  try {
    const value = decide(run);
    refusePromise(value);
    // Here, and not where it is written: whatever a decision did about a refusal, nothing unreadable gets past this.
    for (const { cell, row } of run.drafts) if (row !== null && row !== cell.row) checkNumbers(row);
    outcome = { is: "done", value, bytes: run.bytes };
  } catch (error) {
    outcome = { is: "threw", error };
  }
  try {
    guard.end();
  } catch (error) {
    outcome = { is: "threw", error };
  }
  run.end();
  // Whatever the decision made of it, a run that wanted something it could not have is void.
  if (run.wanted !== undefined) return { is: "void", wanted: run.wanted };
  if (run.isUnchecked(outcome)) return { is: "void", wanted: "lock" };
  return outcome;
}

function merge(run: DecisionAttempt): void {
  for (const { cell, row, entries } of run.drafts) {
    if (row === cell.row) continue;
    cell.row = row;
    cell.decoded = undefined;
    if (entries !== undefined) cell.entries = cell.entries.length === 0 ? entries : cell.entries.concat(entries);
  }
}

/** What a run would write, as text to compare. */
function written(run: DecisionAttempt): string {
  return JSON.stringify(run.drafts.filter((d) => d.row !== d.cell.row).map((d) => [d.row, d.entries]));
}

/** A decision, or a function it is given, must have its answer at once. */
export function refusePromise(value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  if ("then" in value && typeof value.then === "function") {
    // Its rejection, if any, is this same mistake and must not end the process.
    value.then(undefined, () => {});
    throw new DecisionAsyncError();
  }
  // A generator function has done nothing yet.
  if (Symbol.toStringTag in value && /^(Async)?Generator$/.test(String(value[Symbol.toStringTag])))
    throw new DecisionAsyncError();
}
