/**
 * Schemas that the routes share. They are the source of validation, of types, and of the OpenAPI document.
 */

import { z } from "@hono/zod-openapi";

/** Any value that can be stored, in the form of `values.ts`. */
export const anyValue = z.unknown().openapi({
  description:
    'Any JSON value. What JSON cannot hold has a tag: {"$date":"2030-01-01T00:00:00.000Z"}, {"$bigint":"12"}, {"$map":[[key,value]]}, {"$set":[…]}, {"$bytes":"<base64>"}.',
});

/** A duration of the library. */
export const duration = z
  .union([z.string(), z.number()])
  .openapi({ description: 'A text such as "90s", "1h 30m" or "2 days", or a number of milliseconds.', example: "90s" });

/** A duration in a query, where a number has no type: it needs a unit. */
export const durationText = z.string().openapi({ description: 'A text such as "25s" or "500ms".', example: "25s" });

/** A moment in a request. */
export const moment = z.iso
  .datetime({ offset: true })
  .transform((text) => new Date(text))
  .openapi({ type: "string", format: "date-time", example: "2030-01-01T00:00:00.000Z" });

/** A moment in a response: a Date, which JSON writes as text. */
export const time = z.date().openapi({ type: "string", format: "date-time", example: "2030-01-01T00:00:00.000Z" });

export const timeOrNull = z
  .date()
  .nullable()
  .openapi({ type: ["string", "null"], format: "date-time", example: "2030-01-01T00:00:00.000Z" });

/** A list in a response. */
export const list = <Item extends z.ZodType>(item: Item) => z.array(item).readonly();

/** A whole number in a query. */
export const count = (max: number, description: string) =>
  z
    .string()
    .regex(/^\d{1,16}$/)
    .transform(Number)
    .pipe(z.number().int().min(0).max(max))
    .openapi({ type: "integer", minimum: 0, maximum: max, description });

/** `true` or `false` in a query. */
export const flag = z
  .enum(["true", "false"])
  .transform((text) => text === "true")
  .openapi({ type: "boolean" });

/** A version in a request body. */
export const version = z.number().openapi({ type: "integer", minimum: 0, maximum: Number.MAX_SAFE_INTEGER });

/** A text for people. */
export const text = z.string().openapi({ maxLength: 1000 });
