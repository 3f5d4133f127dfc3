/**
 * The options and results of machines, and the errors that refusals become.
 */

import type { Unreadable } from "../kernel/encoding.ts";
import { type PawlError, VersionConflictError } from "../kernel/errors.ts";
import { allowedFrom, type Instance, type Refusal } from "./decide.ts";
import type { MachineRules } from "./definition.ts";
import {
  EventConflictError,
  GuardRefusedError,
  IllegalTransitionError,
  MachineExistsError,
  MachineNotFoundError,
  ParkingFullError,
} from "./errors.ts";
import type { EntryName, InstanceValue, Parked, RefusalCode } from "./stored.ts";

/** An instance at one moment. */
export interface MachineInstance<State extends string = string, Data = unknown> {
  readonly id: string;
  readonly state: State;
  /** Frozen. */
  readonly data: Data;
  /** The version of the log entry that led to this state. It increases only with a move. */
  readonly version: number;
  /** The states that one move leads to, if no guard refuses it. */
  readonly allowed: readonly State[];
  /** Events that came too early, in order of arrival. */
  readonly parked: readonly ParkedEvent<State>[];
}

export interface ParkedEvent<State extends string = string> {
  readonly to: State;
  readonly at: Date;
  readonly actor?: string;
  readonly reason?: string;
  readonly eventId?: string;
}

/** Who makes the attempt and why, for the audit log. */
export interface Attribution {
  readonly actor?: string | undefined;
  readonly reason?: string | undefined;
}

export type CreateOptions<Given> = Attribution &
  (undefined extends Given ? { readonly data?: Given } : { readonly data: Given });

/** The options are required where `data` is. */
export type WithData<Given> = undefined extends Given
  ? [options?: CreateOptions<Given>]
  : [options: CreateOptions<Given>];

/** At most one of `data`, `patch` and `update`. */
export interface TransitionOptions<Data> extends Attribution {
  /** Replaces the data. */
  readonly data?: Data;
  /** Replaces these properties of the data. Use it for events that may be parked: other events can change the data meanwhile. */
  readonly patch?: (Data extends object ? Partial<Data> : never) | undefined;
  /** Returns the new data. Must be pure and synchronous. Cannot be used with an event that may be parked. */
  readonly update?: ((data: Data) => Data) | undefined;
  /** Refuses the transition unless the instance has this version. */
  readonly expectedVersion?: number | undefined;
  /** What to do when the state cannot be entered yet, but perhaps later. Default: "refuse". */
  readonly whenEarly?: "refuse" | "park" | undefined;
  /** A second event with the same id has no effect. A refused event is not remembered and can be sent again. */
  readonly eventId?: string | undefined;
}

export interface Transitioned<State extends string = string, Data = unknown> extends MachineInstance<State, Data> {
  /** Whether the instance moved, or the event was parked. */
  readonly outcome: "moved" | "parked";
  /** The event was accepted before; this call changed nothing. */
  readonly deduplicated: boolean;
  /** The states that parked events then moved it to, in the same commit. */
  readonly applied: readonly State[];
}

export type TransitionRefusal<State extends string = string> = Refusal<State> | { readonly code: "machine_not_found" };

export type TryTransition<State extends string = string, Data = unknown> =
  | ({ readonly ok: true } & Transitioned<State, Data>)
  | ({ readonly ok: false } & TransitionRefusal<State>);

export type TryCreate<State extends string = string, Data = unknown> =
  | ({ readonly ok: true } & MachineInstance<State, Data>)
  | { readonly ok: false; readonly code: "machine_exists"; readonly state: State; readonly version: number };

/** One entry of the audit log. */
export interface MachineEvent<State extends string = string> {
  readonly version: number;
  readonly at: Date;
  readonly outcome: EntryName;
  /** Null when the instance was created. */
  readonly from: State | null;
  readonly to: State;
  readonly actor?: string;
  readonly reason?: string;
  readonly eventId?: string;
  /** The new data, if this attempt changed it. */
  readonly data?: unknown;
  /** Why it was refused. */
  readonly code?: RefusalCode;
  /** The reason that the guard returned. */
  readonly why?: string;
  /** The version of the entry with which this event was parked. */
  readonly parkedAs?: number;
}

export interface MachineListOptions<State extends string = string> {
  /** Only instances in this state, or in one of these. */
  readonly state?: State | readonly State[] | undefined;
  /** Only instances after this id: the `next` of the previous page. */
  readonly after?: string | null | undefined;
  /** Default: 100. At most 1000. */
  readonly limit?: number | undefined;
}

export interface MachinePage<State extends string = string, Data = unknown> {
  readonly instances: readonly MachineInstance<State, Data>[];
  /** Instances of this page whose records cannot be read: written with another codec key, or damaged. */
  readonly unreadable: readonly Unreadable[];
  /** The `after` of the next page, or null at the end. */
  readonly next: string | null;
}

export const fieldsOf = ({ version, data, parked }: InstanceValue): Pick<Instance, "version" | "data" | "parked"> => ({
  version,
  data,
  parked: parked ?? [],
});

export function toPublic<State extends string, Data>(
  rules: MachineRules,
  instance: Instance,
): MachineInstance<State, Data> {
  const { id, state, version, data, parked } = instance;
  return {
    id,
    state: state as State,
    data: data as Data,
    version,
    allowed: allowedFrom(rules, state) as readonly State[],
    parked: parked.map((event) => toPublicParked<State>(event)),
  };
}

const toPublicParked = <State extends string>({ to, atMs, actor, reason, event }: Parked): ParkedEvent<State> => ({
  to: to as State,
  at: new Date(atMs),
  ...(actor === undefined ? {} : { actor }),
  ...(reason === undefined ? {} : { reason }),
  ...(event === undefined ? {} : { eventId: event }),
});

export function createdOrThrow<State extends string, Data>(
  rules: MachineRules,
  id: string,
  result: TryCreate<State, Data>,
): MachineInstance<State, Data> {
  if (!result.ok) throw new MachineExistsError(rules.name, id, result.state, result.version);
  const { ok: _ok, ...instance } = result;
  return instance;
}

export function movedOrThrow<State extends string, Data>(
  rules: MachineRules,
  id: string,
  result: TryTransition<State, Data>,
): Transitioned<State, Data> {
  if (!result.ok) throw refusalError(rules.name, id, result);
  const { ok: _ok, ...transitioned } = result;
  return transitioned;
}

function refusalError(machine: string, id: string, refusal: TransitionRefusal): PawlError {
  switch (refusal.code) {
    case "illegal_transition":
      return new IllegalTransitionError(machine, id, refusal.from, refusal.to, refusal.allowed);
    case "guard_refused":
      return new GuardRefusedError(machine, id, refusal.from, refusal.to, refusal.why);
    case "version_conflict":
      return new VersionConflictError(`${machine} "${id}"`, refusal.expected, refusal.current);
    case "parking_full":
      return new ParkingFullError(machine, id, refusal.to, refusal.max);
    case "event_conflict":
      return new EventConflictError(machine, id, refusal.eventId, refusal.to, refusal.first);
    case "machine_not_found":
      return new MachineNotFoundError(machine, id);
  }
}
