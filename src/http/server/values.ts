/**
 * The values of users in requests and responses: inputs, results, payloads, what a slot holds.
 *
 * Plain JSON values are themselves. What JSON cannot hold has the form in which the codec of the library stores it, an object with one key that
 * begins with `$`: `{"$date":"2030-01-01T00:00:00.000Z"}`, `{"$bigint":"12"}`, `{"$map":[[key,value]]}`, `{"$set":[…]}`, `{"$bytes":"<base64>"}`,
 * `{"$number":"NaN"}`, `{"$undefined":true}`, `{"$error":{…}}`, `{"$forgotten":true}`. An object of a user that looks like one has one more `$`
 * (`src/kernel/codec/json.ts` says it all). The same forms are read in requests, so a value survives the way to the server and back.
 *
 * `undefined` in place of a whole value is left out. The stack of an error is never sent.
 */

import { jsonCodec } from "../../kernel/codec/json.ts";
import { UnsupportedEncodingError } from "../../kernel/errors.ts";
import { Problem } from "./problem.ts";

/** Values are encoded for no record. */
const PLACE = { namespace: "", space: "", key: "" };

/** A value as JSON. */
export function toWire(value: unknown): unknown {
  if (value === undefined) return undefined;
  const text = jsonCodec.encode(value, PLACE);
  const json: unknown = JSON.parse(text);
  return text.includes('"$error"') ? withoutStacks(json) : json;
}

/** Reading and writing a number takes the square of its length, and all others wait meanwhile. */
const MOST_DIGITS = 4000;
const TOO_LONG = new RegExp(`"\\$bigint":"-?\\d{${MOST_DIGITS + 1}}`);

const LITERAL =
  'An object whose one key begins with "$" is written with one more "$": {"$$foo": 1} is an object with the key "$foo".';

/** A value of a request. */
export function fromWire(json: unknown): unknown {
  if (typeof json !== "object" || json === null) return json;
  const text = JSON.stringify(json);
  if (!text.includes('{"$')) return json;
  if (TOO_LONG.test(text)) throw new Problem(400, "unsafe_number", `A bigint has at most ${MOST_DIGITS} digits.`);
  try {
    return jsonCodec.decode(text, PLACE);
  } catch (error) {
    if (!(error instanceof UnsupportedEncodingError)) throw error;
    const { path, reason } = error.data;
    throw new Problem(400, error.code, `The value cannot be read at ${path}: ${reason}. ${LITERAL}`, {
      data: error.data,
    });
  }
}

/** Files and lines of the server are no business of its clients. */
function withoutStacks(json: unknown): unknown {
  if (typeof json !== "object" || json === null) return json;
  if (Array.isArray(json)) return json.map(withoutStacks);
  const entries = Object.entries(json).map(([name, part]): [string, unknown] => {
    if (name !== "$error" || typeof part !== "object" || part === null) return [name, withoutStacks(part)];
    const { stack: _, ...rest } = part as { readonly stack?: unknown };
    return [name, withoutStacks(rest)];
  });
  return Object.fromEntries(entries);
}

/** The same of a failure that the library shows: where it was thrown is for those who have the database. */
export function withoutStack<Part extends string, Shown extends { readonly [Name in Part]: object | null }>(
  shown: Shown,
  part: Part,
): Shown {
  const failure: { readonly stack?: unknown } | null = shown[part];
  if (failure === null) return shown;
  const { stack: _, ...rest } = failure;
  return { ...shown, [part]: rest };
}
