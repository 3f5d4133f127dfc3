/**
 * For stores that read row by row: stops reading when a batch has read its maximum number of bytes.
 */

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
