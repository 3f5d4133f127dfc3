/**
 * Lists: `await` gives one page, as the library's lists do; `for await` goes through the items of all pages.
 *
 * A page may have fewer items than its `limit`, or none: only a `next` that is null is the end.
 */

import { invalidArgument } from "./errors.ts";
import { PAGE, sent } from "./options.ts";
import { shown } from "./shapes.ts";
import type { Transport } from "./transport.ts";

/** A page, when it is awaited; all items from there on, when it is iterated. */
export interface Paged<Page, Item> extends PromiseLike<Page>, AsyncIterable<Item> {}

/** A list whose pages are fetched when they are needed. */
export function paged<Page extends { readonly next: unknown }, Item>(
  fetch: (after: Page["next"] | undefined) => Promise<Page>,
  itemsOf: (page: Page) => readonly Item[],
): Paged<Page, Item> {
  let first: Promise<Page> | undefined;
  const begin = (): Promise<Page> => {
    first ??= fetch(undefined);
    return first;
  };
  return {
    // biome-ignore lint/suspicious/noThenProperty: it is awaited on purpose, and fetches nothing before.
    then: (resolve, reject) => begin().then(resolve, reject),
    async *[Symbol.asyncIterator]() {
      for (let page = await begin(); ; page = await fetch(page.next)) {
        yield* itemsOf(page);
        if (page.next === null) return;
      }
    },
  };
}

/** The most that the server returns at a time. */
const MOST = 1000;

/** The first entries of a history, from as many pages as have them. */
export async function entriesOf<Entry>(
  transport: Transport,
  path: string,
  options: { readonly after?: number | undefined; readonly limit?: number | undefined },
  most = 100,
): Promise<readonly Entry[]> {
  sent(options, PAGE);
  const { after, limit = most } = options;
  // More than a page has is collected here, so the server does not see it.
  if (limit !== most && !(Number.isSafeInteger(limit) && limit >= 1))
    throw invalidArgument("the limit", "must be a whole number from 1");
  const entries: Entry[] = [];
  for (let from: string | number | undefined = after; ; ) {
    const query = { after: from, limit: Math.min(limit - entries.length, MOST) };
    const json = await transport.get(path, query);
    const { items, next } = shown<{ readonly items: Entry[]; readonly next: string | null }>(json, ["data"]);
    entries.push(...items);
    if (next === null || entries.length >= limit) return entries;
    from = next;
  }
}
