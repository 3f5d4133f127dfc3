/**
 * Exit codes, and errors as one line.
 *
 * Scripts branch on the exit code, so each class of failure has one that never changes. Which class an error belongs to follows from its code: the codes of
 * Pawl have the noun and then what is wrong with it (`run_not_found`, `stream_closed`).
 *
 * Guarantees: an error is one line on stderr, without a stack, and ends with its code.
 */

import { isOneOf } from "./values.ts";

export const EXIT = {
  ok: 0,
  /** It failed, or was refused. */
  failed: 1,
  /** The command line is wrong, or a value in it. */
  usage: 2,
  notFound: 3,
  /** Another was first, or it has ended already. */
  conflict: 4,
  /** The store or the server cannot be reached, or is not there. */
  unreachable: 5,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Codes whose end does not tell the class. */
const USAGE = ["invalid_json", "too_deep", "schema_mismatch", "value_too_large", "not_supported", "store_missing"];
const CONFLICTS = [
  "already_used",
  "canceled",
  "claimed",
  "expired",
  "fenced",
  "idempotency_in_progress",
  "idempotency_mismatch",
  "lock_busy",
  "locked",
  "run_alive",
  "run_ended",
  "schedule_declared",
  "step_in_flight",
  "stream_closed",
  "stream_in_use",
  "task_not_dead",
  "task_settled",
  "task_timed_out",
];
const UNREACHABLE = ["store_unreachable", "store_busy", "server_unreachable", "database_not_found"];

/** The class of an error by its code. */
export function exitCodeOf(code: string | undefined): ExitCode {
  if (code === undefined) return EXIT.failed;
  if (isOneOf(code, UNREACHABLE)) return EXIT.unreachable;
  if (code.endsWith("_not_found")) return EXIT.notFound;
  if (isOneOf(code, CONFLICTS) || code.endsWith("_conflict") || code.endsWith("_exists")) return EXIT.conflict;
  if (isOneOf(code, USAGE) || code.startsWith("invalid_")) return EXIT.usage;
  return EXIT.failed;
}

/** A failure of the command line itself. Its code says the class, as those of the library do. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** An error as it is shown: what happened, and the code that programs know it by. */
export interface ShownError {
  readonly message: string;
  readonly code: string | undefined;
  readonly exit: ExitCode;
}

export function showError(error: unknown): ShownError {
  const code = codeOf(error);
  const message = error instanceof Error ? error.message : String(error);
  return {
    message: message.replace(/\s*\n\s*/g, " ").trim() || "it failed without a reason",
    code,
    exit: exitCodeOf(code),
  };
}

/** Only the codes that Pawl gives: those of Node are in capitals. */
function codeOf(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" && /^[a-z][a-z0-9_]*$/.test(error.code) ? error.code : undefined;
}
