/**
 * The trap for impure decisions: while one runs, reaching for ambient time, chance or I/O throws.
 */

import { DecisionImpureError } from "../kernel/errors.ts";
import { replaceAmbient } from "./ambient.ts";

let isSet = false;

/** Runs the decision with the trap set. Asked for inside itself, it is set already. */
export function trapAmbient<T>(decision: () => T): T {
  if (isSet) return decision();
  let offence: DecisionImpureError | undefined;
  const undo = replaceAmbient(({ shown, instead }) => () => {
    offence ??= new DecisionImpureError(`${shown} is not allowed, ${instead}`);
    throw offence;
  });
  isSet = true;
  try {
    const value = decision();
    // Also if the decision caught it.
    if (offence !== undefined) throw offence;
    return value;
  } finally {
    isSet = false;
    undo();
  }
}
