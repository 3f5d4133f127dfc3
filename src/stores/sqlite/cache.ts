/**
 * Rows that this connection recently read or wrote, and names it found absent, so that most commits read nothing.
 *
 * SQLite's `data_version` changes when any other connection has committed, and not when only this one did. Read under the write lock, it
 * says whether the cached rows are still current; if not, the cache is cleared.
 */

import { type Address, type Key, keyText, type Row } from "../../kernel/contract.ts";

const MAX_ROWS = 20_000;
const MAX_CHARS = 16 * 1024 * 1024;

interface Kept {
  row: Row | null;
}

export class RowCache {
  readonly #byName = new Map<string, Kept>();
  /** The existing rows, by number: a row that changes is found again without its name. */
  readonly #byId = new Map<number, Kept>();
  #chars = 0;
  #dataVersion = -1;

  /** Called first under each write lock. */
  begin(dataVersion: number): void {
    const isTooLarge = this.#byName.size >= MAX_ROWS || this.#chars >= MAX_CHARS;
    if (dataVersion !== this.#dataVersion || isTooLarge) this.clear();
    this.#dataVersion = dataVersion;
  }

  /** The row, null if it is known to be absent, undefined if nothing is known. */
  get(key: Key | Address): Row | null | undefined {
    return this.#byName.get(textOf(key))?.row;
  }

  byId(id: number): Row | undefined {
    return this.#byId.get(id)?.row ?? undefined;
  }

  /** Caches a row that is committed, or was read under the lock. */
  keep(key: Key | Address, row: Row | null): void {
    this.#chars += row?.value?.length ?? 0;
    let kept = row === null ? undefined : this.#byId.get(row.id);
    if (kept === undefined) {
      kept = { row };
      this.#byName.set(textOf(key), kept);
      if (row !== null) this.#byId.set(row.id, kept);
    } else kept.row = row;
  }

  clear(): void {
    this.#byName.clear();
    this.#byId.clear();
    this.#chars = 0;
  }
}

const textOf = (key: Key | Address): string => ("text" in key ? key.text : keyText(key));
