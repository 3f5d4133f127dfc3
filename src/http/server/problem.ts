/**
 * Errors of the API: `application/problem+json` with a stable code, without stack and without SQL.
 *
 * An error of the library keeps its code, its message and its data; `STATUS_OF` says which HTTP status each code has. Only what the driver of a database says is for
 * the operator, as it may name tables and files. The API's own refusals are `Problem`s. Whatever else is thrown is `internal`: the client gets an id, and the operator's
 * log has the error under it.
 */

import { PawlError, type StoreCode, StoreError } from "../../kernel/errors.ts";

/** The status of each code of the library. A test compares it with the list of all errors. */
export const STATUS_OF = {
  action_conflict: 409,
  action_not_found: 404,
  already_used: 409,
  archive_damaged: 500,
  archive_incomplete: 409,
  attempt_over: 409,
  busy: 503,
  callback_async: 500,
  callback_timeout: 504,
  canceled: 409,
  claimed: 409,
  closed: 503,
  command_refused: 409,
  concurrency_conflict: 409,
  concurrency_limit: 409,
  cursor_ahead: 409,
  dead_letter_not_found: 404,
  deadlock: 409,
  decision_async: 500,
  decision_impure: 500,
  decision_over: 500,
  decrypt_failed: 500,
  event_conflict: 409,
  event_gone: 410,
  event_shape_unknown: 400,
  events_archived: 410,
  expired: 410,
  fenced: 409,
  fold_behind: 503,
  guard_refused: 409,
  history_contradiction: 409,
  idempotency_answered: 409,
  idempotency_in_progress: 409,
  idempotency_mismatch: 422,
  illegal_transition: 409,
  invalid_argument: 400,
  invalid_cron: 400,
  invalid_duration: 400,
  invalid_id: 400,
  invalid_pin: 401,
  invalid_target: 400,
  invalid_timezone: 400,
  invalid_value: 400,
  key_unavailable: 500,
  keys_missing: 501,
  lease_uncertain: 409,
  lock_busy: 409,
  lock_lost: 409,
  lock_nested: 409,
  lock_removed: 409,
  lock_timeout: 409,
  locked: 423,
  machine_exists: 409,
  machine_not_found: 404,
  foreign_context: 500,
  nested_operation: 500,
  not_active: 409,
  outcome_unknown: 504,
  parking_full: 409,
  pepper_changed: 500,
  pepper_missing: 501,
  permits_undeclared: 409,
  place_lost: 409,
  projection_building: 409,
  projection_not_found: 404,
  projection_timeout: 504,
  race_lost: 409,
  rate_limited: 429,
  reaction_not_found: 404,
  reaction_over: 500,
  reaction_timeout: 504,
  result_timeout: 504,
  run_alive: 409,
  run_canceled: 409,
  run_conflict: 409,
  run_ended: 409,
  run_exists: 409,
  run_expired: 409,
  run_failed: 409,
  run_not_found: 404,
  run_parked: 409,
  run_stuck: 409,
  run_timed_out: 409,
  run_unreadable: 409,
  schedule_code_missing: 409,
  schedule_declared: 409,
  schedule_exists: 409,
  schedule_not_found: 404,
  schema_mismatch: 400,
  sql_after_tx: 500,
  sql_over: 500,
  stale_fence: 409,
  step_in_flight: 500,
  step_timeout: 504,
  store_busy: 503,
  store_corrupt: 500,
  store_full: 507,
  store_io: 500,
  store_readonly: 503,
  store_refused: 500,
  store_unfit: 500,
  store_unreachable: 503,
  stream_closed: 409,
  stream_exists: 409,
  stream_in_use: 409,
  stream_not_found: 404,
  subject_forgotten: 410,
  subject_key_not_loaded: 503,
  target_forbidden: 400,
  target_not_found: 404,
  task_failed: 409,
  task_not_dead: 409,
  task_not_found: 404,
  task_settled: 409,
  task_timed_out: 410,
  token_not_found: 404,
  token_unread: 409,
  too_many_keys: 400,
  unsupported_encoding: 500,
  used_after_end: 500,
  used_in_body: 500,
  user_function_failed: 500,
  value_too_large: 413,
  version_conflict: 409,
} as const satisfies Readonly<Record<string, number>>;

/** A code of the library. */
export type LibraryCode = keyof typeof STATUS_OF;

/** The codes of the API itself, with the status that each has. They never change. */
export const OWN_CODES = {
  headers_too_large: 431,
  idempotency_key_malformed: 400,
  internal: 500,
  invalid_json: 400,
  invalid_request: 400,
  key_not_found: 404,
  machine_unknown: 404,
  method_not_allowed: 405,
  not_json: 415,
  request_timeout: 408,
  request_too_large: 413,
  response_not_kept: 500,
  route_not_found: 404,
  scope_missing: 403,
  server_closing: 503,
  too_deep: 400,
  too_many_connections: 503,
  too_many_members: 400,
  too_many_waiting: 503,
  unauthorized: 401,
  unsafe_number: 400,
  unsupported_content_encoding: 415,
} as const satisfies Readonly<Record<string, number>>;

export type OwnCode = keyof typeof OWN_CODES;

/** A status that a problem may have. */
export type ProblemStatus = (typeof STATUS_OF)[LibraryCode] | (typeof OWN_CODES)[OwnCode] | 412;

/** The phrase of each status. */
export const TITLES: Readonly<Record<ProblemStatus, string>> = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  408: "Request Timeout",
  409: "Conflict",
  410: "Gone",
  412: "Precondition Failed",
  413: "Content Too Large",
  415: "Unsupported Media Type",
  422: "Unprocessable Content",
  423: "Locked",
  429: "Too Many Requests",
  431: "Request Header Fields Too Large",
  500: "Internal Server Error",
  501: "Not Implemented",
  503: "Service Unavailable",
  504: "Gateway Timeout",
  507: "Insufficient Storage",
};

export interface ProblemOptions {
  readonly data?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A refusal of the API. */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly status: ProblemStatus;
  readonly code: string;
  readonly data: unknown;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: ProblemStatus, code: string, detail: string, options: ProblemOptions = {}) {
    super(detail);
    this.status = status;
    this.code = code;
    this.data = options.data;
    this.headers = options.headers ?? {};
  }
}

/** One of the API's own refusals. */
export const refuse = (code: OwnCode, detail: string, options?: ProblemOptions): Problem =>
  new Problem(OWN_CODES[code], code, detail, options);

/** The problem that an error is; undefined if only the operator may see it. */
export function problemOf(error: unknown): Problem | undefined {
  if (error instanceof Problem) return error;
  if (!(error instanceof PawlError)) return undefined;
  const { code } = error;
  const status = statusOf(code);
  if (status === undefined) return undefined;
  const { retryAfterMs } = error.data as { readonly retryAfterMs?: unknown };
  const seconds = typeof retryAfterMs === "number" ? retryAfterMs / 1000 : RETRY_SECONDS[code];
  const headers = seconds === undefined ? {} : retryAfter(seconds);
  const detail = error instanceof StoreError ? storeSays(error.code) : error.message;
  return new Problem(status, code, detail, { data: dataOf(error), headers });
}

/** Whether the operator has to know of it, too: what is damaged or not as it must be, and a store that fails. One that is busy does not. */
export const isForOperator = (error: unknown): boolean =>
  error instanceof PawlError &&
  error.code !== "store_busy" &&
  (error instanceof StoreError || statusOf(error.code) === 500);

function storeSays(code: StoreCode): string {
  if (code === "outcome_unknown")
    return "The store was lost during the commit, so the request may have had its effect: repeat it with the same Idempotency-Key.";
  if (code === "store_busy" || code === "store_unreachable")
    return "The store is busy or cannot be reached: repeat the request later.";
  return "The store failed; the operator's log has the reason under this request's id.";
}

function statusOf(code: string): ProblemStatus | undefined {
  if (Object.hasOwn(STATUS_OF, code)) return STATUS_OF[code as LibraryCode];
  return Object.hasOwn(OWN_CODES, code) ? OWN_CODES[code as OwnCode] : undefined;
}

/** What is worth repeating soon, although the error does not say when. */
const RETRY_SECONDS: Readonly<Record<string, number>> = {
  busy: 1,
  fold_behind: 1,
  outcome_unknown: 1,
  store_busy: 1,
  store_unreachable: 1,
  subject_key_not_loaded: 1,
};

/** The header that says when to try again, in whole seconds. */
export const retryAfter = (seconds: number): Readonly<Record<string, string>> => ({
  "retry-after": String(Math.max(1, Math.ceil(seconds))),
});

/** The data of an error, and for a run that failed what its function threw. */
function dataOf(error: PawlError): unknown {
  if (error.code !== "run_failed" || !("cause" in error)) return error.data;
  return { ...error.data, cause: error.cause };
}

/** The refusal of a key or an address that has used up its requests. */
export const tooMany = (what: string, retryAfterMs: number): Problem =>
  new Problem(429, "rate_limited", `${what}: repeat this one later.`, {
    data: { retryAfterMs },
    headers: retryAfter(retryAfterMs / 1000),
  });

/** The refusal of a request that would wait, where too many do. */
export const tooManyWaiting = (): Problem =>
  refuse("too_many_waiting", "Too many requests are waiting already, of this API key or of all: try again later.", {
    headers: retryAfter(1),
  });

/** The refusal of a request that a server that is being closed does not finish, or does not begin. */
export const serverClosing = (): Problem =>
  refuse("server_closing", "The server is being closed: repeat the request, it may reach another.", {
    headers: retryAfter(1),
  });
