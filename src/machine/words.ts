/**
 * The words that are stored for machines. Once stored, a word is for ever.
 *
 * An instance is one record: its status is the state it is in, its value is `InstanceValue`, its log is the audit log, whose entries have
 * the names of `ENTRIES` and data of the form `EntryData`. An event that came with an id leaves a record of its own.
 */

/** What an attempt came to. */
export const ENTRIES = [
  /** The instance was made; `to` is its first state. */
  "created",
  "moved",
  /** The event came early, and waits. */
  "parked",
  /** An event that waited has had its turn, and moved the instance. */
  "applied",
  /** Nothing moved; `code` says why. With `parked`, it is an event that had waited. */
  "refused",
] as const;

export type EntryName = (typeof ENTRIES)[number];

/** Why nothing moved. */
export const REFUSALS = [
  "illegal_transition",
  "guard_refused",
  "version_conflict",
  "parking_full",
  "event_conflict",
  /** An event that waited had its turn, and could not be applied: its guard threw, or its patch does not fit. */
  "event_failed",
] as const;

export type RefusalCode = (typeof REFUSALS)[number];

/** Who is behind an attempt, and under which id its event came. */
export interface By {
  readonly actor?: string;
  readonly reason?: string;
  readonly event?: string;
}

/** What an attempt makes of the data, in the form that can be kept. */
export type Change = { readonly data: unknown } | { readonly patch: object };

/** An event that came early. */
export interface Parked extends By {
  readonly to: string;
  /** The version of the log entry that says so. */
  readonly entry: number;
  readonly atMs: number;
  readonly change?: Change;
}

/** What an instance's record holds besides its state. */
export interface InstanceValue {
  /** The version of the log entry that brought it where it is. */
  readonly version: number;
  readonly data?: unknown;
  /** First come first. */
  readonly parked?: readonly Parked[];
  /** Entries of the log up to this one are of an instance that was deleted. */
  readonly deletedUpTo?: number;
}

/** What an entry of the audit log holds. */
export interface EntryData extends By {
  readonly from?: string;
  readonly to: string;
  /** The data from here on, where the attempt changed it. */
  readonly data?: unknown;
  readonly code?: RefusalCode;
  /** What the guard said, or what went wrong. */
  readonly why?: string;
  /** The entry that says that this event was parked. */
  readonly parked?: number;
}

/** What the record of an event that was accepted holds. */
export interface EventValue {
  readonly to: string;
}

/** Instances of one machine are a space of their own, and their ids are its keys. */
export const instanceSpace = (machine: string): string => `machine/${machine}`;
export const eventSpace = (machine: string): string => `machine-event/${machine}`;
