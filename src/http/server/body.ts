/**
 * The body of a request: read up to a limit, and parsed as JSON that every store keeps as it is.
 *
 * Refused are: any `Content-Encoding` (415), what is not JSON (415), more bytes than the limit, whether they are announced or come in chunks (413),
 * text that is not UTF-8 or not JSON (400 `invalid_json`), more levels or members than the limits (400), and numbers that JavaScript would
 * change: `1e400`, or an integer beyond 2^53 that has no exact double (400 `unsafe_number`).
 *
 * The text is scanned before it is parsed, and the scan stops at the first limit: neither the depth nor the number of keys can block the event loop.
 * Of a duplicate key the last one counts. At most the limit and one chunk are in memory.
 */

import { readUpTo } from "../middleware/body.ts";
import { refuse } from "./problem.ts";

export interface BodyLimits {
  readonly bodyBytes: number;
  readonly depth: number;
  readonly members: number;
}

/** A body that was read: its bytes, and its JSON. */
export interface Body {
  readonly bytes: Uint8Array;
  /** Undefined for a request without a body. */
  readonly json: unknown;
}

/** Reads the body of a request. */
export async function readBody(request: Request, limits: BodyLimits): Promise<Body> {
  const { headers } = request;
  if (headers.has("content-encoding"))
    throw refuse("unsupported_content_encoding", "A body must be sent without Content-Encoding.");
  // A body that is announced as too long is refused before it is read.
  const announced = headers.get("content-length");
  if (announced !== null && Number(announced) > limits.bodyBytes) throw tooLarge(limits);
  if (request.bodyUsed) throw consumed();
  let read: Awaited<ReturnType<typeof readUpTo>>;
  try {
    read = await readUpTo(request.body, limits.bodyBytes);
  } catch {
    throw refuse("request_timeout", "The body did not arrive.");
  }
  if (!read.isWhole) {
    await read.stream.cancel().catch(() => {});
    throw tooLarge(limits);
  }
  const { bytes } = read;
  if (bytes.length === 0 && Number(announced) > 0) throw consumed();
  if (bytes.length === 0) return { bytes, json: undefined };
  if (!isJson(headers.get("content-type")))
    throw refuse("not_json", "A body must be JSON, with Content-Type: application/json.");
  return { bytes, json: parse(bytes, limits) };
}

const consumed = (): Error =>
  refuse(
    "invalid_request",
    "The body was read before the request came to Pawl: mount Pawl before what parses bodies, such as express.json().",
  );

const tooLarge = ({ bodyBytes }: BodyLimits): Error =>
  refuse("request_too_large", `A body may have at most ${bodyBytes} bytes.`, { headers: { connection: "close" } });

/** `application/json`, in UTF-8. */
const isJson = (type: string | null): boolean =>
  type !== null && /^application\/json[ \t]*(?:;[ \t]*charset="?utf-8"?[ \t]*)?$/i.test(type);

function parse(bytes: Uint8Array, limits: BodyLimits): unknown {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw refuse("invalid_json", "The body is not UTF-8.");
  }
  scan(text, limits);
  try {
    return JSON.parse(text);
  } catch {
    throw refuse("invalid_json", "The body is not JSON.");
  }
}

/** The number at this place. What is not a number of JSON is refused when the text is parsed. */
const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y;
/** Integers of up to so many digits are exact. */
const EXACT_DIGITS = 15;

/** Looks at structure and numbers without building anything. Text that is not JSON passes, and is refused by the parser. */
export function scan(text: string, { depth, members }: Omit<BodyLimits, "bodyBytes">): void {
  let level = 0;
  let count = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) at = endOfString(text, at);
    else if (char === OPEN_OBJECT || char === OPEN_ARRAY) {
      level += 1;
      if (level > depth) throw refuse("too_deep", `The body is nested deeper than ${depth} levels.`);
    } else if (char === CLOSE_OBJECT || char === CLOSE_ARRAY) level -= 1;
    else if (char === COLON || char === COMMA) {
      // A member of an object counts once, with its colon or the comma before it, whichever comes more often.
      count += 1;
      if (count > members * 2) throw refuse("too_many_members", `The body has more than ${members} members.`);
    } else if (char === MINUS || (char >= ZERO && char <= NINE)) at = endOfNumber(text, at);
  }
}

const QUOTE = 34;
const BACKSLASH = 92;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;
const OPEN_ARRAY = 91;
const CLOSE_ARRAY = 93;
const COLON = 58;
const COMMA = 44;
const MINUS = 45;
const ZERO = 48;
const NINE = 57;

function endOfString(text: string, from: number): number {
  for (let at = from + 1; ; ) {
    const quote = text.indexOf('"', at);
    if (quote < 0) return text.length;
    let backslashes = 0;
    while (text.charCodeAt(quote - 1 - backslashes) === BACKSLASH) backslashes += 1;
    if (backslashes % 2 === 0) return quote;
    at = quote + 1;
  }
}

function endOfNumber(text: string, from: number): number {
  NUMBER.lastIndex = from;
  const match = NUMBER.exec(text);
  if (match === null) return from;
  const [number, fraction, exponent] = match;
  const isInteger = fraction === undefined && exponent === undefined;
  if (!isInteger || number.length > EXACT_DIGITS) checkNumber(number, isInteger);
  return from + number.length - 1;
}

/** A double has at most 309 digits before the point. */
const MOST_DIGITS = 400;

function checkNumber(number: string, isInteger: boolean): void {
  const value = Number(number);
  const isKept =
    Number.isFinite(value) && (!isInteger || (number.length <= MOST_DIGITS && BigInt(number) === BigInt(value)));
  if (isKept) return;
  const shown = number.length > 40 ? `${number.slice(0, 40)}…` : number;
  throw refuse(
    "unsafe_number",
    `The number ${shown} cannot be kept exactly: send it as a text, or as {"$bigint":"…"}.`,
  );
}
