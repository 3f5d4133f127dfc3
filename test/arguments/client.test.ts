/**
 * Goal: what a client is given in place of an id, a number, a time or a value is refused, with a code and without an effect, as by the library.
 * Method: the attacks of the library (`attack.ts`), on a client of an app, with options that do not exist. They are values of the type that the parameter has, and
 * those that no request can hold, which the client refuses. Values of other types that arrive as they were given are left to the server: a client is typed.
 */

import { describe, expect, test } from "vitest";
import { attack, type Rules } from "./attack.ts";
import { CLIENT_OWNERS } from "./client-entries.ts";
import { REFUSALS } from "./values.ts";

const isText = (value: unknown): boolean => typeof value === "string";
/** JSON has no -0. */
const isNumber = (value: unknown): boolean => typeof value === "number" && !Object.is(value, -0);
const isList = (value: unknown): boolean => Array.isArray(value) && value.every(isText);

/** What a getter throws is the caller's own. */
const hasGetter = (value: unknown): boolean =>
  typeof value === "object" &&
  value !== null &&
  Object.values(Object.getOwnPropertyDescriptors(value)).some(({ get }) => get !== undefined);

/** What the types of each kind allow. Others are of this side of the wire, as functions and signals are, or are attacked field by field. */
const TYPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  choice: isText,
  choices: (value) => isText(value) || isList(value),
  count: isNumber,
  cron: isText,
  cursor: isText,
  duration: (value) => isText(value) || isNumber(value),
  factor: isNumber,
  fence: isNumber,
  id: isText,
  ids: isList,
  lease: (value) => isText(value) || isNumber(value),
  method: isText,
  number: isNumber,
  pin: isText,
  positive: (value) => isText(value) || isNumber(value),
  prefix: isText,
  priority: isNumber,
  schedule: isText,
  share: isNumber,
  text: isText,
  timezone: isText,
  url: isText,
  value: (value) => !hasGetter(value),
  version: isNumber,
  workflow: isText,
};

/** What JSON would leave out or have null for, and what a URL would have as a text. */
const isUnsendable = (value: unknown): boolean =>
  ["bigint", "function", "symbol"].includes(typeof value) ||
  (typeof value === "number" && !Number.isFinite(value)) ||
  (value instanceof Date && Number.isNaN(value.getTime())) ||
  (typeof value === "object" && value !== null && Object.hasOwn(value, "toString"));

/** These are refused by the client, whatever they are. */
const CHECKED = new Set(["abortSignal", "object", "options", "time", "times"]);

const RULES: Rules = {
  isAttack: (given, value) => {
    const kind = given.replace("?", "");
    return CHECKED.has(kind) || isUnsendable(value) || TYPES[kind]?.(value) === true;
  },
  knowsOptions: true,
  isRefusal: (code) =>
    REFUSALS.has(code) || ["invalid_request", "request_too_large"].includes(code) || code.endsWith("_not_found"),
  // The server counts requests, keeps refusals for a repetition with the same key, and has a key for its cursors.
  isAside: (space) => ["cursor_key", "rate/pawl.http"].includes(space) || space.startsWith("idempotent/"),
};

const owners = Object.entries(CLIENT_OWNERS).map(([name, owner]) => ({
  name,
  owner,
  rows: Object.entries(owner.rows).filter(([, { takes }]) => Object.keys(takes).length > 0),
}));

describe.each(owners.filter(({ rows }) => rows.length > 0))("arguments of $name", ({ owner, rows }) => {
  test.each(rows)("%s: what cannot be sent or used is refused, and writes nothing", async (name, row) => {
    const found = await attack({}, owner, name, row, RULES);
    if (found.length > 0) expect.fail(found.join("\n"));
  });
});
