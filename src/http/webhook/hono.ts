/**
 * Middleware for Hono; in a handler, `delivery(c)` returns the delivery.
 *
 *     const webhook = honoWebhook(pawl, { secrets, consumer: "orders" });
 *     app.post("/hooks/orders", webhook, (c) => c.json(webhook.delivery(c).json()));
 */

import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { IdempotentHandle } from "../middleware/core.ts";
import { copyBody } from "../middleware/fetch.ts";
import { type HonoContext, honoHandling, unread } from "../middleware/hono.ts";
import { type ReceivedWebhook, WebhookCore, type WebhookOptions } from "./core.ts";

export interface HonoWebhook<TxView, TxOptions> {
  (c: HonoContext, next: () => Promise<void>): Promise<Response | undefined>;
  /** Returns the delivery that a handler runs for. */
  delivery(c: HonoContext): ReceivedWebhook<TxView, TxOptions>;
}

/** Verifies deliveries, and makes the handlers after it run once for each. */
export function honoWebhook<TxView, TxOptions>(
  pawl: IdempotentHandle<TxView, TxOptions>,
  options: WebhookOptions,
): HonoWebhook<TxView, TxOptions> {
  const core = new WebhookCore(pawl, options);
  const deliveries = new WeakMap<HonoContext, ReceivedWebhook<TxView, TxOptions>>();
  const middleware = honoHandling<TxView, TxOptions>(core.maxBodyBytes, async (c) => {
    const request = await unread(c);
    const received = await core.begin(request.headers, await copyBody(request, core.maxBodyBytes));
    if ("delivery" in received) deliveries.set(c, received.delivery);
    return received.begun;
  });
  return Object.assign(middleware, { delivery: (c: HonoContext) => deliveryOf(deliveries, c) });
}

/** @internal */
export function deliveryOf<Key extends object, Delivery>(deliveries: WeakMap<Key, Delivery>, key: Key): Delivery {
  const delivery = deliveries.get(key);
  if (delivery === undefined)
    throw new InvalidArgumentError("the request", "must have passed the webhook middleware: add it to this route");
  return delivery;
}
