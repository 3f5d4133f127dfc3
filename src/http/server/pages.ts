/**
 * Lists: `{ items, next }`, with `limit` and `after` in the query. `next` is the `after` of the next page, and null at the end.
 *
 * An item may have a value of a megabyte, so a page also ends after `PAGE_BYTES`, and is read a few rows at a time: neither the response nor what is read for it
 * grows with `limit` alone.
 */

import { z } from "@hono/zod-openapi";
import { checkCount, utf8Length } from "../../kernel/check.ts";
import type { Unreadable } from "../../kernel/encoding.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Cursors } from "./cursors.ts";

/** A page ends before the item with which it would have more bytes of JSON, unless that is its first. */
const PAGE_BYTES = 4 * 1024 * 1024;
/** How many rows are read at a time: at first, and at most. */
const FIRST_ROWS = 4;
const MOST_ROWS = 64;
const MOST_ITEMS = 1000;

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
      description: "How many items at most; a page of large ones has fewer. Default: 100.",
    }),
  after: z.string().optional().openapi({ description: "The `next` of the page before." }),
};

/** A page of these. */
export const pageOf = <Item extends z.ZodType>(item: Item) =>
  z.object({
    items: z.array(item).readonly(),
    next: z.string().nullable().openapi({ description: "The `after` of the next page; null at the end." }),
  });

/** What is read of a list at a time. */
interface Part<Item, Next> {
  readonly items: readonly Item[];
  readonly unreadable?: readonly Unreadable[];
  readonly next: Next | null;
}

/** Reads a page, part by part. */
export async function readPage<Item, Next extends string | number = string>(
  { limit, after }: { readonly limit?: number | undefined; readonly after?: Next | undefined },
  read: (part: { readonly limit: number; readonly after: Next | undefined }) => Promise<Part<Item, Next>>,
) {
  const items: Item[] = [];
  const unreadable: Unreadable[] = [];
  let left = checkCount(limit ?? 100, "the limit", MOST_ITEMS);
  let bytes = 0;
  let next = after ?? null;
  for (let most = FIRST_ROWS; ; most = Math.min(MOST_ROWS, 4 * most)) {
    // As many as have room if they are as large as those before.
    const room = items.length === 0 ? most : Math.floor((PAGE_BYTES - bytes) / (bytes / items.length));
    const rows = Math.min(left, most, room);
    if (rows < 1) break;
    const part = await read({ limit: rows, after: next ?? undefined });
    const size = utf8Length(JSON.stringify(part.items));
    // These were larger: the next page begins with them.
    if (items.length > 0 && bytes + size > PAGE_BYTES) break;
    items.push(...part.items);
    unreadable.push(...(part.unreadable ?? []));
    next = part.next;
    bytes += size;
    const count = part.items.length + (part.unreadable?.length ?? 0);
    left -= count;
    if (next === null || count < rows) break;
  }
  return { items, unreadable, next };
}

/**
 * The same of a list whose `next` is a place in the store. All namespaces share these places, so a client could count what others write between two of
 * them: it gets them sealed.
 */
export async function readSealedPage<Item>(
  query: { readonly limit?: number | undefined; readonly after?: string | undefined },
  cursors: () => Promise<Cursors>,
  read: (part: { readonly limit: number; readonly after: string | undefined }) => Promise<Part<Item, string>>,
) {
  const after = query.after === undefined ? undefined : (await cursors()).open(query.after);
  const page = await readPage({ limit: query.limit, after }, read);
  return { ...page, next: page.next === null ? null : (await cursors()).ofRecord(page.next) };
}

/** Reads a page of entries that are in the order of their versions. */
export async function readEntries<Entry extends { readonly version: number }>(
  { limit = 100, after = 0 }: { readonly limit?: number | undefined; readonly after?: number | undefined },
  read: (part: { readonly limit: number; readonly after: number }) => Promise<readonly Entry[]>,
) {
  const { items, next } = await readPage<Entry, number>({ limit: Math.min(limit, MOST_ITEMS), after }, async (part) => {
    const items = await read({ ...part, after: part.after ?? 0 });
    return { items, next: items.length < part.limit ? null : (items.at(-1)?.version ?? null) };
  });
  return { items, next: next === null ? null : String(next) };
}

/** Takes a page of a reading, which reads in parts itself and is ended then; and whether there may be more. */
export async function takePage<T, Item>(reading: AsyncIterable<T>, limit: number, show: (one: T) => Item) {
  const items: Item[] = [];
  let bytes = 0;
  for await (const one of reading) {
    const item = show(one);
    items.push(item);
    bytes += utf8Length(JSON.stringify(item));
    if (items.length >= limit || bytes >= PAGE_BYTES) return { items, hasMore: true };
  }
  return { items, hasMore: false };
}

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
    throw new InvalidArgumentError("the filter", 'must have a condition; give "all": true to change all of them');
}

/** The options of a list without what was not given. */
export const given = <Options extends object>(
  options: Options,
): { [Name in keyof Options]: Exclude<Options[Name], undefined> } =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as never;
