/**
 * Errors of machines. When one is thrown, the instance's state has not changed.
 */

import { PawlError } from "../kernel/errors.ts";

/** No transition leads from the instance's state to the requested one. Use a state of `data.allowed`, or park events that may come early. */
export class IllegalTransitionError extends PawlError<
  "illegal_transition",
  {
    readonly machine: string;
    readonly id: string;
    readonly from: string;
    readonly to: string;
    readonly allowed: readonly string[];
  }
> {
  constructor(machine: string, id: string, from: string, to: string, allowed: readonly string[]) {
    const next =
      allowed.length === 0
        ? "which is a final state"
        : `which leads to ${allowed.join(", ")}: read it again, or park events that may come early`;
    super("illegal_transition", `${machine} "${id}" cannot become ${to}: it is ${from}, ${next}`, {
      machine,
      id,
      from,
      to,
      allowed,
    });
  }
}

/** The guard of the transition refused it. `data.why` is the reason that it returned; retry when that has changed. */
export class GuardRefusedError extends PawlError<
  "guard_refused",
  {
    readonly machine: string;
    readonly id: string;
    readonly from: string;
    readonly to: string;
    readonly why: string;
  }
> {
  constructor(machine: string, id: string, from: string, to: string, why: string) {
    super("guard_refused", `the guard of ${machine} "${id}" refused the transition from ${from} to ${to}: ${why}`, {
      machine,
      id,
      from,
      to,
      why,
    });
  }
}

/** There is no instance with this id, and events do not create one. Call `create` first, or define the machine with `unknown: "create"`. */
export class MachineNotFoundError extends PawlError<
  "machine_not_found",
  { readonly machine: string; readonly id: string }
> {
  constructor(machine: string, id: string) {
    super("machine_not_found", `there is no ${machine} "${id}": create it first`, { machine, id });
  }
}

/** An instance with this id exists. Use it as it is, or choose another id. */
export class MachineExistsError extends PawlError<
  "machine_exists",
  { readonly machine: string; readonly id: string; readonly state: string; readonly version: number }
> {
  constructor(machine: string, id: string, state: string, version: number) {
    super("machine_exists", `${machine} "${id}" already exists and is ${state}: get it, or choose another id`, {
      machine,
      id,
      state,
      version,
    });
  }
}

/** The instance has `maxParked` parked events already. Send the event again later, or raise the machine's `maxParked`. */
export class ParkingFullError extends PawlError<
  "parking_full",
  { readonly machine: string; readonly id: string; readonly to: string; readonly max: number }
> {
  constructor(machine: string, id: string, to: string, max: number) {
    super(
      "parking_full",
      `${machine} "${id}" has ${max} parked events, the maximum, so ${to} was not parked: send it again later, or raise maxParked`,
      { machine, id, to, max },
    );
  }
}

/** An event with this id was accepted before, with another target state. Give each event its own id. */
export class EventConflictError extends PawlError<
  "event_conflict",
  {
    readonly machine: string;
    readonly id: string;
    readonly eventId: string;
    readonly to: string;
    readonly first: string;
  }
> {
  constructor(machine: string, id: string, eventId: string, to: string, first: string) {
    super(
      "event_conflict",
      `event "${eventId}" of ${machine} "${id}" was accepted as ${first} before and is ${to} now: give each event its own id`,
      { machine, id, eventId, to, first },
    );
  }
}
