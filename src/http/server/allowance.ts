/**
 * The rate limit of API keys, with the limiter of the library, for all servers on one store together.
 *
 * A commit for each request would make every read a write. So a server takes tokens by the dozen, and spends them as requests come; what it has not
 * spent after a second is dropped. That is never more than the limit allows, and a little less when requests are few and far between.
 */

import type { Clock } from "../../kernel/ports.ts";
import type { RateLimit, RateLimitOptions } from "../../rate/rate.ts";
import type { ServedPawl } from "./handle.ts";
import { tooMany } from "./problem.ts";

/** The name of the limit; its keys are the ids of API keys. */
export const REQUESTS_LIMIT = "pawl.http";

/** Tokens are taken in parts of the limit as small as this. */
const SHARE = 50;
const KEPT_MS = 1000;
/** How many keys are remembered. */
const MOST_KEYS = 10_000;

interface Allowance {
  tokens: number;
  untilMs: number;
  /** Tokens that are being taken. */
  taking: Promise<void> | undefined;
}

export class Allowances {
  readonly #limit: RateLimit;
  readonly #clock: Clock;
  readonly #share: number;
  readonly #of = new Map<string, Allowance>();

  constructor(pawl: ServedPawl, clock: Clock, figures: RateLimitOptions) {
    this.#limit = pawl.rateLimit(REQUESTS_LIMIT, figures);
    this.#clock = clock;
    this.#share = Math.max(1, Math.floor(figures.max / SHARE));
  }

  /** Spends one token of the key. Throws `rate_limited`. */
  async take(key: string): Promise<void> {
    const allowance = this.#allowance(key);
    while (allowance.tokens === 0 || this.#clock.nowMs() >= allowance.untilMs) {
      allowance.taking ??= this.#fill(key, allowance);
      await allowance.taking;
    }
    allowance.tokens -= 1;
  }

  #allowance(key: string): Allowance {
    const known = this.#of.get(key) ?? { tokens: 0, untilMs: 0, taking: undefined };
    this.#of.delete(key);
    this.#of.set(key, known);
    const [oldest] = this.#of.keys();
    if (oldest !== undefined && this.#of.size > MOST_KEYS) this.#of.delete(oldest);
    return known;
  }

  async #fill(key: string, allowance: Allowance): Promise<void> {
    try {
      const many = this.#share === 1 ? undefined : await this.#limit.tryAcquire({ key, count: this.#share });
      if (many?.ok === true) return this.#got(allowance, this.#share);
      const one = await this.#limit.tryAcquire({ key });
      if (!one.ok) throw tooMany("This API key has sent too many requests", one.retryAfterMs);
      this.#got(allowance, 1);
    } finally {
      allowance.taking = undefined;
    }
  }

  #got(allowance: Allowance, tokens: number): void {
    allowance.tokens = tokens;
    allowance.untilMs = this.#clock.nowMs() + KEPT_MS;
  }
}
