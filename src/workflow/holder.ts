/**
 * What the holder of a run writes when it is done with it: decisions on the run's record, each in one commit with the last facts.
 */

import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import type { Coroutine, Settled } from "./coroutine.ts";
import { unsettled } from "./locks.ts";
import { endRun } from "./records.ts";
import type { RunValue } from "./run.ts";
import { cancelChild } from "./wishes.ts";
import type { RunStatus } from "./words.ts";

/** A fact that the code has seen and the store has not. */
export interface Unwritten {
  readonly name: string;
  readonly text: string;
}

/** Writes facts. What gets somewhere is no longer what was tried in vain. */
export function appendFacts(record: Draft, unwritten: readonly Unwritten[]): void {
  for (const { name, text } of unwritten) record.appendText(name, text);
  if (record.tries > 1 && unwritten.some(({ name }) => name.startsWith("step "))) record.write({ tries: 1 });
}

/** The run goes to another at once. */
export function giveBack(record: Draft, tx: Tx): void {
  record.write({ holder: null, dueMs: tx.nowMs, tries: 0, status: "waiting" satisfies RunStatus });
}

/** The code began something, and the run goes to whoever takes it after a while. What only the store is to blame for counts as no try. */
export function putBack(record: Draft, tx: Tx, delayMs: number, isStore: boolean): void {
  record.write({
    holder: null,
    dueMs: tx.nowMs + delayMs,
    status: "waiting" satisfies RunStatus,
    ...(isStore ? { tries: 0 } : {}),
  });
  const value = record.value as RunValue;
  if (value.holds !== undefined) record.write({ value: unsettled(value) });
}

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

/** It has ended, and with it those of its children that end with it. */
export function end(
  tx: Tx,
  record: Draft,
  run: string,
  children: Coroutine["children"],
  ending: { readonly status: RunStatus; readonly settled: Settled },
): void {
  const { status, settled } = ending;
  record.append(status === "completed" ? "completed" : "failed", { status });
  for (const child of children.values()) if (child.whenParentEnds === "cancel") cancelChild(tx, child.run, run);
  endRun(tx, record, run, status, settled);
}
