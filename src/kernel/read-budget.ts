/**
 * For stores that read row by row: stops reading when a batch, or a page of a log, has read its maximum number of bytes.
 */

import { utf8Length } from "./check.ts";
import type { Found, Key, Row } from "./contract.ts";

export class ReadBudget {
  #leftBytes: number;
  #isUntouched = true;

  constructor(maxBytes: number | undefined) {
    this.#leftBytes = maxBytes ?? Number.POSITIVE_INFINITY;
  }

  /** Reads the rows one after another until the budget is used up; always reads at least one. */
  read(keys: readonly Key[], readOne: (key: Key) => Row | null): Pick<Found, "rows" | "isFull"> {
    const rows: (Row | null | undefined)[] = [];
    let isFull = false;
    for (const key of keys)
      if (this.#leftBytes <= 0 && !this.#isUntouched) {
        isFull = true;
        rows.push(undefined);
      } else {
        const row = readOne(key);
        this.#isUntouched = false;
        this.#leftBytes -= row?.value?.length ?? 0;
        rows.push(row);
      }
    return isFull ? { rows, isFull } : { rows };
  }
}

/** Takes entries one after another until their data has `maxBytes` bytes; always takes at least one, if there is one. */
export function takeUpTo<Entry>(
  entries: Iterable<Entry>,
  dataOf: (entry: Entry) => string | null,
  maxBytes = Number.POSITIVE_INFINITY,
): { readonly taken: Entry[]; readonly isFull: boolean } {
  const taken: Entry[] = [];
  let leftBytes = maxBytes;
  for (const entry of entries) {
    taken.push(entry);
    if (leftBytes !== Number.POSITIVE_INFINITY) leftBytes -= utf8Length(dataOf(entry) ?? "");
    if (leftBytes <= 0) return { taken, isFull: true };
  }
  return { taken, isFull: false };
}
