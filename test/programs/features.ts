/**
 * What the generator may use and the oracle may expect: one switch for each part of the semantics that came later than the generator.
 *
 * A part that is switched off is neither drawn nor checked, so that the generator runs on code from before it. `detectFeatures` looks at the
 * code at hand; nothing else has to be changed when a part lands.
 */

import { Context } from "../../src/workflow/execution/context.ts";

export interface Features {
  /** `ctx.shield`: part of the code is not interrupted by a cancellation. */
  readonly shield: boolean;
  /** `ctx.race` takes functions and cancels its losers. */
  readonly raceCancels: boolean;
  /** `run.cancel({ force: true })`. */
  readonly force: boolean;
  /** `run.retry({ steps })`. */
  readonly retrySteps: boolean;
  /** What was not awaited is reported by name in a `run.warning`. */
  readonly warnings: boolean;
}

/** The parts that this code has; those that cannot be seen from outside landed together with `ctx.shield`. */
export function detectFeatures(): Features {
  const hasShield = "shield" in Context.prototype;
  return {
    shield: hasShield,
    raceCancels: hasShield,
    force: hasShield,
    retrySteps: hasShield,
    warnings: hasShield,
  };
}
