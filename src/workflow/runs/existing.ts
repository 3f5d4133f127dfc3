/**
 * A run that must be there: its row, and checks of whether it is the one that the caller means and whether it is being deleted.
 */

import type { Row } from "../../kernel/contract.ts";
import type { Draft } from "../../kernel/draft.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { RunConflictError, RunNotFoundError } from "../errors.ts";
import { deletingQueueOf, type RunValue, runAt, workflowOfQueue } from "../stored.ts";

/** Throws `run_not_found`. */
export async function readRow(kernel: Kernel, id: string): Promise<Row> {
  const [row] = await kernel.read([runAt(id)]);
  if (row === undefined || row === null || row.value === null) throw new RunNotFoundError(id);
  return row;
}

/** Refuses a run of a different workflow than the caller expects. */
export function checkWorkflow(id: string, value: RunValue, workflow: string | undefined): void {
  if (workflow !== undefined && value.workflow !== workflow)
    throw new RunConflictError(id, `is a run of "${value.workflow}", not of "${workflow}"`);
}

/** The same where its record cannot be read: its queue says which workflow it is of. */
export function checkQueue({ key, kind }: Row, workflow: string | undefined): void {
  const name = workflowOfQueue(kind);
  if (workflow !== undefined && name !== workflow)
    throw new RunConflictError(key, `is a run of "${name}", not of "${workflow}"`);
}

/** Whether the deletion of the run has begun (`delete.ts`): it can neither be restarted nor retried. */
export const isDeleting = ({ kind }: Draft): boolean => kind === deletingQueueOf(workflowOfQueue(kind));

export function checkNotDeleting(record: Draft, id: string): void {
  if (isDeleting(record)) throw new RunConflictError(id, "is being deleted");
}
