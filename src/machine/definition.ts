/**
 * Definitions of machines: `machine` needs nothing opened and can be imported everywhere.
 *
 * The types flow from here. States are the keys of `transitions`; a target, a first state or a guard that names anything else does not
 * compile. A state without a way out is final. The data's type is that of `initialData`, or given as `machine<Data>()("name", …)`.
 */

import { checkCount, checkFunction, checkId, checkOptions, optionNames } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { type AnyGuard, isPlain, type Move, type Rules } from "./decide.ts";
import { drawSvg } from "./svg.ts";
import { drawText } from "./text.ts";

/** States and where each leads to: every target must itself be one of the states. */
export type Transitions<T> = { readonly [From in keyof T]: readonly (keyof T & string)[] };

/**
 * Says whether a move that the definition allows may be made now: true, or the reason why not. It is part of a decision: pure, synchronous, it
 * may run more than once.
 */
export type Guard<State extends string = string, Data = unknown> = (
  data: Data,
  move: Move<State, Data>,
) => true | string;

export interface MachineDefinition<T extends Transitions<T>, Data, Unknown extends string = "create" | "refuse"> {
  /** The state that a new instance is in. */
  readonly initial: keyof T & string;
  /** Each state, and where it leads to; one that leads nowhere is final. */
  readonly transitions: T;
  /** By the state left, and the state entered. */
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
  /** What a new instance's data is, unless `create` says otherwise. */
  readonly initialData?: Data;
  /** What an event for an instance that is not there means: make it, or refuse with `machine_not_found`. "refuse" unless said otherwise. */
  readonly unknown?: Unknown | undefined;
  /** How many early events may wait for one instance; 32 unless said otherwise. */
  readonly maxParked?: number | undefined;
}

declare const DATA: unique symbol;
declare const GIVEN: unique symbol;

/** A machine: give it to `pawl.machine` and `tx.machine`. `Given` is what `create` must be told. */
export interface Machine<State extends string = string, Data = unknown, Given = Data | undefined> {
  readonly name: string;
  readonly initial: State;
  /** All states, as they are written in the definition. */
  readonly states: readonly State[];
  /** Those without a way out. */
  readonly finalStates: readonly State[];
  /** The machine as lines of text. */
  toText(): string;
  /** The machine as a picture: a whole SVG document, the same each time. */
  toSvg(): string;
  readonly [DATA]?: (data: Data) => Data;
  readonly [GIVEN]?: (given: Given) => void;
}

/** What the decisions know of a machine. */
export interface MachineRules extends Rules {
  readonly name: string;
  readonly initialData: unknown;
  readonly isMadeByEvents: boolean;
}

const definitions = new WeakMap<object, MachineRules>();
const MAX_STATES = 1_000;
const MAX_PARKED = 32;

/** Defines a machine whose data is of this type. Without `initialData`, `create` must be given it, and events make no instances. */
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

/** The same for data of a type that cannot be told from `initialData`: `machine<Data>()("name", …)`. */
export function machine<Data>(): MachineOf<Data>;
/** Defines a machine. Its states are the keys of `transitions`. */
export function machine<const T extends Transitions<T>, Data = undefined>(
  name: string,
  definition: MachineDefinition<T, Data>,
): Machine<keyof T & string, Data, Data | undefined>;
export function machine(...given: readonly unknown[]): unknown {
  // A name that is missing by mistake is not taken for the other form.
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

/** The rules behind a machine. @internal */
export function rulesOf(machine: unknown): MachineRules {
  const rules = typeof machine === "object" && machine !== null ? definitions.get(machine) : undefined;
  if (rules === undefined) throw new InvalidArgumentError("the machine", "must be one that machine(…) gave");
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

/** Those who write JavaScript have no types to stop them. */
function rulesFrom(given: unknown, definition: unknown): MachineRules {
  const name = checkId(given, "the machine's name");
  if (!isPlain(definition)) throw new InvalidArgumentError("the machine", "must have an object that defines it");
  const parts: { readonly [part: string]: unknown } = { ...definition };
  checkOptions(parts, PARTS, "the machine");
  const targets = targetsFrom(parts["transitions"]);
  const initial = checkState(targets, parts["initial"], "the first state");
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
    isMadeByEvents: unknown === "create",
  };
}

type Targets = ReadonlyMap<string, readonly string[]>;

function targetsFrom(transitions: unknown): Targets {
  if (!isPlain(transitions)) throw new InvalidArgumentError("the transitions", "must be an object of states");
  const entries: [string, unknown][] = Object.entries(transitions);
  checkCount(entries.length, "the number of states", MAX_STATES);
  const targets = new Map<string, readonly string[]>();
  for (const [state] of entries) targets.set(checkId(state, "the state"), []);
  for (const [state, to] of entries) {
    if (!Array.isArray(to)) throw new InvalidArgumentError(`the transitions of ${state}`, "must be a list of states");
    const list = to.map((target: unknown) => checkState(targets, target, `where ${state} leads to`));
    if (new Set(list).size < list.length)
      throw new InvalidArgumentError(`the transitions of ${state}`, "must not name a state twice");
    targets.set(state, Object.freeze(list));
  }
  return targets;
}

/** A word that is no state is a mistake of the caller's, whatever state anything is in. @internal */
export function checkState(targets: Targets, state: unknown, what: string): string {
  if (typeof state !== "string" || !targets.has(state))
    throw new InvalidArgumentError(what, `must be a state of the machine: ${[...targets.keys()].join(", ")}`);
  return state;
}

function reachableFrom(targets: Targets, state: string): ReadonlySet<string> {
  const found = new Set<string>();
  const toLookAt = [state];
  for (let from = toLookAt.pop(); from !== undefined; from = toLookAt.pop())
    for (const to of targets.get(from) ?? [])
      if (!found.has(to)) {
        found.add(to);
        toLookAt.push(to);
      }
  return found;
}

function guardsFrom(targets: Targets, guards: unknown): Rules["guards"] {
  const found = new Map<string, Map<string, AnyGuard>>();
  if (guards === undefined) return found;
  if (!isPlain(guards)) throw new InvalidArgumentError("the guards", "must be an object of states");
  for (const [from, ways] of Object.entries(guards) as [string, unknown][]) {
    checkState(targets, from, "a guarded state");
    if (ways === undefined) continue;
    if (!isPlain(ways)) throw new InvalidArgumentError(`the guards of ${from}`, "must be an object of states");
    const mine = new Map<string, AnyGuard>();
    for (const [to, guard] of Object.entries(ways) as [string, unknown][]) {
      checkState(targets, to, `a guard of ${from}`);
      if (guard === undefined) continue;
      // It would never be asked, which its author does not expect.
      if (!targets.get(from)?.includes(to))
        throw new InvalidArgumentError(`the guard of ${from} to ${to}`, "must be on a way that the transitions have");
      checkFunction(guard, `the guard of ${from} to ${to}`);
      mine.set(to, guard as AnyGuard);
    }
    found.set(from, mine);
  }
  return found;
}
