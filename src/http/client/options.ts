/**
 * Options in requests. Each method names its options once, each with how it is sent; what a method does not name is refused, as in the library, because a
 * misspelt option would be ignored silently.
 *
 * What is in an option is checked by the server. Here is refused only what cannot be sent: no request has an invalid Date, and an abort signal stays on this side.
 */

import { invalidArgument } from "./errors.ts";
import { toWire } from "./values.ts";

/** What a request has for an option; undefined for one that is not sent. */
type Sending = (given: never, name: string) => unknown;
type NamesIn<Options> = Options extends unknown ? keyof Options & string : never;

/** How the options of a type are sent. It does not compile if a name is missing or unknown. */
export type Sendings<Options> = Readonly<Record<NamesIn<Options>, Sending>>;

/** What JSON would leave out, or have null for, is refused: the call would be another one. */
export function sendable(name: string, given: unknown): unknown {
  const isNumber = typeof given === "number" || given instanceof Date;
  if (["function", "symbol", "bigint"].includes(typeof given) || (isNumber && !Number.isFinite(Number(given))))
    throw invalidArgument(`"${name}"`, `must not be ${isNumber ? given : `a ${typeof given}`}`);
  return given;
}

/** A lone surrogate would be another character in an address. */
export function plain(given: unknown, name: string): unknown {
  if (typeof given === "string" && !given.isWellFormed())
    throw invalidArgument(`"${name}"`, "must not contain lone surrogates");
  return sendable(name, given);
}

/** Used by the client itself. */
export const own = (): undefined => undefined;

export const value = (given: unknown): unknown => toWire(given);

/** The end of the year 9999, as in the library. */
const MAX_DATE_MS = 253_402_300_799_999;

/** Null is for the server, which takes it in some places for the default. */
export function moment(given: unknown, name: string): string | null {
  if (given === null) return null;
  const ms = given instanceof Date ? given.getTime() : given;
  if (Number.isInteger(ms) && (ms as number) >= 0 && (ms as number) <= MAX_DATE_MS)
    return new Date(ms as number).toISOString();
  throw invalidArgument(`"${name}"`, "must be a valid Date or whole milliseconds since 1970, before the year 10000");
}

export const moments = (given: unknown, name: string): unknown =>
  Array.isArray(given) ? given.map((one) => moment(one, name)) : moment(given, name);

export function abortSignal(given: unknown): undefined {
  if (!(given instanceof AbortSignal)) throw invalidArgument("the abortSignal", "must be an AbortSignal");
}

/** Which types of events the client lets through. */
export function types(given: unknown): undefined {
  if (!Array.isArray(given) || given.some((type) => typeof type?.name !== "string"))
    throw invalidArgument("the events", "must be an array of event types");
}

/** An option that is an object of options. */
export const nested =
  (known: Readonly<Record<string, Sending>>): Sending =>
  (given, name) =>
    sent(given, known, `the ${name}`);

export const PAGE = { after: plain, limit: plain };
export const ABORTED = { abortSignal };

/** Options as a body or query, without what was not given. Throws `invalid_argument`. */
export function sent(
  options: object | undefined,
  known: Readonly<Record<string, Sending>>,
  what = "the options",
): Record<string, unknown> {
  if (options === undefined) return {};
  if (typeof options !== "object" || options === null || isOther(options))
    throw invalidArgument(what, "must be an object with options");
  const body: Record<string, unknown> = {};
  for (const [name, given] of Object.entries(options)) {
    const send = Object.hasOwn(known, name) ? known[name] : undefined;
    if (send === undefined)
      throw invalidArgument(
        what,
        `must not have "${name}": there is no such option; the known options are: ${Object.keys(known).join(", ")}`,
      );
    if (given !== undefined) body[name] = send(given as never, name);
  }
  return body;
}

/** Objects that are no options, and would count as none: a promise that was not awaited, an AbortSignal, an array, a Map, a Date. */
const isOther = (given: object): boolean =>
  Array.isArray(given) ||
  given instanceof Date ||
  Symbol.toStringTag in given ||
  typeof (given as { readonly then?: unknown }).then === "function";
