/**
 * The part of receiving webhooks that does not depend on the framework: a delivery is verified, and then handled once.
 *
 * A handler runs under an idempotency key, the delivery's id, as a handler of `pawl/middleware` does under the key of its client:
 *
 * - Not signed, or signed too long ago: 401. Too long: 413.
 * - Delivered again after a reply of 2xx: the same reply, and the handler is not called.
 * - Delivered again while an earlier attempt is being handled: 503 with `Retry-After`, which senders retry (they give up on most 4xx).
 * - The same id with another body: 422.
 * - A reply other than 2xx is not stored, so that the next attempt is handled; unless it was committed with the effect, which is there then.
 *
 * A handler whose process dies keeps the delivery until its lease ends; then the next attempt takes over. `attempt.commit` makes effect and
 * reply one commit, which is refused to an attempt that was overtaken.
 *
 * Guarantees: those of `Idempotency`, for deliveries (G2, G3, G6), for `ttl`.
 */

import { checkTtl } from "../../idempotency/input.ts";
import { checkId, checkLease, checkOptions, type Duration, optionNames } from "../../kernel/check.ts";
import {
  type BegunRequest,
  beginAttempt,
  checkHandle,
  type HttpAttempt,
  type IdempotentHandle,
  retryAfter,
} from "../middleware/core.ts";
import { describe } from "../middleware/fetch.ts";
import { problem, type Reply } from "../middleware/reply.ts";
import { BodyTooLargeError, SignatureInvalidError, TimestampOutOfRangeError } from "./errors.ts";
import { Verifier, type VerifyOptions, type WebhookDelivery, type WebhookRequest } from "./verify.ts";

export interface WebhookOptions extends VerifyOptions {
  /** Names this receiver. Two that get the same delivery, and each handle it, need different names. */
  readonly consumer: string;
  /** How long a delivery is remembered. Default: 7 days. Longer than its sender repeats it. */
  readonly ttl?: Duration | undefined;
  /** How long a handler whose process died keeps its delivery. Default: 30 s. */
  readonly lease?: Duration | undefined;
}

const WEBHOOK_OPTIONS = optionNames<WebhookOptions>({
  secrets: true,
  tolerance: true,
  maxBodyBytes: true,
  consumer: true,
  ttl: true,
  lease: true,
});

/** A delivery that this process handles now. */
export interface ReceivedWebhook<TxView, TxOptions> extends WebhookDelivery {
  /** Of this receiver: how often the delivery was begun here, a fence of its own, and `commit`. */
  readonly attempt: HttpAttempt<TxView, TxOptions>;
}

const TTL = "7 days";

export type BegunWebhook<TxView, TxOptions> =
  | { readonly begun: Extract<BegunRequest<TxView, TxOptions>, { is: "reply" }> }
  | {
      readonly begun: Extract<BegunRequest<TxView, TxOptions>, { is: "pending" }>;
      readonly delivery: ReceivedWebhook<TxView, TxOptions>;
    };

/** Receives the deliveries of one consumer. */
export class WebhookCore<TxView, TxOptions> {
  readonly #handle: IdempotentHandle<TxView, TxOptions>;
  readonly #verifier: Verifier;
  readonly #scope: string;
  readonly #ttl: Duration;
  readonly #lease: Duration | undefined;

  constructor(handle: IdempotentHandle<TxView, TxOptions>, options: WebhookOptions) {
    checkHandle(handle);
    checkOptions(options ?? null, WEBHOOK_OPTIONS);
    this.#handle = handle;
    this.#verifier = new Verifier(options);
    this.#scope = `pawl.webhook\n${checkId(options.consumer, "the consumer")}`;
    this.#ttl = options.ttl ?? TTL;
    checkTtl(this.#ttl);
    this.#lease = options.lease;
    if (options.lease !== undefined) checkLease(options.lease, "the lease");
  }

  get maxBodyBytes(): number {
    return this.#verifier.maxBodyBytes;
  }

  /** Verifies a delivery and claims it. A body of null is one that was too long to be read. */
  async begin(
    headers: WebhookRequest["headers"],
    body: WebhookRequest["body"] | null,
  ): Promise<BegunWebhook<TxView, TxOptions>> {
    let delivery: WebhookDelivery;
    try {
      if (body === null) throw new BodyTooLargeError(this.maxBodyBytes);
      delivery = await this.#verifier.verify({ headers, body });
    } catch (error) {
      return { begun: { is: "reply", reply: refusalOf(error) } };
    }
    const options = {
      scope: this.#scope,
      fingerprint: describe("POST", "", "", delivery.body),
      ttl: this.#ttl,
      lease: this.#lease,
    };
    const begun = await beginAttempt(this.#handle, delivery.id, options, RULES);
    if (begun.is === "pending") return { begun, delivery: { ...delivery, attempt: begun.pending.attempt } };
    if (begun.is === "reply") return { begun };
    throw new Error("an attempt neither began nor was refused");
  }
}

const RULES = {
  storeStatus: (status: number) => status >= 200 && status < 300,
  inProgress: (retryAfterMs: number) =>
    problem(
      503,
      "idempotency_in_progress",
      "An earlier attempt at this delivery is being handled. Deliver it again later.",
      [retryAfter(retryAfterMs)],
    ),
};

function refusalOf(error: unknown): Reply {
  if (error instanceof BodyTooLargeError) return problem(413, error.code, sentenceOf(error));
  if (error instanceof SignatureInvalidError || error instanceof TimestampOutOfRangeError)
    return problem(401, error.code, sentenceOf(error));
  throw error;
}

const sentenceOf = ({ message }: Error): string => `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;
