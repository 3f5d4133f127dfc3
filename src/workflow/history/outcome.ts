/**
 * Outcomes as they are stored. An error that cannot be stored as it is becomes one that can: no failure is lost because of that.
 */

import type { Address } from "../../kernel/contract.ts";
import { InvalidValueError, ValueTooLargeError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Outcome } from "../stored.ts";

const MAX_MESSAGE = 1000;

/** What code threw; or an error that says so, if looking at it throws, as with a revoked proxy. */
export function usable(thrown: unknown): unknown {
  try {
    if (thrown instanceof Error) void `${thrown.name} ${thrown.message}`;
    return thrown;
  } catch {
    return new Error("something was thrown that cannot be looked at");
  }
}

export function storable(kernel: Kernel, at: Address, outcome: Outcome): string {
  try {
    return kernel.encode(at, outcome);
  } catch (error) {
    if (!("error" in outcome)) return kernel.encode(at, { error });
    const { error: thrown } = outcome;
    const isError = thrown instanceof Error;
    const plain = new Error(isError ? thrown.message.slice(0, MAX_MESSAGE) : "something that cannot be stored");
    if (isError) plain.name = thrown.name;
    return kernel.encode(at, { error: plain });
  }
}

/** What a result cannot be stored for, said of the result: the commit knows only the record that it would have been part of. */
export function unstorableResult(error: unknown, of: string): unknown {
  if (error instanceof ValueTooLargeError)
    return new ValueTooLargeError(error.data.bytes, error.data.maxBytes, of, "the result");
  if (error instanceof InvalidValueError)
    return new InvalidValueError(error.data.path.replace(RESULT, "$"), error.data.reason, of, "the result");
  return error;
}

/** Where a result is in a fact, and in the record of a run. */
const RESULT = /^\$(\.outcome)?\.ok/;

/** An outcome as it will be read again. */
export const storedAs = (kernel: Kernel, at: Address, outcome: Outcome): Outcome =>
  kernel.decodeFresh(at, storable(kernel, at, outcome)) as Outcome;
