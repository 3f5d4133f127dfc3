/**
 * Errors of machines. In all of them nothing moved.
 */

import { PawlError } from "../kernel/errors.ts";

/** There is no way from the state it is in to the one asked for. `data.allowed` says where it can go. */
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
    const ways =
      allowed.length === 0
        ? "which is final: nothing more can become of it"
        : `which leads to ${allowed.join(", ")}: look at it again, or park what may come early`;
    super("illegal_transition", `${machine} "${id}" cannot become ${to}: it is ${from}, ${ways}`, {
      machine,
      id,
      from,
      to,
      allowed,
    });
  }
}

/** The machine's guard said no. `data.why` is what it said; try again when that has changed. */
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
    super("guard_refused", `${machine} "${id}" must not go from ${from} to ${to} now: ${why}`, {
      machine,
      id,
      from,
      to,
      why,
    });
  }
}

/** There is no such instance, and the machine makes none for an event. `create` it first, or define `unknown: "create"`. */
export class MachineNotFoundError extends PawlError<
  "machine_not_found",
  { readonly machine: string; readonly id: string }
> {
  constructor(machine: string, id: string) {
    super("machine_not_found", `there is no ${machine} "${id}": create it first`, { machine, id });
  }
}

/** An instance of this id exists. Go on with it as it is, or choose another id. */
export class MachineExistsError extends PawlError<
  "machine_exists",
  { readonly machine: string; readonly id: string; readonly state: string; readonly version: number }
> {
  constructor(machine: string, id: string, state: string, version: number) {
    super("machine_exists", `${machine} "${id}" exists already and is ${state}: get it, or choose another id`, {
      machine,
      id,
      state,
      version,
    });
  }
}

/** As many early events wait as may. Send it again later, or raise the machine's `maxParked`. */
export class ParkingFullError extends PawlError<
  "parking_full",
  { readonly machine: string; readonly id: string; readonly to: string; readonly max: number }
> {
  constructor(machine: string, id: string, to: string, max: number) {
    super(
      "parking_full",
      `${machine} "${id}" keeps ${max} early events already, so that ${to} was not kept: send it again later`,
      { machine, id, to, max },
    );
  }
}

/** An event of this id was accepted before, and was another one. Give each event an id of its own. */
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
      `event "${eventId}" of ${machine} "${id}" was ${first} before and is ${to} now: give each event an id of its own`,
      { machine, id, eventId, to, first },
    );
  }
}
