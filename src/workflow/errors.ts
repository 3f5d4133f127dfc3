/**
 * Errors of workflows.
 */

import { PawlError } from "../kernel/errors.ts";

/** There is no run of this id. */
export class RunNotFoundError extends PawlError<"run_not_found", { run: string }> {
  constructor(run: string) {
    super("run_not_found", `there is no run "${run}"`, { run });
  }
}

/** A run of this id exists, with another workflow or another input. Choose another id, or look at the run that is there. */
export class RunConflictError extends PawlError<"run_conflict", { run: string; reason: string }> {
  constructor(run: string, reason: string, what = "run") {
    super("run_conflict", `${what} "${run}" ${reason}`, { run, reason });
  }
}

/**
 * A run of this id exists already, and `ifExists` is "reject". Where starts are collected, the id is that of a start, and `data.run` the run that has its
 * input.
 */
export class RunExistsError extends PawlError<"run_exists", { run: string; status: string }> {
  constructor(run: string, status: string, startId?: string) {
    const message =
      startId === undefined
        ? `run "${run}" exists already and is ${status}`
        : `a start with the id "${startId}" exists already: run "${run}" has its input, and is ${status}`;
    super("run_exists", message, { run, status });
  }
}

/** The run has ended, so it receives nothing any more. `data.status` says how. */
export class RunEndedError extends PawlError<"run_ended", { run: string; status: string }> {
  constructor(run: string, status: string) {
    super("run_ended", `run "${run}" is ${status}`, { run, status });
  }
}

/** The record of the run cannot be read. With the codec key it was written with, it can; otherwise delete the run. */
export class RunUnreadableError extends PawlError<"run_unreadable", { run: string; reason: string }> {
  constructor(run: string, reason: string) {
    super("run_unreadable", `run "${run}" cannot be read: ${reason}`, { run, reason });
  }
}

/** The run has not ended, so it cannot be deleted. Cancel it first, and wait for its end. */
export class RunAliveError extends PawlError<"run_alive", { run: string; status: string }> {
  constructor(run: string, status: string) {
    super("run_alive", `run "${run}" is ${status}: cancel it first, and delete it when it has ended`, { run, status });
  }
}

/** The workflow has a concurrency limit that is reached, and refuses more runs. Try again when one of its runs has ended. */
export class ConcurrencyLimitError extends PawlError<
  "concurrency_limit",
  { workflow: string; key: string | null; limit: number }
> {
  constructor(workflow: string, key: string | undefined, limit: number) {
    const of = key === undefined ? "" : ` for the key "${key}"`;
    const runs = limit === 1 ? `1 run${of} that has` : `${limit} runs${of} that have`;
    const message = `workflow "${workflow}" has ${runs} not ended, and admits no more`;
    super("concurrency_limit", message, { workflow, key: key ?? null, limit });
  }
}

/** The run did not begin within its `ttl`, and will not. */
export class RunExpiredError extends PawlError<"run_expired", { run: string }> {
  constructor(run: string) {
    super("run_expired", `run "${run}" did not begin in time: it has expired`, { run });
  }
}

/** The run failed. `cause` is what its function threw. */
export class RunFailedError extends PawlError<"run_failed", { run: string }> {
  constructor(run: string, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    super("run_failed", `run "${run}" failed: ${reason}`, { run }, { cause });
  }
}

/** The outcome of an operation that a cancellation interrupted while it ran. */
export type InterruptedOutcome =
  | { readonly operation: string; readonly ok: unknown }
  | { readonly operation: string; readonly error: unknown };

/**
 * The run was canceled. Inside a run it is thrown once, by the operation that the code awaits: cleanup after it runs normally, and the run
 * ends as canceled when this is thrown on. `data.outcome` is the outcome of the step that it interrupted, if that had one.
 */
export class RunCanceledError extends PawlError<
  "run_canceled",
  { run: string; reason: string | undefined; outcome?: InterruptedOutcome }
> {
  constructor(run: string, reason: string | undefined, outcome?: InterruptedOutcome) {
    super("run_canceled", `run "${run}" was canceled${reason === undefined ? "" : `: ${reason}`}`, {
      run,
      reason,
      ...(outcome === undefined ? {} : { outcome }),
    });
  }
}

/** The run took longer than its workflow's `timeout`. Inside a run it is thrown as `run_canceled` is. */
export class RunTimedOutError extends PawlError<"run_timed_out", { run: string; outcome?: InterruptedOutcome }> {
  constructor(run: string, outcome?: InterruptedOutcome) {
    super("run_timed_out", `run "${run}" took longer than its timeout`, {
      run,
      ...(outcome === undefined ? {} : { outcome }),
    });
  }
}

/**
 * Another operation of `ctx.race` settled first, so this one was canceled. Shielded code throws it when it has ended, with its outcome in
 * `data.outcome`.
 */
export class RaceLostError extends PawlError<
  "race_lost",
  { run: string; operation: string; outcome?: InterruptedOutcome }
> {
  constructor(run: string, operation: string, outcome?: InterruptedOutcome) {
    super("race_lost", `${operation} of run "${run}" was canceled, because another operation of its race was first`, {
      run,
      operation,
      ...(outcome === undefined ? {} : { outcome }),
    });
  }
}

/** `ctx` was used inside the function of a step, where nothing can be recorded. */
export class NestedOperationError extends PawlError<
  "nested_operation",
  { run: string; operation: string; step: string }
> {
  constructor(run: string, operation: string, step: string, instead?: string | undefined) {
    super(
      "nested_operation",
      instead === undefined
        ? `${operation} was started inside step "${step}": operations cannot be nested; start it in the workflow's function, before or after the step`
        : `${operation} was used inside step "${step}", which is not replayed: use ${instead} there; the step's result is recorded`,
      { run, operation, step },
    );
  }
}

/** The code of one run used the `ctx` of another one, as from a variable that runs share. Pass `ctx` on as an argument. */
export class ForeignContextError extends PawlError<
  "foreign_context",
  { run: string; operation: string; usedBy: string }
> {
  constructor(run: string, operation: string, usedBy: string) {
    super(
      "foreign_context",
      `${operation} was started by run "${usedBy}" with the ctx of run "${run}": use the ctx that the workflow's function was called with, and pass it to other functions as an argument`,
      { run, operation, usedBy },
    );
  }
}

/** `ctx` was used after the run had ended. Await everything before the workflow's function returns. */
export class UsedAfterEndError extends PawlError<"used_after_end", { run: string; operation: string }> {
  constructor(run: string, operation: string) {
    super(
      "used_after_end",
      `${operation} was started after run "${run}" had ended: await it before the workflow's function returns`,
      { run, operation },
    );
  }
}

/** The attempt of a step is over, so its `abortSignal` is aborted. */
export class AttemptOverError extends PawlError<"attempt_over", { step: string; attempt: number }> {
  constructor(step: string, attempt: number) {
    super("attempt_over", `attempt ${attempt} of step "${step}" is over`, { step, attempt });
  }
}

/** The run is parked and waits for an operator: `data.reason` says why. `retry` lets it continue. */
export class RunParkedError extends PawlError<"run_parked", { run: string; reason: string }> {
  constructor(run: string, reason: string) {
    super("run_parked", `run "${run}" is parked: ${reason}`, { run, reason });
  }
}

/** The result did not come within the `timeout` of the call. The run continues. */
export class ResultTimeoutError extends PawlError<"result_timeout", { run: string; timeoutMs: number }> {
  constructor(run: string, timeoutMs: number) {
    super("result_timeout", `run "${run}" had no result within ${timeoutMs} ms; it continues`, { run, timeoutMs });
  }
}

/** An attempt of a step took longer than its `timeout`, or did not give a heartbeat in time. */
export class StepTimeoutError extends PawlError<"step_timeout", { step: string; timeoutMs: number }> {
  constructor(step: string, timeoutMs: number, what = "took longer than") {
    super("step_timeout", `step "${step}" ${what} ${timeoutMs} ms`, { step, timeoutMs });
  }
}

/** Two steps of the same name run concurrently: give each an `id`. */
export class StepInFlightError extends PawlError<"step_in_flight", { step: string }> {
  constructor(step: string) {
    super(
      "step_in_flight",
      `step "${step}" is already under way: to run several concurrently, give each an id, as in { id: item.id }`,
      { step },
    );
  }
}

/** The code does not do what the history says it did. Nothing was written; run the code that wrote it. */
export class HistoryContradictionError extends PawlError<
  "history_contradiction",
  { run: string; history: string; code: string }
> {
  constructor(run: string, history: string, code: string) {
    super("history_contradiction", `run "${run}": the history says ${history}, but the code ${code}`, {
      run,
      history,
      code,
    });
  }
}

/** The run's function waits for something that is no operation of `ctx`, and that does not come. */
export class RunStuckError extends PawlError<"run_stuck", { run: string }> {
  constructor(run: string) {
    super(
      "run_stuck",
      `run "${run}" awaits something that is not an operation of ctx, such as fetch or a timer: do it in ctx.step`,
      { run },
    );
  }
}
