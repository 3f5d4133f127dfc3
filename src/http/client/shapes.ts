/**
 * The library's shapes in JSON: times are texts in a response, and `Date`s in the library. A field that is a time is known by its name, and a field that
 * holds a value of the user by the call that reads it.
 */

import { fromWire } from "./values.ts";

const TIME = /(?:At|Until|Since|AsOf)$|^(?:at|since|until|queued)$/;
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** What a response shows, with its times as Dates, and the values of users in these fields as they are in the library. */
export function shown<Shape>(json: unknown, values: readonly string[] = []): Shape {
  return show(json, new Set(values), false) as Shape;
}

function show(json: unknown, values: ReadonlySet<string>, isTime: boolean): unknown {
  if (typeof json === "string") return isTime && ISO.test(json) ? new Date(json) : json;
  if (typeof json !== "object" || json === null) return json;
  if (Array.isArray(json)) return json.map((one) => show(one, values, isTime));
  return Object.fromEntries(
    Object.entries(json).map(([name, part]) => [
      name,
      values.has(name) ? fromWire(part) : show(part, values, TIME.test(name)),
    ]),
  );
}

/** The data of an error, with its times as Dates. What is below is the user's, except in an outcome. */
export const withTimes = (data: unknown): unknown =>
  typeof data !== "object" || data === null
    ? data
    : Object.fromEntries(
        Object.entries(data).map(([name, part]) => [
          name,
          typeof part === "string" && TIME.test(name) && ISO.test(part)
            ? new Date(part)
            : name === "outcome"
              ? withTimes(part)
              : part,
        ]),
      );
