/**
 * A step that is recorded by a transaction which is the user's as well: its SQL and its record are there together, or neither is.
 *
 * Once the run is entered, nothing else becomes a fact until the transaction has ended, because the record's place in the history is
 * where the code will hear of it; and once its work is done, the attempt cannot time out any more, because the next one might then be recorded
 * as well.
 */

import type { Address, Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Asked, Written } from "./coroutine.ts";
import { AttemptOverError } from "./errors.ts";
import { unstorableResult } from "./outcome.ts";
import type { Attempt, StepRun } from "./steps.ts";

/** A step's record in a transaction: the run's row as it will be, the time, and the record's place in the history. */
export interface Recorded extends Written {
  readonly row: Row | null;
  readonly nowMs: number;
}

/** What a joint step needs of the run it is in. */
export interface JointHost {
  readonly kernel: Kernel;
  readonly at: Address;
  /** From here on nothing else becomes a fact, until the transaction has ended. */
  enterTransaction(isCurrent: () => boolean): Promise<void>;
  /** In the transaction: the step's record, and what is unwritten before it. Answers the row as it will be. */
  recordIn(tx: Tx, asked: Asked, text: string): Recorded;
  /** The transaction is committed: the code hears of it. */
  leaveTransaction(asked: Asked, text: string, written: Recorded): void;
  /** The transaction came to nothing, or nobody knows what it came to. */
  dropTransaction(error: unknown, isDoubtful: boolean): void;
}

export class JointStep {
  readonly #host: JointHost;
  readonly asked: Asked;
  readonly #attempt: Attempt | undefined;
  #text = "";
  #written: Recorded | undefined;
  #hasEntered = false;

  constructor(host: JointHost, asked: Asked, step: StepRun) {
    this.#host = host;
    this.asked = asked;
    this.#attempt = step.current;
  }

  /** The step's record is in the transaction. */
  get isRecorded(): boolean {
    return this.#written !== undefined;
  }

  encode(value: unknown): void {
    try {
      this.#text = this.#host.kernel.encode(this.#host.at, { ok: value });
    } catch (error) {
      throw unstorableResult(error, `step "${this.asked.id}"`);
    }
  }

  async enter(): Promise<void> {
    if (this.#hasEntered) return;
    await this.#host.enterTransaction(() => this.#attempt?.isOver === false);
    this.#hasEntered = true;
  }

  /** Waits for the work of the attempt. When the attempt's time is over, this throws, and so the transaction is rolled back. */
  orExpired<T>(work: () => Promise<T>): Promise<T> {
    return this.#attempt === undefined ? work() : Promise.race([work(), this.#attempt.expired]);
  }

  /** From here on the attempt cannot time out, because the next one might be recorded as well. Throws if its time is over. */
  disarm(): void {
    if (this.#attempt?.isOver === true) throw new AttemptOverError(this.asked.id, this.#attempt.attempt);
    this.#attempt?.disarm();
  }

  /** A decision; it may run more than once. */
  record(tx: Tx): void {
    this.#written = this.#host.recordIn(tx, this.asked, this.#text);
  }

  /** It has been heard of: what the step's function gives is not needed any more. */
  committed(): Promise<never> {
    this.#host.leaveTransaction(this.asked, this.#text, this.#written ?? { row: null, nowMs: 0, version: 0 });
    return never();
  }

  /** A definite no fails the attempt. What nobody knows is looked up in the history, by working on the run anew. */
  failed(error: unknown, isDoubtful: boolean): Promise<never> {
    if (this.#hasEntered) this.#host.dropTransaction(error, isDoubtful);
    return this.#hasEntered && isDoubtful ? never() : Promise.reject(error);
  }
}

const never = (): Promise<never> => new Promise(() => {});
