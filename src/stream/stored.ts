/**
 * What is stored of streams. A stream is one record; its log is the events, and its head is the stream's version. The record's value has the
 * folded states of aggregates, sealed where the stream has personal events, and what was done when the stream was closed or pruned. Names here are
 * permanent.
 */

import { checkId } from "../kernel/check.ts";
import { type Address, address } from "../kernel/contract.ts";
import type { Sealed } from "../kernel/seal/ring.ts";
import type { StoredPersonal } from "./personal/stored.ts";

export const STREAMS = "stream";

export const streamAt = (id: unknown): Address => address(STREAMS, checkId(id, "the stream's id"));

/** The data of an entry in a stream's log; the entry's name is the name of the event. */
export interface StoredEvent {
  readonly id: string;
  /** Without the personal fields, where there are some. */
  readonly data: unknown;
  readonly personal?: StoredPersonal;
  /** The shape of the data, where it is not the first one. */
  readonly shape?: number;
  readonly actor?: string;
  readonly correlation?: string;
  readonly causation?: string;
  /** When it was committed in the store that it was imported from. */
  readonly atMs?: number;
}

/** The state of an aggregate after the first `version` events of the stream. */
export interface Fold {
  /** Which reducers made it (`reducersOf`). */
  readonly by: string;
  readonly version: number;
  readonly state: unknown;
}

/** A fold as it is stored. */
export type StoredFold =
  | Fold
  /** In a stream with personal events: the encoded state, sealed with the stream's key. */
  | (Omit<Fold, "state"> & { readonly sealed: string });

export interface StreamValue {
  /** By the aggregate's name; the newest first. Several where processes have different reducers, as during a deploy. */
  readonly folds?: Readonly<Record<string, readonly StoredFold[]>>;
  /** The stream has personal events. */
  readonly personal?: {
    /** How often its folds were dropped because a person was forgotten: what was folded before that is not used any more. */
    readonly erased: number;
    /** What its folds are sealed with, itself sealed by the key ring. */
    readonly key?: Sealed;
  };
  /** The first version that the store keeps. Default: 1. It is raised before events are removed, so that no reader takes the rest for all. */
  readonly firstVersion?: number;
  /** The names of the events that were removed; none where they are too many to list. */
  readonly removedNames?: readonly string[];
  /** The position of the last event that was removed, in the order of all streams. */
  readonly removedUpTo?: number;
  /** The version of `REMOVED` that was written with it: later removals have higher ones. */
  readonly removedAt?: number;
  /** The stream is closed: its last entry is the tombstone. */
  readonly closed?: Closed;
  /** The last closing after which the stream was restarted, so that a repeated call finds that it was done. */
  readonly restarted?: Restarted;
}

export interface Closed {
  /** The version of the tombstone. */
  readonly version: number;
  /** How many events were archived; there once they may be removed. */
  readonly archived?: number;
}

export interface Restarted {
  /** The version of the tombstone before it. */
  readonly version: number;
  readonly archived: number;
  /** The version of the opening event, and a hash of it. */
  readonly at: number;
  readonly hash: string;
}

/**
 * One record for all streams: the highest position of a removed event. Readers of all streams that are past it lack nothing. It is written with each
 * removal, so its version tells whether there was one since.
 */
export const REMOVED = address("stream-removed", "all");

export interface RemovedValue {
  readonly upTo: number;
}

/** The name of a tombstone. No event type has it. */
export const CLOSED_EVENT = "$closed";

/** The statuses of streams: closed to appends and commands; open, with events removed. Others have none. */
export const CLOSED = "closed";
export const PRUNED = "pruned";

export function statusOf(value: StreamValue): string | null {
  if (value.closed !== undefined) return CLOSED;
  return firstVersionOf(value) > 1 ? PRUNED : null;
}

/** The first version that the store keeps. */
export const firstVersionOf = ({ firstVersion = 1 }: StreamValue): number => firstVersion;

/** How many folds of one aggregate are kept for different reducers. */
const MOST_FOLDS = 3;

export function foldOf({ folds }: StreamValue, aggregate: string, by: string): StoredFold | undefined {
  return folds !== undefined && Object.hasOwn(folds, aggregate)
    ? folds[aggregate]?.find((one) => one.by === by)
    : undefined;
}

/** Stores the fold in place of an older one by the same reducers. */
export function withFold(value: StreamValue, aggregate: string, fold: StoredFold): StreamValue {
  const { folds = {} } = value;
  const others = Object.hasOwn(folds, aggregate) ? (folds[aggregate] ?? []) : [];
  const kept = [fold, ...others.filter(({ by }) => by !== fold.by)].slice(0, MOST_FOLDS);
  return { ...value, folds: { ...folds, [aggregate]: kept } };
}
