/**
 * Rules about pending operations: what a cancellation interrupts, what is done although the code has returned, and what a lock that was not
 * granted means to the code. They depend on the history alone, so replay decides the same.
 */

import { DeadlockError, LockRemovedError, LockTimeoutError, PermitsUndeclaredError } from "../../lock/errors.ts";
import { shownLocks } from "../../lock/stored.ts";
import type { Plan } from "../definitions/plans.ts";
import { RunCanceledError, RunTimedOutError } from "../errors.ts";
import type { Denial } from "../locks/locks.ts";
import type { Outcome } from "../stored.ts";
import type { PendingOperation } from "./pending.ts";

/** Whether it is done even if the code has returned meanwhile; everything else only waits. */
export function isWork({ plan, childId, branch }: PendingOperation): boolean {
  if (branch.isKept) return true;
  switch (plan.kind) {
    case "step":
    case "slot":
    case "stream":
    case "rate":
    case "unlock":
      return true;
    case "child":
      return childId === undefined;
    case "sleep":
    case "signal":
    case "lock":
      return false;
  }
}

/** Whether it only waits, so that a cancellation interrupts it. A step does while its next attempt is postponed, unless it is in `running`. */
export function isInterruptible(
  { kind, id, isPostponed }: PendingOperation,
  running: readonly string[] | undefined,
): boolean {
  switch (kind) {
    case "step":
      return isPostponed && running?.includes(id) !== true;
    case "sleep":
    case "signal":
    case "child":
    case "lock":
      return true;
    case "slot":
    case "stream":
    case "rate":
    case "unlock":
      return false;
  }
}

/** Whether the run ended with its own cancellation. */
export const isCancellation = (error: unknown, run: string): error is RunCanceledError | RunTimedOutError =>
  (error instanceof RunCanceledError || error instanceof RunTimedOutError) && error.data.run === run;

/** The outcome of a request for a lock that was not granted: a value where the code only tried, and otherwise an error. */
export function deniedAs(plan: Plan, denial: Denial): Outcome {
  const name = plan.kind === "lock" ? shownLocks(plan.refs) : "";
  switch (denial.reason) {
    case "busy":
      return { ok: { place: denial.place } };
    case "timeout":
      return { error: new LockTimeoutError(name, plan.kind === "lock" ? (plan.timeoutMs ?? 0) : 0) };
    case "removed":
      return { error: new LockRemovedError(name) };
    case "undeclared":
      return { error: new PermitsUndeclaredError(denial.name) };
    case "deadlock":
      return { error: new DeadlockError(name, denial.circle) };
  }
}
