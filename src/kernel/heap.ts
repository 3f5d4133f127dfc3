/** A binary heap: the smallest item comes out first. `push` and `pop` take logarithmic time. */
export class Heap<T> {
  readonly #isLess: (one: T, other: T) => boolean;
  readonly #items: T[] = [];

  constructor(isLess: (one: T, other: T) => boolean) {
    this.#isLess = isLess;
  }

  /** The smallest item; undefined if the heap is empty. */
  get first(): T | undefined {
    return this.#items[0];
  }

  push(item: T): void {
    const items = this.#items;
    let at = items.length;
    items.push(item);
    for (let above = (at - 1) >> 1; at > 0 && this.#isLess(item, items[above] as T); above = (at - 1) >> 1) {
      items[at] = items[above] as T;
      at = above;
    }
    items[at] = item;
  }

  /** Removes the smallest item and returns it. */
  pop(): T | undefined {
    const items = this.#items;
    const least = items[0];
    const last = items.pop();
    if (last === undefined || items.length === 0) return least;
    let at = 0;
    for (let below = 1; below < items.length; below = 2 * at + 1) {
      if (below + 1 < items.length && this.#isLess(items[below + 1] as T, items[below] as T)) below += 1;
      if (!this.#isLess(items[below] as T, last)) break;
      items[at] = items[below] as T;
      at = below;
    }
    items[at] = last;
    return least;
  }
}
