/**
 * API keys, decided: whether a key may be used, and what becomes of its record. Pure.
 */

import { timingSafeEqual } from "node:crypto";

/** What a key may do. None includes another, except that `admin` includes all. */
export const SCOPES = ["read", "write", "operate", "admin"] as const;
export type Scope = (typeof SCOPES)[number];

/** What is stored for a key. Of the key itself there is only a hash. */
export interface KeyValue {
  readonly name: string;
  readonly namespace: string;
  readonly scopes: readonly Scope[];
  readonly hash: string;
  readonly createdAtMs: number;
  readonly expiresAtMs: number | null;
  readonly revokedAtMs: number | null;
  /** The keys before, each as long as it is still accepted. */
  readonly previous: readonly Previous[];
}

interface Previous {
  readonly hash: string;
  readonly untilMs: number;
}

/** When the key with this hash ends: Infinity for never, -Infinity where it was revoked or is not this key. */
export function endOf(key: KeyValue, hash: string): number {
  const { expiresAtMs, revokedAtMs } = key;
  const current = { hash: key.hash, untilMs: Number.POSITIVE_INFINITY };
  // All are compared, so that the time does not say which.
  const [found] = [current, ...key.previous].filter((one) => isSame(one.hash, hash));
  if (revokedAtMs !== null || found === undefined) return Number.NEGATIVE_INFINITY;
  return Math.min(found.untilMs, expiresAtMs ?? Number.POSITIVE_INFINITY);
}

/** Whether the key with this hash may be used now. It ends exactly at its expiry. */
export const isUsable = (key: KeyValue, hash: string, nowMs: number): boolean => nowMs < endOf(key, hash);

const isSame = (a: string, b: string): boolean =>
  a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));

export const mayDo = ({ scopes }: Pick<KeyValue, "scopes">, scope: Scope): boolean =>
  scopes.includes(scope) || scopes.includes("admin");

/** The record with a new key; the last one is accepted for this much longer, those before as long as was said then. Undefined for a key that was revoked. */
export function decideRotate(key: KeyValue, hash: string, graceMs: number, nowMs: number): KeyValue | undefined {
  if (key.revokedAtMs !== null) return undefined;
  const all = [...key.previous, { hash: key.hash, untilMs: nowMs + graceMs }];
  return { ...key, hash, previous: all.filter(({ untilMs }) => untilMs > nowMs) };
}

/** The record of a revoked key; the first revocation counts. */
export const decideRevoke = (key: KeyValue, nowMs: number): KeyValue =>
  key.revokedAtMs === null ? { ...key, revokedAtMs: nowMs, previous: [] } : key;
