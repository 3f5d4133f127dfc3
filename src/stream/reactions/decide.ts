/**
 * Reactions, as rules: what news, a failure and an operator do to a target, and which events are not routed. Pure: every rule is a row of `decide.test.ts`.
 */

import {
  type Aside,
  BLOCKED,
  type Failure,
  PAUSED,
  type Routed,
  type RouterValue,
  type TargetValue,
} from "./stored.ts";

/** The columns of a target that rules are about. */
export interface TargetState {
  readonly value: TargetValue;
  /** How many events were routed to it. */
  readonly routed: number;
  readonly holder: string | null;
  readonly status: string | null;
  readonly dueMs: number | null;
}

/** What a target becomes; `dueMs` null is: nothing to do. */
export interface TargetChange {
  readonly value: TargetValue;
  readonly status: string | null;
  readonly dueMs: number | null;
}

/**
 * Whether news of another event wakes a target. One that waits after a failure keeps its delay, and one that is blocked or paused stays so.
 */
export function isWokenByNews({ holder, status, dueMs }: TargetState): boolean {
  if (status === BLOCKED || status === PAUSED) return false;
  return holder !== null || dueMs === null;
}

/**
 * Whether the commit that routes `added` events to a target, which is due after it, also claims it for its own process: "events" if these are all that is
 * to be handled, "rest" if there is more in its log. One that was tried before is left to the claim loop, which knows how to treat it.
 */
export function decideClaimHere(
  { value, routed, holder }: TargetState,
  tries: number,
  added: number,
): "no" | "events" | "rest" {
  if (added === 0 || tries > 0 || holder !== null) return "no";
  return value.done === routed - added ? "events" : "rest";
}

/** How many events the page after one with `limit` of them may have: twice as many as long as more wait, and they are not too many characters. */
export function decidePage(
  limit: number,
  page: {
    readonly hasMore: boolean;
    readonly characters: number;
    readonly least: number;
    readonly most: number;
    readonly mostCharacters: number;
  },
): number {
  const { hasMore, characters, least, most, mostCharacters } = page;
  if (!hasMore || characters > mostCharacters) return least;
  return 2 * characters <= mostCharacters ? Math.min(2 * limit, most) : limit;
}

/** After events were handled, the first `done` of the target. */
export function decideHandled(
  { failure: _, blockedAtMs: __, ...value }: TargetValue,
  done: number,
  losses: number,
): TargetValue {
  return { ...value, done, ...(losses === 0 ? {} : { losses }) };
}

/**
 * Whether an entry of a target's log is passed by: since a reset, its event was handled, or skipped, where it was routed first. `index` is its place in the log,
 * from 1.
 */
export function isRepeated({ resetAt = 0 }: TargetValue, index: number, { isAgain }: Routed): boolean {
  return isAgain === true && index <= resetAt;
}

/** After an attempt failed: it is tried again after `delayMs`, or blocked if that is null. */
export function decideFailed(
  value: TargetValue,
  failed: {
    readonly error: Pick<Failure, "name" | "message" | "stack">;
    readonly delayMs: number | null;
    readonly nowMs: number;
    readonly losses: number;
  },
): TargetChange {
  const { error, delayMs, nowMs, losses } = failed;
  const failure: Failure = { count: (value.failure?.count ?? 0) + 1, ...error, atMs: nowMs };
  const next: TargetValue = { ...value, failure, ...(losses === 0 ? {} : { losses }) };
  if (delayMs === null) return { value: { ...next, blockedAtMs: nowMs }, status: BLOCKED, dueMs: null };
  return { value: next, status: null, dueMs: nowMs + delayMs };
}

/** Where a target without a holder stands: due now if it has something to do. */
export function decideReady(value: TargetValue, routed: number, nowMs: number): TargetChange {
  return { value, status: null, dueMs: value.done < routed ? nowMs : null };
}

export type Operation = "unblock" | "pause" | "resume" | "reset" | "skip" | "prioritize";

/** What an operator's call makes of a target; null where it does not apply to it. */
export function decideOperation(operation: Operation, state: TargetState, nowMs: number): TargetChange | null {
  const { value, routed, holder, status, dueMs } = state;
  const { failure: _, blockedAtMs: __, pausedAtMs: ___, ...plain } = value;
  switch (operation) {
    case "unblock":
      return status === BLOCKED ? decideReady(plain, routed, nowMs) : null;
    case "pause":
      return status === PAUSED ? null : { value: { ...value, pausedAtMs: nowMs }, status: PAUSED, dueMs: null };
    case "resume": {
      if (status !== PAUSED) return null;
      const { pausedAtMs: ____, ...resumed } = value;
      // It was blocked before it was paused, and still is.
      if (resumed.blockedAtMs !== undefined) return { value: resumed, status: BLOCKED, dueMs: null };
      return decideReady(resumed, routed, nowMs);
    }
    case "reset": {
      const again = { ...plain, done: 0, resetAt: routed };
      if (status !== PAUSED) return decideReady(again, routed, nowMs);
      return { value: { ...again, pausedAtMs: value.pausedAtMs ?? nowMs }, status: PAUSED, dueMs: null };
    }
    case "skip": {
      // Of a target that is worked on, another event could be the next one by now.
      if (value.done >= routed || (status !== BLOCKED && status !== PAUSED)) return null;
      const next = { ...plain, done: value.done + 1 };
      if (status !== PAUSED) return decideReady(next, routed, nowMs);
      return { value: { ...next, pausedAtMs: value.pausedAtMs ?? nowMs }, status: PAUSED, dueMs: null };
    }
    case "prioritize":
      // What is due longest is claimed first.
      return dueMs === null || holder !== null || status !== null ? null : { value, status, dueMs: PRIORITY_MS };
  }
}

/** A time before all others. */
export const PRIORITY_MS = 1;

/** Whether an event became a dead letter when its stream was closed by force. */
export function isAside({ aside = [] }: RouterValue, stream: string, version: number): boolean {
  return aside.some((one) => one.stream === stream && one.from <= version && version <= one.to);
}

/** The reaction does not route these events from now on. There is one range for each stream, because a closing puts aside all that is left of it. */
export function withAside(value: RouterValue, added: Aside): RouterValue {
  const { aside = [] } = value;
  const same = aside.find(({ stream }) => stream === added.stream) ?? added;
  const joined: Aside = {
    stream: added.stream,
    from: Math.min(same.from, added.from),
    to: Math.max(same.to, added.to),
    position: Math.max(same.position, added.position),
  };
  return { ...value, aside: [...aside.filter(({ stream }) => stream !== added.stream), joined] };
}

/** The reaction has routed everything up to this position. */
export function withCursor({ aside = [], ...value }: RouterValue, cursor: number): RouterValue {
  const left = aside.filter(({ position }) => position > cursor);
  return { ...value, cursor, ...(left.length === 0 ? {} : { aside: left }) };
}
