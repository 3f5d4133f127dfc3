/**
 * The origin of what a decision does: who causes it, what it belongs to, and what it follows from. A request sets it with `pawl.with`; reactions
 * and runs pass it on. It is given with each decision, and never taken from ambient context.
 */

import { checkId, checkObject, checkOptions, optionNames } from "./check.ts";
import type { Decision, Tx } from "./decision.ts";
import { InvalidArgumentError } from "./errors.ts";

/** Who causes an event or a run, and what it belongs to. */
export interface Origin {
  readonly actor?: string | undefined;
  /** Names what belongs together: all that follows from one request. */
  readonly correlationId?: string | undefined;
  /** The id of the event, run, message or request that it follows from. */
  readonly causationId?: string | undefined;
}

export const NO_ORIGIN: Origin = Object.freeze({});

export const ORIGIN_OPTIONS = optionNames<Origin>({ actor: true, correlationId: true, causationId: true });

/** The same without what is undefined, checked. */
export function checkOrigin({ actor, correlationId, causationId }: Origin): Origin {
  return {
    ...(actor === undefined ? {} : { actor: checkId(actor, "the actor") }),
    ...(correlationId === undefined ? {} : { correlationId: checkId(correlationId, "the correlation id") }),
    ...(causationId === undefined ? {} : { causationId: checkId(causationId, "the causation id") }),
  };
}

/** The argument of `pawl.with`. */
export function checkScope(origin: Origin): Origin {
  checkObject(origin, "the origin");
  if (Array.isArray(origin)) throw new InvalidArgumentError("the origin", "must be an object, not a list");
  checkOptions(origin, ORIGIN_OPTIONS, "the origin");
  return checkOrigin(origin);
}

const origins = new WeakMap<Tx, Origin>();

/** From now on, what this decision does has this origin, unless a call says another. */
export function setOrigin(tx: Tx, origin: Origin): void {
  origins.set(tx, origin);
}

export const originOf = (tx: Tx): Origin | undefined => origins.get(tx);

/** The decision, with an origin for all that it does. */
export function withOrigin<T>(decide: Decision<T>, origin: Origin): Decision<T> {
  return (tx) => {
    setOrigin(tx, origin);
    return decide(tx);
  };
}
