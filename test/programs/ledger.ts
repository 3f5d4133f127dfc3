/**
 * The ledger: what programs did outside of Pawl, noted by their step functions. It belongs to no process and never crashes.
 *
 * Next to the commits of the store it tells whether a recorded step ran again, and whether something that was asked for never happened.
 */

import type { Moment } from "../../src/testing/sim/database.ts";
import type { StepNode } from "./program.ts";

/** The function of a step was called. */
export interface Begun {
  readonly run: string;
  readonly name: string;
  readonly kind: StepNode["kind"];
  readonly key: string;
  readonly attempt: number;
  readonly by: string;
  readonly atMs: number;
  /** The commits that had been made by then. */
  readonly at: Moment;
  /** When the function was over; undefined if it never was. */
  overMs?: number | undefined;
}

/** `ctx` was used when its run had ended. */
export interface LateUse {
  readonly run: string;
  /** The code that it threw, or undefined if it did not. */
  threw: string | undefined;
  /** Another worker had taken the run over from the one whose code this is, which had not noticed: what it asks for then is dropped when it does. */
  readonly isUnheard: boolean;
}

/** `abortSignal` was first read when its attempt was over. */
export interface LateAbort {
  readonly run: string;
  readonly name: string;
  readonly isAborted: boolean;
}

/** `heartbeat` was called when its attempt was over. */
export interface LateBeat {
  readonly run: string;
  readonly name: string;
}

/** The function returned in the very turn in which it had asked for this and not awaited it. */
export interface Unawaited {
  readonly run: string;
  /** As warnings name it. */
  readonly shown: string;
}

/** The code entered a `try` whose `finally` has this step. */
export interface Entered {
  readonly run: string;
  readonly cleanup: string;
}

export class Ledger {
  readonly begun: Begun[] = [];
  readonly lateUses: LateUse[] = [];
  readonly lateAborts: LateAbort[] = [];
  readonly lateBeats: LateBeat[] = [];
  readonly unawaited: Unawaited[] = [];
  readonly entered: Entered[] = [];
  /** Steps that were asked for, as "run name". */
  readonly asked = new Set<string>();
  /** How often the code asked for each slot, by run, as it was begun last. */
  readonly slots = new Map<string, Map<string, number>>();
  /** How often somebody said of a step's key that it had not happened. */
  readonly noes = new Map<string, number>();
  /** Whether the outage is over. */
  isMended = false;
  /** How often each operation, option and mistake was reached. */
  readonly reached = new Map<string, number>();

  reach(what: string): void {
    this.reached.set(what, (this.reached.get(what) ?? 0) + 1);
  }

  /** What somebody who looks outside would say of a step that runs at most once. */
  answer(key: string, value: string): { readonly done: true; readonly value: string } | { readonly done: false } {
    if (this.begun.some((begun) => begun.key === key)) return { done: true, value };
    this.noes.set(key, (this.noes.get(key) ?? 0) + 1);
    return { done: false };
  }

  attempts(run: string, name: string): readonly Begun[] {
    return this.begun.filter((begun) => begun.run === run && begun.name === name);
  }
}
