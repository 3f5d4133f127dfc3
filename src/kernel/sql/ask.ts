/**
 * Queries through an executor: one text in, one text out, so that any way to run SQL works.
 */

import type { Executor } from "../contract.ts";
import { StoreError } from "../errors.ts";

/** Runs a statement whose only row has one text column, named `pawl`, and returns that text. Throws `store_refused`. */
export async function ask(executor: Executor, text: string, input?: object): Promise<string> {
  const [row] = await executor(text, input === undefined ? undefined : JSON.stringify(input));
  if (typeof row === "object" && row !== null && "pawl" in row && typeof row.pawl === "string") return row.pawl;
  throw new StoreError(
    "store_refused",
    "fail",
    "the executor must return an array of rows, each an object with the column names as keys",
  );
}
