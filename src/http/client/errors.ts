/**
 * Errors of the client.
 *
 * A refusal of the server is a `PawlHttpError` with the code and the data that the library's error has, so `switch (error.code)` is the same in both places.
 * It is not an instance of the library's classes, and the library's `isPawlError` returns false for it: the client does not contain those classes. Its own
 * `isPawlError` has the same types.
 */

import type { AnyPawlError, PawlErrorCode, PawlErrorOf } from "../../errors.ts";

/** Codes that only HTTP has: of requests that the API refuses, and `server_unreachable` for no response at all. */
export type HttpCode =
  | "headers_too_large"
  | "idempotency_key_malformed"
  | "internal"
  | "invalid_json"
  | "invalid_request"
  | "key_not_found"
  | "machine_unknown"
  | "method_not_allowed"
  | "not_json"
  | "request_timeout"
  | "request_too_large"
  | "response_not_kept"
  | "route_not_found"
  | "scope_missing"
  | "server_closing"
  | "server_unreachable"
  | "too_deep"
  | "too_many_connections"
  | "too_many_members"
  | "too_many_waiting"
  | "unauthorized"
  | "unexpected_response"
  | "unsafe_number"
  | "unsupported_content_encoding";

export interface PawlHttpErrorOptions {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly data?: unknown;
  readonly requestId?: string | null;
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** The server refused a call, or did not respond (`server_unreachable`, with status 0). `code` and `data` are those of the library's error. */
export class PawlHttpError extends Error {
  override readonly name: string = "PawlHttpError";
  readonly code: string;
  /** The HTTP status; 0 if there was no response. */
  readonly status: number;
  readonly data: Readonly<Record<string, unknown>>;
  /** The id of the request, for the operator of the server; null if there was no response. */
  readonly requestId: string | null;
  /** When to try again, if the server says so. */
  readonly retryAfterMs: number | undefined;

  constructor({ status, code, message, data, requestId = null, retryAfterMs, cause }: PawlHttpErrorOptions) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.status = status;
    this.data = typeof data === "object" && data !== null ? (data as Record<string, unknown>) : {};
    this.requestId = requestId;
    this.retryAfterMs = retryAfterMs;
  }
}

/** An error of the client with this code, with the data of the library's error. */
export type PawlHttpErrorOf<Code extends PawlErrorCode | HttpCode> = PawlHttpError & {
  readonly code: Code;
  readonly data: Code extends PawlErrorCode ? PawlErrorOf<Code>["data"] : PawlHttpError["data"];
};

/** Any error with a code of the library. */
export type AnyPawlHttpError = AnyPawlError extends infer E
  ? E extends { readonly code: infer Code; readonly data: infer Data }
    ? PawlHttpError & { readonly code: Code; readonly data: Data }
    : never
  : never;

/** Returns whether this is an error of the client, and has this code if one is given: `isPawlError(error, "run_failed")`. */
export function isPawlError(error: unknown): error is PawlHttpError;
export function isPawlError<Code extends PawlErrorCode | HttpCode>(
  error: unknown,
  code: Code,
): error is PawlHttpErrorOf<Code>;
export function isPawlError(error: unknown, code?: string): boolean {
  return error instanceof PawlHttpError && (code === undefined || error.code === code);
}

/** An argument that the client itself refuses, before it sends anything. */
export const invalidArgument = (what: string, reason: string): PawlHttpError =>
  new PawlHttpError({ status: 0, code: "invalid_argument", message: `${what} ${reason}`, data: { what, reason } });

/** What was given cannot be sent without loss. */
export const invalidValue = (path: string, reason: string): PawlHttpError =>
  new PawlHttpError({
    status: 0,
    code: "invalid_value",
    message: `cannot send the value at ${path}: ${reason}`,
    data: { path, reason },
  });
