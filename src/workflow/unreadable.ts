/**
 * Runs whose record cannot be read: its value cannot be decoded, because of another codec key or by damage, or one of its numbers is out of
 * range.
 *
 * Such a run is one run's trouble. It is listed with the reason, a worker that claims it parks it, it can be deleted, and decisions about
 * other runs that meet it (a parent, a child, a waiter in line) pass it over. What is stored is left as it is: with the right key the run can
 * be read again, and `retry` resumes it.
 */

import type { Held } from "../kernel/claim/claim.ts";
import type { Row } from "../kernel/contract.ts";
import { type Draft, unreadableNumber } from "../kernel/draft.ts";
import { DecisionOverError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { RunValue } from "./run.ts";
import type { RunStatus } from "./words.ts";

/** A run's record as far as it can be read. */
export type ReadRun =
  | { readonly value: RunValue; readonly unreadable: string | null }
  | { readonly value: undefined; readonly unreadable: string };

export function readRun(kernel: Kernel, row: Row): ReadRun {
  let value: unknown;
  try {
    value = kernel.decodeFresh(row, row.value ?? "null");
  } catch (error) {
    return { value: undefined, unreadable: error instanceof Error ? error.message : String(error) };
  }
  if (!isRunValue(value)) return { value: undefined, unreadable: "its stored value is not that of a run" };
  const number = unreadableNumber(row);
  return { value, unreadable: number === null ? null : `its ${number.name} cannot be read: ${number.reason}` };
}

function isRunValue(value: unknown): value is RunValue {
  return typeof value === "object" && value !== null && "workflow" in value && typeof value.workflow === "string";
}

/** The run's value in a decision, or undefined if it cannot be read, or the record could not be written again. */
export function readableValue(record: Draft): RunValue | undefined {
  if (record.row !== null && unreadableNumber(record.row) !== null) return undefined;
  try {
    return record.value as RunValue;
  } catch (error) {
    if (error instanceof DecisionOverError) throw error;
    return undefined;
  }
}

/** Its value is left as it is, so the reason is not stored: whoever looks at it finds the same one. */
export function parkUnreadable(held: Held): Promise<void> {
  return held.commit((record) =>
    record.write({ holder: null, dueMs: null, tries: 0, status: "parked" satisfies RunStatus }),
  );
}
