/**
 * Real time, chance and network for what runs where there is no Node: the client, and the check of webhooks. Only globals that Node, Deno, Bun,
 * browsers and edge runtimes share.
 *
 * Everything else in `http` takes time and chance from the handle. A test of the client gives it another platform.
 */

export interface Platform {
  /** Milliseconds since 1970. */
  nowMs(): number;
  /** From 0 to 1, without 1. */
  random(): number;
  uuid(): string;
  /** Sends a request. */
  fetch(url: string, init: RequestInit): Promise<Response>;
  /** Calls back after some time; what it returns prevents that. */
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

export const platform: Platform = {
  nowMs: () => Date.now(),
  random: () => Math.random(),
  uuid: () => crypto.randomUUID(),
  fetch: (url, init) => fetch(url, init),
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
  hmacKey: (secret) =>
    crypto.subtle.importKey("raw", secret as Bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]),
  isHmac: (key, given, of) => crypto.subtle.verify("HMAC", key, given as Bytes, of as Bytes),
};
