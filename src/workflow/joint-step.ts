/**
 * A step that is recorded by a transaction which is the user's as well: its SQL and its record are there together, or neither is.
 *
 * The user's part runs first. Then the run is entered: nothing else becomes a fact until the transaction has ended, because the record's
 * place in the history is where the code will hear of it.
 */

import type { Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Asked } from "./coroutine.ts";
import type { Execution } from "./execution.ts";

export class JointStep {
  readonly #execution: Execution;
  readonly #asked: Asked;
  #text = "";
  #written: { readonly row: Row | null; readonly nowMs: number } = { row: null, nowMs: 0 };
  /** The step's record is in the transaction, or about to be. */
  hasEntered = false;

  constructor(execution: Execution, asked: Asked) {
    this.#execution = execution;
    this.#asked = asked;
  }

  async enter(value: unknown): Promise<void> {
    this.#text = this.#execution.encodeOutcome(value);
    await this.#execution.enterTransaction();
    this.hasEntered = true;
  }

  /** A decision; it may run more than once. */
  record(tx: Tx): void {
    this.#written = this.#execution.recordIn(tx, this.#asked, this.#text);
  }

  /** It has been heard of: what the step's function gives is not needed any more. */
  committed(): Promise<never> {
    this.#execution.leaveTransaction(this.#asked, this.#text, this.#written);
    return never();
  }

  /** A definite no fails the attempt. What nobody knows is looked up in the history, by working on the run anew. */
  failed(error: unknown, isDoubtful: boolean): Promise<never> {
    if (this.hasEntered) this.#execution.dropTransaction(error, isDoubtful);
    return this.hasEntered && isDoubtful ? never() : Promise.reject(error);
  }
}

const never = (): Promise<never> => new Promise(() => {});
