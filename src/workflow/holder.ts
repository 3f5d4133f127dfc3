/**
 * What the holder of a run writes when it is done with it: decisions on the run's record, each in one commit with the last facts.
 */

import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import type { Forgettable, Settled, Written } from "./coroutine.ts";
import { forgetsOf } from "./forgotten.ts";
import { unsettled } from "./locks.ts";
import { endRun } from "./records.ts";
import type { RunValue } from "./run.ts";
import type { RunStatus } from "./words.ts";

/** A fact that the code has seen and the store has not. */
export interface Unwritten extends Written {
  readonly name: string;
  readonly text: string;
  version: number;
}

/** Writes facts. What gets somewhere is no longer what was tried in vain. */
export function appendFacts(record: Draft, unwritten: readonly Unwritten[]): void {
  for (const fact of unwritten) fact.version = record.appendText(fact.name, fact.text);
  if (record.tries > 1 && unwritten.some(({ name }) => name.startsWith("step "))) record.write({ tries: 1 });
}

/** The run goes to another at once. */
export function giveBack(record: Draft, tx: Tx): void {
  record.write({ holder: null, dueMs: tx.nowMs, tries: 0, status: "waiting" satisfies RunStatus });
}

/** The code began something, and the run goes to whoever takes it after a while. What only the store is to blame for counts as no try. */
export function putBack(record: Draft, tx: Tx, delayMs: number, isStore: boolean, reason: string): void {
  record.write({
    holder: null,
    dueMs: tx.nowMs + delayMs,
    status: "waiting" satisfies RunStatus,
    ...(isStore ? { tries: 0 } : {}),
  });
  const value = unsettled(record.value as RunValue);
  record.write({ value: isStore ? value : { ...value, trouble: { atMs: tx.nowMs, reason: shortened(reason) } } });
}

/** A reason as it is stored. */
const shortened = (reason: string): string => reason.slice(0, 1000).toWellFormed();

/** It waits for a person. */
export function park(record: Draft, reason: string): void {
  record.append("parked", { reason });
  const value = record.value as RunValue;
  record.write({
    value: { ...unsettled(value), parked: { reason } },
    holder: null,
    dueMs: null,
    status: "parked" satisfies RunStatus,
  });
}

/** The code contradicts the history: workers with other code may know better. Counts as no try. */
export function release(record: Draft, tx: Tx, reason: string): void {
  const value = record.value as RunValue;
  record.write({
    value: { ...unsettled(value), contradicted: { sinceMs: value.contradicted?.sinceMs ?? tx.nowMs, reason } },
    holder: null,
    dueMs: tx.nowMs,
    status: "waiting" satisfies RunStatus,
    tries: 0,
  });
}

/** It has ended. What a retry would forget is kept with it. */
export function end(
  tx: Tx,
  record: Draft,
  run: string,
  ending: {
    readonly status: RunStatus;
    readonly settled: Settled;
    readonly forgettable: Forgettable;
    /** The store's clock, approximately. */
    readonly nowMs: number;
    /** How long it is kept; null is forever. */
    readonly keptMs: number | null;
  },
): void {
  const { status, settled, forgettable, nowMs, keptMs } = ending;
  const forgets = status === "failed" ? forgetsOf(record, forgettable) : undefined;
  record.append(status === "completed" ? "completed" : "failed", { status });
  if (forgets !== undefined) record.write({ value: { ...(record.value as RunValue), forgets } });
  endRun(tx, record, run, status, settled, { nowMs, keptMs });
}
