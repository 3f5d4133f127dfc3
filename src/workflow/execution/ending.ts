/**
 * How a run ends: what is reported when its function has returned, how its result is checked, and which status and reason its outcome has.
 */

import { CallbackTimeoutError, SchemaError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { checkSchema, type StandardSchema } from "../../kernel/schema.ts";
import { HistoryContradictionError, RunTimedOutError } from "../errors.ts";
import type { EndedStatus, Outcome } from "../stored.ts";
import type { Coroutine } from "./coroutine.ts";
import { isCancellation } from "./rules.ts";

/** How long the schema of the output may take. */
const OUTPUT_MS = 60_000;
/** A warning names at most this many operations. */
const MOST_NAMED = 10;

/** The function has returned: drops what only waits, and warns of what was not awaited, or was cut off. Returns how much is still to be done. */
export function conclude(coroutine: Coroutine, warn: (message: string) => void): number {
  const { open, forgotten, cut } = coroutine.conclude();
  if (cut.length > 0)
    warn(
      `the workflow's function returned while the cleanup of a branch that lost a race waited for ${cut[0]}: it is cut off there; do it in ctx.shield`,
    );
  if (forgotten.length > 0 && !coroutine.hasWarned) {
    coroutine.hasWarned = true;
    const more = forgotten.length > MOST_NAMED ? `, and ${forgotten.length - MOST_NAMED} more` : "";
    warn(`the workflow's function returned without awaiting ${forgotten.slice(0, MOST_NAMED).join(", ")}${more}`);
  }
  return open;
}

/**
 * The result as the schema makes it. A schema that never settles is as stuck as code that does not: it throws `schema_mismatch`; or `late`, if the
 * run has only `leftMs` until it times out.
 */
export async function checkOutput(
  clock: Kernel["ports"]["clock"],
  output: StandardSchema,
  value: unknown,
  leftMs = Number.POSITIVE_INFINITY,
  late?: Error,
): Promise<unknown> {
  const patienceMs = Math.max(0, Math.min(OUTPUT_MS, leftMs));
  try {
    return await checkSchema(output, value, "the run's output", { ports: { clock }, patienceMs });
  } catch (error) {
    if (!(error instanceof CallbackTimeoutError)) throw error;
    if (late !== undefined && leftMs < OUTPUT_MS) throw late;
    const issue = { message: `the schema did not settle within ${OUTPUT_MS} ms`, path: "" };
    throw new SchemaError("the run's output", [issue]);
  }
}

/** The status with which a run of this outcome ends. */
export function endedStatusOf(outcome: Outcome, run: string): EndedStatus {
  if ("ok" in outcome) return "completed";
  if (isCancellation(outcome.error, run)) return outcome.error instanceof RunTimedOutError ? "timed_out" : "canceled";
  return "failed";
}

/** Why a run is parked, released or put back, in words. */
export function reasonOf(error: unknown): string {
  if (error instanceof HistoryContradictionError)
    return `the history says ${error.data.history}, but the code ${error.data.code}`;
  return error instanceof Error ? error.message : String(error);
}

/** Makes a coroutine refuse what its code still starts. */
export function discard(coroutine: Coroutine, warn: (message: string) => void): void {
  coroutine.isEnded = true;
  coroutine.usedLate = (shown) =>
    warn(`${shown} was started after the run had ended, or was resumed elsewhere: it has no effect`);
  // The function has returned: what has been started since then was started by a callback that it left behind.
  if (coroutine.outcome !== undefined) coroutine.refuseNew();
}
