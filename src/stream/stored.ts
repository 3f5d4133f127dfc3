/**
 * What is stored of streams. A stream is one record; its log is the events, and its head is the stream's version. The record's value has the
 * folded states of aggregates. Names here are permanent.
 */

import { checkId } from "../kernel/check.ts";
import { type Address, address } from "../kernel/contract.ts";
import type { Draft } from "../kernel/draft.ts";

export const STREAMS = "stream";

export const streamAt = (id: unknown): Address => address(STREAMS, checkId(id, "the stream's id"));

/** The data of an entry in a stream's log; the entry's name is the name of the event. */
export interface StoredEvent {
  readonly id: string;
  readonly data: unknown;
  /** The shape of the data, where it is not the first one. */
  readonly shape?: number;
  readonly actor?: string;
  readonly correlation?: string;
  readonly causation?: string;
}

/** The state of an aggregate after the first `version` events of the stream. */
export interface Fold {
  /** Which reducers made it (`reducersOf`). */
  readonly by: string;
  readonly version: number;
  readonly state: unknown;
}

export interface StreamValue {
  /** By the aggregate's name; the newest first. Several where processes have different reducers, as during a deploy. */
  readonly folds?: Readonly<Record<string, readonly Fold[]>>;
}

/** How many folds of one aggregate are kept for different reducers. */
const MOST_FOLDS = 3;

export function foldOf(stream: Draft, aggregate: string, by: string): Fold | undefined {
  const { folds } = (stream.value ?? {}) as StreamValue;
  return folds !== undefined && Object.hasOwn(folds, aggregate)
    ? folds[aggregate]?.find((one) => one.by === by)
    : undefined;
}

/** Stores the fold in place of an older one by the same reducers. */
export function withFold(value: StreamValue, aggregate: string, fold: Fold): StreamValue {
  const { folds = {} } = value;
  const others = Object.hasOwn(folds, aggregate) ? (folds[aggregate] ?? []) : [];
  const kept = [fold, ...others.filter(({ by }) => by !== fold.by)].slice(0, MOST_FOLDS);
  return { ...value, folds: { ...folds, [aggregate]: kept } };
}
