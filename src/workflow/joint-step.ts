/**
 * A step that is recorded by a transaction which is the user's as well: its SQL and its record are there together, or neither is.
 *
 * Once the run is entered, nothing else becomes a fact until the transaction has ended, because the record's place in the history is
 * where the code will hear of it; and the attempt cannot time out any more, because the next one might then be recorded as well.
 */

import type { Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Asked } from "./coroutine.ts";
import type { Execution } from "./execution.ts";
import type { StepRun } from "./steps.ts";

export class JointStep {
  readonly #execution: Execution;
  readonly #asked: Asked;
  readonly #step: StepRun;
  readonly #turn: number;
  #text = "";
  #written: { readonly row: Row | null; readonly nowMs: number } | undefined;
  #hasEntered = false;

  constructor(execution: Execution, asked: Asked, step: StepRun) {
    this.#execution = execution;
    this.#asked = asked;
    this.#step = step;
    this.#turn = step.turn;
  }

  get id(): string {
    return this.#asked.id;
  }

  /** The step's record is in the transaction. */
  get isRecorded(): boolean {
    return this.#written !== undefined;
  }

  encode(value: unknown): void {
    this.#text = this.#execution.encodeOutcome(value);
  }

  async enter(): Promise<void> {
    if (this.#hasEntered) return;
    await this.#execution.enterTransaction(() => this.#step.turn === this.#turn);
    this.#step.disarm();
    this.#hasEntered = true;
  }

  /** A decision; it may run more than once. */
  record(tx: Tx): void {
    this.#written = this.#execution.recordIn(tx, this.#asked, this.#text);
  }

  /** It has been heard of: what the step's function gives is not needed any more. */
  committed(): Promise<never> {
    this.#execution.leaveTransaction(this.#asked, this.#text, this.#written ?? { row: null, nowMs: 0 });
    return never();
  }

  /** A definite no fails the attempt. What nobody knows is looked up in the history, by working on the run anew. */
  failed(error: unknown, isDoubtful: boolean): Promise<never> {
    if (this.#hasEntered) this.#execution.dropTransaction(error, isDoubtful);
    return this.#hasEntered && isDoubtful ? never() : Promise.reject(error);
  }
}

const never = (): Promise<never> => new Promise(() => {});
