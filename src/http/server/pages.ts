/**
 * Lists: `{ items, next }`, with `limit` and `after` in the query. `next` is the `after` of the next page, and null at the end.
 */

import { z } from "@hono/zod-openapi";
import { refuse } from "./problem.ts";

/** The part of a query that every list has. */
export const pageQuery = {
  limit: z
    .string()
    .regex(/^\d{1,4}$/)
    .transform(Number)
    .optional()
    .openapi({
      type: "integer",
      minimum: 1,
      maximum: 1000,
      description: "How many items at most. Default: 100.",
    }),
  after: z.string().optional().openapi({ description: "The `next` of the page before." }),
};

/** A page of these. */
export const pageOf = <Item extends z.ZodType>(item: Item) =>
  z.object({
    items: z.array(item).readonly(),
    next: z.string().nullable().openapi({ description: "The `after` of the next page; null at the end." }),
  });

/** A page of entries that are in the order of their versions, where `limit` were asked for. */
export const byVersion = <Entry extends { readonly version: number }>(items: readonly Entry[], limit: number) => ({
  items,
  next: items.length < limit ? null : String(items.at(-1)?.version),
});

/** Records of a page that cannot be read, because another codec or key wrote them. */
export const unreadable = z.array(z.object({ id: z.string(), reason: z.string() })).readonly();

/** Says that a filter without conditions is meant. */
export const all = z
  .literal(true)
  .optional()
  .openapi({ description: "Must be given where the filter has no condition: all of them are changed then." });

/** Refuses to change everything, unless the request says so: a filter may be empty by mistake. */
export function checkFilter(conditions: object, all: true | undefined): void {
  const isEmpty = Object.values(conditions).every((one) => one === undefined || one === "");
  if (isEmpty && all !== true)
    throw refuse("invalid_request", 'The filter has no condition: give one, or "all": true to change all of them.');
}

/** The options of a list without what was not given. */
export const given = <Options extends object>(
  options: Options,
): { [Name in keyof Options]: Exclude<Options[Name], undefined> } =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as never;
