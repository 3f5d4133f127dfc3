/**
 * Real time, chance and network for what runs where there is no Node: the client, and the check of webhooks. Only globals that Node, Deno, Bun,
 * browsers and edge runtimes share.
 *
 * Everything else in `http` takes time and chance from the handle. A test of the client gives it another platform.
 */

export interface Platform {
  /** Milliseconds since 1970. The clock may be set at any time. */
  nowMs(): number;
  /** Milliseconds since some moment, for durations. Never less than before. */
  runningMs(): number;
  /** From 0 to 1, without 1. */
  random(): number;
  uuid(): string;
  /** Sends a request. */
  fetch(url: string, init: RequestInit): Promise<Response>;
  /** Calls back after some time, however long; what it returns prevents that. */
  after(ms: number, callback: () => void): () => void;
  /** A key for HMAC with SHA-256. */
  hmacKey(secret: Uint8Array): Promise<HmacKey>;
  /** Compares in constant time. */
  isHmac(key: HmacKey, given: Uint8Array, of: Uint8Array): Promise<boolean>;
}

/** A key of Web Crypto. */
export type HmacKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

/** What Web Crypto takes: bytes that no other thread shares. */
type Bytes = Uint8Array<ArrayBuffer>;

/** `setTimeout` fires immediately for more than 2^31 - 1 milliseconds, so longer waits are split. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export const platform: Platform = {
  nowMs: () => Date.now(),
  runningMs: stopwatch({ nowMs: () => Date.now(), monotonicMs: () => performance.now() }),
  random: () => Math.random(),
  uuid: () => crypto.randomUUID(),
  fetch: (url, init) => fetch(url, init),
  after: (ms, callback) => {
    let timer: ReturnType<typeof setTimeout>;
    const wait = (leftMs: number): void => {
      const partMs = Math.min(leftMs, LONGEST_TIMER_MS);
      timer = setTimeout(() => (leftMs > partMs ? wait(leftMs - partMs) : callback()), partMs);
    };
    wait(ms);
    return () => clearTimeout(timer);
  },
  hmacKey: (secret) =>
    crypto.subtle.importKey("raw", secret as Bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]),
  isHmac: (key, given, of) => crypto.subtle.verify("HMAC", key, given as Bytes, of as Bytes),
};

/** What has passed, by whichever clock says more: one can be set back, the other may stand still while the machine sleeps. */
export function stopwatch({
  nowMs,
  monotonicMs,
}: {
  readonly nowMs: () => number;
  readonly monotonicMs: () => number;
}): () => number {
  let last: readonly [number, number] | undefined;
  let passedMs = 0;
  return () => {
    const now = [nowMs(), monotonicMs()] as const;
    if (last !== undefined) passedMs += Math.max(now[0] - last[0], now[1] - last[1]);
    last = now;
    return passedMs;
  };
}
