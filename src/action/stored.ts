/**
 * The stored shape of actions. The names here are stored, and never change.
 *
 * - `action` has one record for each action, under its *ref*: the hash of its id. A generated id is a secret that allows its holder to use
 *   the action, so it is never stored; an id of the user's own is kept in the value, to be shown.
 * - `action-use/<ref>` has one small record for each consumer key that used an action of several uses, so that one use costs the same
 *   however many there were. `action-payload` has the payload of such an action, so that a use does not write it again.
 * - `action-owner/<hash of the owner>` has a name for each action of an owner, the newest first.
 *
 * The record's log is the audit trail: created, tried, consumed, claimed, abandoned, lapsed, canceled.
 */

import { hash } from "node:crypto";
import { type Address, address } from "../kernel/contract.ts";
import type { Sealed } from "../kernel/seal/ring.ts";

/** The status of a record. Whether an open action is pending, active or expired depends on the clock. */
export type StoredStatus = "open" | "consumed" | "canceled" | "locked";

export type ActionState = "pending" | "active" | "consumed" | "expired" | "canceled" | "locked";

/** The stored status of an action in each state. */
export const STATUS_OF: Readonly<Record<ActionState, StoredStatus>> = {
  pending: "open",
  active: "open",
  expired: "open",
  consumed: "consumed",
  canceled: "canceled",
  locked: "locked",
};

export type ActionEvent = "created" | "tried" | "consumed" | "claimed" | "abandoned" | "lapsed" | "canceled";

/** The queue in which records become due for removal, and leases end. */
export const KIND = "action";
export const ACTIONS = "action";
const USES = "action-use";
const PAYLOADS = "action-payload";
const OWNERS = "action-owner";

/** The request that created it. The same id with another request is refused. */
export interface ActionRequest {
  readonly owner?: string | undefined;
  readonly reason?: string | undefined;
  readonly tags?: readonly string[] | undefined;
  readonly activeAtMs?: number | undefined;
  readonly expiresAtMs?: number | undefined;
  readonly expiresInMs?: number | undefined;
  /** Default: 1. */
  readonly uses?: number | undefined;
  readonly pin?: PinMark | undefined;
}

export interface PinMark {
  /** The id of the pepper that was used for the hash. */
  readonly pepper: string;
  readonly hash: string;
  readonly maxTries: number;
}

export interface Use {
  readonly atMs: number;
  readonly by?: string | undefined;
  readonly reason?: string | undefined;
  /** The hash of the consumer's key, in the record of an action with one use. */
  readonly consumer?: string | undefined;
  /** If it was claimed first. */
  readonly fence?: number | undefined;
}

export interface ActionValue {
  /** The user's own id; a generated one is not kept. */
  readonly id?: string | undefined;
  readonly request: ActionRequest;
  readonly createdAtMs: number;
  /** The version of its first log entry: an action may be created again under the id of one that was swept. */
  readonly from: number;
  readonly expiresAtMs?: number | undefined;
  readonly used: number;
  /** Counted PIN tries: each is counted before it is checked, and refunded if it was right. */
  readonly tries?: number | undefined;
  /** The payload of an action with one use. */
  readonly sealed?: Sealed | undefined;
  readonly last?: Use | undefined;
  /** Who claimed it. The end of the claim is the record's lease. */
  readonly claim?: Omit<Use, "fence"> | undefined;
  /** The fence of the claim that was last abandoned, so that abandoning it again has no effect. */
  readonly abandoned?: number | undefined;
  readonly canceled?: Omit<Use, "consumer" | "fence"> | undefined;
}

/** The hash under which an id is stored. */
export const refOf = (id: string): string => hash("sha256", id, "base64url");

export const isRef = (text: unknown): text is string => typeof text === "string" && /^[\w-]{43}$/.test(text);

export const actionAt = (ref: string): Address => address(ACTIONS, ref);
export const payloadAt = (ref: string): Address => address(PAYLOADS, ref);
export const useSpace = (ref: string): string => `${USES}/${ref}`;
export const useAt = (ref: string, consumer: string): Address => address(useSpace(ref), consumer);

/** The largest time a Date can hold. */
const LATEST_MS = 8.64e15;
const newestFirst = (ms: number): string => String(LATEST_MS - ms).padStart(16, "0");

export const ownerSpace = (owner: string): string => `${OWNERS}/${refOf(owner)}`;
export const ownedAt = (owner: string, createdAtMs: number, ref: string): Address =>
  address(ownerSpace(owner), `${newestFirst(createdAtMs)}.${ref}`);

/** Where the names of an owner's actions from before this time begin. */
export const ownedBefore = (ms: number): string => `${newestFirst(ms)}/`;
export const refOwned = (key: string): string => key.slice(17);
export const isOwnedKey = (text: string): boolean => /^\d{16}[./][\w-]{0,43}$/.test(text);

/** Omits undefined properties, which would otherwise be stored. */
export function compact<T extends object>(parts: T): T {
  const entries = Object.entries(parts).filter(([, part]) => part !== undefined);
  return Object.fromEntries(entries) as T;
}
