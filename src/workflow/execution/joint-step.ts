/**
 * A step that is recorded in a transaction of the user: its SQL and its record are committed together, or neither is.
 *
 * Once the run is entered, nothing else becomes a fact until the transaction has ended, because the record's place in the history is
 * where the code will receive it; and once its work is done, the attempt cannot time out any more, because the next one might then be recorded
 * as well.
 */

import type { Tx } from "../../kernel/decision.ts";
import { AttemptOverError } from "../errors.ts";
import { unstorableResult } from "../history/outcome.ts";
import type { HeldRun, Recorded } from "./held-run.ts";
import type { PendingOperation } from "./pending.ts";
import type { Attempt, RunningStep } from "./steps.ts";

/** What a joint step does to the execution that it is in. */
export interface StepTransactions {
  /** From here on nothing else becomes a fact, until the transaction has ended. */
  enterTransaction(isCurrent: () => boolean): Promise<void>;
  /** The transaction is committed: the code receives the step's outcome. */
  leaveTransaction(pending: PendingOperation, text: string, written: Recorded): void;
  /** The transaction was rolled back, or its outcome is unknown. */
  dropTransaction(error: unknown, isDoubtful: boolean): void;
}

export class JointStep {
  readonly #run: HeldRun;
  readonly #transactions: StepTransactions;
  readonly pending: PendingOperation;
  readonly #attempt: Attempt | undefined;
  #text = "";
  #written: Recorded | undefined;
  #hasEntered = false;

  constructor(run: HeldRun, transactions: StepTransactions, pending: PendingOperation, step: RunningStep) {
    this.#run = run;
    this.#transactions = transactions;
    this.pending = pending;
    this.#attempt = step.current;
  }

  /** The step's record is in the transaction. */
  get isRecorded(): boolean {
    return this.#written !== undefined;
  }

  encode(value: unknown): void {
    try {
      this.#text = this.#run.kernel.encode(this.#run.at, { ok: value });
    } catch (error) {
      throw unstorableResult(error, `step "${this.pending.id}"`);
    }
  }

  async enter(): Promise<void> {
    if (this.#hasEntered) return;
    await this.#transactions.enterTransaction(() => this.#attempt?.isOver === false);
    this.#hasEntered = true;
  }

  /**
   * Waits for the work of the attempt. When the attempt's time is over, this throws, and so the transaction is rolled back. The wait for the
   * transaction may have taken all of it: then the work does not begin, because the next attempt may have done it.
   */
  async orExpired<T>(work: () => Promise<T>): Promise<T> {
    this.#checkCurrent();
    return this.#attempt === undefined ? work() : Promise.race([work(), this.#attempt.expired]);
  }

  /** From here on the attempt cannot time out, because the next one might be recorded as well. Throws if its time is over. */
  disarm(): void {
    this.#checkCurrent();
    this.#attempt?.disarm();
  }

  #checkCurrent(): void {
    if (this.#attempt?.isOver === true) throw new AttemptOverError(this.pending.id, this.#attempt.attempt);
  }

  /** A decision; it may run more than once. */
  record(tx: Tx): void {
    this.#written = this.#run.recordStep(tx, this.pending, this.#text);
  }

  /** It is committed, and the code gets its outcome: what the step's function returns is not needed any more. */
  committed(): Promise<never> {
    this.#transactions.leaveTransaction(this.pending, this.#text, this.#written ?? { row: null, nowMs: 0, version: 0 });
    return never();
  }

  /** A definite failure fails the attempt. An unknown outcome is looked up in the history, by working on the run anew. */
  failed(error: unknown, isDoubtful: boolean): Promise<never> {
    if (this.#hasEntered) this.#transactions.dropTransaction(error, isDoubtful);
    return this.#hasEntered && isDoubtful ? never() : Promise.reject(error);
  }
}

const never = (): Promise<never> => new Promise(() => {});
