/**
 * The JSON codec: plain values are stored as ordinary JSON, and values that JSON cannot represent are tagged.
 *
 * A tag is an object with exactly one key, which begins with `$`:
 *
 *     {"$undefined":true}   {"$number":"NaN" | "Infinity" | "-Infinity" | "-0"}   {"$bigint":"12"}
 *     {"$date":"2030-01-01T00:00:00.000Z"}   {"$bytes":"<base64>"}   {"$map":[[key,value],…]}   {"$set":[value,…]}
 *     {"$error":{"name":…,"message":…,"stack":…,"cause":…,"errors":[…],"data":{…}}}
 *     {"$forgotten":true}
 *
 * A user's object that looks like a tag gets one more `$`: `{ $date: 1 }` is written `{"$$date":1}`, `{ $$date: 1 }`
 * is written `{"$$$date":1}`, and so on. Most values need no tag: one walk finds that out, and native JSON does the rest.
 * Reading is native JSON too, and walks only when the text contains `{"$`.
 *
 * Guarantees: a value is read back equal, at any nesting, or is refused with the path to the part that cannot be stored.
 * The text is well-formed Unicode without NUL. Nothing that is read can run code, revive a class or change a prototype.
 *
 * What is stored, and how:
 * - Objects: own enumerable properties with string keys, in order, also those named `__proto__` or `toJSON`. A getter is
 *   read, perhaps twice, and its value stored. An object without a prototype comes back as an ordinary one.
 * - Arrays, Map, Set, Date: their content. Additional properties (`index` on the match of a RegExp) are not stored.
 * - Uint8Array and Buffer: their bytes; both come back as a Uint8Array with memory of its own.
 * - Errors of any class: name, message, stack, `cause`, the `errors` of an AggregateError and own enumerable
 *   properties such as `code`. They come back as a plain Error with that name. An error often refers to
 *   sockets and requests: only here, a part that cannot be stored is left out, so that the rest of the error is stored.
 * - FORGOTTEN, which stands in place of forgotten data (`forgotten.ts`), comes back as itself.
 * - One object in two places is written twice and comes back as two.
 *
 * Refused: functions, symbols (as keys too), other classes, holes in arrays, invalid dates, cycles, more than 64 levels,
 * more than 4 million parts (a few objects that share one another can unfold to any number).
 *
 * Out of scope: the limit on the size of the text; and text that something else wrote, which is read as JSON.parse reads it: of a
 * duplicate key the last one counts, 1e400 is Infinity, and without tags it may be nested deeper than 64 levels.
 */

import { Buffer } from "node:buffer";
import { isDate, isMap, isNativeError, isSet, isUint8Array } from "node:util/types";
import { InvalidValueError, UnsupportedEncodingError } from "../errors.ts";
import type { Codec } from "./codec.ts";
import { sealedBy } from "./codec.ts";
import { FORGOTTEN } from "./forgotten.ts";

const MAX_LEVELS = 64;
const MAX_PARTS = 4_000_000;
const ERROR_TEXTS: readonly string[] = ["name", "message", "stack"];
const TOO_DEEP = `nested deeper than ${MAX_LEVELS} levels`;

export const jsonCodec: Codec = {
  encode: (value) => stringify(isPlain(value) ? value : tagged(value)),

  decode(text) {
    let json: unknown;
    try {
      json = JSON.parse(text);
    } catch {
      // The SyntaxError is not passed on: it quotes the text, which may be secret.
      const transform = sealedBy(text);
      const reason =
        transform === null ? "it is not JSON" : `it was sealed by the transform "${transform}", which this codec lacks`;
      throw new UnsupportedEncodingError("$", reason);
    }
    return typeof json === "object" && json !== null && mayHoldTags(text) ? revived(json) : json;
  },
};

function stringify(json: unknown): string {
  try {
    return JSON.stringify(json);
  } catch (error) {
    const isTooLong = error instanceof RangeError;
    throw new InvalidValueError(
      "$",
      isTooLong ? "its text is longer than a string can be" : "it threw when it was read",
    );
  }
}

/** Whether an object in the text begins with a key that begins with `$`. Looking for that one character first is fast. */
function mayHoldTags(text: string): boolean {
  return text.includes("$") && /\{\s*"\$/.test(text);
}

// Plain values

function isPlain(value: unknown): boolean {
  try {
    return isPlainLeaf(value) || partsLeft(value, 0, MAX_PARTS) >= 0;
  } catch {
    return false; // A getter or a proxy threw; the tagging walk says where.
  }
}

/**
 * Walks an object that JSON.stringify would keep unchanged and returns how many parts of the allowance are left; returns -1 as
 * soon as anything needs a tag, a refusal or a closer look. It may return -1 too often (the tagging walk decides), but never
 * too rarely. This is the hot path: leaves are checked in place, and asking for symbols is half of the cost.
 */
function partsLeft(value: unknown, level: number, allowance: number): number {
  if (typeof value !== "object" || value === null || level === MAX_LEVELS) return -1;
  let left = allowance;
  if (Array.isArray(value)) {
    if (Object.getPrototypeOf(value) !== Array.prototype) return -1;
    left -= value.length;
    for (let i = 0; i < value.length && left >= 0; i++) {
      const item: unknown = value[i];
      if (!isPlainLeaf(item)) left = partsLeft(item, level + 1, left);
    }
    return left;
  }
  if (!isLocalObject(value)) return -1;
  let isFirst = true;
  for (const key in value) {
    // Own keys come before inherited ones, so an object's only key is the first, even if Object.prototype was extended.
    if (isFirst && key.charCodeAt(0) === 36) return -1;
    isFirst = false;
    left -= 1;
    const part = value[key];
    if (!isPlainLeaf(part)) left = partsLeft(part, level + 1, left);
    if (left < 0) return -1;
  }
  return Object.getOwnPropertySymbols(value).length === 0 ? left : -1;
}

function isPlainLeaf(value: unknown): value is string | boolean | number | null {
  return (
    typeof value === "string" ||
    typeof value === "boolean" ||
    value === null ||
    (typeof value === "number" && Number.isFinite(value) && (value !== 0 || 1 / value > 0))
  );
}

function isLocalObject(value: object): value is Record<string, unknown> {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

// Writing tags

type Json = string | boolean | number | null | Json[] | { [key: string]: Json };

/** The value as JSON with tags. */
function tagged(value: unknown): Json {
  const walk = new Tagging();
  try {
    return walk.value(value);
  } catch (error) {
    throw new InvalidValueError(
      pathText(walk.path),
      error instanceof Refusal ? error.message : "it threw when it was read",
    );
  }
}

class Tagging {
  /** Stays as it was when the walk threw. */
  readonly path: Step[] = [];
  readonly #around: object[] = [];
  #partCount = 0;

  value(value: unknown): Json {
    if (isPlainLeaf(value)) return value;
    switch (typeof value) {
      case "number":
        return { $number: Object.is(value, -0) ? "-0" : String(value) };
      case "undefined":
        return { $undefined: true };
      case "bigint":
        return { $bigint: String(value) };
      case "object":
        if (value !== null) return this.#object(value);
    }
    throw new Refusal(`it is a ${typeof value}`);
  }

  #object(value: object): Json {
    if (value === FORGOTTEN) return { $forgotten: true };
    const kind = kindOf(value);
    if (kind === "Date" && isDate(value)) return { $date: dateText(value) };
    if (kind === "Uint8Array" && isUint8Array(value)) return { $bytes: Buffer.from(value).toString("base64") };

    if (this.#around.includes(value)) throw new Refusal("it is an object that contains it: a cycle");
    if (this.#around.length === MAX_LEVELS) throw new Refusal(TOO_DEEP);
    this.#around.push(value);
    const json = this.#container(value, kind);
    this.#around.pop();
    return json;
  }

  #container(value: object, kind: string): Json {
    if (Array.isArray(value)) {
      if (kind === "Array") return this.#array(value);
    } else if (kind === "Object" && isRecord(value)) {
      return this.#record(value);
    } else if (kind === "Map" && isMap(value)) {
      return {
        $map: Array.from(value, ([key, item], i) => [this.#item("keys()", i, key), this.#item("values()", i, item)]),
      };
    } else if (kind === "Set" && isSet(value)) {
      return { $set: Array.from(value, (item, i) => this.#item("values()", i, item)) };
    } else if (isNativeError(value) || value instanceof Error) {
      return { $error: this.#error(value) };
    }
    throw new Refusal(whyNotInstance(value));
  }

  #array(items: readonly unknown[]): Json {
    const json: Json[] = [];
    for (let i = 0; i < items.length; i++) {
      this.path.push(i);
      const item = items[i];
      if (item === undefined && !Object.hasOwn(items, i)) throw new Refusal("it is a hole in an array");
      json.push(this.#part(item));
      this.path.pop();
    }
    return json;
  }

  #record(value: Readonly<Record<string, unknown>>): Json {
    if (Object.getOwnPropertySymbols(value).length > 0) throw new Refusal("it has a symbol as a key");
    const keys = Object.keys(value);
    const prefix = keys.length === 1 && keys[0]?.startsWith("$") ? "$" : "";
    const json: { [key: string]: Json } = {};
    for (const key of keys) {
      this.path.push(key);
      put(json, prefix + key, this.#part(value[key]));
      this.path.pop();
    }
    return json;
  }

  #error(error: Error): Json {
    const { name, message, stack } = error;
    const json: { [key: string]: Json } = {};
    json["name"] = typeof name === "string" ? name : "Error";
    json["message"] = typeof message === "string" ? message : "";
    if (typeof stack === "string") json["stack"] = stack;
    for (const key of ["cause", "errors"] as const) {
      const isEnumerable = Object.getOwnPropertyDescriptor(error, key)?.enumerable;
      if (isEnumerable === false) this.#partOfError(error, key, json);
    }
    const data: { [key: string]: Json } = {};
    for (const key of Object.keys(error)) {
      if (!ERROR_TEXTS.includes(key)) this.#partOfError(error, key, data);
    }
    if (Object.keys(data).length > 0) json["data"] = data;
    return json;
  }

  /** Adds a part of an error, or nothing when that cannot be stored. */
  #partOfError(error: Error, key: string, to: { [key: string]: Json }): void {
    const steps = this.path.length;
    const levels = this.#around.length;
    this.path.push(key);
    try {
      const part: unknown = Reflect.get(error, key);
      put(to, key, this.#part(part));
    } catch {
      this.#around.length = levels;
    }
    this.path.length = steps;
  }

  #item(list: "keys()" | "values()", index: number, item: unknown): Json {
    this.path.push({ list, index });
    const json = this.#part(item);
    this.path.pop();
    return json;
  }

  #part(value: unknown): Json {
    this.#partCount += 1;
    if (this.#partCount > MAX_PARTS) throw new Refusal(`it is beyond the first ${MAX_PARTS} parts of the value`);
    return this.value(value);
  }
}

const KINDS: ReadonlyMap<unknown, string> = new Map([
  [null, "Object"],
  [Object.prototype, "Object"],
  [Array.prototype, "Array"],
  [Date.prototype, "Date"],
  [Map.prototype, "Map"],
  [Set.prototype, "Set"],
  [Uint8Array.prototype, "Uint8Array"],
  [Buffer.prototype, "Uint8Array"],
]);

/**
 * The name of the built-in class whose direct instance this is; "" for any other. Built-ins of another realm
 * count: under a test runner that uses `node:vm`, the results of `fetch` have the prototypes of the outer realm.
 */
function kindOf(value: object): string {
  const prototype: unknown = Object.getPrototypeOf(value);
  const known = KINDS.get(prototype);
  if (known !== undefined || typeof prototype !== "object" || prototype === null) return known ?? "";
  const maker: unknown = Object.getOwnPropertyDescriptor(prototype, "constructor")?.value;
  if (typeof maker !== "function") return "";
  return Function.prototype.toString.call(maker) === `function ${maker.name}() { [native code] }` ? maker.name : "";
}

function dateText(date: Date): string {
  if (Number.isNaN(Date.prototype.getTime.call(date))) throw new Refusal("it is an invalid Date");
  return Date.prototype.toISOString.call(date);
}

function whyNotInstance(value: object): string {
  if ("then" in value && typeof value.then === "function") return "it is a promise: did you forget await?";
  const name =
    typeof value.constructor === "function" && value.constructor.name !== ""
      ? value.constructor.name
      : "an unnamed class";
  if (name === "Object") return "it inherits from another object";
  const isBinary = ArrayBuffer.isView(value) || value instanceof ArrayBuffer;
  return `it is an instance of ${name}${isBinary ? "; of binary data, only Uint8Array and Buffer can be stored" : ""}`;
}

/** Assigning to `__proto__` would call its setter. */
function put(json: { [key: string]: Json }, key: string, part: Json): void {
  if (key === "__proto__") Object.defineProperty(json, key, { value: part, enumerable: true });
  else json[key] = part;
}

// Reading tags

/** Converts JSON with tags to the value, in place. */
function revived(json: object): unknown {
  const walk = new Reviving();
  try {
    return walk.value(json);
  } catch (error) {
    // The only other cause is a number or a Map that is too large for the engine.
    const reason = error instanceof Refusal ? error.message : "it is too large";
    throw new UnsupportedEncodingError(pathText(walk.path), reason);
  }
}

class Reviving {
  /** Stays as it was when the walk threw. */
  readonly path: Step[] = [];
  #level = 0;

  value(json: unknown): unknown {
    if (typeof json !== "object" || json === null) return json;
    if (Array.isArray(json)) return this.#array(json);
    if (!isRecord(json)) return json;
    const keys = Object.keys(json);
    const [first] = keys;
    return keys.length === 1 && first?.startsWith("$") ? this.#tag(first, json[first]) : this.#record(json, keys);
  }

  #tag(tag: string, json: unknown): unknown {
    if (tag.startsWith("$$")) {
      const key = tag.slice(1);
      return this.#record({ [key]: json }, [key]);
    }
    switch (tag) {
      case "$undefined":
        return json === true ? undefined : malformed(tag);
      case "$number":
        return json === "NaN" || json === "Infinity" || json === "-Infinity" || json === "-0"
          ? Number(json)
          : malformed(tag);
      case "$bigint":
        return typeof json === "string" && /^(0|-?[1-9][0-9]*)$/.test(json) ? BigInt(json) : malformed(tag);
      case "$date":
        return readDate(json) ?? malformed(tag);
      case "$bytes":
        return readBytes(json) ?? malformed(tag);
      case "$map":
        return this.#map(json) ?? malformed(tag);
      case "$set":
        return this.#set(json) ?? malformed(tag);
      case "$forgotten":
        return json === true ? FORGOTTEN : malformed(tag);
      case "$error":
        return this.#error(json) ?? malformed(tag);
      default:
        throw new Refusal(`it has the tag ${quoted(tag)}, which this release does not know`);
    }
  }

  #array(items: unknown[]): unknown[] {
    this.#descend();
    for (let i = 0; i < items.length; i++) items[i] = this.#part(i, items[i]);
    this.#level -= 1;
    return items;
  }

  /** Assigning is safe even for `__proto__`: the key is an own property already, so no setter is called. */
  #record(record: Record<string, unknown>, keys: readonly string[]): Record<string, unknown> {
    this.#descend();
    for (const key of keys) record[key] = this.#part(key, record[key]);
    this.#level -= 1;
    return record;
  }

  #map(json: unknown): Map<unknown, unknown> | null {
    if (!Array.isArray(json)) return null;
    this.#descend();
    const map = new Map<unknown, unknown>();
    for (const [i, entry] of json.entries()) {
      if (!Array.isArray(entry) || entry.length !== 2) return null;
      map.set(this.#item("keys()", i, entry[0]), this.#item("values()", i, entry[1]));
    }
    this.#level -= 1;
    return map.size === json.length ? map : null;
  }

  #set(json: unknown): Set<unknown> | null {
    if (!Array.isArray(json)) return null;
    this.#descend();
    const set = new Set(json.map((item: unknown, i) => this.#item("values()", i, item)));
    this.#level -= 1;
    return set.size === json.length ? set : null;
  }

  /** A plain Error for every name: no class is looked up. An unknown key comes from a newer release, and is refused. */
  #error(json: unknown): Error | null {
    if (!isRecord(json)) return null;
    const { name, message, stack, data = {}, ...rest } = json;
    if (typeof name !== "string" || typeof message !== "string" || !isRecord(data)) return null;
    if (stack !== undefined && typeof stack !== "string") return null;
    const error = new Error(message);
    define(error, "name", name, false);
    define(error, "stack", stack, false);
    this.#descend();
    for (const [key, part] of Object.entries(rest)) {
      if (key !== "cause" && key !== "errors") return null;
      define(error, key, this.#part(key, part), false);
    }
    for (const [key, part] of Object.entries(data)) {
      if (ERROR_TEXTS.includes(key)) return null;
      define(error, key, this.#part(key, part), true);
    }
    this.#level -= 1;
    return error;
  }

  #part(key: string | number, json: unknown): unknown {
    this.path.push(key);
    const value = this.value(json);
    this.path.pop();
    return value;
  }

  #item(list: "keys()" | "values()", index: number, json: unknown): unknown {
    this.path.push({ list, index });
    const value = this.value(json);
    this.path.pop();
    return value;
  }

  #descend(): void {
    if (this.#level === MAX_LEVELS) throw new Refusal(TOO_DEEP);
    this.#level += 1;
  }
}

function malformed(tag: string): never {
  throw new Refusal(`what follows the tag "${tag}" is malformed`);
}

function readDate(json: unknown): Date | null {
  if (typeof json !== "string") return null;
  const date = new Date(json);
  return !Number.isNaN(date.getTime()) && date.toISOString() === json ? date : null;
}

/** Copied out of the Buffer, whose memory is a shared pool. */
function readBytes(json: unknown): Uint8Array | null {
  if (typeof json !== "string") return null;
  const buffer = Buffer.from(json, "base64");
  return buffer.toString("base64") === json ? new Uint8Array(buffer) : null;
}

function define(error: Error, key: string, value: unknown, enumerable: boolean): void {
  Object.defineProperty(error, key, { value, enumerable, writable: true, configurable: true });
}

// Writing and reading

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Why a value is refused; the walk that throws it knows the path. */
class Refusal extends Error {}

/** One step down: a key, an index, or the position of an item in a Map or Set. */
type Step = string | number | { readonly list: "keys()" | "values()"; readonly index: number };

/** The path as in code: `$.items[3].run`. Long keys are cut, because the path is part of messages. */
function pathText(steps: readonly Step[]): string {
  let text = "$";
  for (const step of steps) {
    if (typeof step === "number") text += `[${step}]`;
    else if (typeof step === "object") text += `.${step.list}[${step.index}]`;
    else text += /^[\p{L}_$][\p{L}\p{N}_$]{0,63}$/u.test(step) ? `.${step}` : `[${quoted(step)}]`;
  }
  return text;
}

function quoted(key: string): string {
  return JSON.stringify(key.length > 64 ? `${key.slice(0, 64)}…` : key);
}
