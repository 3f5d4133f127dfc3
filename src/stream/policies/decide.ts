/**
 * Policies, as rules: when a stream has to be looked at, and what is to be done about it then. Pure: every rule is a row of `decide.test.ts`.
 */

import type { PolicyRules } from "./definition.ts";
import type { PolicyStreamValue, Taken } from "./stored.ts";

type Rules = Pick<PolicyRules, "prefix" | "keep" | "olderMs" | "idleMs">;

/** What is known of a stream when it is looked at. */
export interface StreamFacts {
  readonly id: string;
  /** Its last version. */
  readonly head: number;
  /** The first version that the store keeps. */
  readonly firstVersion: number;
  /** The version of the tombstone, if it is closed. */
  readonly closedAt: number | undefined;
  /** When the last event was committed; asked for where the rules close streams. */
  readonly lastAtMs: number;
  /** The time of the first event that is kept; asked for where the rules prune by age. */
  readonly firstAtMs: number;
}

export type PolicyStep =
  /** There is nothing to do about it, until it is found again. */
  | { readonly is: "leave" }
  /** It is looked at again when it is due, or its version is `prunesAt`. */
  | { readonly is: "wait"; readonly dueMs: number | null; readonly prunesAt?: number }
  | PolicyDeed;

export type PolicyDeed =
  /** Close it, if `taken.head` is still its last version. */
  | { readonly is: "close"; readonly taken: Taken }
  /** Remove the events before a version, or a time. */
  | { readonly is: "prune"; readonly before: number | { readonly ms: number }; readonly taken: Taken };

export function decideStep(
  rules: Rules,
  { taken }: PolicyStreamValue,
  facts: StreamFacts | undefined,
  nowMs: number,
): PolicyStep {
  if (facts === undefined) return { is: "leave" };
  const { id, head, firstVersion, closedAt, lastAtMs, firstAtMs } = facts;
  // What a worker has begun is ended, whatever the rules are by now.
  if (taken?.is === "close" && closedAt === taken.head + 1) return { is: "close", taken };
  if (taken?.is === "prune" && firstVersion > taken.from) return { is: "prune", before: firstVersion, taken };
  if (closedAt !== undefined || !id.startsWith(rules.prefix)) return { is: "leave" };
  const { keep, olderMs, idleMs } = rules;
  const times: number[] = [];
  const take = (is: Taken["is"]): Taken => ({ is, from: firstVersion, head });
  if (idleMs !== undefined) {
    if (lastAtMs + idleMs <= nowMs) return { is: "close", taken: take("close") };
    times.push(lastAtMs + idleMs);
  }
  // The last event of a stream stays.
  if (olderMs !== undefined && head > firstVersion) {
    if (firstAtMs + olderMs < nowMs) return { is: "prune", before: { ms: nowMs - olderMs }, taken: take("prune") };
    times.push(firstAtMs + olderMs + 1);
  }
  if (keep !== undefined && head - firstVersion + 1 >= mostKept(keep))
    return { is: "prune", before: head - keep + 1, taken: take("prune") };
  const dueMs = times.length === 0 ? null : Math.min(...times);
  return keep === undefined
    ? { is: "wait", dueMs }
    : { is: "wait", dueMs, prunesAt: firstVersion - 1 + mostKept(keep) };
}

/** With how many events a stream is pruned: not for each single one, because some archives write all that they have each time. */
export const mostKept = (keep: number): number => keep + Math.max(1, Math.floor(keep / 10));

/** Whether a stream that has come to this version is looked at now. `known` is what is stored of it, if anything. */
export function isLookedAt(
  { keep, olderMs, idleMs }: Rules,
  known: { readonly value: PolicyStreamValue; readonly dueMs: number | null } | undefined,
  version: number,
): boolean {
  if (known !== undefined)
    return known.value.prunesAt === undefined ? known.dueMs === null : version >= known.value.prunesAt;
  return olderMs !== undefined || idleMs !== undefined || (keep !== undefined && version >= mostKept(keep));
}

const DAY_MS = 24 * 3_600_000;

/** How long after it was pruned a stream is looked at again. */
export const restMs = ({ olderMs }: Rules): number =>
  olderMs === undefined ? 0 : Math.min(Math.ceil(olderMs / 10), DAY_MS);

/** What a stream that had to be left as it is waits for, longer each time. */
export const SKIPPED = { firstMs: 60_000, longestMs: DAY_MS };
