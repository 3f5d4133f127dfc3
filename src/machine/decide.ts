/**
 * Machines, as rules: what becomes of an attempt to move an instance.
 *
 * An attempt is legal if the definition leads from the state the instance is in to the one asked for, and the guard of that way says yes. One
 * that is not legal but may become so can be parked. Each move looks at what is parked, first come first: whatever has become legal is applied
 * at once, and what can never become so is refused. So nothing that is legal is ever left waiting.
 *
 * Everything here is plain values in and out. What an attempt came to is a list of log entries, the instance as it is then, and the answer.
 */

import { refusePromise } from "../kernel/decision.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { By, Change, EntryData, EntryName, Parked, RefusalCode } from "./words.ts";

/** What a guard is told besides the data as it is. */
export interface Move<State extends string = string, Data = unknown> {
  readonly id: string;
  readonly from: State;
  readonly to: State;
  /** The data as it will be. */
  readonly next: Data;
  readonly actor: string | undefined;
  readonly reason: string | undefined;
  /** The store's clock. */
  readonly nowMs: number;
}

export type AnyGuard = (data: unknown, move: Move) => unknown;

/** A definition, as far as moving goes. */
export interface Rules {
  readonly initial: string;
  /** Where each state leads to. */
  readonly targets: ReadonlyMap<string, readonly string[]>;
  /** Where each state leads to in one move or more. */
  readonly reachable: ReadonlyMap<string, ReadonlySet<string>>;
  readonly guards: ReadonlyMap<string, ReadonlyMap<string, AnyGuard>>;
  readonly maxParked: number;
}

export interface Instance {
  readonly id: string;
  readonly state: string;
  /** The version of the log entry that brought it here. */
  readonly version: number;
  readonly data: unknown;
  readonly parked: readonly Parked[];
  /** The version of the last log entry. */
  readonly head: number;
}

export interface Attempt {
  readonly to: string;
  readonly by: By;
  readonly change: Change | { readonly update: (data: unknown) => unknown } | undefined;
  readonly expectedVersion: number | undefined;
  readonly mayPark: boolean;
  /** The instance was made for this attempt. */
  readonly isFirst: boolean;
  /** The event of this id that was accepted before. */
  readonly remembered: { readonly to: string } | undefined;
  /** Asked for only where it is needed: the clock costs a round trip on some stores. */
  readonly nowMs: () => number;
}

export interface Entry {
  readonly name: EntryName;
  readonly data: EntryData;
}

export type Refusal =
  | {
      readonly code: "illegal_transition";
      readonly from: string;
      readonly to: string;
      readonly allowed: readonly string[];
    }
  | { readonly code: "guard_refused"; readonly from: string; readonly to: string; readonly why: string }
  | { readonly code: "version_conflict"; readonly expected: number; readonly current: number }
  | { readonly code: "parking_full"; readonly to: string; readonly max: number }
  | { readonly code: "event_conflict"; readonly eventId: string; readonly to: string; readonly first: string };

export type Answer =
  | {
      readonly ok: true;
      readonly outcome: "moved" | "parked";
      readonly deduplicated: boolean;
      /** Where events that had waited took it in the same commit. */
      readonly applied: readonly string[];
    }
  | ({ readonly ok: false } & Refusal);

export interface Decided {
  /** The very same as before if it did not change. */
  readonly instance: Instance;
  readonly entries: readonly Entry[];
  /** Events that had waited and were refused: their ids are free again. */
  readonly dropped: readonly Parked[];
  readonly answer: Answer;
}

const NOWHERE: readonly string[] = [];

/** Where it can go at once; nowhere from a state that the definition does not know any more. */
export const allowedFrom = (rules: Rules, state: string): readonly string[] => rules.targets.get(state) ?? NOWHERE;

/** A new instance is in the machine's first state. */
export function decideCreate(
  rules: Rules,
  id: string,
  data: unknown,
  head: number,
  by: By,
): Decided & { answer: { ok: true } } {
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
    answer: { ok: true, outcome: "moved", deduplicated: false, applied: [] },
  };
}

export function decideTransition(rules: Rules, now: Instance, attempt: Attempt): Decided {
  const { to, by, remembered, expectedVersion } = attempt;
  const { state: from } = now;
  if (remembered !== undefined && by.event !== undefined) {
    if (remembered.to !== to)
      return refused(now, attempt, { code: "event_conflict", eventId: by.event, to, first: remembered.to });
    const outcome = now.parked.some(({ event }) => event === by.event) ? "parked" : "moved";
    return { instance: now, entries: [], dropped: [], answer: { ok: true, outcome, deduplicated: true, applied: [] } };
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
  const verdict = ask(rules, now, attempt, next);
  if (verdict !== true) return refused(now, attempt, { code: "guard_refused", from, to, why: verdict });
  const version = now.head + 1;
  const moved: Instance = { ...now, state: to, version, data: next, head: version };
  const data = { from, to, ...(attempt.change === undefined ? {} : { data: next }), ...by };
  const settled = settle(rules, moved, attempt.nowMs);
  return {
    instance: settled.instance,
    entries: [{ name: "moved", data }, ...settled.entries],
    dropped: settled.dropped,
    answer: { ok: true, outcome: "moved", deduplicated: false, applied: settled.applied },
  };
}

const canReach = (rules: Rules, from: string, to: string): boolean => rules.reachable.get(from)?.has(to) ?? false;

function refused(now: Instance, { to, by }: Attempt, refusal: Refusal): Decided {
  const why = "why" in refusal ? { why: refusal.why } : {};
  const data: EntryData = { from: now.state, to, code: refusal.code, ...why, ...by };
  return {
    instance: now,
    entries: [{ name: "refused", data }],
    dropped: [],
    answer: { ok: false, ...refusal },
  };
}

function parked(now: Instance, { to, by, change, nowMs }: Attempt): Decided {
  const entry = now.head + 1;
  // What is a function cannot be kept, and was refused before.
  const kept = change === undefined || "update" in change ? {} : { change };
  const waiting: Parked = { to, entry, atMs: nowMs(), ...kept, ...by };
  return {
    instance: { ...now, parked: [...now.parked, waiting], head: entry },
    entries: [{ name: "parked", data: { from: now.state, to, ...by } }],
    dropped: [],
    answer: { ok: true, outcome: "parked", deduplicated: false, applied: [] },
  };
}

interface Settled {
  readonly instance: Instance;
  readonly entries: readonly Entry[];
  readonly dropped: readonly Parked[];
  readonly applied: readonly string[];
}

/** Gives every parked event its turn that has one now, and refuses those that will never have one. */
function settle(rules: Rules, moved: Instance, nowMs: () => number): Settled {
  let instance = moved;
  const entries: Entry[] = [];
  const dropped: Parked[] = [];
  const applied: string[] = [];
  const leave = (event: Parked): void => {
    instance = { ...instance, parked: instance.parked.filter((one) => one !== event), head: instance.head + 1 };
  };
  const drop = (event: Parked, code: RefusalCode, why?: string): void => {
    const { state: from } = instance;
    leave(event);
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
    const verdict = turn(rules, instance, event, nowMs);
    if ("code" in verdict) {
      drop(event, verdict.code, verdict.why);
      continue;
    }
    leave(event);
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

/** What a parked event comes to when its turn has come. One that cannot be applied must not keep others from moving on. */
function turn(
  rules: Rules,
  now: Instance,
  event: Parked,
  nowMs: () => number,
): { readonly next: unknown } | { readonly code: RefusalCode; readonly why: string } {
  try {
    const next = changed(now.data, event.change);
    const verdict = ask(rules, now, { to: event.to, by: event, nowMs }, next);
    return verdict === true ? { next } : { code: "guard_refused", why: verdict };
  } catch (error) {
    return { code: "event_failed", why: error instanceof Error ? error.message : String(error) };
  }
}

function ask(
  rules: Rules,
  { id, state: from, data }: Instance,
  { to, by, nowMs }: Pick<Attempt, "to" | "by" | "nowMs">,
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
      "must answer true, or the reason why not as a text",
    );
  return verdict;
}

function changed(data: unknown, change: Attempt["change"]): unknown {
  if (change === undefined) return data;
  if ("update" in change) {
    const next = change.update(data);
    refusePromise(next);
    return next;
  }
  if ("data" in change) return change.data;
  if (data !== undefined && data !== null && !isPlain(data))
    throw new InvalidArgumentError("the patch", "must be of data that is an object: give data instead");
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
