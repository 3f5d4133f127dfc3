/**
 * Decisions: runs a pure function on the records of a batch.
 *
 * The decisions of a batch run one after another on shared cells. Each works on drafts of its own, which are merged into the
 * cells only when it returns: one that throws leaves nothing behind. Reading a record that was not loaded makes the attempt void,
 * even if the decision catches the error, and requests the record; `tx.uuid()` and `tx.random()` come from a tape, so they are the
 * same in the next attempt.
 */

import type { Address } from "./contract.ts";
import { type Cell, checkNumbers, Draft, type DraftContext } from "./draft.ts";
import type { Encoding } from "./encoding.ts";
import { DecisionAsyncError, DecisionImpureError, DecisionOverError } from "./errors.ts";
import { withItem } from "./list.ts";
import type { Ports } from "./ports.ts";
import { isAsync } from "./sync.ts";

/** What a decision can use. */
export interface Tx {
  /** The store's clock, the same for all decisions of a commit. */
  readonly nowMs: number;
  /** The store's clock, or up to a second later if that saves reading it: for the beginning of a lease. */
  readonly nowUpperBoundMs: number;
  /** The store's clock, estimated if that saves reading it: for times that only people read. */
  readonly approxNowMs: number;
  /** No fence below this may be granted. */
  readonly fenceFloor: number;
  random(): number;
  uuid(): string;
  record(at: Address): Draft;
  /** Loads several records together, which saves loading them one after another. */
  load(all: readonly Address[]): void;
  /** The same object for all decisions of a handle, and `Kernel.handle` of it: what a capability keeps for the handle is found by it. */
  readonly handle: object;
}

export type Decision<T> = (tx: Tx) => T;

/** A type that no promise fits. */
export type Sync<T> = T extends PromiseLike<unknown> ? never : T;

/** The random values that a submission drew, so that each attempt draws the same. Most draw none. */
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

/** What is known of the store's clock without reading it. */
export interface ClockEstimate {
  readonly nowUpperBoundMs: number;
  readonly approxNowMs: number;
}

/** The batch as its decisions see it. */
export interface BatchView {
  readonly cells: ReadonlyMap<string, Cell>;
  readonly nowMs: number | null;
  /** Null if the store's clock was not read recently. */
  readonly clockEstimate: ClockEstimate | null;
  readonly fenceFloor: number;
  /** The stamp of everything that the batch writes. */
  readonly stamp: number;
  readonly encoding: Encoding;
  readonly ports: Ports;
  readonly guard: DecisionGuard;
}

/**
 * Detects that the handle is used inside a decision: such a call would be a commit of its own, repeated in each attempt. The call never
 * settles, and the decision is refused.
 */
export class DecisionGuard {
  #isDeciding = false;
  #misuse: DecisionImpureError | undefined;

  /** Called by everything that must not be used inside a decision. Returns whether a decision runs now, and remembers the misuse. */
  isInsideDecision(): boolean {
    if (this.#isDeciding)
      this.#misuse ??= new DecisionImpureError(
        "it used the handle, which works only outside of decisions: use tx, as in tx.slot(slot)",
      );
    return this.#isDeciding;
  }

  begin(): void {
    this.#isDeciding = true;
  }

  /** Throws if the handle was used since `begin`. */
  end(): void {
    const misuse = this.#misuse;
    this.#isDeciding = false;
    this.#misuse = undefined;
    if (misuse !== undefined) throw misuse;
  }
}

/** Thrown through a decision whose attempt is void. */
const VOID = new Error("this attempt of the decision is void: it runs again with the records that it asked for");

/** One attempt of one decision. */
class DecisionAttempt implements Tx, DraftContext {
  readonly #view: BatchView;
  readonly #tape: Tape;
  #randomCount = 0;
  #uuidCount = 0;
  readonly #isOptimistic: boolean;
  #isOver = false;
  drafts: Draft[] = [];
  /** Records that were not loaded, or what else it lacked. */
  wanted: Wanted | undefined;
  bytes = 0;

  constructor(view: BatchView, tape: Tape, isOptimistic: boolean) {
    this.#view = view;
    this.#tape = tape;
    this.#isOptimistic = isOptimistic;
  }

  /** Throws `decision_over` after the decision returned. */
  check(): void {
    if (this.#isOver) throw new DecisionOverError();
  }

  end(): void {
    this.#isOver = true;
    for (const { cell } of this.drafts) cell.draft = undefined;
  }

  /** Whether it used an assumed row without writing it: then the commit would not detect that the row is not as assumed. */
  isUnchecked(outcome: Outcome<unknown>): boolean {
    if (!this.#isOptimistic) return false;
    return this.drafts.some(({ cell, row }) => cell.isAssumed && (row === cell.row || outcome.is !== "done"));
  }

  get stamp(): number {
    return this.#view.stamp;
  }

  get maxValueBytes(): number {
    return this.#view.encoding.maxBytes;
  }

  get handle(): object {
    return this.#view.encoding;
  }

  get nowMs(): number {
    this.check();
    if (this.#view.nowMs !== null) return this.#view.nowMs;
    this.wanted ??= "lock";
    throw VOID;
  }

  get nowUpperBoundMs(): number {
    this.check();
    return this.#view.nowMs ?? this.#estimate.nowUpperBoundMs;
  }

  get approxNowMs(): number {
    this.check();
    return this.#view.nowMs ?? this.#estimate.approxNowMs;
  }

  get #estimate(): ClockEstimate {
    if (this.#view.clockEstimate !== null) return this.#view.clockEstimate;
    this.wanted ??= "clock";
    throw VOID;
  }

  get fenceFloor(): number {
    return Math.max(this.nowMs, this.#view.fenceFloor);
  }

  random(): number {
    this.check();
    return this.#tape.random(this.#randomCount++, this.#view.ports.chance.random);
  }

  uuid(): string {
    this.check();
    return this.#tape.uuid(this.#uuidCount++, this.#view.ports.chance.uuid);
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
    this.drafts = withItem(this.drafts, draft);
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
    const cell = this.#view.cells.get(at.text);
    return cell?.isAssumed === true && !this.#isOptimistic ? undefined : cell;
  }

  encode(at: Address, value: unknown): string {
    const text = this.#view.encoding.encode(at, value);
    this.bytes += text.length;
    return text;
  }

  decode(at: Address, text: string): unknown {
    return this.#view.encoding.decode(at, text);
  }
}

/**
 * What an attempt lacked: records that were not loaded; "lock" if it needs the locked path; "clock" if any recent reading of the store's clock would have
 * been enough.
 */
export type Wanted = readonly Address[] | "lock" | "clock";

export type Outcome<T> =
  | { readonly is: "done"; readonly value: T; readonly bytes: number }
  | { readonly is: "threw"; readonly error: unknown }
  | { readonly is: "void"; readonly wanted: Wanted };

/**
 * Runs a decision on the cells, and merges what it wrote if it returned. An optimistic decision may use assumed rows, which were not read
 * under a lock.
 */
export function runDecision<T>(decide: Decision<T>, view: BatchView, tape: Tape, isOptimistic: boolean): Outcome<T> {
  const { trap } = view.ports;
  const run = new DecisionAttempt(view, tape, isOptimistic);
  if (trap === undefined) {
    const outcome = attempt(run, view.guard, decide);
    if (outcome.is === "done") merge(run);
    return outcome;
  }
  const first = new DecisionAttempt(view, tape, isOptimistic);
  const firstOutcome = attempt(first, view.guard, (tx) => trap(() => decide(tx)));
  if (firstOutcome.is !== "done") return firstOutcome;
  const outcome = attempt(run, view.guard, (tx) => trap(() => decide(tx)));
  if (outcome.is !== "done" || written(run) !== written(first))
    return { is: "threw", error: new DecisionImpureError("it wrote something else when it ran a second time") };
  merge(run);
  return outcome;
}

function attempt<T>(run: DecisionAttempt, guard: DecisionGuard, decide: Decision<T>): Outcome<T> {
  let outcome: Outcome<T>;
  guard.begin();
  try {
    const value = decide(run);
    refusePromise(value);
    // Here, and not in `write`: a decision may catch what `write` throws, and an unreadable row must not be stored in any case.
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
  // Even if the decision caught the error, an attempt that lacked a record or the clock is void.
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

/** What an attempt would write, as text to compare. */
function written(run: DecisionAttempt): string {
  return JSON.stringify(run.drafts.filter((d) => d.row !== d.cell.row).map((d) => [d.row, d.entries]));
}

/** What a pure function of the user's returns outside a decision. Where decisions are trapped, so is it: it runs twice, and must return the same. */
export function runPure<T>({ trap }: Pick<Ports, "trap">, call: () => T): T {
  if (trap === undefined) return call();
  const first = trap(call);
  refusePromise(first);
  const again = trap(call);
  if (JSON.stringify(first) !== JSON.stringify(again))
    throw new DecisionImpureError("it returned something else when it ran a second time");
  return again;
}

/** A decision, and a function that it calls for the user, must be synchronous. Throws `decision_async` for a promise or a generator. */
export function refusePromise(value: unknown): void {
  if (isAsync(value)) throw new DecisionAsyncError();
}
