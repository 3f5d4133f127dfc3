/**
 * The trap for impure decisions: while one runs, reaching for ambient time, chance or I/O throws.
 */

import { DecisionImpureError } from "../kernel/errors.ts";
import { replaceAmbient } from "./ambient.ts";

let isSet = false;

/** Runs the decision with the trap set. Asked for inside itself, it is set already. */
export function trapAmbient<T>(decision: () => T): T {
  if (isSet) return decision();
  const undo = replaceAmbient(({ shown, instead }) => () => {
    throw new DecisionImpureError(`${shown} is not allowed, ${instead}`);
  });
  isSet = true;
  try {
    return decision();
  } finally {
    isSet = false;
    undo();
  }
}
