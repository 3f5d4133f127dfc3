/**
 * A kind of work: what workers do all the while, and what must be true of it afterwards.
 *
 * To add one, write a file like `deposits.ts` and list it in `index.ts`. Its `act` runs in every worker process; everything else
 * runs in the parent. `judge` should look at the database once and hand what it saw to a pure check, so that made-up ledgers
 * can show that the check notices.
 */

import type { Pawl } from "../../../src/pawl.ts";
import type { Bench } from "../bench.ts";
import type { Note, Operation } from "../ledger.ts";

export interface Span {
  readonly from: number;
  readonly to: number;
}

/** What the ledger has of one kind of work. */
export interface Evidence {
  readonly operations: readonly Operation[];
  readonly notes: readonly Note[];
  /**
   * While the primary showed commits that its standby never got, because the wait for it was cancelled and the standby was
   * promoted: what was only read then may be gone afterwards. What was written and acknowledged may not. Or, in a run that loses commits
   * on purpose (`lossy.ts`): while whatever was acknowledged may be gone afterwards.
   */
  readonly doubts: readonly Span[];
}

export interface Work {
  readonly name: string;
  /** Makes what must be there before the first worker starts. */
  readonly prepare?: (pawl: Pawl) => Promise<void>;
  /** Works in a worker process until `bench.isOver`. */
  readonly act: (bench: Bench) => Promise<void>;
  /**
   * Tells under which id an attempt is asked again, by whichever worker, until it is acknowledged; null for one that is not. The
   * task is handed to `bench.take`.
   */
  readonly again?: (operation: Operation) => { readonly id: string; readonly task: unknown } | null;
  /** Replies to a worker's `bench.ask` from what the ledger has of this work by then. */
  readonly answer?: (
    question: unknown,
    ledger: { readonly notes: readonly Note[]; readonly dead: ReadonlySet<string> },
  ) => unknown;
  /** Whether an attempt that was acknowledged wrote something. */
  readonly isCommit: (operation: Operation) => boolean;
  /** Whether nothing is left to do, once faults are over. Where it has a time of its own, asked when no attempt is open and none is to be made again. */
  readonly isHealed?: (pawl: Pawl) => Promise<boolean>;
  /** How soon after the last fault that must be so. Default: three leases. */
  readonly healsWithinMs?: number;
  /** What is left when faults are over, and how long each of it may take besides. */
  readonly left?: { readonly count: (pawl: Pawl) => Promise<number>; readonly eachMs: number };
  readonly judge: (pawl: Pawl, evidence: Evidence) => Promise<Verdict>;
}

export interface Verdict {
  /** What is wrong, in sentences; none if all is well. */
  readonly wrong: readonly string[];
  /** Attempts to write whose outcome was unknown, and how many of them turned out to have happened, if that can be told. */
  readonly unknown: number;
  readonly happened: number | null;
  /** Of what was acknowledged, so much was lost while the store could lose it. */
  readonly lost?: number;
}

/** What is wrong, and how much of what was acknowledged is gone, where that may be. */
export interface Losses {
  readonly wrong: readonly string[];
  readonly lost: number;
}

export const overlaps = (spans: readonly Span[], from: number, to: number): boolean =>
  spans.some((span) => from <= span.to && to >= span.from);
