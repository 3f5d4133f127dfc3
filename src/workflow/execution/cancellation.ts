/**
 * The cancellation of a run, or its timeout, as its code receives it: once (G15).
 *
 * It is thrown by what the code waits for when it arrives. Where nothing was pending, the next operation throws it. Shielded code is not
 * interrupted, neither by a cancellation nor by a race that is lost: that is thrown where the shielded code is awaited, when it has ended.
 */

import { LazySet } from "../../kernel/lazy.ts";
import { type InterruptedOutcome, RaceLostError, RunCanceledError, RunTimedOutError } from "../errors.ts";
import type { Written } from "./pending.ts";

/** What the history says of a cancellation. */
export interface CancelData {
  readonly timedOut?: boolean;
  readonly reason?: string;
  /** Steps that were postponed before, and were running when it arrived. */
  readonly running?: readonly string[];
}

export class Cancellation {
  readonly #runId: string;
  #arrived:
    | { readonly data: CancelData; readonly error: Error; readonly atMs: number; readonly at: Written }
    | undefined;
  #isThrown = false;
  /** Shielded code that has not ended, and whether a cancellation waits for its end. */
  readonly #shields = new LazySet<{ isCanceled: boolean }>();

  constructor(runId: string) {
    this.#runId = runId;
  }

  /** The cancellation, once it has arrived. */
  get error(): Error | undefined {
    return this.#arrived?.error;
  }

  /** When it arrived, by the store's clock. */
  get atMs(): number | undefined {
    return this.#arrived?.atMs;
  }

  /** Where the history has it. */
  get at(): Written | undefined {
    return this.#arrived?.at;
  }

  /** It has arrived, and nothing has thrown it yet. */
  get isDue(): boolean {
    return this.#arrived !== undefined && !this.#isThrown;
  }

  arrive(data: CancelData, atMs: number, at: Written): void {
    this.#arrived = { data, error: this.#errorOf(data, undefined), atMs, at };
    this.#isThrown = this.#shields.size > 0;
    for (const shield of this.#shields) shield.isCanceled = true;
  }

  /** An operation throws it, or will with its outcome. */
  thrown(): void {
    this.#isThrown = true;
  }

  /** The cancellation as one operation throws it, with the outcome that the operation had. */
  errorWith(outcome: InterruptedOutcome | undefined): Error {
    return this.#errorOf(this.#arrived?.data ?? {}, outcome);
  }

  #errorOf({ timedOut, reason }: CancelData, outcome: InterruptedOutcome | undefined): Error {
    return timedOut === true
      ? new RunTimedOutError(this.#runId, outcome)
      : new RunCanceledError(this.#runId, reason, outcome);
  }

  /**
   * Runs shielded code. A cancellation that arrives meanwhile is thrown when the code has ended, unless other shielded code is around it, which
   * throws it then; so is a race that was lost meanwhile.
   */
  async shield<T>(work: () => Promise<T>, isOutermost: boolean, hasLost: () => boolean): Promise<T> {
    // One that found nothing to interrupt before is thrown here, and not by what comes after it, which may be the cleanup.
    const shield = { isCanceled: isOutermost && this.isDue };
    if (shield.isCanceled) this.thrown();
    if (isOutermost) this.#shields.add(shield);
    let outcome: { readonly ok: T } | { readonly error: unknown };
    try {
      outcome = { ok: await work() };
    } catch (error) {
      outcome = { error };
    }
    if (isOutermost) this.#shields.delete(shield);
    if (shield.isCanceled) throw this.errorWith({ operation: "shield", ...outcome });
    if (hasLost()) throw new RaceLostError(this.#runId, "shielded code", { operation: "shield", ...outcome });
    if ("error" in outcome) throw outcome.error;
    return outcome.ok;
  }
}
