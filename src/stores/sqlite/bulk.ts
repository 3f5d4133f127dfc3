/**
 * Bulk statements: one statement for many rows, which saves most of the cost of a call.
 *
 * A statement is prepared for a few numbers of rows; the rows to write are split into pieces of those sizes.
 */

import type { SQLInputValue } from "node:sqlite";
import type { Prepared } from "./prepared.ts";

const SIZES = [64, 16, 4, 1] as const;

export interface BulkStatement {
  /** How many columns a row has. */
  readonly width: number;
  /** One text for each size. */
  readonly texts: readonly string[];
}

/** `sql` gets the rows as text for a VALUES clause. */
export function bulk(width: number, sql: (rows: string) => string): BulkStatement {
  const row = `(${Array.from({ length: width }, () => "?").join(", ")})`;
  return { width, texts: SIZES.map((size) => sql(Array.from({ length: size }, () => row).join(", "))) };
}

/** Runs the statement for all rows, whose columns follow one another. Returns how many rows were changed. */
export function runBulk(on: Prepared, { width, texts }: BulkStatement, columns: readonly SQLInputValue[]): number {
  let changed = 0;
  let from = 0;
  for (let i = 0; from < columns.length; i++)
    for (const length = (SIZES[i] ?? 1) * width; columns.length - from >= length; from += length)
      changed += Number(on.sql(texts[i] ?? "").run(...columns.slice(from, from + length)).changes);
  return changed;
}
