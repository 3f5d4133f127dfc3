/**
 * The rules of machines: decides the outcome of an attempt to move an instance.
 *
 * An attempt is legal if the definition has a transition from the instance's state to the requested one, and its guard returns true. An attempt
 * that is not legal yet, but may become legal later, can be parked. Each move then handles the parked events in order of arrival: it applies
 * those that are legal now, and refuses those that can never become legal. So no legal event stays parked.
 *
 * All functions are pure. A decision is a list of log entries, the new instance, and the result for the caller.
 */

import { refusePromise } from "../kernel/decision.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { By, Change, EntryData, EntryName, Parked, RefusalCode } from "./stored.ts";

/** The move that a guard decides about. */
export interface Move<State extends string = string, Data = unknown> {
  readonly id: string;
  readonly from: State;
  readonly to: State;
  /** The data after the move. */
  readonly next: Data;
  readonly actor: string | undefined;
  readonly reason: string | undefined;
  /** The time of the store's clock. */
  readonly nowMs: number;
}

export type AnyGuard = (data: unknown, move: Move) => unknown;

/** The part of a definition that decides about moves. */
export interface Rules {
  readonly initial: string;
  /** By state: the states that it leads to. */
  readonly targets: ReadonlyMap<string, readonly string[]>;
  /** By state: the states that it leads to in one or more moves. */
  readonly reachable: ReadonlyMap<string, ReadonlySet<string>>;
  readonly guards: ReadonlyMap<string, ReadonlyMap<string, AnyGuard>>;
  readonly maxParked: number;
}

export interface Instance {
  readonly id: string;
  readonly state: string;
  /** The version of the log entry that led to this state. */
  readonly version: number;
  readonly data: unknown;
  readonly parked: readonly Parked[];
  /** The version of the last log entry. */
  readonly head: number;
}

export interface TransitionAttempt {
  readonly to: string;
  readonly by: By;
  readonly change: Change | { readonly update: (data: unknown) => unknown } | undefined;
  readonly expectedVersion: number | undefined;
  readonly mayPark: boolean;
  /** The instance was created by this attempt. */
  readonly isFirst: boolean;
  /** The event with this id that was accepted before. */
  readonly remembered: { readonly to: string } | undefined;
  /** Called only where it is needed: reading the clock costs a round trip on some stores. */
  readonly nowMs: () => number;
}

export interface Entry {
  readonly name: EntryName;
  readonly data: EntryData;
}

export type Refusal<State extends string = string> =
  | {
      readonly code: "illegal_transition";
      readonly from: State;
      readonly to: State;
      readonly allowed: readonly State[];
    }
  | { readonly code: "guard_refused"; readonly from: State; readonly to: State; readonly why: string }
  | { readonly code: "version_conflict"; readonly expected: number; readonly current: number }
  | { readonly code: "parking_full"; readonly to: State; readonly max: number }
  | { readonly code: "event_conflict"; readonly eventId: string; readonly to: State; readonly first: string };

export type TransitionResult =
  | {
      readonly ok: true;
      readonly outcome: "moved" | "parked";
      readonly deduplicated: boolean;
      /** The states that parked events moved it to in the same commit. */
      readonly applied: readonly string[];
    }
  | ({ readonly ok: false } & Refusal);

export interface Decided {
  /** The same object as before if it did not change. */
  readonly instance: Instance;
  readonly entries: readonly Entry[];
  /** Parked events that were refused: their ids can be used again. */
  readonly dropped: readonly Parked[];
  readonly result: TransitionResult;
}

const NONE: readonly string[] = [];

/** The states that one move leads to; none from a state that the definition no longer has. */
export const allowedFrom = (rules: Rules, state: string): readonly string[] => rules.targets.get(state) ?? NONE;

export function decideCreate(rules: Rules, id: string, data: unknown, head: number, by: By): Decided {
  const version = head + 1;
  const instance = { id, state: rules.initial, version, data, parked: [], head: version };
  const entry = {
    name: "created",
    data: { to: rules.initial, ...(data === undefined ? {} : { data }), ...by },
  } as const;
  return {
    instance,
    entries: [entry],
    dropped: [],
    result: { ok: true, outcome: "moved", deduplicated: false, applied: [] },
  };
}

export function decideTransition(rules: Rules, now: Instance, attempt: TransitionAttempt): Decided {
  const { to, by, remembered, expectedVersion } = attempt;
  const { state: from } = now;
  if (remembered !== undefined && by.event !== undefined) {
    if (remembered.to !== to)
      return refused(now, attempt, { code: "event_conflict", eventId: by.event, to, first: remembered.to });
    const outcome = now.parked.some(({ event }) => event === by.event) ? "parked" : "moved";
    return { instance: now, entries: [], dropped: [], result: { ok: true, outcome, deduplicated: true, applied: [] } };
  }
  const current = attempt.isFirst ? 0 : now.version;
  if (expectedVersion !== undefined && expectedVersion !== current)
    return refused(now, attempt, { code: "version_conflict", expected: expectedVersion, current });
  const allowed = allowedFrom(rules, from);
  if (!allowed.includes(to)) {
    if (!attempt.mayPark || !canReach(rules, from, to))
      return refused(now, attempt, { code: "illegal_transition", from, to, allowed });
    if (now.parked.length >= rules.maxParked)
      return refused(now, attempt, { code: "parking_full", to, max: rules.maxParked });
    return parked(now, attempt);
  }
  const next = changed(now.data, attempt.change);
  const verdict = checkGuard(rules, now, attempt, next);
  if (verdict !== true) return refused(now, attempt, { code: "guard_refused", from, to, why: verdict });
  const version = now.head + 1;
  const moved: Instance = { ...now, state: to, version, data: next, head: version };
  const data = { from, to, ...(attempt.change === undefined ? {} : { data: next }), ...by };
  const { instance, entries, dropped, applied } = handleParked(rules, moved, attempt.nowMs);
  return {
    instance,
    entries: [{ name: "moved", data }, ...entries],
    dropped,
    result: { ok: true, outcome: "moved", deduplicated: false, applied },
  };
}

const canReach = (rules: Rules, from: string, to: string): boolean => rules.reachable.get(from)?.has(to) ?? false;

function refused(now: Instance, { to, by }: TransitionAttempt, refusal: Refusal): Decided {
  const why = "why" in refusal ? { why: refusal.why } : {};
  const data: EntryData = { from: now.state, to, code: refusal.code, ...why, ...by };
  return {
    instance: now,
    entries: [{ name: "refused", data }],
    dropped: [],
    result: { ok: false, ...refusal },
  };
}

function parked(now: Instance, { to, by, change, nowMs }: TransitionAttempt): Decided {
  const entry = now.head + 1;
  // A function cannot be stored; the check of the options has refused it.
  const stored = change === undefined || "update" in change ? {} : { change };
  const event: Parked = { to, entry, atMs: nowMs(), ...stored, ...by };
  return {
    instance: { ...now, parked: [...now.parked, event], head: entry },
    entries: [{ name: "parked", data: { from: now.state, to, ...by } }],
    dropped: [],
    result: { ok: true, outcome: "parked", deduplicated: false, applied: [] },
  };
}

/** Applies every parked event that is legal now, and refuses those that can never become legal. */
function handleParked(
  rules: Rules,
  moved: Instance,
  nowMs: () => number,
): Pick<Decided, "instance" | "entries" | "dropped"> & { readonly applied: readonly string[] } {
  let instance = moved;
  const entries: Entry[] = [];
  const dropped: Parked[] = [];
  const applied: string[] = [];
  const unpark = (event: Parked): void => {
    instance = { ...instance, parked: instance.parked.filter((one) => one !== event), head: instance.head + 1 };
  };
  const drop = (event: Parked, code: RefusalCode, why?: string): void => {
    const { state: from } = instance;
    unpark(event);
    dropped.push(event);
    const data: EntryData = {
      from,
      to: event.to,
      code,
      ...(why === undefined ? {} : { why }),
      parked: event.entry,
      ...byOf(event),
    };
    entries.push({ name: "refused", data });
  };
  for (;;) {
    const { state: from, parked } = instance;
    const event = parked.find(({ to }) => allowedFrom(rules, from).includes(to));
    if (event === undefined) break;
    const verdict = tryParked(rules, instance, event, nowMs);
    if ("code" in verdict) {
      drop(event, verdict.code, verdict.why);
      continue;
    }
    unpark(event);
    instance = { ...instance, state: event.to, version: instance.head, data: verdict.next };
    const data: EntryData = {
      from,
      to: event.to,
      ...(event.change === undefined ? {} : { data: verdict.next }),
      parked: event.entry,
      ...byOf(event),
    };
    entries.push({ name: "applied", data });
    applied.push(event.to);
  }
  for (const event of instance.parked)
    if (!canReach(rules, instance.state, event.to)) drop(event, "illegal_transition");
  return { instance, entries, dropped, applied };
}

/** Returns the new data, or why a parked event is refused. One that fails must not prevent others from being applied. */
function tryParked(
  rules: Rules,
  now: Instance,
  event: Parked,
  nowMs: () => number,
): { readonly next: unknown } | { readonly code: RefusalCode; readonly why: string } {
  try {
    const next = changed(now.data, event.change);
    const verdict = checkGuard(rules, now, { to: event.to, by: event, nowMs }, next);
    return verdict === true ? { next } : { code: "guard_refused", why: verdict };
  } catch (error) {
    return { code: "event_failed", why: error instanceof Error ? error.message : String(error) };
  }
}

/** Returns true, or the reason why the guard refuses the move. */
function checkGuard(
  rules: Rules,
  { id, state: from, data }: Instance,
  { to, by, nowMs }: Pick<TransitionAttempt, "to" | "by" | "nowMs">,
  next: unknown,
): true | string {
  const guard = rules.guards.get(from)?.get(to);
  if (guard === undefined) return true;
  const { actor, reason } = by;
  const verdict = guard(data, {
    id,
    from,
    to,
    next,
    actor,
    reason,
    get nowMs() {
      return nowMs();
    },
  });
  refusePromise(verdict);
  if (verdict !== true && typeof verdict !== "string")
    throw new InvalidArgumentError(
      `the guard of ${from} to ${to}`,
      "must return true, or the reason for the refusal as a string",
    );
  return verdict;
}

function changed(data: unknown, change: TransitionAttempt["change"]): unknown {
  if (change === undefined) return data;
  if ("update" in change) {
    const next = change.update(data);
    refusePromise(next);
    return next;
  }
  if ("data" in change) return change.data;
  if (data !== undefined && data !== null && !isPlain(data))
    throw new InvalidArgumentError("the patch", "can only change data that is a plain object: give data instead");
  return { ...data, ...change.patch };
}

export function isPlain(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

const byOf = ({ actor, reason, event }: By): By => ({
  ...(actor === undefined ? {} : { actor }),
  ...(reason === undefined ? {} : { reason }),
  ...(event === undefined ? {} : { event }),
});
