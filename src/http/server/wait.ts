/**
 * Waiting in a request: long polls, and the places that they and event streams take.
 *
 * A request waits for at most `MOST_WAIT_MS`, less than what proxies allow; a client that wants to wait longer asks again. It ends when the client
 * is gone or the server closes, and with 401 when its API key was revoked or has expired. At most `limits.waiting` requests wait
 * at the same time, and at most `limits.waitingPerKey` of one key: more long polls are not refused, but get their response immediately. Where all places are
 * taken, a tenant that has fewer than another gets one of that one's: it ends the wait that is the oldest, as if its time were over.
 */

import { checkDuration, type Duration } from "../../kernel/check.ts";
import { InvalidDurationError, PawlError } from "../../kernel/errors.ts";
import { Problem } from "./problem.ts";
import type { Waiter } from "./route.ts";
import type { Reader } from "./unread.ts";

const MOST_WAIT_MS = 60_000;

interface Place {
  readonly reader: Reader;
  readonly end: () => void;
}

/** How many requests wait. */
export class Waiting {
  readonly #most: number;
  readonly #mostPerKey: number;
  readonly #ofKeys = new Map<string, number>();
  /** The places of each tenant, the oldest first. */
  readonly #ofTenants = new Map<string, Set<Place>>();
  count = 0;

  constructor(most: number, mostPerKey: number) {
    this.#most = most;
    this.#mostPerKey = mostPerKey;
  }

  /**
   * Takes a place for a request with this key, and returns how to free it; undefined if there is none. Without keys all places are everyone's. `end` ends
   * the request, for a tenant that has fewer.
   */
  enter(reader: Reader, end: () => void): (() => void) | undefined {
    const { namespace, keyId } = reader;
    if (keyId !== null && this.#of(keyId) >= this.#mostPerKey) return undefined;
    if (this.count >= this.#most) {
      const oldest = this.#oldestOfMost(this.#ofTenants.get(namespace)?.size ?? 0);
      if (oldest === undefined) return undefined;
      this.#leave(oldest);
      oldest.end();
    }
    const place = { reader, end };
    const places = this.#ofTenants.get(namespace) ?? new Set();
    this.#ofTenants.set(namespace, places.add(place));
    this.count += 1;
    if (keyId !== null) this.#ofKeys.set(keyId, this.#of(keyId) + 1);
    return () => this.#leave(place);
  }

  #of(keyId: string): number {
    return this.#ofKeys.get(keyId) ?? 0;
  }

  /** The oldest place of the tenant that has the most, if that has more than one more than these: so two tenants do not take turns in ending each other. */
  #oldestOfMost(own: number): Place | undefined {
    let most: ReadonlySet<Place> | undefined;
    for (const places of this.#ofTenants.values()) if (places.size > (most?.size ?? own + 1)) most = places;
    const [oldest] = most ?? [];
    return oldest;
  }

  #leave(place: Place): void {
    const { namespace, keyId } = place.reader;
    const places = this.#ofTenants.get(namespace);
    if (places?.delete(place) !== true) return;
    if (places.size === 0) this.#ofTenants.delete(namespace);
    this.count -= 1;
    if (keyId === null) return;
    const left = this.#of(keyId) - 1;
    if (left === 0) this.#ofKeys.delete(keyId);
    else this.#ofKeys.set(keyId, left);
  }
}

/** Why a wait ended whose place another tenant got. */
export const DISPLACED = new Error("the place of this request was needed for one of another tenant");

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

/** Whether a wait failed because the client is gone, the server closes, or its place was needed. The end of the API key is a refusal. */
export const isCutShort = (error: unknown, abortSignal: AbortSignal): boolean =>
  abortSignal.aborted && error === abortSignal.reason && !(error instanceof Problem);
