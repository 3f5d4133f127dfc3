/**
 * What is stored for machines. Names and field names in this file are a stored format: they never change.
 *
 * An instance is one record: its status is its state, its value is `InstanceValue`, and its log is the audit log, whose entries have a name
 * of `ENTRIES` and data of type `EntryData`. Each accepted event with an id has a record of its own, with an `EventValue`.
 */

/** The outcome of an attempted transition. */
export const ENTRIES = [
  /** The instance was created; `to` is its initial state. */
  "created",
  "moved",
  /** The event came too early and is parked. */
  "parked",
  /** A parked event moved the instance. */
  "applied",
  /** The state did not change; `code` says why. With `parked`, the refused event had been parked. */
  "refused",
] as const;

export type EntryName = (typeof ENTRIES)[number];

export const REFUSALS = [
  "illegal_transition",
  "guard_refused",
  "version_conflict",
  "parking_full",
  "event_conflict",
  /** A parked event could not be applied: its guard threw, or its patch does not fit the data. */
  "event_failed",
] as const;

export type RefusalCode = (typeof REFUSALS)[number];

/** Who attempted a transition and why, and the id of its event. */
export interface By {
  readonly actor?: string;
  readonly reason?: string;
  readonly event?: string;
}

/** A change of the data, in a form that can be stored. */
export type Change = { readonly data: unknown } | { readonly patch: object };

/** An event that came too early. */
export interface Parked extends By {
  readonly to: string;
  /** The version of the log entry with which it was parked. */
  readonly entry: number;
  readonly atMs: number;
  readonly change?: Change;
}

export interface InstanceValue {
  /** The version of the log entry that led to the current state. */
  readonly version: number;
  readonly data?: unknown;
  /** In order of arrival. */
  readonly parked?: readonly Parked[];
  /** Log entries up to this version belong to an instance that was deleted. */
  readonly deletedUpTo?: number;
}

export interface EntryData extends By {
  readonly from?: string;
  readonly to: string;
  /** The new data, if the attempt changed it. */
  readonly data?: unknown;
  readonly code?: RefusalCode;
  /** The reason that the guard returned, or the error's message. */
  readonly why?: string;
  /** The version of the log entry with which this event was parked. */
  readonly parked?: number;
}

export interface EventValue {
  readonly to: string;
}

/** Each machine has a space of its own; the keys are the instances' ids. */
export const instanceSpace = (machine: string): string => `machine/${machine}`;
export const eventSpace = (machine: string): string => `machine-event/${machine}`;
