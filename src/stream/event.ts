/**
 * Events: what users define, what they append, and what they read.
 *
 * An event type has a name and the type of its data, with a schema if there is one. When the data changes its shape, the type gets the next
 * `shape` and a function for each older one; events that are stored stay as they are, and are converted when they are read.
 *
 * Fields that are about a person can be named as `personal`: they are stored encrypted with the person's key, and when that was destroyed, they are read
 * as `FORGOTTEN` (`personal/subjects.ts`).
 */

import { checkFunction, checkId, checkOptions, optionNames } from "../kernel/check.ts";
import type { Forgotten } from "../kernel/codec/forgotten.ts";
import { refusePromise } from "../kernel/decision.ts";
import { deepFreeze } from "../kernel/encoding.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { checkIsSchema, checkSchemaNow, type StandardSchema } from "../kernel/schema.ts";
import { EventShapeError } from "./errors.ts";
import { checkPersonal, type PersonalOptions, type PersonalRules, splitData } from "./personal/decide.ts";
import { copyOf, snapshot } from "./snapshot.ts";
import { CLOSED_EVENT } from "./stored.ts";

/** An event to append, as an event type makes it: `Deposited({ amount: 10 })`. */
export class NewEvent<Data = unknown> {
  readonly name: string;
  /** Frozen. A date, a map, a set or bytes, which cannot be frozen, are another copy each time. */
  readonly data!: Data;
  /** The shape of the data. */
  readonly shape: number;
  /** Whose data it has, in which fields. @internal */
  readonly personal: { readonly subject: string; readonly fields: readonly string[] } | undefined;

  /** @internal */
  constructor(
    name: string,
    data: { readonly value: unknown; readonly isFixed: boolean },
    shape: number,
    personal?: NewEvent["personal"],
  ) {
    this.name = name;
    if (data.isFixed) this.data = data.value as Data;
    else Object.defineProperty(this, "data", { enumerable: true, get: () => snapshot(data.value).value });
    this.shape = shape;
    this.personal = personal;
  }
}

/** An event of a stream. It is frozen, and so is its data, except for dates, maps, sets and bytes in it. */
export interface StreamEvent<Data = unknown> {
  readonly stream: string;
  /** Its place in the stream; the first event has version 1. */
  readonly version: number;
  readonly id: string;
  readonly name: string;
  readonly data: Data;
  /** The shape of the data. */
  readonly shape: number;
  /** The store's clock when it was committed. */
  readonly at: Date;
  /** Who caused it, and what it belongs to, if that was given. */
  readonly actor?: string;
  readonly correlationId?: string;
  /** The id of the event, message or request that it follows from, if that was given. */
  readonly causationId?: string;
}

declare const RECOGNIZED: unique symbol;

/**
 * An event that `is` of its type recognized. The mark exists for the compiler alone: events of other types may have the same data, so where `is` is
 * false, nothing is known of the data, and no event may be excluded by its type.
 */
export interface RecognizedEvent<Read> extends StreamEvent<Read> {
  readonly [RECOGNIZED]: true;
}

/** An event type as readers know it. */
export interface ReadableEvent<Read> {
  readonly name: string;
  /** Whether an event is of this type. Its data is of this type as well if it was read with `events: [...]`. */
  is(event: StreamEvent): event is RecognizedEvent<Read>;
}

/**
 * `Read` is the data when it is read, which differs where personal fields may be forgotten; `Input` is what an event is made of, which differs where the
 * schema transforms it or has defaults.
 */
export interface EventType<Data, Read = Data, Input = Data> extends ReadableEvent<Read> {
  /** Makes an event to append. Throws `schema_mismatch`. */
  (...rest: undefined extends Input ? [data?: Input] : [data: Input]): NewEvent<Data>;
}

/** What an event with a schema is made of: the input of the schema, or the data where the schema does not say. */
export type SchemaInput<Data, Input> = unknown extends Input ? Data : Input;

/** Data whose personal fields were forgotten. */
export type ForgottenFields<Data, Field extends keyof Data> = {
  [Name in keyof Data]: Name extends Field ? Forgotten : Data[Name];
};

/** An event type, whatever its data. */
export interface AnyEventType {
  readonly name: string;
  is(event: StreamEvent): boolean;
}

/** How data of an older shape becomes data of the next one. */
interface Upcasts {
  readonly [older: number]: (data: never) => unknown;
}

/** The last older shape of each, so that the compiler checks what its function returns. */
interface LastOlder {
  2: 1;
  3: 2;
  4: 3;
  5: 4;
  6: 5;
  7: 6;
  8: 7;
  9: 8;
}
type FromOne = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9;
type Digit = 0 | FromOne;
type NumberIn<Text> = Text extends `${infer Found extends number}` ? Found : never;
/** Shapes whose functions the compiler does not check: 1, which has none, and those with two digits and more. */
type OtherShape = 1 | NumberIn<`${FromOne}${Digit}` | `${FromOne}${Digit}${Digit}`> | 1000;

/** The shape of the data as a literal number, and the functions for older ones; that for the last older one returns the data as it is read. */
export type ShapeOptions<Read> =
  | {
      /** The number of the data's shape. Default: 1. */
      readonly shape?: OtherShape | undefined;
      /** How data of an older shape becomes data of the next one, by the older number. */
      readonly upcast?: Upcasts | undefined;
    }
  | {
      [Shape in keyof LastOlder]: {
        readonly shape: Shape;
        readonly upcast: Upcasts & { readonly [Older in LastOlder[Shape]]: (data: never) => Read };
      };
    }[keyof LastOlder];

export type EventOptions<Data = unknown, Read = Data> = ShapeOptions<Read> & {
  /** Any schema that follows Standard Schema; it must be synchronous. Checked when an event is made. */
  readonly schema?: StandardSchema<unknown, Data> | undefined;
};

/** The same for an event with personal fields. */
export type PersonalEventOptions<Data, Field extends string, Read = Data> = EventOptions<Data, Read> & {
  /** Which fields are about a person, and who that is. They are stored encrypted, until the person is forgotten. */
  readonly personal: PersonalOptions<Data, Field>;
};

/** What is known of an event type. */
export interface EventRules {
  readonly name: string;
  readonly shape: number;
  readonly upcasts: ReadonlyMap<number, (data: unknown) => unknown>;
  /** Its data has personal fields. */
  readonly isPersonal: boolean;
}

const OPTIONS = optionNames<PersonalEventOptions<unknown, string>>({
  schema: true,
  shape: true,
  upcast: true,
  personal: true,
});
const MAX_SHAPE = 1000;

const definitions = new WeakMap<object, EventRules>();

/** Defines an event with personal fields; `Data` is the type of the schema, or that of the parameter of `subject`. */
export function event<Data, const Field extends keyof Data & string, Input = Data>(
  name: string,
  options: PersonalEventOptions<Data, Field, NoInfer<Data | ForgottenFields<Data, Field>>> & {
    readonly schema?: StandardSchema<Input, Data> | undefined;
  },
): EventType<Data, Data | ForgottenFields<Data, Field>, SchemaInput<Data, Input>>;
/** The same with a given type, where TypeScript does not see which fields are personal: any of them may be forgotten. */
export function event<Data>(
  name: string,
  options: PersonalEventOptions<Data, keyof Data & string, { [Name in keyof Data]: Data[Name] | Forgotten }>,
): EventType<Data, { [Name in keyof Data]: Data[Name] | Forgotten }>;
/** Defines an event whose data has the type that the schema returns; it is made of what the schema takes. */
export function event<Data, Input = Data>(
  name: string,
  options: EventOptions<Data, NoInfer<Data>> & { readonly schema: StandardSchema<Input, Data> },
): EventType<Data, Data, SchemaInput<Data, Input>>;
/** Defines an event whose data has this type. */
export function event<Data = undefined>(name: string, options?: EventOptions<unknown, NoInfer<Data>>): EventType<Data>;
export function event(
  name: string,
  options: EventOptions & { readonly personal?: unknown } = {},
): EventType<unknown, never> {
  checkId(name, "the event's name");
  if (name === CLOSED_EVENT)
    throw new InvalidArgumentError("the event's name", `must not be "${name}", which is Pawl's`);
  checkOptions(options, OPTIONS);
  const { schema, shape = 1, upcast } = options;
  checkIsSchema(schema, "the event's schema");
  const personal = checkPersonal(options.personal);
  const upcasts = checkUpcasts(name, checkShape(shape), upcast);
  const rules: EventRules = { name, shape, upcasts, isPersonal: personal !== undefined };
  const make = (given?: unknown): NewEvent => {
    // A copy, so that what is appended is what was checked here, whatever the caller does with its object meanwhile. What the schema
    // returns may be shared, as a default is.
    const checked = schema === undefined ? given : checkSchemaNow(schema, copyOf(given), `the data of event "${name}"`);
    const data = snapshot(checked);
    return Object.freeze(new NewEvent(name, data, shape, personal && personalOf(personal, data.value)));
  };
  const type = Object.assign(make, { is: (given: StreamEvent): given is StreamEvent => given?.name === name });
  Object.defineProperty(type, "name", { value: name });
  definitions.set(type, rules);
  return Object.freeze(type) as EventType<unknown, never>;
}

function personalOf({ subject, fields }: PersonalRules, data: unknown): NewEvent["personal"] {
  // Data that cannot be split is refused here, and not when it is appended.
  splitData(data, fields);
  const person = subject(data) as unknown;
  refusePromise(person);
  return { subject: checkId(person, "the subject"), fields };
}

function checkShape(shape: unknown): number {
  if (!Number.isInteger(shape) || (shape as number) < 1 || (shape as number) > MAX_SHAPE)
    throw new InvalidArgumentError("the shape", `must be a whole number from 1 to ${MAX_SHAPE}`);
  return shape as number;
}

/** There must be a way from every older shape, or stored events could not be read. */
function checkUpcasts(name: string, shape: number, upcast: unknown = {}): EventRules["upcasts"] {
  if (typeof upcast !== "object" || upcast === null || Array.isArray(upcast))
    throw new InvalidArgumentError("upcast", "must be an object with a function for each older shape");
  const upcasts = new Map<number, (data: unknown) => unknown>();
  for (const [from, convert] of Object.entries(upcast)) {
    checkFunction(convert, `the upcast from shape ${from}`);
    upcasts.set(Number(from), convert as (data: unknown) => unknown);
  }
  for (let older = 1; older < shape; older++)
    if (!upcasts.has(older))
      throw new InvalidArgumentError("upcast", `must have a function for shape ${older} of event "${name}"`);
  if (upcasts.size >= shape)
    throw new InvalidArgumentError(
      "upcast",
      `must have functions for shapes below ${shape}, the newest, and no others`,
    );
  return upcasts;
}

/** @internal */
export function eventRules(type: unknown): EventRules {
  const rules = typeof type === "function" ? definitions.get(type) : undefined;
  if (rules === undefined) throw new InvalidArgumentError("the event", "must be one that event(…) returned");
  return rules;
}

/** The data in its newest shape, frozen. */
export function upcast({ name, shape: newest, upcasts }: EventRules, data: unknown, shape: number): unknown {
  if (shape > newest) throw new EventShapeError(name, shape, newest);
  let converted = data;
  for (let from = shape; from < newest; from++) {
    converted = upcasts.get(from)?.(converted);
    refusePromise(converted);
  }
  if (shape < newest) deepFreeze(converted);
  return converted;
}
