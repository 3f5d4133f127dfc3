/**
 * What callers are told about machines: the types of every answer, and the errors that refusals are thrown as.
 */

import type { Unreadable } from "../kernel/encoding.ts";
import { type PawlError, VersionConflictError } from "../kernel/errors.ts";
import { allowedFrom, type Instance } from "./decide.ts";
import type { MachineRules } from "./definition.ts";
import {
  EventConflictError,
  GuardRefusedError,
  IllegalTransitionError,
  MachineExistsError,
  MachineNotFoundError,
  ParkingFullError,
} from "./errors.ts";
import type { EntryName, InstanceValue, Parked, RefusalCode } from "./words.ts";

/** An instance as it is. */
export interface MachineInstance<State extends string = string, Data = unknown> {
  readonly id: string;
  readonly state: State;
  /** Frozen. */
  readonly data: Data;
  /** The version of the log entry that brought it here; it rises with each move, and with nothing else. */
  readonly version: number;
  /** Where it can go at once, if no guard is against it. */
  readonly allowed: readonly State[];
  /** Events that came early, first come first. */
  readonly parked: readonly ParkedEvent<State>[];
}

export interface ParkedEvent<State extends string = string> {
  readonly to: State;
  readonly at: Date;
  readonly actor?: string;
  readonly reason?: string;
  readonly eventId?: string;
}

/** Who did it and why, for the audit log. */
export interface Attribution {
  readonly actor?: string | undefined;
  readonly reason?: string | undefined;
}

export type CreateOptions<Given> = Attribution &
  (undefined extends Given ? { readonly data?: Given } : { readonly data: Given });

/** Options come last, and are needed where data is. */
export type WithData<Given> = undefined extends Given
  ? [options?: CreateOptions<Given>]
  : [options: CreateOptions<Given>];

/** At most one of `data`, `patch` and `update`. */
export interface TransitionOptions<Data> extends Attribution {
  /** The data from now on. */
  readonly data?: Data;
  /** Parts of the data to replace; the rest stays. What is parked should use this, as others may change the data meanwhile. */
  readonly patch?: (Data extends object ? Partial<Data> : never) | undefined;
  /** Makes the new data of the old: a decision, pure and synchronous. It cannot be parked. */
  readonly update?: ((data: Data) => Data) | undefined;
  /** Refuse unless the instance is at this version. */
  readonly expectedVersion?: number | undefined;
  /** What to do about a state that cannot be entered yet, but perhaps later: "refuse" unless said otherwise. */
  readonly whenEarly?: "refuse" | "park" | undefined;
  /** The same event again has no effect. One that was refused is not remembered, and may be sent again. */
  readonly eventId?: string | undefined;
}

export interface Transitioned<State extends string = string, Data = unknown> extends MachineInstance<State, Data> {
  /** Whether it moved, or the event waits for its turn. */
  readonly outcome: "moved" | "parked";
  /** The event was accepted before, so that nothing happened now. */
  readonly deduplicated: boolean;
  /** The states that it went on to in the same commit, because events were waiting. */
  readonly applied: readonly State[];
}

export type TransitionRefusal<State extends string = string> =
  | {
      readonly code: "illegal_transition";
      readonly from: State;
      readonly to: State;
      readonly allowed: readonly State[];
    }
  | { readonly code: "guard_refused"; readonly from: State; readonly to: State; readonly why: string }
  | { readonly code: "version_conflict"; readonly expected: number; readonly current: number }
  | { readonly code: "parking_full"; readonly to: State; readonly max: number }
  | { readonly code: "event_conflict"; readonly eventId: string; readonly to: State; readonly first: string }
  | { readonly code: "machine_not_found" };

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
  /** Null where the instance was made. */
  readonly from: State | null;
  readonly to: State;
  readonly actor?: string;
  readonly reason?: string;
  readonly eventId?: string;
  /** The data from here on, if this changed it. */
  readonly data?: unknown;
  /** Why it was refused. */
  readonly code?: RefusalCode;
  /** What the guard said. */
  readonly why?: string;
  /** The version of the entry that says that this event was parked. */
  readonly parkedAs?: number;
}

export interface MachineListOptions<State extends string = string> {
  /** Only instances in this state, or one of these. */
  readonly state?: State | readonly State[] | undefined;
  /** Only instances after this id: the `next` of the page before. */
  readonly after?: string | null | undefined;
  readonly limit?: number | undefined;
}

export interface MachinePage<State extends string = string, Data = unknown> {
  readonly instances: readonly MachineInstance<State, Data>[];
  /** Instances of this page whose records cannot be read: written with another codec key, or damaged. */
  readonly unreadable: readonly Unreadable[];
  /** Where to go on, or null at the end. */
  readonly next: string | null;
}

export const fieldsOf = ({ version, data, parked }: InstanceValue): Pick<Instance, "version" | "data" | "parked"> => ({
  version,
  data,
  parked: parked ?? [],
});

export function shown<State extends string, Data>(
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
    parked: parked.map((event) => shownParked<State>(event)),
  };
}

const shownParked = <State extends string>({ to, atMs, actor, reason, event }: Parked): ParkedEvent<State> => ({
  to: to as State,
  at: new Date(atMs),
  ...(actor === undefined ? {} : { actor }),
  ...(reason === undefined ? {} : { reason }),
  ...(event === undefined ? {} : { eventId: event }),
});

export function made<State extends string, Data>(
  rules: MachineRules,
  id: string,
  answer: TryCreate<State, Data>,
): MachineInstance<State, Data> {
  if (!answer.ok) throw new MachineExistsError(rules.name, id, answer.state, answer.version);
  const { ok: _ok, ...instance } = answer;
  return instance;
}

export function moved<State extends string, Data>(
  rules: MachineRules,
  id: string,
  answer: TryTransition<State, Data>,
): Transitioned<State, Data> {
  if (!answer.ok) throw refusal(rules.name, id, answer);
  const { ok: _ok, ...transitioned } = answer;
  return transitioned;
}

function refusal(machine: string, id: string, answer: TransitionRefusal): PawlError {
  switch (answer.code) {
    case "illegal_transition":
      return new IllegalTransitionError(machine, id, answer.from, answer.to, answer.allowed);
    case "guard_refused":
      return new GuardRefusedError(machine, id, answer.from, answer.to, answer.why);
    case "version_conflict":
      return new VersionConflictError(`${machine} "${id}"`, answer.expected, answer.current);
    case "parking_full":
      return new ParkingFullError(machine, id, answer.to, answer.max);
    case "event_conflict":
      return new EventConflictError(machine, id, answer.eventId, answer.to, answer.first);
    case "machine_not_found":
      return new MachineNotFoundError(machine, id);
  }
}
