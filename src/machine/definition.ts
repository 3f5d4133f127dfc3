/**
 * Definitions of machines. `machine` needs no open store, so a definition can be imported anywhere.
 *
 * The types are derived from the definition. States are the keys of `transitions`; a target, an initial state or a guard that names another
 * state does not compile. A state that leads to no other is final. The data's type is that of `initialData`, or given as
 * `machine<Data>()("name", …)`.
 */

import { checkCount, checkFunction, checkId, checkOptions, optionNames } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { type AnyGuard, isPlain, type Move, type Rules } from "./decide.ts";
import { drawSvg } from "./svg.ts";
import { drawText } from "./text.ts";

/** By state: the states that it leads to. Every target must be a key too. */
export type Transitions<T> = { readonly [From in keyof T]: readonly (keyof T & string)[] };

/**
 * Decides whether a move that the definition allows may be made now. Returns true, or the reason for the refusal. It must be pure and
 * synchronous, and can run more than once.
 */
export type Guard<State extends string = string, Data = unknown> = (
  data: Data,
  move: Move<State, Data>,
) => true | string;

export interface MachineDefinition<T extends Transitions<T>, Data, Unknown extends string = "create" | "refuse"> {
  /** The state of a new instance. */
  readonly initial: keyof T & string;
  /** By state: the states that it leads to. A state with an empty list is final. */
  readonly transitions: T;
  /** By the state before the move, then the state after it. */
  readonly guards?:
    | {
        readonly [From in keyof T]?:
          | {
              readonly [To in keyof T & string]?:
                | (To extends T[From][number] ? Guard<keyof T & string, Data> : never)
                | undefined;
            }
          | undefined;
      }
    | undefined;
  /** The data of a new instance for which `create` got none. */
  readonly initialData?: Data;
  /** An event for an instance that does not exist creates it, or is refused with `machine_not_found`. Default: "refuse". */
  readonly unknown?: Unknown | undefined;
  /** The most events that can be parked for one instance. Default: 32. */
  readonly maxParked?: number | undefined;
}

declare const DATA: unique symbol;
declare const GIVEN: unique symbol;

/** A definition, for `pawl.machine` and `tx.machine`. `Given` is the type of the data that `create` takes. */
export interface Machine<State extends string = string, Data = unknown, Given = Data | undefined> {
  readonly name: string;
  readonly initial: State;
  /** All states, in the order of the definition. */
  readonly states: readonly State[];
  /** The states that lead to no other. */
  readonly finalStates: readonly State[];
  /** Returns the states and transitions as text, one line for each state. */
  toText(): string;
  /** Returns a drawing of the machine as an SVG document. The same definition gives the same document. */
  toSvg(): string;
  readonly [DATA]?: (data: Data) => Data;
  readonly [GIVEN]?: (given: Given) => void;
}

export interface MachineRules extends Rules {
  readonly name: string;
  readonly initialData: unknown;
  readonly isCreatedByEvents: boolean;
}

const definitions = new WeakMap<object, MachineRules>();
const MAX_STATES = 1_000;
const MAX_PARKED = 32;

/** Defines a machine whose data has this type. Without `initialData`, `create` needs `data`, and events create no instances. */
export interface MachineOf<Data> {
  <const T extends Transitions<T>>(
    name: string,
    definition: MachineDefinition<T, Data> & { readonly initialData: Data },
  ): Machine<keyof T & string, Data, Data | undefined>;
  <const T extends Transitions<T>>(
    name: string,
    definition: MachineDefinition<T, Data, "refuse">,
  ): Machine<keyof T & string, Data, Data>;
}

/** The same for data whose type cannot be inferred from `initialData`: `machine<Data>()("name", …)`. */
export function machine<Data>(): MachineOf<Data>;
/** Defines a machine. Its states are the keys of `transitions`. */
export function machine<const T extends Transitions<T>, Data = undefined>(
  name: string,
  definition: MachineDefinition<T, Data>,
): Machine<keyof T & string, Data, Data | undefined>;
export function machine(...given: readonly unknown[]): unknown {
  // `machine(undefined, …)` is an error, not the form without arguments.
  return given.length === 0 ? define : define(given[0], given[1]);
}

function define(name: unknown, definition: unknown): Machine {
  const rules = rulesFrom(name, definition);
  const states = [...rules.targets.keys()];
  const defined: Machine = Object.freeze({
    name: rules.name,
    initial: rules.initial,
    states: Object.freeze(states),
    finalStates: Object.freeze(states.filter((state) => rules.targets.get(state)?.length === 0)),
    toText: () => drawText(rules),
    toSvg: () => drawSvg(rules),
  });
  definitions.set(defined, rules);
  return defined;
}

/** Whether `machine` made it. @internal */
export const isMachine = (value: unknown): value is Machine =>
  typeof value === "object" && value !== null && definitions.has(value);

/** @internal */
export function rulesOf(machine: unknown): MachineRules {
  const rules = isMachine(machine) ? definitions.get(machine) : undefined;
  if (rules === undefined) throw new InvalidArgumentError("the machine", "must be one that machine(…) returned");
  return rules;
}

const PARTS = optionNames<MachineDefinition<Record<string, string[]>, unknown>>({
  initial: true,
  transitions: true,
  guards: true,
  initialData: true,
  unknown: true,
  maxParked: true,
});

/** Checks everything at run time too, for callers in JavaScript. */
function rulesFrom(given: unknown, definition: unknown): MachineRules {
  const name = checkId(given, "the machine's name");
  if (!isPlain(definition)) throw new InvalidArgumentError("the machine's definition", "must be a plain object");
  const parts: { readonly [part: string]: unknown } = { ...definition };
  checkOptions(parts, PARTS, "the machine");
  const targets = targetsFrom(parts["transitions"]);
  const initial = checkState(targets, parts["initial"], "the initial state");
  const unknown = parts["unknown"] ?? "refuse";
  if (unknown !== "create" && unknown !== "refuse")
    throw new InvalidArgumentError("unknown", 'must be "create" or "refuse"');
  return {
    name,
    initial,
    targets,
    reachable: new Map(Array.from(targets.keys(), (state) => [state, reachableFrom(targets, state)])),
    guards: guardsFrom(targets, parts["guards"]),
    maxParked: checkCount(parts["maxParked"] ?? MAX_PARKED, "maxParked", 1_000),
    initialData: parts["initialData"],
    isCreatedByEvents: unknown === "create",
  };
}

type Targets = ReadonlyMap<string, readonly string[]>;

function targetsFrom(transitions: unknown): Targets {
  if (!isPlain(transitions))
    throw new InvalidArgumentError("the transitions", "must be an object whose keys are states");
  const entries: [string, unknown][] = Object.entries(transitions);
  checkCount(entries.length, "the number of states", MAX_STATES);
  const targets = new Map<string, readonly string[]>();
  for (const [state] of entries) targets.set(checkId(state, "the state"), []);
  for (const [state, to] of entries) {
    if (!Array.isArray(to)) throw new InvalidArgumentError(`the transitions of ${state}`, "must be a list of states");
    const list = to.map((target: unknown) => checkState(targets, target, `a target of ${state}`));
    if (new Set(list).size < list.length)
      throw new InvalidArgumentError(`the transitions of ${state}`, "must not name a state twice");
    targets.set(state, Object.freeze(list));
  }
  return targets;
}

/** @internal */
export function checkState(targets: Targets, state: unknown, what: string): string {
  if (typeof state !== "string" || !targets.has(state))
    throw new InvalidArgumentError(what, `must be a state of the machine: ${[...targets.keys()].join(", ")}`);
  return state;
}

function reachableFrom(targets: Targets, state: string): ReadonlySet<string> {
  const found = new Set<string>();
  const queue = [state];
  for (let from = queue.pop(); from !== undefined; from = queue.pop())
    for (const to of targets.get(from) ?? [])
      if (!found.has(to)) {
        found.add(to);
        queue.push(to);
      }
  return found;
}

function guardsFrom(targets: Targets, guards: unknown): Rules["guards"] {
  const found = new Map<string, Map<string, AnyGuard>>();
  if (guards === undefined) return found;
  if (!isPlain(guards)) throw new InvalidArgumentError("the guards", "must be an object whose keys are states");
  for (const [from, byTarget] of Object.entries(guards) as [string, unknown][]) {
    checkState(targets, from, "a guarded state");
    if (byTarget === undefined) continue;
    if (!isPlain(byTarget))
      throw new InvalidArgumentError(`the guards of ${from}`, "must be an object whose keys are states");
    const mine = new Map<string, AnyGuard>();
    for (const [to, guard] of Object.entries(byTarget) as [string, unknown][]) {
      checkState(targets, to, `a guard of ${from}`);
      if (guard === undefined) continue;
      // It would never be called, which its author does not expect.
      if (!targets.get(from)?.includes(to))
        throw new InvalidArgumentError(
          `the guard of ${from} to ${to}`,
          "must belong to a transition of the definition",
        );
      checkFunction(guard, `the guard of ${from} to ${to}`);
      mine.set(to, guard as AnyGuard);
    }
    found.set(from, mine);
  }
  return found;
}
