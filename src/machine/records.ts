/**
 * Records of instances, and the decisions on them: what is asked for is checked, decided by the rules of `decide.ts`, and written.
 */

import { checkFunction, checkId, checkOptions, checkVersion, optionNames } from "../kernel/check.ts";
import { type Address, address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { hash } from "../kernel/fingerprint.ts";
import type { Kernel } from "../kernel/kernel.ts";
import {
  type Attribution,
  fieldsOf,
  shown,
  type TransitionOptions,
  type TryCreate,
  type TryTransition,
} from "./answers.ts";
import { type Answer, type Decided, decideCreate, decideTransition, type Instance, isPlain } from "./decide.ts";
import { checkState, type MachineRules } from "./definition.ts";
import { type By, type EventValue, eventSpace, type InstanceValue, instanceSpace } from "./words.ts";

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

interface CreateRequest {
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

export function create<State extends string, Data>(
  tx: Tx,
  rules: MachineRules,
  { id, at, by, data }: CreateRequest,
): TryCreate<State, Data> {
  const record = tx.record(at);
  const now = instanceOf(record);
  if (now !== undefined) return { ok: false, code: "machine_exists", state: now.state as State, version: now.version };
  write(record, undefined, decideCreate(rules, id, data, record.head, by));
  return { ok: true, ...shown<State, Data>(rules, existing(record)) };
}

interface AttemptRequest {
  readonly id: string;
  readonly at: Address;
  readonly eventAt: Address | undefined;
  readonly to: string;
  readonly by: By;
  readonly change: { data: unknown } | { patch: object } | { update: (data: unknown) => unknown } | undefined;
  readonly expectedVersion: number | undefined;
  readonly mayPark: boolean;
}

export function checkAttempt<Data>(
  rules: MachineRules,
  id: unknown,
  to: unknown,
  options: TransitionOptions<Data> = {},
): AttemptRequest {
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
      "must not be given for an event that may be parked: its turn comes at a later version",
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
}): AttemptRequest["change"] {
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

const MAX_REASON = 1_000;

function checkBy({ actor, reason }: Attribution): By {
  if (reason !== undefined && (typeof reason !== "string" || reason.length > MAX_REASON || !reason.isWellFormed()))
    throw new InvalidArgumentError("the reason", `must be a text of at most ${MAX_REASON} characters, well formed`);
  return {
    ...(actor === undefined ? {} : { actor: checkId(actor, "the actor") }),
    ...(reason === undefined ? {} : { reason }),
  };
}

/** One attempt at a move. What it comes to is written, a refusal only if it is to be recorded. */
export function attempt<State extends string, Data>(
  kernel: Kernel,
  tx: Tx,
  rules: MachineRules,
  request: AttemptRequest,
  isRecorded: boolean,
): TryTransition<State, Data> {
  const { id, at, eventAt, by } = request;
  const record = tx.record(at);
  const event = eventAt === undefined ? undefined : tx.record(eventAt);
  const before = instanceOf(record);
  if (before === undefined && !rules.isMadeByEvents) return { ok: false, code: "machine_not_found" };
  // What guards see of it is what will be read again.
  const blank = () => kernel.decode(at, kernel.encode(at, rules.initialData));
  const { event: _event, ...maker } = by;
  const first = before === undefined ? decideCreate(rules, id, blank(), record.head, maker) : undefined;
  const decided = decideTransition(rules, first?.instance ?? (before as Instance), {
    ...request,
    isFirst: first !== undefined,
    remembered: event?.exists === true ? (event.value as EventValue) : undefined,
    nowMs: () => tx.nowMs,
  });
  const { answer, entries, dropped } = decided;
  if (!answer.ok && !isRecorded) return refusalOf(answer);
  write(record, before, { ...decided, entries: [...(first?.entries ?? []), ...entries] });
  if (!answer.ok) return refusalOf(answer);
  if (!answer.deduplicated) event?.write({ value: { to: request.to } satisfies EventValue });
  for (const one of dropped) if (one.event !== undefined) tx.record(eventAddress(rules, id, one.event)).remove();
  return { ...shown<State, Data>(rules, existing(record)), ...answer, applied: answer.applied as readonly State[] };
}

const refusalOf = <State extends string, Data>(answer: Answer & { ok: false }): TryTransition<State, Data> =>
  answer as TryTransition<State, Data>;

function write(record: Draft, before: Instance | undefined, { instance, entries }: Omit<Decided, "answer">): void {
  const { version, data, parked, state } = instance;
  if (instance !== before) {
    const deletedUpTo = before === undefined ? record.head : ((record.value as InstanceValue).deletedUpTo ?? 0);
    const value: InstanceValue = {
      version,
      ...(deletedUpTo === 0 ? {} : { deletedUpTo }),
      ...(data === undefined ? {} : { data }),
      ...(parked.length === 0 ? {} : { parked }),
    };
    record.write({ value, status: state });
  }
  for (const entry of entries) record.append(entry.name, entry.data);
}

export function instanceOf(record: Draft): Instance | undefined {
  if (!record.exists) return undefined;
  const value = record.value as InstanceValue;
  return { id: record.at.key, state: record.status ?? "", ...fieldsOf(value), head: record.head };
}

function existing(record: Draft): Instance {
  const instance = instanceOf(record);
  if (instance === undefined) throw new Error(`${record.at.space} ${record.at.key} was just written`);
  return instance;
}

export const instanceAt = ({ name }: MachineRules, id: unknown): Address =>
  address(instanceSpace(name), checkId(id, "the instance's id"));

/** All events of an instance have keys that begin with this. */
export const eventPrefix = (id: string): string => `${hash(id)}.`;

/** Hashes, because two texts of the user's must not be joined into one key. */
const eventAddress = ({ name }: MachineRules, id: string, event: string): Address =>
  address(eventSpace(name), `${eventPrefix(id)}${hash(event)}`);
