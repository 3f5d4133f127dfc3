/**
 * Deleting a run: its record with its history, its inboxes, the ids of the signals it was sent, the slots of its tree if it is the root, and the
 * list of runs that wait for its outcome.
 *
 * Only a run that has ended can be deleted, or one whose record cannot be read. The record decides, under its lock, in each commit. Most runs
 * are deleted by one commit. One that has more takes several: the first marks the record, so that the run can neither be restarted nor retried,
 * and the last removes it. A deletion that is cut short is finished by the next, or by a worker of a workflow with a retention.
 *
 * Out of scope: locks that an unreadable run holds, because the list of them is in its record. `forceRelease` frees them.
 */

import type { Address, Row } from "../../kernel/contract.ts";
import { address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import { type Draft, unreadableNumber } from "../../kernel/draft.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { slotSpace } from "../../slot/slot.ts";
import { RunAliveError, RunNotFoundError } from "../errors.ts";
import { readableValue, readRun } from "../history/read-run.ts";
import {
  deletingQueueOf,
  hasEnded,
  inboxAt,
  parseFact,
  runAt,
  type Waiters,
  type Word,
  waitersAt,
  workflowOfQueue,
} from "../stored.ts";
import { withoutStack } from "./end.ts";
import { notifyWaiters, SIGNAL_IDS, signalIdPrefix } from "./messages.ts";

/** One commit removes at most this many records. */
const AT_ONCE = 500;

/** Whether the run is still to be deleted, as its record is now. */
type IsWanted = (run: Draft, tx: Tx) => boolean;

/** Deletes a run. With `isWanted`, stops where the record says that it is not to be deleted any more. */
export async function deleteRun(kernel: Kernel, id: string, isWanted: IsWanted = () => true): Promise<void> {
  const at = runAt(id);
  const remove = (parts: readonly Address[], isLast: boolean): Promise<Removal> =>
    kernel.transact((tx) => removeParts(tx, id, parts, isLast, isWanted), [at, ...parts]);
  const [row] = await kernel.read([at]);
  if (row == null || row.value === null) throw new RunNotFoundError(id);
  const parts: Address[] = [];
  for await (const part of partsOf(kernel, at, row)) {
    if (parts.length === AT_ONCE && (await remove(parts.splice(0), false)) === "unwanted") return;
    parts.push(part);
  }
  while ((await remove(parts, true)) === "more");
}

/** The result of a commit. With "more", another one is needed before the record can be removed. */
type Removal = "removed" | "more" | "unwanted";

function removeParts(tx: Tx, id: string, parts: readonly Address[], isLast: boolean, isWanted: IsWanted): Removal {
  tx.load([runAt(id), ...parts]);
  const run = tx.record(runAt(id));
  if (!run.exists) throw new RunNotFoundError(id);
  const status = run.status ?? "";
  if (!hasEnded(run) && !isAbandoned(tx, run)) throw new RunAliveError(id, status);
  if (!isWanted(run, tx)) return "unwanted";
  for (const part of parts) {
    // Slots are read from outside, by their versions. No run uses the other keys again before the run's own record is swept away.
    if (part.space.startsWith("slot/")) tx.record(part).remove();
    else tx.record(part).remove(0);
  }
  const isTold = tellAll(tx, id);
  if (!isLast || !isTold) {
    mark(tx, run);
    return "more";
  }
  run.append("deleted" satisfies Word, {});
  run.remove();
  return "removed";
}

/** From now on it can neither be restarted nor retried. */
function mark(tx: Tx, run: Draft): void {
  if (run.row === null || unreadableNumber(run.row) !== null) return;
  run.write({ kind: deletingQueueOf(workflowOfQueue(run.kind)), dueMs: tx.nowMs });
}

/** Notifies runs that wait for the outcome, some in each commit. Returns whether all of them are notified. */
function tellAll(tx: Tx, id: string): boolean {
  const list = tx.record(waitersAt(id));
  if (!list.exists) return true;
  const waiters = list.value as Waiters;
  if (waiters.outcome === undefined)
    list.write({ value: { ...waiters, outcome: { error: withoutStack(new RunNotFoundError(id)) } } });
  notifyWaiters(tx, id);
  return !list.exists;
}

/** It cannot be read, and no worker is at it: one that can read it may be. */
function isAbandoned(tx: Tx, run: Draft): boolean {
  if (readableValue(run) !== undefined) return false;
  return run.holder === null || run.dueMs === null || run.dueMs <= tx.nowMs;
}

/** The records that go with a run, besides its own. */
async function* partsOf(kernel: Kernel, at: Address, row: Row): AsyncGenerator<Address> {
  const { value } = readRun(kernel, row);
  const incarnations =
    value === undefined ? await incarnationsOf(kernel, at) : between((value.deletedUpTo ?? 0) + 1, value.incarnation);
  for (const incarnation of incarnations) {
    yield inboxAt(at.key, incarnation);
    yield* recordsIn(kernel, SIGNAL_IDS, signalIdPrefix(at.key, incarnation));
  }
  yield* recordsIn(kernel, slotSpace("run", at.key), "");
  const root = value?.root;
  if (root === undefined) return;
  // It may have written slots after its root was deleted.
  const [rootRow] = await kernel.read([runAt(root)]);
  if (rootRow == null || rootRow.value === null) yield* recordsIn(kernel, slotSpace("run", root), "");
}

async function* recordsIn(kernel: Kernel, space: string, prefix: string): AsyncGenerator<Address> {
  for (let after: string | null = null; ; ) {
    const rows: readonly Row[] = await kernel.list({ space, prefix, after, limit: AT_ONCE });
    for (const { key } of rows) yield address(space, key);
    if (rows.length < AT_ONCE) return;
    after = rows.at(-1)?.key ?? null;
  }
}

function* between(first: number, last: number): Generator<number> {
  for (let one = first; one <= last; one++) yield one;
}

/** The incarnations since the id was last deleted. Read from the history, because the record may not be readable. */
async function incarnationsOf(kernel: Kernel, at: Address): Promise<number[]> {
  let incarnations: number[] = [];
  let next: number | undefined = 1;
  for await (const { name, version } of kernel.entriesAfter(at, 0)) {
    const { word } = parseFact(name);
    if (word === "deleted") {
      incarnations = [];
      next = undefined;
    } else if (word === "started") {
      next ??= version;
      incarnations.push(next);
      next += 1;
    }
  }
  return incarnations;
}
