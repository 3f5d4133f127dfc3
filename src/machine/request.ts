/**
 * Requests to create an instance or to move it, checked before any decision runs, and the addresses of their records.
 */

import { checkFunction, checkId, checkOptions, checkText, checkVersion, optionNames } from "../kernel/check.ts";
import { type Address, address } from "../kernel/contract.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { hash } from "../kernel/fingerprint.ts";
import { isPlain, type TransitionAttempt } from "./decide.ts";
import { checkState, type MachineRules } from "./definition.ts";
import type { Attribution, TransitionOptions } from "./results.ts";
import { type By, eventSpace, instanceSpace } from "./stored.ts";

const CREATE_OPTIONS = optionNames<Attribution & { data?: unknown }>({ actor: true, reason: true, data: true });
const TRANSITION_OPTIONS = optionNames<TransitionOptions<unknown>>({
  actor: true,
  reason: true,
  data: true,
  patch: true,
  update: true,
  expectedVersion: true,
  whenEarly: true,
  eventId: true,
});

export interface CreateRequest {
  readonly id: string;
  readonly at: Address;
  readonly by: By;
  readonly data: unknown;
}

export function checkCreate(
  rules: MachineRules,
  id: unknown,
  options: (Attribution & { readonly data?: unknown }) | undefined,
): CreateRequest {
  const at = instanceAt(rules, id);
  checkOptions(options, CREATE_OPTIONS);
  return {
    id: at.key,
    at,
    by: checkBy(options ?? {}),
    data: options?.data === undefined ? rules.initialData : options.data,
  };
}

export interface TransitionRequest
  extends Pick<TransitionAttempt, "to" | "by" | "change" | "expectedVersion" | "mayPark"> {
  readonly id: string;
  readonly at: Address;
  readonly eventAt: Address | undefined;
}

export function checkTransition<Data>(
  rules: MachineRules,
  id: unknown,
  to: unknown,
  options: TransitionOptions<Data> = {},
): TransitionRequest {
  const at = instanceAt(rules, id);
  checkOptions(options, TRANSITION_OPTIONS);
  const { eventId, expectedVersion, whenEarly = "refuse" } = options;
  if (whenEarly !== "refuse" && whenEarly !== "park")
    throw new InvalidArgumentError("whenEarly", 'must be "refuse" or "park"');
  const mayPark = whenEarly === "park";
  const event = eventId === undefined ? undefined : checkId(eventId, "the event's id");
  const change = checkChange(options);
  if (mayPark && change !== undefined && "update" in change)
    throw new InvalidArgumentError("update", "must not be given for an event that may be parked: give a patch");
  if (mayPark && expectedVersion !== undefined)
    throw new InvalidArgumentError(
      "expectedVersion",
      "must not be given for an event that may be parked: it is applied at a later version",
    );
  return {
    id: at.key,
    at,
    eventAt: event === undefined ? undefined : eventAddress(rules, at.key, event),
    to: checkState(rules.targets, to, "the state to enter"),
    by: { ...checkBy(options), ...(event === undefined ? {} : { event }) },
    change,
    expectedVersion: expectedVersion === undefined ? undefined : checkVersion(expectedVersion, "expectedVersion"),
    mayPark,
  };
}

function checkChange(options: {
  readonly data?: unknown;
  readonly patch?: unknown;
  readonly update?: unknown;
}): TransitionRequest["change"] {
  const { data, patch, update } = options;
  const given = [data, patch, update].filter((one) => one !== undefined);
  if (given.length > 1) throw new InvalidArgumentError("data, patch and update", "must not be given together");
  if (update !== undefined) {
    checkFunction(update, "update");
    return { update: update as (data: unknown) => unknown };
  }
  if (patch !== undefined) {
    if (!isPlain(patch)) throw new InvalidArgumentError("the patch", "must be a plain object");
    return { patch };
  }
  return data === undefined ? undefined : { data };
}

const checkBy = ({ actor, reason }: Attribution): By => ({
  ...(actor === undefined ? {} : { actor: checkId(actor, "the actor") }),
  ...(reason === undefined ? {} : { reason: checkText(reason, "the reason") }),
});

export const instanceAt = ({ name }: MachineRules, id: unknown): Address =>
  address(instanceSpace(name), checkId(id, "the instance's id"));

/** The prefix of the keys of all events of an instance. */
export const eventPrefix = (id: string): string => `${hash(id)}.`;

/** The key has hashes of both ids: joined as they are, two pairs of ids could give the same key. */
export const eventAddress = ({ name }: MachineRules, id: string, event: string): Address =>
  address(eventSpace(name), `${eventPrefix(id)}${hash(event)}`);
