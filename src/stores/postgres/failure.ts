/**
 * PostgreSQL's failures, as what the kernel can act on.
 *
 * An error that the server reports says that the transaction is rolled back, COMMIT included. A connection that breaks, or a
 * server that ends it (severity FATAL), says so only as long as COMMIT was not on its way: after that, the outcome is unknown
 * until the lane's mark is asked.
 */

import { type Remedy, type StoreCode, StoreError } from "../../kernel/errors.ts";

type Failure = readonly [code: StoreCode, remedy: Remedy, advice: string];

/** By SQLSTATE. */
const STATES: ReadonlyMap<string, Failure> = new Map<string, Failure>([
  ["25006", ["store_readonly", "retry", "the server is a standby, or read-only: connect to the primary"]],
  ["25P03", ["store_busy", "halve", "the transaction was idle for too long"]],
  ["26000", ["store_busy", "retry", "a pooler handed the connection on"]],
  ["42P05", ["store_busy", "retry", "a pooler handed the connection on"]],
  ["42501", ["store_unfit", "fail", "the role lacks a right"]],
  ["42P01", ["store_unfit", "fail", "Pawl's tables are not there any more"]],
  ["3F000", ["store_unfit", "fail", "Pawl's schema is not there any more"]],
  ["53100", ["store_full", "fail", "the server's disk is full: make room, and work goes on"]],
  ["53200", ["store_busy", "halve", "the server is out of memory"]],
  [
    "53300",
    ["store_busy", "retry", "the server has no connection to spare: raise max_connections, or use a smaller pool"],
  ],
  ["55P03", ["store_busy", "retry", "another process keeps the rows locked"]],
  ["57014", ["store_busy", "halve", "the statement took too long, or was canceled"]],
  ["57P01", ["store_unreachable", "retry", "the server ended the connection"]],
  ["57P02", ["store_unreachable", "retry", "the server crashed and is coming back"]],
  ["57P03", ["store_unreachable", "retry", "the server is starting or stopping"]],
  ["58030", ["store_io", "fail", "the server could not read or write its files: check its disk"]],
  ["58P01", ["store_io", "fail", "the server misses a file: check its disk"]],
  ["3D000", ["store_unreachable", "fail", "there is no such database: create it"]],
]);

/** By the class of the SQLSTATE, its first two characters. */
const CLASSES: ReadonlyMap<string, Failure> = new Map<string, Failure>([
  ["08", ["store_unreachable", "retry", "the connection failed"]],
  ["22", ["store_refused", "split", "the server refused a value"]],
  ["23", ["store_refused", "split", "the server refused a row"]],
  ["28", ["store_unreachable", "fail", "the server does not let this role in: check name, password and pg_hba.conf"]],
  ["40", ["store_busy", "retry", "another transaction was in the way"]],
  ["53", ["store_busy", "retry", "the server is short of something"]],
  ["54", ["store_refused", "split", "a value is larger than the server can take"]],
  ["57", ["store_unreachable", "retry", "the server ended the connection"]],
  ["XX", ["store_corrupt", "fail", "the server found its data damaged: check its log"]],
]);

export interface ServerError extends Error {
  readonly code: string;
  readonly severity?: string | undefined;
  /** The table that a constraint belongs to. */
  readonly table?: string | undefined;
}

/** Told by the server, and not by the socket or by `pg`. */
export function isServerError(error: unknown): error is ServerError {
  return error instanceof Error && "code" in error && typeof error.code === "string" && "severity" in error;
}

/**
 * Whether the connection may have ended with it, so that a COMMIT on its way may or may not have happened. A severity can be in the
 * server's language, and a pooler can report the end of a connection as a mere error: only codes that never end one are definite.
 */
export function isFatal({ severity, code }: ServerError): boolean {
  if (severity === "FATAL" || severity === "PANIC") return true;
  return !/^(0A|21|22|23|25006|25P02|26|28|2B|3|40|42|44|53|54|55|57014|P0)/.test(code);
}

/** A prepared statement is gone, or is another client's: a pooler handed the connection on. */
export const isUnprepared = ({ code }: ServerError): boolean => code === "26000" || code === "42P05";

/** The words that Pawl's own statements fail with when something is not as it should be. */
export function isAssertion(error: unknown, words: string): boolean {
  return isServerError(error) && error.code === "22P02" && error.message.includes(words);
}

/** The connection was lost, or could not be made. */
export class LostLineError extends Error {}

/** The server did not answer in time, so the connection was given up. */
export class SlowLineError extends LostLineError {}

/** The pool had no connection to spare. */
export class PoolExhaustedError extends LostLineError {}

/** The error for the kernel, if it comes from the server or the way there; otherwise the error itself. `isDoubtful` says that COMMIT was on its way. */
export function failure(error: unknown, isDoubtful: boolean): unknown {
  if (error instanceof PoolExhaustedError)
    return new StoreError("store_busy", "retry", error.message, { cause: error });
  if (error instanceof LostLineError) {
    if (isDoubtful) return unknownOutcome(error);
    if (error instanceof SlowLineError)
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
