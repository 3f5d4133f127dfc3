/**
 * The outcome of a task, as every caller gets it, and how it follows from the record of the task's run.
 */

import type { RunStatus, RunValue } from "../workflow/stored.ts";

/** What the target returned. */
export interface TaskResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** As text, up to the first 16 KiB. */
  readonly body: string;
  /** The body was longer. */
  readonly isCut: boolean;
}

/** Why a task failed, or an attempt did. */
export interface TaskError {
  /** "http_status", "timeout", "network", "body_too_large", "invalid_target", "target_forbidden", or the code of an error of Pawl. */
  readonly code: string;
  readonly message: string;
}

export interface TaskOutcome {
  readonly status: "completed" | "failed" | "canceled" | "timed_out" | "expired";
  /** What settled it. */
  readonly by: "response" | "signal" | "timeout" | "cancel";
  /** The `TaskResponse`, or the value of the signal. */
  readonly value?: unknown;
  readonly error?: TaskError;
  /** Why it was canceled, if that was said. */
  readonly reason?: string;
  readonly at: Date;
}

/** What the run of a task ends with: its result, or the data of its error. The time is in the run's record. */
export interface Settled {
  readonly by: "response" | "signal";
  readonly value?: unknown;
  readonly error?: TaskError;
}

/** The outcome of a task; null while it has none. */
export function outcomeOf(
  status: RunStatus,
  value: Pick<RunValue, "outcome" | "endedAtMs" | "cancel">,
): TaskOutcome | null {
  const at = new Date(value.endedAtMs ?? 0);
  const { outcome = { ok: undefined } } = value;
  switch (status) {
    case "completed":
      return { status, ...("ok" in outcome && isSettled(outcome.ok) ? outcome.ok : { by: "response" }), at };
    case "failed":
      return { status, ...failureOf("error" in outcome ? outcome.error : undefined), at };
    case "canceled":
      return {
        status,
        by: "cancel",
        ...(value.cancel?.reason === undefined ? {} : { reason: value.cancel.reason }),
        at,
      };
    case "timed_out":
    case "expired":
      return { status, by: "timeout", at };
    case "pending":
    case "queued":
    case "running":
    case "waiting":
    case "parked":
      return null;
  }
}

function failureOf(error: unknown): Settled {
  const { code, message, data } = Object(error) as { code?: unknown; message?: unknown; data?: { settled?: unknown } };
  if (code === "task_failed" && isSettled(data?.settled)) return data.settled;
  return { by: "response", error: { code: String(code ?? "error"), message: String(message ?? error) } };
}

const isSettled = (given: unknown): given is Settled =>
  typeof given === "object" && given !== null && ["response", "signal"].includes((given as Settled).by);
