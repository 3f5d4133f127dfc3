/**
 * Errors of tasks. When one is thrown, nothing was changed.
 */

import { PawlError } from "../kernel/errors.ts";
import type { Settled, TaskOutcome } from "./outcome.ts";

/** There is no task with this id; the run that has it may be of another workflow. */
export class TaskNotFoundError extends PawlError<"task_not_found", { task: string }> {
  constructor(task: string) {
    super("task_not_found", `there is no task "${task}"`, { task });
  }
}

/** No task has this token. The token is not repeated here: it is a secret. */
export class TokenNotFoundError extends PawlError<"token_not_found", Record<string, never>> {
  constructor() {
    super("token_not_found", "no task has this signal token: was it copied as a whole?", {});
  }
}

/** The task had its outcome before this signal came; it is in `data.outcome`, and is the same for every caller. */
export class TaskSettledError extends PawlError<"task_settled", { task: string; outcome: TaskOutcome }> {
  constructor(task: string, outcome: TaskOutcome) {
    super("task_settled", `task "${task}" is ${outcome.status} already, by ${BY[outcome.by]}`, { task, outcome });
  }
}

/** The signal came after the task had waited for `maxWaitTime`; the outcome is in `data.outcome`. */
export class TaskTimedOutError extends PawlError<"task_timed_out", { task: string; outcome: TaskOutcome }> {
  constructor(task: string, outcome: TaskOutcome) {
    super("task_timed_out", `task "${task}" timed out before this signal came`, { task, outcome });
  }
}

/** The URL cannot be the target of a task; `data.reason` says what is wrong with it. */
export class InvalidTargetError extends PawlError<"invalid_target", { what: string; reason: string }> {
  constructor(what: string, reason: string) {
    super("invalid_target", `${what} ${reason}`, { what, reason });
  }
}

/**
 * The target is an address or a port that tasks must not call. An operator can list what is allowed: `httpTasks({ allow: ["10.0.0.0/8"], allowPorts: [9200] })`.
 */
export class TargetForbiddenError extends PawlError<"target_forbidden", { host: string; reason: string }> {
  constructor(host: string, reason: string) {
    super(
      "target_forbidden",
      `tasks must not call ${host}: it ${reason}; the operator of the processes that make calls can allow its range or port (allow and allowPorts of httpTasks, --allow and --allow-port of pawl serve)`,
      { host, reason },
    );
  }
}

/** Only a dead task can be sent again: one that failed, timed out or expired. */
export class TaskNotDeadError extends PawlError<"task_not_dead", { task: string; status: string }> {
  constructor(task: string, status: string) {
    super(
      "task_not_dead",
      `task "${task}" is ${status}: only one that failed, timed out or expired can be sent again`,
      {
        task,
        status,
      },
    );
  }
}

/**
 * The task exists, and its signal token is not known to this decision. `pawl.transact` reads it and decides again; inside `transact.sql` or `within`, call
 * `pawl.tasks.create` with the same request instead.
 */
export class TokenUnreadError extends PawlError<"token_unread", { task: string }> {
  constructor(task: string) {
    super("token_unread", `task "${task}" exists, and its token cannot be read inside this decision`, { task });
  }
}

/** How a task failed, as the error of its run: `pawl.tasks.get` says the same as an outcome. */
export class TaskFailedError extends PawlError<"task_failed", { task: string; settled: Settled }> {
  constructor(task: string, settled: Settled) {
    super("task_failed", `task "${task}" failed: ${settled.error?.message ?? "a signal said so"}`, { task, settled });
  }
}

const BY = { response: "the target's response", signal: "a signal", timeout: "its timeout", cancel: "a cancellation" };
