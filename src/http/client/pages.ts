/**
 * Lists: `await` gives one page, as the library's lists do; `for await` goes through the items of all pages.
 */

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
