/**
 * Bulk statements: the same statement for many rows at once, which saves most of what a call costs.
 *
 * A statement is prepared for a few numbers of rows; what is to be written is cut into pieces of those.
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

/** Runs the statement for all rows, whose columns stand one after another; answers how many rows were changed. */
export function runBulk(on: Prepared, { width, texts }: BulkStatement, columns: readonly SQLInputValue[]): number {
  let changed = 0;
  let from = 0;
  for (const [i, size] of SIZES.entries())
    for (const length = size * width; columns.length - from >= length; from += length)
      changed += Number(on.sql(texts[i] ?? "").run(...columns.slice(from, from + length)).changes);
  return changed;
}
