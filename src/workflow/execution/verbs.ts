/**
 * Verbs: what an operation does, besides its kind and its name.
 *
 * Operations of one name are numbered in the order in which the code starts them, whatever they do: `get` and `set` of one slot, `acquire` and
 * `tryAcquire` of one lock, sleeps of any duration. At replay the order is the same. After a retry the code may start them in another order,
 * so the first fact of each has its verb, in most cases numbered among those of the same name and verb: "set", "#2 set" (`memory.ts`).
 *
 * Steps have none: their names say what they do. Waits for a signal have none either: the first gets what came first, with a timeout or without.
 * That of a release names the operation that acquired the lock: what is remembered of it is of this hold, and of no other one.
 */

import type { AcquireTokensOptions } from "../../rate/rate.ts";
import type { LockPlan, Plan, SlotPlan, StreamPlan } from "../definitions/plans.ts";
import type { Denial } from "../locks/locks.ts";
import type { ChildStart, OfVerb, Outcome } from "../stored.ts";
import type { Fact } from "./memory.ts";
import type { Counted, PendingOperation } from "./pending.ts";

function verbOf(plan: Plan): string | undefined {
  switch (plan.kind) {
    case "slot":
    case "stream":
    case "rate":
      return plan.verb;
    case "sleep":
      return plan.untilMs === null ? `${plan.ms}` : `until ${plan.untilMs}`;
    case "child":
      return `${plan.waits ? "call" : "start"}${plan.childId === undefined ? "" : ` =${plan.childId}`}`;
    case "lock":
      return lockVerb(plan);
    case "unlock":
      return unlockVerb(plan.of);
    case "step":
    case "signal":
      return undefined;
  }
}

/** The verb of the release of what this operation acquired. */
export const unlockVerb = (of: string): string => `of ${of}`;

function lockVerb({ refs, mode, queue, isTry, timeoutMs, resumes }: LockPlan): string {
  const is = resumes !== undefined ? `resume ${resumes}` : isTry ? (queue ? "enqueue" : "tryAcquire") : "acquire";
  const shared = mode === "shared" && refs[0]?.kind === "rwlock" ? " shared" : "";
  return `${is}${shared}${timeoutMs === null ? "" : " timed"}`;
}

/** The verb of a turn in a rate limit. */
export const rateVerb = ({
  count = 1,
  key,
  timeout,
}: Pick<AcquireTokensOptions, "count" | "key" | "timeout">): string =>
  `${count}${timeout === undefined ? "" : " timed"}${key === undefined ? "" : ` =${key}`}`;

/**
 * Whether operations of this verb are numbered. There may be too many of the other verbs to keep a number for each, and of two with the same
 * verb, such as two sleeps of the same duration, each may have the facts of the other.
 */
export function isCounted(plan: Plan): boolean {
  switch (plan.kind) {
    case "slot":
    case "stream":
      return true;
    case "child":
      return plan.childId === undefined;
    case "lock":
      return plan.resumes === undefined;
    default:
      return false;
  }
}

/** The verb of an operation that the code starts now, with its number. */
export function numberedVerb(plan: Plan, counted: Counted): string | undefined {
  const verb = verbOf(plan);
  if (verb === undefined || !isCounted(plan)) return verb;
  counted.verbs ??= new Map();
  const number = (counted.verbs.get(verb) ?? 0) + 1;
  counted.verbs.set(verb, number);
  return number === 1 ? verb : `#${number} ${verb}`;
}

/** The verb that a fact has, with its number. */
export const verbIn = (data: unknown): string | undefined => (data as OfVerb | null)?.verb;

/** An outcome as the code gets it. */
export const withoutVerb = (outcome: Outcome): Outcome =>
  "error" in outcome ? { error: outcome.error } : { ok: outcome.ok };

/** Whether a fact that is remembered under the number of an operation can be about it. A fact of an earlier release has no verb, but a shape. */
export function isAbout({ plan, verb }: PendingOperation, { word, data }: Fact): boolean {
  const known = verbIn(data);
  // A release is found by number where one of an earlier release does not say of what it was.
  if (known !== undefined && verb !== undefined && plan.kind !== "unlock") return known === verb;
  switch (plan.kind) {
    case "slot":
      return isOfSlot(plan, data as Outcome);
    case "stream":
      return isOfStream(plan, data as Outcome);
    case "child": {
      if (word !== "child") return true;
      const { run, isLeft } = data as ChildStart;
      return plan.waits === (isLeft !== true) && (plan.childId ?? run) === run;
    }
    case "lock":
      if (word === "queued") return !plan.isTry;
      if (word === "placed") return plan.isTry;
      return word !== "denied" || isDenialOf(plan, data as Denial);
    case "step":
    case "sleep":
    case "signal":
    case "unlock":
    case "rate":
      return true;
  }
}

function isDenialOf({ isTry, queue, timeoutMs }: LockPlan, { reason }: Denial): boolean {
  if (reason === "busy") return isTry && !queue;
  return reason === "timeout" ? timeoutMs !== null : reason === "undeclared" || !isTry;
}

const has = (value: unknown, field: string): boolean =>
  typeof value === "object" && value !== null && Object.hasOwn(value, field);

function isOfSlot({ verb }: SlotPlan, outcome: Outcome): boolean {
  const [is] = verb.split(" ");
  if ("error" in outcome) return is !== "get";
  const { ok } = outcome;
  if (is === "get" || is === "update") return has(ok, "value");
  if (is === "trySet") return has(ok, "ok");
  return is === "delete" ? has(ok, "deleted") : has(ok, "version") && !has(ok, "value") && !has(ok, "ok");
}

function isOfStream({ verb }: StreamPlan, outcome: Outcome): boolean {
  const [is] = verb.split(" ");
  if ("error" in outcome) return is !== "head";
  const { ok } = outcome;
  if (is === "head") return typeof ok === "number";
  if (is === "state") return has(ok, "state");
  if (is === "append") return has(ok, "ids") && !has(ok, "output") && !has(ok, "ok");
  if (is === "execute") return has(ok, "output") && !has(ok, "ok");
  const isRefused = has(ok, "ok") && !has(ok, "ids");
  const code = (ok as { code?: string } | null)?.code;
  if (is === "tryAppend") return has(ok, "ok") && !has(ok, "output") && code !== "command_refused";
  return has(ok, "ok") && (isRefused ? code !== "concurrency_conflict" : has(ok, "output"));
}
