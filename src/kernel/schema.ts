/**
 * Schemas of users, of any library that follows Standard Schema (version 1): checked where values come in and go out.
 */

import { inTime } from "./deadline.ts";
import { InvalidArgumentError, SchemaError, type SchemaIssue } from "./errors.ts";
import type { Clock } from "./ports.ts";
import { isAwaitable } from "./sync.ts";

/** The part of Standard Schema that is needed. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly PathPart[] | undefined }[] };

type PathPart = PropertyKey | { readonly key: PropertyKey };

/** A schema, or none. */
export function checkIsSchema(schema: unknown, what: string): void {
  if (schema === undefined) return;
  const standard: unknown = Object(schema)["~standard"];
  if (schema === null || typeof (standard as { validate?: unknown } | undefined)?.validate !== "function")
    throw new InvalidArgumentError(what, "must be a schema that follows Standard Schema, with ~standard.validate");
}

/** The value as the schema makes it; throws `schema_mismatch`. Inside a decision, only a synchronous schema can be used. */
export function checkSchemaNow<T>(schema: StandardSchema<unknown, T> | undefined, value: unknown, what: string): T {
  if (schema === undefined) return value as T;
  const result = schema["~standard"].validate(value);
  if (isAwaitable(result))
    throw new InvalidArgumentError(what, "has an asynchronous schema: check it before the decision");
  return checked(result as SchemaResult<T>, what);
}

/** The same for a schema that may be asynchronous. Throws `callback_timeout` if that does not settle within the patience of the call. */
export async function checkSchema<T>(
  schema: StandardSchema<unknown, T>,
  value: unknown,
  what: string,
  { ports, patienceMs }: { readonly ports: { readonly clock: Pick<Clock, "after"> }; readonly patienceMs: number },
): Promise<T> {
  const result = schema["~standard"].validate(value);
  if (!("then" in result)) return checked(result, what);
  return checked(await inTime(ports.clock, patienceMs, `the schema of ${what}`, () => result), what);
}

function checked<T>(result: SchemaResult<T>, what: string): T {
  if (result.issues === undefined) return result.value;
  throw new SchemaError(what, result.issues.map(issueOf));
}

function issueOf({ message, path = [] }: { message: string; path?: readonly PathPart[] | undefined }): SchemaIssue {
  const parts = path.map((part) => String(typeof part === "object" ? part.key : part));
  return { message, path: parts.join(".") };
}
