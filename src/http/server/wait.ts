/**
 * Waiting in a request: long polls, and the places that they and event streams take.
 *
 * A request waits for at most `MOST_WAIT_MS`, less than what proxies allow; a client that wants to wait longer asks again. It ends when the client
 * is gone or the server closes, and with 401 when its API key was revoked or has expired. At most `limits.waiting` requests wait at the same time: more of them are not refused, but get an answer immediately.
 */

import { checkDuration, type Duration } from "../../kernel/check.ts";
import { InvalidDurationError, PawlError } from "../../kernel/errors.ts";
import { Problem } from "./problem.ts";
import type { Waiter } from "./route.ts";

const MOST_WAIT_MS = 60_000;

/** How many requests wait. */
export class Waiting {
  readonly #most: number;
  count = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Takes a place, and returns how to free it; undefined if there is none. */
  enter(): (() => void) | undefined {
    if (this.count >= this.#most) return undefined;
    this.count += 1;
    let isIn = true;
    return () => {
      if (isIn) this.count -= 1;
      isIn = false;
    };
  }
}

export type Awaited<T> = { readonly isThere: true; readonly value: T } | { readonly isThere: false };

/** How long a request may wait. */
export function checkWait(wait: Duration): number {
  const ms = checkDuration(wait, "wait");
  if (ms > MOST_WAIT_MS) throw new InvalidDurationError("wait", "must be at most 60 s: ask again to wait longer");
  return ms;
}

/** Calls with a timeout, and says whether there was a result in time. `late` is the code of the error that says that there was none. */
export async function longPoll<T>(
  { abortSignal, enter }: Waiter,
  wait: Duration,
  late: string,
  call: (options: { readonly timeout: number; readonly abortSignal: AbortSignal }) => Promise<T>,
): Promise<Awaited<T>> {
  const ms = checkWait(wait);
  const leave = ms === 0 ? undefined : enter();
  try {
    return { isThere: true, value: await call({ timeout: leave === undefined ? 0 : ms, abortSignal }) };
  } catch (error) {
    const isLate = error instanceof PawlError && error.code === late;
    if (isLate || isCutShort(error, abortSignal)) return { isThere: false };
    throw error;
  } finally {
    leave?.();
  }
}

/** Whether a wait failed because the client is gone or the server closes. The end of the API key is a refusal. */
export const isCutShort = (error: unknown, abortSignal: AbortSignal): boolean =>
  abortSignal.aborted && error === abortSignal.reason && !(error instanceof Problem);
