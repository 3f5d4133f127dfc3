/**
 * A plugin for Fastify; in a handler, `delivery(request)` returns the delivery.
 *
 *     const webhook = fastifyWebhook(pawl, { secrets, consumer: "orders" });
 *     await app.register(async (hooks) => {
 *       await hooks.register(webhook);
 *       hooks.post<{ Body: Order }>("/hooks/orders", async (request) => save(request.body, webhook.delivery(request).id));
 *     });
 *
 * It applies to all routes of the instance that it is registered on. It verifies a delivery before Fastify parses it; the parser gets the same
 * bytes, so `request.body` is what it is without the plugin.
 */

import { Readable } from "node:stream";
import type { IdempotentHandle } from "../middleware/core.ts";
import { FastifyHandling, type FastifyReply, type FastifyRequest, SKIP_OVERRIDE } from "../middleware/fastify.ts";
import { headerOf } from "../middleware/node.ts";
import { type ReceivedWebhook, WebhookCore, type WebhookOptions } from "./core.ts";
import { closing, readNode } from "./express.ts";
import { deliveryOf } from "./hono.ts";

/** The part of a Fastify instance that is used. */
export interface FastifyWebhookInstance {
  addHook(
    name: "preParsing",
    hook: (request: FastifyRequest, reply: FastifyReply, payload: unknown) => Promise<unknown>,
  ): unknown;
  addHook(
    name: "onSend",
    hook: (request: FastifyRequest, reply: FastifyReply, payload: unknown) => Promise<unknown>,
  ): unknown;
}

export interface FastifyWebhook<TxView, TxOptions> {
  (instance: FastifyWebhookInstance): Promise<void>;
  /** Returns the delivery that a handler runs for. */
  delivery(request: FastifyRequest): ReceivedWebhook<TxView, TxOptions>;
}

/** Verifies deliveries to the routes of an instance, and makes their handlers run once for each. */
export function fastifyWebhook<TxView, TxOptions>(
  pawl: IdempotentHandle<TxView, TxOptions>,
  options: WebhookOptions,
): FastifyWebhook<TxView, TxOptions> {
  const core = new WebhookCore(pawl, options);
  const deliveries = new WeakMap<FastifyRequest, ReceivedWebhook<TxView, TxOptions>>();
  const bodies = new WeakMap<FastifyRequest, Uint8Array | null>();
  const handling = new FastifyHandling<TxView, TxOptions, FastifyRequest>(core.maxBodyBytes, async (request) => {
    const body = bodies.get(request) ?? null;
    const received = await core.begin(request.headers, body);
    if ("delivery" in received) deliveries.set(request, received.delivery);
    return body === null ? closing(received.begun) : received.begun;
  });
  const preParsing = async (request: FastifyRequest, reply: FastifyReply, payload: unknown): Promise<unknown> => {
    const declared = Number(headerOf(request, "content-length") ?? 0);
    const bytes = await readNode(payload, declared, core.maxBodyBytes);
    bodies.set(request, bytes);
    if (!(await handling.begin(request, reply))) return reply;
    const whole = Buffer.from(bytes ?? new Uint8Array(0));
    // Fastify compares this with the header Content-Length.
    return Object.assign(Readable.from([whole], { objectMode: false }), { receivedEncodedLength: whole.length });
  };
  const plugin = async (instance: FastifyWebhookInstance): Promise<void> => {
    instance.addHook("preParsing", preParsing);
    instance.addHook("onSend", handling.onSend);
  };
  return Object.assign(plugin, {
    [SKIP_OVERRIDE]: true,
    delivery: (request: FastifyRequest) => deliveryOf(deliveries, request),
  });
}
