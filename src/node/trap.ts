/**
 * Detects impure decisions: while one runs, using ambient time, randomness or I/O throws.
 */

import { DecisionImpureError } from "../kernel/errors.ts";
import { replaceAmbient } from "./ambient.ts";

let isSet = false;

/** Runs the decision with the trap set. Nested calls find it set already. Throws `decision_impure`. */
export function trapAmbient<T>(decision: () => T): T {
  if (isSet) return decision();
  let violation: DecisionImpureError | undefined;
  const undo = replaceAmbient(({ call, instead }) => () => {
    violation ??= new DecisionImpureError(`${call} is not allowed, ${instead}`);
    throw violation;
  });
  isSet = true;
  try {
    const value = decision();
    // Even if the decision caught it.
    if (violation !== undefined) throw violation;
    return value;
  } finally {
    isSet = false;
    undo();
  }
}
