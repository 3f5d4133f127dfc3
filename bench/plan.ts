/**
 * What is written in a round: by a number of callers, each of which waits for one commit before it makes the next.
 *
 * In each turn every caller makes one commit, which writes its record and, where the plan is `logged`, appends one log
 * entry. After `commitsPerRecord` turns all callers continue with new records, as runs of ten steps do. A plan is data, created
 * before the clock starts, so that all contenders do the same work and end with the same rows.
 */

import { randomUUID } from "node:crypto";

export interface Plan {
  readonly space: string;
  readonly keys: readonly string[];
  readonly callers: number;
  readonly turns: number;
  readonly commitsPerRecord: number;
  /** All callers write to one record. */
  readonly hot: boolean;
  /** The records are there, and claimed, before the clock starts. */
  readonly claimed: boolean;
  /** Each commit appends an entry to the record's log. */
  readonly logged: boolean;
  /** What the first, second, … commit to a record writes, into the record and into its log. */
  readonly values: readonly unknown[];
}

export interface PlanOptions {
  readonly callers: number;
  readonly turns: number;
  readonly commitsPerRecord?: number;
  readonly order?: "ordered" | "random";
  readonly hot?: boolean;
  readonly claimed?: boolean;
}

const COMMITS_PER_RECORD = 10;

/** A record and a log entry for each commit. */
export function steps(options: PlanOptions): Plan {
  const { callers, turns, commitsPerRecord = COMMITS_PER_RECORD, order = "ordered", hot = false } = options;
  const recordCount = hot ? 1 : Math.ceil(turns / commitsPerRecord) * callers;
  const keys = Array.from({ length: recordCount }, (_, index) =>
    order === "random" ? randomUUID() : orderedKey(index),
  );
  const values = Array.from({ length: commitsPerRecord }, (_, step) => ({
    step,
    charge: `ch_${String(step).padStart(6, "0")}`,
    total: 1999,
    currency: "EUR",
  }));
  const claimed = options.claimed ?? false;
  return { space: "run", keys, callers, turns, commitsPerRecord, hot, claimed, logged: true, values };
}

/** A counter for each slot, and no log: what `slot.update((n) => n + 1)` writes. */
export function counters(options: PlanOptions): Plan {
  const plan = steps(options);
  return { ...plan, space: "slot", logged: false, values: plan.values.map((_, step) => step + 1) };
}

/** An event for each commit: what `stream.append` and commands write. */
export function events(options: PlanOptions): Plan {
  return { ...steps(options), space: "stream" };
}

/** As long as a UUID, so that random keys differ from these by their order alone. */
export function orderedKey(index: number): string {
  return `run-${String(index).padStart(32, "0")}`;
}

export function commitCount(plan: Plan): number {
  return plan.callers * plan.turns;
}

/** The record that a caller writes to in a turn, as an index into `keys`. */
export function recordAt(plan: Plan, turn: number, caller: number): number {
  return plan.hot ? 0 : Math.floor(turn / plan.commitsPerRecord) * plan.callers + caller;
}

/** How often the record was written in this plan before this turn, as an index into `values`. */
export function stepAt(plan: Plan, turn: number): number {
  return turn % plan.commitsPerRecord;
}
