/**
 * Messages to a run: signals, and the ends of runs that it waits for.
 *
 * Only the holder of a run writes its history. A message goes to the run's inbox, a record of its own with a log, and wakes the run in the
 * same commit. A run that waits for a child gets the child's end as such a message: its parent from the commit that ends the child, and every
 * other run that waits for it from the list of waiters.
 *
 * Guarantees: a signal's id counts once (G2); a message to a run that has ended is refused, with its status (G15).
 */

import { type Address, address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import { unreadableNumber } from "../../kernel/draft.ts";
import { hash } from "../../kernel/fingerprint.ts";
import { RunEndedError, RunNotFoundError } from "../errors.ts";
import { readableValue, runOf } from "../history/read-run.ts";
import {
  hasEnded,
  inboxAt,
  type Outcome,
  type Parent,
  type RunValue,
  runAt,
  WAITERS_QUEUE,
  type Waiters,
  waitersAt,
} from "../stored.ts";
import { checkWorkflow } from "./existing.ts";
import { wakeRun } from "./wake.ts";

export const SIGNAL_IDS = "signal-id";

export const signalIdPrefix = (run: string, incarnation: number): string => `${hash(run, String(incarnation))}.`;

const signalIdAt = (run: string, incarnation: number, id: string): Address =>
  address(SIGNAL_IDS, `${signalIdPrefix(run, incarnation)}${hash(id)}`);

/** Sends a signal to a run, once for each id. */
export function signalRun(
  tx: Tx,
  run: string,
  signal: {
    readonly name: string;
    readonly payload: unknown;
    readonly id?: string | undefined;
    readonly workflow?: string | undefined;
  },
): { readonly isNew: boolean } {
  const { incarnation } = existingRun(tx, run, signal.workflow);
  const seen = signal.id === undefined ? undefined : tx.record(signalIdAt(run, incarnation, signal.id));
  if (seen?.exists === true) return { isNew: false };
  checkNotEnded(tx, run);
  seen?.write({ value: true });
  send(tx, run, incarnation, `signal ${signal.name}`, signal.payload);
  return { isNew: true };
}

/** The value of a run that must exist; a run of a different workflow than the caller expects is refused. */
export function existingRun(tx: Tx, id: string, workflow: string | undefined): RunValue {
  const run = tx.record(runAt(id));
  if (!run.exists) throw new RunNotFoundError(id);
  const value = runOf(run);
  checkWorkflow(id, value, workflow);
  return value;
}

function checkNotEnded(tx: Tx, id: string): void {
  const run = tx.record(runAt(id));
  if (hasEnded(run)) throw new RunEndedError(id, run.status ?? "");
}

function send(tx: Tx, run: string, incarnation: number, name: string, data: unknown): void {
  const inbox = tx.record(inboxAt(run, incarnation));
  if (!inbox.exists) inbox.write({ value: null });
  inbox.append(name, data);
  wakeRun(tx, run);
}

/** Sends the outcome of a child to a run that waits for it, unless that run has ended or was restarted. */
export function notifyParent(tx: Tx, parent: Parent, child: string, outcome: Outcome): void {
  const run = tx.record(runAt(parent.run));
  if (!run.exists || hasEnded(run)) return;
  const value = readableValue(run);
  // An inbox belongs to one incarnation, so a parent that cannot be read now loses nothing, and does not keep a child from ending.
  if (value === undefined && (run.row === null || unreadableNumber(run.row) !== null)) return;
  if (value !== undefined && value.incarnation !== parent.incarnation) return;
  send(tx, parent.run, parent.incarnation, `child ${parent.id}`, { run: child, outcome });
}

/** A commit notifies at most this many runs. */
const MOST_NOTIFIED = 100;

/** Notifies runs that wait for one that has ended. A long list takes several commits, made by the workers. */
export function notifyWaiters(tx: Tx, id: string): void {
  const list = tx.record(waitersAt(id));
  if (!list.exists) return;
  const { parents, outcome } = list.value as Waiters;
  if (outcome === undefined) return;
  const notified = parents.slice(0, MOST_NOTIFIED);
  if (notified.length > 1) tx.load(notified.flatMap(({ run, incarnation }) => [runAt(run), inboxAt(run, incarnation)]));
  for (const parent of notified) notifyParent(tx, parent, id, outcome);
  const rest = parents.slice(MOST_NOTIFIED);
  if (rest.length === 0) list.remove();
  else list.write({ value: { parents: rest, outcome }, kind: WAITERS_QUEUE, dueMs: tx.nowMs });
}

/** The parent gets the run's outcome too: now if it has one, otherwise when it ends. */
export function addWaiter(tx: Tx, id: string, parent: Parent): void {
  const run = tx.record(runAt(id));
  const value = runOf(run);
  if (hasEnded(run) && value.outcome !== undefined) {
    notifyParent(tx, parent, id, value.outcome);
    return;
  }
  if (isSameParent(value.parent, parent)) return;
  const list = tx.record(waitersAt(id));
  const { parents } = list.exists ? (list.value as Waiters) : { parents: [] };
  if (!parents.some((one) => isSameParent(one, parent))) list.write({ value: { parents: [...parents, parent] } });
  if (value.hasWaiters !== true) run.write({ value: { ...value, hasWaiters: true } });
}

const isSameParent = (one: Parent | undefined, other: Parent): boolean =>
  one?.waits === true && one.run === other.run && one.id === other.id && one.incarnation === other.incarnation;
