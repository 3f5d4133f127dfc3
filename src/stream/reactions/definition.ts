/**
 * Reactions: what users define. A reaction does something about each event of some types, once for each, in the order of its target.
 */

import {
  checkCount,
  checkDuration,
  checkFunction,
  checkId,
  checkLease,
  checkList,
  checkObject,
  checkOptions,
  type Duration,
  optionNames,
  utf8Length,
} from "../../kernel/check.ts";
import type { Sync } from "../../kernel/decision.ts";
import { InvalidArgumentError, InvalidIdError } from "../../kernel/errors.ts";
import { checkRetry, type Retry, type RetryOptions } from "../../kernel/retry.ts";
import { type AnyEventType, type EventRules, eventRules, type NewEvent, type StreamEvent } from "../event.ts";
import type { DataOf } from "../reading.ts";

/** What a handler works with, besides the event. `Face` is the `tx` of the handle's decisions. */
export interface ReactionContext<Face, Touch> {
  /** The target that the event belongs to. */
  readonly target: string;
  /** The same for every attempt at this event: pass it on to whatever is called. */
  readonly key: string;
  /** 1, and one more after each failure. */
  readonly attempt: number;
  /** Rises when another worker takes over the target: a resource that keeps the highest it has seen can refuse older ones. */
  readonly fence: number;
  /** Aborts when the lease is lost, or may be, when the attempt has timed out, and when the worker shuts down. Stop working then. */
  readonly abortSignal: AbortSignal;
  /** Appends events to a stream, in the commit that records that this event is handled. */
  emit(stream: string, events: readonly NewEvent[]): void;
  /**
   * Runs a decision in the commit that records that this event is handled, and returns its result: commands, appends, runs, signals and anything
   * else in `tx` happen once, whatever crashes. Once only, as the last thing that the handler does.
   */
  commit<T>(decide: (tx: Face) => Sync<T>, options?: Touch): Promise<T>;
  /** Ends this attempt without an effect; the event is handled again at this time, or after this duration. It is no failure. */
  defer(until: Date | Duration): never;
}

export type ReactionHandler<Data, Face, Touch> = (
  event: StreamEvent<Data>,
  context: ReactionContext<Face, Touch>,
) => unknown;

export interface ReactionOptions<Types extends readonly AnyEventType[] = readonly AnyEventType[]> {
  /** The events that it is about. */
  readonly on: Types;
  /**
   * Events of one target are handled in order, one at a time; those of different targets in parallel. "stream": each stream is a target; "all": all
   * events are one; or a function of the event, such as its customer, that must return the same each time. An event for which the function returns
   * undefined is left out. Default: "stream".
   */
  readonly target?: "stream" | "all" | ((event: StreamEvent<DataOf<Types>>) => string | undefined) | undefined;
  /**
   * Where a reaction that is new to the store begins: with the first event, with what the store keeps where events were removed, or with what comes. Events
   * that were removed are read from the archive; a worker that cannot do that reports `events_archived`, and does not begin. Default: "beginning".
   */
  readonly from?: "beginning" | "kept" | "now" | undefined;
  /** Reactions of different groups do not share the capacity of a worker. Default: a group of its own. */
  readonly group?: string | undefined;
  /** How often an event is tried, and how long to wait in between. After the last attempt its target is blocked. */
  readonly retry?: RetryOptions | undefined;
  /** How long an attempt may take. Default: no limit. */
  readonly timeout?: Duration | undefined;
  /** How long this process keeps a target without renewing its lease. Default: that of the worker. */
  readonly lease?: Duration | undefined;
  /** How many targets of its group are worked on concurrently in a process; the highest of the group counts. Default: that of the worker. */
  readonly concurrency?: number | undefined;
}

export interface Reaction {
  readonly name: string;
}

export type TargetOf = "stream" | "all" | ((event: StreamEvent) => string | undefined);

/** What is known of a reaction. */
export interface ReactionRules {
  readonly name: string;
  /** By the name of the event. */
  readonly types: ReadonlyMap<string, EventRules>;
  readonly target: TargetOf;
  readonly from: "beginning" | "kept" | "now";
  readonly group: string;
  readonly retry: Retry;
  readonly timeoutMs: number | undefined;
  readonly leaseMs: number | undefined;
  readonly concurrency: number | undefined;
  readonly handler: ReactionHandler<unknown, never, never>;
}

const OPTIONS = optionNames<ReactionOptions>({
  on: true,
  target: true,
  from: true,
  group: true,
  retry: true,
  timeout: true,
  lease: true,
  concurrency: true,
});

/** A name is part of longer ones, such as that of its queue. */
const MAX_NAME_BYTES = 240;

const definitions = new WeakMap<object, ReactionRules>();

/** Defines a reaction. `Face` and `Touch` are those of the handle; `pawl` exports it with them. */
export function defineReaction<const Types extends readonly AnyEventType[], Face, Touch>(
  name: string,
  options: ReactionOptions<Types>,
  handler: ReactionHandler<DataOf<Types>, Face, Touch>,
): Reaction {
  checkId(name, "the reaction's name");
  if (utf8Length(name) > MAX_NAME_BYTES)
    throw new InvalidIdError("the reaction's name", `must not be longer than ${MAX_NAME_BYTES} bytes`);
  checkObject(options, "the options");
  checkOptions(options, OPTIONS);
  checkFunction(handler, "the handler");
  const { on, target = "stream", from = "beginning", group = name, retry, timeout, lease, concurrency } = options;
  checkList(on, "on");
  if (on.length === 0) throw new InvalidArgumentError("on", "must have at least one event");
  const types = new Map<string, EventRules>();
  for (const type of on) {
    const rules = eventRules(type);
    if (types.has(rules.name)) throw new InvalidArgumentError("on", `must not have event "${rules.name}" twice`);
    types.set(rules.name, rules);
  }
  if (target !== "stream" && target !== "all" && typeof target !== "function")
    throw new InvalidArgumentError("target", 'must be "stream", "all" or a function of the event');
  if (from !== "beginning" && from !== "kept" && from !== "now")
    throw new InvalidArgumentError("from", 'must be "beginning", "kept" or "now"');
  const defined: Reaction = Object.freeze({ name });
  definitions.set(defined, {
    name,
    types,
    target: target as TargetOf,
    from,
    group: checkId(group, "the group"),
    retry: checkRetry(retry),
    timeoutMs: timeout === undefined ? undefined : checkDuration(timeout, "the timeout"),
    leaseMs: lease === undefined ? undefined : checkLease(lease, "the lease"),
    concurrency: concurrency === undefined ? undefined : checkCount(concurrency, "the concurrency"),
    handler: handler as ReactionHandler<unknown, never, never>,
  });
  return defined;
}

/** The same reaction with another handler, made of its own. @internal */
export function aroundHandler(
  rules: ReactionRules,
  around: (handler: (...given: readonly unknown[]) => unknown) => (...given: readonly unknown[]) => unknown,
): Reaction {
  const handler = around(rules.handler as (...given: readonly unknown[]) => unknown);
  const defined: Reaction = Object.freeze({ name: rules.name });
  definitions.set(defined, { ...rules, handler: handler as ReactionRules["handler"] });
  return defined;
}

/** What is known of a reaction; undefined if it is none. @internal */
export function reactionRules(reaction: unknown): ReactionRules | undefined {
  return typeof reaction === "object" && reaction !== null ? definitions.get(reaction) : undefined;
}
