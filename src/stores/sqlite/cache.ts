/**
 * Rows that this connection read or wrote last, so that most commits read nothing.
 *
 * SQLite's `data_version` changes when any other connection has committed, and stays when only this one did. Asked under the
 * write lock, it says whether what is remembered is still what is there; if not, everything is forgotten. The updates check the
 * version all the same.
 */

import { type Key, keyText, type Row } from "../../kernel/contract.ts";

const MAX_ROWS = 20_000;
const MAX_CHARS = 16 * 1024 * 1024;

export class RowCache {
  readonly #rows = new Map<string, Row>();
  #chars = 0;
  #dataVersion = -1;

  /** Called first under each write lock. */
  begin(dataVersion: number): void {
    if (dataVersion === this.#dataVersion) return;
    this.clear();
    this.#dataVersion = dataVersion;
  }

  get(key: Key): Row | undefined {
    return this.#rows.get(keyText(key));
  }

  /** Only what is committed, or was read under the lock. */
  keep(row: Row): void {
    if (this.#rows.size >= MAX_ROWS || this.#chars >= MAX_CHARS) this.clear();
    this.#rows.set(keyText(row), row);
    this.#chars += row.value?.length ?? 0;
  }

  clear(): void {
    this.#rows.clear();
    this.#chars = 0;
  }
}
