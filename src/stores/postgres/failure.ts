/**
 * Maps PostgreSQL's errors to errors that the kernel can act on.
 *
 * An error that the server reports means that the transaction is rolled back, COMMIT included. A connection that breaks, or that the server
 * ends (severity FATAL), means this only if COMMIT was not sent yet: after that, the outcome is unknown until the lane's mark is read.
 */

import { type Remedy, type StoreCode, StoreError } from "../../kernel/errors.ts";

type Failure = readonly [code: StoreCode, remedy: Remedy, advice: string];

/** By SQLSTATE. */
const STATES: ReadonlyMap<string, Failure> = new Map<string, Failure>([
  ["25006", ["store_readonly", "retry", "the server is a standby, or read-only: connect to the primary"]],
  ["25P03", ["store_busy", "halve", "the transaction was idle for too long"]],
  ["26000", ["store_busy", "retry", "a pooler switched the connection"]],
  ["42P05", ["store_busy", "retry", "a pooler switched the connection"]],
  ["42501", ["store_unfit", "fail", "the role lacks a right"]],
  ["42P01", ["store_unfit", "fail", "Pawl's tables are missing: restore a backup"]],
  [
    "3F000",
    [
      "store_unfit",
      "fail",
      "Pawl's schema is missing: restore a backup, or open the store again to start with an empty one",
    ],
  ],
  ["53100", ["store_full", "fail", "the server's disk is full: free some space, and work resumes"]],
  ["53200", ["store_busy", "halve", "the server is out of memory"]],
  ["53300", ["store_busy", "retry", "the server has no free connection: raise max_connections, or use a smaller pool"]],
  ["55P03", ["store_busy", "retry", "another process holds locks on the rows"]],
  ["57014", ["store_busy", "halve", "the statement took too long, or was canceled"]],
  ["57P01", ["store_unreachable", "retry", "the server ended the connection"]],
  ["57P02", ["store_unreachable", "retry", "the server crashed and is recovering"]],
  ["57P03", ["store_unreachable", "retry", "the server is starting or stopping"]],
  ["58030", ["store_io", "fail", "the server could not read or write its files: check its disk"]],
  ["58P01", ["store_io", "fail", "a file of the server is missing: check its disk"]],
  ["3D000", ["store_unreachable", "fail", "the database does not exist: create it"]],
]);

/** By the class of the SQLSTATE, its first two characters. */
const CLASSES: ReadonlyMap<string, Failure> = new Map<string, Failure>([
  ["08", ["store_unreachable", "retry", "the connection failed"]],
  ["22", ["store_refused", "split", "the server refused a value"]],
  ["23", ["store_refused", "split", "the server refused a row"]],
  ["28", ["store_unreachable", "fail", "the server rejected the login: check the role, its password and pg_hba.conf"]],
  ["40", ["store_busy", "retry", "the transaction conflicted with another"]],
  ["53", ["store_busy", "retry", "the server is out of a resource"]],
  ["54", ["store_refused", "split", "a value is larger than the server can store"]],
  ["57", ["store_unreachable", "retry", "the server ended the connection"]],
  ["XX", ["store_corrupt", "fail", "the server found its data damaged: check its log"]],
]);

export interface ServerError extends Error {
  readonly code: string;
  readonly severity?: string | undefined;
  /** The table that a constraint belongs to. */
  readonly table?: string | undefined;
}

/** Whether the server reported the error, and not the socket or `pg`. */
export function isServerError(error: unknown): error is ServerError {
  return error instanceof Error && "code" in error && typeof error.code === "string" && "severity" in error;
}

/**
 * Whether the connection may have ended with it, so that a COMMIT that was sent may or may not have happened. A severity can be in the
 * server's language, and a pooler can report the end of a connection as a plain error: only codes that never end a connection are definite.
 */
export function isFatal({ severity, code }: ServerError): boolean {
  if (severity === "FATAL" || severity === "PANIC") return true;
  return !/^(0A|21|22|23|25006|25P02|26|28|2B|3|40|42|44|53|54|55|57014|P0)/.test(code);
}

/** A prepared statement is missing, or belongs to another client: a pooler switched the connection. */
export const isUnprepared = ({ code }: ServerError): boolean => code === "26000" || code === "42P05";

/** Whether one of Pawl's own assertions in SQL failed, with this text. */
export function isAssertion(error: unknown, words: string): boolean {
  return isServerError(error) && error.code === "22P02" && error.message.includes(words);
}

/** The connection was lost, or could not be made. */
export class LostConnectionError extends Error {}

/** The server did not reply in time, so the connection was destroyed. */
export class SlowConnectionError extends LostConnectionError {}

/** The pool had no free connection. */
export class PoolExhaustedError extends LostConnectionError {}

/**
 * Returns the error for the kernel if it comes from the server or the connection; otherwise the error itself. `isDoubtful` means that
 * COMMIT was sent.
 */
export function failure(error: unknown, isDoubtful: boolean): unknown {
  if (error instanceof PoolExhaustedError)
    return new StoreError("store_busy", "retry", error.message, { cause: error });
  if (error instanceof LostConnectionError) {
    if (isDoubtful) return unknownOutcome(error);
    if (error instanceof SlowConnectionError)
      return new StoreError("store_unreachable", "halve", error.message, { cause: error });
    const message = `the server cannot be reached: ${error.message}`;
    return new StoreError("store_unreachable", "retry", message, { cause: error.cause ?? error });
  }
  if (!isServerError(error)) return error;
  if (isDoubtful && isFatal(error)) return unknownOutcome(error);
  const [code, remedy, advice] = STATES.get(error.code) ??
    CLASSES.get(error.code.slice(0, 2)) ?? ["store_refused", "fail", "the server refused"];
  return new StoreError(code, remedy, `${advice} (${error.message})`, { cause: error });
}

const unknownOutcome = (cause: Error): StoreError =>
  new StoreError("outcome_unknown", "settle", `the connection was lost while committing: ${cause.message}`, { cause });
