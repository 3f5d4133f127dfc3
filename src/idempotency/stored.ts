/**
 * The words that are stored for idempotency keys and for marks of messages. Once stored, a word is for ever.
 *
 * A key is a record in the space "idempotent", or "idempotent/" and the hash of its scope; a mark is one in the space "dedupe/" and the
 * consumer's name. So user text is never joined into a key. A scope is hashed because it is often the token of a caller.
 */

import { type Address, address, newAddress } from "../kernel/contract.ts";
import { hash } from "../kernel/fingerprint.ts";

/** Queues in which records wait for their expiry. */
export const KEYS = "idempotent";
export const MARKS = "dedupe";

export const KEY_STATUSES = ["in_progress", "completed", "failed"] as const;

/** In progress: an attempt began, and its answer is not there. Completed: an answer is stored. Failed: an error is. */
export type KeyStatus = (typeof KEY_STATUSES)[number];

/** What a key's record holds. */
export interface KeyValue {
  /** Tells whether another call under this key is the same request. */
  readonly fingerprint?: string;
  /** When the attempt that is in progress, or that answered, began, by the store's clock. */
  readonly startedAtMs: number;
  /** From then on the key is free again, unless an attempt is in progress. */
  readonly expiresAtMs: number;
  /** What completed it. */
  readonly ok?: unknown;
  /** What failed it. */
  readonly error?: unknown;
}

export const keyAt = (scope: string | undefined, key: string): Address =>
  address(scope === undefined ? KEYS : `${KEYS}/${hash(scope)}`, key);

export const markAt = (consumer: string, messageId: string): Address =>
  newAddress(address(`${MARKS}/${consumer}`, messageId));
