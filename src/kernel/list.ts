/**
 * Adds an item to a list and returns the list. An empty one is replaced by a list of just this item: `push` would reserve room for sixteen
 * more, and most lists on the path of a commit have one item.
 */
export function withItem<T>(list: T[], item: T): T[] {
  if (list.length === 0) return [item];
  list.push(item);
  return list;
}
