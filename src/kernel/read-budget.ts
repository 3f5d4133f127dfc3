/**
 * For stores that read row by row: stops reading when a batch has read as many bytes as it may.
 */

import type { Found, Key, Row } from "./contract.ts";

export class ReadBudget {
  #leftBytes: number;
  #isUntouched = true;

  constructor(maxBytes: number | undefined) {
    this.#leftBytes = maxBytes ?? Number.POSITIVE_INFINITY;
  }

  /** Reads the rows one after the other while the budget lasts, and one in any case. */
  read(keys: readonly Key[], readOne: (key: Key) => Row | null): Pick<Found, "rows" | "isFull"> {
    let isFull = false;
    const rows = keys.map((key) => {
      if (this.#leftBytes <= 0 && !this.#isUntouched) {
        isFull = true;
        return undefined;
      }
      const row = readOne(key);
      this.#isUntouched = false;
      this.#leftBytes -= row?.value?.length ?? 0;
      return row;
    });
    return isFull ? { rows, isFull } : { rows };
  }
}
