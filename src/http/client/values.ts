/**
 * Values of users in requests and responses, in the form of the server (`../server/values.ts`): JSON, where what JSON cannot hold is an object with one key that
 * begins with `$`, as `{"$date":"…"}`. It is the form of the library's codec, without Node: a test compares the two.
 *
 * What was forgotten is `FORGOTTEN` of this module.
 */

import { invalidValue, PawlHttpError } from "./errors.ts";

const MOST_LEVELS = 64;

/** In place of the personal fields of a person who was forgotten. */
export const FORGOTTEN: { readonly $forgotten: true } = Object.freeze({ $forgotten: true });

export const isForgotten = (value: unknown): value is typeof FORGOTTEN => value === FORGOTTEN;

/** A value as JSON. Throws `invalid_value` with the path to what cannot be sent. */
export function toWire(value: unknown, path = "$", level = 0): unknown {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      return Number.isFinite(value) && !Object.is(value, -0)
        ? value
        : { $number: Object.is(value, -0) ? "-0" : String(value) };
    case "undefined":
      return { $undefined: true };
    case "bigint":
      return { $bigint: String(value) };
    case "object":
      if (value === null) return null;
      if (level === MOST_LEVELS) throw invalidValue(path, `nested deeper than ${MOST_LEVELS} levels`);
      return objectToWire(value, path, level + 1);
  }
  throw invalidValue(path, `it is a ${typeof value}`);
}

function objectToWire(value: object, path: string, level: number): unknown {
  const part = (one: unknown, name: string): unknown => toWire(one, `${path}${name}`, level);
  if (value === FORGOTTEN) return { $forgotten: true };
  if (Array.isArray(value))
    return Array.from(value, (one, i) => {
      if (one === undefined && !Object.hasOwn(value, i))
        throw invalidValue(`${path}[${i}]`, "it is a hole in an array");
      return part(one, `[${i}]`);
    });
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) throw invalidValue(path, "it is an invalid Date");
    return { $date: value.toISOString() };
  }
  if (value instanceof Uint8Array) return { $bytes: base64Of(value) };
  if (value instanceof Map)
    return { $map: Array.from(value, ([key, one], i) => [part(key, `.keys()[${i}]`), part(one, `.values()[${i}]`)]) };
  if (value instanceof Set) return { $set: Array.from(value, (one, i) => part(one, `.values()[${i}]`)) };
  if (value instanceof Error) return { $error: errorToWire(value, path, level) };
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null && Object.getPrototypeOf(prototype) !== null)
    throw invalidValue(path, "it is an instance of a class");
  const keys = Object.keys(value);
  const prefix = keys.length === 1 && keys[0]?.startsWith("$") ? "$" : "";
  return record(keys.map((key) => [prefix + key, part(value[key as keyof typeof value], `.${key}`)]));
}

/** Without the stack. What cannot be sent of an error is left out, so that the rest is. */
function errorToWire(error: Error, path: string, level: number): unknown {
  const partOf = (name: string): (readonly [string, unknown])[] => {
    try {
      return [[name, toWire(error[name as keyof Error], `${path}.${name}`, level)]];
    } catch {
      return [];
    }
  };
  const own = Object.getOwnPropertyNames(error);
  const data = Object.keys(error).filter((name) => !["name", "message", "stack", "cause", "errors"].includes(name));
  return record([
    ["name", error.name],
    ["message", error.message],
    ...["cause", "errors"].filter((name) => own.includes(name)).flatMap(partOf),
    ...(data.length === 0 ? [] : [["data", record(data.flatMap(partOf))] as const]),
  ]);
}

/** The value of what the server sent. Throws `unsupported_encoding` for a tag that this release does not know, and `unexpected_response` for one whose content is broken. */
export function fromWire(json: unknown): unknown {
  if (typeof json !== "object" || json === null) return json;
  if (Array.isArray(json)) return json.map(fromWire);
  const entries = Object.entries(json);
  const [first] = entries;
  if (entries.length === 1 && first?.[0].startsWith("$") === true) return tagFromWire(...first);
  return record(entries.map(([key, part]) => [key, fromWire(part)]));
}

function tagFromWire(tag: string, part: unknown): unknown {
  if (tag.startsWith("$$")) return record([[tag.slice(1), fromWire(part)]]);
  try {
    return tagged(tag, part);
  } catch (cause) {
    if (cause instanceof PawlHttpError) throw cause;
    throw new PawlHttpError({
      status: 0,
      code: "unexpected_response",
      message: `the server sent a value with the tag "${tag}" whose content is none`,
      data: { path: "$", reason: `the content of the tag "${tag}" is not valid` },
      cause,
    });
  }
}

function tagged(tag: string, part: unknown): unknown {
  switch (tag) {
    case "$undefined":
      return undefined;
    case "$number":
      return Number(part);
    case "$bigint":
      return BigInt(part as string);
    case "$date":
      return new Date(part as string);
    case "$bytes":
      return Uint8Array.from(atob(part as string), (char) => char.charCodeAt(0));
    case "$map":
      return new Map((part as [unknown, unknown][]).map(([key, one]) => [fromWire(key), fromWire(one)]));
    case "$set":
      return new Set((part as unknown[]).map(fromWire));
    case "$forgotten":
      return FORGOTTEN;
    case "$error":
      return errorFromWire(part as WireError);
  }
  throw new PawlHttpError({
    status: 0,
    code: "unsupported_encoding",
    message: `the server sent a value with the tag "${tag}", which this release of the client does not know`,
    data: { path: "$", reason: `it has the tag "${tag}"` },
  });
}

interface WireError {
  readonly name: string;
  readonly message: string;
  readonly cause?: unknown;
  readonly errors?: unknown;
  readonly data?: object;
}

/** A plain Error for every name: no class is looked up. */
function errorFromWire({ name, message, data = {}, ...rest }: WireError): Error {
  const error = new Error(message);
  const define = (key: string, value: unknown, enumerable: boolean): void => {
    Object.defineProperty(error, key, { value, enumerable, writable: true, configurable: true });
  };
  define("name", name, false);
  for (const key of ["cause", "errors"] as const) if (key in rest) define(key, fromWire(rest[key]), false);
  for (const [key, part] of Object.entries(data)) define(key, fromWire(part), true);
  return error;
}

/** Own properties, also one named `__proto__`. */
const record = (entries: readonly (readonly [string, unknown])[]): Record<string, unknown> =>
  Object.fromEntries(entries);

function base64Of(bytes: Uint8Array): string {
  let text = "";
  // A call takes some ten thousand arguments.
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}
