/**
 * Aggregates: what users define. An aggregate folds the events of a stream to a state, and its commands decide on that state which events
 * come next. Reducers and commands are pure: they get everything as arguments, and run again where a commit is repeated.
 */

import { checkFunction, checkId, checkList, checkObject, checkOptions, optionNames } from "../kernel/check.ts";
import { jsonCodec } from "../kernel/codec/json.ts";
import { deepFreeze } from "../kernel/encoding.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { hash } from "../kernel/fingerprint.ts";
import { type EventRules, eventRules, type NewEvent, type ReadableEvent, type StreamEvent } from "./event.ts";

/** An event as reducers see it: without its time, which is known only when it is committed. */
export type FoldedEvent<Data = unknown> = Omit<StreamEvent<Data>, "at">;

/** An event type, and what an event of it makes of the state. */
export type Reducer<State, Data> = readonly [
  event: ReadableEvent<Data>,
  reduce: (state: State, data: Data, event: FoldedEvent<Data>) => State,
];

/** What a command works with, besides the state and its input. */
export interface CommandContext {
  /** Appends events, if the command does not refuse. */
  emit(...events: readonly NewEvent[]): void;
  /** Ends the command, and nothing is appended: an invariant would be broken. `details` must be storable. */
  refuse(reason: string, details?: unknown): never;
  /** The stream's version before the command; 0 where there is no event yet. */
  readonly version: number;
  /** The store's clock, in milliseconds since 1970. */
  readonly nowMs: number;
  /** A new unguessable id; the same again when the decision runs again. */
  uuid(): string;
}

/** Decides on the state which events come next, and returns what its caller gets. */
export type Command<State> = (state: State, input: never, context: CommandContext) => unknown;

export interface AggregateDefinition<State, Events extends readonly unknown[], Commands> {
  /** The state before the first event. */
  readonly initial: State;
  /** What the events make of the state. Events that are not here leave it as it is. */
  readonly on: { readonly [Index in keyof Events]: Reducer<State, Events[Index]> };
  readonly commands?: Commands | undefined;
  /**
   * Change it when the reducers change, so that stored states are folded again. Default: their source text, which does not see what they call.
   */
  readonly version?: string | undefined;
  /**
   * What to do where the reducers have changed and the events that they would fold were removed: "kept" begins with a state that older reducers made.
   * Default: reads the events from the archive, and throws `events_archived` if it cannot.
   */
  readonly startFrom?: "kept" | undefined;
}

declare const STATE: unique symbol;
declare const COMMANDS: unique symbol;

export interface Aggregate<State = unknown, Commands = unknown> {
  readonly name: string;
  readonly [STATE]?: (state: State) => State;
  readonly [COMMANDS]?: (commands: Commands) => Commands;
}

/** The commands of a definition; none where it has none, so that no name is one. */
export type KnownCommands<Commands> = string extends keyof Commands ? Record<never, never> : Commands;

/** What is known of an aggregate. */
export interface AggregateRules {
  readonly name: string;
  /** The state before the first event: a copy each time, so that no reducer can change it for another stream. */
  readonly initial: () => unknown;
  /** By the name of the event. */
  readonly reducers: ReadonlyMap<string, FoldRule>;
  readonly commands: ReadonlyMap<string, (state: unknown, input: unknown, context: CommandContext) => unknown>;
  /** Names these reducers, so that a state is used only by those that made it. */
  readonly by: string;
  /** A state of older reducers is accepted where events before it were removed. */
  readonly startsFromKept: boolean;
}

export interface FoldRule {
  readonly event: EventRules;
  readonly reduce: (state: unknown, data: unknown, event: FoldedEvent) => unknown;
}

const PARTS = optionNames<AggregateDefinition<unknown, [], unknown>>({
  initial: true,
  on: true,
  commands: true,
  version: true,
  startFrom: true,
});

const definitions = new WeakMap<object, AggregateRules>();
const NOWHERE = { namespace: "", space: "", key: "" };

/** Defines an aggregate: a state that is folded from the events of a stream, and commands that decide on it. */
export function aggregate<
  State,
  const Events extends readonly unknown[],
  Commands extends Record<string, Command<State>>,
>(name: string, definition: AggregateDefinition<State, Events, Commands>): Aggregate<State, KnownCommands<Commands>> {
  checkId(name, "the aggregate's name");
  checkObject(definition, "the definition");
  checkOptions(definition, PARTS, "the definition");
  if (!Object.hasOwn(definition, "initial"))
    throw new InvalidArgumentError("initial", "must be the state before the first event");
  const reducers = reducersOf(definition.on);
  const commands = commandsOf(definition.commands ?? {});
  const { version, startFrom } = definition;
  if (startFrom !== undefined && startFrom !== "kept") throw new InvalidArgumentError("startFrom", 'must be "kept"');
  const source = version === undefined ? sourceOf(reducers) : ["version", checkId(version, "the version")];
  const encoded = jsonCodec.encode(definition.initial, NOWHERE);
  const by = hash(encoded, ...source);
  const defined: Aggregate<State, KnownCommands<Commands>> = Object.freeze({ name });
  definitions.set(defined, {
    name,
    initial: () => copyOf(encoded),
    reducers,
    commands,
    by,
    startsFromKept: startFrom === "kept",
  });
  return defined;
}

/** Frozen like the states that are stored. */
function copyOf(encoded: string): unknown {
  const state = jsonCodec.decode(encoded, NOWHERE);
  deepFreeze(state);
  return state;
}

function reducersOf(on: unknown): AggregateRules["reducers"] {
  checkList(on, "on");
  const reducers = new Map<string, FoldRule>();
  for (const pair of on as readonly unknown[]) {
    if (!Array.isArray(pair) || pair.length !== 2)
      throw new InvalidArgumentError("on", "must be a list of pairs: an event, and its reducer");
    const [type, reduce] = pair as [unknown, FoldRule["reduce"]];
    const event = eventRules(type);
    checkFunction(reduce, `the reducer of event "${event.name}"`);
    if (reducers.has(event.name)) throw new InvalidArgumentError("on", `must not have event "${event.name}" twice`);
    reducers.set(event.name, { event, reduce });
  }
  return reducers;
}

function commandsOf(given: object): AggregateRules["commands"] {
  checkObject(given, "the commands");
  if (Array.isArray(given))
    throw new InvalidArgumentError("the commands", "must be an object, with a function for each command");
  const entries = Object.entries(given);
  for (const [name, command] of entries) checkFunction(command, `command "${checkId(name, "the command's name")}"`);
  return new Map(entries);
}

/** The source text of the reducers and upcasts. */
function sourceOf(reducers: AggregateRules["reducers"]): readonly string[] {
  return [...reducers].flatMap(([name, { event, reduce }]) => [
    name,
    String(event.shape),
    reduce.toString(),
    ...Array.from(event.upcasts, ([from, convert]) => `${from} ${convert.toString()}`),
  ]);
}

/** @internal */
export function aggregateRules(aggregate: unknown): AggregateRules {
  const rules = typeof aggregate === "object" && aggregate !== null ? definitions.get(aggregate) : undefined;
  if (rules === undefined) throw new InvalidArgumentError("the aggregate", "must be one that aggregate(…) returned");
  return rules;
}
