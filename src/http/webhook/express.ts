/**
 * Middleware for Express, and for `node:http`; in a handler, `delivery(req)` returns the delivery.
 *
 *     const webhook = expressWebhook(pawl, { secrets, consumer: "orders" });
 *     app.post("/hooks/orders", webhook, (req, res) => res.json(webhook.delivery(req).json()));
 *
 * It reads the body itself, or takes what `express.raw` or the `verify` of a parser (as `rawBody`) has kept. A body that was parsed without that is
 * refused: its bytes are gone, and so is what was signed.
 */

import { InvalidArgumentError } from "../../kernel/errors.ts";
import { readUpTo } from "../middleware/body.ts";
import type { BegunRequest, IdempotentHandle } from "../middleware/core.ts";
import { type ExpressRequest, type ExpressResponse, expressHandling } from "../middleware/express.ts";
import { bytesOf, headerOf } from "../middleware/node.ts";
import { type ReceivedWebhook, WebhookCore, type WebhookOptions } from "./core.ts";
import { deliveryOf } from "./hono.ts";

export interface ExpressWebhook<TxView, TxOptions> {
  (req: ExpressRequest, res: ExpressResponse, next: (error?: unknown) => void): Promise<void>;
  /** Returns the delivery that a handler runs for. */
  delivery(req: ExpressRequest): ReceivedWebhook<TxView, TxOptions>;
}

/** Verifies deliveries, and makes the handlers after it run once for each. */
export function expressWebhook<TxView, TxOptions>(
  pawl: IdempotentHandle<TxView, TxOptions>,
  options: WebhookOptions,
): ExpressWebhook<TxView, TxOptions> {
  const core = new WebhookCore(pawl, options);
  const deliveries = new WeakMap<ExpressRequest, ReceivedWebhook<TxView, TxOptions>>();
  const middleware = expressHandling<TxView, TxOptions>(core.maxBodyBytes, async (req) => {
    const body = await rawBodyOf(req, core.maxBodyBytes);
    const received = await core.begin(req.headers, body);
    if ("delivery" in received) deliveries.set(req, received.delivery);
    return body === null ? closing(received.begun) : received.begun;
  });
  return Object.assign(middleware, { delivery: (req: ExpressRequest) => deliveryOf(deliveries, req) });
}

/** The bytes of the body; null if there are too many. */
async function rawBodyOf(req: ExpressRequest, maxBytes: number): Promise<Uint8Array | null> {
  const { rawBody, body } = req;
  if (typeof rawBody === "string" || rawBody instanceof Uint8Array) return bytesOf(rawBody);
  if (typeof body === "string" || body instanceof Uint8Array) return bytesOf(body);
  if (req.readableDidRead)
    throw new InvalidArgumentError(
      "the request",
      "must not have its body parsed before the webhook middleware, which needs the bytes: add it before the body parser, or use express.raw",
    );
  return readNode(req, Number(headerOf(req, "content-length") ?? 0), maxBytes);
}

/** The refusal of a request whose body was not read to its end: its connection cannot be used again. @internal */
export function closing<TxView, TxOptions>(begun: BegunRequest<TxView, TxOptions>): BegunRequest<TxView, TxOptions> {
  if (begun.is !== "reply") return begun;
  return { ...begun, reply: { ...begun.reply, headers: [...begun.reply.headers, ["connection", "close"]] } };
}

/** Reads a Node stream up to a limit; null if it is longer. What is left is not read: it ends with its connection. @internal */
export async function readNode(stream: unknown, declared: number, maxBytes: number): Promise<Uint8Array | null> {
  if (declared > maxBytes) return null;
  const read = await readUpTo(ReadableStream.from(stream as AsyncIterable<Uint8Array>), maxBytes);
  return read.isWhole ? read.bytes : null;
}
