/**
 * Reading a run's record: the one place where a stored value becomes a `RunValue`.
 *
 * A record may be unreadable: its value cannot be decoded, because of a different codec key or damage, or one of its numbers is out of range.
 * That affects this run only. It is listed with the reason, a worker that claims it parks it, it can be deleted, and decisions about
 * other runs that meet it (a parent, a child, a waiter in a queue) skip it. What is stored stays as it is: with the right key the run can
 * be read again, and `retry` resumes it.
 */

import type { Held } from "../../kernel/claim/claim.ts";
import type { Row } from "../../kernel/contract.ts";
import { type Draft, unreadableNumber } from "../../kernel/draft.ts";
import { DecisionOverError, UnsupportedEncodingError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { RunStatus, RunValue } from "../stored.ts";

const NOT_A_RUN = "its stored value is not that of a run";

function isRunValue(value: unknown): value is RunValue {
  return typeof value === "object" && value !== null && "workflow" in value && typeof value.workflow === "string";
}

function checkedValue(value: unknown, key: string): RunValue {
  if (isRunValue(value)) return value;
  throw new UnsupportedEncodingError("$", NOT_A_RUN, { name: `run "${key}"` });
}

/** The value of a run in a decision. Throws `unsupported_encoding` if it cannot be read. */
export const runOf = (record: Draft): RunValue => checkedValue(record.value, record.at.key);

/** The value of a run's row. Throws `unsupported_encoding` if it cannot be read. */
export const decodeRun = (kernel: Kernel, row: Row): RunValue =>
  checkedValue(kernel.decodeFresh(row, row.value ?? "null"), row.key);

/** The value of a run in a decision; undefined if it cannot be read, or the record could not be written again. */
export function readableValue(record: Draft): RunValue | undefined {
  if (record.row !== null && unreadableNumber(record.row) !== null) return undefined;
  try {
    return runOf(record);
  } catch (error) {
    if (error instanceof DecisionOverError) throw error;
    return undefined;
  }
}

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
  if (!isRunValue(value)) return { value: undefined, unreadable: NOT_A_RUN };
  const number = unreadableNumber(row);
  return { value, unreadable: number === null ? null : `its ${number.name} cannot be read: ${number.reason}` };
}

/** Parks a run whose record cannot be read. Its value stays as it is, so the reason is not stored: each reader finds the same one. */
export function parkUnreadable(held: Held): Promise<void> {
  return held.commit((record) =>
    record.write({ holder: null, dueMs: null, tries: 0, status: "parked" satisfies RunStatus }),
  );
}
