/** Rate limits as a capability of the handle. */

import type { Capability, View } from "../kernel/capability.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { RateLimit, type RateLimitOptions, type RateLimits, type TxRateLimit } from "./rate.ts";

export interface RateVerbs {
  /** A limit of `max` in each `per`, for all processes together. */
  rateLimit(name: string, options: RateLimitOptions): RateLimit;
}

export interface RateTxVerbs {
  /** A rate limit, to take tokens from in this commit, without waiting. */
  rateLimit(limit: RateLimit): TxRateLimit;
}

export function rateCapability(kernel: Kernel, rates: RateLimits): Capability {
  const verbs: RateVerbs = { rateLimit: (name, options) => rates.limit(name, options) };
  const view: View<RateTxVerbs> = {
    rateLimit: (tx, limit) => {
      if (!(limit instanceof RateLimit) || !limit.isOn(kernel))
        throw new InvalidArgumentError("the rate limit", "must belong to the handle whose transact this is");
      return limit.within(tx);
    },
  };
  return {
    verbs,
    view,
    queues: rates.queues,
    get isBusy() {
      return rates.isBusy;
    },
    close: () => rates.close(),
  };
}
