/**
 * The rules of streams and aggregates, without a store: whether an append is allowed, what events make of a state, and what a command comes to.
 */

import { refusePromise } from "../kernel/decision.ts";
import { DecisionOverError, InvalidArgumentError, thrownBy } from "../kernel/errors.ts";
import type { AggregateRules, CommandContext, FoldedEvent } from "./aggregate.ts";
import { NewEvent, upcast } from "./event.ts";
import type { Fold } from "./stored.ts";

/** At most this many events are appended together. */
export const MOST_EVENTS = 10_000;

/** Whether a caller that expects this version may append; without an expectation it always may. */
export const isExpected = (version: number, expected: number | undefined): boolean =>
  expected === undefined || expected === version;

/** The state after one more event. An event that the aggregate does not know leaves it as it is. */
export function reduce(rules: AggregateRules, state: unknown, event: FoldedEvent): unknown {
  const rule = rules.reducers.get(event.name);
  if (rule === undefined) return state;
  const data = upcast(rule.event, event.data, event.shape);
  let next: unknown;
  try {
    next = rule.reduce(state, data, Object.freeze({ ...event, data, shape: rule.event.shape }));
  } catch (error) {
    const { name, version, stream } = event;
    throw thrownBy(`the reducer of "${name}" in ${rules.name} "${stream}", at event ${version},`, error);
  }
  refusePromise(next);
  return next;
}

/** The state before the first event. */
export const initialFold = ({ by, initial }: AggregateRules): Fold => ({ by, version: 0, state: initial() });

export function foldEvent(rules: AggregateRules, fold: Fold, event: FoldedEvent): Fold {
  return { by: fold.by, version: event.version, state: reduce(rules, fold.state, event) };
}

/** What a command comes to. */
export type Decided =
  | { readonly is: "decided"; readonly output: unknown; readonly events: readonly NewEvent[] }
  | { readonly is: "refused"; readonly reason: string; readonly details: unknown };

/** Thrown by `refuse`, so that the command ends there. */
class Refusal {
  readonly reason: string;
  readonly details: unknown;

  constructor(reason: string, details: unknown) {
    this.reason = reason;
    this.details = details;
  }
}

/** Runs a command on the state. Once it has refused, it is refused, also if it caught that. */
export function decideCommand(
  rules: AggregateRules,
  { state, version }: Fold,
  name: string,
  input: unknown,
  { stream, nowMs, uuid }: { readonly stream: string; readonly nowMs: () => number; readonly uuid: () => string },
): Decided {
  const command = rules.commands.get(name);
  if (command === undefined) {
    const known = [...rules.commands.keys()].map((one) => `"${one}"`).join(", ");
    throw new InvalidArgumentError("the command", `must be one of ${rules.name} (${known || "it has none"})`);
  }
  const events: NewEvent[] = [];
  let refusal: Refusal | undefined;
  let isOver = false;
  // A late call, as of a callback, would have no effect: its events are not part of the commit.
  const checkOpen = (verb: string): void => {
    if (isOver) throw new DecisionOverError(verb, "command");
  };
  const context: CommandContext = {
    version,
    get nowMs() {
      return nowMs();
    },
    uuid,
    emit: (...given) => {
      checkOpen("emit");
      for (const event of checkEvents(given)) events.push(event);
      if (events.length > MOST_EVENTS) throw new InvalidArgumentError("the events", `must be at most ${MOST_EVENTS}`);
    },
    refuse: (reason, details) => {
      checkOpen("refuse");
      if (typeof reason !== "string" || reason === "") throw new InvalidArgumentError("the reason", "must be a text");
      refusal ??= new Refusal(reason, details);
      throw refusal;
    },
  };
  let output: unknown;
  try {
    output = command(state, input, context);
    refusePromise(output);
  } catch (error) {
    if (refusal === undefined) throw thrownBy(`command "${name}" of ${rules.name} "${stream}"`, error);
  } finally {
    isOver = true;
  }
  if (refusal !== undefined) return { is: "refused", reason: refusal.reason, details: refusal.details };
  return { is: "decided", output, events };
}

/** Events to append, as event types make them. */
export function checkEvents(events: unknown): readonly NewEvent[] {
  const list = events as readonly unknown[];
  for (let i = 0; i < list.length; i++)
    if (!(list[i] instanceof NewEvent))
      throw new InvalidArgumentError("the events", "must be made by event types: Deposited({ amount: 10 })");
  return list as readonly NewEvent[];
}
