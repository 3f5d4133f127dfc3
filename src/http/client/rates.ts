/**
 * Rate limits over HTTP: tokens are taken by the server, and a caller that must wait asks again until they come.
 */

import type { AcquireTokensOptions, RateLimitInfo, RateLimitOptions, TakeOptions } from "../../rate/rate.ts";
import { msOf } from "./duration.ts";
import { isPawlError, type PawlHttpError } from "./errors.ts";
import { abortSignal, own, plain, type Sendings, sent } from "./options.ts";
import { path, sleep, type Transport } from "./transport.ts";

export type ClientTryTake =
  | { readonly ok: true }
  | { readonly ok: false; readonly code: "rate_limited"; readonly retryAfterMs: number };

/** The most that a request waits. */
const WAIT_MS = 25_000;

const FIGURES: Sendings<RateLimitOptions> = { max: plain, per: plain, burst: plain, strict: plain };
const KEY: Sendings<TakeOptions> = { key: plain };
const TRY: Sendings<Pick<AcquireTokensOptions, "count" | "key">> = { ...KEY, count: plain };
const ACQUIRE: Sendings<AcquireTokensOptions> = { ...TRY, timeout: own, abortSignal };

/** A handle on one limit. */
export class ClientRateLimit {
  readonly name: string;
  readonly #transport: Transport;
  readonly #figures: RateLimitOptions;

  /** @internal */
  constructor(transport: Transport, name: string, figures: RateLimitOptions) {
    sent(figures ?? null, FIGURES);
    this.name = name;
    this.#transport = transport;
    this.#figures = figures;
  }

  /**
   * Takes tokens, and resolves when they come. Throws `rate_limited`, and takes nothing, if that is later than `timeout`. Tokens that come within 25 s are reserved
   * in order of arrival; for later ones it asks again. Default: no timeout.
   */
  async acquire(options: AcquireTokensOptions = {}): Promise<{ readonly waitedMs: number }> {
    const { timeout, abortSignal } = options;
    const asked = sent(options, ACQUIRE);
    const { platform } = this.#transport;
    const beganMs = platform.runningMs();
    const longestMs = timeout === undefined ? Number.POSITIVE_INFINITY : msOf(timeout, "the timeout");
    for (;;) {
      const leftMs = Math.max(0, beganMs + longestMs - platform.runningMs());
      const taken = await this.#take(asked, Math.min(leftMs, WAIT_MS), abortSignal);
      if (taken === undefined) return { waitedMs: platform.runningMs() - beganMs };
      if (taken.retryAfterMs > leftMs) throw taken.error;
      await sleep(platform, Math.max(1, taken.retryAfterMs - WAIT_MS), abortSignal);
    }
  }

  /** Takes tokens if they are there now. */
  async tryAcquire(options: Pick<AcquireTokensOptions, "count" | "key"> = {}): Promise<ClientTryTake> {
    const taken = await this.#take(sent(options, TRY), 0, undefined);
    if (taken === undefined) return { ok: true };
    return { ok: false, code: "rate_limited", retryAfterMs: taken.retryAfterMs };
  }

  /** Returns the figures in force, and how many tokens there are. */
  async inspect(options: TakeOptions = {}): Promise<RateLimitInfo> {
    const { max, per } = this.#figures;
    const query = { max, per: `${msOf(per, "per")}ms`, ...sent(options, KEY) };
    return (await this.#transport.get(path("rate-limits", this.name), query)) as RateLimitInfo;
  }

  async #take(
    asked: object,
    waitMs: number,
    abortSignal: AbortSignal | undefined,
  ): Promise<{ readonly retryAfterMs: number; readonly error: PawlHttpError } | undefined> {
    const body = { ...sent(this.#figures, FIGURES), ...asked, ...(waitMs === 0 ? {} : { wait: waitMs }) };
    // The server's limit of requests has the same code, and no name.
    const isResult = (error: PawlHttpError): boolean => error.code === "rate_limited" && "limit" in error.data;
    try {
      const at = path("rate-limits", this.name, "acquire");
      await this.#transport.call({ method: "POST", path: at, body, waitMs, abortSignal, isResult });
      return undefined;
    } catch (error) {
      if (!isPawlError(error, "rate_limited") || !isResult(error)) throw error;
      return { retryAfterMs: error.data.retryAfterMs, error };
    }
  }
}
