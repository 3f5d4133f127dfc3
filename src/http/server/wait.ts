/**
 * Waiting in a request: long polls, and the places that they and event streams take.
 *
 * A request waits for at most `MOST_WAIT_MS`, less than what proxies allow; a client that wants to wait longer asks again. It ends when the client
 * is gone or the server closes, and with 401 when its API key was revoked or has expired. At most `limits.waiting` requests wait
 * at the same time, and at most `limits.waitingPerKey` of one key: more long polls are not refused, but get their response immediately.
 */

import { checkDuration, type Duration } from "../../kernel/check.ts";
import { InvalidDurationError, PawlError } from "../../kernel/errors.ts";
import { Problem } from "./problem.ts";
import type { Waiter } from "./route.ts";

const MOST_WAIT_MS = 60_000;

/** How many requests wait. */
export class Waiting {
  readonly #most: number;
  readonly #mostPerKey: number;
  readonly #ofKeys = new Map<string, number>();
  count = 0;

  constructor(most: number, mostPerKey: number) {
    this.#most = most;
    this.#mostPerKey = mostPerKey;
  }

  /** Takes a place for a request with this key, and returns how to free it; undefined if there is none. Without keys all places are everyone's. */
  enter(keyId: string | null): (() => void) | undefined {
    if (this.count >= this.#most || (keyId !== null && this.#of(keyId) >= this.#mostPerKey)) return undefined;
    this.#change(keyId, 1);
    let isIn = true;
    return () => {
      if (isIn) this.#change(keyId, -1);
      isIn = false;
    };
  }

  #of(keyId: string): number {
    return this.#ofKeys.get(keyId) ?? 0;
  }

  #change(keyId: string | null, by: 1 | -1): void {
    this.count += by;
    if (keyId === null) return;
    const count = this.#of(keyId) + by;
    if (count === 0) this.#ofKeys.delete(keyId);
    else this.#ofKeys.set(keyId, count);
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
