/**
 * Waiting for a server that is not up yet: which errors are retried while a store is being opened, and for how long.
 *
 * A process and its database often start together, and a server that restarts is back in seconds. So an attempt is repeated until the
 * caller's time limit if there was no server, if the server was starting or stopping, or if it had no free connection. Errors that waiting
 * does not fix, such as a wrong password, an unknown database or a certificate, are thrown immediately.
 */

import { type Ports, pause } from "../../kernel/ports.ts";
import { isServerError, LostConnectionError, type ServerError } from "./failure.ts";

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1000;

/** Repeats the attempt until it succeeds, fails permanently, or the time is over; then throws the last error. */
export async function retryUntil<T>(
  { clock, chance }: Ports,
  giveUpAtMs: number,
  attempt: () => Promise<T>,
): Promise<T> {
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS))
    try {
      return await attempt();
    } catch (error) {
      const leftMs = giveUpAtMs - clock.nowMs();
      if (leftMs <= 0 || !isTransient(error)) throw error;
      // With jitter, so that many processes do not connect at the same moment. The last attempt is made when the time is over.
      await pause(clock, Math.min(pauseMs * (0.5 + chance.random() / 2), leftMs));
    }
}

/** Whether the same attempt may soon succeed. */
export function isTransient(error: unknown): boolean {
  if (isServerError(error)) return mayServerRecover(error);
  return error instanceof LostConnectionError && (error.cause === undefined || isNetworkError(error.cause));
}

/** The server ended the connection, crashed, is starting or stopping, or has no free connection; or the connection broke. */
function mayServerRecover({ code, message }: ServerError): boolean {
  if (code === "57P01" || code === "57P02" || code === "57P03" || code === "53300") return true;
  // Poolers use this class for a server that is down, and some for wrong credentials and unknown databases.
  return code.startsWith("08") && !/authentication|no such/i.test(message);
}

/** An error of the operating system, or `pg`'s error for a connection that ended or was not made in time. */
function isNetworkError(cause: unknown): boolean {
  if (!(cause instanceof Error)) return false;
  // One error for each address of the host.
  if (cause instanceof AggregateError) return cause.errors.some(isNetworkError);
  if ("syscall" in cause) return SYSTEM_CALLS.has(String(cause.syscall));
  return /^(Connection terminated|timeout expired|timeout exceeded|Client (has encountered|was closed))/.test(
    cause.message,
  );
}

const SYSTEM_CALLS: ReadonlySet<string> = new Set(["connect", "getaddrinfo", "read", "write"]);
