/**
 * Checks of arguments: ids, counts, versions, durations. All of them run before anything is written, and their messages
 * say which argument is wrong and what it must be.
 */

import { InvalidArgumentError, InvalidDurationError, InvalidIdError } from "./errors.ts";

export const MAX_ID_BYTES = 256;

// Control characters of ASCII and Latin-1, and the separators that some tools take for line ends.
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;

/** Ids are stored unchanged: no trimming, no Unicode normalization, no meaning in `/`, `%` or `..`. Throws `invalid_id`. */
export function checkId(id: unknown, what: string): string {
  if (typeof id !== "string") throw new InvalidIdError(what, `must be a string, not ${typeName(id)}`);
  if (id === "") throw new InvalidIdError(what, "must not be empty");
  // Up to a third of the limit in characters, no text can be over it in bytes.
  if (id.length > MAX_ID_BYTES / 3 && utf8Length(id) > MAX_ID_BYTES)
    throw new InvalidIdError(what, `must not be longer than ${MAX_ID_BYTES} bytes`);
  if (CONTROL.test(id)) throw new InvalidIdError(what, "must not contain control characters");
  if (!id.isWellFormed()) throw new InvalidIdError(what, "must not contain lone surrogates");
  return id;
}

/** A prefix is an id, or the empty string. */
export function checkPrefix(prefix: unknown, what: string): string {
  return prefix === "" ? "" : checkId(prefix, what);
}

export function checkCount(count: unknown, what: string, max = 10_000): number {
  if (typeof count !== "number" || !Number.isInteger(count) || count < 1 || count > max)
    throw new InvalidArgumentError(what, `must be a whole number from 1 to ${max}, not ${shown(count)}`);
  return count;
}

export function checkFunction(given: unknown, what: string): void {
  if (typeof given !== "function") throw new InvalidArgumentError(what, `must be a function, not ${typeName(given)}`);
}

/** The version that a caller expects to replace; 0 means that nothing is stored. */
export function checkVersion(version: unknown, what: string): number {
  if (!Number.isSafeInteger(version) || (version as number) < 0 || Object.is(version, -0))
    throw new InvalidArgumentError(what, `must be a whole number from 0 to 2^53 - 1, not ${shown(version)}`);
  return version as number;
}

/** The largest time a Date can hold; below 2^53, so that every store keeps it exactly. */
export const MAX_TIME_MS = 8.64e15;

export function checkTime(ms: unknown, what: string): number {
  if (!Number.isInteger(ms) || (ms as number) < 0 || (ms as number) > MAX_TIME_MS)
    throw new InvalidArgumentError(what, `must be a time in whole milliseconds since 1970, not ${shown(ms)}`);
  return ms as number;
}

/** The end of the year 9999. Microseconds and nanoseconds since 1970 are far beyond it. */
const MAX_DATE_MS = 253_402_300_799_999;

/** A point in time: a valid Date, or milliseconds since 1970, up to the year 9999. A string is refused. */
export function checkDate(moment: unknown, what: string): number {
  const ms = moment instanceof Date ? moment.getTime() : moment;
  if (!Number.isInteger(ms) || (ms as number) < 0 || (ms as number) > MAX_DATE_MS)
    throw new InvalidArgumentError(
      what,
      `must be a valid Date or whole milliseconds since 1970, before the year 10000, not ${shownMoment(moment)}`,
    );
  return ms as number;
}

const shownMoment = (moment: unknown): string =>
  !(moment instanceof Date) ? shown(moment) : Number.isNaN(moment.getTime()) ? "an invalid Date" : moment.toISOString();

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  millisecond: 1,
  s: 1000,
  sec: 1000,
  second: 1000,
  m: 60_000,
  min: 60_000,
  minute: 60_000,
  h: 3_600_000,
  hour: 3_600_000,
  d: 86_400_000,
  day: 86_400_000,
  w: 604_800_000,
  week: 604_800_000,
};

/** A number of milliseconds, or a string such as "90s", "1.5 hours", "2 days" or "1h 30m". */
export type Duration = number | string;

const MAX_DURATION_MS = 100 * 365.25 * 24 * 3_600_000;

/** Whole milliseconds, 0 to a hundred years. A number without a unit in a string is refused. Throws `invalid_duration`. */
export function checkDuration(duration: unknown, what: string): number {
  const ms = typeof duration === "string" ? parseDuration(duration) : duration;
  if (typeof ms !== "number" || !Number.isFinite(ms) || ms < 0 || ms > MAX_DURATION_MS)
    throw new InvalidDurationError(
      what,
      `must be milliseconds from 0 to a hundred years, or a string such as "90s", "2 days" or "1h 30m", not ${shown(duration)}${isBare(duration) ? NEEDS_UNIT : ""}`,
    );
  return Math.ceil(ms);
}

/** A number in a string: from a query or a command line, where milliseconds cannot be told from a text. */
const isBare = (duration: unknown): boolean => typeof duration === "string" && /^\d+(?:\.\d+)?$/.test(duration);
const NEEDS_UNIT = ': a string needs a unit, such as "1s"';

/** One part of a duration: an amount and its unit. */
const PART = /(\d+(?:\.\d+)?) ?([a-z]+) ?/y;

/** Parts from the largest unit to the smallest, each unit once: "1h30m", "1 day 12 hours". */
function parseDuration(text: string): number | undefined {
  if (text.length > LONGEST_DURATION || text.endsWith(" ")) return undefined;
  let ms = 0;
  let lastScale = Number.POSITIVE_INFINITY;
  PART.lastIndex = 0;
  while (PART.lastIndex < text.length) {
    const match = PART.exec(text);
    if (match === null) return undefined;
    const [, amount = "", unit = ""] = match;
    const scale = scaleOf(unit);
    if (scale === undefined || scale >= lastScale) return undefined;
    lastScale = scale;
    ms += Number(amount) * scale;
  }
  return lastScale === Number.POSITIVE_INFINITY ? undefined : ms;
}

const LONGEST_DURATION = 100;

/** Own properties only, so that "1 constructor" finds nothing. A plural is the unit followed by "s". */
function scaleOf(unit: string): number | undefined {
  if (Object.hasOwn(UNITS, unit)) return UNITS[unit];
  const singular = unit.slice(0, -1);
  return unit.length > 3 && unit.endsWith("s") && Object.hasOwn(UNITS, singular) ? UNITS[singular] : undefined;
}

const MAX_LEASE_MS = 24 * 3_600_000;

/** A lease from 10 ms to 24 hours: long enough to be renewed in time, short enough that a dead holder is noticed the same day. */
export function checkLease(duration: unknown, what: string): number {
  const ms = checkDuration(duration, what);
  if (ms < 10 || ms > MAX_LEASE_MS)
    throw new InvalidDurationError(what, `must be a lease from 10 ms to 24 hours, not ${shown(duration)}`);
  return ms;
}

/** The bytes of a text in UTF-8. */
export function utf8Length(text: string): number {
  return Buffer.byteLength(text, "utf8");
}

/** Compares by UTF-8 bytes, as every store orders its keys; JavaScript's own order differs above U+FFFF. */
export function compareUtf8(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const x = a.charCodeAt(i);
    const y = b.charCodeAt(i);
    // Surrogates encode the characters above U+FFFF, so they sort after the rest of the 16-bit range.
    if (x !== y) return (isSurrogate(x) ? x + 0x10000 : x) - (isSurrogate(y) ? y + 0x10000 : y);
  }
  return a.length - b.length;
}

const isSurrogate = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdfff;

/** The smallest text above all texts with this prefix, or null if there is none. */
export function prefixEnd(prefix: string): string | null {
  const points = Array.from(prefix, (char) => char.codePointAt(0) ?? 0);
  for (let last = points.pop(); last !== undefined; last = points.pop()) {
    if (last === 0x10ffff) continue;
    const next = last === 0xd7ff ? 0xe000 : last + 1;
    return String.fromCodePoint(...points, next);
  }
  return null;
}

const typeName = (value: unknown): string => (value === null ? "null" : typeof value);

function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  return typeName(value);
}

/** The names that an options object may have. */
export type OptionNames = ReadonlySet<string>;

type NamesIn<Options> = Options extends unknown ? keyof Options & string : never;

/** The option names of a type, for `checkOptions`. It does not compile if a name is missing or unknown. */
export const optionNames = <Options>(names: Readonly<Record<NamesIn<Options>, true>>): OptionNames =>
  new Set(Object.keys(names));

/**
 * Options are an object with known names, or undefined. Anything else is refused, because a misspelt option would be ignored silently.
 * Inherited properties and symbols are not checked. Throws `invalid_argument`.
 */
export function checkOptions(options: unknown, known: OptionNames, what = "the options"): void {
  if (options === undefined) return;
  checkObject(options, what);
  const other = otherKind(options);
  if (other !== undefined) throw new InvalidArgumentError(what, `must be an object with options, not ${other}`);
  // Without a list of the names: some of these calls are made for every step.
  for (const name in options)
    if (!known.has(name) && Object.hasOwn(options, name))
      throw new InvalidArgumentError(
        what,
        `must not have ${shown(name)}: there is no such option; the known options are: ${[...known].join(", ") || "none"}`,
      );
}

/** Objects that are no options, and would count as none: a promise that was not awaited, an AbortSignal, an array, a Map, a Date. */
function otherKind(given: object): string | undefined {
  const prototype: unknown = Object.getPrototypeOf(given);
  if (prototype === Object.prototype || prototype === null) return undefined;
  if (typeof (given as { readonly then?: unknown }).then === "function") return "a promise: await it first";
  if (Array.isArray(given)) return "an array";
  if (given instanceof Date) return "a Date";
  const { [Symbol.toStringTag]: tag } = given as { readonly [Symbol.toStringTag]?: unknown };
  return typeof tag === "string" ? `${/^[AEIOU]/.test(tag) ? "an" : "a"} ${tag}` : undefined;
}

export function checkObject(given: unknown, what: string): asserts given is object {
  if (typeof given !== "object" || given === null)
    throw new InvalidArgumentError(what, `must be an object, not ${shown(given)}`);
}

export function checkBoolean(given: unknown, what: string): boolean {
  if (typeof given !== "boolean") throw new InvalidArgumentError(what, `must be true or false, not ${shown(given)}`);
  return given;
}

/** An `AbortSignal`, from Node or from a library that has its own; or undefined. */
export function checkAbortSignal(given: unknown): void {
  if (given === undefined) return;
  const { aborted, addEventListener } = (given ?? {}) as Partial<AbortSignal>;
  if (typeof given !== "object" || typeof aborted !== "boolean" || typeof addEventListener !== "function")
    throw new InvalidArgumentError("the abortSignal", `must be an AbortSignal, not ${shown(given)}`);
}

/** A text that people read. */
export function checkText(text: unknown, what: string, maxChars = 1000): string {
  if (typeof text !== "string" || text.length > maxChars || !text.isWellFormed())
    throw new InvalidArgumentError(
      what,
      `must be a text of at most ${maxChars} characters without lone surrogates, not ${shown(text)}`,
    );
  return text;
}

export function checkList(list: unknown, what: string): void {
  if (!Array.isArray(list)) throw new InvalidArgumentError(what, `must be an array, not ${shown(list)}`);
}
