/**
 * Reaching a server that is not up yet: what is tried again while a store is being opened, and for how long.
 *
 * A process and its database often start together, and a server that restarts is back in seconds. So an attempt that found no server, one
 * that is starting or stopping, or one without a connection to spare is repeated until the caller's patience ends. What waiting does not
 * cure, such as a wrong password, an unknown database or a certificate, fails immediately.
 */

import { type Ports, pause } from "../../kernel/ports.ts";
import { isServerError, LostLineError, type ServerError } from "./failure.ts";

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1000;

/** Attempts until one succeeds, fails for good, or the time is over; then throws what the last one threw. */
export async function patiently<T>(
  { clock, chance }: Ports,
  giveUpAtMs: number,
  attempt: () => Promise<T>,
): Promise<T> {
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS))
    try {
      return await attempt();
    } catch (error) {
      const leftMs = giveUpAtMs - clock.nowMs();
      if (leftMs <= 0 || !mayPass(error)) throw error;
      // With jitter, so that the processes of a fleet do not knock together; the last attempt is made when the time is over.
      await pause(clock, Math.min(pauseMs * (0.5 + chance.random() / 2), leftMs));
    }
}

/** Whether the same may work in a moment. */
export function mayPass(error: unknown): boolean {
  if (isServerError(error)) return mayServerRecover(error);
  return error instanceof LostLineError && (error.cause === undefined || isOfTheWay(error.cause));
}

/** The server ended the connection, crashed, is starting or stopping; it has no connection to spare; or the connection broke. */
function mayServerRecover({ code, message }: ServerError): boolean {
  if (code === "57P01" || code === "57P02" || code === "57P03" || code === "53300") return true;
  // Poolers use this class for a server that is down, and some for what `authentication` and `no such` say.
  return code.startsWith("08") && !/authentication|no such/i.test(message);
}

/** What the operating system says of a way that is closed, or `pg` of a connection that ended or was not made in time. */
function isOfTheWay(cause: unknown): boolean {
  if (!(cause instanceof Error)) return false;
  // One error for each address of the host.
  if (cause instanceof AggregateError) return cause.errors.some(isOfTheWay);
  if ("syscall" in cause) return SYSTEM_CALLS.has(String(cause.syscall));
  return /^(Connection terminated|timeout expired|timeout exceeded|Client (has encountered|was closed))/.test(
    cause.message,
  );
}

const SYSTEM_CALLS: ReadonlySet<string> = new Set(["connect", "getaddrinfo", "read", "write"]);
