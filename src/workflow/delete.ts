/**
 * Deleting a run: its record with its history, its inboxes, and the ids of the signals it was sent.
 *
 * Only a run that has ended can be deleted, or one whose record cannot be read. What belongs to it goes first, in as many commits as it takes,
 * and the record last: a deletion that is cut short is finished by the next. The record decides, under its lock, in each commit.
 *
 * Out of scope: locks that an unreadable run holds, because the list of them is in its record. `forceRelease` frees them.
 */

import type { Address } from "../kernel/contract.ts";
import { address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { RunAliveError, RunNotFoundError } from "./errors.ts";
import { SIGNAL_IDS, signalIdPrefix } from "./records.ts";
import { inboxAt, runAt } from "./run.ts";
import { readableValue } from "./unreadable.ts";
import { ENDED, parseFact, type Word } from "./words.ts";

/** So many records are removed in one commit. */
const AT_ONCE = 500;

export async function deleteRun(kernel: Kernel, id: string): Promise<void> {
  const at = runAt(id);
  const remove = (parts: readonly Address[], isLast: boolean): Promise<void> =>
    kernel.transact((tx) => removeParts(tx, id, parts, isLast), [at, ...parts]);
  // Refused before anything is removed.
  await remove([], false);
  const incarnations = await incarnationsOf(kernel, at);
  for (const incarnation of incarnations) {
    const prefix = signalIdPrefix(id, incarnation);
    for (;;) {
      const rows = await kernel.list({ space: SIGNAL_IDS, prefix, after: null, limit: AT_ONCE });
      if (rows.length === 0) break;
      await remove(
        rows.map(({ space, key }) => address(space, key)),
        false,
      );
    }
  }
  const inboxes = incarnations.map((incarnation) => inboxAt(id, incarnation));
  while (inboxes.length > AT_ONCE) await remove(inboxes.splice(0, AT_ONCE), false);
  await remove(inboxes, true);
}

function removeParts(tx: Tx, id: string, parts: readonly Address[], isLast: boolean): void {
  tx.load([runAt(id), ...parts]);
  const run = tx.record(runAt(id));
  if (!run.exists) throw new RunNotFoundError(id);
  const status = run.status ?? "";
  if (!ENDED.has(status) && !isAbandoned(tx, run)) throw new RunAliveError(id, status);
  // No run uses these keys again before the run's own record is swept away.
  for (const part of parts) tx.record(part).remove(0);
  if (!isLast) return;
  run.append("deleted" satisfies Word, {});
  run.remove();
}

/** It cannot be read, and no worker is at it: one that can read it may be. */
function isAbandoned(tx: Tx, run: Draft): boolean {
  if (readableValue(run) !== undefined) return false;
  return run.holder === null || run.dueMs === null || run.dueMs <= tx.nowMs;
}

/** The incarnations since the id was last deleted. The history tells, because the record may not be readable. */
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
