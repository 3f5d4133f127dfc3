/**
 * Projections: what users define. A projection makes rows of events, in Pawl's records or in tables of the user's own, so that they can be looked up
 * without reading streams.
 */

import {
  checkFunction,
  checkId,
  checkList,
  checkObject,
  checkOptions,
  optionNames,
  utf8Length,
} from "../../kernel/check.ts";
import type { Sql } from "../../kernel/contract.ts";
import type { Sync } from "../../kernel/decision.ts";
import { InvalidArgumentError, InvalidIdError } from "../../kernel/errors.ts";
import { hash } from "../../kernel/fingerprint.ts";
import { type AnyEventType, type EventRules, eventRules, type StreamEvent } from "../event.ts";
import type { DataOf } from "../reading.ts";

export interface ProjectionOptions<Types extends readonly AnyEventType[] = readonly AnyEventType[]> {
  /** The events that it is made of. */
  readonly on: Types;
  /**
   * The key of the row, or of the rows, that an event changes; undefined for an event that changes none. A key that is named twice
   * counts once. It must return the same each time. Default: the event's stream.
   */
  readonly key?: ((event: StreamEvent<DataOf<Types>>) => string | readonly string[] | undefined) | undefined;
  /**
   * Change it when the functions change, so that the projection is built again. Default: their source text, which does not see what they call.
   */
  readonly version?: string | undefined;
  /**
   * Where a build begins. "kept": with the events that were not removed, so that it needs no archive, and lacks what was removed. Default:
   * "beginning", with all events.
   */
  readonly from?: "beginning" | "kept" | undefined;
}

/** What an event makes of a row. It is pure, and may run more than once. `row` is frozen; undefined where there is none, and to remove it. */
export type Apply<Row, Data> = (row: Row | undefined, event: StreamEvent<Data>, key: string) => Sync<Row | undefined>;

/** The generation of a projection whose rows are written: each has tables of its own. */
export interface GenerationInfo {
  readonly generation: number;
}

export interface SqlProjectionOptions<Types extends readonly AnyEventType[] = readonly AnyEventType[]> {
  /** The events that it is made of. */
  readonly on: Types;
  /** Change it when the tables or the functions change, so that the projection is built again. Default: the functions' source text. */
  readonly version?: string | undefined;
  /**
   * Where a build begins. "kept": with the events that were not removed, so that it needs no archive, and lacks what was removed. Default:
   * "beginning", with all events.
   */
  readonly from?: "beginning" | "kept" | undefined;
  /** Makes the tables of a generation, once, before its first events. */
  readonly setUp?: ((sql: Sql, info: GenerationInfo) => unknown) | undefined;
  /**
   * The generation has caught up: lets readers see its tables from now on, and removes those of the `previous` one, which is null for the first. One
   * transaction with the record that says so.
   */
  readonly swap?: ((sql: Sql, info: GenerationInfo & { readonly previous: number | null }) => unknown) | undefined;
}

/** Writes events to tables of the user's own, in one transaction with the progress. */
export type ApplySql<Data> = (events: readonly StreamEvent<Data>[], sql: Sql, info: GenerationInfo) => unknown;

declare const ROW: unique symbol;

/** A projection that is defined, for `pawl.work` and `pawl.projection`. */
export interface Projection<Row = unknown> {
  readonly name: string;
  readonly [ROW]?: (row: Row) => Row;
}

declare const IS_SQL: unique symbol;

/** A projection into tables of the user's own. */
export interface SqlProjection {
  readonly name: string;
  readonly [IS_SQL]?: true;
}

interface SharedRules {
  readonly name: string;
  /** By the name of the event. */
  readonly types: ReadonlyMap<string, EventRules>;
  /** Names this code, so that a generation is continued only by the code that began it. */
  readonly by: string;
  readonly from: "beginning" | "kept";
}

export interface RowRules extends SharedRules {
  readonly is: "rows";
  readonly key: (event: StreamEvent) => unknown;
  readonly apply: (row: unknown, event: StreamEvent, key: string) => unknown;
}

export interface SqlRules extends SharedRules {
  readonly is: "sql";
  readonly apply: (events: readonly StreamEvent[], sql: Sql, info: GenerationInfo) => unknown;
  readonly setUp: ((sql: Sql, info: GenerationInfo) => unknown) | undefined;
  readonly swap: ((sql: Sql, info: GenerationInfo & { readonly previous: number | null }) => unknown) | undefined;
}

export type ProjectionRules = RowRules | SqlRules;

const OPTIONS = optionNames<ProjectionOptions>({ on: true, key: true, version: true, from: true });
const SQL_OPTIONS = optionNames<SqlProjectionOptions>({ on: true, version: true, from: true, setUp: true, swap: true });

const definitions = new WeakMap<object, ProjectionRules>();

const streamOf = (event: StreamEvent): string => event.stream;

function define<const Types extends readonly AnyEventType[], Row>(
  name: string,
  options: ProjectionOptions<Types>,
  apply: Apply<Row, DataOf<Types>>,
): Projection<Row> {
  checkId(name, "the projection's name");
  checkObject(options, "the options");
  checkOptions(options, OPTIONS);
  checkFunction(apply, "the function");
  const { on, key = streamOf, version, from } = options;
  checkFunction(key, "key");
  const types = typesOf(on);
  return defined(name, {
    is: "rows",
    name,
    types,
    by: codeOf(types, version, [key, apply]),
    from: checkFrom(from),
    key: key as RowRules["key"],
    apply: apply as RowRules["apply"],
  });
}

function defineSql<const Types extends readonly AnyEventType[]>(
  name: string,
  options: SqlProjectionOptions<Types>,
  apply: ApplySql<DataOf<Types>>,
): SqlProjection {
  checkId(name, "the projection's name");
  checkObject(options, "the options");
  checkOptions(options, SQL_OPTIONS);
  checkFunction(apply, "the function");
  const { on, version, from, setUp, swap } = options;
  if (setUp !== undefined) checkFunction(setUp, "setUp");
  if (swap !== undefined) checkFunction(swap, "swap");
  const types = typesOf(on);
  return defined(name, {
    is: "sql",
    name,
    types,
    by: codeOf(types, version, [apply, setUp, swap]),
    from: checkFrom(from),
    apply: apply as SqlRules["apply"],
    setUp,
    swap,
  });
}

/** Defines a projection: what each event makes of the row of its key. Give it to `pawl.work`, and read it with `pawl.projection`. */
export const projection: typeof define & {
  /** Defines a projection into tables of your own: your rows and the progress are one transaction. */
  readonly sql: typeof defineSql;
} = Object.assign(define, { sql: defineSql });

/** A name is part of longer ones: that of the queue has the hash of the code in it. */
const MAX_NAME_BYTES = 212;

function defined(name: string, rules: ProjectionRules): { readonly name: string } {
  if (utf8Length(name) > MAX_NAME_BYTES)
    throw new InvalidIdError("the projection's name", `must not be longer than ${MAX_NAME_BYTES} bytes`);
  const projection = Object.freeze({ name });
  definitions.set(projection, rules);
  return projection;
}

function checkFrom(from: unknown = "beginning"): "beginning" | "kept" {
  if (from === "beginning" || from === "kept") return from;
  throw new InvalidArgumentError("from", 'must be "beginning" or "kept"');
}

function typesOf(on: readonly unknown[]): ReadonlyMap<string, EventRules> {
  checkList(on, "on");
  if (on.length === 0) throw new InvalidArgumentError("on", "must have at least one event");
  const types = new Map<string, EventRules>();
  for (const type of on) {
    const rules = eventRules(type);
    if (types.has(rules.name)) throw new InvalidArgumentError("on", `must not have event "${rules.name}" twice`);
    types.set(rules.name, rules);
  }
  return types;
}

/** Names the code: its version, or its source text; and the events with their shapes. */
function codeOf(types: ReadonlyMap<string, EventRules>, version: unknown, functions: readonly unknown[]): string {
  const events = Array.from(types.values(), ({ name, shape }) => `${name} ${shape}`);
  if (version !== undefined) return hash("version", checkId(version, "the version"), ...events.toSorted());
  const upcasts = Array.from(types.values(), ({ upcasts }) =>
    Array.from(upcasts, ([from, convert]) => `${from} ${convert}`),
  );
  return hash(...events.toSorted(), ...upcasts.flat(), ...functions.map(String));
}

/** What is known of a projection; undefined if it is none. @internal */
export function projectionRules(projection: unknown): ProjectionRules | undefined {
  return typeof projection === "object" && projection !== null ? definitions.get(projection) : undefined;
}
