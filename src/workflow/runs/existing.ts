/**
 * Checks of a run that is there: whether it is the one that the caller means, and whether it is being deleted.
 */

import type { Draft } from "../../kernel/draft.ts";
import { RunConflictError } from "../errors.ts";
import { deletingQueueOf, type RunValue, workflowOfQueue } from "../stored.ts";

/** Refuses a run of a different workflow than the caller expects. */
export function checkWorkflow(id: string, value: RunValue, workflow: string | undefined): void {
  if (workflow !== undefined && value.workflow !== workflow)
    throw new RunConflictError(id, `is a run of "${value.workflow}", not of "${workflow}"`);
}

/** Whether the deletion of the run has begun (`delete.ts`): it can neither be restarted nor retried. */
export const isDeleting = ({ kind }: Draft): boolean => kind === deletingQueueOf(workflowOfQueue(kind));

export function checkNotDeleting(record: Draft, id: string): void {
  if (isDeleting(record)) throw new RunConflictError(id, "is being deleted");
}
