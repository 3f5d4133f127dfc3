/**
 * What ends with a run: its children that were not started to outlive it.
 *
 * A run's own code cancels them when it ends. One that ends without its code, because it is parked or was canceled by force, has them in its
 * history. A child that is parked has no code that would react: it is marked, and a worker ends it together with its children.
 */

import type { Held } from "../../kernel/claim/claim.ts";
import type { Row } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { skipsOf } from "../history/forgotten.ts";
import { isIn } from "../history/ranges.ts";
import { decodeRun, readableValue } from "../history/read-run.ts";
import { dropSomeHolds } from "../locks/locks.ts";
import { type ChildStart, hasEnded, parseFact, type RunValue, runAt } from "../stored.ts";
import { cancelRun, endCanceled } from "./end.ts";

/** One commit cancels at most this many children. */
const MOST_CANCELED = 200;

/** Cancels children, as many as one commit can. */
export function cancelChildren(tx: Tx, children: readonly string[], parent: string): void {
  if (children.length > 1) tx.load(children.map(runAt));
  for (const child of children) cancelChild(tx, child, parent);
}

/** Cancels a child. One that is over, or not there any more, needs no canceling. */
function cancelChild(tx: Tx, child: string, parent: string): void {
  const run = tx.record(runAt(child));
  if (!run.exists || hasEnded(run)) return;
  const value = readableValue(run);
  if (value === undefined) return;
  const reason = `its parent "${parent}" has ended`;
  if (run.status !== "parked") cancelRun(tx, child, { reason });
  else if (run.dueMs === null)
    run.write({ value: { ...value, cancel: value.cancel ?? { reason } }, dueMs: tx.nowMs, tries: 0 });
}

/** Whether a worker is to end the run without its code. */
export const isToBeEnded = ({ parked, cancel }: RunValue): boolean =>
  cancel !== undefined && (parked !== undefined || cancel.isWithoutCode === true);

/** Ends such a run. */
export async function endParked(kernel: Kernel, held: Held, row: Row, { cancel }: RunValue): Promise<void> {
  const reason = cancel?.reason === undefined ? {} : { reason: cancel.reason };
  await cancelChildrenOf(kernel, row);
  while (await held.commit((record, tx) => dropSomeHolds(tx, record)));
  await held.commit((record, tx) => endCanceled(tx, record, row.key, reason, { hasBegun: true }));
}

/** Cancels the children that end with a run, as its history has them. */
export async function cancelChildrenOf(kernel: Kernel, row: Row): Promise<void> {
  const at = runAt(row.key);
  const value = decodeRun(kernel, row);
  const skips = await skipsOf(kernel, at, value);
  const children = new Map<string, string>();
  for await (const { version, name, data } of kernel.entriesAfter(at, value.from - 1)) {
    // One that ended and was retried lives again.
    if (isIn(skips, version)) continue;
    const { word, id } = parseFact(name);
    if (word === "child") {
      const { run, endsWithParent } = kernel.decodeFresh(row, data) as ChildStart;
      if (endsWithParent === true) children.set(id, run);
    } else if (word === "ended") children.delete(id);
  }
  const left = [...children.values()];
  while (left.length > 0) {
    const some = left.splice(0, MOST_CANCELED);
    await kernel.transact((tx) => cancelChildren(tx, some, row.key), some.map(runAt));
  }
}
