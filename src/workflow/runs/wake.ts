/**
 * Waking a run: its worker looks at it soon, or it becomes due, because something arrived for it.
 */

import { wake } from "../../kernel/claim/claim.ts";
import type { Tx } from "../../kernel/decision.ts";
import { isRunStatus, type RunStatus, runAt } from "../stored.ts";

/** Whether a wake-up makes a run due that no worker holds. One that has not begun, or is parked, sees it later. */
const IS_MADE_DUE: Readonly<Record<RunStatus, boolean>> = {
  running: true,
  waiting: true,
  pending: false,
  queued: false,
  parked: false,
  completed: true,
  failed: true,
  canceled: true,
  timed_out: true,
  expired: true,
};

/** Wakes a run. */
export function wakeRun(tx: Tx, id: string): void {
  const run = tx.record(runAt(id));
  const { status } = run;
  if (run.holder === null && isRunStatus(status) && !IS_MADE_DUE[status]) run.write({ wakes: run.wakes + 1 });
  else wake(tx, runAt(id));
}
