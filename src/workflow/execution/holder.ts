/**
 * What the holder of a run writes when it stops working on it: decisions on the run's record, each in one commit with the last facts.
 */

import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import type { Succession } from "../flow/hand-over.ts";
import { forgetsOf } from "../history/forgotten.ts";
import { runOf } from "../history/read-run.ts";
import { unsettled } from "../locks/locks.ts";
import { endRun } from "../runs/end.ts";
import { resumeChild } from "../runs/retry.ts";
import type { EndedStatus, Outcome, RunStatus, Word } from "../stored.ts";
import type { Forgettable } from "./memory.ts";
import type { Written } from "./pending.ts";

/** A fact that the code has seen and the store has not. */
export interface Unwritten extends Written {
  readonly name: string;
  readonly text: string;
  version: number;
}

/** Writes facts. A run that makes progress starts to count its tries again. */
export function appendFacts(record: Draft, unwritten: readonly Unwritten[]): void {
  for (const fact of unwritten) fact.version = record.appendText(fact.name, fact.text);
  if (record.tries > 1 && unwritten.some(({ name }) => name.startsWith("step "))) record.write({ tries: 1 });
}

/** Releases the run: another worker takes it immediately. */
export function release(record: Draft, tx: Tx): void {
  record.write({ holder: null, dueMs: tx.nowMs, tries: 0, status: "waiting" satisfies RunStatus });
}

/** The code began something, and a worker takes the run after a while. A failure of the store counts as no try. */
export function putBack(record: Draft, tx: Tx, delayMs: number, isStore: boolean, reason: string): void {
  record.write({
    holder: null,
    dueMs: tx.nowMs + delayMs,
    status: "waiting" satisfies RunStatus,
    ...(isStore ? { tries: 0 } : {}),
  });
  const value = unsettled(runOf(record));
  record.write({ value: isStore ? value : { ...value, trouble: { atMs: tx.nowMs, reason: shortened(reason) } } });
}

/** A reason as it is stored. */
const shortened = (reason: string): string => reason.slice(0, 1000).toWellFormed();

/** Parks the run: it waits for an operator. */
export function park(record: Draft, reason: string): void {
  record.append("parked", { reason });
  const value = runOf(record);
  record.write({
    value: { ...unsettled(value), parked: { reason } },
    holder: null,
    dueMs: null,
    status: "parked" satisfies RunStatus,
  });
}

/** The code contradicts the history: the run is left to workers with different code. Counts as no try, and theirs still count. */
export function releaseContradicted(record: Draft, tx: Tx, reason: string): void {
  const value = runOf(record);
  record.write({
    value: { ...unsettled(value), contradicted: { sinceMs: value.contradicted?.sinceMs ?? tx.nowMs, reason } },
    holder: null,
    dueMs: tx.nowMs,
    status: "waiting" satisfies RunStatus,
    tries: Math.max(0, record.tries - 1),
  });
}

/** This process lacks something that the run needs: it is left to workers that have it. Counts as no try, and theirs still count. */
export function leave(record: Draft, tx: Tx, reason: string): void {
  record.write({
    value: { ...unsettled(runOf(record)), trouble: { atMs: tx.nowMs, reason: shortened(reason) } },
    holder: null,
    dueMs: tx.nowMs,
    status: "waiting" satisfies RunStatus,
    tries: Math.max(0, record.tries - 1),
  });
}

/** The last fact of a run that ends with each status, and whether a retry could forget what ended it. */
const ENDS: Readonly<Record<EndedStatus, { readonly word: Word; isForgettable(what: Forgettable): boolean }>> = {
  completed: { word: "completed", isForgettable: () => false },
  failed: { word: "failed", isForgettable: () => true },
  // A cancellation after which the code cleaned up was handled.
  canceled: { word: "failed", isForgettable: ({ hasCancellation }) => hasCancellation },
  timed_out: { word: "failed", isForgettable: ({ hasCancellation }) => hasCancellation },
  expired: { word: "failed", isForgettable: () => false },
};

/** Ends the run. What a retry would forget is kept with it. */
export function end(
  tx: Tx,
  record: Draft,
  run: string,
  ending: {
    readonly status: EndedStatus;
    readonly outcome: Outcome;
    readonly forgettable: Forgettable;
    /** The store's clock, approximately. */
    readonly nowMs: number;
    /** How long it is kept; null is forever. */
    readonly keptMs: number | null;
    /** Takes the run that is admitted now for this process. */
    readonly next: Succession | undefined;
  },
): void {
  const { status, outcome, forgettable, nowMs, keptMs, next } = ending;
  const { word, isForgettable } = ENDS[status];
  const forgets = isForgettable(forgettable) ? forgetsOf(record, forgettable) : undefined;
  // The run's record has it, too, until a retry.
  record.append(word, status === "failed" && "error" in outcome ? { status, error: outcome.error } : { status });
  if (forgets !== undefined) record.write({ value: { ...runOf(record), forgets } });
  const resumes = runOf(record).cancel?.resumes === true && status === "canceled" && forgets !== undefined;
  endRun(tx, record, run, status, outcome, { nowMs, keptMs, notifies: !resumes, next });
  if (resumes) resumeChild(tx, run);
}
